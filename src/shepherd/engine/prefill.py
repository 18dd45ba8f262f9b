"""The scheduler: whose tokens go into the next decode, and how many. Pure.

Every running answer gets its one token in every decode. What remains is for prompts, and how much that is depends on
who is waiting: alone, a prompt is computed in large chunks; beside running answers only as much as keeps their gaps
between tokens short, measured on this machine (`SpeedEstimate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

CHUNK = 512
"""Prompt tokens per decode when nobody waits for tokens: the grain of progress and cancellation."""
SMALLEST = 16
"""Prompt tokens per decode at least: smaller ones cost almost as much."""
GAP_S = 0.025
"""What prompts may add to the time between two tokens of a running answer, at least,"""
GAP_STEPS = 2.0
"""or this many times what a decode takes without them: on a slow model they must get on, too. More where more prompts
wait than answers run, in proportion: many are not to wait for few,"""
LONGEST_GAP_S = 0.4
"""but then no longer than this."""


class PrefillDemand(NamedTuple):
    """A prompt that is being computed."""

    key: int
    todo: int
    """Tokens still to compute."""


def share_budget(demands: Sequence[PrefillDemand], budget: int) -> dict[int, int]:
    """How many tokens of each prompt go into the next decode; `demands` are in order of arrival.

    The oldest gets at least half, so nobody starves; the rest goes to the shortest ones first, so that a short question
    does not wait for a long document.
    """
    given: dict[int, int] = {}
    if not demands or budget <= 0:
        return given
    oldest = demands[0]
    half = budget if len(demands) == 1 else -(-budget // 2)
    given[oldest.key] = min(oldest.todo, half)
    left = budget - given[oldest.key]
    for demand in sorted(demands[1:], key=lambda demand: demand.todo):
        if left <= 0:
            break
        given[demand.key] = min(demand.todo, left)
        left -= given[demand.key]
    if left > 0:
        given[oldest.key] = min(oldest.todo, given[oldest.key] + left)
    return given


@dataclass(slots=True)
class SpeedEstimate:
    """How fast this model computes here, from what the last decodes took."""

    decode_s: float = 0.0
    """One decode of running answers only; 0 = not known yet."""
    token_s: float = 0.0
    """One prompt token; 0 = not known yet."""

    def observe(self, seconds: float, *, n_prompt: int, n_running: int) -> None:
        """A decode of `n_prompt` prompt tokens and `n_running` answers took `seconds`."""
        if n_prompt == 0:
            self.decode_s = _mixed(self.decode_s, seconds)
        elif n_prompt >= SMALLEST:
            own = seconds - (self.decode_s if n_running else 0.0)
            self.token_s = _mixed(self.token_s, max(own, seconds * 0.1) / n_prompt)

    def expected_s(self, n_tokens: int) -> float | None:
        """What a decode of so many tokens takes, about; None while the pace is not known."""
        return None if self.token_s == 0.0 else self.decode_s + n_tokens * self.token_s

    def budget(self, *, n_prompts: int, n_running: int) -> int:
        """Prompt tokens for the next decode of `n_running` answers, where `n_prompts` wait to be read."""
        if n_running == 0:
            return CHUNK
        if self.token_s == 0.0:
            return 4 * SMALLEST
        fair_s = GAP_STEPS * self.decode_s
        gap_s = max(GAP_S, fair_s, min(LONGEST_GAP_S, fair_s * n_prompts / n_running))
        return max(SMALLEST, min(CHUNK, int(gap_s / self.token_s)))


def _mixed(old: float, new: float) -> float:
    """A running mean that follows within a few observations and is not thrown by one."""
    return new if old == 0.0 else 0.7 * old + 0.3 * min(new, 4 * old)
