"""A model without tool protocol: its text, its thoughts if the template knows any, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.streams import cuts, events_of, message_of

from shepherd.core import Reasoning, ReasoningDelta, Text, TextDelta
from shepherd.dialects import detect, parse
from shepherd.dialects.families.plain import PLAIN


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=60), st.integers(1, 7))
def test_plain_text_comes_out_exactly_in_any_chunks(text: str, size: int) -> None:
    parser = PLAIN.parser()
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    assert "".join(event.text for event in (*events, *parser.close())) == text  # type: ignore[union-attr]  # only deltas


@pytest.mark.parametrize("tag", ["think", "thinking", "thought"])
def test_the_thought_tags_are_those_that_the_template_mentions(tag: str) -> None:  # C13
    dialect = detect("{{ message.content.split('</TAG>')[-1] }}".replace("TAG", tag))
    raw = f"<{tag}>\nhm\n</{tag}>\n\nYes"
    assert dialect.name == "plain"
    assert parse(raw, dialect=dialect).parts == (Reasoning("hm"), Text("Yes"))
    for other in {"think", "thinking", "thought"} - {tag}:
        text = f"<{other}>\nhm\n</{other}>\n\nYes"
        assert parse(text, dialect=dialect).parts == (Text(text),)


def test_tool_markup_is_text() -> None:
    raw = '<tool_call>\n{"name": "f"}\n</tool_call>'
    for chunks in cuts(raw):
        assert message_of("".join(chunks), PLAIN).parts == (Text(raw),)
        assert events_of(chunks, PLAIN) == events_of([raw], PLAIN)


def test_each_piece_of_plain_text_goes_out_as_it_comes_blanks_too() -> None:
    pieces = ["Sure", ".", "\n\n", "Here", " is", " ", "one", ":\n", "   "]
    parser = PLAIN.parser()
    assert [parser.feed(piece) for piece in pieces] == [[TextDelta(piece)] for piece in pieces]
    assert parser.close() == []


def test_where_thoughts_are_the_only_markup_blanks_wait_before_and_in_them_and_not_in_the_text_behind() -> None:
    parser = detect("{{ message.content.split('</think>')[-1] }}").parser()
    told = [
        ("\n\n", []),
        ("<think>", []),
        ("Hm.", [ReasoningDelta("Hm.")]),
        ("\n", []),
        ("</think>", []),
        ("\n\n", []),
        ("Sure.", [TextDelta("Sure.")]),
        ("\n\n", [TextDelta("\n\n")]),
        ("</think>", []),  # a stray one, which is dropped alone
        ("\nYes.\n", [TextDelta("\nYes.\n")]),
    ]
    assert [(piece, parser.feed(piece)) for piece, _ in told] == told
    assert parser.close() == []
