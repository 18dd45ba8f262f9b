"""Calls as the XML-like families print them, and how the tests of these families read what comes of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.unit.dialects.streams import cuts, dialect, events_of

from shepherd.core import CallEnded, ReasoningDelta, TextDelta, ToolCall, ToolSpec

READ = ToolSpec(
    "read",
    "",
    {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}, "required": ["path"]},
)
EDIT = ToolSpec(
    "edit",
    "",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"type": "string"},
            "force": {"type": "boolean"},
            "marks": {"type": "array", "items": {"type": "integer"}},
            "style": {"type": "object", "properties": {"color": {"type": "string"}}},
        },
    },
)
CLOCK = ToolSpec("clock", "", {"type": "object", "properties": {}})
TOOLS = (READ, EDIT, CLOCK)

DSML = "｜DSML｜"
M3 = "]<]minimax[>["


def python(value: Any) -> str:
    """A value as a template prints it that knows of JSON only for objects and arrays."""
    return value if isinstance(value, str) else dumped(value) if isinstance(value, dict | list) else str(value)


def dumped(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def qwen(name: str, arguments: Mapping[str, Any]) -> str:
    values = "".join(f"<parameter={key}>\n{python(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def seed(name: str, arguments: Mapping[str, Any]) -> str:
    values = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in arguments.items())
    return f"<seed:tool_call>\n<function={name}>\n{values}</function>\n</seed:tool_call>"


def minimax(name: str, arguments: Mapping[str, Any]) -> str:
    values = "".join(f'<parameter name="{key}">{dumped(value)}</parameter>\n' for key, value in arguments.items())
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{values}</invoke>\n</minimax:tool_call>'


def dsml(wrapper: str) -> Callable[[str, Mapping[str, Any]], str]:
    def written(name: str, arguments: Mapping[str, Any]) -> str:
        values = "".join(
            f'<{DSML}parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{dumped(value)}</{DSML}parameter>\n"
            for key, value in arguments.items()
        )
        return (
            f'<{DSML}{wrapper}>\n<{DSML}invoke name="{name}">\n{values or chr(10)}</{DSML}invoke>\n</{DSML}{wrapper}>'
        )

    return written


def minicpm(name: str, arguments: Mapping[str, Any]) -> str:
    def value(given: Any) -> str:
        wrapped = isinstance(given, str) and any(char in given for char in "<&\n")
        return f"<![CDATA[{given}]]>" if wrapped else python(given)

    values = "".join(f'<param name="{key}">{value(given)}</param>' for key, given in arguments.items())
    return f'<function name="{name}">{values}</function>'


def m3(name: str, arguments: Mapping[str, Any]) -> str:
    def value(given: Any) -> str:
        match given:
            case dict():
                return "".join(f"{M3}<{key}>{value(item)}{M3}</{key}>" for key, item in given.items())
            case list():
                return "".join(f"{M3}<item>{value(item)}{M3}</item>" for item in given)
            case _:
                return dumped(given)

    return f'{M3}<tool_call>\n{M3}<invoke name="{name}">{value(dict(arguments))}{M3}</invoke>\n{M3}</tool_call>'


PRINTED: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "qwen-xml": qwen,
    "seed": seed,
    "minimax-m2": minimax,
    "deepseek-v3.2": dsml("function_calls"),
    "deepseek-v4": dsml("tool_calls"),
    "minicpm": minicpm,
    "minimax-m3": m3,
}
"""By dialect, the text of one call as its template prints it."""

Outcome = tuple[str, str] | str
"""A call's name and arguments; `text: ...`, `thought: ...` or `bad: name`."""


def told(raw: str, name: str, *, tools: Sequence[ToolSpec] = TOOLS, opened: str = "") -> list[Outcome]:
    """What an output says, alike for single characters and under some cuttings."""
    spoken = dialect(name)
    whole = events_of([raw], spoken, tools=tools, opened=opened)
    for chunks in (list(raw), *itertools.islice(cuts(raw), len(raw) % 7, len(raw) - 1, 1 + len(raw) // 12)):
        assert events_of(chunks, spoken, tools=tools, opened=opened) == whole
    outcomes: list[Outcome] = []
    for event in whole:
        match event:
            case TextDelta(text):
                outcomes.append(f"text: {text}")
            case ReasoningDelta(text):
                outcomes.append(f"thought: {text}")
            case CallEnded(ToolCall() as call):
                outcomes.append((call.name, call.arguments))
            case CallEnded(call):
                outcomes.append(f"bad: {call.name}")
    return outcomes
