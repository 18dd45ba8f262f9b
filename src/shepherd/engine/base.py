"""The seams of the engine: what a job is, what comes back, and what a runtime must do.

    caller (event loop)                      engine thread
    submit(Job) -> Ticket  ── mailbox ──▶    Ledger and Scheduler decide, Runtime acts
    async for steps in ticket  ◀── post ──   Admitted ( Evicted | Prefill )* Read? token* Done

Only frozen values cross, in both directions. The engine knows token ids; text, messages and JSON stay above.

Words: a *cell* holds the K and V of one token in all layers; a *sequence* is one conversation's cells, named by a small
number; a *position* is where a token stands for the model (RoPE), which is not its index once tokens have been evicted.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from shepherd.core import Evicted, OnFull, Sampling

EndReason = Literal["end", "length", "cancelled"]
Decoded = Literal["ok", "full", "aborted"]


@dataclass(frozen=True, slots=True)
class Span:
    """Which tokens of a prompt are one message."""

    start: int
    stop: int
    """Token indexes, half open. Spans are in order and do not overlap; tokens in none of them are always kept."""
    message: int
    """Index of the message in the rendered conversation, from 0."""
    turn: int
    """Messages of one turn leave together: a user message and its answer, a call and its results."""
    keep: bool = False
    """Never evicted: system prompt, tools, the current user message, the open tool exchange."""
    label: str = ""
    """Such as the role; for log lines only."""


@dataclass(frozen=True, slots=True)
class Job:
    """One generation: the whole prompt, and how to go on from it."""

    tokens: array[int]
    """The prompt, at least one token; the engine decides what of it is cached already."""
    max_tokens: int
    """At most this many tokens are generated; at least 1. 0 where turns are only evicted (`Engine.evict`)."""
    sampling: Sampling = Sampling()
    spans: tuple[Span, ...] = ()
    on_full: OnFull = "error"
    """`evict`: the oldest turns leave when the prompt and the answer need their cells. `error`: a prompt that does not
    fit is refused and an answer that fills the context ends there."""
    reserve: int = 1
    """Tokens to keep free for the answer when room is made; at least 1."""
    grammar: str | None = None
    """What may be generated: a Lark grammar of llguidance over the whole output, its end token aside. Checked before it
    came here (`constraint`)."""
    written: str = ""
    """What the prompt has written of that output already; the grammar has read it before the first token."""
    scores: int | None = None
    """How many alternatives are told with each token, which comes as `Scored` then; None = tokens only."""
    score_prompt: bool = False
    """Tell as much of the prompt's tokens (`Read`), for which all of it is computed anew. Needs `scores`, and no spans:
    nothing of it may have left."""
    background: bool = False
    """A side task: it takes neither cells nor turns from a job that is none, and what it leaves behind goes first."""
    session: str | None = None
    """The conversation's name, if it has one; for log lines and displays only: what is reused is decided by tokens."""
    n_turns_to_evict: int = 0
    """Turns that leave even if there is room, the oldest first; needs `on_full="evict"`. See `Engine.evict`."""


@dataclass(frozen=True, slots=True)
class Held:
    """What there is of a prompt, by its token indexes."""

    length: int = 0
    """So many of its first tokens need no work, evicted ones included."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Half open: those of them that are there; the others have been evicted."""
    tier: Literal["cells", "memory", "disk", ""] = ""
    """Where they are; empty when there are none."""

    @property
    def n(self) -> int:
        """Tokens that are there."""
        return sum(stop - start for start, stop in self.ranges)

    def until(self, length: int) -> Held:
        """The same of the first `length` tokens."""
        length = min(length, self.length)
        ranges = tuple((start, min(stop, length)) for start, stop in self.ranges if start < length)
        return Held(length, ranges, self.tier if ranges else "")

    def count(self, start: int, stop: int) -> int:
        """How many tokens of `[start, stop)` are there."""
        return sum(max(0, min(high, stop) - max(low, start)) for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Admitted:
    """The job's turn has come: the first step."""

    n_cached: int
    """Prompt tokens that are in the KV cache already; exact."""
    n_new: int
    """Prompt tokens to be computed. What has been evicted is in neither."""


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


class Scored(NamedTuple):
    """A token, and how likely it was before sampling parameters and grammars had their say."""

    token: int
    logprob: float
    """Natural logarithm of its probability; nan for the first token of a prompt, before which there is nothing."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens in its place, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Read:
    """Every token of the prompt; before the first generated one, once."""

    scores: tuple[Scored, ...]


Step = int | Scored | Admitted | Prefill | Read | Evicted | Done
"""A generated token, scored if that is wanted, or a notice. The end-of-generation token comes in `Done`, not here."""


# -- the runtime's side --------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Tokens of one sequence for one decode."""

    seq: int
    tokens: array[int]
    position: int
    """Of the first; those of the others follow without gaps. Must be one behind the sequence's highest position."""
    logits: bool
    """Whether the logits after the last token are wanted."""
    each: bool = False
    """Whether those after every token are."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Take positions `[start, stop)` out of a sequence; `stop` -1 = to the end. A hole if something stands behind."""

    seq: int
    start: int
    stop: int = -1


@dataclass(frozen=True, slots=True)
class Copy:
    """Let `target` hold positions `[start, stop)` of `source`, too; the cells are shared, nothing is copied."""

    source: int
    target: int
    start: int
    stop: int
    """-1 = to the end."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Move positions `[start, to the end)` by `delta` (< 0). Only where `Memory.shift` says it is exact."""

    seq: int
    start: int
    delta: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Take everything out of a sequence. Always possible."""

    seq: int


Op = Remove | Copy | Shift | Forget


@dataclass(frozen=True, slots=True)
class Memory:
    """What may be done to a model's memory without changing what it computes: a row of `engine/kv/capabilities.py`."""

    hole: bool
    """Tokens in the middle can be removed, and the rest stays exactly as it was."""
    rollback: Literal["any", "window", "none"]
    """Whether the end can be removed: always; only within the sliding window; never."""
    share: bool
    """Parts of a sequence can be shared with another one (`Copy` of any range)."""
    shift: bool
    """Positions can be moved exactly."""
    checkpoint: bool
    """What cannot be rolled back can be saved and put back (`save(partial=True)`)."""
    window: int = 0
    """Tokens that sliding-window layers look back on; 0 = there are none. Such layers may give up what is behind their
    window even where rollback is `any`: an operation that needs it is then refused."""
    n_positions: int = 0
    """Positions that the model was trained for; 0 = no limit."""
    why: str = ""
    """For a person: which facts decided."""


class Mask(Protocol):
    """Which tokens may come next in one answer; owned by the engine thread.

    To ask for one token is far cheaper than to ask for all: a sampler draws first, and only if the token may not come
    does it take the others that may not out and draw again. That draws from the same distribution: p + (1 - P) p / P
    = p / P, for a token of probability p where all that may come together have P.
    """

    def allows(self, token: int) -> bool:
        """Whether this token may come next."""
        ...

    def allow(self, logits: memoryview) -> None:
        """Set the logits (float32, one for each token of the vocabulary) of what may not come next to -inf.

        Raises: `EngineError` when the grammar cannot go on; the answer fails.
        """
        ...

    def accept(self, token: int) -> None:
        """This token was drawn."""
        ...


class TokenSampler(Protocol):
    """Draws tokens for one job; owned by the engine thread, closed by it."""

    def sample(self, chunk: int) -> int:
        """The next token, drawn from the logits of chunk number `chunk` of the last decode, and remembered."""
        ...

    def close(self) -> None: ...


class Runtime(Protocol):
    """One pool of cells with a model behind it. Only the engine thread touches it, except for `interrupt`."""

    n_ctx: int
    """Cells: tokens that fit, all sequences together. One sequence may use them all."""
    n_seq: int
    """Sequences are numbered 0 to `n_seq` - 1."""
    n_batch: int
    """Tokens in one decode, at most."""
    n_outputs: int
    """Tokens of one decode whose logits can be wanted; at least `n_seq`."""
    memory: Memory
    pays_for_idle: bool
    """Whether a decode takes longer for every cell that holds a token, whoever it belongs to."""

    @property
    def fingerprint(self) -> str:
        """Changes when saved states of this runtime cannot be loaded: model file, cache types, layout."""
        ...

    def decode(self, batch: Sequence[Chunk]) -> Decoded:
        """Compute all chunks at once; at most `n_batch` tokens, at least one; several chunks of one sequence in order.

        `full`: no room, nothing changed. `aborted`: `interrupt` was called; a part may have been kept, see `held`.
        Raises: `EngineError` when the computation failed; the caller forgets everything.
        """
        ...

    def sampler(self, sampling: Sampling, history: Sequence[int], mask: Mask | None = None) -> TokenSampler:
        """A sampler for one job; `history` are the tokens that penalties look back on. `mask` stays the caller's."""
        ...

    def scorer(self, chunk: int, n_top: int, behind: int = 0) -> Callable[[int], Scored]:
        """Tells how likely any token is after the last of chunk number `chunk` of the last decode, or after the token
        that stands `behind` tokens before that.

        To be made before a token is drawn there, for that may overwrite the logits; good for ever.
        """
        ...

    def apply(self, op: Op) -> bool:
        """Carry out one operation; False when this memory cannot, and nothing or everything of it has been done."""
        ...

    def held(self, seq: int) -> tuple[int, int]:
        """The lowest and highest position that a sequence really holds, asked of the library; (-1, -1) when empty."""
        ...

    def save(self, seq: int, *, partial: bool = False) -> bytes:
        """The state of a sequence; `partial` = only what cannot be rolled back (checkpoints). b"" when it failed."""
        ...

    def load(self, seq: int, state: bytes, *, partial: bool = False) -> bool:
        """Put a saved state into a sequence, which is empty afterwards if that fails (False)."""
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
    fim: tuple[int, int, int] | None
    """The tokens before a prefix, before a suffix and before the middle between them; None: it cannot fill gaps."""

    def tokenize(self, text: str) -> list[int]:
        """The tokens of plain text: no BOS is added and no control token is recognised."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes of one token, control tokens included; may end inside a UTF-8 character.

        Raises: `EngineError` for an id outside the vocabulary.
        """
        ...
