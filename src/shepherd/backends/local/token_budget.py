"""How many tokens an answer may have, and whether it fits at all: one formula for all requests (K15).

    error   │◀─────────── prompt ───────────▶│◀── least ──▶│◀── more, up to what was asked ──▶│
    evict   │◀─ what stays ─▶│ what may leave, while the answer grows into its place          │
            0                                                                              n_ctx

The whole prompt takes room, or with `evict` the part of it that can never leave. `least` must fit beside it: the
reserve, or the whole answer with `strict`.
"""

from __future__ import annotations

from shepherd.core import ContextFull, OnFull
from shepherd.core.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenBudget:
    max_tokens: int
    """At least 1."""
    reserve: int
    """Tokens to keep free for it when room is made; at least 1."""


def reserve_of(asked: int | None, n_ctx: int) -> int:
    """Tokens of a context that are kept free for an answer."""
    return min(256, n_ctx // 16) if asked is None else asked


def budget_for(
    *,
    n_prompt: int,
    n_kept: int,
    n_ctx: int,
    on_full: OnFull,
    asked: int | None = None,
    reserve: int | None = None,
    strict: bool = False,
    cache: str = "",
) -> TokenBudget:
    """The budget of an answer to a prompt of `n_prompt` tokens, `n_kept` of which can never leave.

    `asked`: the request's limit, if it has one. `reserve`: default a sixteenth of the context, at most 256. `strict`:
    an answer of `asked` tokens must fit (C9).

    Raises: `ContextFull`, with the tokens that are needed and those that there are.
    """
    reserve = reserve_of(reserve, n_ctx)
    least = max(1, (asked or reserve) if strict else min(asked or reserve, reserve))
    taken = n_kept if on_full == "evict" else n_prompt
    room = n_ctx - taken
    if room < least:
        raise ContextFull(needed=taken + least, limit=n_ctx, reserve=least, cache=cache, n_prompt=n_prompt)
    if on_full == "evict":
        # Eviction sets no limit of its own. The tag that closes the answer needs a cell, too.
        return TokenBudget(max(least, min(asked or n_ctx // 2, room - 1)), least)
    return TokenBudget(min(asked or room, room), least)
