"""What every engine does with a job before it queues it, so that all of them refuse the same jobs in the same words."""

from __future__ import annotations

import contextlib

from shepherd.core import ContextFull, Evicted, InvalidRequest, RateLimited
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.base import Engine, Job
from shepherd.engine.kv.plan import kept_tokens

LONGEST_WAIT_S = 120.0
"""The longest `retry_after_s` of a refused request."""


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    """The cache's."""
    n_ctx: int
    sequences: int = 4
    """Jobs computed side by side."""
    queue: int = 64
    """Jobs that may wait; further ones are refused."""
    has_grammars: bool = False
    """Whether answers can be held to a grammar."""

    def check(self, job: Job, *, n_waiting: int, job_s: float) -> None:
        """Refuse a job that can never run, or that comes while too many wait. `job_s`: what a job takes, on average.

        Raises: `InvalidRequest`, `ContextFull`, `RateLimited`; see `Engine.submit`.
        """
        if not job.tokens or (job.max_tokens < 1 and not job.n_turns_to_evict):
            raise InvalidRequest("a job needs at least one prompt token and room for one new token")
        if job.max_tokens and job.tokens[-1] < 0:
            raise InvalidRequest("a prompt ends with an image or a recording; the model needs text behind it")
        if job.score_prompt and job.media:
            raise InvalidRequest("the tokens of a prompt with images cannot be scored")
        if job.grammar is not None and not self.has_grammars:
            raise InvalidRequest(f"cache {self.name!r} cannot constrain answers to a grammar")
        if job.on_full == "evict":
            needed = kept_tokens(job) + job.reserve
            if needed > self.n_ctx:
                raise ContextFull(needed=needed, limit=self.n_ctx, reserve=job.reserve, cache=self.name)
        elif len(job.tokens) + job.max_tokens > self.n_ctx:
            raise InvalidRequest(f"{len(job.tokens)} + {job.max_tokens} tokens do not fit into {self.n_ctx}")
        if n_waiting >= (max(1, self.queue // 2) if job.background else self.queue):
            raise RateLimited(
                f"cache {self.name!r} is busy: {n_waiting} requests are waiting already; try again later",
                backend=f"local:{self.name}",
                retry_after_s=min(max(1.0, job_s * n_waiting / self.sequences), LONGEST_WAIT_S),
            )


async def evict_turns(engine: Engine, job: Job, n_turns: int) -> Evicted:
    assert job.on_full == "evict"
    assert n_turns > 0
    ticket = engine.submit(replace(job, max_tokens=0, reserve=1, n_turns_to_evict=n_turns))
    evicted: list[Evicted] = []
    try:
        async with contextlib.aclosing(ticket.batches()) as batches:
            async for batch in batches:
                evicted += [step for step in batch if isinstance(step, Evicted)]
    finally:
        engine.cancel(ticket)
    return Evicted(
        sum(step.messages for step in evicted),
        sum(step.tokens for step in evicted),
        tuple(at for step in evicted for at in step.gone),
    )
