"""How many tokens an answer may have, and whether there is room for it at all: one formula for all requests (K15).

    error   │◀─────────── prompt ───────────▶│◀── least ──▶│◀── more, up to what was asked ──▶│
    evict   │◀─ what stays ─▶│ what may leave, while the answer grows into its place          │
            0                                                                              n_ctx

What takes room for good is the whole prompt, or with `evict` what of it can never leave. `least` must fit beside it:
the reserve, or the whole answer for those who want all or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from shepherd.core import ContextFull, OnFull


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """What one answer gets."""

    max_tokens: int
    """At least 1."""
    reserve: int
    """Tokens to keep free for it when room is made; at least 1."""


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
    """What an answer to a prompt of `n_prompt` tokens gets, `n_kept` of which can never leave.

    `asked`: tokens at most, if anybody said so. `reserve`: default a sixteenth of the context, at most 256. `strict`:
    an answer of all the tokens that were asked for must fit (C9).

    Raises: `ContextFull`, with what would be needed and what there is.
    """
    if reserve is None:
        reserve = min(256, n_ctx // 16)
    least = max(1, (asked or reserve) if strict else min(asked or reserve, reserve))
    taken = n_kept if on_full == "evict" else n_prompt
    room = n_ctx - taken
    if room < least:
        raise ContextFull(needed=taken + least, limit=n_ctx, cache=cache)
    if on_full == "evict":
        # It could go on for ever; and the tag that closes it wants a cell, too.
        return TokenBudget(max(least, min(asked or n_ctx // 2, room - 1)), least)
    return TokenBudget(min(asked or room, room), least)
