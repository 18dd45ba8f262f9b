"""The engine thread: takes jobs from a mailbox and turns prompts into tokens, one after the other.

    mailbox: Submit | Cancel | Stop        nothing else crosses to the thread

The ledger decides what must be computed, the runtime computes it, and after every job the two are compared. A failed
computation fails its own job only: the cache is dropped, the next job starts clean. If the thread itself breaks, every
waiting ticket and every later one gets `EngineDown`: no ticket ever waits for a dead thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shepherd.core import EngineDown, EngineError, InvalidRequest
from shepherd.engine.base import Admitted, Done, Job, Prefill, Runtime, Ticket, TokenSampler
from shepherd.engine.ledger import Ledger, LedgerError

logger = logging.getLogger(__name__)
content_logger = logging.getLogger("shepherd.content")
"""For records that quote prompts or answers: silent unless somebody asks for it by name, as `--debug` does."""
content_logger.setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class _Submit:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class _Cancel:
    ticket: Ticket


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Mail = _Submit | _Cancel | _Stop


class Engine:
    """One cache and its thread. `cancel` and `used` are for any thread; `close` once, by the owner."""

    def __init__(
        self, runtime: Runtime, *, name: str = "main", show: Callable[[int], bytes] = lambda token: b"<%d>" % token
    ) -> None:
        """Take over `runtime` and start. `show` gives a token's text for log lines."""
        self.name = name
        self.n_ctx = runtime.n_ctx
        self.used = 0
        """Tokens in the cache after the last step; a snapshot for displays."""
        self._runtime = runtime
        self._show = show
        self._ledger = Ledger()
        self._mailbox: queue.SimpleQueue[_Mail] = queue.SimpleQueue()
        self._waiting: deque[Ticket] = deque()
        self._running: Ticket | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._live, name=f"engine-{name}", daemon=True)
        self._thread.start()

    # any thread

    def submit(self, job: Job) -> Ticket:
        """Queue a job; must be called on the event loop that will read the ticket.

        Raises: `InvalidRequest` for a job that can never run (empty, or larger than the context).
        """
        if not job.tokens or job.max_tokens < 1:
            raise InvalidRequest("a job needs at least one prompt token and room for one new token")
        if len(job.tokens) + job.max_tokens > self.n_ctx:
            raise InvalidRequest(f"{len(job.tokens)} + {job.max_tokens} tokens do not fit into {self.n_ctx}")
        ticket = Ticket(job, asyncio.get_running_loop())
        self._mailbox.put(_Submit(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Stop a job at the next possible moment, inside a prefill too. Harmless when it has ended."""
        if ticket.cancelled or ticket.finished:
            return
        ticket.cancelled = True
        if self._running is ticket:
            self._runtime.interrupt(True)
        self._mailbox.put(_Cancel(ticket))

    def close(self, timeout_s: float = 10.0) -> None:
        """Cancel everything, end the thread and free the runtime."""
        self._stopping = True
        self._runtime.interrupt(True)
        self._mailbox.put(_Stop())
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._runtime.close()

    # engine thread

    def _live(self) -> None:
        try:
            while not self._stopping:
                self._read_mail(block=not self._waiting)
                if self._waiting and not self._stopping:
                    self._run(self._waiting.popleft())
            reason = "the engine was stopped"
        except Exception:
            logger.exception("the engine thread of cache %r broke", self.name)
            reason = "the engine broke and was shut down; restart Shepherd (the log says why)"
        self._refuse_all(reason)

    def _read_mail(self, *, block: bool) -> None:
        while True:
            try:
                mail = self._mailbox.get(block=block)
            except queue.Empty:
                return
            block = False
            match mail:
                case _Submit(ticket):
                    self._waiting.append(ticket)
                case _Cancel(ticket):
                    if ticket in self._waiting:
                        self._waiting.remove(ticket)
                        ticket.post(Done("cancelled"))
                case _Stop():
                    self._stopping = True

    def _refuse_all(self, reason: str) -> None:
        """Answer everything with `EngineDown` until `close` is called: whoever submits later must not wait for ever."""
        while True:
            tickets = [*self._waiting, *([self._running] if self._running else [])]
            self._waiting.clear()
            self._running = None
            for ticket in tickets:
                ticket.fail(EngineDown(reason))
            if self._stopping and self._mailbox.empty():
                return
            self._read_mail(block=True)

    def _run(self, ticket: Ticket) -> None:
        self._runtime.interrupt(False)
        self._running = ticket
        if ticket.cancelled or self._stopping:  # between the mailbox and here
            ticket.post(Done("cancelled"))
            self._running = None
            return
        sampler: TokenSampler | None = None
        try:
            end = self._prefill(ticket)
            if end is None:
                sampler = self._runtime.sampler(ticket.job.sampling, ticket.job.tokens)
                end = self._generate(ticket, sampler)
            ticket.post(end)
            if end.end_token is not None:
                self._close_turn(end.end_token)
            self._settle()
        except (EngineError, LedgerError) as error:
            logger.warning("a job failed on cache %r, which was cleared: %s", self.name, error)
            self._drop_cache()
            ticket.fail(error if isinstance(error, EngineError) else EngineError(str(error)))
        finally:
            if sampler is not None:
                sampler.close()
        self._running = None

    def _prefill(self, ticket: Ticket) -> Done | None:
        """Bring the cache to the whole prompt. None when it is there; otherwise how the job ended."""
        prompt = ticket.job.tokens
        ledger, runtime = self._ledger, self._runtime
        keep = self._keep(prompt)
        ticket.post(Admitted(keep))
        total = len(prompt) - keep
        while (start := len(ledger)) < len(prompt):
            if ticket.cancelled or self._stopping:
                return Done("cancelled")
            chunk = prompt[start : start + runtime.n_chunk]
            if not self._decode(ticket, chunk, start):
                return Done("cancelled")
            if total > runtime.n_chunk:
                ticket.post(Prefill(len(ledger) - keep, total))
        return None

    def _keep(self, prompt: array[int]) -> int:
        """Cut the cache back to what it shares with `prompt`; how many tokens that is."""
        ledger = self._ledger
        keep = ledger.match(prompt)
        if logger.isEnabledFor(logging.DEBUG):
            self._log_match(prompt, keep)
        if keep < len(ledger):
            if keep and self._runtime.truncate(keep):
                ledger.truncate(keep)
            else:  # nothing shared, or a memory that cannot go back (K6)
                self._drop_cache()
        return len(ledger)

    def _generate(self, ticket: Ticket, sampler: TokenSampler) -> Done:
        sample, is_end, post = sampler.sample, self._runtime.is_end, ticket.post
        position = len(self._ledger)
        last = position + ticket.job.max_tokens - 1
        one = array("i", [0])
        while True:
            token = sample()
            if is_end(token) and not ticket.job.sampling.ignore_eos:
                return Done("end", token)
            post(token)  # before the decode, so that the event loop works while the library computes
            if position >= last:
                return Done("length")
            if ticket.cancelled or self._stopping:
                return Done("cancelled")
            one[0] = token
            if not self._decode(ticket, one, position):
                return Done("cancelled")
            position += 1

    def _decode(self, ticket: Ticket, tokens: array[int], start: int) -> bool:
        """Compute and record `tokens`. False when the ticket was cancelled meanwhile."""
        while True:
            match self._runtime.decode(tokens, start):
                case "ok":
                    self._ledger.extend(tokens)
                    self.used = start + len(tokens)
                    return True
                case "full":
                    raise EngineError(f"the KV cache has no room for {len(tokens)} tokens at position {start}")
                case "aborted":
                    # Finished parts of a large batch stay: the ledger follows what the library really holds.
                    kept = self._runtime.length() - start
                    self._ledger.extend(tokens[:kept])
                    if ticket.cancelled or self._stopping:
                        return False
                    # The interrupt was meant for a job that had ended in the meantime: go on with the rest.
                    self._runtime.interrupt(False)
                    tokens, start = tokens[kept:], start + kept
                    if not tokens:  # the logits of the last token are gone with the abort: compute it again
                        raise EngineError("a decode was interrupted by a job that had ended")

    def _close_turn(self, token: int) -> None:
        """Put the end tag into the cache too, so that the next prompt extends it (K1)."""
        if len(self._ledger) >= self.n_ctx or self._stopping:
            return
        tag = self._show(token).decode("utf-8", "replace")
        decoded = self._runtime.decode(array("i", [token]), len(self._ledger))
        if decoded == "ok":
            self._ledger.extend([token])
            self.used = len(self._ledger)
            logger.debug("Added closing tag to KV cache: %s", tag)
        elif not self._stopping:
            logger.warning("Failed to decode closing tag into KV cache: %s (%s)", tag, decoded)

    def _settle(self) -> None:
        """The check after every job. Raises: `LedgerError`."""
        self._ledger.check(self._runtime.length())

    def _drop_cache(self) -> None:
        self._runtime.clear()
        self._ledger.truncate(0)
        self.used = 0

    def _log_match(self, prompt: array[int], keep: int) -> None:
        cached = self._ledger.tokens
        if keep >= len(cached) or keep == len(prompt) - 1:
            logger.debug("cache %r: hit, %d of %d prompt tokens are cached", self.name, keep, len(prompt))
            return
        logger.debug("cache %r: miss: token %d of %d differs", self.name, keep, len(prompt))

        def around(tokens: array[int]) -> str:
            return b"".join(map(self._show, tokens[max(0, keep - 4) : keep + 6])).decode("utf-8", "replace")

        if content_logger.isEnabledFor(logging.DEBUG):
            content_logger.debug("cache %r: miss: %r != %r", self.name, around(prompt), around(cached))
