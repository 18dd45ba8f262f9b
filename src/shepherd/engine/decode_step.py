"""One decode: which tokens of which tasks it computes, what the ledger records of it, and the tokens that are drawn.

    running ── compose ──▶ Batch ── Runtime.decode ──▶ record: ledger, checkpoints, tails
                                                          └─▶ draw: sample, post to the ticket

An answer's part of a decode is its newest token, and behind that what was drafted. The sampler draws row by row:

    computed   t | d1 d2 d3 d4        behind t it draws d1: accepted; behind d1 it draws d2: accepted;
    drawn        | d1 d2 x            behind d2 it draws x: d3 and d4 are refused, and leave the cells at once

So each token is drawn from what it would have been drawn from without drafts, with its history and its grammar. Only
what was drawn is ever in the ledger.

Engine thread only.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shepherd.core import EngineError
from shepherd.core.dataclasses import dataclass, field
from shepherd.engine import priority
from shepherd.engine.base import Adapters, Chunk, Done, Job, Mask, Prefill, Runtime, Scored
from shepherd.engine.drafting import Drafting
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
    n_drafted: int = 0
    """Those of them that are drafts."""

    def without_drafts(self) -> Batch:
        chunks = [
            chunk._replace(tokens=chunk.tokens[:1], each=False) if task.phase == "generate" else chunk
            for chunk, task in zip(self.chunks, self.tasks, strict=True)
        ]
        return Batch(chunks, self.tasks, self.n_tokens - self.n_drafted)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    runtime: Runtime
    pool: Pool
    queue: TaskQueue
    name: str
    show: Callable[[int], bytes]
    constrainer: Constrainer | None
    drafting: Drafting
    speed: SpeedEstimate = field(default_factory=SpeedEstimate)
    served: list[Adapters] = field(default_factory=list)
    """The sets of adapters of the running tasks, the one that was computed last at the end."""

    def compose(self) -> Batch:
        """The next decode: one token of every answer, and as much of the prompts as `speed` and the cells allow, or
        prompts alone; without prompts, what is drafted of the answers. Where tasks have different adapters, it has
        those alone that have the set whose turn it is.

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
            return self._with_drafts(Batch(chunks, tasks, n_answers))
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

    def _with_drafts(self, batch: Batch) -> Batch:
        n_drafted = 0
        for at, draft in enumerate(self.drafting.drafts(batch.tasks)):
            if draft:
                chunk = batch.chunks[at]
                batch.chunks[at] = chunk._replace(tokens=chunk.tokens + draft, each=True)
                n_drafted += len(draft)
        return batch._replace(n_tokens=batch.n_tokens + n_drafted, n_drafted=n_drafted)

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
        draft_cost = 0.0
        has_drafts = any(task.speculation for task in batch.tasks)
        if has_drafts and all(task.phase != "prefill" for task in batch.tasks):
            draft_cost = self.drafting.speculator.observe(batch.n_tokens, batch.n_drafted, seconds, self.speed.token_s)
        for index, (chunk, task) in enumerate(zip(batch.chunks, batch.tasks, strict=True)):
            resident = task.cells
            n = len(chunk.tokens)
            if task.phase == "generate":
                self._go_on(task, index, chunk, draft_cost)
                continue
            pool.ledger.extend(resident, chunk.tokens)
            task.advance(n)
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
                self._begin(task, index)
        totals = pool.totals
        prefill_s = seconds * n_prompt / batch.n_tokens
        totals.decodes += 1
        totals.decoded_chunks += len(batch.chunks)
        totals.prefill_s += prefill_s
        totals.generate_s += seconds - prefill_s
        if not batch.n_drafted:
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

    def _begin(self, task: Task, index: int) -> None:
        """The prompt of a task is computed: draw the first token of its answer."""
        if not task.job.max_tokens:  # it only evicts turns, and they have left
            self.queue.end(task, Done("length"))
            return
        task.phase = "generate"
        drawn, error = self._draw(task, index)
        self._answer(task, drawn, error)

    def _go_on(self, task: Task, index: int, chunk: Chunk, draft_cost: float) -> None:
        """Draw what follows the newest token of an answer, and keep of the draft behind it what was drawn, too."""
        draft, resident, speculation = chunk.tokens[1:], task.cells, task.speculation
        drawn, error = self._draw(task, index, draft)
        n_rows = len(drawn) + (error is not None)
        task.advance(1)
        try:
            self.pool.extend(resident, chunk.tokens, n_rows)
        except OperationRefused:
            task.resident = None
            if speculation is not None:
                speculation.most = 0
        if speculation is not None:
            self.pool.totals.drafted_tokens += len(draft)
            self.pool.totals.accepted_tokens += n_rows - 1
            speculation.settle(len(draft), n_rows - 1, draft_cost * len(draft))
        self._answer(task, drawn, error)
        if task.resident is not None or task not in self.queue.running:
            return
        if task.phase == "closing":  # there is no cache that its last token could be put into
            self.queue.end(task)
        else:
            self.queue.requeue(task, is_broken=True)

    def _draw(self, task: Task, index: int, draft: Sequence[int] = ()) -> tuple[list[int | Scored], EngineError | None]:
        """Draw one token behind each token of a chunk, up to the first that is not the next of the draft; and what has
        ended this, if that is a failure of this job alone."""
        job, drawn = task.job, list[int | Scored]()
        try:
            if task.sampler is None:
                # It stays with the task until that is over, wherever it is computed: its grammar has seen each token.
                task.sampler = self.runtime.sampler(job.sampling, job.tokens, self._mask(job))
                task.first_s = time.perf_counter()
            for row, expected in enumerate([*draft, None]):
                behind = len(draft) - row
                if job.scores is None:
                    drawn.append(token := task.sampler.sample(index, behind))
                elif job.scores_drawn:
                    drawn.append(scored := task.sampler.sample_scored(index, job.scores, behind))
                    token = scored.token
                else:
                    score = self.runtime.scorer(index, job.scores, behind)
                    drawn.append(score(token := task.sampler.sample(index, behind)))
                if token != expected:  # none of a draft ends the answer
                    break
        except EngineError as error:
            return drawn, error
        return drawn, None

    def _answer(self, task: Task, drawn: Sequence[int | Scored], error: EngineError | None) -> None:
        """Post the tokens of an answer, of which the last one is to be computed next. They are posted before the next
        decode: the event loop works meanwhile."""
        tokens = [each if isinstance(each, int) else each.token for each in drawn]
        is_over = error is None and self._ends(task.job, tokens[-1])
        posted = drawn[: len(drawn) - is_over]
        task.n_generated += len(posted)
        self.pool.totals.generated_tokens += len(posted)
        for each in posted:
            task.ticket.post(each)
        self.queue.notifier.add(task.ticket)
        if task.speculation is not None:
            task.speculation.extend(tokens)
        if error is not None:  # of this job alone: what has been computed is right
            logger.warning("a job failed on cache %r: %s", self.name, error)
            self.queue.end(task, error)
            return
        task.tokens.extend(tokens[:-1])  # they are computed already
        if is_over:
            task.last = Done("end", tokens[-1])
            task.phase = "closing"
        elif task.n_left == 0:
            self.queue.end(task, Done("length"))
            return
        task.add(tokens[-1])

    def _ends(self, job: Job, token: int) -> bool:
        # Under a grammar even a job without an end is over when nothing but the end may come.
        return self.runtime.is_end(token) and not (job.sampling.ignore_eos and job.grammar is None)

    def _mask(self, job: Job) -> Mask | None:
        if job.grammar is None:
            return None
        if self.constrainer is None:
            raise EngineError(f"cache {self.name!r} cannot constrain answers to a grammar")
        return self.constrainer.mask(job.grammar, job.written, n_tokens=job.max_tokens)
