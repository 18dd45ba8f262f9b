"""Calls in a JSON list between two tags or behind one: Apertus, Apriel, Nemotron, Granite 3, MiniMax-M1 and others."""

from __future__ import annotations

import pytest
from tests.unit.dialects.laws import TOOLS, assert_alike, calls_of, text_of
from tests.unit.dialects.streams import dialect, events_of
from tests.unit.dialects.writers import LISTED

from shepherd.core import Reasoning, ReasoningDelta, Text, TextDelta, ToolCall
from shepherd.dialects import parse

SIX = '{"sides": 6}'
ROLL = '{"name": "roll", "arguments": {"sides": 6}}'


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("apertus", '<|tools_prefix|>{"roll": {"sides": 6}}<|tools_suffix|>'),
        ("apertus", '<|tools_prefix|>[{"roll": {"sides": 6}}]'),
        ("apertus", f"<|tools_prefix|>[{ROLL}]<|tools_suffix|>"),
        ("apriel", f"<tool_call>[{ROLL}]</tool_call>"),
        ("apriel", f"<tool_calls>{ROLL}</tool_calls>"),
        ("apriel", f'<tool_calls>[{{"name": "roll", "arguments": {SIX}, "id": "x1"}}]</tool_calls>'),
        ("minimax-m1", f"<tool_calls>[{ROLL}]</tool_calls>"),
        ("minimax-m1", f"<tool_calls>{ROLL}"),
        ("nemotron-v2", f"<TOOLCALL>{ROLL}</TOOLCALL>"),
        ("nemotron-v2", f"<TOOLCALL>[{{{ROLL}}}]</TOOLCALL>"),
        ("nemotron-v2", '<TOOLCALL>[{"name": "roll", "arguments": "{\\"sides\\": 6}"}]</TOOLCALL>'),
        ("granite-3", f"<tool_call>[{ROLL}]"),
        ("granite-3", f"<|tool_call|>{ROLL}"),
        ("phi-4", f"functools[{ROLL}]"),
        ("phi-4", f'<|tool_call|>[{{"type": "function", "function": {ROLL}}}]<|/tool_call|>'),
        ("command-r", 'Action: ```json\n[{"tool_name": "roll", "parameters": {"sides": 6}}]\n```'),
        ("command-r", 'Action:\n[{"tool_name": "roll", "parameters": {"sides": 6}}]'),
        ("command-r", f"Action:\n```json\n[{ROLL}]\n```"),
        ("internlm", '<|action_start|> <|plugin|>\n{"name": "roll", "parameters": {"sides": 6}}<|action_end|>'),
        ("olmo-3", "<function_calls>\nroll(sides=6)\n</function_calls>"),
        ("olmo-3", f"<function_calls>[{ROLL}]</function_calls>"),
        ("hunyuan-a13b", f"<tool_calls>[{ROLL}]</tool_calls>"),
        *((name, ROLL) for name in LISTED),
    ],
)
def test_slips_are_read(name: str, raw: str) -> None:
    assert calls_of(raw, dialect(name)) == [("roll", SIX)]
    assert text_of(raw, dialect(name)).strip() == ""


def test_ids_are_kept() -> None:
    raw = f'<tool_calls>[{{"name": "roll", "arguments": {SIX}, "id": "x1"}}, {ROLL}]</tool_calls>'
    calls = [part for part in parse(raw, dialect="apriel").parts if isinstance(part, ToolCall)]
    assert calls[0].id == "x1"
    assert calls[1].id not in {"", "x1"}


def test_braces_within_strings_are_not_taken_for_doubled_ones() -> None:
    raw = '<TOOLCALL>[{{"name": "roll", "arguments": {"note": "{{a}} }}", "deep": {"x": {}}}}}]</TOOLCALL>'
    assert calls_of(raw, dialect("nemotron-v2")) == [("roll", '{"note": "{{a}} }}", "deep": {"x": {}}}')]


def test_an_empty_list_is_no_call_and_no_empty_answer() -> None:
    assert text_of("Sure.\n<TOOLCALL>[]</TOOLCALL>", dialect("nemotron-v2")) == "Sure."
    assert calls_of("Sure.\n<TOOLCALL>[]</TOOLCALL>", dialect("nemotron-v2")) == []
    assert calls_of("<TOOLCALL>[]</TOOLCALL>", dialect("nemotron-v2")) == [("", "bad")]


def test_apriel_thinks_aloud_until_its_final_response_begins() -> None:
    final = f"Hi\n<tool_calls>[{ROLL}]</tool_calls>\n[END FINAL RESPONSE]"
    raw = f"Here are my reasoning steps:\nhm\n[BEGIN FINAL RESPONSE]\n{final}"
    parts = parse(raw, dialect="apriel", tools=TOOLS).parts
    assert parts[:2] == (Reasoning("Here are my reasoning steps:\nhm"), Text("Hi"))
    assert [type(part) for part in parts[2:]] == [ToolCall]
    opened = parse("hm\n[BEGIN FINAL RESPONSE]\nHi", dialect="apriel", prefill="Here are my reasoning steps:\n").parts
    assert opened == parts[:2]
    streamed = events_of(["hm\n[BEGIN FINAL RESPONSE]\nHi"], dialect("apriel"), opened="Here are my reasoning steps:\n")
    assert streamed == [ReasoningDelta("Here are my reasoning steps:\nhm"), TextDelta("Hi")], "the prompt begins it"
    continued = events_of(
        [" more\n[BEGIN FINAL RESPONSE]\nHi"], dialect("apriel"), opened="Here are my reasoning steps:\nhm"
    )
    assert continued == [ReasoningDelta(" more"), TextDelta("Hi")], "a client has begun it"
    kept = parse(raw[:60], dialect="apriel", reasoning="keep")
    assert kept.parts == (Text(raw[:60].strip()),)


def test_command_r_speaks_no_tokens_of_its_turns() -> None:
    turn = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    assert parse(f"{turn}Hello.<|END_OF_TURN_TOKEN|>", dialect="command-r").parts == (Text("Hello."),)
    assert parse("Hello.", dialect="command-r", prefill=turn).parts == (Text("Hello."),)


def test_apertus_calls_in_the_middle_of_its_thoughts() -> None:
    raw = '<|inner_prefix|>Dice, then.<|tools_prefix|>[{"roll": {"sides": 6}}]<|tools_suffix|>'
    parts = parse(raw, dialect="apertus").parts
    assert [type(part) for part in parts] == [Reasoning, ToolCall]
    assert parse("<|inner_prefix|>hm<|inner_suffix|>Hi", dialect="apertus").parts == (Reasoning("hm"), Text("Hi"))


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("granite-3", "<think>hm</think><response>Hi</response>", "Hi"),
        ("granite-3", "<think>hm</think>\n\n<response>\nHi\n</response>\n", "Hi"),
        ("granite-3", "<response>Hi", "Hi"),
        ("granite-3", "Wrap it in <response>a</response> tags.", "Wrap it in <response>a</response> tags."),
        ("granite-3", "```xml\n<response>\n</response>\n```", "```xml\n<response>\n</response>\n```"),
        ("hunyuan-a13b", "<think>\nhm\n</think>\n<answer>\nHi\n</answer>", "Hi"),
        ("hunyuan-a13b", "助手：Hi", "Hi"),
        ("hunyuan-a13b", "See <answer>x</answer>.", "See <answer>x</answer>."),
    ],
)
def test_the_tags_around_an_answer_go_and_the_same_tags_within_text_stay(name: str, raw: str, text: str) -> None:
    for tools in (TOOLS, ()):
        assert text_of(raw, dialect(name), tools) == text
    assert_alike(raw, dialect(name), range(1, len(raw), 2))
