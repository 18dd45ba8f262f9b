"""The liveness law: whatever clients send, a job starts after a bounded number of engine operations.

    N(job, cache) = ATTEMPTS * (PER_SEQUENCE * n_seq + PER_SPAN * (spans + 1) + FIXED)

where an operation is a call of the runtime: apply, save, load, decode. `Watched` counts them between two decodes and
stops a day that needs more, at the operation that breaks the law: an endless loop is a failed test and not a hang. The
last tests plant the loops that the engine once had, and show that the watch finds them.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, cast

import pytest
from tests.cases import amount
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime, SilentLoop, scheduler_on
from tests.unit.engine.test_scheduler import APART, END, N_CTX, RAM, SHIFTLESS, Day, alone, model

from shepherd.engine.admission import MAX_REFUSED
from shepherd.engine.base import Chunk, Copy, Decoded, Done, Job, Memory, Op, Saved, Span, Ticket
from shepherd.engine.kv.plan import Tail
from shepherd.engine.kv.pool import OperationRefused, Pool, Tiers
from shepherd.engine.scheduler import Scheduler
from shepherd.engine.task import Task

ATTEMPTS = MAX_REFUSED + 1
PER_SEQUENCE = 4
"""An idle sequence that is dropped is saved and forgotten, and so is what was set aside for it."""
PER_SPAN = 2
"""To evict a span: one range, which a hole in it divides."""
FIXED = 12
"""A load, a fork, a cut to a checkpoint, a splice."""
FOLDER = Path("to be replaced by a temporary folder")
DISK = Tiers(folder=FOLDER, disk_bytes=20_000)
BOTH = Tiers(ram_bytes=4_000, folder=FOLDER, disk_bytes=20_000)


class Stuck(AssertionError):
    """The law is broken."""


def most_operations(job: Job, n_seq: int) -> int:
    """N: what one job may need before its first decode."""
    return ATTEMPTS * (PER_SEQUENCE * n_seq + PER_SPAN * (len(job.spans) + 1) + FIXED)


@dataclass
class Watched(FakeRuntime):
    """Counts its operations since the last decode; too many are an error at once."""

    n_operations: int = 0
    n_allowed: int = 0
    most: float = 0.0
    """The largest part of what was allowed that has been needed."""
    before: Callable[[], None] = lambda: None
    """Called before each decode."""

    def _count(self) -> None:
        self.n_operations += 1
        if self.n_operations > self.n_allowed:
            raise Stuck(f"{self.n_operations} operations without a decode, {self.n_allowed} are allowed")

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        self.before()
        decoded = super().decode(batch)
        if decoded == "ok":
            self.most = max(self.most, self.n_operations / max(1, self.n_allowed))
            self.n_operations = 0
        else:
            self._count()
        return decoded

    def apply(self, op: Op) -> bool:
        self._count()
        return super().apply(op)

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        self._count()
        return super().save(seq, partial=partial)

    def load(self, seq: int, state: Saved, *, partial: bool = False) -> bool:
        self._count()
        return super().load(seq, state, partial=partial)


NOTHING = (0, False)


def heard_of(ticket: Ticket) -> tuple[int, bool]:
    """What its caller knows if it is woken now: how many steps there are, and whether the job is over."""
    return len(ticket._steps), ticket.finished


class ListeningLoop:
    """An event loop that notes what it was woken for."""

    def __init__(self) -> None:
        self.heard: dict[Ticket, tuple[int, bool]] = {}

    def call_soon_threadsafe(self, _: object, tickets: set[Ticket]) -> None:
        self.heard |= {ticket: heard_of(ticket) for ticket in tickets}


class Watch(Day):
    """A day of people who begin alike, under the law. Every caller is woken before the thread decodes, or waits."""

    def __init__(
        self,
        seed: int,
        memory: Memory,
        tiers: Tiers,
        *,
        kind: type[Scheduler] = Scheduler,
        runtime: type[Watched] = Watched,
        reuse_tail: bool = False,
    ) -> None:
        self.tickets: list[Ticket] = []
        self.loop = ListeningLoop()
        self.news = threading.Event()
        super().__init__(seed, memory, tiers, kind=kind, runtime=runtime, on_ready=self.news.set, reuse_tail=reuse_tail)
        self.texts = [tuple(self.random.randrange(6) for _ in range(n)) for n in (12, 30, 30, 45)]
        self.n_idle_rounds = 0
        self.watched.before = self.all_are_woken

    @property
    def watched(self) -> Watched:
        return cast(Watched, self.runtime)

    def is_urgent(self) -> bool:
        return False

    # -- what clients do

    def submit(self, job: Job) -> None:
        if self.random.random() < 0.2:
            job = replace(job, background=True)
        self.scheduler.queue.add(ticket := Ticket(job, cast(Any, self.loop)))
        self.tickets.append(ticket)

    def ask(self) -> None:
        """A question that begins like others: a template, a document, a recalled block, or the first part of one."""
        text = self.random.choice(self.texts)
        said = [*text[: self.random.choice((len(text), len(text) // 2))], *self.say(30)]
        self.send([], said)

    def go_on(self) -> None:
        """The next turn of a conversation; of one that a client has edited, sometimes."""
        ended = [ticket for ticket in self.tickets if ticket.finished and ticket._error is None]
        if not ended:
            return self.ask()
        last = self.random.choice(ended[-4:])
        history = [*last.job.tokens, *(step for step in last._steps if isinstance(step, int)), END]
        if self.random.random() < 0.15:
            history[self.random.randrange(len(history))] = 3
        spans = [replace(span, keep=False) for span in last.job.spans]
        start = spans[-1].stop if spans else 0
        if start < len(history):
            spans.append(Span(start, len(history), len(spans), spans[-1].turn if spans else 0))
        return self.send(history, self.say(25), spans)

    def send(self, history: list[int], said: list[int], spans: Sequence[Span] = ()) -> None:
        n = len(history)
        newest = Span(n, n + len(said), len(spans), len(spans), keep=self.random.random() < 0.9)
        reserve = self.random.randint(1, 10)
        job = Job(
            array("i", [*history, *said]),
            self.random.randint(reserve, 25),
            spans=(*spans, newest),
            on_full="evict",
            reserve=reserve,
        )
        if len(said) + reserve <= N_CTX and (job.spans[-1].keep or len(job.tokens) + reserve <= N_CTX):
            self.submit(job)

    def cancel(self) -> None:
        ticket = self.random.choice(self.tickets) if self.tickets else None
        if ticket is not None and not ticket.finished:
            ticket.cancelled = True
            self.scheduler.withdraw(ticket)

    # -- what the thread does

    def all_are_woken(self) -> None:
        """Whoever has an answer, or the next token of it, has heard of it."""
        if any(
            self.loop.heard.get(ticket) != heard_of(ticket) for ticket in self.tickets if heard_of(ticket) != NOTHING
        ):
            raise Stuck("there is news for a caller, and it is not woken")

    def round(self) -> bool:
        """One round of the engine thread; whether there may be more to do."""
        jobs = [task.job for task in [*self.scheduler.waiting, *self.scheduler.running]]
        # Each may be started, put aside and started again before the next decode.
        self.watched.n_allowed = 2 * sum(most_operations(job, self.runtime.n_seq) for job in jobs) + 50
        n_decodes = len(self.runtime.batches)
        self.news.clear()  # what comes from now on has not been seen by `admit`
        self.scheduler.admit()
        if self.scheduler.running:
            self.scheduler.step()
        else:
            self.all_are_woken()
            if self.scheduler.waiting:
                # Nothing runs: what still waits does so for the disk, which always answers.
                assert self.news.wait(30), "a job waits for nothing"
                return True
        has_decoded = len(self.runtime.batches) > n_decodes
        self.n_idle_rounds = 0 if has_decoded or not jobs else self.n_idle_rounds + 1
        if self.n_idle_rounds > 2 * len(jobs) + 4:
            raise Stuck(f"{self.n_idle_rounds} rounds without a decode")
        return bool(self.scheduler.running or self.scheduler.waiting)

    def compute(self) -> None:
        for _ in range(self.random.randint(1, 30)):
            if not self.round():
                return

    def rest(self) -> None:
        """All idle work there is, which must come to an end."""
        self.watched.n_operations, self.watched.n_allowed = 0, 10_000
        self.scheduler.admit()  # as the thread does before it rests
        n = 0
        while not self.scheduler.running and self.scheduler.idle():
            n += 1
            if n > 3 * self.runtime.n_seq:
                raise Stuck(f"{n} pieces of idle work, and no end")
        self.watched.n_operations = 0

    def everything_agrees(self) -> None:
        self.scheduler.pool.ledger.check_self()

    def finish(self) -> None:
        for _ in range(50_000):
            if not self.round():
                break
        assert not self.scheduler.waiting
        assert not self.scheduler.running
        assert all(ticket.finished for ticket in self.tickets)


def in_folder(tiers: Tiers, folder: Path) -> Tiers:
    return replace(tiers, folder=folder) if tiers.folder else tiers


@pytest.mark.grid(0.15)
@pytest.mark.parametrize("seed", range(amount(2, 60)))
@pytest.mark.parametrize("tiers", [RAM, DISK, BOTH, APART], ids=["ram", "disk", "both", "apart"])
@pytest.mark.parametrize("memory", [PLAIN, SHIFTLESS, RECURRENT], ids=["plain", "shiftless", "recurrent"])
def test_every_job_starts_after_a_bounded_number_of_operations(
    seed: int, memory: Memory, tiers: Tiers, tmp_path: Path
) -> None:
    day = Watch(seed, memory, in_folder(tiers, tmp_path), reuse_tail=seed % 2 == 1)
    day.pass_by(200)
    day.scheduler.pool.close()
    assert day.watched.most <= 1.0


def test_these_days_are_eventful(tmp_path: Path) -> None:
    happened = dict.fromkeys(("evictions", "preemptions", "dropped", "saved", "restored"), 0)
    most = 0.0
    for seed in range(12):
        if min(happened.values()) > 5 and most > 0.02:  # how often depends on how soon the disk's thread has written
            break
        day = Watch(seed, PLAIN, in_folder(BOTH, tmp_path / str(seed)))
        day.pass_by(200)
        for name in happened:
            happened[name] += getattr(day.scheduler.queue.stats(), name)
        most = max(most, day.watched.most)
        day.scheduler.pool.close()
    assert min(happened.values()) > 5, happened
    assert most > 0.02, "what is allowed has something to do with what is needed"


def test_the_four_requests_that_once_blocked_the_engine(tmp_path: Path) -> None:
    """A text at the start of three conversations, evicted from the first: each is answered."""
    day = Watch(0, PLAIN, RAM)
    text, rng = [1, 2, 3, 4, 5] * 7, Random(7)

    def others(n: int) -> list[int]:
        return [rng.randrange(6) for _ in range(n)]

    first = [*text, *others(25)]
    second = others(45)
    n = len(first)
    for tokens, spans in (
        (first, [Span(0, n, 0, 0, keep=True)]),
        ([*first, *second], [Span(0, n, 0, 0), Span(n, n + len(second), 1, 1, keep=True)]),
        (said := [*text[:15], *others(60)], [Span(0, len(said), 0, 0, keep=True)]),
        (said := [*text, *others(15)], [Span(0, len(said), 0, 0, keep=True)]),
    ):
        day.submit(Job(array("i", tokens), 4, spans=tuple(spans), on_full="evict", reserve=4))
        day.finish()
    assert all(isinstance(ticket._steps[-1], Done) for ticket in day.tickets)


def test_a_snapshot_of_a_larger_cache_does_not_keep_a_job_waiting(tmp_path: Path) -> None:
    """The same folder serves a cache of more cells: what it saved does not fit, and is computed anew."""
    big = Watch(1, PLAIN, in_folder(DISK, tmp_path))
    big.runtime.n_ctx = 400
    big.scheduler = scheduler_on(big.runtime, tiers=in_folder(DISK, tmp_path))
    spans = (Span(0, 150, 0, 0), Span(150, 200, 1, 1, keep=True))
    tokens = array("i", [at % 7 for at in range(200)])
    big.submit(Job(tokens, 4, spans=spans, on_full="evict"))
    big.finish()
    big.rest()
    big.scheduler.pool.close()
    small = Watch(1, PLAIN, in_folder(DISK, tmp_path))
    assert small.scheduler.pool.snapshots.flush(30)
    assert small.scheduler.pool.snapshots.outlines(), "it is known here"
    small.submit(Job(tokens, 4, spans=spans, on_full="evict"))
    small.finish()
    small.scheduler.pool.close()
    assert isinstance(small.tickets[0]._steps[-1], Done)


@dataclass
class Lonely(Watched):
    """A library that has room for one sequence at a time, whatever it says."""

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if len({chunk.seq for chunk in batch}) > 1:
            self._count()
            return "full"
        return super().decode(batch)


@pytest.mark.parametrize("full_at", [20, 40, 60])
def test_a_library_with_less_room_than_it_says_holds_up_no_job(full_at: int) -> None:
    day = Watch(3, PLAIN, RAM)
    day.runtime.faults.full_at = full_at
    for n in (15, 30, 50, 10):
        day.submit(Job(array("i", range(1, n)), 5))
    day.finish()
    ended = [ticket._error is None for ticket in day.tickets]
    assert ended[0]
    assert ended[3]


def test_a_library_that_takes_one_sequence_at_a_time_answers_all_jobs() -> None:
    day = Watch(3, PLAIN, RAM, runtime=Lonely)
    for n in (15, 30, 50):
        day.submit(Job(array("i", range(1, n)), 5))
    day.finish()
    assert [ticket._error for ticket in day.tickets] == [None] * 3


@dataclass
class Unfinished(Watched):
    """A library that has no room for the last token of an answer beside others."""

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        if len(batch) > 1 and any(END in chunk.tokens for chunk in batch):
            self._count()
            return "full"
        return super().decode(batch)


def test_an_answer_that_is_over_is_not_begun_again() -> None:
    day = Watch(3, PLAIN, RAM, runtime=Unfinished)
    jobs = [Job(array("i", [a, b, 3]), 40) for a in range(6) for b in range(6)]
    by_length = sorted((job for job in jobs if alone(job)[1] == "end"), key=lambda job: len(alone(job)[0]))
    for job in (by_length[-1], by_length[0]):
        day.tickets.append(ticket := Ticket(job, cast(Any, day.loop)))
        day.scheduler.queue.add(ticket)
    day.finish()  # the younger one ends first, and is the weakest when the library has no room
    assert [sum(isinstance(step, Done) for step in ticket._steps) for ticket in day.tickets] == [1, 1]
    assert [list(filter(lambda step: isinstance(step, int), ticket._steps)) for ticket in day.tickets] == [
        alone(ticket.job)[0] for ticket in day.tickets
    ]


def test_idle_work_comes_to_an_end_where_a_rebase_cannot_free_positions() -> None:
    """A cache that is nearly as large as what the model was trained for, full of a conversation with holes."""
    day = Watch(3, SHIFTLESS, RAM)
    tokens = array("i", [at % 7 for at in range(160)])
    spans = (Span(0, 70, 0, 0), Span(70, 158, 1, 1, keep=True), Span(158, 160, 2, 2, keep=True))
    day.scheduler = scheduler_on(day.runtime, tiers=RAM, n_positions=101)
    day.submit(replace(Job(tokens, 5, spans=spans, on_full="evict"), background=False))
    day.finish()
    assert any(any(resident.gaps()) for resident in day.scheduler.pool.ledger)
    day.rest()


# -- planted loops -------------------------------------------------------------------------------------------------


class Hopeful(Scheduler):
    """Restores whatever shares most with the prompt until the cells have it, as the engine once did."""

    def _start(self, task: Task) -> Literal["started", "ended", "held up", "no room"]:
        while True:
            found = self.pool.snapshots.find(task.tokens[:-1], holes=True)  # knows no spans
            match = self.pool.ledger.find(task.tokens, holes=True, spans=task.job.spans)
            if found is None or not found.in_ram or found.match.length - (match.length if match else 0) <= 32:
                return super()._start(task)
            with contextlib.suppress(OperationRefused):
                self.pool.restore(found)


class Insistent(Scheduler):
    """Starts a job again that the library has refused, beside the same others."""

    def step(self) -> None:
        super().step()
        for task in self.waiting:
            task.alone = False


class Silent(Scheduler):
    """Wakes callers with the next decode only, which may never come."""

    def admit(self) -> None:
        self._admit()


class Late(Scheduler):
    """Wakes callers behind the next decode."""

    def step(self) -> None:
        noted, self.queue.notifier._tickets = self.queue.notifier._tickets, {}
        super().step()
        for tickets in noted.values():
            for ticket in tickets:
                self.queue.notifier.add(ticket)
        self.queue.notifier.flush()


class Restless(Pool):
    """Rebases what has holes, whether that helps or not."""

    def rebase_one(self, n_positions: int, is_urgent: Any) -> bool:
        for resident in self.ledger.idle():
            if any(resident.gaps()):
                self._rebase(resident, is_urgent)
                return True
        return False


def test_a_planted_loop_over_snapshots_is_found() -> None:
    def many_days() -> None:
        for seed in range(40):
            Watch(seed, PLAIN, RAM, kind=Hopeful).pass_by(200)

    with pytest.raises(Stuck, match="operations without a decode"):
        many_days()


def test_a_planted_loop_of_refusals_is_found() -> None:
    day = Watch(3, PLAIN, RAM, kind=Insistent, runtime=Lonely)
    for n in (15, 30, 50):
        day.scheduler.queue.add(Ticket(Job(array("i", range(1, n)), 5), cast(Any, SilentLoop())))
    with pytest.raises(Stuck):
        day.finish()


@pytest.mark.parametrize("kind", [Silent, Late])
def test_a_planted_lost_wake_up_is_found(kind: type[Scheduler]) -> None:
    def many_days() -> None:
        for seed in range(40):
            Watch(seed, PLAIN, RAM, kind=kind).pass_by(200)

    with pytest.raises(Stuck, match="not woken"):
        many_days()


def test_planted_idle_work_without_end_is_found() -> None:
    day = Watch(3, SHIFTLESS, RAM)
    day.scheduler.pool = Restless(day.runtime, Tiers(), name="test", on_ready=lambda: None)
    ledger = day.scheduler.pool.ledger
    resident = ledger.new()
    ledger.extend(resident, array("i", range(50)))
    day.watched.n_allowed = 1000
    assert day.runtime.decode([Chunk(resident.id, array("i", range(16)), 0, False)]) == "ok"
    for at in (16, 32, 48):
        chunk = array("i", range(at, min(at + 16, 50)))
        assert day.runtime.decode([Chunk(resident.id, chunk, at, False)]) == "ok"
    day.scheduler.pool.evict(resident, [(10, 20)])
    with pytest.raises(Stuck, match="no end"):
        day.rest()


def test_a_refused_operation_leaves_no_cell_behind_that_the_ledger_does_not_know() -> None:
    """A splice that the memory refuses: the tail that was set aside has been given up, in the runtime too."""

    @dataclass
    class NoCopies(Watched):
        copies: int = 0

        def apply(self, op: Op) -> bool:
            if isinstance(op, Copy):
                self.copies += 1
                if self.copies > 1:
                    return False
            return super().apply(op)

    runtime = NoCopies(model, frozenset({END}), n_ctx=N_CTX, n_seq=6, n_batch=64, memory=PLAIN, n_allowed=1000)
    pool = Pool(runtime, Tiers(), name="test", on_ready=lambda: None)
    resident = pool.ledger.new()
    tokens = array("i", range(60))
    assert runtime.decode([Chunk(resident.id, tokens, 0, False)]) == "ok"
    pool.ledger.extend(resident, tokens)
    tail = Tail(20, 60, 20)
    pool._part(resident, tail, 10)
    with pytest.raises(OperationRefused):
        pool.splice(resident, tail)
    assert list(pool.ledger) == []
    assert runtime.cells == {}
