"""Marks: where the state of a memory that cannot be cut back is saved, and which of these checkpoints stay. Pure.

prompt   S S S S S S S S S | u u u | a a a a | u u u | a a a | u u u u | (head of the answer)
marks          ^           ^       ^         ^       ^       ^         ^
            coarse       system     messages            the newest turn, before it and behind it

Such a memory returns to a mark and to nothing else, so a branch computes what lies behind the last mark before it. The
mark behind the system prompt serves every new conversation and stays longest. Coarse marks serve texts that differ in
the middle of a message, and where two prompts were seen to part there is a mark for the third. Old marks leave first,
those that stand close together before the others: what is far back is seldom changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shepherd.engine.base import Job, Span
from shepherd.engine.media import is_inside
from shepherd.engine.prefill import CHUNK

MOST = 32
"""Most checkpoints of one sequence."""
UNKNOWN = 8
"""The same while the size of a state is not known."""
LEAST_GAP = 32
"""Fewest tokens between two marks of messages; fewer are as cheap to compute again."""
TURN_WEIGHT = 4
"""A mark before a turn is worth as much as one of so many times the tokens: texts are changed by whole messages."""


def planned(job: Job, start: int, held: Iterable[int], n_most: int, *, fork: int = 0) -> list[int]:
    """The token indexes, ascending and from `start` on, at which the state is to be saved while `job` is computed.

    held: the lengths that its sequence has checkpoints of. Only marks that would stay among them are returned.
    fork: where the prompt departs from another sequence: the next one that departs there finds a mark. It stands a
    little earlier, since the next one may have a token less in common.
    """
    fork -= fork % LEAST_GAP
    n = len(job.tokens)
    newest = {max(_turn_starts(job.spans)), job.spans[-1].stop} if job.spans else {n - 1}
    fixed = pins(job.n_system, job.spans) | newest | ({fork} if fork >= start + LEAST_GAP else set())
    # Half of the room is for coarse marks, at multiples of one distance: equal prompts have equal marks.
    spacing = CHUNK * -(-2 * n // (n_most * CHUNK))
    others = {*range(spacing, n, spacing), *(span.start for span in job.spans)} - fixed
    fixed, others = ({at for at in each if not is_inside(job.tokens, at)} for each in (fixed, others))
    chosen = sorted(at for at in held if at < start)
    for at in sorted(at for at in fixed | others if max(1, start) <= at < n):
        if at in fixed or at - max(chosen, default=0) >= LEAST_GAP:
            chosen.append(at)
    return [at for at in thinned(chosen, n_most, n_system=job.n_system, spans=job.spans) if at >= start]


def thinned(lengths: Sequence[int], n_most: int, *, n_system: int, spans: Sequence[Span]) -> list[int]:
    """The `n_most` of these ascending lengths that are worth most.

    The order in which the others leave: coarse and old marks, the mark before the newest turn, the one before the first
    turn that an eviction removes, the newest of all, the one behind the system prompt.
    """
    left = list(lengths)
    if len(left) <= n_most:
        return left
    turns = _turn_starts(spans)
    first = pins(0, spans)

    def worth(index: int) -> tuple[int, float]:
        at = left[index]
        if at == n_system:
            return 4, 0
        if index >= len(left) - 2:
            return (3, 0) if index == len(left) - 1 else (1, 0)
        if at in first:
            return 2, 0
        gap = at - (left[index - 1] if index else 0)
        return 0, gap * (TURN_WEIGHT if at in turns else 1) / (left[-1] - at)

    while len(left) > n_most:
        del left[min(range(len(left)), key=worth)]
    return left


def pins(n_system: int, spans: Sequence[Span]) -> set[int]:
    """The marks that stay longest: behind the system prompt, and before the first turn that an eviction removes."""
    first = next((span.start for span in spans if not span.keep), 0)
    return {n_system, first} - {0}


def _turn_starts(spans: Sequence[Span]) -> set[int]:
    starts: dict[int, int] = {}
    for span in spans:
        starts.setdefault(span.turn, span.start)
    return set(starts.values())
