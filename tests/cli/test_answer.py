"""What a pipe and a program get of a stream: exactly the text, or one object per event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.answer import EVENT_NAMES, JsonAnswer, PlainAnswer, call_line
from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    Usage,
)


@given(st.lists(st.text(min_size=1)))
def test_the_plain_answer_is_exactly_the_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    out: list[str] = []
    answer = PlainAnswer(out.append, pytest.fail)
    for piece in pieces:
        answer.feed(TextDelta(piece))
    assert "".join(out) == text
    answer.close()
    assert "".join(out) == text + ("\n" if text and not text.endswith("\n") else "")


def test_the_plain_answer_hides_reasoning_and_puts_calls_in_lines_of_their_own() -> None:
    out: list[str] = []
    notices: list[str] = []
    answer = PlainAnswer(out.append, notices.append)
    for event in (
        Started("m"),
        Evicted(2, 9),
        ReasoningDelta("hm"),
        TextDelta("a"),
        CallEnded(ToolCall("1", "f", "{}")),
        Finished("end"),
    ):
        answer.feed(event)
    answer.close()
    assert "".join(out) == "a\n[Tool Call: f()]\n"
    assert notices == ["[NOTICE: 2 messages evicted from context (9 tokens)]\n"]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (ToolCall("1", "f", '{"a": "é", "b": [1, null]}'), '[Tool Call: f(a="é", b=[1, null])]'),
        (ToolCall("1", "f", "not json"), "[Tool Call: f(not json)]"),
        (
            BadCall("<x", "the arguments are no JSON", name="f"),
            "[Tool Call: f could not be read: the arguments are no JSON]",
        ),
    ],
)
def test_a_call_is_shown_as_one_line(call: ToolCall | BadCall, line: str) -> None:
    assert call_line(call) == line


def test_json_is_one_object_per_event() -> None:
    out: list[str] = []
    answer = JsonAnswer(out.append)
    call = ToolCall("1", "f", "{}")
    for event in (
        Started("m", usage=Usage(input=3)),
        Progress(1, 3),
        Evicted(1, 2),
        TextDelta("two\nlines"),
        ReasoningDelta("r"),
        CallStarted("1", "f"),
        CallDelta("{}"),
        CallEnded(call),
        Finished("tool_calls", Usage(input=3, output=2)),
    ):
        answer.feed(event)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in out)
    told = [json.loads(line) for line in out]
    assert [each["event"] for each in told] == list(EVENT_NAMES.values())
    assert told[3] == {"event": "text", "text": "two\nlines"}
    assert told[7] == {
        "event": "call_ended",
        "call": {"id": "1", "name": "f", "arguments": "{}", "raw": None},
        "ok": True,
    }
    assert told[8]["reason"] == "tool_calls"
    assert told[8]["usage"] == {"input": 3, "cache_read": 0, "cache_write": 0, "output": 2, "reasoning": 0}
