"""Sets of adapters beside each other on one cache: no cell, state or snapshot of one set is ever used with another.

The fake runtime remembers with which adapters each cell was computed, and refuses a decode that mixes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, SilentLoop, scheduler_on
from tests.unit.engine.test_scheduler import APART, END, RAM, Day, Numbers, model

from shepherd.engine.base import UNOWNED, Adapters, Admitted, Done, Job, Memory, Owner, Span, Ticket
from shepherd.engine.kv.ledger import shared_prefix
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.kv.tiers import Snapshot, file
from shepherd.engine.kv.tiers.snapshot import covers

LAW: Adapters = (("law", 1.0),)
HALF: Adapters = (("law", 0.5),)
BOTH: Adapters = (("law", 1.0), ("med", 1.0))
SETS = ((), LAW, HALF, BOTH)


class Adapted(Day):
    """A day of jobs with several sets, which begin alike and continue each other's; some have owners."""

    def submit(self, job: Job) -> None:
        n_common = self.random.choice((0, 10, 20))
        super().submit(replace(job, owner=Owner(self.random.choice(("", "ada")), n_common, self.random.choice(SETS))))


@pytest.mark.grid(0.08, family="memory")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_no_cell_of_one_set_is_used_with_another(seed: int, memory: Memory) -> None:
    Adapted(seed, memory, (Tiers(), RAM, APART)[seed % 3], reuse_tail=seed % 2 == 1).pass_by(150)


# ---- one prompt after another


SAME = array("i", range(1, 61))


class Cache:
    """One cache of the fake model."""

    def __init__(self, tiers: Tiers = RAM, memory: Memory = PLAIN, n_positions: int | None = None) -> None:
        self.runtime = FakeRuntime(model, frozenset({END}), n_ctx=400, n_seq=6, n_batch=64, memory=memory)
        self.scheduler = scheduler_on(
            self.runtime, sequences=3, tiers=tiers, n_positions=n_positions, show=Numbers().piece
        )

    def submit(self, adapters: Adapters, tokens: Sequence[int] = SAME, **fields: Any) -> Ticket:
        owner = Owner(fields.pop("owner", ""), fields.pop("n_common", 0), adapters)
        job = Job(array("i", tokens), fields.pop("max_tokens", 2), owner=owner, **fields)
        ticket = Ticket(job, cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        return ticket

    def answered(self, adapters: Adapters) -> array[int]:
        """The conversation with the longest prompt in the tiers, as a client resends it."""
        outlines = self.scheduler.pool.snapshots.outlines().values()
        return max((each.tokens for each in outlines if each.owner.adapters == adapters), key=len)

    def run(self) -> None:
        self.scheduler.admit()
        while self.scheduler.running:
            self.scheduler.step()
            self.scheduler.admit()

    def n_cached(self, adapters: Adapters, tokens: Sequence[int] = SAME, **fields: Any) -> int:
        ticket = self.submit(adapters, tokens, **fields)
        self.run()
        return next(step.n_cached for step in ticket._steps if isinstance(step, Admitted))


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_a_set_finds_its_own_cells_only(memory: Memory) -> None:
    cache = Cache(memory=memory)
    assert [cache.n_cached(each) for each in SETS] == [0, 0, 0, 0]
    assert all(cache.n_cached(each) >= 59 for each in SETS)


def test_what_owners_have_in_common_is_common_to_one_set() -> None:
    cache = Cache()
    cache.n_cached(LAW, owner="ada", n_common=40)
    assert cache.n_cached((), owner="bob", n_common=40) == 0
    assert cache.n_cached(LAW, owner="bob", n_common=40) == 40


def test_the_short_beginning_of_an_idle_conversation_is_not_lent_to_another_set() -> None:
    theirs = Owner("ada", 40, LAW)
    assert shared_prefix(SAME, Owner("bob", 40, LAW), SAME, theirs) == 40
    assert shared_prefix(SAME, Owner("bob", 40), SAME, theirs) == 0
    assert shared_prefix(SAME, Owner("ada", 40), SAME, theirs) == 0
    assert not theirs.can_share(Owner("ada", 40, HALF))
    assert theirs.can_share(Owner("ada", 0, LAW))


def test_evicted_turns_of_one_set_stay_in_the_prompt_of_another() -> None:
    """A hole belongs to the conversation that has it."""
    cache = Cache()
    spans = tuple(Span(at, at + 20, at // 20, at // 20, keep=at in (0, 80)) for at in range(0, 100, 20))
    tokens = [*SAME, *range(61, 101)]
    fields: dict[str, Any] = {"spans": spans, "on_full": "evict"}
    cache.n_cached(LAW, tokens, n_turns_to_evict=2, max_tokens=0, **fields)
    assert cache.n_cached(LAW, tokens, **fields) == 59
    assert cache.n_cached((), tokens, **fields) == 0
    assert cache.scheduler.pool.held(array("i", tokens), spans, Owner(adapters=HALF), holes=True).n == 0


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_a_snapshot_in_host_memory_is_of_its_set(memory: Memory) -> None:
    cache = Cache(memory=memory)
    pool = cache.scheduler.pool
    cache.n_cached(LAW)
    for resident in pool.ledger.idle():
        pool.drop(resident)
    assert not list(pool.ledger)
    whole = array("i", [*cache.answered(LAW), 7])
    for adapters, is_held in ((), False), (HALF, False), (LAW, True):
        held = pool.held(whole, (), Owner(adapters=adapters), holes=False)
        assert (held.n > 32, held.tier) == (is_held, "memory" if is_held else "")
    assert cache.n_cached((), whole) == 0
    assert cache.n_cached(LAW, whole) > 32


def test_a_set_survives_a_restart_and_others_do_not_get_its_tokens(tmp_path: Path) -> None:
    tiers = Tiers(1_000_000, tmp_path, 1_000_000)
    cache = Cache(tiers)
    cache.n_cached(LAW)
    while cache.scheduler.pool.save_one():
        pass
    cache.scheduler.pool.close()
    assert len(list(tmp_path.glob("*.kv"))) == 1
    for adapters, expected in ((), []), (HALF, []), (BOTH, []), (LAW, [61]):
        again = Cache(tiers).scheduler.pool
        assert again.snapshots.flush(30)
        owner = Owner(adapters=adapters)
        _, found = again.find(SAME, owner, holes=False, spans=())
        assert ([found.match.resident.n_resident] if found else []) == expected
        assert [len(tokens) for tokens in again.beginning_with(SAME[:9], owner)] == expected
        again.snapshots.close()


def snapshot(adapters: Adapters) -> Snapshot:
    return Snapshot(array("i", range(9)), ((0, 9, 0),), (), 4, b"state", 1.0, owner=Owner("ada", adapters=adapters))


def test_a_file_with_adapters_is_none_that_a_server_without_them_reads(tmp_path: Path) -> None:
    for at, adapters in enumerate(SETS):
        own = snapshot(adapters)
        head, _ = file.pack(own, file.fingerprint_id("model"), 1, 0.0)
        assert file._PRELUDE.unpack(head[: file._PRELUDE.size])[1] == (3 if adapters else 2)
        assert file.write(tmp_path, own.key("model"), head, own, lambda: True)
        assert file.read(file.path(tmp_path, own.key("model"))) == own
        assert [covers(own, snapshot(each)) for each in SETS] == [other == at for other in range(len(SETS))]
    assert len({snapshot(each).key("model") for each in SETS}) == len(SETS)


def test_a_checkpoint_is_left_to_sequences_of_the_same_set() -> None:
    cache = Cache(memory=RECURRENT)
    for adapters in (LAW, ()):
        cache.n_cached(adapters, n_system=40)
    pool = cache.scheduler.pool
    (mine,) = (each for each in pool.ledger if each.owner.adapters == LAW)
    (other,) = (each for each in pool.ledger if not each.owner.adapters)
    mine.checkpoints = [(40, b"of law")]
    other.checkpoints = []
    assert not pool.checkpoints.bequeath(mine)
    assert other.checkpoints == []


# ---- the scheduler


def test_sets_take_turns_and_no_decode_mixes_them() -> None:
    cache = Cache()
    tickets = [cache.submit(each, [at + 1, *range(30)], max_tokens=20) for at, each in enumerate((LAW, (), LAW))]
    cache.run()
    assert all(isinstance(ticket._steps[-1], Done) for ticket in tickets)
    order = [batch[0].adapters for batch in cache.runtime.batches]
    both = order[: len(order) - 1 - order[::-1].index(())]  # until the job without adapters has ended
    assert all(one != other for one, other in pairwise(both)), "one set was computed twice in a row"
    alike = [batch for batch in cache.runtime.batches if batch[0].adapters == LAW]
    assert sum(len(batch) == 2 for batch in alike) >= 3, "jobs of one set are computed together"


def test_a_long_prompt_of_one_set_leaves_the_others_their_pace() -> None:
    cache = Cache()
    answer = cache.submit(LAW, [1, 2, 3], max_tokens=30)
    cache.scheduler.admit()
    cache.scheduler.step()
    cache.scheduler._decode.speed.token_s = cache.scheduler._decode.speed.decode_s = 0.001
    cache.submit((), range(300))
    cache.scheduler.admit()
    for _ in range(4):
        cache.scheduler.step()
    sizes = [sum(len(chunk.tokens) for chunk in batch) for batch in cache.runtime.batches if not batch[0].adapters]
    assert sizes
    assert max(sizes) < cache.runtime.n_batch, "a prompt beside an answer is computed in small chunks, whatever its set"
    assert not answer.finished


def test_a_set_that_comes_again_and_again_starves_no_other() -> None:
    cache = Cache()
    patient = cache.submit(LAW, [1, 2, 3], max_tokens=10)
    for at in range(60):
        if len(cache.scheduler.queue.waiting) + len(cache.scheduler.running) < 3:
            cache.submit((("new", float(at + 1)),), [at, 5, 6], max_tokens=1)
        cache.scheduler.admit()
        cache.scheduler.step()
    assert patient.finished


def test_a_decode_that_fails_or_is_interrupted_leaves_every_set_right() -> None:
    cache = Cache()
    cache.runtime.faults.decode_error_at = 20
    for at, adapters in enumerate((*SETS, *SETS)):
        cache.submit(adapters, [at, *range(30)], max_tokens=6)
        cache.scheduler.admit()
        cache.runtime.interrupt(at % 2 == 0)
        if cache.scheduler.running:
            cache.scheduler.step()
    cache.run()
    assert cache.n_cached(LAW, [1, *range(30)]) <= 31


def test_an_idle_conversation_is_computed_again_with_its_own_set() -> None:
    """Where the memory cannot move tokens, a rebase decodes what stays of an evicted conversation by itself."""
    cache = Cache(memory=replace(PLAIN, shift=False), n_positions=101)
    tokens = array("i", [at % 7 for at in range(100)])
    spans = (Span(0, 20, 0, 0, keep=True), Span(20, 70, 1, 1), Span(70, 98, 2, 2), Span(98, 100, 3, 3, keep=True))
    fields: dict[str, Any] = {"spans": spans, "on_full": "evict"}
    cache.n_cached(LAW, tokens, max_tokens=0, **fields)
    cache.n_cached(LAW, tokens, n_turns_to_evict=1, max_tokens=0, **fields)
    (resident,) = cache.scheduler.pool.ledger
    assert any(resident.gaps())
    n_before = len(cache.runtime.batches)
    assert cache.scheduler.pool.rebase_one(101, lambda: False)
    again = cache.runtime.batches[n_before:]
    assert again
    assert {chunk.adapters for batch in again for chunk in batch} == {LAW}
    places = cache.runtime.places[resident.id].values()
    assert {cache.runtime.added[cell] for cell in places} == {LAW}


def test_the_rest_of_the_engine_sees_no_set() -> None:
    assert Owner("ada") == Owner("ada", 0, ())
    assert UNOWNED.adapters == ()
