"""What a client asks to leave its context, and what has left: clearing and compaction, as data.

    edits      the client's wishes, in their order: results of old calls, old thoughts, everything old
    cleared    which messages and parts a request leaves out; a local model keeps the others where they are
    applied    what an answer reports of it

A prompt without what is cleared is not rendered again: the tokens leave the cache in place, and the rest stays computed
(`backends/local`). Anthropic's `context_management` and the compaction of OpenAI's Responses are both read into this.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal

from shepherd.core.dataclasses import dataclass

EditKind = Literal["results", "thoughts", "compact"]
"""Results of calls; reasoning; whole turns, the oldest first."""

WHOLE = -1
"""In place of the index of a part: the whole message."""

COMPACTION = "shepherd.compaction"
"""The protocol of an `Opaque` that stands for messages which we hold: its body has them as a sealed word in
`encrypted_content`, its parts an extract of them."""

SEAL = "shp1."
"""The beginning of such a word."""

Place = tuple[int, int]
"""The index of a message in its request, and of a part in it, or `WHOLE`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One wish of a client. It acts when its trigger is reached, and then as far as `keep` allows."""

    kind: EditKind
    trigger_tokens: int | None = None
    """It acts on prompts with more tokens; None = the default of its kind."""
    trigger_calls: int | None = None
    """It acts on prompts with more calls, in place of tokens."""
    keep: int | None = None
    """How many of the newest stay: results, or turns with thoughts. None = all of them; not for `compact`."""
    least_tokens: int = 0
    """It acts only where at least so many tokens leave."""
    excluded: AbstractSet[str] = frozenset()
    """Tools whose results stay."""
    inputs: bool | AbstractSet[str] = False
    """Whether the arguments of the calls leave, too: of all tools, or of these."""
    is_capped: bool = False
    """A trigger beyond the window acts where the window ends; otherwise it is refused."""
    pause: bool = False
    """The answer ends behind the compaction."""
    instructions: str = ""
    """What the client asks a digest to hold; empty: it asks for none."""


@dataclass(frozen=True, slots=True)
class AppliedEdit:
    """What an edit has done to one request."""

    kind: EditKind
    count: int
    """Results, turns with thoughts, or messages that have left."""
    tokens: int
    """Of the prompt; exact for a local model."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A request's edits, decided."""

    cleared: frozenset[Place] = frozenset()
    """All that leaves, what was cleared before included."""
    applied: tuple[AppliedEdit, ...] = ()
    n_before: int = 0
    """Tokens of the prompt before the edits, without what was cleared earlier."""
    n_after: int = 0
    can_wait: bool = False
    """Whether there is room for the next answer with all turns that a compaction clears, so that they may leave behind
    it."""
    model: str = ""
    """Which model would answer, as its answers name it; the request may name none."""


@dataclass(frozen=True, slots=True)
class LeavingPolicy:
    """Which parts leave a full context before whole turns, the highest weight first (0 = with its turn), and what
    leaves last. Measured in `bench/agent/leaving.py`."""

    stale_results: int = 3
    thoughts: int = 2
    long_results: int = 1
    first_lines: int = 12
    """Lines that stay of a long result."""
    least_chars: int = 600
    """A part that is shorter is not worth a hole."""
    newest_exchanges: int = 4
    """Exchanges of a call and its results that leave last."""
    task: bool = True
    """Whether the first user message leaves last of all."""
    plan: bool = True
    """Whether the newest plan leaves last."""
