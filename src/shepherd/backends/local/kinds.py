"""What the tokens of a prompt are, for displays: thought, call, result, image, recalled, notice, tools. Pure.

    message   <|im_start|>assistant <think> ... </think> text <tool_call> ... </tool_call><|im_end|>
    kinds     └──────── thought ──────────┘└─ assistant ─┘└─────────────── call ───────────────────┘

A kind reaches from the end of the part before it to the end of its own text, so the markup around a part is of one of
its neighbours. A part that its template writes in other words is not found, and counts with the next one. Finding parts
takes time, so it is done only while an engine is watched. Not here: what may leave (`leaving.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from shepherd.backends.local.leaving import QUOTED, Mark, place_of, text_of
from shepherd.core import (
    Audio,
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Image,
    Message,
    Part,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)
from shepherd.core.edits import WHOLE
from shepherd.dialects import Prompt
from shepherd.dialects.base import TOOLS
from shepherd.engine.base import Media, Span
from shepherd.engine.window import Kind
from shepherd.memory.recall.profile import OPENING as PROFILE
from shepherd.memory.recall.recall import OPENING as MEMORY

_RECALLED = (MEMORY, PROFILE, QUOTED)
"""How our asides of remembered words begin."""
_NOTICE = "[NOTICE:"
_SPELT: Mapping[str, Kind] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "result"}


def kind_of(part: Part, message: Message) -> Kind:
    match part:
        case Reasoning():
            return "thought"
        case ToolCall() | BadCall():
            return "call"
        case ToolResult():
            return "result"
        case Image() | Audio():
            return "image"
        case Text(text=text, aside=True) if text.lstrip().startswith(_RECALLED):
            return "recalled"
        case Text(text=text, aside=True) if text.lstrip().startswith(_NOTICE):
            return "notice"
        case _:
            return _SPELT[message.role]


def kinds_in(prompt: Prompt, messages: Sequence[Message]) -> list[tuple[int, Kind]]:
    """Up to which character of the prompt, what it is; in order. Characters of no message are of the next kind, but for
    tools that the template describes in front of the first message."""
    text, made = prompt.text, list[tuple[int, Kind]]()
    tools = _tools_in(prompt)
    if prompt.segments and tools[0] < tools[1] <= prompt.segments[0].start:
        made.append((prompt.segments[0].start, "tools"))
    for segment in prompt.segments:
        last, at = messages[segment.message], segment.start
        found: list[tuple[int, int, Kind]] = []
        if segment.start <= tools[0] < tools[1] <= segment.stop:
            found.append((*tools, "tools"))
        for message in (*(messages[other] for other in segment.others), last):
            for part in message.parts:
                low, high = place_of(_shown(part), text, at, segment.stop)
                if low < high:
                    found.append((low, high, kind_of(part, message)))
                    at = high
        made += [(high, kind) for _, high, kind in sorted(found)]
        is_tools = bool(found) and max(found)[2] == "tools"
        behind = kind_of(last.parts[-1], last) if last.parts else _SPELT[last.role]
        made.append((segment.stop, "tools" if is_tools else behind))
    return made


def _tools_in(prompt: Prompt) -> tuple[int, int]:
    at, found = 0, list[int]()
    for piece in prompt.pieces:
        if piece.origin == TOOLS:
            found += [at, at + len(piece.text)]
        at += len(piece.text)
    return (found[0], found[-1]) if found else (0, 0)


def _shown(part: Part) -> str:
    match part:
        case Text(text=text) | BadCall(raw=text):
            return text
        case _:
            return text_of(part)


def with_kinds(
    spans: Sequence[Span],
    messages: Sequence[Message],
    marks: Sequence[Mark],
    media: Mapping[int, Media],
    found: Sequence[tuple[int, Kind]],
) -> tuple[Span, ...]:
    """The spans with their kinds. `found`: as `kinds_in`, in tokens; empty: only what needs no search."""
    places = [mark.place for mark in marks] if len(marks) == len(spans) else [None] * len(spans)
    made: list[Span] = []
    for span, place in zip(spans, places, strict=True):
        base = _SPELT[span.label]
        if place is not None and place[1] != WHOLE:
            message = messages[place[0]]
            own: list[tuple[int, Kind]] = [(span.stop, kind_of(message.parts[place[1]], message))]
        else:
            start = span.start if made else 0  # the first one also tells what stands in front of it
            own = [(min(stop, span.stop), kind) for stop, kind in _between(found, start, span.stop)]
        images = [(at, at + each.n_tokens) for at, each in media.items() if span.start <= at < span.stop]
        kinds = _merged(_with_images(own or [(span.stop, base)], span.start, images))
        made.append(span if kinds == ((span.stop, base),) else replace(span, kinds=kinds))
    return tuple(made)


def _between(found: Sequence[tuple[int, Kind]], start: int, stop: int) -> Iterator[tuple[int, Kind]]:
    for end, kind in found:
        if end > start:
            yield end, kind
            if end >= stop:
                return


def _with_images(
    kinds: Iterable[tuple[int, Kind]], start: int, images: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, Kind]]:
    for stop, kind in kinds:
        for low, high in images:
            if start <= low < stop:
                yield from ((low, kind), (min(high, stop), "image"))
                start = min(high, stop)
        yield stop, kind
        start = stop


def _merged(kinds: Iterable[tuple[int, Kind]]) -> tuple[tuple[int, Kind], ...]:
    """Without empty ones, and no two neighbours alike."""
    made: list[tuple[int, Kind]] = []
    for stop, kind in kinds:
        if made and made[-1][0] >= stop:
            continue
        if made and made[-1][1] == kind:
            made.pop()
        made.append((stop, kind))
    return tuple(made)


class Written:
    """What the tokens of the newest answer of each sequence are, as far as it is written."""

    def __init__(self) -> None:
        self._by_seq: dict[int, tuple[int, list[tuple[int, Kind]]]] = {}

    def begin(self, seq: int, n_prompt: int) -> None:
        self._by_seq[seq] = n_prompt, []

    def note(self, seq: int, n_tokens: int, events: Iterable[Event]) -> None:
        """`n_tokens` of the answer have been read; the last of them made these events."""
        kinds = [_EVENTS[type(event)] for event in events if type(event) in _EVENTS]
        if kinds and seq in self._by_seq:
            n_prompt, known = self._by_seq[seq]
            if known and known[-1][1] == kinds[-1]:
                known.pop()
            known.append((n_prompt + n_tokens, kinds[-1]))

    def of(self, seq: int | str, n_prompt: int) -> tuple[tuple[int, Kind], ...]:
        """Up to which token, what the answer behind so many tokens is; empty for an unknown one."""
        n, kinds = self._by_seq.get(seq, (-1, [])) if isinstance(seq, int) else (-1, [])
        return tuple(kinds) if n == n_prompt else ()


_EVENTS: Mapping[type, Kind] = {
    TextDelta: "assistant", ReasoningDelta: "thought", CallStarted: "call", CallDelta: "call", CallEnded: "call",
}  # fmt: skip
