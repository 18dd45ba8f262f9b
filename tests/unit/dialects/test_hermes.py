"""What Hermes-like models write inside of `<tool_call>`, as they should and as they do."""

from __future__ import annotations

import json

import pytest
from tests.unit.dialects import laws
from tests.unit.dialects.streams import events_of, message_of, names

from shepherd.core import BadCall, CallDelta, CallEnded, CallStarted, Reasoning, Text, ToolCall, ToolSpec
from shepherd.dialects import parse
from shepherd.dialects.families.hermes import HERMES


def calls_of(raw: str) -> list[tuple[str, str]]:
    return laws.calls_of(raw, HERMES, ())


CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def test_a_call_is_reported_when_it_is_complete_with_its_exact_text() -> None:
    call = ToolCall("call_0", "f", '{"a": 1}', CALL)
    assert events_of([CALL]) == [CallStarted("call_0", "f"), CallDelta('{"a": 1}'), CallEnded(call)]


def test_thought_text_and_calls_come_in_the_order_of_the_output() -> None:
    parts = message_of(f"<think>\nhm\n</think>\n\nLet me see.\n{CALL}\n{CALL}\n\nDone.").parts
    assert [type(part) for part in parts] == [Reasoning, Text, ToolCall, ToolCall, Text]
    assert (parts[1], parts[4]) == (Text("Let me see."), Text("Done."))


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "f", "arguments": {"a": 1}}',
        '{"arguments": {"a": 1}, "name": "f"}',
        '{"name": "f", "parameters": {"a": 1}}',
        '{"name":"f","arguments":"{\\"a\\": 1}"}',
        '{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}',
        '{"function": "f", "arguments": {"a": 1}}',
        "{'name': 'f', 'arguments': {'a': 1}}",
        '{"name": "f", "arguments": {"a": 1,},}',
        '{{"name": "f", "arguments": {"a": 1}}}',
        '{"name": "f", "arguments": {"a": 1}}}',
        '{"name": "f", "arguments": {"a": 1}',
        '```json\n{"name": "f", "arguments": {"a": 1}}\n```',
        '[{"name": "f", "arguments": {"a": 1}}]',
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}',
    ],
)
@pytest.mark.parametrize("blank", ["\n", ""])
def test_a_call_is_read_however_the_model_writes_it(body: str, blank: str) -> None:
    assert calls_of(f"<tool_call>{blank}{body}{blank}</tool_call>") == [("f", '{"a": 1}')]


@pytest.mark.parametrize("arguments", ["{ }", f'{{"long": {"9" * 5000}}}'])
def test_arguments_are_the_models_own_characters(arguments: str) -> None:  # S3, S5, S6; more in `test_written_calls`
    assert calls_of(f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>') == [("f", arguments)]


def test_raw_line_breaks_inside_of_strings_are_escaped_and_nothing_else_changes() -> None:
    raw = '<tool_call>{"name": "f", "arguments": {"n": 10000000000000000000000, "t": "a\n\tb"}}</tool_call>'
    assert calls_of(raw) == [("f", '{"n": 10000000000000000000000, "t": "a\\n\\tb"}')]


def test_a_python_literal_keeps_its_emoji() -> None:
    assert calls_of("<tool_call>{'name': 'f', 'arguments': {'t': '\\ud83d\\ude00', 'b': true}}</tool_call>") == [
        ("f", '{"t": "😀", "b": true}')
    ]


def test_several_objects_in_one_block_are_several_calls_and_share_its_text() -> None:
    raw = '<tool_call>\n{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}\n</tool_call>'
    assert calls_of(raw) == [("f", "{}"), ("g", "{}")]
    assert "".join(call.raw or "" for call in message_of(raw).calls) == raw
    listed = '<tool_call>[{"name": "f"}, {"name": "g"}]</tool_call>'
    assert calls_of(listed) == [("f", "{}"), ("g", "{}")]
    assert "".join(call.raw or "" for call in message_of(listed).calls) == listed


def test_text_after_a_call_without_closer_is_text() -> None:
    parts = message_of('<tool_call>\n{"name": "f"}\nI will report back.').parts
    assert [type(part) for part in parts] == [ToolCall, Text]
    assert parts[1] == Text("I will report back.")


def test_a_complete_call_at_the_end_needs_no_closer() -> None:  # SCN-24
    assert calls_of('<tool_call>\n{"name": "f", "arguments": {"a": 1}}') == [("f", '{"a": 1}')]
    assert calls_of('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_') == [("f", '{"a": 1}')]


@pytest.mark.parametrize(
    ("body", "name", "error"),
    [
        ('{"name": "f", "arguments": {"a', "f", "ended inside"),
        ('{"na', "", "ended inside"),
        ("", "", "empty"),
        ("\n</tool_call>", "", "empty"),
        ("the weather in Paris\n</tool_call>", "", "not valid JSON"),
        ("get_weather(Paris)\n</tool_call>", "get_weather", "cannot be read"),
        ('{"name": "f", "arguments": [1]}</tool_call>', "f", "must be a JSON object"),
        ('{"name": "f", "arguments": "Paris"}</tool_call>', "f", "must be a JSON object"),
        ('{"name": "f", "arguments": {"a": NaN}}</tool_call>', "f", "NaN is not JSON"),
        ('{"name": "f", "city": "Paris"}</tool_call>', "f", 'no "arguments"'),
        ('{"name": "needy"}</tool_call>', "needy", 'no "arguments"'),
        ('{"arguments": {}}</tool_call>', "", "names no tool"),
        ('{"name": 5, "arguments": {}}</tool_call>', "", "names no tool"),
        ('{"name": "f", "arguments": {"a": 1 "b"}}</tool_call>', "f", "not valid JSON"),
        ("[1, 2]</tool_call>", "", "not valid JSON"),
        ("{" * 3000, "", "ended inside"),
        ("[" * 100_000 + "]" * 100_000 + "</tool_call>", "", "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_a_bad_call_that_says_why(body: str, name: str, error: str) -> None:  # S9
    raw = f"<tool_call>\n{body}"
    needy = ToolSpec("needy", "", {"type": "object", "required": ["a"]})
    (bad,) = parse(raw, dialect="hermes", tools=[needy]).parts
    assert isinstance(bad, BadCall)
    assert (bad.name, bad.raw) == (name, raw)
    assert error in bad.error


def test_a_call_of_an_undeclared_tool_and_one_without_arguments_are_delivered() -> None:
    tools = [ToolSpec("now")]
    parts = parse('<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "x"}', dialect="hermes", tools=tools).parts
    assert [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)] == [("now", "{}"), ("x", "{}")]


def test_a_prefill_inside_of_a_call_goes_on() -> None:
    opened = '<tool_call>\n{"name": "f", "arguments": '
    (call,) = message_of('{"a": 1}}\n</tool_call>', opened=opened).calls
    assert (call.name, call.arguments, call.raw) == ("f", '{"a": 1}', CALL)


@pytest.mark.parametrize(
    "inside",
    [
        "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
        '<function name="f"><parameter name="a">1</parameter></function>',
        '<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>',
        "f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>",
        "f<arg_key>a</arg_key><arg_value>1</arg_value>",
        "f(a=1)",
        '{"f": {"a": 1}}',
    ],
)
@pytest.mark.parametrize("blank", ["\n", ""])
def test_a_call_in_the_notation_of_another_family_is_read(inside: str, blank: str) -> None:  # C12
    ((name, arguments),) = calls_of(f"<tool_call>{blank}{inside}{blank}</tool_call>")
    assert (name, json.loads(arguments)) == ("f", {"a": 1})


@pytest.mark.parametrize("inside", ["<function", "<function=", "f", "f(", "f\n<arg", "<", "\n" * 300])
def test_a_call_that_ends_before_its_notation_shows_is_bad(inside: str) -> None:
    assert calls_of(f"<tool_call>{inside}") in ([("", "bad")], [("f", "bad")])
    assert message_of(f"<tool_call>{inside}").text == ""


def test_json_without_the_tag_is_text() -> None:  # S4
    for raw in ('{"name": "f", "arguments": {}}', 'Use:\n```json\n{"name": "f", "arguments": {}}\n```\nDone.'):
        assert message_of(raw).parts == (Text(raw),)


def test_the_call_is_told_once_whatever_is_nested_in_it() -> None:  # S12
    raw = '<tool_call>\n{"name": "f", "arguments": {"x": "<tool_call>{\\"name\\": \\"g\\"}</tool_call>"}}\n</tool_call>'
    assert names(events_of(list(raw))) == ["f"]
