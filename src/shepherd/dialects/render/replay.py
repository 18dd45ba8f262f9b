"""Puts an answer of the history back as the model wrote it: its own characters in place of the template's (K7).

Templates and models spell calls differently. The KV cache holds what the model wrote, so a history in the template's
spelling is another text from the first call on, and everything behind it would be computed again:

    rendered   <|im_start|>assistant\\n <tool_call>\\n{"name": "f", "arguments": {"a": 1}}\\n</tool_call> <|im_end|>\\n
    written                            <tool_call>{"name":"f","arguments":{"a":1}}</tool_call>
               └ head ───────────────┘ └ body: replaced if both say the same ──────────────────┘

Nothing is guessed. The answer must be a remembered one. The model family's own parser reads what the template made of
it; only if it finds the same words and the same calls are the characters replaced. Where a template leaves out
something, usually an old thought, it has a reason: that answer stays as the template has it.

Only remembered pieces can be control tokens. A client's messages decide which of them stand where, never what they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence

from shepherd.core import BadCall, CallEnded, Event, Message, Reasoning, ReasoningDelta, TextDelta, ToolCall, ToolSpec
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.dialects.base import Piece, Prompt
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.render.frame import n_same

TAG = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|[\]})]")
OWN = 0
"""Stands for the index of the message in the pieces of a `WrittenAnswer`."""


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    message: Message
    head: str
    """The markup before it, from the last text of a message on."""
    pieces: tuple[Piece, ...]
    """What the prompt had opened, and what was written: protocol tokens of origin `None`, text of origin `OWN`."""
    end: int
    """Characters of it up to the end of its last call as the parser saw it; all of them when it has none."""
    known: dict[tuple[str, ...], int | None] = field(default_factory=dict, compare=False, repr=False)
    """Where it ends in the last rendering: a tool loop renders it again and again."""


def written_answer(
    prompt: Prompt, written: Sequence[Piece], message: Message, dialect: TagDialect, tools: Sequence[ToolSpec] = ()
) -> WrittenAnswer | None:
    """The answer to a prompt, to be remembered. `written` has protocol tokens of origin `None`, text of origin `OWN`.

    None when it cannot be replayed: it continues a client's prefill, or holds a call that could not be read.
    """
    tail = prompt.pieces[-1]
    if any(isinstance(part, BadCall) for part in message.parts) or not message.parts:
        return None
    if tail.origin is not None or not tail.text.endswith(prompt.opened):
        return None
    whole = prompt.opened + spelled(written)
    text, calls = read(whole, dialect, tools)
    end = end_of(message.calls, whole) if message.calls else len(whole)
    if end is None or text.split() != words(message) or not same(calls, message.calls):
        return None
    opened = (Piece(prompt.opened, None),) if prompt.opened else ()
    return WrittenAnswer(message, tail.text[: len(tail.text) - len(prompt.opened)], (*opened, *written), end)


def means(message: Message, answer: WrittenAnswer) -> bool:
    """Whether a client's message is that answer; its thought may be missing, for most clients leave it out."""
    own = answer.message
    return (
        message.text.strip() == own.text.strip()
        and message.reasoning.strip() in ("", own.reasoning.strip())
        and same(message.calls, own.calls)
    )


def with_thoughts(messages: Sequence[Message], answers: Mapping[int, WrittenAnswer]) -> list[Message]:
    """The messages with the remembered thoughts before calls, so that the model sees its thoughts in a tool loop.

    `answers` are the remembered ones by the index of the message. The template decides whether a thought shows.
    """
    given = list(messages)
    for index, answer in answers.items():
        message, thought = messages[index], answer.message.reasoning
        if thought and message.calls and not message.reasoning:
            given[index] = replace(message, parts=(Reasoning(thought), *message.parts))
    return given


def replayed(
    pieces: Sequence[Piece], answers: Mapping[int, WrittenAnswer], dialect: TagDialect, tools: Sequence[ToolSpec] = ()
) -> tuple[Piece, ...]:
    """The rendered conversation with each remembered answer as it was written, where both have the same content."""
    made = list(pieces)
    for index, (start, stop) in reversed(places(pieces, answers).items()):
        before = made[start - 1].text if start and made[start - 1].origin is None else ""
        behind = made[stop].text if stop < len(made) and made[stop].origin is None else ""
        body = replaced(before, made[start:stop], behind, answer=answers[index], dialect=dialect, tools=tools)
        if body is not None:
            own = (replace(piece, origin=index) if piece.origin == OWN else piece for piece in body)
            made[start - bool(before) : stop + bool(behind)] = own
    return joined((), *made)


def places(pieces: Sequence[Piece], indexes: Collection[int]) -> dict[int, tuple[int, int]]:
    """For each of the messages, in order of the text, the pieces `[start, stop)` from the first of its text to the last
    before another message's. Text that shows again behind that, such as the tool's name, is not the answer."""
    found: dict[int, tuple[int, int]] = {}
    current: int | None = None
    for at, piece in enumerate(pieces):
        if piece.origin is None:
            continue
        if piece.origin != current and piece.origin in found:
            current = None
            continue
        current = piece.origin
        if current in indexes:
            found[current] = (found[current][0] if current in found else at, at + 1)
    return found


def replaced(
    before: str,
    own: Sequence[Piece],
    behind: str,
    *,
    answer: WrittenAnswer,
    dialect: TagDialect,
    tools: Sequence[ToolSpec],
) -> list[Piece] | None:
    """One answer in a rendered conversation, with the markup around it, as it was written; None if that differs.

    `own` are the pieces from the first of its text to the last; the markup `before` and `behind` reaches to the texts
    of other messages.
    """
    if not before.startswith(answer.head):
        return None
    own_calls = answer.message.calls
    body = [Piece(before[len(answer.head) :], None), *own, Piece(behind if own_calls else "", None)]
    shown = spelled(body)
    key = (shown, *(tool.name for tool in tools))
    try:
        end = answer.known[key]
    except KeyError:
        end = where_it_ends(shown, answer.message, dialect, tools)
        answer.known.clear()
        answer.known[key] = end
    if end is None:
        return None
    # What the template writes behind a call and is no part of the answer, such as the tool's name again, stays.
    rest = [*after(body, end), *([] if own_calls else [Piece(behind, None)])]
    closing = rest[0].text if rest and rest[0].origin is None else ""
    closed = n_closed(spelled(answer.pieces)[answer.end :], closing)
    return [Piece(answer.head, None), *answer.pieces, *after(rest, closed)]


def where_it_ends(shown: str, message: Message, dialect: TagDialect, tools: Sequence[ToolSpec]) -> int | None:
    """How many characters of a rendering hold the content of the message; None when its content differs."""
    text, calls = read(shown, dialect, tools, n_calls=len(message.calls))
    if text.split() != words(message) or not same(calls, message.calls):
        return None
    return end_of(calls, shown) if calls else len(shown)


def n_closed(rest: str, closing: str) -> int:
    """How much of the template's markup behind a call `rest`, which the model wrote behind it, replaces.

    Both may close a list of calls there, with different blanks; only the template ends the turn.
    """
    if not rest:
        return 0
    lead = len(closing) - len(closing.lstrip())
    n_both = n_same(rest.lstrip(), closing[lead:])
    n_tags = max((tag.end() for tag in TAG.finditer(closing[lead : lead + n_both])), default=0)
    stop = lead + n_tags if n_tags or rest.isspace() else 0
    return stop + len(closing[stop:]) - len(closing[stop:].lstrip()) if rest[-1].isspace() else stop


def read(
    text: str, dialect: TagDialect, tools: Sequence[ToolSpec], *, n_calls: int | None = None
) -> tuple[str, list[ToolCall]]:
    """The words, thoughts first, and the calls that an answer spells, up to its last call of so many."""
    parser = dialect.parser(tools=tools)
    events: list[Event] = [*parser.feed(text), *parser.close()]
    visible: list[str] = []
    thought: list[str] = []
    calls: list[ToolCall] = []
    for event in events:
        match event:
            case TextDelta():
                visible.append(event.text)
            case ReasoningDelta():
                thought.append(event.text)
            case CallEnded(ToolCall() as call):
                calls.append(call)
                if len(calls) == n_calls:
                    break
    return f"{''.join(thought)}\n{''.join(visible)}", calls


def same(calls: Sequence[ToolCall], others: Sequence[ToolCall]) -> bool:
    return [meaning(call) for call in calls] == [meaning(call) for call in others]


def words(message: Message) -> list[str]:
    return [*message.reasoning.split(), *message.text.split()]


def meaning(call: ToolCall) -> tuple[str, str]:
    try:
        return call.name, json.dumps(json.loads(call.arguments, strict=False), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments


def end_of(calls: Sequence[ToolCall], text: str) -> int | None:
    """Where the last of the calls ends in the text that spells them; None when it is not there."""
    # A call that stands in the block of the one before has nothing of its own.
    raw = next((call.raw for call in reversed(calls) if call.raw), None)
    at = text.rfind(raw) if raw else -1
    return at + len(raw) if raw and at >= 0 else None


def after(pieces: Sequence[Piece], start: int) -> list[Piece]:
    made: list[Piece] = []
    for piece in pieces:
        if len(piece.text) > start:
            made.append(replace(piece, text=piece.text[max(0, start) :]))
        start -= len(piece.text)
    return made


def joined(pieces: Sequence[Piece], *added: Piece) -> tuple[Piece, ...]:
    """The pieces with more behind them; neighbours of one origin are merged, empty pieces dropped."""
    whole = list(pieces)
    for piece in added:
        if not piece.text:
            continue
        if whole and whole[-1].origin == piece.origin and not (whole[-1].is_media or piece.is_media):
            whole[-1] = Piece(whole[-1].text + piece.text, piece.origin)
        else:
            whole.append(piece)
    return tuple(whole)


def spelled(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)
