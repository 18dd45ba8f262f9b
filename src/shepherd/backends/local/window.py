"""Which parts of a conversation are in the model's context now, and where, as a person sees them. Pure.

system │ tools │ turn 1  │ turn 2  │ turn 3
kept   │ kept  │ evicted │ cached  │ kept, new
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

from shepherd.backends.local.turns import parts_pairs, turn_starts
from shepherd.core import Evicted, Message, Request, Role
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.messages import leading_systems
from shepherd.engine.base import CachedPrefix, Span
from shepherd.engine.decision_log import TRAILER

RowState = Literal["cached", "new", "evicted", "partly"]
"""`new`: the next request has to compute it; `partly`: some of it is cached, and some has left or is new."""
EXCERPT_CHARS = 80


@dataclass(frozen=True, slots=True)
class WindowRow:
    kind: Literal["system", "tools", "turn", "memory"]
    """`memory`: what was recalled for the turn behind it."""
    index: int
    """Of a turn, from 1; of others 0."""
    roles: tuple[Role, ...]
    """Of its messages, in order."""
    excerpt: str
    """The beginning of the user's message; one line."""
    n_tokens: int
    n_held: int
    """How many of them are cached. The markup behind an answer is computed with the next message only."""
    state: RowState
    kept: bool
    """It never leaves: the system prompt, the tools, the current turn."""


@dataclass(frozen=True, slots=True)
class Window:
    n_ctx: int
    """Tokens that fit."""
    n_held: int
    """Tokens of this conversation that are cached now."""
    rows: tuple[WindowRow, ...] = ()
    """From the oldest to the newest."""
    tier: Literal["cells", "memory", "disk", ""] = ""
    """Where they are: in the model's cells, or saved in memory or on disk, from where they return without being
    computed; empty when there are none."""

    @property
    def n_tokens(self) -> int:
        """Of the whole conversation, including what has left."""
        return sum(row.n_tokens for row in self.rows)

    @property
    def n_evicted(self) -> int:
        """Turns of which nothing is left."""
        return sum(row.state == "evicted" for row in self.rows)


@runtime_checkable
class WindowedBackend(Protocol):
    """A back end that can show and change what its cache holds of a conversation; see `LocalBackend`."""

    async def window(self, request: Request) -> Window: ...

    async def evict(self, request: Request, n_turns: int) -> Evicted: ...

    async def recognise(self, request: Request, began: datetime | None = None) -> None: ...


@runtime_checkable
class SearchableBackend(Protocol):
    """A back end that has what leaves its context."""

    async def search_left(self, request: Request, query: str) -> str:
        """Quotes of what has left the context of the request, and has words of the query; empty for nothing."""
        ...


def with_next_question(request: Request) -> Request:
    """The request as it will be with the next user message: the last answer has its end then."""
    messages = request.messages
    if messages and messages[-1].role == "user":
        return request
    return replace(request, messages=(*messages, Message.user("?")))


def window_rows(
    messages: Sequence[Message], spans: Sequence[Span], held: CachedPrefix, *, n_tools: int = 0
) -> tuple[WindowRow, ...]:
    """The parts of a conversation; `spans` are its messages in the prompt. `n_tools`: tokens among those of the system
    prompt that describe tools, or of the first turn in templates that write them there."""
    n_leading = leading_systems(messages)
    starts = [*turn_starts(messages, n_leading, [*parts_pairs(messages), False]), len(messages)]
    made: list[WindowRow] = []
    begin = 0
    for index, (first, end) in enumerate([(0, n_leading), *pairwise(starts)]):
        own = [span for span in spans if first <= span.message < end]
        # What stands between two messages is the markup of the one behind it.
        stop = max(begin, max((span.stop for span in own), default=0 if index else n_tools))
        cut = stop if index else max(begin, stop - n_tools)
        if part := messages[first:end]:
            kept = end == len(messages) or all(span.keep for span in own)
            roles = tuple(message.role for message in part)
            kind: Literal["system", "turn"] = "turn" if index else "system"
            made.append(WindowRow(kind, index, roles, excerpt(part), cut - begin, *_found(held, begin, cut), kept))
        if cut < stop:
            made.append(WindowRow("tools", 0, (), "", stop - cut, *_found(held, cut, stop), kept=True))
        begin = stop
    return tuple(made)


def _found(held: CachedPrefix, start: int, stop: int) -> tuple[int, RowState]:
    n = held.count(start, stop)
    if n == stop - start - max(0, stop - held.length) and stop - held.length <= (TRAILER if n else 0):
        return n, "cached"
    if n:
        return n, "partly"
    return 0, "evicted" if held.length >= stop else "new"


def excerpt(messages: Sequence[Message]) -> str:
    """The beginning of the first user message, or else of the first message; one line."""
    asked = next((message for message in messages if message.is_input), messages[0] if messages else None)
    words = asked.own_text if asked else ""
    line = " ".join(words[: 4 * EXCERPT_CHARS].split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[: EXCERPT_CHARS - 1]}…"
