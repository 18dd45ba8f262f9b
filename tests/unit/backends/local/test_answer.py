"""One answer in the making: steps in, events in the order of the grammar out."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import FakeVocabulary

from shepherd.backends.local.answer import Answer
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Progress,
    Started,
    TextDelta,
    ToolCall,
    Usage,
    fold,
)
from shepherd.engine.base import Admitted, Done, Prefill, Step


class Streaming:
    """A parser that tells of a call while it comes: `{` opens one, `}` ends it."""

    def __init__(self) -> None:
        self.call = ""

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for char in text:
            if char == "{" and not self.call:
                self.call = "{"
                events += [CallStarted("1", "f"), CallDelta("{")]
            elif self.call:
                self.call += char
                events.append(CallDelta(char))
                if char == "}":
                    events += self.close()
            else:
                events.append(TextDelta(char))
        return events

    def close(self, *, truncated: bool = False) -> list[Event]:
        call, self.call = self.call, ""
        return [CallEnded(ToolCall("1", "f", call))] if call else []


def events_of(steps: Sequence[Step]) -> list[Event]:
    answer = Answer(Streaming(), FakeVocabulary(), model="m")
    return [event for step in steps for event in answer.take(step)]


def test_usage_counts_what_the_model_has_read_and_written() -> None:
    events = events_of([Admitted(7, 5), *b"Hi", Done("end", 257)])
    assert events[0] == Started("m", "local:m", Usage(5, 7))
    assert events[-1] == Finished("end", Usage(5, 7, output=3))


def test_figures_that_are_corrected_before_the_first_token_are_those_of_the_usage() -> None:
    events = events_of([Admitted(0, 7), Admitted(5, 2), Prefill(2, 2), *b"ab", Done("end", 9)])
    assert [type(event) for event in events] == [Started, Progress, TextDelta, TextDelta, Finished]
    assert events[-1] == Finished("end", Usage(input=2, cache_read=5, output=3))


def test_an_eviction_within_a_call_is_told_behind_it() -> None:
    events = events_of([Admitted(0, 5), *b"a{", Evicted(4, 40), ord("}"), ord("b"), Done("end")])
    kinds = [type(event) for event in events]
    assert kinds == [Started, TextDelta, CallStarted, CallDelta, CallDelta, CallEnded, Evicted, TextDelta, Finished]


def test_an_eviction_before_the_start_is_told_behind_it() -> None:
    assert [type(event) for event in events_of([Evicted(2, 9), Admitted(0, 5), Done("end")])] == [
        Started,
        Evicted,
        Finished,
    ]


def test_the_message_is_there_when_the_answer_has_ended_and_no_stop_string_has_cut_it() -> None:
    answer = Answer(Streaming(), FakeVocabulary(), model="m", stops=("xy",))
    told = [event for step in (Admitted(0, 1), *b"a{}", Done("end")) for event in answer.take(step)]
    assert answer.message == fold(told).message
    cut = Answer(Streaming(), FakeVocabulary(), model="m", stops=("xy",))
    assert cut.message is None
    for step in (Admitted(0, 1), *b"a xy"):
        list(cut.take(step))
    assert cut.has_ended
    assert cut.message is None


def test_an_end_token_that_the_engine_does_not_know_ends_the_answer() -> None:
    answer = Answer(Streaming(), FakeVocabulary(), model="m", end_token=257, role_stops=("<|im_start|>",))
    events = [event for step in (Admitted(0, 1), *b"Hi<|im", 257) for event in answer.take(step)]
    assert fold(events).message.text == "Hi<|im"
    assert events[-1] == Finished("end", Usage(1, 0, output=7))
    assert answer.tokens == list(b"Hi<|im")


steps = st.lists(st.sampled_from([Evicted(2, 9), Prefill(1, 5), *b"a{}"]), max_size=20)


@given(steps, st.integers(0, 20))
def test_whenever_turns_leave_the_events_keep_to_the_grammar_and_none_is_lost(told: list[Step], at: int) -> None:
    early = [step for step in told[:at] if not isinstance(step, int)]
    reply = fold(events := events_of([*early, Admitted(0, 1), *told[at:], Done("length")]))
    assert reply.evicted == 2 * (early + told[at:]).count(Evicted(2, 9))
    assert events.count(Progress(1, 5)) == (early + told[at:]).count(Prefill(1, 5))
