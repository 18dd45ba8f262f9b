"""A request as the prompt of one model: runs the template, switches thinking, and finds what the prompt leaves open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from shepherd.core import AnswerStart, InvalidRequest, Message, Reasoning, ReasoningLevel, ToolCall, ToolSpec
from shepherd.dialects.base import Piece, Prompt
from shepherd.dialects.parse.tags import TagDialect
from shepherd.dialects.render.conversation import spelled_call
from shepherd.dialects.render.frame import USER, attempted, exchange, kind_of, n_same, segments
from shepherd.dialects.render.probe import TOOL
from shepherd.dialects.render.replay import WrittenAnswer, joined, means, replayed, spelled, with_thoughts
from shepherd.dialects.render.replay import read as read_answer
from shepherd.dialects.render.template import NOTHING, Template

MAX_OPENED = 1000
"""So many ends of prompts are kept; only a template whose prompts all end differently has more."""
COMMON = re.compile(r"[\w ]*:?|<\w+>")
"""A head of a turn that ordinary text may hold, too."""
NO_ANSWERS: Mapping[int, WrittenAnswer] = MappingProxyType({})


def render(
    template: Template,
    dialect: TagDialect,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    reasoning: ReasoningLevel | None = None,
    extra: Mapping[str, Any] = NOTHING,
    now: datetime | None = None,
    answers: Mapping[int, WrittenAnswer] = NO_ANSWERS,
    start: AnswerStart | None = None,
) -> Prompt:
    """The prompt for the next assistant message, or for the rest of the last one if that is the assistant's, unless
    `start` sets something else.

    `now` is the date that the template prints. `answers` holds, by message index, assistant messages as the model wrote
    them; a message that the client has changed since stays as the client sent it.

    Raises: as `Template.render`.
    """
    answers = {index: answer for index, answer in answers.items() if means(messages[index], answer)}
    messages = with_thoughts(messages, answers)
    if reasoning == "off" and dialect.thinks and not dialect.thoughts and not template.caps.switch:
        reasoning = "low"  # the model always thinks: this is the nearest to off

    preface = offered(tools, template, dialect)
    run = partial(template.render, tools=tools, reasoning=reasoning, extra=extra, now=now, preface=preface)

    def asked(messages: Sequence[Message]) -> tuple[tuple[Piece, ...], str]:
        pieces = run(messages)
        end = pieces[-1].text if pieces and pieces[-1].origin is None else ""
        key = (end, kind_of(messages[-1]) if messages else None, dialect.markup.openers)
        opened = template.opened.get(key)
        if opened is None:  # a second rendering takes as long again, and equal ends open the same
            opened = opened_by(spelled(pieces), spelled(run(messages, add_generation_prompt=False)), dialect)
            if end and len(template.opened) < MAX_OPENED:
                template.opened[key] = opened
        if reasoning != "off" or not dialect.thinks:
            return pieces, opened
        empty = no_thought(opened, dialect, has_switch=template.caps.switch)
        return joined(pieces, Piece(empty, None)), opened + empty

    begun = beginning(messages, dialect) if start in (None, "text") else None
    if start == "nothing":
        pieces, opened = run(messages, add_generation_prompt=False), ""
    elif begun is None:
        pieces, opened = asked(messages)
    else:
        index = len(messages) - 1
        messages[index] = begun
        ends_thought = bool(begun.text) or start == "text"
        pieces, opened = (), ""
        if begun.text or not ends_thought:
            pieces, opened = continued(run(messages, add_generation_prompt=False), begun, index, dialect)
        if not pieces:  # the template leaves something of it out, or would end the message behind its thought
            head = asked(messages[:-1])
            pieces, opened = prefilled(
                *head, begun, index, template=template, dialect=dialect, ends_thought=ends_thought
            )
    earlier = {index: answer for index, answer in answers.items() if begun is None or index < len(messages) - 1}
    if earlier:
        pieces = replayed(pieces, earlier, dialect, tools)
    header = template.frame.header.strip()
    is_stop = not header.startswith(dialect.stops) and not COMMON.fullmatch(header)
    stops = (*dialect.stops, header) if is_stop else dialect.stops
    return Prompt(pieces, opened, stops, segments(pieces, messages, template.frame))


def end_of_answer(template: Template, dialect: TagDialect) -> str:
    """The tag that the template writes behind an answer; empty if an answer may hold it."""
    begins = (*dialect.stops, *dialect.markup.openers, *chain(*dialect.thoughts))
    return next((end for end in reversed(template.frame.ends) if end not in begins), "")


def beginning(messages: Sequence[Message], dialect: TagDialect) -> Message | None:
    """The last message, if the answer continues it; without a thought that is blank, or where the model knows none."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.calls or not (last.text or last.reasoning):
        return None  # a message with calls is complete
    if (dialect.thinks and last.reasoning.strip()) or not last.text:
        return last
    return replace(last, parts=tuple(part for part in last.parts if not isinstance(part, Reasoning)))


def opened_by(asking: str, silent: str, dialect: TagDialect) -> str:
    """What the generation prompt opens: its text from its first opener on, and nothing before that (S15).

    `asking` is the conversation with the generation prompt, `silent` without it.
    """
    tail = asking[n_same(asking, silent) :]
    starts = [at for opener in dialect.markup.openers if (at := tail.find(opener)) >= 0]
    return tail[min(starts) :] if starts else ""


def no_thought(opened: str, dialect: TagDialect, *, has_switch: bool) -> str:
    """The text behind `opened` that keeps the model from thinking: at most the rest of one empty thought (T7)."""
    for opener, closer in dialect.thoughts:
        if opener in opened:
            is_open = opened.rfind(opener) > opened.rfind(closer)
            return ("\n" if opened.endswith("\n") else "\n\n") + closer + "\n\n" if is_open else ""
    if has_switch or not dialect.thoughts:
        return ""
    opener, closer = dialect.thoughts[0]
    return f"{opener}\n\n{closer}\n\n"


def continued(
    pieces: tuple[Piece, ...], last: Message, index: int, dialect: TagDialect
) -> tuple[tuple[Piece, ...], str]:
    """The rendered conversation up to the end of its last message's text, and what is open there.

    No pieces when the template has left out a part of the message, as templates do with thoughts, or the tag that
    separates a thought from a text.
    """
    own = [at for at, piece in enumerate(pieces) if piece.origin == index]
    if not own:
        return (), ""
    pieces = pieces[: own[-1] + 1]
    others = [at for at in range(own[0]) if pieces[at].origin is not None]
    header = spelled(pieces[others[-1] + 1 if others else 0 : own[0]])
    shown = spelled(pieces[own[0] :])
    text, thought = last.text.strip(), last.reasoning.strip()
    heads = (*dialect.markup.openers, *(opener for opener, _ in dialect.headed), dialect.markup.answer[0])
    found = [(at + len(head), len(head)) for head in heads if head and (at := header.rfind(head)) >= 0]
    stop, length = max(found, default=(len(header), 0))  # of those that end last, the longest: `<|message|>` ends many
    opened = header[stop - length :]
    tags = (*dialect.thoughts, *dialect.headed)
    is_thought = any(opened.rfind(opener) > opened.rfind(closer) for opener, closer in tags)
    if is_thought != bool(thought) or thought not in shown or not shown.rstrip().endswith(text or thought):
        return (), ""
    # Many templates strip text; the model's next word depends on the blank before it.
    blanks = last.text[len(last.text.rstrip()) :] if text else ""
    if shown.endswith(blanks) and blanks:
        blanks = ""
    return joined(pieces, Piece(blanks, index)), opened + shown + blanks


def prefilled(
    pieces: tuple[Piece, ...],
    opened: str,
    last: Message,
    index: int,
    *,
    template: Template,
    dialect: TagDialect,
    ends_thought: bool,
) -> tuple[tuple[Piece, ...], str]:
    """The conversation before the last message, with that message written behind its generation prompt."""
    if not pieces:
        raise InvalidRequest("the chat template begins no answer here; send a user message first", field="messages")
    added = [Piece(last.text, index)]
    if last.reasoning and (dialect.thoughts or dialect.headed):
        # The message's thought replaces the one that the generation prompt opened.
        kept, opener, closer = around_thought(template, dialect, opened)
        end = replace(pieces[-1], text=pieces[-1].text.removesuffix(opened.removeprefix(kept)))
        pieces, opened = joined((), *pieces[:-1], end), kept
        closing = Piece(closer if ends_thought else "", None)
        thought = last.reasoning.removeprefix(opener)  # some models speak the opener
        added = [Piece(opener, None), Piece(thought, index), closing, *added]
    elif dialect.headed:
        added = [Piece(dialect.markup.answer[0], None), *added]
    elif dialect.thoughts:
        added = [Piece(no_thought(opened, dialect, has_switch=True), None), *added]
    return joined(pieces, *added), opened + spelled(added)


def around_thought(template: Template, dialect: TagDialect, opened: str) -> tuple[str, str, str]:
    """What of `opened` may stand before a thought, and the text before and behind one: as the template shows one before
    a call, else as the generation prompt opens one, else as the template spells the tags elsewhere."""
    if not dialect.thoughts:
        opener, closer = dialect.headed[0]
        return opened.partition(opener)[0], opener, closer + dialect.markup.answer[0]
    call, result = exchange(1)
    thinking = Message("assistant", (Reasoning("probethought"), *call.parts))
    pieces = attempted(
        lambda messages, tools: template.render(messages, tools=tools, reasoning="medium"),
        [USER, thinking, result],
        [TOOL],
    )
    before, thought, behind = spelled(pieces).partition("probethought")
    for opener, closer in dialect.thoughts:
        if thought and opener in before and closer in behind:
            rest = behind[behind.index(closer) + len(closer) :].lstrip("\n")
            return "", before[before.rindex(opener) :], behind[: len(behind) - len(rest)]
    opener, closer = dialect.thoughts[0]
    spelling = opened if opener in opened else template.source.replace("\\n", "\n")
    is_spoken = not opener.endswith((">", "]"))  # words stand on a line of their own
    gap = "\n" if is_spoken or f"{opener}\n" in spelling else ""
    return "", opener + gap, gap + closer + gap * (1 if is_spoken else 2)


# -- tools in words ---------------------------------------------------------------------------------------------------


WORDS = """You can call tools. These are the tools, each with a JSON Schema of its arguments:

{tools}

To call a tool, write a call like this one and nothing behind it; its result will be told to you:

{example}"""


def offered(tools: Sequence[ToolSpec], template: Template, dialect: TagDialect) -> str:
    """The description of the tools for the system message; empty if the template shows them itself (C12, TPL-04).

    It shows a call as this model's family writes one: the template's own spelling if the family's parser reads that,
    else the most common one that it reads.
    """
    if not tools or template.caps.shows_tools:
        return ""
    shapes = ({"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools)
    listed = "\n".join(json.dumps(shape, ensure_ascii=False) for shape in shapes)
    properties = tools[0].parameters.get("properties")
    key = next(iter(properties), "key") if isinstance(properties, Mapping) else "key"
    example = next(examples(template, dialect)).replace(TOOL.name, tools[0].name).replace("probekey", key)
    return WORDS.format(tools=listed, example=example.replace("probevalue", "..."))


def examples(template: Template, dialect: TagDialect) -> Iterator[str]:
    """Ways to write a call, those that the dialect reads; never none."""
    message, result = exchange(1)
    (call,) = message.calls
    if template.caps.calls:
        pieces = attempted(
            lambda messages, tools: template.render(messages, add_generation_prompt=False), [USER, message, result]
        )
        yield from (found.raw for found in read(spelled(pieces), dialect) if found.raw)
    usual = (spelled_call(call), json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}))
    yield from (text for text in usual if read(text, dialect))
    yield usual[0]


def read(text: str, dialect: TagDialect) -> list[ToolCall]:
    return [call for call in read_answer(text, dialect, [TOOL])[1] if call.name == TOOL.name]
