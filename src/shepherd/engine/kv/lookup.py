"""What the cells and the tiers have of a prompt, without a job for it. Changes nothing; engine thread only."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

from shepherd.engine.base import CachedPrefix, Span
from shepherd.engine.kv.ledger import Match
from shepherd.engine.kv.pool import Pool


def held(pool: Pool, tokens: array[int], spans: Sequence[Span], *, holes: bool) -> CachedPrefix:
    """What a job with this prompt would reuse: from the cells or from a snapshot, whichever has more.

    holes: whether the job may continue a conversation that has lost turns. The last token is never included: a job
    always computes it.
    """
    match = pool.ledger.find(tokens, holes=holes, spans=spans)
    found = pool.snapshots.find(tokens[:-1], holes=holes, spans=spans)
    tier: Literal["cells", "memory", "disk"] = "cells"
    if found is not None and spared(found.match, holes=holes) > spared(match, holes=holes):
        match, tier = found.match, "memory" if found.in_ram else "disk"
    if match is None:
        return CachedPrefix()
    runs = tuple((run.start, run.stop) for run in match.resident.runs)
    return CachedPrefix(match.length, runs, tier).until(match.length)


def spared(match: Match | None, *, holes: bool) -> int:
    """Number of prompt tokens that need no computation.

    With holes, evicted tokens count too: a snapshot from before the eviction is no better, it would bring them back.
    """
    if match is None:
        return 0
    return match.length if holes else match.saved


def beginning_with(pool: Pool, tokens: array[int]) -> list[array[int]]:
    """The tokens (evicted ones too) of every cached or saved conversation that is longer and begins with `tokens`."""
    known = [resident.tokens for resident in pool.ledger]
    known += [outline.tokens for outline in pool.snapshots.outlines().values()]
    return [other[:] for other in known if len(other) > len(tokens) and other[: len(tokens)] == tokens]
