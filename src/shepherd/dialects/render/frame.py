"""Where in a rendered conversation each message stands, its header and its trailer included.

The origin shows the text of a message, but not the owner of the markup between two texts. That markup is cut behind
what the template writes at the end of a message, and before what it writes at the head of a user message (`Frame`,
probed once per template with tiny conversations). So a conversation stays well formed when whole turns are cut out:

    <|im_start|>user\\n Hello <|im_end|>\\n │ <|im_start|>assistant\\n Hi. <|im_end|>\\n │ <|im_start|>user\\n ...
    header              text  trailer      cut
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from shepherd.core import EngineError, InvalidRequest, Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.core.dataclasses import dataclass
from shepherd.core.messages import leading_systems
from shepherd.dialects.base import TOOLS, Piece, Segment
from shepherd.dialects.render.probe import TOOL

Kind = Literal["system", "user", "asked", "assistant", "call", "result"]
"""How a message ends depends on its kind. `asked` is a user message that a call answers: where all calls of an answer
and their results stand in one assistant turn, the head of that turn belongs to the question."""

Render = Callable[[Sequence[Message], Sequence[ToolSpec]], tuple[Piece, ...]]
"""Renders a conversation, with tools, without asking for an answer."""

TAG = re.compile(r"<[^<>\s]*>|\[[^\[\]\s]*\]")


@dataclass(frozen=True, slots=True)
class Frame:
    header: str
    """Before the text of a user message; empty when unknown."""
    trailers: Mapping[Kind, str]
    """Behind the text of a message; unknown ones are missing."""
    ends: tuple[str, ...] = ()
    """The tags behind an answer that stand nowhere inside of one."""

    def end_of(self, message: Message, markup: str, start: int, before: Message | None) -> int | None:
        """Where in the markup between it and `before` a message ends, looking from `start` on; None for nowhere."""
        kind = kind_of(message)
        trailer = self.trailers.get("asked" if kind == "user" and before is not None and before.calls else kind)
        if trailer is None and kind == "system":  # a reminder in a user turn
            trailer = self.trailers.get("user")
        if trailer is None:
            return None
        if markup.startswith(trailer, start):
            return start + len(trailer)
        # The template may close a list of calls, or a thought, before it: the end of the end is the same.
        tags = [tag.start() for tag in TAG.finditer(trailer)]
        end = trailer[tags[-1] :] if tags else trailer
        found = markup.find(end, start)
        return found + len(end) if found >= 0 else None


def kind_of(message: Message) -> Kind:
    """The kind of a message, which decides how a template ends it."""
    match message.role:
        case "system":
            return "system"
        case "assistant":
            return "call" if message.calls else "assistant"
        case _:
            has_results = any(isinstance(part, ToolResult) for part in message.parts)
            return "result" if has_results and not message.text else "user"


# -- cutting a conversation ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Separator:
    """The markup before a text, up to the text before it or to the beginning; or the markup behind the last text."""

    start: int
    stop: int
    """Characters of the prompt, half open."""
    first: str
    """The markup up to the first request data that is no message, such as tool definitions; else all of it."""
    last: str
    """The markup behind the last such data; else all of it."""

    @property
    def has_tools(self) -> bool:
        return len(self.first) < self.stop - self.start


def segments(pieces: Sequence[Piece], messages: Sequence[Message], frame: Frame) -> tuple[Segment, ...]:
    """The segment of each message that shows; in order of the text, without overlap. Text of no message, such as the
    head of the next answer, is in no segment.

    Messages without a boundary between their texts share a segment. So does a message whose text comes in two places,
    with all messages in between.
    """
    gaps, runs = divided(pieces)
    shown = {origin for origin, _ in runs}
    n_leading = leading_systems(messages)
    made: list[SpanBuilder] = []
    where: dict[int, int] = {}
    """The index of the builder that holds each message."""
    top = -1
    for gap, (origin, stop) in zip(gaps, [*runs, (len(messages), -1)], strict=True):
        if origin in where:
            at = where[origin]
            for later in made[at + 1 :]:
                where |= dict.fromkeys(later.numbers, at)
                made[at].take(later)
            made[at].stop = stop
            del made[at + 1 :]
            continue
        # Messages without any text have a header and a trailer all the same, in most templates.
        silent = [at for at in range(top + 1, origin) if at not in shown] if made else []
        behind = [*(messages[joint.ending] for joint in made[-1:]), *(messages[at] for at in silent)]
        before = messages[origin] if origin < len(messages) else None
        ends = boundaries(gap, behind, before, frame, leading=bool(made) and made[-1].last < n_leading)
        if not made:
            start = head(gap, before, frame) if before is not None else gap.stop
        elif ends is not None:
            made[-1].stop = ends[0]
            made += [
                SpanBuilder(messages, a, b, at) for at, (a, b) in zip(silent, pairwise(ends), strict=True) if a < b
            ]
            start = ends[-1]
        elif before is None:
            break
        else:
            made[-1].take(SpanBuilder(messages, gap.stop, stop, origin))
            made[-1].stop = stop
            where[origin] = len(made) - 1
            top = max(top, origin)
            continue
        if before is not None:
            tools = gap.has_tools and start < gap.stop - len(gap.last)
            made.append(SpanBuilder(messages, start, stop, origin, tools=tools))
            where[origin] = len(made) - 1
            top = max(top, origin)
    return tuple(joint.segment() for joint in made)


class SpanBuilder:
    """A segment that is being built. Taking in another one costs as much as that one is long."""

    def __init__(self, messages: Sequence[Message], start: int, stop: int, number: int, *, tools: bool = False) -> None:
        self.start, self.stop, self.tools = start, stop, tools
        self.numbers = [number]
        self.last = number
        self._last_turn = number if messages[number].role != "system" else -1

    @property
    def ending(self) -> int:
        """The message that decides how it ends: a reminder ends as its turn does."""
        return self._last_turn if self._last_turn >= 0 else self.last

    def take(self, other: SpanBuilder) -> None:
        """Takes in the messages of another one, but not its end."""
        self.numbers += other.numbers
        self.tools |= other.tools
        self.last = max(self.last, other.last)
        self._last_turn = max(self._last_turn, other._last_turn)

    def segment(self) -> Segment:
        *others, last = sorted(set(self.numbers))
        return Segment(self.start, self.stop, last, tuple(others), self.tools)


def divided(pieces: Sequence[Piece]) -> tuple[list[Separator], list[tuple[int, int]]]:
    """The gaps between the messages' texts, and those texts as (message, end); a gap before each, one behind all."""
    gaps: list[Separator] = []
    runs: list[tuple[int, int]] = []
    between: list[Piece] = []
    start = at = 0
    for piece in pieces:
        at += len(piece.text)
        if piece.origin is None or piece.origin == TOOLS:
            between.append(piece)
            continue
        if runs and runs[-1][0] == piece.origin:
            runs[-1] = (piece.origin, at)
        else:
            gaps.append(separator_of(between, start))
            runs.append((piece.origin, at))
        start, between = at, []
    gaps.append(separator_of(between, start))
    return gaps, runs


def separator_of(between: Sequence[Piece], start: int) -> Separator:
    texts = [piece.text for piece in between]
    data = [at for at, piece in enumerate(between) if piece.origin == TOOLS] or [len(between)]
    last = "".join(texts[data[-1] + 1 :] if data[-1] < len(between) else texts)
    return Separator(start, start + sum(map(len, texts)), "".join(texts[: data[0]]), last)


def head(gap: Separator, message: Message, frame: Frame) -> int:
    if message.role == "system" or not frame.header:
        return gap.start if message.role == "system" else gap.stop
    # Not always right before the text: tools may stand between, or a user's message that says nothing.
    if (found := gap.last.rfind(frame.header)) >= 0:
        return gap.stop - len(gap.last) + found
    return gap.start + found if (found := gap.first.rfind(frame.header)) >= 0 else gap.stop


def boundaries(
    gap: Separator, behind: Sequence[Message], before: Message | None, frame: Frame, *, leading: bool
) -> list[int] | None:
    """Where each message of `behind` ends in the gap; `before` begins at the last one. None when nothing ends there.

    `leading`: the first of `behind` is one of the system messages at the front, and so is all request data in the gap.
    """
    ends: list[int] = []
    for message in behind:
        at = frame.end_of(message, gap.first, ends[-1] - gap.start if ends else 0, before)
        if at is None:
            break
        ends.append(gap.start + at)
    ends += [ends[-1]] * (len(behind) - len(ends)) if ends else []
    if before is not None and kind_of(before) == "user" and frame.header:
        if gap.last.endswith(frame.header) and (leading or not gap.has_tools):
            start = gap.stop - len(frame.header)
            return [*(min(end, start) for end in ends[:-1]), *[start] * (1 if ends else len(behind))]
        if behind and behind[-1].role == "system":
            # Not a user message's own header: either the tools stand behind it, or the system's text is in there.
            found = gap.first.rfind(frame.header)
            return [gap.start + found] * len(behind) if found >= 0 else None
    return ends or None


# -- finding out -----------------------------------------------------------------------------------------------------

SYSTEM = Message.system("probesystem")
USER = Message.user("probeuser")
ANSWER = Message.assistant("probeanswer")


def exchange(number: int) -> tuple[Message, Message]:
    call = ToolCall(f"probe000{number}", TOOL.name, '{"probekey": "probevalue"}')
    return Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text("proberesult"),), call.name),))


def framed(render: Render) -> Frame:
    """The frame of a template, probed by rendering about eight tiny conversations."""

    def behind(*messages: Message, tools: Sequence[ToolSpec] = ()) -> list[str]:
        """The markup behind the text of each message; nothing if the template refuses or leaves out any."""
        pieces = attempted(render, messages, tools)
        if not pieces:
            return []
        gaps, runs = divided(pieces)
        text = "".join(piece.text for piece in pieces)
        found: dict[int, str] = {}
        for (origin, _), gap in zip(runs, gaps[1:], strict=True):
            if origin >= max(found, default=0):  # a tool's name may show again beside its result
                found[origin] = text[gap.start : gap.stop]
        return [found[at] for at in range(len(messages))] if len(found) == len(messages) else []

    def between(inner: Sequence[str], at: int, alone: Sequence[str]) -> str:
        """The end of a message, whether it is the last one or not."""
        return shared_start(alone[-1], inner[at]) if alone else ""

    trailers: dict[Kind, str] = {}
    header = ""
    if talk := behind(USER, ANSWER, USER, ANSWER):
        trailers["user"] = trailers["asked"] = trailers["result"] = between(talk, 0, behind(USER))
        answered = between(talk, 1, behind(USER, ANSWER))
        header = talk[1].removeprefix(answered)
        # Some leave the last answer open; then a user's header is what stands before every user's text.
        usual = shared_end(divided(attempted(render, [USER]))[0][0].first, talk[1])
        if usual.strip() and len(usual) < len(header):
            header = usual
        trailers["assistant"] = trailers["call"] = talk[1].removesuffix(header)
    if header and (led := behind(SYSTEM, USER)) and led[0].endswith(header):
        trailers["system"] = led[0].removesuffix(header)

    first, second = exchange(1), exchange(2)
    if talk and (work := behind(USER, *first, *second, ANSWER, tools=[TOOL])):
        trailers["call"] = between(work, 1, behind(USER, first[0], tools=[TOOL]))
        asked = trailers["user"] if work[0].startswith(trailers["user"]) else ""
        result = between(work, 2, behind(USER, *first, tools=[TOOL]))
        if work[0].removeprefix(asked) != work[2].removeprefix(result):
            call_header = shared_end(work[0], work[2])
            asked, result = work[0].removesuffix(call_header), work[2].removesuffix(call_header)
        trailers |= {"asked": asked, "result": result}
    return Frame(header, trailers, end_tags(trailers.get("assistant", ""), render))


def end_tags(trailer: str, render: Render) -> tuple[str, ...]:
    """The tags behind an answer that stand inside of no answer with a thought or a call."""
    inside = ""
    call, result = exchange(1)
    thought = Reasoning("probethought")
    answers: tuple[tuple[Message, ...], ...] = (
        (Message("assistant", (thought, Text("probeanswer"))),),
        (Message("assistant", (Text("probeanswer"), *call.parts)), result),
        (Message("assistant", (thought, *call.parts)), result),
    )
    for messages in answers:
        pieces = attempted(render, [USER, *messages], [TOOL])
        own = [at for at, piece in enumerate(pieces) if piece.origin == 1]
        others = [at for at, piece in enumerate(pieces) if piece.origin == 2]
        stop = max((at for at in own if at < min(others, default=len(pieces))), default=-1)
        inside += "".join(piece.text for piece in pieces[min(own, default=0) : stop] if piece.origin is None)
    return tuple(tag for tag in TAG.findall(trailer) if tag not in inside)


def attempted(render: Render, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> tuple[Piece, ...]:
    try:
        return render(messages, tools)
    except (InvalidRequest, EngineError):
        return ()


def n_same(a: str, b: str) -> int:
    if a.startswith(b):
        return len(b)
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def shared_start(a: str, b: str) -> str:
    """The common beginning of both texts, in whole tags."""
    length = n_same(a, b)
    cuts = (tag.start() for text in (a, b) for tag in TAG.finditer(text) if tag.start() < length < tag.end())
    return a[: min(cuts, default=length)]


def shared_end(a: str, b: str) -> str:
    """The common end of both texts, in whole tags."""
    length = n_same(a[::-1], b[::-1])
    tags = ((len(text) - tag.end(), len(text) - tag.start()) for text in (a, b) for tag in TAG.finditer(text))
    return a[len(a) - min((stop for stop, start in tags if stop < length < start), default=length) :]
