"""The event grammar, and the laws of fold and replay."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import (
    Assembler,
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Evicted,
    Finished,
    Image,
    Message,
    Opaque,
    Progress,
    Reasoning,
    ReasoningDelta,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    fold,
    replay,
)
from shepherd.core.events import GrammarError
from shepherd.core.messages import Part

START = Started("m")
END = Finished("end")
CALL = ToolCall("1", "f", "{}")
OPEN, DELTA, CLOSE = CallStarted("1", "f"), CallDelta("{}"), CallEnded(CALL)

words = st.text(min_size=1, max_size=8)
parts = st.one_of(
    st.builds(Text, words),
    st.builds(Reasoning, words),
    st.builds(Reasoning, words, words, st.booleans()),
    st.builds(ToolCall, words, words, words, st.none() | words, st.none() | words),
    st.builds(Opaque, words, words, st.just((Text("a search"),))),
    st.builds(BadCall, words, words, words, words),
)


def mergeable(first: Part, second: Part) -> bool:
    """Whether the fold would make one part of two neighbours: the message is then not in normal form."""
    match first, second:
        case Text(), Text():
            return True
        case Reasoning(signature=None, redacted=False), Reasoning(redacted=False):
            return True
    return False


messages = st.lists(parts, max_size=6).filter(lambda ps: not any(mergeable(a, b) for a, b in itertools.pairwise(ps)))


@given(messages, st.none() | words)
def test_folding_a_replay_gives_the_message_back(ps: list[Part], origin: str | None) -> None:
    message = Message("assistant", tuple(ps), origin)
    assert fold(replay(message)).message == message


@given(messages, st.data())
def test_deltas_may_be_cut_anywhere(ps: list[Part], data: st.DataObject) -> None:
    message = Message("assistant", tuple(ps))
    events: list[Event] = []
    for event in replay(message):
        match event:
            case TextDelta(text) if len(text) > 1:
                cut = data.draw(st.integers(1, len(text) - 1))
                events += [TextDelta(text[:cut]), TextDelta(text[cut:])]
            case CallDelta(text):
                cut = data.draw(st.integers(0, len(text)))
                events += [CallDelta(text[:cut]), CallDelta(text[cut:])]
            case _:
                events.append(event)
    assert fold(events).message == message


def test_the_end_carries_reason_usage_and_stop_string() -> None:
    reply = fold([START, Evicted(2, 9), TextDelta("a"), Evicted(1, 3), Finished("stop", Usage(1, 2, 3, 4, 1), "b")])
    assert (reply.reason, reply.stop, reply.evicted, reply.model) == ("stop", "b", 3, "m")
    assert (reply.usage.prompt, reply.usage.total) == (6, 10)


WRONG_ORDERS: dict[str, list[Event]] = {
    "nothing at all": [],
    "text before the start": [TextDelta("a")],
    "two starts": [START, START],
    "finished before the start": [END],
    "text inside a call": [START, OPEN, TextDelta("a")],
    "reasoning inside a call": [START, OPEN, ReasoningDelta("a")],
    "a notice inside a call": [START, OPEN, Progress(1, 2)],
    "an eviction inside a call": [START, OPEN, Evicted(1, 1)],
    "a call inside a call": [START, OPEN, OPEN],
    "a delta outside a call": [START, DELTA],
    "a call that ends without a start": [START, CLOSE],
    "finished inside a call": [START, OPEN, END],
    "no end": [START, TextDelta("a")],
    "text after the end": [START, END, TextDelta("a")],
    "two ends": [START, END, END],
    "an empty text delta": [START, TextDelta("")],
    "another call's end": [START, OPEN, DELTA, CallEnded(ToolCall("2", "f", "{}"))],
    "another name at the end": [START, OPEN, DELTA, CallEnded(ToolCall("1", "g", "{}"))],
    "deltas that spell something else": [START, OPEN, CallDelta("{"), CLOSE],
    "no deltas for arguments": [START, OPEN, CLOSE],
}


@pytest.mark.parametrize("events", WRONG_ORDERS.values(), ids=WRONG_ORDERS.keys())
def test_every_other_order_is_refused(events: list[Event]) -> None:
    with pytest.raises(GrammarError):
        fold(events)


ALPHABET: list[Event] = [START, Progress(1, 2), TextDelta("a"), ReasoningDelta("a"), OPEN, DELTA, CLOSE, END]


@given(st.lists(st.sampled_from(ALPHABET), max_size=7))
def test_the_assembler_accepts_exactly_the_grammar(events: list[Event]) -> None:
    # An independent statement of the grammar, as a regular expression over one letter per event.
    import re

    letters = {Started: "S", Progress: "p", TextDelta: "t", ReasoningDelta: "r", CallStarted: "(", CallDelta: "d"}
    word = "".join(letters.get(type(event), ")" if isinstance(event, CallEnded) else "F") for event in events)
    allowed = re.fullmatch(r"S(p|t|r|\(d\))*F", word) is not None  # one delta spells the arguments exactly
    try:
        fold(events)
    except GrammarError:
        assert not allowed
    else:
        assert allowed


def test_a_failed_assembler_stays_failed() -> None:
    assembler = Assembler()
    with pytest.raises(GrammarError):
        assembler.feed(END)
    with pytest.raises(GrammarError):
        assembler.feed(START)
    with pytest.raises(GrammarError):
        assembler.reply()


def test_a_partial_answer_holds_complete_parts_only() -> None:
    assembler = Assembler()
    for event in (START, TextDelta("Let me see. "), OPEN, CallDelta("{")):
        assembler.feed(event)
    assert assembler.partial().parts == (Text("Let me see. "),)


@pytest.mark.parametrize("part", [Image("image/png", b"x"), ToolResult("1", ())])
def test_what_no_model_generates_cannot_be_replayed(part: Part) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        list(replay(Message("assistant", (part,))))


def test_a_long_text_is_put_together_in_time_that_is_proportional_to_it() -> None:
    """A text that is copied for each delta of it would take minutes here."""
    piece, n_deltas = "w" * 2**16, 2_000
    for delta in (TextDelta(piece), ReasoningDelta(piece)):
        reply = fold([Started("m"), *[delta] * n_deltas, Finished("end")])
        assert [len(getattr(part, "text", "")) for part in reply.message.parts] == [n_deltas * len(piece)]
