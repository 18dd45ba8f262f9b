"""What the engine knows of a prompt before anybody asks for an answer to it. Looks only; engine thread."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

from shepherd.engine.base import Held, Span
from shepherd.engine.kv.ledger import Match
from shepherd.engine.kv.pool import Pool
from shepherd.engine.kv.tiers import SnapshotMatch


def held(pool: Pool, tokens: array[int], spans: Sequence[Span], *, holes: bool) -> Held:
    """What a request with this prompt would find: in the cells, or saved, whichever is more.

    `holes`: whether it may go on from a conversation that has lost turns. The last token is never there: a request
    computes it anew.
    """
    match = pool.ledger.find(tokens, holes=holes, spans=spans)
    found = pool.snapshots.find(tokens[:-1], holes=holes, spans=spans)
    tier: Literal["cells", "memory", "disk"] = "cells"
    if found is not None and spared(found, holes=holes) > spared(match, holes=holes):
        match, tier = found.match, "memory" if found.in_ram else "disk"
    if match is None:
        return Held()
    return Held(match.length, tuple((run.start, run.stop) for run in match.resident.runs), tier).until(match.length)


def spared(what: Match | SnapshotMatch | None, *, holes: bool) -> int:
    """Tokens of a prompt that need not be computed.

    With holes, those that have left count: what was saved before they did is no better, it would bring them back.
    """
    if what is None:
        return 0
    return what.length if holes else what.saved


def beginning_with(pool: Pool, tokens: array[int]) -> list[array[int]]:
    """The tokens of every conversation, held or saved, that begins with these and goes on; evicted ones included."""
    known = [resident.tokens for resident in pool.ledger]
    known += [outline.tokens for outline in pool.snapshots.outlines().values()]
    return [other[:] for other in known if len(other) > len(tokens) and other[: len(tokens)] == tokens]
