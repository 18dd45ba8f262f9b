"""Real outputs of real models, read whole and in pieces, against what llama.cpp's corpus expects."""

from __future__ import annotations

import json
import random
from operator import itemgetter
from typing import Any

import pytest
from tests.unit.dialects.conformance import Json, cases, grid, templates
from tests.unit.dialects.streams import events_of

from shepherd.core import BadCall, Message, ToolCall, ToolSpec
from shepherd.dialects import detect, parse
from shepherd.dialects.base import Keep
from shepherd.dialects.detection import without_header

FENCED = ("#6302.2", "#2648.7")
"""Answers by a JSON schema with a fence around them, expected without it: here no sampler lets a fence be written."""
CASES = [
    case
    for name in ("chat_cases", "chat_cases_roundtrip", "chat_cases_robust")
    for case in cases(name)
    if not case["id"].endswith(FENCED)
]


def shown(message: Message, case: Json) -> Json:
    calls = [part for part in message.parts if isinstance(part, ToolCall | BadCall)]
    return {
        "content": message.text.strip(),
        "reasoning_content": message.reasoning.strip(),
        "tool_calls": [(call.name, value(getattr(call, "arguments", ""), case)) for call in calls],
    }


def wanted(case: Json) -> Json:
    expected = case["expected"]
    return {
        "content": (expected.get("content") or "").strip(),
        "reasoning_content": (expected.get("reasoning_content") or "").strip(),
        "tool_calls": [(call["name"], value(call["arguments"], case)) for call in expected.get("tool_calls") or ()],
    }


def value(arguments: str, case: Json) -> Any:
    """What the arguments mean; nothing when they are unfinished."""
    try:
        found = json.loads(arguments)
    except ValueError:
        return ""
    return as_text(found) if case.get("args_compare") == "str-values" else found


def as_text(found: Any) -> Any:
    """The same value where 3 is "3" and true is "true": some protocols do not tell them apart."""
    match found:
        case dict():
            return {key: as_text(item) for key, item in found.items()}
        case list():
            return [as_text(item) for item in found]
        case str():
            return found
        case _:
            return json.dumps(found)


def tools_of(case: Json) -> list[ToolSpec]:
    functions = [tool["function"] for tool in case.get("tools") or ()]
    return [ToolSpec(f["name"], f.get("description") or "", f.get("parameters") or {}) for f in functions]


@pytest.mark.parametrize("case", grid(CASES, 0.1, name=itemgetter("id"), family=itemgetter("family")))
def test_an_output_is_read_as_expected_and_alike_for_every_cutting(case: Json) -> None:
    dialect = detect(templates()[case["template"]])
    raw, opened = case["raw"], case["options"]["generation_prompt"]
    mode: Keep = "keep" if case["options"]["reasoning_format"] == "none" else "split"
    tools = tools_of(case)
    message = parse(raw, dialect=dialect, tools=tools, prefill=opened, reasoning=mode)
    if case.get("policy"):
        assert message.parts  # reasonable servers may differ, but never say nothing
    else:
        assert shown(message, case) == wanted(case)
        ids = [call.get("id") for call in case["expected"].get("tool_calls") or ()]
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        assert all(expected in (None, "", call.id) for expected, call in zip(ids, calls, strict=False))

    text = without_header(opened, dialect) + raw
    whole = events_of([text], dialect, reasoning=mode, tools=tools)
    sampled = random.Random(case["id"]).sample(range(len(text)), min(len(text), 12))
    for chunks in [list(text), *([text[:at], text[at:]] for at in sampled)]:
        assert events_of(chunks, dialect, reasoning=mode, tools=tools) == whole
