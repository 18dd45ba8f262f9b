"""The interfaces of the engine: jobs that go in, steps that come out, what an engine and a runtime must do.

    caller (event loop)                      engine thread
    submit(Job) -> Ticket  ── mailbox ──▶    Ledger and Scheduler decide, Runtime acts
    async for steps in ticket  ◀── post ──   Admitted ( Evicted | Prefill )* PromptScores? token* Done

Only frozen values cross between the threads. The engine knows token ids; text, messages and JSON stay above.

Words: a *cell* holds the keys and values of one token in all layers. A *sequence* is the cells of one conversation and
has a small number as its id. A *position* is the place of a token for the model (RoPE); after an eviction it differs
from the token's index.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

from shepherd.core import Evicted, OnFull, Sampling, ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Feed, Kind

EndReason = Literal["end", "length", "cancelled"]
Decoded = Literal["ok", "full", "aborted"]


@dataclass(frozen=True, slots=True)
class Span:
    """Which tokens of a prompt are one message, or a part of one."""

    start: int
    stop: int
    """Token indexes, half open. Spans are in order and do not overlap; tokens outside all spans are always kept."""
    message: int
    """Index of the message in the rendered conversation, from 0."""
    turn: int
    """Messages of one turn are evicted together: a user message and its answer, a call and its results."""
    keep: bool = False
    """Never evicted: system prompt, tools, the current user message, the open tool exchange."""
    label: str = ""
    """For log lines only, such as the role."""
    early: int = field(default=0, repr=False)
    """Above 0: a part that leaves before whole turns do, the highest first. Below 0: it leaves after all of them, -1
    first, and only if there is no room without that."""
    cleared: bool = field(default=False, repr=False)
    """It is no part of the prompt any more: it leaves although there is room, where the memory can have holes."""
    kinds: tuple[tuple[int, Kind], ...] = field(default=(), compare=False, repr=False)
    """For displays only: up to which token, what they are; empty where the label says it."""


Adapters = tuple[tuple[str, float], ...]
"""What is added to the weights of a model: the hash of each adapter (`llamacpp/adapter.py`) and its scale, which is not
0; ordered by the hash. Keys and values are computed with the weights, so those of one set are of no use to another."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of tokens, and the weights with which they are computed. Owners share no sequence and no snapshot, nor
    do sets of adapters."""

    name: str = ""
    n_common: int = 0
    """Leading tokens that jobs of other owners may share: all of them at once, so that none can be guessed singly."""
    adapters: Adapters = ()

    def can_share(self, other: Owner) -> bool:
        return self.name == other.name and self.adapters == other.adapters


UNOWNED = Owner()


@dataclass(frozen=True, slots=True)
class Media:
    """An image or a recording in a prompt, or one part of it (a tile, half a minute): all of its cells are computed at
    once, from pixels or from sound."""

    key: bytes
    """A hash of the file and of the projector that reads it, with the number of the part: equal keys, equal cells."""
    n_tokens: int
    """Cells that it takes; its tokens are those of `media.tokens_of`."""
    data: bytes = field(repr=False)
    """The file as it came, in a format that `MediaReader.read` has accepted."""
    part: int = 0
    """Which of the parts that the file becomes."""


class MediaReader(Protocol):
    """Reads images, or recordings, for one model; safe from any thread."""

    @property
    def takes_images(self) -> bool: ...

    @property
    def takes_audio(self) -> bool: ...

    def read(self, data: bytes, is_wanted: Callable[[], bool] = lambda: True) -> tuple[array[int] | Media, ...]:
        """What a file becomes in a prompt: its parts, and the tokens that the model has around and between them. It is
        decoded when it comes first, which takes seconds for a large one; later, what is known of it comes back.

        Raises: `InvalidRequest` if it is no image or recording that can be read, or is too large; `child.Cancelled`
        (`process/child.py`) while it is decoded, as soon as `is_wanted` returns False.
        """


@dataclass(frozen=True, slots=True)
class Job:
    """One generation: the whole prompt, and how to continue it."""

    tokens: array[int]
    """The whole prompt, at least one token. The engine finds which part of it is cached."""
    max_tokens: int
    """At most this many tokens are generated; at least 1. 0 where turns are only evicted (`Engine.evict`)."""
    sampling: Sampling = Sampling()
    spans: tuple[Span, ...] = ()
    on_full: OnFull = "error"
    """`evict`: the oldest turns leave when the prompt and the answer need their cells. `error`: the engine refuses a
    prompt that does not fit, and an answer ends where it fills the context."""
    reserve: int = 1
    """Tokens to keep free for the answer when room is made; at least 1."""
    grammar: str | None = None
    """A Lark grammar of llguidance for the whole output without its end token; `Constrainer.check` has accepted it."""
    written: str = ""
    """The beginning of the output that the prompt contains already; the grammar reads it before the first token."""
    schema: str | None = None
    """A JSON schema that says all of `grammar`, as JSON, for an engine that reads no Lark."""
    is_lenient: bool = False
    """The grammar only helps: an engine that cannot hold the output to it leaves it out."""
    stops: tuple[str, ...] = ()
    """Texts that end the output. An engine may end the job behind one; the caller looks for them in any case."""
    scores: int | None = None
    """Number of alternatives reported with each token, which is then a `Scored`; None = plain tokens."""
    scores_drawn: bool = False
    """Scores are what the token was drawn from: after sampling parameters, penalties and grammars."""
    score_prompt: bool = False
    """Report scores of the prompt's tokens too (`PromptScores`), which computes all of it again. Needs `scores`, and no
    spans: no token of the prompt may have been evicted."""
    background: bool = False
    """A title, a summary and the like: it never takes cells or turns from other jobs, and its cells are freed first."""
    session: str | None = None
    """The conversation's name, for log lines and displays only."""
    owner: Owner = UNOWNED
    """It and the tokens decide what is reused."""
    n_system: int = 0
    """Leading tokens before the conversation: the system prompt and the tools. Other conversations may begin alike."""
    media: Mapping[int, Media] = field(default_factory=dict)
    """The images and recordings in the prompt, by the index of their first token; an answer needs other tokens behind
    the last."""
    speculate: int | None = None
    """Most tokens that are drafted at a time; 0: none. None: as the engine's option and its speed allow."""
    predicted: tuple[array[int], ...] = ()
    """Texts that the client expects in the answer; drafts come from them, too."""
    n_turns_to_evict: int = 0
    """Turns that leave even if there is room, the oldest first; needs `on_full="evict"`. See `Engine.evict`."""


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """The part of a prompt that is cached, by token indexes."""

    length: int = 0
    """Leading tokens that need no computation, evicted ones included."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Half open: the leading tokens that are cached; the others have been evicted."""
    tier: Literal["cells", "memory", "disk", ""] = ""
    """Where the tokens are; empty if none is cached."""

    @property
    def n(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def until(self, length: int) -> CachedPrefix:
        """The same for the first `length` tokens of the prompt."""
        length = min(length, self.length)
        ranges = tuple((start, min(stop, length)) for start, stop in self.ranges if start < length)
        return CachedPrefix(length, ranges, self.tier if ranges else "")

    def count(self, start: int, stop: int) -> int:
        """Number of tokens of `[start, stop)` that are cached."""
        first = bisect_right(self.ranges, start, key=itemgetter(1))
        last = bisect_left(self.ranges, stop, key=itemgetter(0))
        return sum(max(0, min(high, stop) - max(low, start)) for low, high in self.ranges[first:last])


@dataclass(frozen=True, slots=True)
class Admitted:
    """The first step: the job has a sequence. An engine that learns its figures late corrects them by a second one,
    before the first token."""

    n_cached: int
    """Prompt tokens that are in the KV cache already; exact."""
    n_new: int
    """Prompt tokens to be computed. Evicted tokens are in neither count."""
    at_ns: int = field(default=0, compare=False)
    """When, by `time.perf_counter_ns`: the step may be read only after its prompt is computed."""
    seq: int = field(default=-1, compare=False)
    """The number of its sequence, for displays."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Progress of a prompt: `done` of the `total` tokens to be computed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Done:
    """The last step."""

    reason: EndReason
    end_token: int | None = None
    """The end-of-generation token that the model drew, if `reason` is `end`."""
    drafted: int = field(default=0, compare=False)
    """Tokens that were proposed and checked together ..."""
    accepted: int = field(default=0, compare=False)
    """... and those of them that the model drew as well."""


class Scored(NamedTuple):
    """A token with its likelihood before sampling parameters and grammars are applied (`Job.scores_drawn`: after)."""

    token: int
    logprob: float
    """Natural logarithm of its probability; nan for the first token of a prompt."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens in its place, the likeliest first."""


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The scores of every prompt token; once, before the first generated token."""

    scores: tuple[Scored, ...]


Step = int | Scored | Admitted | Prefill | PromptScores | Evicted | Done
"""A generated token (`Scored` if the job asks for scores) or a notice. The end-of-generation token comes in `Done`."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Created and iterated on one event loop; the engine thread posts to it and reads `cancelled`."""

    job: Job
    loop: asyncio.AbstractEventLoop
    cancelled: bool = False
    """Set by `Engine.cancel`; the engine thread reads it between decodes."""
    finished: bool = False
    """Whether the last step has been posted."""
    _steps: deque[Step] = field(default_factory=deque)
    _error: ShepherdError | None = None
    _waiter: asyncio.Future[None] | None = None

    # engine thread

    def post(self, step: Step) -> None:
        """Add one step; `Notifier.flush` wakes the reader. Never blocks: the job's token limit bounds the queue.

        A ticket that has ended with an error ignores later steps. Otherwise the thread of an engine that has stalled
        and recovered could replace the error by `cancelled` before the caller has read it.
        """
        if self._error is not None:
            return
        self._steps.append(step)
        if type(step) is Done:
            self.finished = True

    def fail(self, error: ShepherdError) -> None:
        """End the ticket with an error; earlier steps are still delivered."""
        self._error = error
        self.finished = True

    def end(self, last: Done | ShepherdError) -> None:
        """Post the last step, or fail; a ticket that has ended stays as it is."""
        if self.finished:
            return
        if isinstance(last, Done):
            self.post(last)
        else:
            self.fail(last)

    # any thread

    def abandon(self, error: ShepherdError) -> None:
        """End the ticket with an error because its engine thread has stalled; the thread finds it cancelled later."""
        self.fail(error)
        self.cancelled = True  # last: a thread that reads it must find the error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads this ticket any more
            self.loop.call_soon_threadsafe(self.wake)

    # event loop

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def batches(self) -> AsyncGenerator[list[Step], None]:
        """The steps in order, each batch with all steps that are ready; ends after `Done`.

        Raises: `ContextFull`, `EngineError` or `EngineDown`, after the last step, if the job fails.
        """
        while True:
            finished = self.finished  # read first: the engine thread sets it after the last step
            if steps := [self._steps.popleft() for _ in range(len(self._steps))]:
                yield steps
                if isinstance(steps[-1], Done):
                    return
            elif finished:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._waiter = self.loop.create_future()
                if not self._steps and not self.finished:
                    await self._waiter
                self._waiter = None


class Notifier:
    """Wakes the event loops that wait for steps: each once per decode, for all tickets together. A wake-up is a system
    call, and there may be a thousand tokens per second."""

    def __init__(self) -> None:
        self._tickets: dict[asyncio.AbstractEventLoop, set[Ticket]] = {}

    def add(self, ticket: Ticket) -> None:
        self._tickets.setdefault(ticket.loop, set()).add(ticket)

    def flush(self) -> None:
        """Wake the readers of all noted tickets: one call per loop."""
        for loop, tickets in self._tickets.items():
            try:
                loop.call_soon_threadsafe(_wake_all, tickets)
            except RuntimeError:  # the loop is closed: nothing will read these tickets
                for ticket in tickets:
                    ticket.cancelled = True
        self._tickets = {}


def _wake_all(tickets: set[Ticket]) -> None:
    for ticket in tickets:
        ticket.wake()


class Engine(Protocol):
    """Tokens in, tokens out: one cache of one model. The room above knows engines by this alone.

    `engine.InProcessEngine` computes on a thread of this process, `worker.ChildEngine` in another process.
    """

    @property
    def name(self) -> str:
        """The cache's, for messages and log lines."""

    @property
    def n_ctx(self) -> int:
        """Tokens that the cache holds, of all conversations together; one may have them all."""

    @property
    def n_low(self) -> int:
        """Tokens of a conversation that an eviction leaves, as nearly as whole turns allow."""

    @property
    def down(self) -> str | None:
        """A sentence that says why the engine computes nothing at present; None if it works. Any thread."""

    @property
    def used(self) -> int:
        """Number of cells that hold a token; for displays. Any thread."""

    def submit(self, job: Job) -> Ticket:
        """Queue a job. Call it on the event loop that will read the ticket; it never blocks.

        Raises: `InvalidRequest` for a job that can never run, `ContextFull` if its tokens that are never evicted do
        not fit, `RateLimited` if too many jobs wait (`gate.Gate` makes these three), `EngineDown` if the engine has
        stalled or stopped.
        """

    def cancel(self, ticket: Ticket) -> None:
        """Stop a job as soon as possible; its last step is `Done("cancelled")`, which comes behind an image that is
        being encoded for it. No effect on a job that has ended. Any thread."""

    def stats(self) -> CacheStats:
        """What the cache holds and has done, at most half a second old; all that a job has done is in it before the
        last step of the job can be read. Any thread."""

    async def clear(self) -> None:
        """Forget every idle conversation, the saved ones too. Running jobs continue. Raises: `EngineDown`."""

    async def evict(self, job: Job, n_turns: int) -> Evicted:
        """Evict the `n_turns` oldest turns of a conversation that may leave, at least one; returns what has left.

        What stays of the prompt is computed where it is not in the cells; no token is generated. `job` must allow
        eviction (`on_full`). Raises: as `submit`, and `EngineError` when the computation fails.
        """

    async def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        """The cached part of a prompt, for its owner. `holes`: messages that were evicted do not end it.

        Raises: `EngineDown`.
        """

    async def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        """The tokens of each conversation of `owner` that begin with these, or with others for the first `n_other`
        messages. `spans`: of the tokens. Raises: `EngineDown`."""

    async def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        """The tokens `[start, stop)` of a sequence in the cells, evicted ones too; empty for none, and where it is
        another owner's. Raises: `EngineDown`."""

    @property
    def is_watched(self) -> bool:
        """Whether a feed is open. Any thread."""

    def watch(self) -> Feed:
        """What the cache holds and what happens to it, from now on, until `unwatch`. Call it on the event loop that
        will read the feed; it never blocks. Raises: `EngineDown`."""

    def unwatch(self, feed: Feed) -> None:
        """End a feed of `watch`; the last one switches the display off. Any thread."""

    def close(self, timeout_s: float = 30.0) -> bool:
        """Cancel all jobs, save the conversations and free the model's memory; blocks. Once, by the owner.

        False if a thread of this process makes no progress and does not end: then memory that it may still use is not
        freed, and must not be.
        """


# -- the runtime's side --------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Tokens of one sequence for one decode."""

    seq: int
    tokens: array[int]
    position: int
    """Of the first token; the others follow without gaps. Must be one more than the sequence's highest position."""
    logits: bool
    """Whether to compute the logits after the last token."""
    each: bool = False
    """Whether to compute the logits after every token."""
    media: Media | None = None
    """The tokens are those of this image, all of them; it has no logits."""
    adapters: Adapters = ()
    """What is added to the weights; the same for all chunks of one decode."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove positions `[start, stop)` from a sequence; `stop` -1 = to the end. In the middle this leaves a hole."""

    seq: int
    start: int
    stop: int = -1


@dataclass(frozen=True, slots=True)
class Copy:
    """Let `target` hold positions `[start, stop)` of `source` too; the cells are shared, not copied."""

    source: int
    target: int
    start: int
    stop: int
    """-1 = to the end."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Move positions from `start` to the end by `delta` (< 0). Only if `Memory.shift` is set."""

    seq: int
    start: int
    delta: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove all cells from a sequence. Always possible."""

    seq: int


Op = Remove | Copy | Shift | Forget


@dataclass(frozen=True, slots=True)
class Memory:
    """Which operations leave a model's computation unchanged: the result of `engine/kv/capabilities.py`."""

    hole: bool
    """Tokens in the middle can be removed; the rest stays exactly as it is."""
    rollback: Literal["any", "window", "none"]
    """Whether the end can be removed: always; only within the sliding window; never."""
    share: bool
    """Any range of a sequence can be shared with another one (`Copy`)."""
    shift: bool
    """Positions can be moved exactly."""
    checkpoint: bool
    """A state that cannot be rolled back can be saved (`save(partial=True)`), and loaded into its own sequence or into
    one that holds the cells up to there (`Copy`)."""
    window: int = 0
    """Tokens that sliding-window layers look back on; 0 = no such layers. These layers may free cells behind their
    window even if rollback is `any`: an operation that needs such cells is refused."""
    n_positions: int = 0
    """Positions that the model was trained for; 0 = no limit."""
    why: str = ""
    """For a person: the facts that decided."""
    piece: int = 0
    """Above 0: answers are repeatable. Prompts are computed in pieces that end at multiples of it. A sequence is cut
    back to such an end: what is reused has been computed as it would be computed again."""


class Mask(Protocol):
    """Which tokens a grammar allows next in one answer; owned by the engine thread.

    A check of one token is far cheaper than of all. So a sampler draws first; if the token is not allowed, the sampler
    removes all tokens that are not allowed and draws again. The distribution is the same: p + (1 - P) p / P = p / P,
    for a token of probability p where all allowed tokens together have P.
    """

    def allows(self, token: int) -> bool:
        """Whether the grammar allows this token next."""

    def n_allowed(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, one behind the other, the grammar allows next, at most; nothing is accepted."""

    def allow(self, logits: memoryview) -> None:
        """Set the logits (float32, one for each token of the vocabulary) of all other tokens to -inf.

        Raises: `EngineError` if the grammar allows no token; the answer fails.
        """

    def accept(self, token: int) -> None:
        """Advance the grammar by a token that was drawn."""


class TokenSampler(Protocol):
    """Draws tokens for one job; owned by the engine thread, closed by it."""

    def sample(self, chunk: int, behind: int = 0) -> int:
        """Draw the next token from the logits after chunk number `chunk` of the last decode, or `behind` tokens before
        its end, and add it to the history."""

    def sample_scored(self, chunk: int, n_top: int, behind: int = 0) -> Scored:
        """The same, with the likeliest of the tokens that could be drawn; slower."""

    def n_possible(self, draft: Sequence[int]) -> int:
        """How many tokens of a draft its grammar allows, at most; all without one. No token is drawn."""

    def close(self) -> None: ...


Saved = bytes | memoryview
"""The bytes of a saved state; a view where they are in an arena (`kv/tiers/arena.py`)."""


class Runtime(Protocol):
    """One pool of cells and the model that computes them. Only the engine thread calls it, except for `interrupt`."""

    n_ctx: int
    """Number of cells: tokens of all sequences together. One sequence may use them all."""
    n_seq: int
    """Sequences are numbered 0 to `n_seq` - 1."""
    n_batch: int
    """Maximum number of tokens in one decode."""
    n_outputs: int
    """Maximum number of tokens with logits in one decode; at least `n_seq`."""
    memory: Memory
    pays_for_idle: bool
    """Whether every used cell makes a decode slower, also the cells of idle sequences."""

    @property
    def fingerprint(self) -> str:
        """Identifies the model file, cache types and layout: saved states load only where it is equal."""

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        """Compute all chunks at once: 1 to `n_batch` tokens besides those of images; several chunks of one sequence in
        order, or one of them an image and no other.

        `full`: no room, nothing has changed. `aborted`: `interrupt` was called; `held` tells which part was kept.
        Raises: `EngineError` when the computation failed; the caller then empties all cells.
        """

    def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
        """Whether `decode` can compute these images without encoding them first. If not, another thread encodes them
        and then calls `on_ready`; `decode` works before that, too, and takes longer.

        Raises: `EngineError` if one of them cannot be computed.
        """

    def release(self, media: Sequence[Media]) -> bool:
        """Encode none of these images for a job that was cancelled; whether one is being encoded, which goes on to its
        end, and to `on_ready`. Raises: what it has raised."""

    def waits(self) -> tuple[int, float]:
        """How often what reads and encodes images made no progress for too long, and the seconds for which work has
        waited for it now. Any thread."""

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> TokenSampler:
        """A sampler for one job; penalties look back on the tokens of `history`. The caller keeps owning `mask`."""

    def scorer(self, chunk: int, n_top: int, behind: int = 0) -> Callable[[int], Scored]:
        """A function that scores any token after chunk number `chunk` of the last decode, or `behind` tokens earlier.

        Call it before a token is drawn there, which may overwrite the logits. The result stays valid.
        """

    def apply(self, op: Op) -> bool:
        """Carry out one operation; False if this memory cannot: then either nothing or everything has been done."""

    def held(self, seq: int) -> tuple[int, int]:
        """The lowest and highest position of a sequence as the library reports them; (-1, -1) for an empty one."""

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        """The state of a sequence, b"" on failure. `partial`: only what cannot be rolled back (checkpoints)."""

    def load(self, seq: int, state: Saved, *, partial: bool = False) -> bool:
        """Load a saved state into a sequence. On failure it returns False and the sequence is empty."""

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation in this vocabulary."""

    def interrupt(self, on: bool) -> None:
        """Stop a running `decode` early (True), or let the next one run (False). Any thread."""

    def close(self) -> None:
        """Free the runtime; no call may follow."""


@dataclass(frozen=True, slots=True)
class Special:
    """A token of the vocabulary that is not ordinary text."""

    id: int
    text: str
    control: bool
    """A control token, never produced from text. Others (user-defined) match wherever their text occurs."""
    strip_left: bool = False
    """The token includes white space before it."""
    strip_right: bool = False


class Vocabulary(Protocol):
    """Text to tokens and back; safe from any thread."""

    n_vocab: int
    specials: tuple[Special, ...]
    bos: int | None
    """The token that every prompt begins with, or None if there is none."""
    fim: tuple[int, int, int] | None
    """The tokens before a prefix, before a suffix and before the middle (fill-in-the-middle); None if unsupported."""
    end_tokens: frozenset[int]
    """The tokens that end an answer."""

    def tokenize(self, text: str) -> list[int]:
        """The tokens of plain text, without BOS; control tokens are not recognised."""

    def piece(self, token: int) -> bytes:
        """The bytes of one token, control tokens included; may end inside a UTF-8 character.

        Raises: `EngineError` for an id outside the vocabulary.
        """
