"""What two conversations have in common counts from the first token, and a short history is found like a long one."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, scheduler_on
from tests.unit.engine.test_background import END, ListeningLoop, admitted

from shepherd.engine.base import Job, Memory, Owner, Span, Ticket
from shepherd.engine.kv.pool import LEAST_BASE, WORTH_SAVING, WORTH_SHARING, OperationRefused, Tiers
from shepherd.engine.prefill import CHUNK, STRIDE

RAM = Tiers(ram_bytes=1_000_000)
LONG = STRIDE + 44
SHORT = WORTH_SAVING - 12


class Cache:
    """Jobs one after the other, each with an answer of one token that the cache does not keep."""

    def __init__(self, tiers: Tiers, *, pays_for_idle: bool = True, memory: Memory = PLAIN) -> None:
        self.seen: list[list[int]] = []
        """What the model has read when it began an answer."""
        self.runtime = FakeRuntime(
            self._answer,
            frozenset({END}),
            n_ctx=2_000,
            n_seq=8,
            n_batch=512,
            memory=memory,
            pays_for_idle=pays_for_idle,
        )
        self.scheduler = scheduler_on(self.runtime, sequences=2, tiers=tiers)

    def _answer(self, tokens: Sequence[int]) -> int:
        self.seen.append(list(tokens))
        return END

    def cached(self, tokens: list[int], *starts: int, n_system: int = 0, owner: str = "") -> int:
        """How many tokens of a prompt were there; its messages begin at `starts`."""
        bounds = [*starts, len(tokens)]
        spans = tuple(Span(start, stop, at, at, label="user") for at, (start, stop) in enumerate(pairwise(bounds)))
        job = Job(array("i", tokens), 1, spans=spans, n_system=n_system, owner=Owner(owner))
        ticket = self.finish(job)
        assert self.seen[-1] == [*tokens], "the cells hold what the prompt says"
        return admitted(ticket).n_cached

    def finish(self, job: Job) -> Ticket:
        """Compute a job to its end."""
        ticket = Ticket(job, cast(Any, ListeningLoop()))
        self.scheduler.queue.add(ticket)
        for _ in range(100):
            self.scheduler.admit()
            if not self.scheduler.running:
                break
            self.scheduler.step()
        return ticket

    def flood(self, n: int = 6) -> None:
        """Long conversations that begin otherwise: all others leave their cells."""
        for at in range(n):
            self.cached([9 + at] * LONG)

    @property
    def saved(self) -> list[tuple[int, int]]:
        """Of each snapshot: tokens that its state has, and those before them that it leaves out."""
        outlines = self.scheduler.pool.snapshots.outlines().values()
        return [(each.n_resident, each.n_base) for each in outlines if each.n_system]


def talk(first: int, n: int, common: int = 0) -> list[int]:
    """A conversation of n tokens that has so many first ones in common with every other."""
    return [*range(5, 5 + common), *(first + at % 7 for at in range(n - common))]


@pytest.mark.parametrize("common", [1, 9, WORTH_SHARING - 1, WORTH_SHARING, 60])
@pytest.mark.parametrize("pays_for_idle", [True, False])
@pytest.mark.parametrize("length", [80, LONG])
def test_a_shared_beginning_counts_from_its_first_token(length: int, pays_for_idle: bool, common: int) -> None:
    cache = Cache(RAM, pays_for_idle=pays_for_idle)
    one, other = talk(100, length, common), talk(200, length, common)
    assert cache.cached(one) == 0
    assert cache.cached(other) == common
    assert cache.cached([*one, 3]) == length, "nothing of the first one is lost"
    assert cache.cached([*other, 3]) == length


def test_without_host_memory_no_long_conversation_is_lost_for_a_few_tokens() -> None:
    cache = Cache(Tiers())
    one, other = talk(100, LONG, 9), talk(200, LONG, 9)
    assert [cache.cached(each) for each in (one, other, [*one, 3], [*other, 3])] == [0, 0, LONG, LONG]


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
def test_a_short_history_comes_back_like_a_long_one(memory: Memory) -> None:
    cache = Cache(RAM, memory=memory)
    short = [talk(first, SHORT) for first in (100, 110, 120)]
    assert [cache.cached(each) for each in short] == [0, 0, 0]
    for n in range(4):
        cache.cached(talk(200 + 10 * n, LONG))  # all others leave their cells
    assert [cache.cached([*each, END, 3, 4]) for each in short] == [SHORT + 1] * 3


def test_a_long_snapshot_is_not_loaded_for_a_few_tokens() -> None:
    cache = Cache(RAM)
    cache.cached(talk(100, LONG, 9))
    cache.cached(talk(200, LONG))
    n = cache.scheduler.pool.totals.restored
    assert cache.cached(talk(300, 40, 9)) == 0
    assert cache.scheduler.pool.totals.restored == n


@pytest.mark.parametrize("gone", [False, True], ids=["in the cells", "in host memory"])
@pytest.mark.parametrize("length", [SHORT, 80, LONG])
def test_an_edit_of_the_first_message_is_logged(caplog: pytest.LogCaptureFixture, length: int, gone: bool) -> None:
    cache = Cache(RAM)
    answer, edited = talk(300, 10), talk(200, length, 3)
    cache.cached([*talk(100, length, 3), *answer], 0, length)
    if gone:
        for n in range(4):
            cache.cached(talk(400 + 10 * n, LONG), 0)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="shepherd.engine"):
        n_cached = cache.cached([*edited, *answer, 1, 2], 0, length, length + 10)
    assert "Conversation diverged at message 0" in caplog.text
    assert n_cached == (0 if gone else 3)
    assert ("clearing cache" in caplog.text) == (n_cached == 0)
    assert gone or "miss: token 3 of" in caplog.text


# ---- a system prompt that many conversations have is saved once

SYSTEM = LEAST_BASE + 4
REST = 91
"""Tokens of a chat behind its system prompt, the end of its answer included."""
CHATS = tuple(talk(first, SYSTEM + REST - 1, SYSTEM) for first in (300, 310, 320, 330))


def chats(cache: Cache, owner: str = "") -> None:
    """Four conversations behind one system prompt, and then others until none of the four is in the cells."""
    for chat in CHATS:
        cache.cached(chat, n_system=SYSTEM, owner=owner)
    cache.flood()


def test_a_system_prompt_of_many_saved_conversations_is_saved_once() -> None:
    cache = Cache(RAM)
    chats(cache)
    assert sorted(cache.saved) == [(REST, SYSTEM)] * 3 + [(SYSTEM + REST, 0)]
    assert cache.scheduler.pool.snapshots.ram_bytes > 0
    for chat in (*CHATS, *reversed(CHATS)):
        assert cache.cached([*chat, 3], n_system=SYSTEM) == len(chat), "each comes back whole"
        cache.flood()


def test_a_conversation_without_its_beginning_waits_for_it() -> None:
    """The snapshot that has the system prompt is lost: it is computed, and then the others are of use again."""
    cache = Cache(RAM)
    chats(cache)
    snapshots = cache.scheduler.pool.snapshots
    assert snapshots.take(next(key for key, each in snapshots.outlines().items() if each.n_system and not each.n_base))
    assert cache.cached([*CHATS[0], 3], n_system=SYSTEM) == 0
    assert cache.cached([*CHATS[1], 3], n_system=SYSTEM) == len(CHATS[1])


def test_a_conversation_without_its_beginning_comes_back_where_every_sequence_is_taken() -> None:
    cache = Cache(RAM, pays_for_idle=False)
    chats(cache)
    for at in range(8):
        cache.cached([20 + at] * 20)
    assert cache.cached([*CHATS[0], 3], n_system=SYSTEM) == len(CHATS[0])


def test_a_newcomer_that_takes_the_place_of_a_conversation_leaves_what_others_have_of_it() -> None:
    cache = Cache(RAM)
    for chat in CHATS[:2]:
        cache.cached(chat, n_system=SYSTEM)
    pool, newcomer = cache.scheduler.pool, talk(400, 40, 4)
    assert cache.cached(newcomer) == 4
    assert sorted(cache.saved) == [(REST, SYSTEM), (SYSTEM + REST, 0)], "the other one is idle, and leaves whole"
    assert len(cache.runtime.cells) == pool.ledger.used
    assert [cache.cached([*chat, 3], n_system=SYSTEM) for chat in CHATS[:2]] == [len(CHATS[0])] * 2


def test_a_snapshot_whose_beginning_has_just_left_stays_saved() -> None:
    cache = Cache(RAM)
    chats(cache)
    pool = cache.scheduler.pool
    found = pool.snapshots.find(array("i", CHATS[0]), holes=False, n_held=SYSTEM)
    assert found is not None
    with pytest.raises(OperationRefused):
        pool.restore(found)
    assert pool.snapshots.touch(found.key)


def test_what_leaves_out_its_beginning_can_lose_turns_and_come_back() -> None:
    cache = Cache(RAM)
    system = Span(0, SYSTEM, 0, 0, keep=True)
    spans = (system, *(Span(SYSTEM + 30 * at, SYSTEM + 30 * (at + 1), at + 1, at) for at in range(3)))
    for first, n_turns in ((300, 1), (310, 0)):
        job = Job(array("i", talk(first, SYSTEM + REST - 1, SYSTEM)), 1, spans=spans, on_full="evict", n_system=SYSTEM)
        cache.finish(replace(job, n_turns_to_evict=n_turns))
    cache.flood()
    assert sorted(cache.saved) == [(REST - 30, SYSTEM), (SYSTEM + REST, 0)]
    for first in (300, 310):
        tokens = array("i", [*talk(first, SYSTEM + REST - 1, SYSTEM), 3])
        ticket = cache.finish(Job(tokens, 1, spans=spans, on_full="evict", n_system=SYSTEM))
        assert admitted(ticket).n_new == 1


def test_no_owner_gets_the_beginning_of_another() -> None:
    cache = Cache(RAM, pays_for_idle=False)  # both are in the cells when the first one leaves
    cache.cached(CHATS[0], n_system=SYSTEM, owner="ada")
    cache.cached(CHATS[1], n_system=SYSTEM, owner="bob")
    cache.flood()
    assert cache.saved == [(SYSTEM + REST, 0)] * 2, "each is whole by itself"
    for chat, owner, n in ((CHATS[0], "bob", SYSTEM), (CHATS[0], "ada", len(CHATS[0])), (CHATS[2], "eve", 0)):
        assert cache.cached([*chat, 3], n_system=SYSTEM, owner=owner) == n


@pytest.mark.parametrize("reason", ["a disk tier", "a recurrent state", "a sliding window", "a short system prompt"])
def test_a_conversation_is_saved_whole_where_its_beginning_cannot_be_elsewhere(reason: str, tmp_path: Path) -> None:
    disk = replace(RAM, folder=tmp_path, disk_bytes=1_000_000)
    memory = {"a recurrent state": RECURRENT, "a sliding window": replace(PLAIN, window=500)}.get(reason, PLAIN)
    tiers = {"a disk tier": disk, "a short system prompt": replace(RAM, least_base=SYSTEM + 1)}.get(reason, RAM)
    cache = Cache(tiers, memory=memory)
    chats(cache)
    assert cache.saved
    assert not any(n_base for _, n_base in cache.saved)
    cache.scheduler.pool.close()


# ---- and a prompt is computed up to a stride of cells


@pytest.mark.parametrize(("pays_for_idle", "n_first"), [(True, 2 * STRIDE - 41), (False, CHUNK)])
def test_a_prompt_that_takes_several_decodes_ends_them_at_a_stride_of_cells(pays_for_idle: bool, n_first: int) -> None:
    cache = Cache(RAM, pays_for_idle=pays_for_idle)
    cache.cached(talk(100, 40, 3))  # and the end of its answer
    cache.runtime.batches.clear()
    cache.cached(talk(200, 1200, 3))
    *prompt, end = [len(batch[0].tokens) for batch in cache.runtime.batches]
    assert (prompt, end) == ([n_first, CHUNK, 1197 - n_first - CHUNK], 1)


@pytest.mark.parametrize(
    ("n_idle", "n_prompt", "tiers", "pays_for_idle", "leaves"),
    [
        (60, STRIDE - 40, RAM, True, True),
        (60, STRIDE - 70, RAM, True, False),  # the answer's token reaches no further stride beside it
        (60, STRIDE + 100, RAM, True, False),
        (60, 2 * STRIDE - 40, RAM, True, True),
        (60, STRIDE - 40, RAM, False, False),  # flash attention skips cells of others
        (60, STRIDE - 40, Tiers(), True, False),  # it would be lost
        (LONG, 40, RAM, True, True),
    ],
)
def test_an_idle_conversation_leaves_where_its_cells_slow_a_newcomer(
    n_idle: int, n_prompt: int, tiers: Tiers, pays_for_idle: bool, leaves: bool
) -> None:
    cache = Cache(tiers, pays_for_idle=pays_for_idle)
    cache.cached(talk(100, n_idle))
    cache.cached(talk(200, n_prompt))
    assert len(list(cache.scheduler.pool.ledger)) == (1 if leaves else 2)
    assert cache.cached([*talk(100, n_idle), 3]) == n_idle, "nothing of it is lost"
