"""The prefill budget: how many tokens of which prompts go into the next decode. Pure.

Every running answer gets its one token in every decode; the rest of the decode is for prompts. Without running answers
a prompt is computed in large chunks. Beside running answers, only as many prompt tokens are computed as keep the gap
between two tokens of an answer short, at the speed measured on this machine (`SpeedEstimate`).

Prompts that come together are an exception: while the answers that run have no more than their first token, they stand
until the prompts beside them are read, if that is soon. Each answer has one gap then, behind its first token, instead
of a row of gaps; the prompts are read sooner, and the answers end no later.

    prompts     1 ─ 2 ─ 3 ●                one after another, in large pieces
    answer 1      ●       ● ● ● ●          its first token, then the others from the end of the last prompt on
    answer 2          ●   ● ● ● ●
"""

from __future__ import annotations

from operator import itemgetter

from shepherd.core.dataclasses import dataclass

CHUNK = 512
"""Prompt tokens per decode if no answer runs: the granularity of progress and cancellation."""
STRIDE = 256
"""llama.cpp multiplies every token of a decode with all cells up to the last used one, rounded up to so many."""
SMALLEST = 16
"""Fewest prompt tokens per decode: smaller chunks cost almost as much."""
GAP_S = 0.025
"""Seconds that prompts may always add to the gap between two tokens of a running answer ..."""
SHORT_GAP_S = 0.004
"""... if they take long. Prompts that are soon computed add no more than this many, ..."""
SHARES = 8
"""... or than one part in so many of the time that they take alone."""
GAP_STEPS = 2.0
"""The gap may also be this many times a decode without prompts, so that prompts advance on a slow model too. It grows
in proportion if more prompts wait than answers run, so that many requests do not wait for few ..."""
LONGEST_GAP_S = 0.4
"""... up to this many seconds."""
SOON_S = 1.0
"""Answers that have just begun stand for prompts that take no longer than this each ..."""
STANDING_S = 5.0
"""... and for all prompts together no longer than this, from the first token of the oldest answer on."""


def share_budget(demands: dict[int, int], budget: int) -> dict[int, int]:
    """How many tokens of each prompt go into the next decode; `demands` has those to compute, in order of arrival.

    The oldest prompt gets at least half, so none starves. The rest goes to the shortest prompts first, so that a short
    question does not wait for a long document, and of equal ones the oldest is read first.
    """
    if not demands or budget <= 0:
        return {}
    oldest = next(iter(demands))
    given = {oldest: min(demands[oldest], -(-budget // 2))}
    left = budget - given[oldest]
    for key, n in sorted((demands | {oldest: demands[oldest] - given[oldest]}).items(), key=itemgetter(1)):
        if left <= 0:
            break
        given[key] = given.get(key, 0) + min(n, left)
        left -= min(n, left)
    return given


def strides(n_used: int) -> int:
    """How many strides every token of a decode is multiplied with."""
    return -(-n_used // STRIDE)


def to_stride(budget: int, n_wanted: int, n_used: int) -> int:
    """The budget of a decode that cannot hold all prompt tokens, such that they end at a stride of cells.

    From 3 used cells on, 512 tokens are multiplied with 768 cells each, but 509 with 512. `n_used`: cells that are used
    before these tokens. A decode of less than a stride stays as it is.
    """
    excess = (n_used + budget) % STRIDE
    return budget - excess if n_wanted > budget >= STRIDE + excess else budget


@dataclass(slots=True)
class SpeedEstimate:
    """The measured speed of the model on this machine, from the times of the last decodes."""

    decode_s: float = 0.0
    """Seconds of one decode of running answers only; 0 = not measured yet."""
    token_s: float = 0.0
    """Seconds of one prompt token; 0 = not measured yet."""

    def observe(self, seconds: float, *, n_prompt: int, n_running: int) -> None:
        if n_prompt == 0:
            self.decode_s = _mixed(self.decode_s, seconds)
        elif n_prompt >= SMALLEST:
            own = seconds - (self.decode_s if n_running else 0.0)
            self.token_s = _mixed(self.token_s, max(own, seconds * 0.1) / n_prompt)

    def expected_s(self, n_tokens: int) -> float | None:
        """Expected seconds of a decode of `n_tokens`; None if the speed is not measured yet."""
        return None if self.token_s == 0.0 else self.decode_s + n_tokens * self.token_s

    def budget(self, *, n_prompts: int, n_todo: int, n_running: int) -> int:
        """Prompt tokens for the next decode beside `n_running` answers, of `n_todo` tokens of `n_prompts` prompts."""
        if n_running == 0:
            return CHUNK
        if self.token_s == 0.0:
            return 4 * SMALLEST
        fair_s = GAP_STEPS * self.decode_s
        longest_s = max(GAP_S, fair_s, min(LONGEST_GAP_S, fair_s * n_prompts / n_running))
        gap_s = min(longest_s, max(SHORT_GAP_S, self.decode_s, n_todo * self.token_s / SHARES))
        return max(SMALLEST, min(CHUNK, int(gap_s / self.token_s)))

    def is_soon(self, n_tokens: int, *, n_prompts: int, standing_s: float) -> bool:
        """Whether answers that have stood for `standing_s` may stand until `n_prompts` prompts of so many tokens to
        compute are read."""
        seconds = n_tokens * self.token_s
        return 0.0 < seconds <= min(n_prompts * SOON_S, STANDING_S - standing_s)

    def piece(self, n_shortest: int) -> int:
        """Prompt tokens of a decode for which answers stand: as few as cost little, so that each prompt ends early, but
        all of the shortest prompt, so that none waits for a rest.

        One more decode costs about as much as one token of an answer.
        """
        return min(CHUNK, max(4 * SMALLEST, n_shortest, int(SHARES * self.decode_s / self.token_s)))


def _mixed(old: float, new: float) -> float:
    """A running mean that follows within a few observations; one outlier moves it only a little."""
    return new if old == 0.0 else 0.7 * old + 0.3 * min(new, 4 * old)
