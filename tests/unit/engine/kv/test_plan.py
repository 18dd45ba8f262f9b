"""What becomes of a prompt: reused, evicted, computed, closed up, or refused with both counts."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fake_engine import PLAIN, RECURRENT

from shepherd.core import OnFull, Sampling
from shepherd.engine.base import Job, Media, Span
from shepherd.engine.decision_log import find_divergence
from shepherd.engine.kv.ledger import Ledger, NoRoom, Resident
from shepherd.engine.kv.plan import Limits, Plan, counting, find_tail, kept_tokens, plan, remaining, size
from shepherd.engine.media import tokens_of

LIMITS = Limits(n_ctx=100, low_water=0.75, n_positions=0)


def held(ledger: Ledger, n: int) -> Resident:
    resident = ledger.new()
    ledger.extend(resident, list(range(n)))
    resident.n_prompt = n
    return resident


def turns(n: int, length: int) -> tuple[Span, ...]:
    """A system prompt, and turns of which the last one stays."""
    return tuple(Span(at * length, (at + 1) * length, at, at, keep=at in (0, n - 1)) for at in range(n))


def job(tokens: array[int], spans: tuple[Span, ...] = (), on_full: OnFull = "evict") -> Job:
    return Job(tokens, 10, Sampling(), spans, on_full)


def planned(ledger: Ledger, tokens: array[int], spans: tuple[Span, ...] = (), **more: object) -> Plan | NoRoom:
    limits = more.pop("limits", LIMITS)
    assert isinstance(limits, Limits)
    match = ledger.find(tokens, holes=True, spans=spans)
    return plan(ledger, tokens, job(tokens, spans), match, limits=limits, reserve=10, reuse_tail=bool(more))


def test_what_is_cached_is_not_computed() -> None:
    ledger = Ledger(100, 4, PLAIN)
    source = held(ledger, 40)
    found = planned(ledger, array("i", range(50)))
    assert isinstance(found, Plan)
    assert (found.source, found.length, found.todo) == (source, 40, ((40, 50),))
    assert (found.n_cached, found.n_new, found.n_cells) == (40, 10, 50)


def test_the_oldest_turns_leave_down_to_the_low_water_mark() -> None:
    ledger = Ledger(100, 4, PLAIN)
    held(ledger, 90)
    found = planned(ledger, array("i", range(100)), turns(10, 10))
    assert isinstance(found, Plan)
    assert [(turn.first, turn.last) for turn in found.evictions] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert (found.n_cached, found.n_new, found.todo) == (50, 10, ((90, 100),))


@pytest.mark.parametrize(
    ("n_turns_to_evict", "left"), [(0, []), (1, [1]), (3, [1, 2, 3]), (99, [1, 2, 3, 4, 5, 6])], ids=str
)
def test_turns_leave_on_request_although_there_is_room(n_turns_to_evict: int, left: list[int]) -> None:
    ledger = Ledger(100, 4, PLAIN)
    held(ledger, 80)
    tokens = array("i", range(80))
    asked = replace(job(tokens, turns(8, 10)), n_turns_to_evict=n_turns_to_evict, reserve=1)
    found = plan(ledger, tokens, asked, ledger.find(tokens, holes=True), limits=LIMITS, reserve=1)
    assert isinstance(found, Plan)
    assert [turn.first for turn in found.evictions] == left
    assert found.n_cached + found.n_new == 80 - 10 * len(left)
    assert found.n_new == 1


def test_turns_that_left_before_are_not_counted_again() -> None:
    ledger = Ledger(100, 4, PLAIN)
    source = held(ledger, 80)
    ledger.evict(source, [(10, 30)])
    tokens = array("i", range(80))
    asked = replace(job(tokens, turns(8, 10)), n_turns_to_evict=2)
    found = plan(ledger, tokens, asked, ledger.find(tokens, holes=True), limits=LIMITS, reserve=1)
    assert isinstance(found, Plan)
    assert [turn.first for turn in found.evictions] == [3, 4]


def test_room_is_made_all_the_same_when_too_few_are_to_leave() -> None:
    ledger = Ledger(100, 4, PLAIN)
    held(ledger, 90)
    tokens = array("i", range(100))
    asked = replace(job(tokens, turns(10, 10)), n_turns_to_evict=1)
    found = plan(ledger, tokens, asked, ledger.find(tokens, holes=True), limits=LIMITS, reserve=10)
    assert isinstance(found, Plan)
    assert [turn.first for turn in found.evictions] == [1, 2, 3, 4]


def test_turns_that_were_never_computed_leave_without_being_computed() -> None:
    found = planned(Ledger(100, 4, PLAIN), array("i", range(200)), turns(20, 10))
    assert isinstance(found, Plan)
    assert found.todo[0] == (0, 10)
    assert found.todo[1][1] == 200
    assert found.n_new + 10 <= 75


def test_what_left_before_stays_away() -> None:
    ledger = Ledger(100, 4, PLAIN)
    source = held(ledger, 90)
    ledger.evict(source, [(10, 60)])
    found = planned(ledger, array("i", range(100)), turns(10, 10))
    assert isinstance(found, Plan)
    assert (found.evictions, found.n_cached, found.n_new) == ((), 40, 10)


def test_a_job_that_may_not_evict_learns_what_is_missing() -> None:
    ledger = Ledger(100, 4, PLAIN)
    tokens = array("i", range(120))
    found = plan(ledger, tokens, job(tokens, turns(12, 10), "error"), None, limits=LIMITS, reserve=10)
    assert found == NoRoom(30, 0)


def test_what_must_stay_and_does_not_fit_is_refused_with_both_counts() -> None:
    spans = tuple(replace(span, keep=span.message != 1) for span in turns(12, 10))
    found = planned(Ledger(100, 4, PLAIN), array("i", range(120)), spans)
    assert found == NoRoom(needed=30, evictable=10)


def test_a_memory_without_holes_goes_back_before_what_leaves() -> None:
    ledger = Ledger(100, 4, RECURRENT)
    source = held(ledger, 90)
    source.checkpoints = [(10, b"behind the system prompt"), (80, b"later")]
    found = planned(ledger, array("i", range(100)), turns(10, 10))
    assert isinstance(found, Plan)
    assert (found.source, found.length) == (source, 10)
    assert found.todo == ((50, 100),)


def test_a_memory_without_holes_or_checkpoints_starts_again_in_its_place() -> None:
    ledger = Ledger(100, 4, RECURRENT)
    source = held(ledger, 90)
    found = planned(ledger, array("i", range(100)), turns(10, 10))
    assert isinstance(found, Plan)
    assert (found.source, found.replaced, found.length) == (None, source, 0)
    assert found.todo == ((0, 10), (50, 100))


@pytest.mark.parametrize(("shift", "closes"), [(True, True), (False, False)])
def test_positions_that_run_out_are_closed_up_or_computed_again(shift: bool, closes: bool) -> None:
    ledger = Ledger(100, 4, replace(PLAIN, shift=shift))
    source = held(ledger, 90)
    ledger.evict(source, [(10, 60)])
    found = planned(ledger, array("i", range(100)), turns(10, 10), limits=replace(LIMITS, n_positions=105))
    assert isinstance(found, Plan)
    assert found.close_gaps is closes
    assert found.length == (90 if closes else 10)
    assert found.todo == (((90, 100),) if closes else ((60, 100),))


def edited(n: int, start: int, stop: int, *new: int) -> array[int]:
    tokens = array("i", range(n))
    tokens[start:stop] = array("i", new)
    return tokens


@pytest.mark.parametrize("new", [(), (7, 7), (7,) * 10])
def test_a_tail_behind_an_edit_is_kept_when_asked_for(new: tuple[int, ...]) -> None:
    ledger = Ledger(200, 4, PLAIN)
    source = held(ledger, 80)
    tokens = edited(90, 20, 30, *new)
    found = planned(ledger, tokens, reuse=True)
    assert isinstance(found, Plan)
    assert found.tail is not None
    assert (found.tail.start, found.tail.stop, found.tail.at) == (30, 80, 20 + len(new))
    assert found.n_new == len(new) + 10
    plain = planned(ledger, tokens)
    assert isinstance(plain, Plan)
    assert plain.tail is None, "nobody asked"
    assert source.tokens == array("i", range(80)), "planning changes nothing"


def test_a_tail_does_not_fit_behind_more_than_was_there() -> None:
    ledger = Ledger(200, 4, PLAIN)
    assert find_tail(held(ledger, 80), edited(90, 20, 30, *[7] * 11), 20, PLAIN) is None


@pytest.mark.parametrize("place", ["", "left", "came", "within"])
def test_no_tail_is_kept_beside_an_image(place: str) -> None:
    """Positions of an image may be fewer than its tokens: what stood behind another one does not fit."""
    picture = tokens_of(Media(b"an image", 6, b""))
    old, new, tail = array("i", [7] * 6), array("i", [8] * 6), array("i", range(100, 160))
    old, new = picture if place == "left" else old, picture if place == "came" else new
    if place == "within":
        tail[20:26] = picture
    ledger = Ledger(200, 4, PLAIN)
    source = ledger.new()
    ledger.extend(source, array("i", range(20)) + old + tail)
    source.n_prompt = len(source)
    found = find_tail(source, array("i", range(20)) + new + tail + array("i", [1]), 20, PLAIN)
    assert (found is not None) == (not place)


def test_a_tail_is_found_before_bytes_that_look_like_it() -> None:
    """`1 << 16` ends with the bytes of which `1 << 8` has more behind it."""
    ledger = Ledger(200, 4, PLAIN)
    source, alike = ledger.new(), [1 << 16] * 40
    ledger.extend(source, [*range(40), *alike])
    source.n_prompt = 80
    tokens = array("i", [*range(20), *alike, 7, *[1 << 8] * 20])
    found = find_tail(source, tokens, 20, PLAIN)
    assert found is not None
    assert (found.start, found.stop, found.at) == (40, 80, 20)


def test_a_conversation_is_not_the_same_because_of_the_bytes_of_other_tokens() -> None:
    def diverged(known: list[int]) -> int | None:
        ledger = Ledger(200, 4, PLAIN)
        resident = ledger.new()
        ledger.extend(resident, [1, 2, 3, 4, 5, *known])
        resident.n_prompt = len(resident)
        tokens = array("i", [1, 2, 9, 9, 9, 9, *[1 << 8] * 8])
        spans = (Span(0, 2, 0, 0), Span(2, 6, 1, 1, label="user"), Span(6, 14, 2, 2, label="user"))
        return find_divergence([resident], tokens, job(tokens, spans), None)

    assert diverged([1 << 8] * 8) is not None
    assert diverged([1 << 16] * 8) is None


def test_a_client_that_drops_what_has_left_continues_from_what_is_there() -> None:
    ledger = Ledger(200, 4, PLAIN)
    source = held(ledger, 80)
    ledger.evict(source, [(20, 30)])
    found = planned(ledger, edited(90, 20, 30))
    assert isinstance(found, Plan)
    assert found.tail is not None
    assert (found.n_cached, found.n_new) == (70, 10)


@given(st.integers(0, 30), st.integers(0, 30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5))
def test_remaining_is_set_difference(start: int, stop: int, without: list[tuple[int, int]]) -> None:
    ranges = [(min(pair), max(pair)) for pair in without]
    left = remaining(start, stop, ranges)
    gone = {at for a, b in ranges for at in range(a, b)}
    assert [at for a, b in left for at in range(a, b)] == [at for at in range(start, stop) if at not in gone]
    assert all(a < b for a, b in left)
    assert counting(ranges)(start, stop) == size(left), "counted without the ranges"


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8), st.integers(0, 5))
def test_kept_tokens_are_those_that_no_eviction_takes(messages: list[tuple[int, bool]], tail: int) -> None:
    spans, at = [], 0
    for index, (length, keep) in enumerate(messages):
        spans.append(Span(at, at + length, index, index, keep))
        at += length
    of = job(array("i", range(at + tail)), tuple(spans))
    movable = sum(1 for span in spans if not span.keep for index in range(span.start, span.stop) if index >= 4)
    assert kept_tokens(of) == at + tail - movable
