"""What an engine shows of its cache: at every moment the same as its ledger and its figures, and nothing unasked."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from tests.fake_engine import BYTES, FakeRuntime, SilentLoop, scheduler_on

from shepherd.engine.base import Job, Owner, Span, Ticket
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.scheduler import Scheduler
from shepherd.engine.window import (
    MOST_UNREAD,
    Display,
    Fact,
    Feed,
    Fresh,
    Gone,
    Grown,
    Left,
    Miss,
    Moved,
    Picture,
    Seq,
    Turn,
)

END = BYTES + 1


def next_token(tokens: Sequence[int]) -> int:
    return END if len(tokens) % 23 == 0 else len(tokens) % BYTES


@dataclass
class Reader:
    """A client that knows nothing but the facts."""

    known: dict[Seq, Picture] = field(default_factory=dict)
    happened: list[Fact] = field(default_factory=list)

    def read(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            match fact:
                case Fresh():
                    self.known.clear()
                case Picture(seq=seq):
                    self.known[seq] = fact
                case Grown(seq, n_tokens):
                    self.known[seq] = self.known[seq].grown(n_tokens)
                case Gone(seq):
                    del self.known[seq]
                case _:
                    self.happened.append(fact)

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for fact in self.happened if isinstance(fact, kind)]


@dataclass
class Talk:
    """A conversation: messages of bytes, each with its role."""

    name: str
    messages: list[tuple[str, bytes]]

    def job(self, n_answer: int) -> Job:
        tokens, spans, last = array("i"), list[Span](), len(self.messages) - 1
        for at, (role, text) in enumerate(self.messages):
            spans.append(Span(len(tokens), len(tokens) + len(text), at, at, at in (0, last), role))
            tokens.extend(text)
        return Job(
            tokens, n_answer, spans=tuple(spans), on_full="evict", reserve=4, session=self.name,
            owner=Owner(f"owner of {self.name}"),
        )  # fmt: skip


def ticket_of(job: Job) -> Ticket:
    return Ticket(job, cast("asyncio.AbstractEventLoop", SilentLoop()))


def answer_each(scheduler: Scheduler, names: str, after: Callable[[], None] = lambda: None) -> None:
    """A conversation of each name gets an answer, one behind the other; `after`: each step."""
    for name in names:
        ticket = ticket_of(Talk(name, [("system", name.encode() * 40), ("user", b"Hello")]).job(20))
        scheduler.queue.add(ticket)
        while not ticket.finished:
            scheduler.admit()
            scheduler.step()
            after()


def agree(reader: Reader, scheduler: Scheduler) -> None:
    """The reader knows what the ledger has and what `/v1/caches` would say."""
    shown = {seq: each for seq, each in reader.known.items() if each.tier == "cells"}
    runs = {each.id: sum(stop - start for start, stop in shown[each.id].runs) for each in scheduler.pool.ledger}
    assert {each.id: each.n_resident for each in scheduler.pool.ledger} == runs
    for resident in scheduler.pool.ledger:
        held = [at for start, stop in shown[resident.id].runs for at in range(start, stop)]
        assert held == [at for run in resident.runs for at in range(run.start, run.stop)]
        assert [(each.start, each.stop, each.message) for each in shown[resident.id].parts] == [
            (each.start, each.stop, each.message) for each in resident.spans
        ]
    stats = scheduler.queue.published[0]
    assert {(each.seq, each.session, each.tokens, each.evicted, each.owner) for each in stats.sequences} == {
        (each.seq, each.session, each.n_held, each.n_tokens - each.n_held, each.owner) for each in shown.values()
    }
    assert len(shown) == len(stats.sequences)


async def read_all(feed: Feed, batches: AsyncGenerator[list[Fact], None], reader: Reader) -> None:
    while feed.n_unread:
        reader.read(await anext(batches))


@pytest.mark.parametrize("seed", range(6))
async def test_the_pictures_are_the_ledger_after_every_step(seed: int) -> None:
    dice = random.Random(seed)
    runtime = FakeRuntime(next_token, frozenset({END}), n_ctx=192, n_seq=4)
    scheduler = scheduler_on(runtime, tiers=Tiers(ram_bytes=40_000 * (seed % 2)), sequences=2)
    feed, reader = Feed(asyncio.get_running_loop()), Reader()
    scheduler.watch(feed)
    batches = feed.batches()
    talks = [Talk(f"s{at}", [("system", b"You are a dog. ")]) for at in range(4)]
    for _ in range(24):
        asked = dice.sample(talks, dice.randint(1, 2))
        for talk in asked:
            talk.messages.append(("user", dice.randbytes(dice.randint(4, 40))))
            if dice.random() < 0.2 and len(talk.messages) > 3:
                at = dice.randrange(1, len(talk.messages) - 1)
                talk.messages[at] = (talk.messages[at][0], dice.randbytes(9))
        tickets = [ticket_of(talk.job(dice.randint(1, 30))) for talk in asked]
        for ticket in tickets:
            scheduler.queue.add(ticket)
        while not all(ticket.finished for ticket in tickets):
            scheduler.admit()
            if scheduler.running:
                scheduler.step()
            scheduler.queue.publish()
            await read_all(feed, batches, reader)
            agree(reader, scheduler)
        for talk, ticket in zip(asked, tickets, strict=True):
            said = bytes(step for step in ticket._steps if isinstance(step, int))
            talk.messages.append(("assistant", said or b"."))
    scheduler.clear()
    scheduler.queue.publish()
    await read_all(feed, batches, reader)
    assert reader.known == {}
    totals = scheduler.pool.totals
    assert totals.evictions > 0, "the story has evictions"
    assert sum(each.tokens for each in reader.of(Left)) == totals.evicted_tokens
    assert sum(each.evicted for each in reader.of(Turn)) == totals.evicted_tokens
    if not totals.preemptions:  # a job that goes on has new figures
        assert sum(each.cached for each in reader.of(Turn)) == totals.cached_tokens
    assert sum(each.generated for each in reader.of(Turn)) == totals.generated_tokens
    assert bool(reader.of(Miss)), "and edits"
    restored = [each for each in reader.of(Moved) if each.target == "cells"]
    assert len(restored) == totals.restored
    assert (totals.restored > 0) == bool(seed % 2)


async def test_what_the_library_could_not_save_has_not_moved_into_memory() -> None:
    class Forgetful(FakeRuntime):
        def save(self, seq: int, *, partial: bool = False) -> bytes:
            return b""

    for kind, target in ((FakeRuntime, "memory"), (Forgetful, "away")):
        scheduler = scheduler_on(kind(next_token, frozenset({END}), n_ctx=192, n_seq=2), tiers=Tiers(ram_bytes=10**6))
        feed, reader = Feed(asyncio.get_running_loop()), Reader()
        scheduler.watch(feed)
        answer_each(scheduler, "abc", after=scheduler.queue.publish)
        await read_all(feed, feed.batches(), reader)
        assert {each.target for each in reader.of(Moved)} == {target}


async def test_what_is_saved_is_drawn_once() -> None:
    scheduler = scheduler_on(
        FakeRuntime(next_token, frozenset({END}), n_ctx=192, n_seq=2), tiers=Tiers(ram_bytes=10**6)
    )
    feed = Feed(asyncio.get_running_loop())
    scheduler.watch(feed)
    answer_each(scheduler, "abcd")
    first, again = scheduler.pool.pictures(), scheduler.pool.pictures()
    saved = [seq for seq, each in first.items() if each.tier != "cells"]
    assert len(saved) > 1
    assert all(first[seq] is again[seq] for seq in saved)
    scheduler.pool.display.remove(feed)
    assert scheduler.pool.display.drawn == {}, "and nothing of it is kept without a feed"


async def test_without_a_feed_nothing_is_made() -> None:
    runtime = FakeRuntime(next_token, frozenset({END}), n_ctx=192, n_seq=4)
    scheduler, talk = scheduler_on(runtime), Talk("s", [("user", b"Hello")])
    display = scheduler.pool.display

    def turn() -> None:
        ticket = ticket_of(talk.job(20))
        scheduler.queue.add(ticket)
        while not ticket.finished:
            scheduler.admit()
            scheduler.step()
            scheduler.queue.publish()

    turn()
    assert (display.is_on, display._shown, display._notices) == (False, {}, [])
    feed = Feed(asyncio.get_running_loop())
    scheduler.watch(feed)
    turn()
    assert feed.n_unread > 1
    display.remove(feed)
    n_unread = feed.n_unread
    turn()
    assert (display.is_on, display._shown, display._notices, feed.n_unread) == (False, {}, [], n_unread)


async def test_a_feed_that_is_not_read_begins_again_with_the_whole_picture() -> None:
    display, feed = Display(), Feed(asyncio.get_running_loop())
    display.add(feed)
    picture, most = Picture(1, "s", "", "cells", 5, 5, ((0, 5),), ()), 0
    for n in range(5, 3 * MOST_UNREAD):
        display.note(Turn("s", "", 0.0, 1, 0, 5, 0.1, n, 9.0, 0))
        display.show({1: picture.grown(n), 2: replace(picture, seq=2)})
        most = max(most, feed.n_unread)
    assert most <= MOST_UNREAD + 2
    reader = Reader()
    await read_all(feed, feed.batches(), reader)
    assert reader.known == {1: picture.grown(3 * MOST_UNREAD - 1), 2: replace(picture, seq=2)}
    assert len(reader.happened) < MOST_UNREAD


async def test_a_feed_ends_with_its_engine() -> None:
    scheduler = scheduler_on(FakeRuntime(next_token))
    early, late = Feed(asyncio.get_running_loop()), Feed(asyncio.get_running_loop())
    scheduler.watch(early)
    scheduler.pool.display.end()
    scheduler.watch(late)
    assert [[batch async for batch in feed.batches()] for feed in (early, late)] == [[[Fresh()]], []]
