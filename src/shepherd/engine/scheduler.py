"""The work of one cache: jobs that wait, jobs that run, and one decode at a time over all that run. No thread here.

    waiting ── admit: plan, pool ──▶ running ── step: scheduler, decode, sample ──▶ idle sequences
       ▲                                │
       └────── put aside when cells run out

A job needs its prompt and its reserve to start. Jobs that run out of cells push the youngest ones aside, into the
tiers, and those go on later: one that fills the pool never harms the others. A failed computation fails one job only:
everybody else starts again from the tokens they had.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shepherd.core import EngineError, Evicted, ShepherdError
from shepherd.engine import decision_log, priority
from shepherd.engine.admission import Admission, Begun
from shepherd.engine.base import Admitted, Chunk, Done, Job, Mask, Prefill, Remove, Runtime
from shepherd.engine.counters import Tally
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.ledger import Leaving, LedgerError, NoRoom, Resident, usable
from shepherd.engine.kv.plan import Limits, Plan, checkpoints, leave, remaining
from shepherd.engine.kv.pool import Pool, Refused, Tiers
from shepherd.engine.prefill import Demand, Pace, share
from shepherd.engine.stats import CacheStats
from shepherd.engine.task import Task
from shepherd.engine.ticket import Post, Ticket
from shepherd.engine.watchdog import STALL_S, Pulse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How one cache works."""

    sequences: int = 4
    """Jobs computed side by side."""
    queue: int = 64
    """Jobs that may wait; further ones are refused."""
    low_water: float = 0.75
    """Share of the context that is left filled after an eviction."""
    n_positions: int | None = None
    """Positions that may be used before a rebase; None = what the model was trained for."""
    reuse_tail: bool = False
    """Keep what stands behind an edit, although it was computed with the old text in view."""
    tiers: Tiers = field(default_factory=Tiers)
    stall_s: float = STALL_S
    """Without progress while work waits, until the cache counts as stalled; see `watchdog`."""


class Work:
    """All jobs of one cache. One thread at a time; `sole` may be read by others."""

    def __init__(
        self,
        runtime: Runtime,
        options: EngineOptions,
        *,
        name: str,
        show: Callable[[int], bytes],
        is_urgent: Callable[[], bool],
        on_ready: Callable[[], None],
        constrainer: Constrainer | None = None,
    ) -> None:
        """`is_urgent` says whether idle work must stop; `on_ready` is called when a snapshot has come from disk.

        Without a `constrainer` jobs that have a grammar fail.
        """
        self.waiting: deque[Task] = deque()
        self.running: list[Task] = []
        """In order of admission."""
        self.sole: Ticket | None = None
        """The only running ticket: a decode may be interrupted for it."""
        self.job_s = 0.0
        """What a job takes, on average."""
        self.pool = Pool(runtime, options.tiers, name=name, on_ready=on_ready)
        self._name = name
        self._options = options
        self._n_ctx = runtime.n_ctx
        self._runtime = runtime
        self._ledger = self.pool.ledger
        self._show = show
        self._is_urgent = is_urgent
        self._constrainer = constrainer
        trained = options.n_positions or runtime.memory.n_positions
        # More context than positions is the user's decision: there is nothing to rebase into then.
        self._limits = Limits(runtime.n_ctx, options.low_water, trained if trained > runtime.n_ctx else 0)
        self._admission = Admission(self.pool, self._limits, name=name, reuse_tail=options.reuse_tail, show=show)
        self._pace = Pace()
        self._post = Post()
        self.tally = Tally()
        self.pulse = Pulse()

    # -- coming and going ----------------------------------------------------------------------------------------------

    def add(self, ticket: Ticket) -> None:
        """A new job."""
        self.waiting.append(Task(ticket, ticket.job.tokens[:]))

    def withdraw(self, ticket: Ticket) -> None:
        """A job was cancelled; if it waits it is gone now, and `step` looks after running ones."""
        for task in self.waiting:
            if task.ticket is ticket:
                self.waiting.remove(task)
                self._finish(task, Done("cancelled"))
                self._post.flush()
                return

    def end_all(self, error: EngineError | None = None) -> None:
        """Every job is over: cancelled, or failed with `error`."""
        for task in [*self.running, *self.waiting]:
            if not task.ticket.finished:
                if error is None:
                    task.ticket.post(Done("cancelled"))
                else:
                    task.ticket.fail(error)
            self._finish(task)
            if task.resident is not None:
                task.resident.live = False
        self.running.clear()
        self.waiting.clear()
        self._post.flush()

    def clear(self) -> None:
        """Forget every idle conversation, the saved ones too."""
        logger.info("cache %r is cleared: %d conversations are forgotten", self._name, len(self._ledger.idle()))
        for resident in self._ledger.idle():
            self.pool.apply(self._ledger.forget(resident))
        self.pool.snapshots.clear()

    # -- in the quiet --------------------------------------------------------------------------------------------------

    def idle(self) -> bool:
        """One piece of idle work: positions that run out, then what is not on disk yet; whether there was any."""
        self.pulse.begin("using the quiet to rebase and to save", None if self._pace.token_s == 0.0 else 0.0)
        return self.pool.rebase_one(self._limits.n_positions, self._is_urgent) or self.pool.save_one()

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Start waiting jobs, in order of arrival, as long as there is room."""
        self._admit()
        self._post.flush()  # those that have ended too: nothing may run now, and the thread then waits for mail

    def _admit(self) -> None:
        if any(task.phase == "closing" for task in self.running):
            return  # its last token is one decode away, and the next turn of that conversation needs it
        for task in priority.in_order(self.waiting):
            has_turn = priority.has_turn(task, self.running, self._options.sequences) or self._yields(task)
            if not has_turn or (task.alone and self.running):
                return
            verdict = self._start(task)
            while verdict == "no room" and self._yields(task):
                verdict = self._start(task)
            if verdict == "no room":
                return  # nobody overtakes: a large prompt would wait for ever
            if verdict != "held up":
                self.waiting.remove(task)

    def _yields(self, task: Task) -> bool:
        """Put a side task aside for `task`, if there is one; it goes on from what it has, unless that is needed."""
        if (side := priority.makes_way(task, self.running)) is None:
            return False
        logger.info("a background job on cache %r waits for a conversation", self._name)
        self._settle(side.cells)
        self._try_again(side)
        self.tally.preemptions += 1
        return True

    def _start(self, task: Task) -> Literal["started", "ended", "held up", "no room"]:
        """Start one job if it can be."""
        if task.ticket.cancelled:
            self._finish(task, Done("cancelled"))
            return "ended"
        self.pulse.begin(f"planning a prompt of {len(task.tokens)} tokens")
        match self._admission.start(task, self.running):
            case Begun(resident, planned, seconds):
                self._begin(task, resident, planned, seconds)
                return "started"
            case ShepherdError() as error:
                task.ticket.fail(error)
                self._finish(task)
                return "ended"
            case Done() as done:
                self._finish(task, done)
                return "ended"
            case waits:
                return waits

    def _begin(self, task: Task, resident: Resident, planned: Plan, seconds: float) -> None:
        task.resident, resident.background = resident, task.job.background
        resident.spans, resident.session, resident.n_prompt = task.job.spans, task.job.session, len(task.job.tokens)
        task.compute(planned.todo, checkpoints(self._ledger.memory, task.job, planned))
        task.tail = planned.tail if resident.id in self.pool.parked else None
        task.phase = "prefill"
        task.n_done, task.n_new, task.n_cached = 0, planned.n_new, planned.n_cached
        self.running.append(task)
        if not task.admitted:
            task.admitted = True
            self.pulse.beat()
            task.started_s = time.perf_counter()
            self.tally.jobs += 1
            self.tally.cached_tokens += planned.n_cached
            task.ticket.post(Admitted(planned.n_cached, planned.n_new))
        if planned.leaving:
            self._evicted(task, planned.leaving, planned.n_cached + planned.n_new, seconds)
        self._post.add(task.ticket)
        self.pool.tidy()

    def _evicted(self, task: Task, leaving: Sequence[Leaving], n_kept: int, seconds: float) -> None:
        messages, tokens = sum(turn.messages for turn in leaving), sum(turn.tokens for turn in leaving)
        self.tally.evicted(messages, tokens, seconds)
        decision_log.tell_eviction(leaving, n_kept)
        gone = tuple(index for turn in leaving for index in turn.gone)
        task.ticket.post(Evicted(messages, tokens, gone))

    # -- computing -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One decode over all running jobs, and what follows from it."""
        self._runtime.interrupt(False)
        self.sole = self.running[0].ticket if len(self.running) == 1 else None
        for task in list(self.running):
            if task.ticket.cancelled and task.phase != "closing":
                self._end(task, Done("cancelled"))
            elif self._limits.n_positions and task.cells.end >= self._limits.n_positions:
                if task.phase == "closing":
                    self._retire(task)
                else:
                    self._start_over(task, ())
        batch, owners = self._compose()
        if not batch:
            self._post.flush()
            return
        n = sum(len(chunk.tokens) for chunk in batch)
        self.pulse.begin(f"decoding {n} tokens of {len(owners)} sequences", self._pace.expected_s(n))
        begun = time.perf_counter()
        try:
            decoded = self._runtime.decode(batch)
        except EngineError as error:
            self._recover(error)
            return
        if decoded != "full":
            self.pulse.beat()
        if decoded == "ok":
            self._take(batch, owners, time.perf_counter() - begun)
        elif decoded == "aborted":
            self._resume(batch, owners)
        else:
            self._refused(batch)
        self._post.flush()

    def _compose(self) -> tuple[list[Chunk], list[Task]]:
        """The next decode: one token of every answer, and as much of the prompts as `Pace` and the cells allow."""
        batch: list[Chunk] = []
        owners: list[Task] = []
        if not self._has_cells():
            return batch, owners
        prompts: dict[int, Task] = {}
        for task in self.running:
            resident = task.cells
            if task.phase == "prefill":
                prompts[resident.id] = task
            else:
                token = task.tokens[task.todo[0][0] :]
                batch.append(Chunk(resident.id, token, resident.end, task.phase == "generate"))
                owners.append(task)
        n_answers = len(batch)
        budget = self._pace.budget(n_prompts=len(prompts), n_running=n_answers)
        budget = min(budget, self._runtime.n_batch - n_answers, self._ledger.free - n_answers)
        demands = [Demand(seq, task.n_todo) for seq, task in priority.read_first(prompts).items()]
        n_spare = self._runtime.n_outputs - len(self.running)
        for seq, n in share(demands, budget).items():
            task = prompts[seq]
            resident = task.cells
            start, stop = task.todo[0]
            stop = min(stop, start + (min(n, n_spare + 1) if task.reads else n))
            n_spare -= stop - start - 1 if task.reads else 0
            if start > len(resident):
                self._ledger.skip(resident, task.tokens[len(resident) : start])
            batch.append(Chunk(seq, task.tokens[start:stop], resident.end, stop == len(task.tokens), task.reads))
            owners.append(task)
        return batch, owners

    def _take(self, batch: Sequence[Chunk], owners: Sequence[Task], seconds: float) -> None:
        """The decode went well: record it, and draw the next tokens."""
        n_prompt = n_answers = 0
        for index, (chunk, task) in enumerate(zip(batch, owners, strict=True)):
            resident = task.cells
            n = len(chunk.tokens)
            self._ledger.extend(resident, chunk.tokens)
            task.advance(n)
            if task.phase == "prefill":
                n_prompt += n
                self._prefilled(task, resident, n)
                if chunk.each:
                    task.read_on(self._runtime, index)
            else:
                n_answers += 1
            if task.phase == "closing":
                # The end tag is in the cache too, so that the next prompt extends it (K1).
                tag = self._show(task.tokens[-1]).decode("utf-8", "replace")
                logger.debug("Added closing tag to KV cache: %s", tag)
                self._retire(task)
            elif chunk.logits:
                self._draw(task, index)
        self._pace.observe(seconds, n_prompt=n_prompt, n_running=n_answers)
        self.pool.token_s = self._pace.token_s

    def _prefilled(self, task: Task, resident: Resident, n: int) -> None:
        task.n_done += n
        self.tally.prefilled_tokens += n
        if task.tail is not None and len(resident) == task.tail.at:
            tail, task.tail = task.tail, None
            try:
                self.pool.splice(resident, tail)
            except Refused:
                self._try_again(task, is_broken=True)
                return
        if task.todo and self._ledger.memory.checkpoint:
            self.pool.checkpoint(resident)
        if n < task.n_new:
            task.ticket.post(Prefill(task.n_done, task.n_new))
            self._post.add(task.ticket)
        if not task.todo:
            seconds = time.perf_counter() - task.started_s
            rate = task.n_new / seconds if seconds > 0 else 0.0
            logger.debug("Prompt processing: %d tokens in %.3f s (%.1f tokens/s)", task.n_new, seconds, rate)

    def _draw(self, task: Task, index: int) -> None:
        """The next token of one answer, posted before the next decode: the event loop works while the library does."""
        job = task.job
        task.phase = "generate"
        try:
            if task.sampler is None:
                # It stays with the task until that is over, wherever it is computed: its grammar has seen each token.
                task.sampler = self._runtime.sampler(job.sampling, job.tokens, self._mask(job))
                task.first_s = time.perf_counter()
            score = None if job.scores is None else self._runtime.scorer(index, job.scores)
            token = task.sampler.sample(index)
        except EngineError as error:  # of this job alone: what has been computed is right
            logger.warning("a job failed on cache %r: %s", self._name, error)
            task.ticket.fail(error)
            self._retire(task)
            return
        self._post.add(task.ticket)
        # Under a grammar even a job without an end is over when nothing but the end may come.
        if self._runtime.is_end(token) and not (job.sampling.ignore_eos and job.grammar is None):
            task.ticket.post(Done("end", token))
            task.phase = "closing"
            task.add(token)
            return
        task.n_generated += 1
        self.tally.generated_tokens += 1
        task.ticket.post(token if score is None else score(token))
        if task.n_left == 0:
            self._end(task, Done("length"))
        else:
            task.add(token)

    def _mask(self, job: Job) -> Mask | None:
        if job.grammar is None:
            return None
        if self._constrainer is None:
            raise EngineError(f"cache {self._name!r} cannot constrain what its model says")
        return self._constrainer.mask(job.grammar, job.written)

    # -- running out of room -------------------------------------------------------------------------------------------

    def _has_cells(self) -> bool:
        """Make sure that the next decode has a cell for every running job. False: somebody's todo has changed."""
        while self.running:
            n = len(self.running)
            if self._ledger.free >= n or self.pool.make_room(n, background=priority.are_sides(self.running)):
                return True
            youngest = priority.weakest(self.running)
            if n == 1 and youngest.phase != "closing":
                self._shrink(youngest)
                if self.running and self._ledger.free < 1:
                    self._end(youngest, Done("length"))
            else:
                self._put_aside(youngest)
        return False

    def _put_aside(self, task: Task) -> None:
        """Make a job wait until older ones have ended. It goes on where it was: nobody sees more than a pause.

        One whose answer is over has ended; the end tag is then not in the cache.
        """
        if task.phase == "closing":
            self._retire(task)
            return
        resident = task.cells
        logger.info("cache %r is full: a job of %d tokens waits for older ones", self._name, len(task.tokens))
        resident.live = False
        self.pool.park(resident)
        self._try_again(task)
        self.tally.preemptions += 1

    def _shrink(self, task: Task) -> None:
        """A job that is alone fills the whole context: its oldest turns leave, or its answer ends."""
        resident = task.cells
        begun = time.perf_counter()
        chosen: list[Leaving] | NoRoom = NoRoom(1, 0)
        if task.job.on_full == "evict":
            wish = self._n_ctx - self._limits.n_low
            chosen = leave(task.job.spans, list(resident.gaps()), excess=1, wish=wish)
        if isinstance(chosen, NoRoom):
            self._end(task, Done("length"))
            return
        ranges = [range_ for turn in chosen for range_ in turn.ranges]
        if self._ledger.memory.hole:
            try:
                self.pool.evict(resident, ranges)
            except Refused:
                self._try_again(task, is_broken=True)
                return
        else:
            self._start_over(task, ranges)
        self._evicted(task, chosen, resident.n_resident, time.perf_counter() - begun)

    def _start_over(self, task: Task, leaves: Sequence[tuple[int, int]]) -> None:
        """Rebase in the middle of a job: everything that stays is at the first positions again, and it goes on."""
        resident = task.cells
        ledger, memory = self._ledger, self._ledger.memory
        gaps = [*resident.gaps(), *leaves]
        if not gaps:
            self._end(task, Done("length"))  # every position is taken by a token that stays
            return
        first = min(start for start, _ in gaps)
        if not leaves and memory.shift and not ledger.is_shared(resident, resident.position_of(first)):
            try:
                self.pool.close_gaps(resident)
            except Refused:
                self._try_again(task, is_broken=True)
            return
        logger.info("Computing %d tokens anew at the first positions", resident.n_resident)
        self.pool.give_up_tail(resident)
        task.tail = None
        n_computed = len(resident)
        reach = usable(resident, first, memory, holes=True).length
        try:
            if reach:
                self.pool.rewind(resident, reach)
            else:
                self.pool.apply(ledger.restart(resident))
        except Refused:
            resident = task.resident = ledger.new()
            resident.live = True
        self.pool.counts.rebases += 1
        without = [gap for gap in gaps if gap[0] < n_computed]
        task.compute(remaining(len(resident), len(task.tokens), without))
        task.phase = "prefill"
        task.n_done, task.n_new = 0, task.n_todo

    def _try_again(self, task: Task, *, is_broken: bool = False) -> None:
        """Let a job begin again whose sequence is gone: it keeps the tokens that it has."""
        self.running.remove(task)
        task.n_broken += is_broken
        task.resident, task.phase = None, "waiting"
        task.todo.clear()
        self.waiting.appendleft(task)

    # -- when things go wrong ------------------------------------------------------------------------------------------

    def _resume(self, batch: Sequence[Chunk], owners: Sequence[Task]) -> None:
        """A decode was interrupted: follow what the library really holds; jobs that nobody cancelled go on."""
        self._runtime.interrupt(False)
        for chunk, task in zip(batch, owners, strict=True):
            resident = task.cells
            held = self._runtime.held(chunk.seq)[1] + 1
            n = max(0, min(held - chunk.position, len(chunk.tokens)))
            if lost := n if chunk.each else n == len(chunk.tokens) and chunk.logits:
                # Its logits are gone with the abort: the last token is computed again.
                n -= lost
                if not self._runtime.apply(Remove(chunk.seq, chunk.position + n)):
                    self._recover(EngineError("a decode was interrupted by a job that had ended"))
                    return
            if n:
                self._ledger.extend(resident, chunk.tokens[:n])
                task.advance(n)
                task.n_done += n

    def _refused(self, batch: Sequence[Chunk]) -> None:
        """The library has no room although the ledger counts some: give it all that idles, then the youngest job's."""
        idle = self._ledger.idle()
        for resident in idle:
            self.pool.drop(resident)
        if idle:
            return
        if len(self.running) > 1:
            weakest = priority.weakest(self.running)
            weakest.alone = True  # beside others it would be refused again, and they with it
            self._put_aside(weakest)
            return
        n = sum(len(chunk.tokens) for chunk in batch)
        self._recover(EngineError(f"the KV cache has no room for {n} tokens at position {batch[0].position}"))

    def _recover(self, error: EngineError) -> None:
        """A computation failed: no cell can be believed. A job that was alone fails, others begin again."""
        logger.warning("a job failed on cache %r, which was cleared: %s", self._name, error)
        self.pool.forget_all()
        was_alone = len(self.running) == 1
        for task in reversed(list(self.running)):
            if task.phase != "closing" and not was_alone:
                task.alone = True
                self._try_again(task)
                continue
            if task.phase != "closing":
                task.ticket.fail(error)
            self.running.remove(task)
            self._finish(task)
        self._post.flush()

    # -- the end of a job ----------------------------------------------------------------------------------------------

    def _end(self, task: Task, done: Done) -> None:
        task.ticket.post(done)
        self._retire(task)

    def _retire(self, task: Task) -> None:
        """A running job is over: its sequence idles."""
        self.running.remove(task)
        resident = task.resident
        self._finish(task)
        if resident is None:
            return
        self._settle(resident)
        self.tally.retired(task, resident)
        self.job_s = 0.8 * self.job_s + 0.2 * (time.perf_counter() - task.started_s)

    def _settle(self, resident: Resident) -> None:
        try:
            self.pool.settle(resident)
        except LedgerError as error:
            logger.warning("a conversation was dropped from cache %r: %s", self._name, error)

    def _finish(self, task: Task, done: Done | None = None) -> None:
        """Let go of a job that runs no more."""
        self.pulse.beat()
        if done is not None:
            task.ticket.post(done)
        self._post.add(task.ticket)
        if task.sampler is not None:
            task.sampler.close()
            task.sampler = None

    def describe(self) -> str:
        """What runs and what waits, in numbers; any thread, for the log of a thread that has stalled."""
        running = [
            f"{task.phase} of {len(task.tokens)} tokens, {task.n_todo} to compute, {task.n_left} to generate"
            for task in list(self.running)
        ]
        waiting = [
            f"{len(task.tokens)} tokens{', put aside' if task.admitted else ''}{', alone' if task.alone else ''}"
            for task in list(self.waiting)
        ]
        return (
            f"{self._ledger.free} of {self._n_ctx} cells are free; running: {'; '.join(running) or 'none'}; "
            f"waiting: {'; '.join(waiting) or 'none'}"
        )

    def stats(self) -> CacheStats:
        """A snapshot for displays."""
        return self.tally.stats(self.pool, self.running, n_waiting=len(self.waiting))
