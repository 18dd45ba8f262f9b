"""Real outputs of real models, read whole and in pieces, against what llama.cpp's corpus expects."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.dialects.conformance import ABSENT, Json, cases, templates
from tests.dialects.streams import events_of

from shepherd.core import BadCall, Message, ToolCall, ToolSpec
from shepherd.dialects import detect, parse
from shepherd.dialects.base import Keep
from shepherd.dialects.tags import TagDialect

OURS = tuple(
    case
    for name in ("chat_cases", "chat_cases_roundtrip", "chat_cases_robust")
    for case in cases(name)
    if detect(templates()[case["template"]]).name == "hermes" or case["family"] in ("smollm3", "phi", "gemma2")
)


def told(message: Message) -> Json:
    calls = [part for part in message.parts if isinstance(part, ToolCall | BadCall)]
    return {
        "content": message.text.strip(),
        "reasoning_content": message.reasoning.strip(),
        "tool_calls": [(call.name, value(getattr(call, "arguments", ""))) for call in calls],
    }


def wanted(case: Json) -> Json:
    expected = case["expected"]
    return {
        "content": (expected.get("content") or "").strip(),
        "reasoning_content": (expected.get("reasoning_content") or "").strip(),
        "tool_calls": [(call["name"], value(call["arguments"])) for call in expected.get("tool_calls") or ()],
    }


def value(arguments: str) -> Any:
    """What the arguments mean; nothing when they are unfinished."""
    try:
        return json.loads(arguments)
    except ValueError:
        return ""


def tools_of(case: Json) -> list[ToolSpec]:
    functions = [tool["function"] for tool in case.get("tools") or ()]
    return [ToolSpec(f["name"], f.get("description") or "", f.get("parameters") or {}) for f in functions]


@pytest.mark.skipif(not OURS, reason=ABSENT)
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in OURS])
def test_an_output_is_read_as_expected_and_alike_for_every_cutting(case: Json) -> None:
    dialect = detect(templates()[case["template"]])
    assert isinstance(dialect, TagDialect)
    raw, opened = case["raw"], case["options"]["generation_prompt"]
    mode: Keep = "keep" if case["options"]["reasoning_format"] == "none" else "split"
    message = parse(raw, dialect=dialect, tools=tools_of(case), prefill=opened, reasoning=mode)
    assert told(message) == wanted(case)

    text = opened.removeprefix("<|im_start|>assistant\n") + raw
    whole = events_of([text], dialect, reasoning=mode)
    sampled = random.Random(case["id"]).sample(range(len(text)), min(len(text), 12))
    for chunks in [list(text), *([text[:at], text[at:]] for at in sampled)]:
        assert events_of(chunks, dialect, reasoning=mode) == whole
