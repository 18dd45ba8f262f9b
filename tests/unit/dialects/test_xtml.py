"""Kimi K3: sections of tags."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.outline import TOOLS, Outline, outline, outlined
from tests.unit.dialects.streams import events_of

from shepherd.core import BadCall, ToolSpec
from shepherd.dialects import parse
from shepherd.dialects.families.kimi_k3 import KIMI_K3

OPENED = "<|open|>think<|sep|>"
CALLED: Outline = [("calls", "get_weather", '{"city": "Oslo", "days": 3}')]


def xtml(text: str) -> str:
    """`[a]` and `[/a]` as tags."""
    return text.replace("[/", "<|close|>").replace("[", "<|open|>").replace("]", "<|sep|>")


CITY = '[argument key="city" type="string"]Oslo[/argument]'
DAYS = '[argument key="days" type="number"]3[/argument]'
CALL = f'[call tool="get_weather" index="1"]{CITY}{DAYS}[/call]'


def heard(raw: str, *, opened: str = OPENED, truncated: bool = False) -> Outline:
    return outlined(xtml(raw), KIMI_K3, opened=opened, truncated=truncated)


def test_sections_become_reasoning_text_and_calls() -> None:
    raw = f"Hm.[/think][response]I look.[/response][tools]{CALL}[/tools][/message]<|end_of_msg|>"
    assert heard(raw) == [("thinks", "Hm."), ("says", "I look."), *CALLED]


@pytest.mark.parametrize(
    "raw",
    [
        f"[tools]{CALL}[/tools]",
        f"[tools]\n{CALL}\n[/tools]\n",
        f"[response][/response][tools]{CALL}[/tools][/message]",
        f"[tools]{CALL}[/message]<|end_of_msg|>",
        f"[tools]{CALL}<|end_of_msg|>",
        f"[tools]{CALL}",
        CALL,
        f"{CALL}[/tools]",
        f'[tools][call tool="get_weather"]{CITY}{DAYS}[/call][/tools]',
        f'[tools][call index="1" tool="get_weather" ]{CITY}{DAYS}[/call][/tools]',
        f'[tools][call tool="get_weather" index="1"]{CITY}{DAYS}[/tools]',
        f'[tools][call tool="get_weather" index="1"]\n{CITY}\n{DAYS}\n[/call][/tools]',
        '[tools][call tool="get_weather" index="1"][argument key="city" type="string"]Oslo'
        '[argument key="days" type="number"]3[/call][/tools]',
        '[tools][call tool="get_weather" index="1"][argument key="city"]Oslo[/argument]'
        '[argument key="days"]3[/argument][/call][/tools]',
        '[tools][call tool="get_weather" index="1"][argument key="city" type="string"]Oslo[/argument]'
        '[argument key="days" type="string"]3[/argument][/call][/tools]',
        '[tools][call tool="get_weather"][json type="object"]{"city": "Oslo", "days": 3}[/json][/call][/tools]',
        '[tools][call tool="get_weather" index="1"]{"city": "Oslo", "days": 3}[/call][/tools]',
        '[tools]{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}[/tools]',
    ],
)
def test_a_call_is_read_however_the_model_writes_it(raw: str) -> None:
    assert heard(raw) == CALLED
    assert heard(raw, opened="") == CALLED


def test_a_call_without_its_end_is_whole_if_nothing_can_be_missing() -> None:  # SCN-24
    raw = f'[tools][call tool="get_weather" index="1"]{CITY}{DAYS}'
    assert heard(raw) == [("fails", "get_weather")]
    assert heard(f'{raw}[argument key="exact" type="boolean"]true[/argument]') == [
        ("calls", "get_weather", '{"city": "Oslo", "days": 3, "exact": true}')
    ]
    assert heard(f"{raw}<|close|>ca") == CALLED


def test_a_section_ends_a_thought_that_was_not_closed() -> None:
    assert heard(f"Hm.[tools]{CALL}[/tools]") == [("thinks", "Hm."), *CALLED]
    assert heard("Hm.[response]Yes.[/response]") == [("thinks", "Hm."), ("says", "Yes.")]
    assert heard("Hm.[/message]<|end_of_msg|>") == [("thinks", "Hm.")]


def test_text_without_its_section_is_text() -> None:
    assert heard("Hm.[/think]Yes.") == [("thinks", "Hm."), ("says", "Yes.")]
    assert heard("Yes.", opened="") == [("says", "Yes.")]
    assert heard(f"[tools]{CALL}[/tools]Done.") == [*CALLED, ("says", "Done.")]
    assert heard(f"[tools]{CALL}Done.[/tools]") == [*CALLED, ("says", "Done.")]


def test_several_calls_share_a_section() -> None:
    raw = f'[tools]{CALL}[call tool="now" index="2"][/call][/tools]'
    assert heard(raw) == [*CALLED, ("calls", "now", "{}")]
    calls = parse(xtml(raw), dialect=KIMI_K3).calls
    assert "".join(call.raw or "" for call in calls) == xtml(raw).removesuffix(xtml("[/tools]"))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "12345", '"12345"'),
        ("string", " a\n\tb ", '" a\\n\\tb "'),
        ("string", '{"x": "y"}', json.dumps('{"x": "y"}')),
        (
            "string",
            "a <|open|>b<|sep|> <|close|>c<|sep|> <|sep|>",
            json.dumps("a <|open|>b<|sep|> <|close|>c<|sep|> <|sep|>"),
        ),
        ("number", "12345678901234567890123", "12345678901234567890123"),
        ("number", "1.10", "1.10"),
        ("boolean", "true", "true"),
        ("boolean", "False", "false"),
        ("null", "null", "null"),
        ("object", '{"b": 1, "a":  "\\u00e9"}', '{"b": 1, "a":  "\\u00e9"}'),
        ("array", "[1, {}]", "[1, {}]"),
        ("array", "['a', None]", '["a", null]'),
        ("number", "many", '"many"'),
        ("", "3", "3"),
        ("", "three", '"three"'),
    ],
)
def test_a_value_is_what_its_tag_says_where_the_tool_says_nothing(kind: str, text: str, value: str) -> None:
    tag = f' type="{kind}"' if kind else ""
    raw = f'<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="a"{tag}<|sep|>{text}'
    raw += "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    assert outlined(raw, KIMI_K3) == [("calls", "f", f'{{"a": {value}}}')]


def test_names_in_tags_are_unescaped() -> None:
    raw = (
        '[tools][call tool="a&amp;&quot;b" index="1"][argument key="x&quot;" type="number"]1[/argument][/call][/tools]'
    )
    assert heard(raw) == [("calls", 'a&"b', '{"x\\"": 1}')]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ('[tools][call index="1"][/call][/tools]', ""),
        ('[tools][call tool="get_weather" index="1"]Oslo[/call][/tools]', "get_weather"),
        (
            '[tools][call tool="get_weather" index="1"][json type="object"]{"city": [/json][/call][/tools]',
            "get_weather",
        ),
        (f'[tools][call tool="get_weather" index="1"]{CITY}', "get_weather"),
        ('[tools][call tool="get_weather" index="1"][argument key="city" type="string"]Os', "get_weather"),
        ('[tools][call tool="get_wea', ""),
        ("[tools]", ""),
    ],
)
def test_what_cannot_be_read_is_a_bad_call(raw: str, name: str) -> None:  # S9
    assert heard(raw, truncated=True) == [("fails", name)]
    (bad,) = parse(xtml(raw), dialect=KIMI_K3, tools=TOOLS).parts
    assert isinstance(bad, BadCall)
    assert bad.raw.rstrip("<") == xtml(raw).removesuffix(xtml("[/tools]"))


@pytest.mark.parametrize(
    "text",
    [
        "Tags open with <|open|> and close with <|close|>, then <|sep|>.",
        "The <|open|>tools tag and the <|open|>call are special.",
        "a < b, <| and |>",
        "[1, 2] and <b>bold</b>",
    ],
)
def test_an_answer_may_speak_of_the_tags(text: str) -> None:
    assert outlined(f"<|open|>response<|sep|>{text}<|close|>response<|sep|>", KIMI_K3) == [("says", text)]


def test_a_kept_thought_keeps_its_tags_and_an_empty_one_has_none() -> None:
    kept = outlined(xtml("Hm.[/think][response]Yes.[/response]"), KIMI_K3, opened=OPENED, reasoning="keep")
    assert kept == [("says", "<|open|>think<|sep|>Hm.<|close|>think<|sep|>Yes.")]
    assert outlined(xtml("[response]Yes.[/response]"), KIMI_K3, opened=OPENED, reasoning="keep") == [("says", "Yes.")]


VALUES = st.integers() | st.booleans() | st.none() | st.lists(st.integers(), max_size=3) | st.text(max_size=12)


@settings(max_examples=examples(80), deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_characters="<"), min_size=1, max_size=6), VALUES, max_size=4))
def test_any_arguments_go_through(arguments: dict[str, object]) -> None:
    given = "".join(
        f'<|open|>argument key="{key.replace("&", "&amp;").replace(chr(34), "&quot;")}" '
        f'type="{"string" if isinstance(value, str) else "number"}"<|sep|>'
        f"{value if isinstance(value, str) else json.dumps(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    raw = f'<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>{given}<|close|>call<|sep|><|close|>tools<|sep|>'
    (call,) = outline(events_of([raw], KIMI_K3, tools=(ToolSpec("f"),)))
    assert call[:2] == ("calls", "f")
    assert json.loads(call[2]) == arguments
    assert list(outline(events_of(list(raw), KIMI_K3, tools=(ToolSpec("f"),)))) == [call]
