"""A model without tool protocol: its text, its thoughts if the template knows any, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.streams import cuts, events_of, message_of

from shepherd.core import Reasoning, Text
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
