"""Calls as names and pairs of tags: GLM and its kin, Hunyuan 3 and LongCat, as they should be and as they are."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects import outline
from tests.unit.dialects.streams import events_of

from shepherd.core import BadCall, CallEnded, TextDelta, ToolCall, ToolSpec
from shepherd.dialects import detect
from shepherd.dialects.families.glm import GLM, HUNYUAN, LONGCAT
from shepherd.dialects.parse.tags import TagDialect

TOOLS = (
    ToolSpec(
        "weather",
        "",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
                "note": {"type": ["string", "null"]},
                "tags": {"type": "array"},
            },
            "required": ["city"],
        },
    ),
    ToolSpec("now"),
    ToolSpec("now_there"),
)


def told(raw: str, dialect: TagDialect = GLM, *, opened: str = "") -> list[Any]:
    return outline.told(raw, dialect, TOOLS, opened=opened)


ROME = "weather<arg_key>city</arg_key><arg_value>Rome</arg_value>"


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "inside",
    [
        "weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>",
        "weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n",
        "\nweather\n\n<arg_key> city </arg_key> <arg_value>Rome</arg_value>  <arg_key>days</arg_key>\n\n<arg_value> 2\n"
        "</arg_value>",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>",
        "weather<arg_key><arg_key>city</arg_key></arg_key><arg_value>Rome</arg_value></arg_value>"
        "<arg_key>days</arg_key><arg_value>2</arg_value></arg_value>",
        "weather<arg_key>city</arg_key>Rome</arg_value><arg_key>days</arg_key>\n2</arg_value>",
        "weather<arg_key>city</arg_key><arg_value>Rome<arg_key>days</arg_key><arg_value>2",
        "weather<arg_key>city<arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>",
        "weathercity</arg_key><arg_value>Rome</arg_value>days</arg_key><arg_value>2</arg_value>",
        "weather city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>",
        '{"name": "weather", "arguments": {"city": "Rome", "days": 2}}',
        'weather{"city": "Rome", "days": 2}',
        "weather(city='Rome', days=2)",
        "<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n",
    ],
)
def test_a_call_is_read_whichever_tag_is_missing_or_doubled(inside: str) -> None:
    raw = f"Let me see.\n<tool_call>{inside}</tool_call>Done."
    assert told(raw) == ["Let me see.", ["weather", {"city": "Rome", "days": 2}], "Done."]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    "value",
    [
        "",
        "3",
        "true",
        '{"a": [1, {"b": null}]}',
        "line 1\n\n  line 3  \n",
        "C:\\x\\y \"hi\", {not json}, [1,2], 'q', \\n `x`",
        "contains </think>, <tool_call> and <think>",
        "ends with </arg_value> in the middle",
        "<tool_call>name</tool_call> is how",
        "if x:\n    return '</tool_call>'\n",
        "a < b > c </",
        "Łódź 東京 🎉 \u2028",
    ],
)
@pytest.mark.parametrize("gap", ["", "\n"])
def test_a_string_is_its_own_characters_whatever_they_look_like(value: str, gap: str) -> None:
    raw = f"<tool_call>weather{gap}<arg_key>city</arg_key>{gap}<arg_value>{value}</arg_value>{gap}</tool_call>"
    assert told(raw) == [["weather", {"city": value}]]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("days", "12345678901234567890123", 12345678901234567890123),
        ("metric", "False", False),
        ("metric", " true ", True),
        ("note", "None", None),
        ("note", "null", None),
        ("note", "nothing", "nothing"),
        ("tags", "['a', None]", ["a", None]),
        ("tags", '[1.5, "</arg_value>"]', [1.5, "</arg_value>"]),
        ("other", "7", 7),
        ("other", "seven", "seven"),
    ],
)
def test_other_values_are_what_the_schema_makes_of_them(key: str, text: str, value: Any) -> None:
    assert told(f"<tool_call>weather<arg_key>{key}</arg_key><arg_value>{text}</arg_value></tool_call>") == [
        ["weather", {key: value}]
    ]


@pytest.mark.parametrize(
    ("raw", "parts"),
    [
        ("<tool_call>now</tool_call>", [["now", {}]]),
        ("<tool_call>now\n\n</tool_call>\nDone.", [["now", {}], "Done."]),
        ("<tool_call>now\nI will report.", [["now", {}], "I will report."]),
        ("<tool_call>now<tool_call>now_there</tool_call>", [["now", {}], ["now_there", {}]]),
        (f"<tool_call>{ROME}</tool_call></tool_call>\nDone.", [["weather", {"city": "Rome"}], "Done."]),
        (f"<tool_call>{ROME}\n\nI will report.", [["weather", {"city": "Rome"}], "I will report."]),
        (f"<tool_call>{ROME}\n<tool_call>now</tool_call>Hi", [["weather", {"city": "Rome"}], ["now", {}], "Hi"]),
        (f"<tool_call>{ROME}\nAnd:\n<tool_call>now</tool_call>", [["weather", {"city": "Rome"}], "And:", ["now", {}]]),
        (f"<tool_call>{ROME[:-12]}</tool_call>\nDone.", [["weather", {"city": "Rome"}], "Done."]),
        (
            f"<tool_call>{ROME[:-12]}</tool_call><tool_call>{ROME}</tool_call>Done.",
            [["weather", {"city": "Rome"}], ["weather", {"city": "Rome"}], "Done."],
        ),
        ("<tool_call>unknown<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", [["unknown", {"a": 1}]]),
        (f"<think>Rome.\n<tool_call>{ROME}</tool_call>", [("Rome.",), ["weather", {"city": "Rome"}]]),
        (f"<think>Rome.</think>\n<tool_call>{ROME}</tool_call>", [("Rome.",), ["weather", {"city": "Rome"}]]),
        ("<think>so\n<tool_call>s but no.\n</think>ok", [("so\n<tool_call>s but no.",), "ok"]),
        (
            "Use the <tool_call> tag, <tool_call>, or `<tool_call>`.",
            ["Use the <tool_call> tag, <tool_call>, or `<tool_call>`."],
        ),
        ("Use\n<tool_call> for that.", ["Use\n<tool_call> for that."]),
        ("<|begin_of_box|>42<|end_of_box|>", ["42"]),
        (f"<tool_call>{ROME}</tool_call><|role_end|>", [["weather", {"city": "Rome"}]]),
        ("<tool_call></tool_call>Done.", [["", "bad"], "Done."]),
        ("<tool_call><arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", [["", "bad"]]),
        ("<tool_call>weather city=Rome</tool_call>Done.", [["weather", "bad"], "Done."]),
        ("<tool_call>weather<arg_key>city</arg_key></tool_call>Done.", [["weather", {"city": ""}], "Done."]),
    ],
)
def test_what_stands_around_calls_is_told_apart_from_them(raw: str, parts: list[Any]) -> None:
    assert told(raw) == parts


def test_a_prompt_that_closes_the_thought_or_opens_it_is_continued() -> None:
    assert told(f"<tool_call>{ROME}</tool_call>", opened="</think>") == [["weather", {"city": "Rome"}]]
    assert told(f"Hm.</think><tool_call>{ROME}</tool_call>", opened="<think>") == [
        ("Hm.",),
        ["weather", {"city": "Rome"}],
    ]


def suffixed(text: str, suffix: str) -> str:
    for tag in ("tool_calls", "tool_call", "tool_sep", "arg_key", "arg_value", "think"):
        text = text.replace(f"{tag}>", f"{tag}{suffix}>")
    return text


@pytest.mark.parametrize("suffix", [":opensource", ""])
def test_hunyuan_has_a_wrapper_a_separator_and_a_suffix(suffix: str) -> None:
    call = "<tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n"
    wanted = ["weather", {"city": "Rome"}]
    for raw, parts in (
        (f"Ok.<tool_calls>\n{call}</tool_calls>Done.", ["Ok.", wanted, "Done."]),
        (f"<think>hm</think><tool_calls>\n{call}{call}</tool_calls>", [("hm",), wanted, wanted]),
        (f"{call}Done.", [wanted, "Done."]),
        (f"<tool_calls>{call.replace('</tool_call>', '')}</tool_calls>Done.", [wanted, "Done."]),
        (f"<tool_calls>{call.replace('<tool_sep>', '')}</tool_calls>", [wanted]),
        ("<tool_calls><tool_call>now<tool_sep></tool_call></tool_calls>", [["now", {}]]),
        ('<tool_calls><tool_call>weather<tool_sep>{"city": "Rome"}</tool_call></tool_calls>', [wanted]),
    ):
        assert told(suffixed(raw, suffix), HUNYUAN) == parts


def test_longcat_has_a_prefix() -> None:
    raw = f"Ok.<tool_call>{ROME}</tool_call>".replace("<", "<longcat_").replace("<longcat_/", "</longcat_")
    assert told(raw, LONGCAT) == ["Ok.", ["weather", {"city": "Rome"}]]
    raw = '<longcat_tool_call>{"name": "now", "arguments": {}}</longcat_tool_call>'
    assert told(raw, LONGCAT) == [["now", {}]]


@pytest.mark.parametrize("gap", ["", "\n"])
def test_a_call_cut_off_anywhere_leaks_nothing_and_is_delivered_only_when_what_it_needs_is_there(gap: str) -> None:
    call = (
        f"<tool_call>weather{gap}<arg_key>days</arg_key>{gap}<arg_value>2</arg_value>{gap}"
        f"<arg_key>city</arg_key>{gap}<arg_value>Rome</arg_value>{gap}</tool_call>"
    )
    complete = call.rindex("</arg_value>") + len("</arg_value>")
    for end in range(len("<tool_call>"), len(call)):
        events = events_of([call[:end]], GLM, tools=TOOLS, truncated=True)
        assert not any(isinstance(event, TextDelta) for event in events)
        (ended,) = [event.call for event in events if isinstance(event, CallEnded)]
        assert isinstance(ended, BadCall) or end >= complete
        assert isinstance(ended, ToolCall) or end < complete or call[:end].endswith("<")
        if isinstance(ended, ToolCall):
            assert json.loads(ended.arguments) == {"days": 2, "city": "Rome"}


@settings(max_examples=examples(30), deadline=None)
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=30), min_size=1, max_size=4))
def test_strings_of_a_tool_that_declares_them_come_out_exactly(given: dict[str, str]) -> None:
    tool = ToolSpec("f", "", {"type": "object", "properties": {key: {"type": "string"} for key in given}})
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in given.items())
    events = events_of([f"<tool_call>f\n{pairs}</tool_call>"], GLM, tools=[tool])
    (ended,) = [event.call for event in events if isinstance(event, CallEnded)]
    assert isinstance(ended, ToolCall)
    assert json.loads(ended.arguments) == given


@pytest.mark.parametrize(
    ("template", "name", "gap"),
    [
        ("<tool_call>{n}\n<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>", "glm", "\n"),
        ("'<tool_call>' + n + '<arg_key>' + k + '</arg_key>\\n<arg_value>'", "glm", "\n"),
        ("<tool_call>{n}<arg_key>{k}</arg_key><arg_value>{v}</arg_value>", "glm", ""),
        ("':opensource' '<tool_calls{}>' '<tool_call{}>' '<tool_sep{}>' '<arg_key{}>'", "hunyuan", "\n"),
    ],
)
def test_calls_are_spelt_as_the_template_shows_them(template: str, name: str, gap: str) -> None:
    dialect = detect(template)
    assert dialect.name == name
    spelling = next(block.spelling for block in (*dialect.markup.spelled, *dialect.markup.blocks))
    assert spelling is not None
    head = "".join(itertools.takewhile(lambda part: isinstance(part, str), spelling.call(TOOLS[0])))  # type: ignore[arg-type]
    call, separator, suffix = (
        ("<tool_call:opensource>", "<tool_sep:opensource>", ":opensource") if name == "hunyuan" else [""] * 3
    )
    assert head == f"{call}weather{separator}{gap}<arg_key{suffix}>city</arg_key{suffix}>{gap}<arg_value{suffix}>"
