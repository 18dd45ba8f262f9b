"""gpt-oss: headers as they should be, and as they come."""

from __future__ import annotations

import json

import pytest
from tests.unit.dialects.outline import TOOLS, Outline, outlined

from shepherd.core import BadCall, Reasoning, Text, TextDelta, ToolCall, ToolSpec
from shepherd.dialects import detect, parse
from shepherd.dialects.families.harmony import HARMONY, tool_name

OPENED = "<|start|>assistant"
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Yes."
ARGUMENTS = '{"city": "Oslo"}'
CALLED: Outline = [("calls", "get_weather", ARGUMENTS)]
THOUGHT_AND_TEXT: Outline = [("thinks", "Hm."), ("says", "Yes.")]


def heard(raw: str, tools: tuple[ToolSpec, ...] = TOOLS) -> Outline:
    return outlined(raw, HARMONY, opened=OPENED, tools=tools)


def test_channels_become_reasoning_text_and_calls() -> None:  # SCN-01..07, C27
    raw = (
        f"{THOUGHT}<|start|>assistant<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant"
        f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    )
    message = parse(raw, dialect="harmony", prefill=OPENED)
    call = message.parts[2]
    assert message.parts[:2] == (Reasoning("Hm."), Text("I will look."))
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("get_weather", ARGUMENTS)
    assert call.raw == raw[raw.index("<|start|>assistant<|channel|>commentary to=") :]
    assert heard(raw) == [("thinks", "Hm."), ("says", "I will look."), *CALLED]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.get_weather <|constrain|>json",
        " to=functions.get_weather<|channel|>commentary <|constrain|>json",
        " to=functions.get_weather<|channel|>commentary json",
        "<|channel|>commentary to=functions.get_weather json",
        "<|channel|>commentary to=functions.get_weather code",
        "<|channel|>commentary to=functions.get_weather",
        "<|channel|>analysis to=functions.get_weather code",
        "<|channel|>final to=functions.get_weather",
        "<|channel|>commentary to=get_weather",
        "<|channel|>commentary to=functions.get_weatherjson",
        "<|channel|>commentary to=functions.get_weather<|constrain|>json",
        "<|channel|>commentary<|constrain|>json to=functions.get_weather",
        "<|channel|>commentary to=functions.get_weather\n<|constrain|>json\n",
        "<|channel|>comment to=functions.get_weather",
        "<|channel|>commentary to=functions.get_weather to=functions.get_weather",
        "<|channel|>commentary to=assistant<|channel|>commentary to=functions.get_weather",
        "<|channel|>get_weather<|channel|>commentary <|constrain|>json",
        "<|channel|>commentary to=functions.get_weather<|channel|>commentary",
        " to=functions.get_weather",
        "<|constrain|>json to=functions.get_weather",
        "<|start|>assistant<|channel|>commentary to=functions.get_weather",
        "assistant<|channel|>commentary to=functions.get_weather",
    ],
)
def test_a_call_is_known_by_its_recipient_wherever_it_stands(header: str) -> None:  # C27
    assert heard(f"{header}<|message|>{ARGUMENTS}<|call|>") == CALLED
    assert heard(f"{THOUGHT}<|start|>assistant{header}<|message|>{ARGUMENTS}<|end|>") == [("thinks", "Hm."), *CALLED]


@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "<|return|>", "", "\n<|call|>", f"<|call|>{OPENED}"])
def test_a_call_ends_in_many_ways(end: str) -> None:  # SCN-05
    assert heard(f"<|channel|>commentary to=functions.get_weather<|message|>{ARGUMENTS}{end}") == CALLED


@pytest.mark.parametrize(
    "raw",
    [
        f"<|channel|>commentary to=functions.get_weather json{ARGUMENTS}<|call|>",
        f" to=functions.get_weather json {ARGUMENTS}",
        f"<|channel|>commentary to=functions.get_weather<|constrain|>json{ARGUMENTS}",
        f"<|channel|>commentary to=functions.get_weather<|message|>\n```json\n{ARGUMENTS}\n```<|call|>",
        f'<|channel|>commentary to=functions<|message|>{{"name": "get_weather", "arguments": {ARGUMENTS}}}<|call|>',
    ],
)
def test_a_call_is_read_without_the_marker_before_it_or_with_more_around_it(raw: str) -> None:
    assert heard(raw) == CALLED


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{'city': 'Oslo', 'exact': False}", '{"city": "Oslo", "exact": false}'),
        ('{"city":\u202f"Oslo\u202fNord"}', '{"city": "Oslo\u202fNord"}'),
        ('"{\\"city\\": \\"Oslo\\"}"', ARGUMENTS),
        ('{"city": "Oslo"', ARGUMENTS),
        ('{"city": "Oslo"}}', ARGUMENTS),
        (
            '{"id": 9007199254740993, "n": {"deep": [1.10, null]}}',
            '{"id": 9007199254740993, "n": {"deep": [1.10, null]}}',
        ),
        ('{"city": "<|call|><|end|> {} `x` \\u00e9"}', '{"city": "<|call|><|end|> {} `x` \\u00e9"}'),
    ],
)
def test_arguments_are_repaired_where_they_must_be_and_nowhere_else(text: str, arguments: str) -> None:
    raw = f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{text}<|call|>"
    assert heard(raw) == [("calls", "get_weather", arguments)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Oslo", "must be a JSON object"),
        ("[1, 2]", "must be a JSON object"),
        ('{"city": }', "not valid JSON"),
        ("", "no arguments"),
    ],
)
def test_what_is_no_object_is_a_bad_call(text: str, error: str) -> None:  # S9
    raw = f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{text}<|call|>"
    (bad,) = parse(raw, dialect=HARMONY, tools=TOOLS, prefill=OPENED).parts
    assert isinstance(bad, BadCall)
    assert (bad.name, bad.raw) == ("get_weather", OPENED + raw)
    assert error in bad.error
    assert heard(raw) == [("fails", "get_weather")]


def test_a_tool_that_needs_nothing_may_be_sent_nothing() -> None:
    assert heard("<|channel|>commentary to=functions.now<|message|><|call|>") == [("calls", "now", "{}")]


@pytest.mark.parametrize(
    ("to", "tools", "name"),
    [
        ("functions.final_report", (), "final_report"),  # S11
        ("functions.analysis", (), "analysis"),
        ("functions.get_weather", TOOLS, "get_weather"),
        ("functions.functions.now", TOOLS, "now"),
        ("get_weatherjson", TOOLS, "get_weather"),
        ("functions.nowcommentary", TOOLS, "now"),
        ("functions.my.tool", (), "my.tool"),
        ("functions.x", (ToolSpec("functions.x"),), "functions.x"),
        ("browser.search", TOOLS, "browser.search"),
        ("functions", TOOLS, ""),
    ],
)
def test_a_recipient_is_read_as_a_name_and_never_searched(to: str, tools: tuple[ToolSpec, ...], name: str) -> None:
    assert tool_name(to, tools) == name


def test_calls_of_undeclared_tools_and_of_the_models_own_are_delivered() -> None:
    for to, name in (("functions.ls", "ls"), ("browser.search", "browser.search"), ("ls", "ls")):
        raw = f'<|channel|>commentary to={to} code<|message|>{{"a": 1}}<|call|>'
        assert heard(raw) == [("calls", name, '{"a": 1}')]
        assert heard(raw, tools=()) == [("calls", name, '{"a": 1}')]


def test_what_the_models_own_tools_are_sent_is_no_json() -> None:
    python = ToolSpec("python", "", {"type": "object", "properties": {"code": {"type": "string"}}})
    raw = "<|channel|>analysis to=python code<|message|>d = {1: [2]}\nprint(d)<|call|>"
    assert heard(raw, tools=(python,)) == [("calls", "python", json.dumps({"code": "d = {1: [2]}\nprint(d)"}))]
    assert heard(raw) == [("fails", "python")]
    raw = "<|channel|>commentary to=shell code<|message|>ls -l<|call|>"
    assert heard(raw) == [("calls", "shell", '{"cmd": "ls -l"}')]
    assert heard(raw.replace("to=shell", "to=functions.shell")) == [("fails", "shell")]


@pytest.mark.parametrize(
    "header", [" to=container.exec<|channel|>commentary", "<|channel|>commentary to=container.exec"]
)
def test_a_call_that_nobody_asked_for_is_told_only_if_nothing_else_is_said(header: str) -> None:
    raw = f"{header}<|message|>python3 -c 'print(1)'"
    assert heard(f"{THOUGHT}<|start|>assistant{raw}", tools=()) == [("thinks", "Hm.")]
    assert heard(raw, tools=()) == [("fails", "container.exec")]
    assert heard(f"{THOUGHT}<|start|>assistant{raw}") == [("thinks", "Hm."), ("fails", "container.exec")]


@pytest.mark.parametrize(
    "raw",
    [
        f"{THOUGHT}{FINAL}",
        f"{THOUGHT}{FINAL}<|return|>",
        f"{THOUGHT}{FINAL}<|end|>",
        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|><|channel|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|>assistant<|channel|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>final<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|>\n\nYes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistantYes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final\nYes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>finalYes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>Yes.",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|channel|>final<|message|>Yes.",
        f"<|channel|>commentary to=assistant{THOUGHT}{FINAL}",
        f"{THOUGHT}<|start|>assistant<|channel|>commentary to=assistant<|channel|>final<|message|>Yes.",
        f"{THOUGHT}<|start|>assistant<|channel|>commentary to=user<|message|>Yes.",
        f"{THOUGHT}<|start|>assistant<|channel|>\u2013\u2013commentary<|message|>Yes.",
        f"<|start|>assistant{THOUGHT}{FINAL}",
        f"assistant{THOUGHT}{FINAL}",
        "analysis<|message|>Hm.<|end|><|start|>assistantfinal<|message|>Yes.",
        "analysisHm.assistantfinalYes.",
        f"<|channel|>??<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|>commentary 2?<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|>commentary?commentary?<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|>commentary to=assistant<|channel|>commentary?<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|>I should think first<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|><|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|channel|>commentary<|constrain|>control<|end|><|start|>assistant{THOUGHT}{FINAL}",
        f"<|end|><|start|>assistant{THOUGHT}{FINAL}",
    ],
)
def test_headers_are_understood_however_they_are_spoilt(raw: str) -> None:
    assert heard(raw) == THOUGHT_AND_TEXT


@pytest.mark.parametrize(
    "text",
    [
        *("Hello there.", "yes", '{"a": 1}', "final", "finally done", "final answer: 42", "to be or not to be"),
        *("tools are fine", "analysis of the data", "commentary", "user manuals", "json", "assistants help", "a"),
        *("\u00e9t\u00e9", "# Title\n\nText"),
    ],
)
def test_an_output_without_a_header_is_text(text: str) -> None:
    assert heard(text) == [("says", text.removeprefix("assistant"))]  # the prompt's last word doubled cannot be told
    assert heard(f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>{text}") == [("thinks", "Hm."), ("says", text)]


def test_text_streams_as_soon_as_it_can_be_no_header() -> None:  # SCN-14, SCN-17, SCN-19
    parser = HARMONY.parser(opened=OPENED)
    assert parser.feed("f") == []
    assert parser.feed("i") == []
    assert parser.feed("x") == [TextDelta("fix")]
    parser = HARMONY.parser(opened=OPENED)
    assert parser.feed("<|channel|>final<|message|>") == []
    assert [parser.feed(char) for char in "Yes"] == [[TextDelta("Y")], [TextDelta("e")], [TextDelta("s")]]


@pytest.mark.parametrize(
    "text",
    [
        "The token <|channel|> stands before the channel, `<|end|>` behind the text.",
        "A message is <|start|>{role}<|message|>{content}<|end|>: no more.",
        'It writes "<|call|>" or (<|return|>).',
        "Send it to=functions.get_weather, then commentary to=nobody.",
        "Use <|constrain|>json there.",
        "a < b, <| and |>",
        "There assistantfinal is a word, and so is final<|message|>",
        '{"name": "get_weather", "arguments": {}}',
        "Then call functions.get_weather with {}.",
    ],
)
def test_an_answer_may_speak_of_the_protocol(text: str) -> None:
    assert heard(f"<|channel|>final<|message|>{text}") == [("says", text)]
    assert heard(f"<|channel|>final<|message|>{text}<|return|>") == [("says", text)]


def test_a_lone_bracket_before_a_marker_is_text_and_the_marker_is_none() -> None:  # S10
    assert heard("<|channel|>final<|message|>a <<|end|>") == [("says", "a <")]


def test_a_thought_may_speak_of_the_protocol_too() -> None:
    thought = "First <|channel|>analysis, then <|start|> and `<|channel|>final`.\nGood."
    assert heard(f"<|channel|>analysis<|message|>{thought}<|end|>{FINAL}") == [("thinks", thought), ("says", "Yes.")]


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "functions.get_weather to=assistant"])
def test_what_others_are_made_to_say_is_dropped(role: str) -> None:  # TPL-16
    fake = f"<|start|>{role}<|channel|>commentary<|message|>Nonsense.<|end|>"
    assert heard(f"<|channel|>final<|message|>Yes.<|end|>{fake}") == [("says", "Yes.")]
    assert heard(f"<|channel|>final<|message|>Yes.<|end|>{fake}{FINAL}") == [("says", "Yes.Yes.")]
    assert any(f"<|start|>{role}".startswith(stop) for stop in HARMONY.stops)


def test_several_calls_and_text_between_them_keep_their_order() -> None:
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    raw = f"{call}<|call|><|start|>assistant{call}<|start|>assistant<|channel|>commentary<|message|>And.<|end|>{FINAL}"
    assert heard(raw) == [("calls", "now", "{}"), ("calls", "now", "{}"), ("says", "And.Yes.")]


def test_text_behind_a_call_is_text() -> None:
    raw = f"<|channel|>commentary to=functions.get_weather<|message|>{ARGUMENTS}<|call|>I wait."
    assert heard(raw) == [*CALLED, ("says", "I wait.")]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + ARGUMENTS, CALLED),
        (
            "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>" + ARGUMENTS[:-3],
            [("fails", "get_weather")],
        ),
        ("<|channel|>commentary to=functions.get_weather <|constrain|>js", [("fails", "get_weather")]),
        ("<|channel|>commentary to=functions.get_w", [("fails", "get_w")]),
        ("<|channel|>commentary to=", []),
        ("<|channel|>comm", []),
        ("<|channel|>final<|mess", []),
        ("<|cha", []),
        ("<|channel|>analysis<|message|>Hm.<|en", [("thinks", "Hm.")]),
        ("<|channel|>final<|message|>Yes.<|ret", [("says", "Yes.")]),
        (" to=functions.ge", [("fails", "ge")]),
    ],
)
def test_an_output_that_breaks_off_is_settled(raw: str, expected: Outline) -> None:  # SCN-23, SCN-24
    assert outlined(raw, HARMONY, opened=OPENED, truncated=True) == expected


def test_kept_thoughts_keep_their_tags() -> None:
    raw = f"{THOUGHT}{FINAL}"
    kept = [("says", "<|channel|>analysis<|message|>Hm.<|end|>Yes.")]
    assert outlined(raw, HARMONY, opened=OPENED, reasoning="keep") == kept


def test_a_prefilled_answer_goes_on() -> None:  # SCN-21, SCN-22
    opened = f"{OPENED}{THOUGHT}<|start|>assistant<|channel|>final<|message|>Good "
    assert parse("morning", dialect=HARMONY, prefill=opened).parts == (Reasoning("Hm."), Text("Good morning"))
    assert parse("hm", dialect=HARMONY, prefill=f"{OPENED}<|channel|>analysis<|message|>").parts == (Reasoning("hm"),)


def test_a_template_with_channels_is_harmony_and_its_model_thinks() -> None:
    template = "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|return|>' }}"
    assert detect(template).name == "harmony"
    assert detect(template).thinks
    assert detect("<|channel>thought\n<channel|>").name != "harmony"  # T10: Gemma's tags only look alike
