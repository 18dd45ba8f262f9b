"""One decode: which tokens of which tasks it computes, what the ledger records of it, and the tokens that are drawn.

    running ── compose ──▶ Batch ── Runtime.decode ──▶ record: ledger, checkpoints, tails
                                                          └─▶ draw: sample, post to the ticket

Not here: what happens to a decode that fails or has no cells (`recovery.py`). Engine thread only.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shepherd.core import EngineError
from shepherd.engine import priority
from shepherd.engine.base import Adapters, Chunk, Done, Job, Mask, Prefill, Runtime, Scored
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.pool import OperationRefused, Pool
from shepherd.engine.prefill import SpeedEstimate, share_budget, to_stride
from shepherd.engine.task import Task
from shepherd.engine.task_queue import TaskQueue

logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """What one decode computes."""

    chunks: list[Chunk]
    tasks: list[Task]
    """The task of each chunk."""
    n_tokens: int


@dataclass(frozen=True, slots=True)
class DecodeStep:
    runtime: Runtime
    pool: Pool
    queue: TaskQueue
    name: str
    show: Callable[[int], bytes]
    constrainer: Constrainer | None
    speed: SpeedEstimate = field(default_factory=SpeedEstimate)
    served: list[Adapters] = field(default_factory=list)
    """The sets of adapters of the running tasks, the one that was computed last at the end."""

    def compose(self) -> Batch:
        """The next decode: one token of every answer, and as much of the prompts as `speed` and the cells allow, or
        prompts alone; where tasks have different adapters, of those tasks alone that have the set whose turn it is.

        There must be a free cell for every running task (`Recovery.ensure_cells`).
        """
        chunks: list[Chunk] = []
        tasks: list[Task] = []
        prompts: dict[int, Task] = {}
        running, ledger = self.queue.running, self.pool.ledger
        adapters = self._next_adapters()
        for task in running:
            resident = task.cells
            if task.job.owner.adapters != adapters:
                continue
            if task.phase == "prefill":
                prompts[resident.id] = task
            else:
                token = task.tokens[-1:]
                chunks.append(Chunk(resident.id, token, resident.end, task.phase == "generate", adapters=adapters))
                tasks.append(task)
        n_answers = len(chunks)
        if not prompts:
            return Batch(chunks, tasks, n_answers)
        images: dict[int, Task] = {}
        for seq, task in list(priority.prefill_first(prompts).items()):
            if (media := task.next_media) is not None:
                images[seq] = prompts.pop(seq)
                # One image a decode: answers wait for one at a time, and it cannot be computed in parts.
                if len(images) == 1:
                    tokens, end = self._tokens(task, media.n_tokens), task.cells.end
                    chunks.append(Chunk(seq, tokens, end, False, media=media, adapters=adapters))
                    tasks.append(task)
        n_image = len(chunks[-1].tokens) if images else 0
        if not prompts:
            return Batch(chunks, tasks, n_answers + n_image)
        first = priority.prefill_first(prompts)
        demands = {seq: task.n_todo for seq, task in first.items()}
        n_todo = sum(demands.values())
        # Answers with other adapters wait for this decode, too.
        n_waiting = sum(task.phase == "generate" for task in running) if len(self.served) > 1 else n_answers
        budget = self.speed.budget(n_prompts=len(prompts), n_todo=n_todo, n_running=n_waiting)
        n_free = ledger.free - n_answers - n_image
        if n_answers and budget < n_todo <= n_free and not images and self._answers_stand([*first.values()], n_todo):
            n_answers = 0
            chunks.clear()
            tasks.clear()
            budget = self.speed.piece(min(demands.values()))
        budget = min(budget, self.runtime.n_batch - n_answers, n_free)
        if self.runtime.pays_for_idle:
            budget = to_stride(budget, n_todo, ledger.used + n_answers + n_image)
        n_spare = self.runtime.n_outputs - len(running)
        for seq, n in share_budget(demands, budget).items():
            task = prompts[seq]
            resident = task.cells
            start, stop = task.todo[0]
            stop = min(stop, start + (min(n, n_spare + 1) if task.scores_prompt else n), self._end_of_piece(start))
            n_spare -= stop - start - 1 if task.scores_prompt else 0
            wants_logits = stop == len(task.tokens)
            tokens = self._tokens(task, stop - start)
            chunks.append(Chunk(seq, tokens, resident.end, wants_logits, task.scores_prompt, adapters=adapters))
            tasks.append(task)
        return Batch(chunks, tasks, sum(len(chunk.tokens) for chunk in chunks))

    def _end_of_piece(self, start: int) -> int:
        """How far one decode may go that begins at this token of a prompt. A decode has room for a piece: no other task
        runs beside one whose answer is repeatable, and a batch is no smaller (`Memory.piece`)."""
        piece = self.pool.ledger.memory.piece
        return start - start % piece + piece if piece else start + self.runtime.n_batch

    def _answers_stand(self, prompts: Sequence[Task], n_todo: int) -> bool:
        """Whether the running answers wait until these prompts, of so many tokens to compute, are read (`prefill`)."""
        answers = [task for task in self.queue.running if task.phase != "prefill"]
        have_begun = all(task.phase == "generate" and task.n_generated == 1 for task in answers)
        if not have_begun or priority.is_background(prompts[0]):
            return False
        standing_s = time.perf_counter() - min(task.first_s for task in answers)
        return self.speed.is_soon(n_todo, n_prompts=len(prompts), standing_s=standing_s)

    def _tokens(self, task: Task, n: int) -> array[int]:
        """The next `n` tokens of a prompt; those before them that have left are recorded."""
        start, resident = task.todo[0][0], task.cells
        if start > len(resident):
            self.pool.ledger.skip(resident, task.tokens[len(resident) : start])
        return task.tokens[start : start + n]

    def _next_adapters(self) -> Adapters:
        """The set of the next decode: those that running tasks have take turns, and a new one waits for its first."""
        wanted = dict.fromkeys(task.job.owner.adapters for task in self.queue.running)
        first, *others = dict.fromkeys((*(each for each in self.served if each in wanted), *wanted))
        self.served[:] = [*others, first]
        return first

    def record(self, batch: Batch, seconds: float) -> None:
        pool = self.pool
        n_prompt = 0
        for index, (chunk, task) in enumerate(zip(batch.chunks, batch.tasks, strict=True)):
            resident = task.cells
            n = len(chunk.tokens)
            pool.ledger.extend(resident, chunk.tokens)
            task.advance(n)
            if task.phase == "generate":
                self._draw(task, index)
                continue
            if task.phase == "prefill":
                n_prompt += n
                self._record_prefill(task, resident, n)
                if chunk.each:
                    task.score_prompt(self.runtime, index)
            if task.phase == "closing":
                # The end tag is in the cache too, so that the next prompt extends it (K1).
                tag = self.show(task.tokens[-1]).decode("utf-8", "replace")
                logger.debug("Added closing tag to KV cache: %s", tag)
                self.queue.end(task)
            elif chunk.logits or (chunk.media is not None and not task.todo):  # only evictions end in an image
                self._draw(task, index)
        totals = pool.totals
        prefill_s = seconds * n_prompt / batch.n_tokens
        totals.decodes += 1
        totals.decoded_chunks += len(batch.chunks)
        totals.prefill_s += prefill_s
        totals.generate_s += seconds - prefill_s
        self.speed.observe(seconds, n_prompt=n_prompt, n_running=batch.n_tokens - n_prompt)
        pool.token_s = self.speed.token_s

    def _record_prefill(self, task: Task, resident: Resident, n: int) -> None:
        task.n_done += n
        self.pool.totals.prefilled_tokens += n
        if task.tail is not None and len(resident) == task.tail.at:
            tail, task.tail = task.tail, None
            try:
                self.pool.splice(resident, tail)
            except OperationRefused:
                self.queue.requeue(task, is_broken=True)
                return
        if task.todo and len(resident) in task.marks:
            self.pool.checkpoints.save(resident)
        if n < task.n_new:
            task.ticket.post(Prefill(task.n_done, task.n_new))
            self.queue.notifier.add(task.ticket)
        if not task.todo:
            seconds = time.perf_counter() - task.started_s
            rate = task.n_new / seconds if seconds > 0 else 0.0
            logger.debug("Prompt processing: %d tokens in %.3f s (%.1f tokens/s)", task.n_new, seconds, rate)

    def _draw(self, task: Task, index: int) -> None:
        """Draw the next token of one answer. It is posted before the next decode: the event loop works meanwhile."""
        job = task.job
        if not job.max_tokens:  # it only evicts turns, and they have left
            self.queue.end(task, Done("length"))
            return
        task.phase = "generate"
        try:
            if task.sampler is None:
                # It stays with the task until that is over, wherever it is computed: its grammar has seen each token.
                task.sampler = self.runtime.sampler(job.sampling, job.tokens, self._mask(job))
                task.first_s = time.perf_counter()
            drawn: int | Scored
            if job.scores is None:
                drawn = token = task.sampler.sample(index)
            elif job.scores_drawn:
                drawn = task.sampler.sample_scored(index, job.scores)
                token = drawn.token
            else:
                score = self.runtime.scorer(index, job.scores)
                token = task.sampler.sample(index)
                drawn = score(token)
        except EngineError as error:  # of this job alone: what has been computed is right
            logger.warning("a job failed on cache %r: %s", self.name, error)
            self.queue.end(task, error)
            return
        self.queue.notifier.add(task.ticket)
        # Under a grammar even a job without an end is over when nothing but the end may come.
        if self.runtime.is_end(token) and not (job.sampling.ignore_eos and job.grammar is None):
            task.last = Done("end", token)
            task.phase = "closing"
            task.add(token)
            return
        task.n_generated += 1
        self.pool.totals.generated_tokens += 1
        task.ticket.post(drawn)
        if task.n_left == 0:
            self.queue.end(task, Done("length"))
        else:
            task.add(token)

    def _mask(self, job: Job) -> Mask | None:
        if job.grammar is None:
            return None
        if self.constrainer is None:
            raise EngineError(f"cache {self.name!r} cannot constrain answers to a grammar")
        return self.constrainer.mask(job.grammar, job.written, n_tokens=job.max_tokens)
