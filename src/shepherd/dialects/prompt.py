"""A request as the prompt of one model: the template run, thinking switched, and what is left open for the answer.

Not here: how templates are run (`template`), what the answer's markup means (`scanner`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shepherd.core import Message, ReasoningLevel, ToolSpec
from shepherd.dialects.base import Dialect, Piece, Prompt
from shepherd.dialects.frame import stretches
from shepherd.dialects.template import NOTHING, Template


def render(
    template: Template,
    dialect: Dialect,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    reasoning: ReasoningLevel | None = None,
    extra: Mapping[str, Any] = NOTHING,
) -> Prompt:
    """The prompt for the next assistant message, or for the rest of the last one if that is the assistant's.

    Raises: as `Template.render`.
    """

    def run(messages: Sequence[Message], *, asking: bool) -> tuple[Piece, ...]:
        return template.render(messages, tools=tools, add_generation_prompt=asking, reasoning=reasoning, extra=extra)

    def asked(messages: Sequence[Message]) -> tuple[tuple[Piece, ...], str]:
        pieces = run(messages, asking=True)
        opened = opened_by(spelled(pieces), spelled(run(messages, asking=False)), dialect)
        if reasoning != "off" or not dialect.thinks:
            return pieces, opened
        empty = no_thought(opened, dialect, has_switch=template.caps.switch)
        return joined(pieces, Piece(empty, None)), opened + empty

    if messages and is_prefill(messages[-1]):
        pieces, opened = continued(run(messages, asking=False), messages[-1], len(messages) - 1, dialect)
        if not pieces:  # the template leaves something of it out
            pieces, opened = prefilled(*asked(messages[:-1]), messages[-1], len(messages) - 1, dialect)
    else:
        pieces, opened = asked(messages)
    return Prompt(pieces, opened, dialect.stops, stretches(pieces, messages, template.frame))


def is_prefill(message: Message) -> bool:
    """Whether the answer shall go on with this message; one that holds calls is complete."""
    return message.role == "assistant" and not message.calls and bool(message.text or message.reasoning)


def opened_by(asking: str, silent: str, dialect: Dialect) -> str:
    """What the generation prompt opens: from its first opener on, looking at nothing before it (S15).

    `asking` is the conversation with the generation prompt, `silent` without it.
    """
    shared = len(silent)
    if not asking.startswith(silent):
        shared = next((at for at, (a, b) in enumerate(zip(asking, silent, strict=False)) if a != b), len(asking))
    tail = asking[shared:]
    starts = [at for opener in dialect.openers if (at := tail.find(opener)) >= 0]
    return tail[min(starts) :] if starts else ""


def no_thought(opened: str, dialect: Dialect, *, has_switch: bool) -> str:
    """What must follow `opened` so that the model does not think: at most the rest of one empty thought (T7)."""
    for opener, closer in dialect.thoughts:
        if opener in opened:
            is_open = opened.rfind(opener) > opened.rfind(closer)
            return ("\n" if opened.endswith("\n") else "\n\n") + closer + "\n\n" if is_open else ""
    opener, closer = dialect.thoughts[0]
    return "" if has_switch else f"{opener}\n\n{closer}\n\n"


def continued(pieces: tuple[Piece, ...], last: Message, index: int, dialect: Dialect) -> tuple[tuple[Piece, ...], str]:
    """The rendered conversation up to the end of its last message's text, and what stands open there.

    No pieces when the template has left out some of the message, as templates do with thoughts.
    """
    own = [at for at, piece in enumerate(pieces) if piece.origin == index]
    if not own:
        return (), ""
    pieces = pieces[: own[-1] + 1]
    others = [at for at in range(own[0]) if pieces[at].origin is not None]
    header = spelled(pieces[others[-1] + 1 if others else 0 : own[0]])
    said = spelled(pieces[own[0] :])
    text, thought = last.text.rstrip(), last.reasoning.strip()
    if thought not in said or not said.endswith(text.lstrip()) or (not text and not said.endswith(thought)):
        return (), ""
    # Templates like to strip what they print; the model's next word depends on the blank before it.
    blanks = last.text[len(text) :] if text else ""
    thoughts = [at for opener, _ in dialect.thoughts if (at := header.rfind(opener)) >= 0]
    opened = header[max(thoughts) :] if thoughts else ""
    if said.endswith(blanks) and blanks:
        blanks = ""
    return joined(pieces, Piece(blanks, index)), opened + said + blanks


def prefilled(
    pieces: tuple[Piece, ...], opened: str, last: Message, index: int, dialect: Dialect
) -> tuple[tuple[Piece, ...], str]:
    """The conversation before the last message, with that message written behind its generation prompt."""
    added = [Piece(last.text, index)]
    if dialect.thoughts:
        opener, closer = dialect.thoughts[0]
        if last.reasoning:
            # Its own thought takes the place of one that the generation prompt opened, in the same style.
            gap = "" if opened.startswith(opener) and not opened.startswith(f"{opener}\n") else "\n"
            closing = f"{gap}{closer}{gap * 2}" if last.text else ""
            pieces, opened = joined((), *pieces[:-1], Piece(pieces[-1].text.removesuffix(opened), None)), ""
            added = [Piece(opener + gap, None), Piece(last.reasoning, index), Piece(closing, None), *added]
        else:
            added = [Piece(no_thought(opened, dialect, has_switch=True), None), *added]
    return joined(pieces, *added), opened + spelled(added)


def joined(pieces: Sequence[Piece], *added: Piece) -> tuple[Piece, ...]:
    """The pieces with more behind them; neighbours of one origin become one, empty ones none."""
    whole = list(pieces)
    for piece in added:
        if whole and whole[-1].origin == piece.origin:
            whole[-1] = Piece(whole[-1].text + piece.text, piece.origin)
        elif piece.text:
            whole.append(piece)
    return tuple(whole)


def spelled(pieces: Sequence[Piece]) -> str:
    """The text of the pieces."""
    return "".join(piece.text for piece in pieces)
