"""What two conversations have in common counts from the first token, and a short history is found like a long one."""

from __future__ import annotations

import logging
from array import array
from itertools import pairwise
from typing import Any, cast

import pytest
from tests.engine.test_background import END, ListeningLoop, admitted
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime

from shepherd.engine.base import Job, Memory, Span, Ticket
from shepherd.engine.kv.pool import WORTH_SAVING, WORTH_SHARING, WORTH_TIDYING, Tiers
from shepherd.engine.scheduler import EngineOptions, Scheduler

RAM = Tiers(ram_bytes=1_000_000)
LONG = WORTH_TIDYING + 44
SHORT = WORTH_SAVING - 12


class Cache:
    """Jobs one after the other, each with an answer of one token that the cache does not keep."""

    def __init__(self, tiers: Tiers, *, pays_for_idle: bool = True, memory: Memory = PLAIN) -> None:
        self.runtime = FakeRuntime(
            lambda tokens: END,
            frozenset({END}),
            n_ctx=2_000,
            n_seq=8,
            n_batch=512,
            memory=memory,
            pays_for_idle=pays_for_idle,
        )
        self.scheduler = Scheduler(
            self.runtime,
            EngineOptions(sequences=2, tiers=tiers),
            name="test",
            show=lambda token: b"%d " % token,
            is_urgent=lambda: False,
            on_ready=lambda: None,
        )

    def cached(self, tokens: list[int], *starts: int) -> int:
        """How many tokens of a prompt were there; its messages begin at `starts`."""
        bounds = [*starts, len(tokens)]
        spans = tuple(Span(start, stop, at, at, label="user") for at, (start, stop) in enumerate(pairwise(bounds)))
        ticket = Ticket(Job(array("i", tokens), 1, spans=spans), cast(Any, ListeningLoop()))
        self.scheduler.queue.add(ticket)
        for _ in range(100):
            self.scheduler.admit()
            if not self.scheduler.running:
                break
            self.scheduler.step()
        return admitted(ticket).n_cached


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
