"""One answer on its way into a pipe or a program, and what all ways of showing a stream of events share.

    PlainAnswer     the text, exactly; calls in a line of their own
    JsonAnswer      one JSON object per event
    MarkdownAnswer  for a person at a terminal: `live.py`

Each takes the events of one stream through `feed` and is closed at its end, however it ends. Not here: what is written
before and after (`render.py`). rich is not imported: a script that asks one question should not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol

from shepherd.agent.session import Returned
from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)

EVENT_NAMES: dict[type[Event | Returned], str] = {
    Started: "started",
    Progress: "progress",
    Evicted: "evicted",
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallStarted: "call_started",
    CallDelta: "call_delta",
    CallEnded: "call_ended",
    Returned: "tool_result",
    Finished: "finished",
}
"""What `--json` calls the events (docs/chat.md)."""

Write = Callable[[str], None]


class Answer(Protocol):
    """Shows one stream of events."""

    def feed(self, event: Event | Returned) -> None:
        """Take the next event."""
        ...

    def tick(self) -> None:
        """Show what has come since the last picture; to be called every now and then."""
        ...

    def close(self) -> None:
        """Settle what is open: the stream has ended, by itself or not."""
        ...


_HIDDEN: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20) if code not in {0x09, 0x0A}}
_HIDDEN |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD), 0x0D: None}  # None deletes


def clean(text: str) -> str:
    """`text` with its control characters made visible: what a model writes must not steer the terminal."""
    return text.translate(_HIDDEN)


def call_line(call: ToolCall | BadCall) -> str:
    """A call as one line, such as `[Tool Call: read_file(path="a.txt")]`."""
    if isinstance(call, BadCall):
        return f"[Tool Call: {call.name or '?'} could not be read: {call.error}]"
    try:
        arguments = json.loads(call.arguments)
        inside = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    except (ValueError, AttributeError):
        inside = call.arguments
    return f"[Tool Call: {call.name}({inside})]"


LONGEST_RESULT = 300
"""Characters of a result that a person is shown."""


def result_line(result: ToolResult) -> str:
    """A tool's result as one line, such as `[Tool Result: {"value": "blue"}]`; a long one is shortened."""
    text = " ".join("".join(part.text for part in result.parts if isinstance(part, Text)).split())
    shown = text if len(text) <= LONGEST_RESULT else f"{text[:LONGEST_RESULT]}… ({len(text)} characters)"
    return f"[Tool Result: {shown}]"


def eviction_line(event: Evicted) -> str:
    """The notice that old turns have left the context."""
    messages = f"{event.messages} message{'' if event.messages == 1 else 's'}"
    tokens = f"{event.tokens} token{'' if event.tokens == 1 else 's'}"
    return f"[{messages} ({tokens}) left the context; the conversation goes on]"


class Evictions:
    """What left the context during one part of an answer: one line behind it, instead of several in the middle."""

    def __init__(self) -> None:
        self._sum = Evicted(0, 0)

    def add(self, event: Evicted) -> None:
        self._sum = Evicted(self._sum.messages + event.messages, self._sum.tokens + event.tokens)

    def take(self) -> str:
        """The line, once; empty when nothing has left."""
        found, self._sum = self._sum, Evicted(0, 0)
        return eviction_line(found) if found.tokens or found.messages else ""


class PlainAnswer:
    """The text and nothing but the text, for pipes and plain terminals."""

    def __init__(self, out: Write, notices: Write, *, safe: bool = False) -> None:
        """`safe`: `out` is a terminal, so control characters are made visible."""
        self._out = out
        self._notices = notices
        self._safe = safe
        self._at_start = True
        self._evictions = Evictions()

    def feed(self, event: Event | Returned) -> None:
        match event:
            case TextDelta(text=text):
                self._put(clean(text) if self._safe else text)
            case CallEnded(call=call):
                self._put(f"{'' if self._at_start else chr(10)}{call_line(call)}\n")
            case Returned(result=result):
                line = result_line(result)
                self._put(f"{clean(line) if self._safe else line}\n")
            case Evicted():
                self._evictions.add(event)
                self._tell_evictions()
            case _:
                pass

    def tick(self) -> None:
        pass

    def close(self) -> None:
        if not self._at_start:
            self._put("\n")
        self._tell_evictions()

    def _tell_evictions(self) -> None:
        # Both may be on one terminal: a notice does not begin in the middle of a line.
        if self._at_start and (line := self._evictions.take()):
            self._notices(line + "\n")

    def _put(self, text: str) -> None:
        if text:
            self._out(text)
            self._at_start = text.endswith("\n")


class JsonAnswer:
    """One JSON object per line and event, for programs."""

    def __init__(self, out: Write) -> None:
        self._out = out

    def feed(self, event: Event | Returned) -> None:
        if isinstance(event, Returned):
            said = "".join(part.text for part in event.result.parts if isinstance(part, Text))
            result = {"call_id": event.result.call_id, "name": event.result.name, "text": said}
            self._out(json.dumps({"event": "tool_result", **result, "ok": not event.result.is_error}) + "\n")
            return
        fields = {"event": EVENT_NAMES[type(event)], **asdict(event)}
        fields.pop("scores", None)  # nobody asks for them here
        if isinstance(event, CallEnded):
            fields["ok"] = isinstance(event.call, ToolCall)
        self._out(json.dumps(fields, ensure_ascii=False) + "\n")

    def tick(self) -> None:
        pass

    def close(self) -> None:
        pass


def bar(done: float, total: float, width: int = 16) -> str:
    """A bar that is as full as `done` of `total`."""
    filled = round(width * min(1.0, max(0.0, done / total))) if total else 0
    return f"▕{'█' * filled}{'░' * (width - filled)}▏"
