"""The ledger against a naive list, and against the cells of the fake runtime that follows its operations."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.cases import examples
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime

from shepherd.engine.base import Chunk, Op, Span
from shepherd.engine.kv.ledger import (
    SINK,
    Ledger,
    LedgerError,
    NoRoom,
    Resident,
    TurnEviction,
    common_prefix,
    find_last,
)
from shepherd.engine.kv.plan import evictable_turns

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


class Naive:
    """One sequence as a plain list: every token with its position, or None once it has been evicted."""

    def __init__(self) -> None:
        self.cells: list[tuple[int, int | None]] = []

    @property
    def end(self) -> int:
        return max((at for _, at in self.cells if at is not None), default=-1) + 1

    def by_position(self) -> list[tuple[int, int]]:
        return sorted((at, token) for token, at in self.cells if at is not None)


class Life(RuleBasedStateMachine):
    """Everything that can happen to the sequences of a pool, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime = FakeRuntime(lambda tokens: 0, n_ctx=200, n_seq=4, n_batch=100)
        self.ledger = Ledger(200, 4, PLAIN)
        self.naive: dict[int, Naive] = {}

    def follow(self, ops: list[Op]) -> None:
        for op in ops:
            assert self.runtime.apply(op)

    def pick(self, data: st.DataObject) -> Resident:
        return data.draw(st.sampled_from(list(self.ledger)))

    @precondition(lambda self: self.ledger.has_free_id)
    @rule()
    def new(self) -> None:
        self.naive[self.ledger.new().id] = Naive()

    @precondition(lambda self: self.naive)
    @rule(data=st.data(), tokens=TOKENS)
    def extend(self, data: st.DataObject, tokens: list[int]) -> None:
        resident = self.pick(data)
        assume(self.ledger.free >= len(tokens))
        assert self.runtime.decode([Chunk(resident.id, array("i", tokens), resident.end, False)]) == "ok"
        naive = self.naive[resident.id]
        naive.cells += [(token, at) for at, token in enumerate(tokens, naive.end)]
        self.ledger.extend(resident, tokens)

    @precondition(lambda self: self.naive)
    @rule(data=st.data(), tokens=TOKENS)
    def skip(self, data: st.DataObject, tokens: list[int]) -> None:
        resident = self.pick(data)
        self.ledger.skip(resident, tokens)
        self.naive[resident.id].cells += [(token, None) for token in tokens]

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        resident = self.pick(data)
        length = data.draw(st.integers(0, len(resident)))
        self.follow(self.ledger.cut(resident, length))
        del self.naive[resident.id].cells[length:]

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        resident = self.pick(data)
        start = data.draw(st.integers(0, len(resident)))
        stop = data.draw(st.integers(start, len(resident)))
        self.follow(self.ledger.evict(resident, [(start, stop)]))
        cells = self.naive[resident.id].cells
        cells[start:stop] = [(token, None) for token, _ in cells[start:stop]]

    @precondition(lambda self: self.naive and self.ledger.has_free_id)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        resident = self.pick(data)
        length = data.draw(st.integers(0, len(resident)))
        target, ops = self.ledger.fork(resident, length)
        self.follow(ops)
        self.naive[target.id] = copy = Naive()
        copy.cells = self.naive[resident.id].cells[:length]

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def close_gaps(self, data: st.DataObject) -> None:
        resident = self.pick(data)
        first = next((a for a, _ in resident.gaps()), len(resident))
        assume(not self.ledger.is_shared(resident, resident.position_of(first)))
        assume(not resident.runs or resident.runs[0].position == 0)
        self.follow(self.ledger.close_gaps(resident))
        naive = self.naive[resident.id]
        ranks = {at: rank for rank, (at, _) in enumerate(naive.by_position())}
        naive.cells = [(token, None if at is None else ranks[at]) for token, at in naive.cells]

    @precondition(lambda self: self.naive)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        resident = self.pick(data)
        self.follow(self.ledger.forget(resident))
        del self.naive[resident.id]

    @precondition(lambda self: self.naive)
    @rule(data=st.data(), prompt=TOKENS, holes=st.booleans())
    def find(self, data: st.DataObject, prompt: list[int], holes: bool) -> None:
        prompt = [*self.pick(data).tokens, *prompt][: data.draw(st.integers(1, 40))]
        match = self.ledger.find(array("i", prompt), holes=holes)

        def saved(naive: Naive) -> int:
            n = 0
            for (token, at), wanted in zip(naive.cells, prompt[:-1], strict=False):
                if token != wanted or (at is None and not holes):
                    break
                n += at is not None
            return n

        best = max((saved(naive) for naive in self.naive.values()), default=0)
        assert (match.saved if match else 0) == best
        if match is not None:
            assert match.saved == saved(self.naive[match.resident.id])
            assert match.resident.tokens[: match.length].tolist() == prompt[: match.length]

    @invariant()
    def ledger_list_and_cells_agree(self) -> None:
        self.ledger.check_self()
        assert self.ledger.used == len(self.runtime.cells)
        for resident in self.ledger:
            naive = self.naive[resident.id]
            assert resident.tokens.tolist() == [token for token, _ in naive.cells]
            assert self.runtime.tokens(resident.id) == [token for _, token in naive.by_position()]
            assert sorted(self.runtime.places[resident.id]) == [at for at, _ in naive.by_position()]
            assert list(resident.gaps()) == stretches([at is None for _, at in naive.cells])
            assert resident.end == naive.end
            if naive.by_position():
                self.ledger.check(resident, self.runtime.held(resident.id))
            others = [cells_of(other) for other in self.ledger if other is not resident]
            for start in (0, resident.end // 2, resident.end):
                is_shared = any(not cells_of(resident, start).isdisjoint(cells) for cells in others)
                assert self.ledger.is_shared(resident, start) == is_shared


def cells_of(resident: Resident, start: int = 0) -> set[tuple[int, int]]:
    """Block and position of each of its tokens from position `start` on."""
    return {(run.block, at) for run in resident.runs for at in range(max(run.position, start), run.end)}


def stretches(flags: list[bool]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for at, flag in enumerate(flags):
        if flag and found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        elif flag:
            found.append((at, at + 1))
    return found


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)


def ledger_with(tokens: str = "system one two three") -> tuple[Ledger, Resident]:
    ledger = Ledger(100, 4, PLAIN)
    resident = ledger.new()
    ledger.extend(resident, list(tokens.encode()))
    return ledger, resident


RANGE = st.tuples(st.integers(0, 60), st.integers(0, 60))


@given(st.lists(RANGE, max_size=8), RANGE)
def test_what_is_resident_in_a_range_is_what_a_plain_loop_counts(
    gone: list[tuple[int, int]], of: tuple[int, int]
) -> None:
    ledger, resident = ledger_with("x" * 60)
    ledger.evict(resident, gone)
    left = [at for at in range(60) if not any(start <= at < stop for start, stop in gone)]
    found = [at for at in left if of[0] <= at < of[1]]
    assert [at for run in resident.runs for at in range(run.start, run.stop)] == left
    assert [at for _, start, stop in resident.runs_in(*of) for at in range(start, stop)] == found
    assert resident.n_resident_in(*of) == ledger.used_if(resident, [of]) == len(found)
    assert resident.position_of(of[0]) == min((at for at in left if at >= of[0]), default=resident.end)


def test_evicted_tokens_are_matched_and_not_counted() -> None:
    ledger, resident = ledger_with()
    ledger.evict(resident, [(7, 11)])
    prompt = array("i", list(b"system one two three four"))
    match = ledger.find(prompt, holes=True)
    assert match is not None
    assert (match.length, match.saved) == (20, 16)
    whole = ledger.find(prompt, holes=False)
    assert whole is not None
    assert (whole.length, whole.saved) == (7, 7), "a client that wants everything read gets nothing from behind a hole"


def test_a_turn_that_was_half_evicted_and_then_edited_is_computed_as_a_whole() -> None:
    ledger, resident = ledger_with()
    ledger.evict(resident, [(8, 12)])
    spans = (Span(0, 7, 0, 0, keep=True), Span(7, 15, 1, 1))
    match = ledger.find(array("i", list(b"system one twX three")), holes=True, spans=spans)
    assert match is not None
    assert match.length == 7


def test_what_one_prompt_has_cleared_is_computed_for_another_that_has_not() -> None:
    ledger, resident = ledger_with()
    ledger.evict(resident, [(7, 11)])
    spans = (Span(0, 7, 0, 0, keep=True), Span(7, 11, 1, 1), Span(11, 24, 2, 2))
    resident.spans = tuple(replace(span, cleared=span.start == 7) for span in spans)
    prompt = array("i", list(b"system one two three four"))
    lengths = [
        match.length for asked in (resident.spans, spans) if (match := ledger.find(prompt, holes=True, spans=asked))
    ]
    assert lengths == [20, 7]


def test_one_token_is_always_left_to_decode() -> None:
    ledger, resident = ledger_with()
    match = ledger.find(resident.tokens, holes=True)
    assert match is not None
    assert match.length == len(resident) - 1, "logits of an earlier turn are stale (K5)"


def test_a_memory_that_cannot_go_back_is_used_from_its_end_or_from_a_checkpoint() -> None:
    ledger = Ledger(100, 4, RECURRENT)
    resident = ledger.new()
    ledger.extend(resident, list(b"0123456789"))
    assert ledger.find(array("i", list(b"01234X")), holes=True) is None
    match = ledger.find(array("i", list(b"0123456789ab")), holes=True)
    assert match is not None
    assert match.length == 10
    resident.checkpoints = [(3, b"state"), (8, b"state")]
    match = ledger.find(array("i", list(b"01234X")), holes=True)
    assert match is not None
    assert match.length == 3


@pytest.mark.parametrize("held", [(0, 18), (0, 20), (1, 19), (-1, -1)])
def test_a_runtime_that_holds_something_else_is_found_out(held: tuple[int, int]) -> None:
    ledger, resident = ledger_with()
    ledger.check(resident, (0, 19))
    with pytest.raises(LedgerError):
        ledger.check(resident, held)


def plant_run(ledger: Ledger, resident: Resident) -> None:
    resident.runs[0].stop += 1


def plant_order(ledger: Ledger, resident: Resident) -> None:
    ledger.evict(resident, [(5, 8)])
    resident.runs.reverse()


def plant_position(ledger: Ledger, resident: Resident) -> None:
    ledger.evict(resident, [(5, 8)])
    resident.runs[1].position = 2


def plant_block(ledger: Ledger, resident: Resident) -> None:
    target, _ = ledger.fork(resident, 4)
    target.block = resident.block


def plant_count(ledger: Ledger, resident: Resident) -> None:
    ledger._used += 1


@pytest.mark.parametrize("plant", [plant_run, plant_order, plant_position, plant_block, plant_count])
def test_a_planted_fault_is_found_out(plant: object) -> None:
    ledger, resident = ledger_with()
    ledger.check_self()
    assert callable(plant)
    plant(ledger, resident)
    with pytest.raises(LedgerError):
        ledger.check_self()


def conversation(*lengths: int, keep_first: bool = True, keep_last: bool = True) -> tuple[Span, ...]:
    spans, at = [], 0
    for index, length in enumerate(lengths):
        keep = (index == 0 and keep_first) or (index == len(lengths) - 1 and keep_last)
        spans.append(Span(at, at + length, index, index, keep))
        at += length
    return tuple(spans)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.integers(-2, 2)), max_size=12), st.data())
def test_parts_leave_before_turns_and_what_is_late_behind_them(
    messages: list[tuple[int, bool, int]], data: st.DataObject
) -> None:
    spans, at = [], SINK
    for index, (length, keep, early) in enumerate(messages):
        spans.append(Span(at, at + length, index, index // 3, keep, early=early))
        at += length
    movable = [span for span in spans if not span.keep]
    order = [
        *sorted((span for span in movable if span.early > 0), key=lambda span: -span.early),
        *(span for span in movable if span.early == 0),
        *sorted((span for span in movable if span.early < 0), key=lambda span: -span.early),
    ]
    excess, wish = data.draw(st.integers(0, at)), data.draw(st.integers(0, at))
    chosen = evictable_turns(spans, (), excess=excess, wish=wish)
    if isinstance(chosen, NoRoom):
        assert chosen.evictable == sum(span.stop - span.start for span in movable) < excess
        return
    left = [range_ for turn in chosen for range_ in turn.ranges]
    assert set(left) <= {(span.start, span.stop) for span in movable}
    assert len(set(left)) == len(left)
    assert sum(stop - start for start, stop in left) >= excess
    assert left == [(span.start, span.stop) for span in order][: len(left)], "the first of the order, and no others"
    is_late = [span.early < 0 for span in order][: len(left)]
    freed = sum(turn.tokens for turn in chosen[:-1])
    assert not (chosen and freed >= excess and is_late[-1]), "what is late leaves for what must have room only"
    assert not (chosen and freed >= max(excess, wish)), "no more than is wished for"


def test_the_oldest_turns_leave_first_until_the_low_water_mark() -> None:
    spans = conversation(10, 5, 5, 5, 10)
    chosen = evictable_turns(spans, (), excess=3, wish=8)
    assert isinstance(chosen, list)
    assert [(turn.first, turn.last, turn.tokens) for turn in chosen] == [(1, 1, 5), (2, 2, 5)]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_what_is_chosen_to_leave(messages: list[tuple[int, bool, bool]], excess: int, wish: int) -> None:
    spans, at, turn = [], 0, 0
    for index, (length, keep, opens) in enumerate(messages):
        turn += opens
        spans.append(Span(at, at + length, index, turn, keep))
        at += length
    gone = [(span.start, span.stop) for span in spans if span.message % 4 == 3]

    def remaining(start: int, stop: int) -> int:
        return sum(1 for at in range(start, stop) if not any(a <= at < b for a, b in gone))

    chosen = evictable_turns(spans, gone, excess=excess, wish=wish)
    movable = [
        sum(remaining(max(s.start, SINK), s.stop) for s in spans if s.turn == t and not s.keep) for t in range(turn + 1)
    ]
    movable = [n for n in movable if n]
    if isinstance(chosen, NoRoom):
        assert chosen.evictable == sum(movable) < excess
        return
    assert all(isinstance(turn, TurnEviction) for turn in chosen)
    assert [turn.tokens for turn in chosen] == movable[: len(chosen)], "whole turns, oldest first"
    freed = sum(turn.tokens for turn in chosen)
    assert freed >= excess
    assert freed >= wish or len(chosen) == len(movable)
    assert not chosen or freed - chosen[-1].tokens < max(excess, wish), "not more than needed"
    ranges = [range_ for turn in chosen for range_ in turn.ranges]
    assert all(start >= SINK for start, stop in ranges if stop > start), "the first tokens never leave"
    assert not any(span.keep for span in spans for a, b in ranges if a < span.stop and span.start < b and a < b)


@given(TOKENS, TOKENS, TOKENS)
def test_the_common_prefix_is_that_of_a_plain_loop(same: list[int], a: list[int], b: list[int]) -> None:
    left, right = array("i", same + a), array("i", same + b)
    n = 0
    while n < min(len(left), len(right)) and left[n] == right[n]:
        n += 1
    assert common_prefix(left, right) == n


def test_the_common_prefix_of_long_lists_is_found_in_every_block() -> None:
    long = array("i", range(20_000))
    for at in (0, 1, 4095, 4096, 4097, 12_345, 19_999):
        other = long[:]
        other[at] = -1
        assert common_prefix(long, other) == at
    assert common_prefix(long, long) == len(long)


ALIKE = st.sampled_from([0, 1, 1 << 8, 1 << 16])
"""Tokens whose bytes also stand across their neighbours'."""


@given(st.lists(ALIKE, max_size=3), st.lists(ALIKE, max_size=12), st.integers(0, 12))
def test_tokens_are_found_last_where_a_plain_loop_finds_them(run: list[int], tokens: list[int], start: int) -> None:
    found = [at for at in range(start, len(tokens) - len(run) + 1) if tokens[at : at + len(run)] == run]
    assert find_last(array("i", run), array("i", tokens), start) == (found[-1] if found else None)
