"""What a pipe and a program get of a stream: exactly the text, or one object per event."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.agent.turn import CallProgress, CallReturned
from shepherd.cli.chat.stats import TurnStats
from shepherd.cli.terminal.answer import (
    EVENT_NAMES,
    LINE_WIDTH,
    JsonAnswer,
    PlainAnswer,
    call_line,
    eviction_line,
    recall_line,
    result_line,
)
from shepherd.cli.text import clean, cut, n_columns, output_line, readable
from shepherd.core import (
    Audio,
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Image,
    Progress,
    ReasoningDelta,
    Recalled,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)


def played(*events: Any, notices: Callable[[str], None] = pytest.fail) -> str:
    """What a plain answer writes of a stream."""
    out: list[str] = []
    answer = PlainAnswer(out.append, notices)
    for event in events:
        answer.feed(event)
    answer.close()
    return "".join(out)


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
    notices: list[str] = []
    call = CallEnded(ToolCall("1", "f", "{}"))
    events = (Started("m"), Evicted(2, 9), ReasoningDelta("hm"), TextDelta("a"), call, Finished("end"))
    assert played(*events, notices=notices.append) == "a\n[Tool Call: f()]\n"
    assert notices == ["[2 messages (9 tokens) left the context; the conversation continues]\n"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Evicted(6, 412), "[6 messages (412 tokens) left the context; the conversation continues]"),
        (Evicted(1, 1), "[1 message (1 token) left the context; the conversation continues]"),
    ],
)
def test_an_eviction_is_told_in_one_line(event: Evicted, line: str) -> None:
    assert eviction_line(event) == line


def test_what_was_recalled_is_a_line_with_its_count_and_its_time() -> None:
    noon = datetime(2026, 11, 23, 12).timestamp()
    now = datetime(2026, 11, 23, 18)
    day = 86_400
    for recalled, line in (
        (Recalled(2, 30, noon, noon + 40), "[recalled 2 messages of 12:00 · /memory off]"),
        (Recalled(2, 30, noon, noon + 120), "[recalled 2 messages of 12:00 to 12:02 · /memory off]"),
        (Recalled(1, 30, noon - day, noon - day), "[recalled 1 message of 2026-11-22 · /memory off]"),
        (Recalled(3, 30, noon - 9 * day, noon), "[recalled 3 messages of 2026-11-14 to 12:00 · /memory off]"),
    ):
        assert recall_line(recalled, now) == line


def test_a_plain_answer_notes_what_was_recalled_beside_the_text() -> None:
    notices: list[str] = []
    recalled = Recalled(1, 30, 0.0, 0.0)
    events = (Started("m", recalled=recalled), TextDelta("a"), Finished("end"))
    assert played(*events, notices=notices.append) == "a\n"
    assert notices == [recall_line(recalled) + "\n"]


def test_what_leaves_in_the_middle_of_a_plain_answer_is_told_once_behind_it() -> None:
    both: list[str] = []
    answer = PlainAnswer(both.append, both.append)
    for event in (TextDelta("a"), Evicted(2, 9), TextDelta("b"), Evicted(1, 3), TextDelta("c"), Finished("end")):
        answer.feed(event)
    answer.close()
    assert "".join(both) == "abc\n[3 messages (12 tokens) left the context; the conversation continues]\n"


def test_the_meter_does_not_count_what_has_left_during_the_answer() -> None:
    turn = TurnStats()
    for event in (
        Started("m", usage=Usage(input=60)),
        Evicted(1, 40),  # before: not in the prompt's count any more
        TextDelta("a"),
        Evicted(2, 30),
        Finished("end", Usage(input=10, cache_read=50, output=35)),
    ):
        turn.feed(event)
    assert turn.line(100).endswith(" · 10 new + 50 cached · ▕█████░░░▏ 65/100")


def call_of(**arguments: Any) -> ToolCall:
    return ToolCall("1", "f", json.dumps(arguments))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (ToolCall("1", "list_directory", '{"path": "."}'), '[Tool Call: list_directory(path=".")]'),
        (ToolCall("1", "f", '{"a": "é", "b": [1, null]}'), '[Tool Call: f(a="é", b=[1, null])]'),
        (ToolCall("1", "f", '{"n": 12345678901234567890}'), "[Tool Call: f(n=12345678901234567890)]"),
        (ToolCall("1", "f", "not json"), "[Tool Call: f(not json)]"),
        (ToolCall("1", "f", "[1]"), "[Tool Call: f([1])]"),
        (ToolCall("1", "f", "[" * 100_000), f"[Tool Call: f({'[' * 63}…)]"),
        (ToolCall("1", "f\x1b[2J\n", ""), "[Tool Call: f()]"),
        (call_of(a="two\nlines \u202e\u2028\x1b"), '[Tool Call: f(a="two\\nlines \ufffd\ufffd\\u001b")]'),
        (
            BadCall("<x", "the arguments are\nno JSON", name="f"),
            "[Tool Call: f could not be read: the arguments are no JSON]",
        ),
    ],
)
def test_a_call_is_shown_as_one_line(call: ToolCall | BadCall, line: str) -> None:
    assert call_line(call) == line


def test_of_a_long_call_every_argument_keeps_its_beginning_and_short_ones_are_whole() -> None:
    line = call_line(call_of(content="def f():\n" * 20, path="src/cli/answer.py", n=3))
    assert line == '[Tool Call: f(content="def f():\\ndef f():\\nde…", path="src/cli/answer.py", n=3)]'


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON) | st.text(), st.integers(1, 200))
def test_a_call_and_a_result_are_never_more_than_one_safe_line(name: str, given: Any, width: int) -> None:
    call = ToolCall("1", name[:20], json.dumps(given))
    result = ToolResult("1", (Text(json.dumps(given, ensure_ascii=False)),))
    for line in (call_line(call, width), result_line(CallReturned(call, result, name), width)):
        assert "\n" not in line
        assert clean(line) == line
        assert line.startswith("[Tool ")
        assert line.endswith("]")
    assert n_columns(call_line(call, 120)) <= 120
    assert n_columns(result_line(CallReturned(call, result, name), 80)) <= 80


def test_json_is_one_object_per_event() -> None:
    out: list[str] = []
    answer = JsonAnswer(out.append)
    call = ToolCall("1", "f", "{}")
    for event in (
        Started("m", usage=Usage(input=3), recalled=Recalled(1, 30, 0.0, 0.0)),
        Progress(1, 3),
        Evicted(1, 2),
        TextDelta("two\nlines"),
        ReasoningDelta("r"),
        CallStarted("1", "f"),
        CallDelta("{}"),
        CallEnded(call),
        CallProgress(call, "half"),
        CallReturned(call, ToolResult("1", (Text("a\nb\udc80é"),), "f"), "two lines", "+b"),
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
    assert told[8] == {"event": "tool_working", "call_id": "1", "name": "f", "line": "half"}
    result = {"event": "tool_result", "call_id": "1", "name": "f", "text": "a\nb\udc80é", "ok": True}
    assert told[9] == {**result, "summary": "two lines", "diff": "+b"}
    assert "é" in out[9]
    out[9].encode()
    assert told[10]["reason"] == "tool_calls"
    assert told[10]["usage"] == asdict(Usage(input=3, output=2))
    recalled = {"messages": 1, "tokens": 30, "oldest_s": 0.0, "newest_s": 0.0, "words": [], "ids": []}
    assert told[0]["recalled"] == recalled


def result_of(
    text: str, summary: str = "", *, is_error: bool = False, image: Image | Audio | None = None
) -> CallReturned:
    parts = (Text(text), image) if image else (Text(text),)
    return CallReturned(ToolCall("1", "f", "{}"), ToolResult("1", parts, "f", is_error), summary)


@pytest.mark.parametrize(
    ("returned", "inside"),
    [
        (result_of('{"value": "blue"}', "a fact"), '{"value": "blue"}'),
        (result_of('{"value":\n "blue"}'), '{"value": "blue"}'),
        (result_of("a.txt\nb.txt\n", "a.txt, b.txt"), "a.txt, b.txt"),
        (result_of("Found 2:\n\nfirst", "Found 2:"), "Found 2: first"),
        (result_of("x" * 1000), "x" * 64 + "…"),
        (result_of("x" * 1000, "x" * 10 + "…"), "x" * 64 + "…"),
        (result_of("x" * 1000, "many x"), "many x"),
        (result_of("Error: no\nsuch file", "failed", is_error=True), "Error: no such file"),
        (result_of(""), "(empty)"),
        (result_of("", image=Audio("audio/wav", b"1234")), "[recording audio/wav, 4 bytes]"),
        (result_of("", image=Image("image/png", b"1234")), "[image image/png, 4 bytes]"),
        (result_of("\x1b[31mred\x1b[0m\ttext\r\n10%\r20%\r\nend"), "red text 20% end"),
        (result_of("日本語" * 30), "日本語" * 10 + "日本…"),
        (result_of("\u202egnirts\x07"), "\ufffdgnirts␇"),
    ],
)
def test_a_result_is_one_line_and_not_too_long(returned: CallReturned, inside: str) -> None:
    line = result_line(returned)
    assert line == f"[Tool Result: {inside}]"
    assert n_columns(line) <= LINE_WIDTH


def test_a_gigantic_result_costs_no_more_than_its_beginning() -> None:
    assert result_line(result_of("\x1b\r" * 5_000_000)).startswith("[Tool Result: ")


@given(st.text(alphabet=st.sampled_from("a\x1b[]0;31mK\x07\\\r\n\t\b\x9bP\u202e")))
def test_the_output_of_a_program_cannot_steer_the_terminal(text: str) -> None:
    shown = readable(text)
    assert clean(shown) == shown
    assert not set(shown) & set("\x1b\r\t\x07\x9b\u202e")
    assert "\n" not in output_line(text)


@given(st.text(), st.integers(0, 30))
def test_a_text_that_is_cut_fits(text: str, width: int) -> None:
    assert n_columns(cut(text, width)) <= max(width, 0)
    assert cut(text, 1000) == text or n_columns(text) > 1000


@pytest.mark.parametrize(
    ("text", "wanted"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("👩\u200d💻", 4), ("שלום", 4), ("", 0)]
)
def test_columns_are_those_of_a_terminal(text: str, wanted: int) -> None:
    assert n_columns(text) == wanted


def test_calls_and_results_are_lines_among_the_text() -> None:
    call = ToolCall("1", "f", '{"a": 1}')
    shown = played(
        TextDelta("I look."),
        CallEnded(call),
        CallProgress(call, "half"),
        CallReturned(call, ToolResult("1", (Text("2"),))),
        TextDelta("Two."),
    )
    assert shown == "I look.\n[Tool Call: f(a=1)]\n[Tool Result: 2]\nTwo.\n"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_of_several_calls_each_has_its_result_behind_it_whichever_comes_first(order: tuple[int, ...]) -> None:
    calls = [ToolCall(str(n), "f", f'{{"n": {n}}}') for n in range(3)]
    returns = [CallReturned(call, ToolResult(call.id, (Text(f"r{call.id}"),))) for call in calls]
    shown = played(*map(CallEnded, calls), Finished("tool_calls"), *(returns[n] for n in order), TextDelta("So."))
    pairs = "".join(f"[Tool Call: f(n={n})]\n[Tool Result: r{n}]\n" for n in range(3))
    assert shown == f"{pairs}So.\n"


def test_calls_that_are_not_carried_out_are_shown_all_the_same() -> None:
    calls = [CallEnded(ToolCall("1", "f", "{}")), CallEnded(BadCall("<", "no JSON", "2", "g"))]
    assert played(*calls) == "[Tool Call: f()]\n[Tool Call: g could not be read: no JSON]\n"
    assert played(*calls, TextDelta("x")).endswith("no JSON]\nx\n")
    assert played(*calls, Started("m"), TextDelta("x")).endswith("no JSON]\nx\n")


# -- the line behind a turn -------------------------------------------------------------------------------------------


def metered(*events: Any) -> TurnStats:
    """Every event comes a second after the one before."""
    seconds = [0.0]
    turn = TurnStats(lambda: seconds[0])
    for event in events:
        seconds[0] += 1.0
        turn.feed(event)
    return turn


def test_the_meter_adds_up_the_answers_of_a_turn_and_leaves_out_the_time_of_tools() -> None:
    call = ToolCall("1", "f", "{}")
    back = CallReturned(call, ToolResult("1", ()))
    turn = metered(
        Started("m", usage=Usage(input=100)),
        CallStarted("1", "f"),
        CallEnded(call),
        CallEnded(call),
        Finished("tool_calls", Usage(input=60, cache_read=40, output=2)),
        back,
        back,
        Started("m"),
        TextDelta("a"),
        CallEnded(call),
        Finished("tool_calls", Usage(input=5, cache_read=107, output=2)),
        back,
        Started("m"),
        TextDelta("a"),
        Finished("end", Usage(input=5, cache_read=115, output=2)),
    )
    line = turn.line(1000, 32)
    speed = "6 tokens · 0.5 tokens/s · first 2.00 s"
    assert line == f"{speed} · 70 new + 40 cached · ▕█░░░░░░░▏ 122/1000 · 3 calls in 2 of 32 rounds"
    assert turn.line(1000).endswith("3 calls in 2 rounds")


def test_the_meter_of_an_answer_without_calls_says_nothing_of_them() -> None:
    finished = Finished("length", Usage(input=9, output=2))
    line = metered(Started("m"), ReasoningDelta("a"), TextDelta("b"), finished).line(100, 32)
    assert (
        line == "2 tokens · 0.5 tokens/s · first 2.00 s · 9 new + 0 cached · ▕█░░░░░░░▏ 11/100 · cut off by the limit"
    )
    assert metered(Started("m"), TextDelta("a")).line(100) == ""


def test_one_call_is_one_call() -> None:
    assert (
        metered(Started("m"), CallEnded(ToolCall("1", "f", "{}")), Finished("tool_calls"))
        .line(9, 1)
        .endswith(" · 1 call in 1 of 1 round")
    )


def test_the_speed_of_a_call_that_was_held_back_is_not_that_of_its_last_piece() -> None:
    call = ToolCall("1", "f", "{}")
    events = (Started("m"), Progress(1, 2), Progress(2, 2), TextDelta("."), CallStarted("1", "f"), CallEnded(call))
    turn = metered(*events, Finished("tool_calls", Usage(output=101)))
    assert " · 25.0 tokens/s · " in turn.line(1000)  # 100 tokens behind the first one, four seconds behind the prompt
