"""Which old messages leave when a prompt is too long: whole turns, in steps, and how many tokens it has."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.backends.cloud import fit
from shepherd.backends.cloud.fit import Estimate
from shepherd.core import Audio, Image, Message, Request, Text, ToolCall, ToolResult, ToolSpec

LONG = "word " * 80
WEIGHT = fit.message_weight(Message.user(LONG))


def calling(*ids: str) -> list[Message]:
    calls = tuple(ToolCall(id, "look", '{"at": 1}') for id in ids)
    return [Message("assistant", calls), *(Message("tool", (ToolResult(id, (Text(LONG),), "look"),)) for id in ids)]


HISTORY = (
    Message.system("rules"),
    Message.user(f"first {LONG}"),
    *calling("a", "b"),
    Message.assistant(LONG),
    Message.user(LONG),
    Message.assistant(LONG),
    Message.user("newest"),
)


def test_whole_turns_leave_and_the_frame_stays() -> None:
    assert fit.dropped_indices(HISTORY, 1, 1) == (2, 3, 4, 5)
    assert fit.dropped_indices(HISTORY, 4 * WEIGHT, 1) == (2, 3, 4, 5, 6, 7)
    assert fit.dropped_indices(HISTORY, 100 * WEIGHT, 1) == ()


def test_in_a_long_turn_calls_leave_with_their_results() -> None:
    history = (Message.user(LONG), *calling("a"), *calling("b"), *calling("c"))
    assert fit.dropped_indices(history, 1, 1) == (1, 2)
    assert fit.dropped_indices(history, 1.5 * WEIGHT, 1) == (1, 2, 3, 4)
    assert fit.dropped_indices(history, 9 * WEIGHT, 1) == ()


def test_what_leaves_stays_the_same_for_some_turns() -> None:
    history = [Message.user(LONG)]
    window, step = 20 * WEIGHT, 5 * WEIGHT
    seen = []
    for _ in range(40):
        history += [Message.assistant(LONG), Message.user(LONG)]
        excess = sum(map(fit.message_weight, history)) - window
        if excess > 0:
            gone = fit.dropped_indices(history, excess, step)
            assert sum(fit.message_weight(history[at]) for at in gone) >= excess
            seen.append(gone)
    assert len(set(seen)) <= len(seen) / 2
    assert all(after[: len(before)] == before for before, after in pairwise(seen))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.sampled_from("uacs"), max_size=14), st.floats(1, 3000))
def test_pairs_stay_together(kinds: list[str], excess: float) -> None:
    history = [Message.user("q")]
    for number, kind in enumerate(kinds):
        history += {
            "u": [Message.user(LONG)],
            "a": [Message.assistant(LONG)],
            "s": [Message.system("note")],
            "c": calling(f"{number}x", f"{number}y"),
        }[kind]
    gone = set(fit.dropped_indices(history, excess, 50))
    left = [message for at, message in enumerate(history) if at not in gone]
    calls = {call.id for message in left for call in message.calls}
    results = {part.call_id for message in left for part in message.parts if isinstance(part, ToolResult)}
    assert calls == results
    assert history[0] in left
    assert history[-1] in left
    assert [message for message in history if message.role == "system"] == [
        message for message in left if message.role == "system"
    ]


def test_an_estimate_learns() -> None:
    estimate = Estimate()
    request = Request("m", HISTORY, tools=(ToolSpec("look", "looks", {"type": "object"}),))
    weight = fit.weight_of(request)
    assert estimate.tokens(weight) >= 5 * 100
    assert estimate.least(weight) <= estimate.tokens(weight) / 2 + 1
    estimate.learn(weight, round(2 * weight))
    assert abs(estimate.tokens(weight) - 2 * weight) <= 2
    estimate.learn(weight, 0)
    estimate.learn(10, 1000)
    assert abs(estimate.tokens(weight) - 2 * weight) <= 2
    assert estimate.least(weight) > weight


def test_images_and_other_scripts_have_their_weight() -> None:
    assert fit.message_weight(Message("user", (Image(data=b"x"),))) > 500
    # Ten seconds: 320 tokens of Gemini's, 100 of OpenAI's.
    for kind, size in (("audio/wav", 320_000), ("audio/flac", 160_000), ("audio/mpeg", 80_000)):
        assert 300 < fit.message_weight(Message("user", (Audio(kind, bytes(size)),))) < 340
    assert fit.message_weight(Message.user("\u7f8a" * 100)) >= 100
