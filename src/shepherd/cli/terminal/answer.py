"""Shows one answer in a pipe or to a program; also the lines for calls, results and evictions.

    PlainAnswer     the exact text; calls and their results in lines of their own
    JsonAnswer      one JSON object per event
    MarkdownAnswer  for a person at a terminal: `live.py`

Each gets the events of one turn through `feed`, and is closed at the end of the turn, also after an error. Not here:
the lines before and after (`view.py`). rich is not imported: a script that asks one question should not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from shepherd.agent.turn import CallProgress, CallReturned, TurnEvent
from shepherd.cli.text import clean, cut, format_count, json_text, n_columns, output_line
from shepherd.core import (
    Audio,
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Image,
    OpaqueBlock,
    Progress,
    ReasoningDelta,
    Recalled,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)
from shepherd.core.dataclasses import asdict, dataclass

EVENT_NAMES: dict[type[TurnEvent], str] = {
    Started: "started",
    Progress: "progress",
    Evicted: "evicted",
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallStarted: "call_started",
    CallDelta: "call_delta",
    CallEnded: "call_ended",
    CallProgress: "tool_working",
    CallReturned: "tool_result",
    Finished: "finished",
}
"""The names of events in `--json` (docs/chat.md)."""

Write = Callable[[str], None]


# -- calls and results ------------------------------------------------------------------------------------------------

LINE_WIDTH = 80
"""Columns of the line of a call or a result; `--json` has the whole text."""
_LEAST_VALUE = 12
"""The fewest columns of an argument."""
_LOOKED_AT = 4 * 1024
"""Characters of a result that can appear in its line."""


@lru_cache(maxsize=16)  # a running call is drawn repeatedly, and may contain a whole file
def call_line(call: ToolCall | BadCall, width: int = LINE_WIDTH) -> str:
    """A call as one line, such as `[Tool Call: read_file(path="a.txt")]`; long arguments are cut."""
    if isinstance(call, BadCall):
        return output_line(f"[Tool Call: {call.name or '?'} could not be read: {call.error}]")
    head, tail = f"[Tool Call: {output_line(call.name)}(", ")]"
    room = max(1, width - n_columns(head) - n_columns(tail))
    values = arguments(call)
    if values is None:
        return f"{head}{cut(output_line(call.arguments), room)}{tail}"
    inside = ", ".join(f"{name}={value}" for name, value in _fitted(values, room).items())
    return f"{head}{cut(inside, room)}{tail}"


def arguments(call: ToolCall) -> dict[str, str] | None:
    """The arguments of a call, each as one line of JSON; None when they are not a JSON object."""
    try:
        values = json.loads(call.arguments).items()
        return {output_line(name): clean(json.dumps(value, ensure_ascii=False)) for name, value in values}
    except (ValueError, AttributeError, RecursionError):
        return None


def _fitted(values: dict[str, str], room: int) -> dict[str, str]:
    """The values, the longest ones cut to the same width; short ones stay whole."""
    widths = [n_columns(value) for value in values.values()]
    room -= sum(n_columns(name) + len("=, ") for name in values) - len(", ")
    levels = range(max(room, _LEAST_VALUE), _LEAST_VALUE, -1)
    most = next((level for level in levels if sum(min(width, level) for width in widths) <= room), _LEAST_VALUE)
    return {name: _cut_value(value, most) for name, value in values.items()}


def _cut_value(value: str, width: int) -> str:
    if n_columns(value) <= width:
        return value
    return cut(value, width - 1) + '"' if value.startswith('"') else cut(value, width)


def result_text(result: ToolResult) -> str:
    """The whole text of a result; an image or a recording as a few words."""
    return "".join(part.text if isinstance(part, Text) else f"[{_named(part)}]" for part in result.parts)


def _named(image: Image | Audio) -> str:
    if isinstance(image, Audio):
        return f"recording {image.media_type}, {len(image.data):,} bytes"
    size = "" if image.data is None else f", {len(image.data):,} bytes"
    return f"image {image.media_type or image.url or ''}".strip() + size


def result_line(returned: CallReturned, width: int = LINE_WIDTH) -> str:
    """A result as one line, such as `[Tool Result: {"value": "blue"}]`: a short result is whole, unless it changed a
    file; else the summary of the tool, or its beginning."""
    head, tail = "[Tool Result: ", "]"
    room = max(1, width - len(head) - len(tail))
    text = result_text(returned.result).strip()
    inside = output_line(text[:_LOOKED_AT]) or "(empty)"
    is_short = "\n" not in text and len(text) <= _LOOKED_AT and n_columns(inside) <= room
    summary = output_line(returned.summary)
    is_excerpt = inside.startswith(summary.removesuffix("…"))  # the default, for a tool without a summary of its own
    if not is_excerpt and not returned.result.is_error and (returned.diff or not is_short):
        inside = summary
    return f"{head}{cut(inside, room)}{tail}"


@dataclass(slots=True, eq=False)
class OpenCall:
    call: ToolCall | BadCall
    is_shown: bool = False
    """Its own line has been shown."""
    line: str = ""
    """Its last line of progress."""
    returned: CallReturned | None = None


class OpenCalls:
    """The calls of one answer. They are shown in order, each followed by its result, whichever result comes first."""

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []

    def add(self, call: ToolCall | BadCall) -> None:
        self.calls.append(OpenCall(call))

    def work(self, event: CallProgress) -> None:
        if found := self._find(event.call):
            found.line = event.line

    def end(self, event: CallReturned) -> None:
        found = self._find(event.call)
        if found is None:
            found = OpenCall(event.call)
            self.calls.append(found)
        found.returned = event

    def take(self) -> list[tuple[OpenCall, CallReturned]]:
        """Remove and return the first calls, as far as they have results."""
        taken = []
        while self.calls and (returned := self.calls[0].returned) is not None:
            taken.append((self.calls.pop(0), returned))
        return taken

    def take_unshown(self) -> list[OpenCall]:
        """The calls whose own lines have not been shown; now they count as shown."""
        found = [each for each in self.calls if not each.is_shown]
        for each in found:
            each.is_shown = True
        return found

    def _find(self, call: ToolCall | BadCall) -> OpenCall | None:
        """Ids and whole calls may be equal: the same object, or else the first equal call."""
        waiting = [each for each in self.calls if each.returned is None]
        same = [each for each in waiting if each.call is call] or [each for each in waiting if each.call == call]
        return same[0] if same else None


# -- what the memory adds to the context, and what leaves it ---------------------------------------------------------


def recall_line(recalled: Recalled, now: datetime | None = None) -> str:
    """The notice that the memory has put earlier messages in front of the question."""
    today = (now or datetime.now()).date()
    moments = (datetime.fromtimestamp(second) for second in (recalled.oldest_s, recalled.newest_s))
    times = dict.fromkeys(f"{each:%H:%M}" if each.date() == today else f"{each:%Y-%m-%d}" for each in moments)
    return f"[recalled {format_count(recalled.messages, 'message')} of {' to '.join(times)} · /memory off]"


def fallback_line(event: TurnEvent) -> str:
    """Which back end has answered in place of others; empty where the first one has."""
    if not isinstance(event, Started) or not event.instead_of:
        return ""
    return f"[{event.cache or event.model} answers instead of {', '.join(event.instead_of)}]"


def eviction_line(event: Evicted) -> str:
    """The notice that old turns have left the context."""
    tokens = format_count(event.tokens, "token")
    parts = [f"parts of {format_count(len(event.partly), 'message')}"] if event.partly else []
    whole = [format_count(event.messages, "message")] if event.messages or not parts else []
    return f"[{' and '.join((*whole, *parts))} ({tokens}) left the context; the conversation continues]"


class Evictions:
    """The evictions during one part of an answer: one line behind it, instead of several inside."""

    def __init__(self) -> None:
        self._sum = Evicted(0, 0)

    def add(self, event: Evicted) -> None:
        before, partly = self._sum, tuple(dict.fromkeys((*self._sum.partly, *event.partly)))
        self._sum = Evicted(before.messages + event.messages, before.tokens + event.tokens, partly=partly)

    def take(self) -> str:
        """The line, and reset; empty without an eviction."""
        found, self._sum = self._sum, Evicted(0, 0)
        return eviction_line(found) if found.tokens or found.messages else ""


# -- answers ----------------------------------------------------------------------------------------------------------


class PlainAnswer:
    def __init__(self, out: Write, notices: Write) -> None:
        self._out = out
        self._notices = notices
        self._at_start = True
        self._evictions = Evictions()
        self._calls = OpenCalls()

    def feed(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._show_calls()
                self._put(text)
            case CallEnded(call=call):
                self._calls.add(call)
                if len(self._calls.calls) == 1:  # the line of the next call follows the result of this one
                    self._show_calls()
            case CallReturned():
                self._calls.end(event)
                self._show_results()
            case Started(recalled=recalled):
                self._show_calls()
                self._calls = OpenCalls()
                if recalled is not None and self._at_start:
                    self._notices(recall_line(recalled) + "\n")
            case Evicted():
                self._evictions.add(event)
                self._show_evictions()
            case _:
                pass

    def tick(self) -> None:
        pass

    def close(self) -> None:
        self._show_calls()
        if not self._at_start:
            self._put("\n")
        self._show_evictions()

    def _show_calls(self) -> None:
        for each in self._calls.take_unshown():
            self._put_line(call_line(each.call))

    def _show_results(self) -> None:
        for each, returned in self._calls.take():
            if not each.is_shown:
                self._put_line(call_line(each.call))
            self._put_line(result_line(returned))
        if self._calls.calls and not self._calls.calls[0].is_shown:
            self._calls.calls[0].is_shown = True
            self._put_line(call_line(self._calls.calls[0].call))

    def _show_evictions(self) -> None:
        # Answer and notices may share a terminal: a notice must not begin inside a line.
        if self._at_start and (line := self._evictions.take()):
            self._notices(line + "\n")

    def _put_line(self, line: str) -> None:
        self._put(f"{'' if self._at_start else chr(10)}{line}\n")

    def _put(self, text: str) -> None:
        if text:
            self._out(text)
            self._at_start = text.endswith("\n")


_NOT_SHOWN: Mapping[type[object], Sequence[str]] = {
    Started: ("at_ns", "own", "edits"),
    TextDelta: ("scores", "tokens", "refused"),
    Finished: ("own",),
}
"""What was not asked for, what only a provider reads, and a clock of this process."""


class JsonAnswer:
    def __init__(self, out: Write) -> None:
        self._out = out

    def feed(self, event: TurnEvent) -> None:
        fields: dict[str, Any]
        match event:
            case CallReturned(call=call, result=result):
                fields = {"call_id": result.call_id, "name": result.name or call.name, "text": result_text(result)}
                fields |= {"ok": not result.is_error, "summary": event.summary, "diff": event.diff}
            case CallProgress(call=call, line=line):
                fields = {"call_id": call.id, "name": call.name, "line": line}
            case OpaqueBlock():
                return  # only its provider reads it
            case ReasoningDelta():
                fields = {"text": event.text, "signature": event.signature, "redacted": event.redacted}
            case _:
                fields = asdict(event)
                for internal in _NOT_SHOWN.get(type(event), ()):
                    fields.pop(internal)
                if isinstance(event, CallEnded):
                    fields["call"].pop("signature", None)
                    fields["ok"] = isinstance(event.call, ToolCall)
        document = {"event": EVENT_NAMES[type(event)], **fields}
        self._out(json_text(document) + "\n")

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass
