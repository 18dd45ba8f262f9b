"""How a prompt comes into the cache: what is reused, evicted and computed. Pure; the pool carries the plan out.

prompt      S S S S | t t t t | t t t t | u u u | a
source      S S S S | t t t t | t t t t | x x x x x        the sequence that has most of it
evictions             - - - -                              early parts, then whole turns, down to the low-water mark
todo                                      u u u | a        never empty: sampling needs fresh logits
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from operator import sub

from shepherd.core.dataclasses import dataclass
from shepherd.engine.base import Job, Memory, Span
from shepherd.engine.kv.ledger import (
    SINK,
    Ledger,
    Match,
    NoRoom,
    Resident,
    TurnEviction,
    common_prefix,
    find_last,
    usable,
)

ANCHOR = 16
"""Number of last tokens by which a tail is found."""
WORTH_SPLICING = 32
"""Fewest tokens of a tail; computing fewer again is as cheap."""

Range = tuple[int, int]
"""Logical indexes, half open."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much room there is for one conversation."""

    n_ctx: int
    low_water: float
    """Share of `n_ctx` that stays filled after an eviction."""
    n_positions: int
    """Positions that may be used; 0 = no limit."""

    @property
    def n_low(self) -> int:
        return int(self.n_ctx * self.low_water)


@dataclass(frozen=True, slots=True)
class Tail:
    """Equal tokens behind an edit: `[start, stop)` of the source, from index `at` on in the prompt."""

    start: int
    stop: int
    at: int

    @property
    def end(self) -> int:
        return self.at + self.stop - self.start


@dataclass(frozen=True, slots=True)
class Plan:
    source: Resident | None
    length: int
    """Logical tokens of the source that stay, evicted ones included."""
    evictions: tuple[TurnEviction, ...]
    cleared: tuple[Range, ...]
    """What leaves because it is no part of the prompt any more."""
    todo: tuple[Range, ...]
    n_cached: int
    n_new: int
    n_cells: int
    """Cells in use afterwards, without the cells that only idle sequences need."""
    close_gaps: bool = False
    """Positions run out: close the holes first."""
    tail: Tail | None = None
    """To be put behind the first range once that is computed; until then the source is cut before the tail."""
    matched: int = 0
    """Logical tokens of the source that the prompt continues; more than `length` where it goes back further, to leave
    out turns or to free positions."""
    replaced: Resident | None = None
    """The sequence that is built again from nothing, because it cannot be cut back far enough."""


def plan(
    ledger: Ledger,
    tokens: array[int],
    job: Job,
    match: Match | None,
    *,
    limits: Limits,
    reserve: int,
    reuse_tail: bool = False,
) -> Plan | NoRoom:
    """How to continue from `match` to `tokens`, so that `reserve` more tokens fit behind them.

    reuse_tail: whether tokens behind an edit may be kept although they were computed with the old text.

    `NoRoom` has the counts of tokens that are missing and that could be evicted.
    """
    source, length = (match.resident, match.length) if match else (None, 0)
    gone = [(start, min(stop, length)) for start, stop in source.gaps() if start < length] if source else []
    cleared = cleared_ranges(job) if ledger.memory.hole else []
    absent = [*gone, *cleared]
    needed = size(remaining(0, len(tokens), absent)) + reserve
    evictions = leaving(job, absent, needed, n_ctx=limits.n_ctx, n_low=limits.n_low, n_turns=job.n_turns_to_evict)
    if isinstance(evictions, NoRoom):
        return evictions
    leaves = [range_ for turn in evictions for range_ in turn.ranges]
    leaves += [range_ for range_ in cleared if source is not None and source.n_resident_in(*range_)]
    is_own = source is None or source.owner.can_share(job.owner)
    close_gaps = False
    if source is not None:
        if leaves and not ledger.memory.hole:
            # This memory cannot remove tokens in the middle: go back to before the first token that leaves.
            first = min(start for start, _ in leaves)  # parts may leave before turns that are older
            length = usable(source, min(length, first), ledger.memory, holes=True).length
        end = source.position_of(length) + len(tokens) - length + reserve
        if limits.n_positions and end > limits.n_positions:
            first = min([start for start, _ in [*gone, *leaves] if start < length], default=length)
            if ledger.memory.shift and not (source.live or ledger.is_shared(source, source.position_of(first))):
                close_gaps = True
            else:
                length = usable(source, min(length, first), ledger.memory, holes=True).length
    tail = None
    if source is not None and is_own and not leaves and not close_gaps and not source.live and length:
        tail = find_tail(source, tokens, length, ledger.memory)
        if tail is not None and not reuse_tail:
            # `reuse_tail` is off: keep the tail only if everything between was evicted and nothing takes its place.
            # Then the client sends exactly what the cache holds, and the tail was computed with this beginning.
            has_left = job.on_full == "evict" and not source.n_resident_in(length, tail.start) and tail.at == length
            tail = tail if has_left else None
    without = [*absent, *leaves]
    kept = remaining(0, length, without)
    todo = remaining(length, len(tokens), without)
    if tail is not None:
        todo = [range_ for range_ in ((length, tail.at), (tail.end, len(tokens))) if range_[0] < range_[1]]
        kept = [*kept, (tail.start, tail.stop)]
    n_new = size(todo)
    return Plan(
        source=source if length else None,
        length=length,
        evictions=tuple(evictions),
        cleared=tuple(cleared),
        todo=tuple(todo),
        n_cached=size(kept),
        n_new=n_new,
        n_cells=ledger.used_if(source, kept) + n_new,
        close_gaps=close_gaps,
        tail=tail,
        matched=match.length if match is not None else 0,
        replaced=None if length or not is_own else source,
    )


def find_tail(source: Resident, tokens: array[int], length: int, memory: Memory) -> Tail | None:
    """The end of `source` if it occurs again in a prompt that differs from it at `length`.

    The new middle must not be longer than the old one: positions cannot be moved apart.
    """
    if not (memory.share and memory.hole and memory.rollback == "any"):
        return None
    for stop in dict.fromkeys((len(source), min(source.n_prompt, len(source)))):
        anchor = source.tokens[max(length, stop - ANCHOR) : stop]
        if len(anchor) < ANCHOR or (at := find_last(anchor, tokens, length)) is None:
            continue
        end = at + ANCHOR
        n = common_prefix(source.tokens[length:stop][::-1], tokens[length:end][::-1])
        start, at = stop - n, end - n
        n -= end == len(tokens)  # the last token is always computed
        if n < WORTH_SPLICING or source.n_resident_in(start, start + n) < n:
            continue
        if min(source.tokens[length : start + n]) < 0 or min(tokens[length : at + n]) < 0:
            continue  # with an image between or within, positions may not be as far apart as tokens
        if source.position_of(length) + at - length <= source.position_of(start):
            return Tail(start, start + n, at)
    return None


def evictable_turns(
    spans: Sequence[Span], gone: Sequence[Range], *, excess: int, wish: int, n_turns: int = 0
) -> list[TurnEviction] | NoRoom:
    """What frees at least `excess` tokens, if possible `wish`, and has at least `n_turns` turns: early parts, then the
    oldest turns, then, for `excess` only, what is late.

    `gone`: the ranges that have been evicted before. Kept spans are never evicted, nor are the first tokens of all
    (`SINK`).
    """
    n_left = counting(gone)
    chosen: list[TurnEviction] = []
    freed = 0
    taken: set[int] = set()

    def leave(group: Sequence[Span], *, is_part: bool = False) -> bool:
        nonlocal freed
        going = [s for s in group if s.stop not in taken and n_left(max(s.start, SINK), s.stop) > 0]
        if not going:
            return False
        taken.update(span.stop for span in going)
        ranges = tuple((max(span.start, SINK), span.stop) for span in going)
        tokens = sum(n_left(*range_) for range_ in ranges)
        first, last, whole = going[0].message, going[-1].message, tuple(dict.fromkeys(s.message for s in going))
        part_of = first if is_part else None
        chosen.append(
            TurnEviction(ranges, first, last, 0 if is_part else len(going), tokens, () if is_part else whole, part_of)
        )
        freed += tokens
        return True

    movable = [span for span in spans if not span.keep]
    for span in sorted((span for span in movable if span.early > 0), key=lambda span: (-span.early, span.start)):
        if freed >= max(excess, wish):
            break
        leave([span], is_part=True)
    for _, turn in groupby((span for span in movable if span.early >= 0), key=lambda span: span.turn):
        if freed >= max(excess, wish) and n_turns <= 0:
            break
        n_turns -= leave(list(turn))
    late = sorted((span for span in movable if span.early < 0), key=lambda span: (-span.early, span.start))
    for _, turn in groupby(late, key=lambda span: (span.early, span.turn)):
        if freed >= excess:
            break
        leave(list(turn))
    return chosen if freed >= excess else NoRoom(excess, freed)


def leaving(
    job: Job, absent: Sequence[Range], needed: int, *, n_ctx: int, n_low: int, n_turns: int
) -> list[TurnEviction] | NoRoom:
    """The turns that leave so that `needed` tokens fit, down to `n_low`, and `n_turns` in any case.

    absent: the ranges that have left before.
    """
    if needed <= n_ctx and not n_turns:
        return []
    wish = needed - n_low if needed > n_ctx else 0
    chosen = evictable_turns(job.spans, absent, excess=needed - n_ctx, wish=wish, n_turns=n_turns)
    return chosen if isinstance(chosen, NoRoom) or job.on_full == "evict" else NoRoom(needed - n_ctx, 0)


def kept_tokens(job: Job) -> int:
    return len(job.tokens) - sum(max(0, span.stop - max(span.start, SINK)) for span in job.spans if not span.keep)


def cleared_ranges(job: Job) -> list[Range]:
    """The tokens that are no part of the prompt any more. The last token of all always is, even in a cleared span."""
    ranges = ((max(span.start, SINK), min(span.stop, len(job.tokens) - 1)) for span in job.spans if span.cleared)
    return [(start, stop) for start, stop in ranges if start < stop]


def remaining(start: int, stop: int, without: Sequence[Range]) -> list[Range]:
    left: list[Range] = []
    for low, high in sorted(without):
        if high <= start or low >= stop:
            continue
        if low > start:
            left.append((start, low))
        start = max(start, high)
    if start < stop:
        left.append((start, stop))
    return left


def counting(without: Sequence[Range]) -> Callable[[int, int], int]:
    """A function that returns how many tokens of `[start, stop)` are not in `without`, each time in O(log)."""
    ranges = joined(without)
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    sums = list(accumulate(map(sub, stops, starts), initial=0))

    def n_before(index: int) -> int:
        at = bisect_left(starts, index)
        return sums[at] - max(0, stops[at - 1] - index) if at else 0

    return lambda start, stop: max(0, stop - start - n_before(stop) + n_before(start))


def joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same indexes as ranges in order that neither overlap nor touch."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def size(ranges: Sequence[Range]) -> int:
    return sum(stop - start for start, stop in ranges)
