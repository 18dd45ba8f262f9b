"""The seams of the engine: what a job is, what comes back, and what a runtime must do.

    caller (event loop)                      engine thread
    submit(Job) -> Ticket  ── mailbox ──▶    Ledger decides, Runtime acts
    async for steps in ticket  ◀── post ──   Prefill* token* Done

Only frozen values cross, in both directions. The engine knows token ids; text, messages and JSON stay above.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shepherd.core import Sampling, ShepherdError

EndReason = Literal["end", "length", "cancelled"]
Decoded = Literal["ok", "full", "aborted"]


@dataclass(frozen=True, slots=True)
class Job:
    """One generation: the whole prompt, and how to go on from it."""

    tokens: array[int]
    """The prompt, at least one token; the engine decides what of it is cached already."""
    max_tokens: int
    """At most this many tokens are generated; at least 1, and prompt + `max_tokens` <= `n_ctx`."""
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job's turn has come: the first step."""

    n_cached: int
    """Prompt tokens that are in the KV cache already; exact."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompt tokens computed so far, of those that had to be."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Done:
    """The last step."""

    reason: EndReason
    end_token: int | None = None
    """The end-of-generation token that the model chose, when `reason` is `end`."""


Step = int | Admitted | Prefill | Done
"""A generated token id, or a notice. The end-of-generation token comes in `Done`, not as a token."""


class Ticket:
    """The caller's half of a submitted job: its steps as they are made.

    Created and iterated on one event loop; `post`, `fail` come from the engine thread; `cancel` from anywhere.
    """

    __slots__ = ("_awake", "_error", "_finished", "_loop", "_steps", "_waiter", "cancelled", "job")

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.cancelled = False
        """Set by `Engine.cancel`; the engine looks at it between steps."""
        self._loop = loop
        self._steps: deque[Step] = deque()
        self._awake = False
        self._finished = False
        self._error: ShepherdError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether the last step has been posted."""
        return self._finished

    # engine thread

    def post(self, step: Step) -> None:
        """Hand over one step. Never blocks: the queue is bounded by the job's own token limit."""
        self._steps.append(step)
        if isinstance(step, Done):
            self._finished = True
        self._wake_loop()

    def fail(self, error: ShepherdError) -> None:
        """End the ticket with an error; steps posted before are still delivered."""
        self._error = error
        self._finished = True
        self._wake_loop()

    def _wake_loop(self) -> None:
        # One wake-up is enough for all steps posted until the loop gets to run it: waking costs a system call.
        if self._awake:
            return
        self._awake = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed: nobody will ever read this ticket
            self.cancelled = True

    # event loop

    def _wake(self) -> None:
        self._awake = False  # before the steps are read, so that a later post wakes again
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncGenerator[list[Step], None]:
        """The steps in order, in batches of all that is ready; ends after `Done`.

        Raises: `EngineError` or `EngineDown` after the last step when the engine failed.
        """
        while True:
            steps: list[Step] = []
            while self._steps:
                steps.append(self._steps.popleft())
            if steps:
                yield steps
                if isinstance(steps[-1], Done):
                    return
            elif self._finished:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._waiter = self._loop.create_future()
                if not self._steps and not self._finished:
                    await self._waiter
                self._waiter = None


class TokenSampler(Protocol):
    """Draws tokens for one job; owned by the engine thread, closed by it."""

    def sample(self) -> int:
        """The next token, drawn from the logits of the last decode and remembered for the penalties."""
        ...

    def close(self) -> None: ...


class Runtime(Protocol):
    """A KV cache with a model behind it. Only the engine thread touches one, except for `interrupt`.

    Positions are 0, 1, 2, ... without gaps; `length()` is the number of tokens held.
    """

    n_ctx: int
    """Tokens that fit."""
    n_chunk: int
    """Tokens per prefill step: the grain of progress and cancellation."""

    def decode(self, tokens: Sequence[int], start: int) -> Decoded:
        """Compute `tokens` at positions `[start, start + len(tokens))`; logits are those after the last one.

        `full`: no room, nothing changed. `aborted`: `interrupt` was called; a part may have been kept, see `length()`.
        Raises: `EngineError` when the computation failed; the caller clears the cache.
        """
        ...

    def sampler(self, sampling: Sampling, history: Sequence[int]) -> TokenSampler:
        """A sampler for one job; `history` are the tokens that penalties look back on."""
        ...

    def truncate(self, length: int) -> bool:
        """Forget everything from position `length` on; False when this memory cannot go back (recurrent state)."""
        ...

    def clear(self) -> None:
        """Forget everything. Always possible."""
        ...

    def length(self) -> int:
        """How many tokens the cache really holds, asked of the library."""
        ...

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation in this vocabulary."""
        ...

    def interrupt(self, on: bool) -> None:
        """Make a running `decode` stop early (True), or let the next one run (False). Any thread."""
        ...

    def close(self) -> None:
        """Free it. Nothing may be called afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class Special:
    """A token of the vocabulary that is not ordinary text."""

    id: int
    text: str
    control: bool
    """A control token, never produced from text. The others (user-defined) match wherever their text stands."""
    strip_left: bool = False
    """White space before it belongs to it."""
    strip_right: bool = False


class Vocabulary(Protocol):
    """Text to tokens and back; safe from any thread."""

    n_vocab: int
    specials: tuple[Special, ...]
    bos: int | None
    """The token that every prompt begins with, or None when the vocabulary wants none."""

    def tokenize(self, text: str) -> list[int]:
        """The tokens of plain text: no BOS is added and no control token is recognised."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of one token, control tokens included; may end inside a UTF-8 character.

        Raises: `EngineError` for an id outside the vocabulary.
        """
        ...
