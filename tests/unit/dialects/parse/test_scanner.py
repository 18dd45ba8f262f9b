"""The rules of the scanner. What holds for any output is proved in `test_every_dialect`, for Hermes most of all."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.laws import assert_linear
from tests.unit.dialects.streams import cuts, events_of, message_of

from shepherd.core import Reasoning, Text, TextDelta, ToolCall
from shepherd.dialects.families.hermes import HERMES
from shepherd.dialects.parse.scanner import new_call_id


@settings(max_examples=examples(100), deadline=None)
@given(st.text(st.characters(exclude_characters="<"), max_size=40))
def test_text_without_markers_comes_out_as_it_is_in_both_modes(text: str) -> None:
    assert message_of(text).text == text
    assert message_of(text, reasoning="keep").text == text


def test_plain_text_is_passed_on_at_once_and_a_possible_marker_is_held() -> None:
    parser = HERMES.parser()
    assert parser.feed("Hello") == [TextDelta("Hello")]
    assert parser.feed(" a <") == [TextDelta(" a")]
    assert parser.feed("b") == [TextDelta(" <b")]
    assert parser.feed("</tool_cal") == []
    assert parser.feed("f") == [TextDelta("</tool_calf")]


def test_a_lone_bracket_before_a_marker_does_not_hide_the_marker() -> None:  # S10
    assert message_of('a <<tool_call>{"name": "f"}</tool_call>').parts[0] == Text("a <")
    assert message_of("<think>x <</think>y").parts == (Reasoning("x <"), Text("y"))


def test_html_and_comparisons_are_text() -> None:  # S1, S8
    text = 'If a < b && c > d, use <b>bold</b>, <img src="x">, </div> and </ b>.'
    assert message_of(text).parts == (Text(text),)


@pytest.mark.parametrize(
    "text",
    [
        "Use the <think> tag for that.",
        "Use the <tool_call> tag, and </tool_call> to end it.",
        "Both <think> and </think> are tags.",
        "Write `<tool_call>` first.",
    ],
)
def test_talking_about_markup_is_text(text: str) -> None:
    for chunks in cuts(text):
        assert events_of(chunks) == [TextDelta(text)]


def test_a_thought_may_begin_the_answer_or_follow_a_block_but_not_text() -> None:
    call = '<tool_call>{"name": "f"}</tool_call>'
    assert [type(part) for part in message_of(f"<think>a</think>{call}<think>b</think>c").parts] == [
        Reasoning,
        ToolCall,
        Reasoning,
        Text,
    ]
    assert message_of("Well.\n<think>\nhm\n</think>").reasoning == ""


def test_blanks_beside_markup_go_and_indentation_stays() -> None:
    raw = '<think>\n  one\n two \n</think>\n\n    code\n\n\n<tool_call>\n{"name": "f"}\n</tool_call>\n\n  more\n'
    parts = message_of(raw).parts
    assert (parts[0], parts[1], parts[3]) == (Reasoning("  one\n two"), Text("    code"), Text("  more\n"))


def test_an_empty_thought_is_nothing() -> None:
    assert message_of("<think>\n\n</think>\n\nHi").parts == (Text("Hi"),)
    assert message_of("<think></think>").parts == ()


def test_endless_blanks_are_not_held_for_ever() -> None:
    parser = HERMES.parser()
    said = [event for _ in range(1000) for event in (*parser.feed("\n"), *parser.feed(" "))]
    assert sum(len(event.text) for event in said if isinstance(event, TextDelta)) > 1900


def test_an_unclosed_thought_ends_with_the_output_or_with_a_call_that_starts_a_line() -> None:
    assert message_of("<think>\nlong").parts == (Reasoning("long"),)
    parts = message_of('<think>\nlong\n<tool_call>\n{"name": "f"}\n</tool_call>').parts
    assert parts[0] == Reasoning("long")
    assert isinstance(parts[1], ToolCall)
    about = "<think>\nI could write\n<tool_call>s but no.\n</think>\nok"
    assert message_of(about).parts == (Reasoning("I could write\n<tool_call>s but no."), Text("ok"))


def test_a_thought_that_the_prompt_opened_goes_on() -> None:  # SCN-21, SCN-22
    assert message_of("hm\n</think>\n\nYes", opened="<think>\n").parts == (Reasoning("hm"), Text("Yes"))
    assert message_of("<think>\nhm\n</think>\n\nYes", opened="<think>\n").parts == (Reasoning("hm"), Text("Yes"))
    assert message_of("Yes", opened="<think>\n\n</think>\n\n").parts == (Text("Yes"),)


def test_a_prefill_is_not_reported_again_and_its_last_blank_neither() -> None:
    assert message_of("world", opened="Hello, ").parts == (Text("world"),)
    assert message_of(" world", opened="Hello,").parts == (Text(" world"),)
    assert message_of("<think> is a tag", opened="Hello,\n").parts == (Text("<think> is a tag"),)


def test_kept_thoughts_stay_in_the_text_with_their_tags_and_blanks() -> None:
    raw = "<think>\nhm\n</think>\n\nYes"
    assert message_of(raw, reasoning="keep").parts == (Text(raw),)
    assert message_of("hm\n</think>\n\nYes", opened="<think>\n", reasoning="keep").parts == (Text(raw),)
    assert message_of("hm\n</think>\n\nYes", reasoning="keep").parts == (Text("hm\n</think>\n\nYes"),)
    parts = message_of('<think>\nhm\n<tool_call>\n{"name": "f"}', reasoning="keep").parts
    assert parts[0] == Text("<think>\nhm")
    assert isinstance(parts[1], ToolCall)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("</tool_call>\nHi", "Hi"),
        ("Hi\n</tool_call>", "Hi"),
        ("Hi</tool_call>", "Hi"),
        ('<tool_call>{"name": "f"}</tool_call></tool_call>\nHi', "Hi"),
        ('<tool_call>{"name": "f"}\nHi </tool_call> there', "Hi  there"),
        ("so it is.\n</think>\n\nHi", "so it is.\n\n\nHi"),
    ],
)
def test_stray_closers_are_markup(raw: str, text: str) -> None:
    assert message_of(raw).text.strip() == text


def test_the_beginning_of_a_marker_at_a_forced_end_is_markup_and_at_a_free_end_text() -> None:
    assert events_of(["Hi <tool_c"], truncated=True) == [TextDelta("Hi ")]
    assert events_of(["Hi <tool_c"]) == [TextDelta("Hi <tool_c")]
    assert events_of(["a <"], truncated=True) == [TextDelta("a <")]


def test_parsers_share_nothing() -> None:  # S16
    one, other = HERMES.parser(), HERMES.parser()
    one.feed("<think>")
    assert other.feed("Hi") == [TextDelta("Hi")]


def test_the_cost_is_linear_in_the_length_of_a_call() -> None:  # S18
    call = '<tool_call>{"name": "f", "arguments": {"text": "%s"}}</tool_call>'
    assert_linear(lambda text: call % text, HERMES)


def test_call_ids_are_unique_and_safe_in_urls() -> None:
    ids = {new_call_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"call_[A-Za-z0-9_-]{24}", call_id) for call_id in ids)
