"""The state of one job in the engine: what it still has to compute, and what it has done. Engine thread only."""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from collections.abc import Iterable
from typing import Literal

from shepherd.core.dataclasses import dataclass, field
from shepherd.engine import media
from shepherd.engine.base import Done, Job, Media, PromptScores, Runtime, Scored, Ticket, TokenSampler
from shepherd.engine.kv.ledger import Resident
from shepherd.engine.kv.plan import Tail
from shepherd.engine.speculation import Speculation
from shepherd.engine.stats import SequenceStats
from shepherd.engine.window import Turn

Phase = Literal["waiting", "prefill", "generate", "closing"]


@dataclass(slots=True, eq=False)
class Task:
    """One job. An answer is a prompt that grows by one token at a time, so `todo` describes both."""

    ticket: Ticket
    tokens: array[int]
    """The prompt and the generated tokens, the newest one and evicted ones included."""
    phase: Phase = "waiting"
    resident: Resident | None = None
    todo: deque[tuple[int, int]] = field(default_factory=deque)
    """Logical ranges still to be computed, in order."""
    marks: frozenset[int] = frozenset()
    """Logical lengths at which a checkpoint is saved."""
    tail: Tail | None = None
    """To be put behind the first of these ranges once that is computed."""
    sampler: TokenSampler | None = None
    speculation: Speculation | None = None
    """Its drafts, from its first one on."""
    prompt_scores: list[Scored] = field(default_factory=list)
    """Scores of the prompt's tokens computed so far, if the job asks for them."""
    n_generated: int = 0
    admitted: bool = False
    """Whether `Admitted` has been posted; a preempted task is not admitted twice."""
    last: Done | None = None
    """Its last step, from the draw of its end token on: the token is put into the cache before the step is posted."""
    is_encoding: bool = False
    """Whether it waits for its images."""
    alone: bool = False
    """Must be computed by itself: a decode that included it has failed."""
    bad_snapshots: set[str] = field(default_factory=set)
    """Keys of snapshots that could not be used as planned."""
    n_loads: int = 0
    """Snapshots loaded into the cells for it."""
    n_fetches: int = 0
    """Snapshots read from disk for it."""
    n_broken: int = 0
    """Times that its sequence was lost because the runtime refused an operation."""
    n_cached: int = 0
    n_new: int = 0
    n_done: int = 0
    """Of `n_new`."""
    n_evicted: int = 0
    """Tokens that have left for it."""
    came_s: float = field(default_factory=time.perf_counter)
    started_s: float = 0.0
    first_s: float = 0.0
    """Time of its first token."""

    @property
    def job(self) -> Job:
        return self.ticket.job

    @property
    def cells(self) -> Resident:
        """Its sequence; every running job has one."""
        assert self.resident is not None
        return self.resident

    @property
    def n_left(self) -> int:
        return self.job.max_tokens - self.n_generated

    @property
    def scores_prompt(self) -> bool:
        """Whether the likelihood of its prompt is wanted and has not been posted yet."""
        return self.job.score_prompt and not self.n_generated

    def score_prompt(self, runtime: Runtime, chunk: int) -> None:
        """Score the prompt tokens that follow this chunk's, and post all scores at the end of the prompt.

        Scores from before a restart of the prompt are kept.
        """
        tokens, stop = self.job.tokens, len(self.cells)
        if not self.prompt_scores:
            self.prompt_scores.append(Scored(tokens[0], math.nan))
        for at in range(len(self.prompt_scores), min(stop + 1, len(tokens))):
            self.prompt_scores.append(runtime.scorer(chunk, self.job.scores or 0, stop - at)(tokens[at]))
        if not self.todo:
            self.ticket.post(PromptScores(tuple(self.prompt_scores)))

    @property
    def drafts(self) -> tuple[int, int]:
        """How many tokens were drafted, and how many of these were drawn."""
        return (self.speculation.n_drafted, self.speculation.n_accepted) if self.speculation else (0, 0)

    @property
    def n_todo(self) -> int:
        return sum(stop - start for start, stop in self.todo)

    @property
    def next_media(self) -> Media | None:
        """The image that is to be computed next, by itself; None if that is text, or nothing."""
        return self.job.media.get(self.todo[0][0]) if self.todo else None

    def compute(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Set what is to be computed; ranges are split at the marks, and before and behind each image."""
        marks = sorted(self.marks | media.edges(self.job.media))
        self.todo.clear()
        for start, stop in ranges:
            for mark in marks:
                if start < mark < stop:
                    self.todo.append((start, mark))
                    start = mark
            self.todo.append((start, stop))

    def add(self, token: int) -> None:
        """Append a token, to be computed next."""
        self.tokens.append(token)
        n = len(self.tokens)
        self.todo.append((n - 1, n))

    def advance(self, n: int) -> None:
        start, stop = self.todo[0]
        if start + n == stop:
            self.todo.popleft()
        else:
            self.todo[0] = (start + n, stop)

    def tokens_per_s(self, now_s: float) -> float:
        """Of its answer so far; 0 before its second token."""
        seconds = now_s - self.first_s if self.first_s else 0.0
        return (self.n_generated - 1) / seconds if self.n_generated > 1 and seconds > 0 else 0.0

    def turn(self) -> Turn:
        """What is shown of it at its end."""
        job, seq = self.job, self.resident.id if self.resident is not None else None
        first_s = self.first_s - self.came_s if self.first_s else None
        return Turn(
            job.session, job.owner.name, time.time(), seq, self.n_cached, self.n_new, first_s, self.n_generated,
            self.tokens_per_s(time.perf_counter()), self.n_evicted, *self.drafts,
        )  # fmt: skip

    def stats(self, resident: Resident, now_s: float) -> SequenceStats:
        return SequenceStats(
            seq=resident.id,
            state="prefill" if self.phase == "prefill" else "generate",
            session=self.job.session,
            owner=self.job.owner.name,
            tokens=resident.n_resident,
            evicted=len(resident) - resident.n_resident,
            cached=self.n_cached,
            new=self.n_new,
            generated=self.n_generated,
            tokens_per_s=self.tokens_per_s(now_s),
            idle_s=0.0,
            background=resident.background,
            drafted=self.drafts[0],
            accepted=self.drafts[1],
        )
