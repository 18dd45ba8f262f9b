"""What a pipe and a program get of a stream: exactly the text, or one object per event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.agent.session import Returned
from shepherd.cli.answer import (
    EVENT_NAMES,
    LONGEST_RESULT,
    JsonAnswer,
    PlainAnswer,
    call_line,
    eviction_line,
    result_line,
)
from shepherd.cli.render import Meter
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
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
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
    assert notices == ["[2 messages (9 tokens) left the context; the conversation goes on]\n"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Evicted(6, 412), "[6 messages (412 tokens) left the context; the conversation goes on]"),
        (Evicted(1, 1), "[1 message (1 token) left the context; the conversation goes on]"),
    ],
)
def test_an_eviction_is_told_in_one_line(event: Evicted, line: str) -> None:
    assert eviction_line(event) == line


def test_what_leaves_in_the_middle_of_a_plain_answer_is_told_once_behind_it() -> None:
    both: list[str] = []
    answer = PlainAnswer(both.append, both.append)
    for event in (TextDelta("a"), Evicted(2, 9), TextDelta("b"), Evicted(1, 3), TextDelta("c"), Finished("end")):
        answer.feed(event)
    answer.close()
    assert "".join(both) == "abc\n[3 messages (12 tokens) left the context; the conversation goes on]\n"


def test_the_meter_does_not_count_what_has_left_during_the_answer() -> None:
    meter = Meter()
    for event in (
        Started("m", usage=Usage(input=60)),
        Evicted(1, 40),  # before: not in the prompt's count any more
        TextDelta("a"),
        Evicted(2, 30),
        Finished("end", Usage(input=10, cache_read=50, output=35)),
    ):
        meter.feed(event)
    assert meter.line(100).endswith(" · 10 new + 50 cached · ▕█████░░░▏ 65/100")


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
        Returned(call, ToolResult("1", (Text("a\nb"),), "f")),
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
    assert told[8] == {"event": "tool_result", "call_id": "1", "name": "f", "text": "a\nb", "ok": True}
    assert told[9]["reason"] == "tool_calls"
    assert told[9]["usage"] == {"input": 3, "cache_read": 0, "cache_write": 0, "output": 2, "reasoning": 0}


def test_a_result_is_one_line_and_not_too_long() -> None:
    assert result_line(ToolResult("1", (Text('{"value":\n "blue"}'),))) == '[Tool Result: {"value": "blue"}]'
    long = result_line(ToolResult("1", (Text("x" * 1000),)))
    assert long == f"[Tool Result: {'x' * LONGEST_RESULT}… (1000 characters)]"


def test_calls_and_results_are_lines_among_the_text() -> None:
    out: list[str] = []
    answer = PlainAnswer(out.append, pytest.fail)
    call = ToolCall("1", "f", '{"a": 1}')
    for event in (
        TextDelta("I look."),
        CallEnded(call),
        Returned(call, ToolResult("1", (Text("2"),))),
        TextDelta("Two."),
    ):
        answer.feed(event)
    answer.close()
    assert "".join(out) == "I look.\n[Tool Call: f(a=1)]\n[Tool Result: 2]\nTwo.\n"
