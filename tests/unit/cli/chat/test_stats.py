"""What answers cost, summed up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shepherd.agent.turn import CallReturned
from shepherd.cli.chat.stats import TurnStats, sparkline, stat_rows
from shepherd.core import Evicted, Finished, Started, Text, TextDelta, ToolCall, ToolResult, Usage


class Clock:
    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_with_a_call_is_two_rounds() -> None:
    clock = Clock()
    turn = TurnStats(clock)
    turn.feed(Started("m", usage=Usage(input=10)))
    turn.feed(TextDelta("a"))
    turn.feed(TextDelta("a"))
    turn.feed(TextDelta("a"))
    clock.now += 2
    turn.feed(Finished("tool_calls", Usage(input=10, output=5)))
    turn.feed(CallReturned(ToolCall("1", "f", "{}"), ToolResult("1", (Text("no"),), is_error=True)))
    clock.now += 100  # the tool's time is not the model's
    turn.feed(Started("m", usage=Usage(cache_read=15, input=5)))
    turn.feed(Evicted(2, 40))
    turn.feed(TextDelta("b"))
    clock.now += 2
    turn.feed(Finished("end", Usage(cache_read=15, input=5, output=11, reasoning=1)))
    turn.end()
    assert dict(stat_rows([turn])) == {
        "Turns": "1, 2 rounds",
        "Tokens in": "30, of them 15 from the cache (50%)",
        "Tokens out": "16, of them 1 of thoughts",
        "Prefix hits": "1 of 2 prompts",
        "Calls": "1, 1 failed",
        "Evictions": "1, 40 tokens",
        "Tokens/s": "4.0  ▄█",
    }


def test_an_answer_that_is_stopped_counts_with_the_pieces_that_came() -> None:
    turn = TurnStats(Clock())
    turn.feed(Started("m", usage=Usage(input=10)))
    turn.feed(TextDelta("a"))
    turn.feed(TextDelta("b"))
    turn.end()
    turn.end()
    assert (len(turn.answers), turn.usage) == (1, Usage(input=10, output=2))


def test_nothing_yet_is_no_trouble() -> None:
    assert dict(stat_rows([], plain=True))["Tokens/s"] == "0.0"


@given(st.lists(st.floats(0, 1e9), max_size=50))
def test_a_sparkline_has_one_column_for_each_value_and_the_largest_is_the_highest(values: list[float]) -> None:
    line = sparkline(values)
    assert len(line) == len(values)
    assert sparkline(values, plain=True).isascii()
    if max(values, default=0.0) > 0:
        assert line[values.index(max(values))] == "█"
