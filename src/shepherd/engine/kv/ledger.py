"""The ledger: which tokens are in the KV cache, at which positions, and which sequences share them. Pure.

Every sequence is a *logical* list of tokens, evicted ones included, and the *runs* of it that are resident (in cells).
A client that resends a whole history is matched against the logical list; evicted tokens of it stay evicted.

    tokens     s s s s | t t t t t t t | t t t | a a a |     logical indexes
    resident   [run 0 ]  . . evicted .  [run 1         ]
    positions  0 1 2 3                   11 12 13 ...        holes stay holes until a rebase closes them

Methods change the ledger and return the operations that make the runtime follow (`base.Op`); the pool applies them
and compares (`check`). Counts, positions and cached lengths are derived, never kept twice (K3, K4, K10).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter

from shepherd.core import Evicted
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.engine.base import UNOWNED, Copy, Forget, Memory, Op, Owner, Remove, Saved, Shift, Span
from shepherd.engine.media import whole

SINK = 4
"""First tokens that are never evicted: attention needs them as a sink (StreamingLLM, Xiao et al. 2023)."""


@dataclass(slots=True)
class Run:
    """A resident range: tokens `[start, stop)` of a sequence, at consecutive positions from `position` on."""

    start: int
    stop: int
    position: int
    block: int
    """Two sequences share a cell if they agree in block and position."""

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.position + self.stop - self.start


_STOP = attrgetter("stop")


@dataclass(slots=True, eq=False)
class Resident:
    """One sequence. Only the ledger and the pool change it."""

    id: int
    block: int
    """The block of its next tokens; no other sequence holds a cell of it behind this sequence's end."""
    tokens: array[int] = field(default_factory=lambda: array("i"))
    runs: list[Run] = field(default_factory=list)
    spans: tuple[Span, ...] = ()
    n_prompt: int = 0
    """Logical index at which its last generation began."""
    checkpoints: list[tuple[int, Saved]] = field(default_factory=list)
    """Logical lengths, ascending, each with the state saved there that cannot be rolled back. Forks share the bytes."""
    n_system: int = 0
    """Leading tokens that are the system prompt and the tools (`Job.n_system`)."""
    n_pure: int = 0
    """Leading tokens that were computed piece by piece (`Memory.piece`), and nothing else before or between them."""
    low: int = 0
    """The lowest position that a sliding window still holds, as the runtime reported last."""
    live: bool = False
    """A job computes it."""
    aside: bool = False
    """A tail that waits for the tokens before it; no job may use it."""
    used_at: int = 0
    """Rank of its last use."""
    session: str | None = None
    owner: Owner = UNOWNED
    background: bool = False
    """Only background jobs have used it."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_resident(self) -> int:
        return sum(run.stop - run.start for run in self.runs)

    @property
    def end(self) -> int:
        """The position of the next token."""
        return self.runs[-1].end if self.runs else 0

    @property
    def n_whole(self) -> int:
        """Number of leading tokens that are all resident."""
        return next((start for start, _ in self.gaps()), len(self.tokens))

    @property
    def n_in_place(self) -> int:
        """Number of leading tokens that are all resident, each at the position of its index."""
        at = 0
        for run in self.runs:
            if not run.start == run.position == at:
                break
            at = run.stop
        return at

    def run_at(self, index: int) -> int:
        """The number of the first run with a token at or after `index`; how many there are if none has."""
        return bisect_right(self.runs, index, key=_STOP)

    def runs_in(self, start: int, stop: int) -> Iterator[tuple[Run, int, int]]:
        """The runs with tokens in `[start, stop)`, in order, each with the range of these; O(log) for the others."""
        at = self.run_at(start)
        while start < stop and at < len(self.runs) and (run := self.runs[at]).start < stop:
            yield run, max(run.start, start), min(run.stop, stop)
            at += 1

    def n_resident_in(self, start: int, stop: int) -> int:
        return sum(high - low for _, low, high in self.runs_in(start, stop))

    def position_of(self, index: int) -> int:
        """The position of the first resident token at or after `index`; the end if there is none."""
        at = self.run_at(index)
        return self.runs[at].position + max(0, index - self.runs[at].start) if at < len(self.runs) else self.end

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The logical ranges that have been evicted."""
        at = 0
        for run in self.runs:
            if run.start > at:
                yield at, run.start
            at = run.stop
        if at < len(self.tokens):
            yield at, len(self.tokens)

    def reach(self, length: int, memory: Memory) -> int:
        """The largest length, at most `length`, to which the sequence can be cut back."""
        if memory.piece:
            length = min(length, self.n_pure)
            return length - length % memory.piece if memory.rollback == "any" else 0
        if length >= len(self.tokens) or memory.rollback == "any":
            return min(length, len(self.tokens))
        if memory.rollback == "window" and self.low <= max(0, self.position_of(length) - memory.window):
            return length
        return self.saved_before(length)

    def saved_before(self, length: int) -> int:
        """The largest length, at most `length`, that there is a checkpoint of; 0 without one."""
        return max((at for at, _ in self.checkpoints if at <= length), default=0)

    def state_at(self, length: int) -> Saved | None:
        return next((state for at, state in self.checkpoints if at == length), None)


@dataclass(frozen=True, slots=True)
class Match:
    """The part of a prompt that a sequence has."""

    resident: Resident
    length: int
    """Leading logical tokens that need no computation, evicted ones included."""
    saved: int
    """Those of them that are in cells."""

    def spared(self, *, holes: bool) -> int:
        """Number of prompt tokens that need no computation.

        With holes, evicted tokens count too: a snapshot from before the eviction is no better, since it would bring
        them back.
        """
        return self.length if holes else self.saved


@dataclass(frozen=True, slots=True)
class TurnEviction:
    """A turn to evict, or a part of a message."""

    ranges: tuple[tuple[int, int], ...]
    """Logical token ranges."""
    first: int
    """Index of its first message that leaves."""
    last: int
    """Index of its last message that leaves."""
    messages: int
    tokens: int
    """Tokens that are resident, or would be computed otherwise."""
    gone: tuple[int, ...] = ()
    """Indexes of the messages of which nothing stays."""
    part_of: int | None = None
    """The message of which only a part leaves."""


def evicted(turns: Sequence[TurnEviction]) -> Evicted:
    """The step that reports these turns."""
    return Evicted(
        sum(turn.messages for turn in turns),
        sum(turn.tokens for turn in turns),
        tuple(index for turn in turns for index in turn.gone),
        tuple(dict.fromkeys(turn.part_of for turn in turns if turn.part_of is not None)),
    )


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not enough tokens can be evicted."""

    needed: int
    """Tokens that must leave."""
    evictable: int
    """Tokens that can leave."""


class Ledger:
    def __init__(self, n_cells: int, n_seq: int, memory: Memory) -> None:
        self.n_cells = n_cells
        self.memory = memory
        self._sequences: dict[int, Resident] = {}
        self._free_ids = list(range(n_seq - 1, -1, -1))
        self._n_blocks = 0
        self._n_uses = 0
        self._used = 0
        self._stale = False
        """`_used` must be counted again."""

    # -- looking -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._sequences.values())

    def __contains__(self, resident: Resident) -> bool:
        return self._sequences.get(resident.id) is resident

    @property
    def used(self) -> int:
        if self._stale:
            self._used = _covered(run for resident in self for run in resident.runs)
            self._stale = False
        return self._used

    @property
    def free(self) -> int:
        return self.n_cells - self.used

    @property
    def has_free_id(self) -> bool:
        return bool(self._free_ids)

    @property
    def free_ids(self) -> Sequence[int]:
        return self._free_ids

    def used_without(self, leaving: Iterable[Resident]) -> int:
        """Cells that would still hold a token if these sequences were forgotten."""
        gone = {resident.id for resident in leaving}
        return _covered(run for resident in self if resident.id not in gone for run in resident.runs)

    def used_if(self, source: Resident | None, kept: Sequence[tuple[int, int]]) -> int:
        """Number of cells used by live sequences and by the `kept` logical ranges of `source`, without all others."""
        runs = [run for resident in self if resident.live for run in resident.runs]
        if source is not None:
            runs += [
                replace(run, start=low, stop=high, position=run.position + low - run.start)
                for range_ in kept
                for run, low, high in source.runs_in(*range_)
            ]
        return _covered(runs)

    def idle(self) -> list[Resident]:
        """The sequences that are not live: those of background jobs first, then the least recently used first."""
        idle = (resident for resident in self if not resident.live)
        return sorted(idle, key=lambda resident: (not resident.background, resident.used_at))

    def find(
        self,
        prompt: array[int],
        owner: Owner = UNOWNED,
        *,
        holes: bool,
        spans: Sequence[Span] = (),
        without: Sequence[Resident] = (),
    ) -> Match | None:
        """The sequence that has most of `prompt`, with at least one token left to decode (K5); what is cleared of it
        does not count.

        Without `holes` only tokens before a sequence's first evicted token count: the caller wants its whole prompt
        computed. Sequences in `without` are ignored. If the memory cannot share any range, those of other owners are
        ignored too, and live ones lend what they have a checkpoint of.
        """
        kept = [span for span in spans if span.keep]
        cleared = [span for span in spans if span.cleared] if self.memory.hole else []
        best: Match | None = None
        highest = (0, False, 0)
        for resident in self:
            is_own = resident.owner.can_share(owner)
            if resident.aside or resident in without or not (is_own or self.memory.share):
                continue
            length = shared_prefix(prompt, owner, resident.tokens, resident.owner)
            length = min(length, len(prompt) - 1)
            if resident.live and not self.memory.share:
                length = resident.saved_before(length)
            if length < highest[0]:
                continue
            match = usable(resident, length, self.memory, holes=holes and is_own, kept=kept, spans=spans)
            if not is_own and match.length < owner.n_common:
                continue
            if match.saved and (best is None or _rank(match, cleared) > highest):
                best, highest = match, _rank(match, cleared)
        return best

    def find_holder(self, tokens: array[int], n: int, owner: Owner, other: Resident | None = None) -> Resident | None:
        """A sequence of `owner`, but not `other`, that has the first `n` of these tokens in place; None without one."""
        for resident in self:
            is_other = resident is not other and resident.owner.can_share(owner) and not resident.aside
            if is_other and resident.n_in_place >= n and resident.tokens[:n] == tokens[:n]:
                return resident
        return None

    # -- changing ----------------------------------------------------------------------------------------------------

    def new(self, owner: Owner = UNOWNED) -> Resident:
        """Add an empty sequence. There must be a free id."""
        resident = Resident(self._free_ids.pop(), self._new_block(), owner=owner)
        self._sequences[resident.id] = resident
        self.touch(resident)
        return resident

    def adopt(self, tokens: array[int], runs: Iterable[tuple[int, int, int]], owner: Owner) -> Resident:
        """Add a sequence whose state is about to be loaded: `runs` are (start, stop, position)."""
        resident = self.new(owner)
        resident.tokens = tokens[:]
        resident.runs = [Run(start, stop, position, resident.block) for start, stop, position in runs]
        self._stale = True
        return resident

    def touch(self, resident: Resident) -> None:
        self._n_uses += 1
        resident.used_at = self._n_uses

    def extend(self, resident: Resident, tokens: Sequence[int]) -> None:
        """Record that `tokens` were decoded after its last position."""
        start, n = len(resident.tokens), len(tokens)
        if n == self.memory.piece and start == resident.n_pure:
            resident.n_pure += n
        last = resident.runs[-1] if resident.runs else None
        if last is not None and last.stop == start and last.block == resident.block:
            last.stop += n
        else:
            resident.runs.append(Run(start, start + n, resident.end, resident.block))
        resident.tokens.extend(tokens)
        self._used += n

    def skip(self, resident: Resident, tokens: Sequence[int]) -> None:
        """Record that `tokens` come next in the conversation and are evicted without having been computed."""
        resident.tokens.extend(tokens)

    def cut(self, resident: Resident, length: int) -> list[Op]:
        """Remove everything from logical index `length` on."""
        if length >= len(resident.tokens):
            return []
        position = resident.position_of(length)
        ops: list[Op] = [Remove(resident.id, position)] if position < resident.end else []
        resident.runs = [run for run in resident.runs if run.start < length]
        if resident.runs:
            resident.runs[-1].stop = min(resident.runs[-1].stop, length)
        del resident.tokens[length:]
        resident.n_pure = min(resident.n_pure, length)
        resident.checkpoints = [(at, state) for at, state in resident.checkpoints if at <= length]
        self._stale = True
        return ops

    def evict(self, resident: Resident, ranges: Iterable[tuple[int, int]]) -> list[Op]:
        """Remove logical ranges, which leaves holes. Tokens there that are not resident are ignored."""
        ops: list[Op] = []
        for start, stop in ranges:
            first = resident.run_at(start)
            cut = list(resident.runs_in(start, stop))
            left: list[Run] = []
            for run, low, high in cut:
                offset = run.position - run.start
                ops.append(Remove(resident.id, low + offset, high + offset))
                if run.start < low:
                    left.append(replace(run, stop=low))
                if high < run.stop:
                    left.append(replace(run, start=high, position=high + offset))
            resident.runs[first : first + len(cut)] = left
        self._stale = True
        return ops

    def fork(self, source: Resident, length: int) -> tuple[Resident, list[Op]]:
        """Add a sequence that shares the first `length` tokens of `source`. There must be a free id."""
        target = self.new(source.owner)
        target.tokens = source.tokens[:length]
        target.runs = [replace(run, stop=min(run.stop, length)) for run in source.runs if run.start < length]
        # Both continue in blocks of their own: the same position means different cells from here on.
        source.block = self._new_block()
        return target, [Copy(source.id, target.id, 0, target.end)] if target.runs else []

    def splice(self, resident: Resident, parked: Resident, start: int, stop: int) -> list[Op]:
        """Append tokens `[start, stop)` of `parked`, all resident there, to `resident`, and remove `parked`.

        Their positions stay the same and must lie behind the end of `resident`.
        """
        low, high = parked.position_of(start), parked.position_of(start) + stop - start
        offset = len(resident.tokens) - start
        for run, first, last in parked.runs_in(start, stop):
            position = run.position + first - run.start
            resident.runs.append(Run(first + offset, last + offset, position, run.block))
        resident.tokens.extend(parked.tokens[start:stop])
        self._stale = True
        return [Copy(parked.id, resident.id, low, high), *self.forget(parked)]

    def close_gaps(self, resident: Resident) -> list[Op]:
        """Move everything behind a hole in the positions forward. No moved cell may be shared."""
        ops: list[Op] = []
        resident.block = self._new_block()
        at = moved = 0
        for run in resident.runs:
            gap = run.position - moved - at
            if gap:
                # The gaps before this one are closed already, so this run has moved by their size.
                ops.append(Shift(resident.id, run.position - moved, -gap))
                moved += gap
            if moved:
                run.position -= moved
                run.block = resident.block
            at = run.end
        self._stale = True
        return ops

    def restart(self, resident: Resident) -> list[Op]:
        """Empty a sequence and keep its id."""
        resident.tokens = array("i")
        resident.runs = []
        resident.checkpoints = []
        resident.n_pure = 0
        self._stale = True
        return [Forget(resident.id)]

    def forget(self, resident: Resident) -> list[Op]:
        """Remove a sequence and free its id."""
        del self._sequences[resident.id]
        self._free_ids.append(resident.id)
        self._stale = True
        return [Forget(resident.id)]

    def is_shared(self, resident: Resident, start: int) -> bool:
        """Whether another sequence holds a cell of this one at or after position `start`."""
        mine = [(run.block, max(run.position, start), run.end) for run in resident.runs if run.end > start]
        for run in (run for other in self if other is not resident for run in other.runs):
            at = bisect_right(mine, run.position, key=itemgetter(2))
            while at < len(mine) and mine[at][1] < run.end:
                if mine[at][0] == run.block:
                    return True
                at += 1
        return False

    # -- checking ----------------------------------------------------------------------------------------------------

    def check(self, resident: Resident, held: tuple[int, int]) -> None:
        """Compare with the positions that the runtime reports. Raises: `LedgerError`."""
        expected = (resident.runs[0].position, resident.end - 1) if resident.runs else (-1, -1)
        # Sliding windows and recurrent states drop their first positions by themselves.
        keeps_all = self.memory.rollback == "any" and not self.memory.window
        low_fits = held[0] == expected[0] if keeps_all else expected[0] <= held[0] <= expected[1]
        if held[1] != expected[1] or not (low_fits or not resident.runs):
            raise LedgerError(
                f"sequence {resident.id}: the ledger has positions {expected[0]} to {expected[1]}, "
                f"the KV cache {held[0]} to {held[1]}"
            )

    def check_self(self) -> None:
        """Check that the ledger is consistent. For tests: O(all runs). Raises: `LedgerError`."""
        for resident in self:
            at, position = 0, 0
            for run in resident.runs:
                if not (at <= run.start < run.stop and position <= run.position):
                    raise LedgerError(f"sequence {resident.id}: its runs are out of order: {resident.runs}")
                at, position = run.stop, run.end
            if at > len(resident.tokens):
                raise LedgerError(f"sequence {resident.id}: a run ends behind its last token")
            if any(o.block == resident.block and o is not resident for o in self):
                raise LedgerError(f"sequence {resident.id}: another sequence writes to its block")
        counted = _covered(run for resident in self for run in resident.runs)
        if counted != self.used or counted > self.n_cells:
            raise LedgerError(f"the ledger counts {self.used} used cells, its runs have {counted} of {self.n_cells}")

    def _new_block(self) -> int:
        self._n_blocks += 1
        return self._n_blocks


class LedgerError(AssertionError):
    """Ledger and KV cache disagree: a bug of the engine. It drops the sequence and never computes with a wrong one."""


def usable(
    resident: Resident,
    length: int,
    memory: Memory,
    *,
    holes: bool,
    kept: Sequence[Span] = (),
    spans: Sequence[Span] = (),
) -> Match:
    """How much of the first `length` tokens, which a prompt has in common with `resident`, a job can reuse.

    Of the prompt's `spans`, those in `kept` must be resident as a whole, and so must the one that `length` cuts, and
    those that an earlier prompt has cleared and this one has not. Cells and snapshots are judged by this one function,
    so a restored snapshot is as useful as it was planned.
    """
    if left := {span.start for span in resident.spans if span.cleared}:
        kept = [*kept, *(span for span in spans if span.start in left and not span.cleared)]
    if not holes:
        length = min(length, resident.n_whole)
    while True:
        length = whole(resident.tokens, length)
        reach = resident.reach(length, memory)
        lost = _first_lost(resident, reach, kept, spans) if reach > resident.n_whole else reach
        if reach == length == lost:
            break
        length = min(reach, lost)
    return Match(resident, length, resident.n_resident_in(0, length))


def _first_lost(resident: Resident, reach: int, kept: Sequence[Span], spans: Sequence[Span]) -> int:
    """The start of the first span that must be whole and has lost tokens; `reach` if there is none."""
    at = bisect_left(spans, reach, key=lambda span: span.stop)
    cut = [span for span in spans[at : at + 1] if span.start < reach]
    for span in [*(span for span in kept if span.start < reach), *cut]:
        stop = min(span.stop, reach)
        if resident.n_resident_in(span.start, stop) < stop - span.start:
            return span.start
    return reach


def shared_prefix(prompt: array[int], owner: Owner, tokens: array[int], theirs: Owner) -> int:
    """How many leading tokens of a prompt may be taken from `tokens`: of another owner's what both call common, if it
    is equal, else nothing; nothing that was computed with other adapters."""
    if owner.adapters != theirs.adapters:
        return 0
    if owner.name == theirs.name:
        return common_prefix(tokens, prompt)
    n = owner.n_common
    return n if n and n == theirs.n_common and tokens[:n] == prompt[:n] else 0


def common_prefix(a: array[int], b: array[int]) -> int:
    """The length of the longest common prefix. O(n), at memory speed: whole blocks are compared first."""
    n = min(len(a), len(b))
    block = 4096
    start = 0
    while start < n and a[start : start + block] == b[start : start + block]:
        start += block
    if start >= n:
        return n
    low, high = start, min(start + block, n)
    while low < high:  # the first difference lies in [low, high]
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def find_last(run: array[int], tokens: array[int], start: int = 0) -> int | None:
    """The index at which `run` stands last in `tokens`, from `start` on; None if nowhere. O(n), at memory speed."""
    sought, text, size = run.tobytes(), tokens.tobytes(), tokens.itemsize
    at = text.rfind(sought, start * size)
    while at >= 0 and at % size:  # the bytes stand across tokens, which are others
        at = text.rfind(sought, start * size, at + len(sought) - 1)
    return at // size if at >= 0 else None


def _rank(match: Match, cleared: Sequence[Span]) -> tuple[int, bool, int]:
    """More saved tokens first, without those that leave; then a sequence that loses nothing, then the most recently
    used."""
    resident, length = match.resident, match.length
    leaving = sum(resident.n_resident_in(span.start, min(span.stop, length)) for span in cleared if span.start < length)
    return match.saved - leaving, length == len(resident), resident.used_at


def _covered(runs: Iterable[Run]) -> int:
    """Number of cells that the runs occupy, shared ones counted once."""
    total, block, end = 0, -1, 0
    for at, start, stop in sorted((run.block, run.position, run.end) for run in runs):
        if at != block:
            block, end = at, 0
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
