"""What an output says, in short, and alike for every cutting: the thoughts, the text, the calls and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.unit.dialects.streams import cuts, events_of

from shepherd.core import BadCall, CallEnded, Event, ReasoningDelta, TextDelta, ToolCall, ToolSpec
from shepherd.dialects.base import Keep
from shepherd.dialects.parse.tags import TagDialect

WEATHER = ToolSpec(
    "get_weather",
    "",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}},
        "required": ["city"],
    },
)
NOW = ToolSpec("now", "", {"type": "object", "properties": {}})
SHELL = ToolSpec("shell", "", {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]})
TOOLS = (WEATHER, NOW, SHELL)

Outline = list[tuple[str, ...]]


def outlined(
    raw: str,
    dialect: TagDialect,
    *,
    opened: str = "",
    tools: Sequence[ToolSpec] = TOOLS,
    reasoning: Keep = "split",
    truncated: bool = False,
) -> Outline:
    """The outline of an output, read whole and in pieces."""
    whole = events_of([raw], dialect, opened=opened, tools=tools, reasoning=reasoning, truncated=truncated)
    for chunks in [list(raw), *([raw[:at], raw[at:]] for at in range(1, len(raw), 1 + len(raw) // 30))]:
        assert events_of(chunks, dialect, opened=opened, tools=tools, reasoning=reasoning, truncated=truncated) == whole
    return list(outline(whole))


def told(
    raw: str, dialect: TagDialect, tools: Sequence[ToolSpec], *, opened: str = "", reasoning: Keep = "split"
) -> list[Any]:
    """Texts, (thoughts,) and calls as [name, arguments], "bad" for those that are; alike for every cutting."""
    whole = events_of([raw], dialect, tools=tools, reasoning=reasoning, opened=opened)
    for chunks in cuts(raw):
        assert events_of(chunks, dialect, tools=tools, reasoning=reasoning, opened=opened) == whole
    shown: dict[str, Callable[..., Any]] = {
        "says": str,
        "thinks": lambda text: (text,),
        "calls": lambda name, arguments: [name, json.loads(arguments)],
        "fails": lambda name: [name, "bad"],
    }
    return [shown[kind](*rest) for kind, *rest in outline(whole)]


def outline(events: Iterable[Event]) -> Iterable[tuple[str, ...]]:
    """One tuple a stretch: thinks, says, calls or fails."""
    for event in events:
        match event:
            case TextDelta(text):
                yield "says", text
            case ReasoningDelta(text):
                yield "thinks", text
            case CallEnded(ToolCall() as call):
                yield "calls", call.name, call.arguments
            case CallEnded(BadCall() as call):
                yield "fails", call.name
