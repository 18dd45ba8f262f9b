"""The pool: a ledger, a runtime that follows it, and the tiers for conversations that leave. Engine thread only.

    ledger  ── ops ──▶ runtime        the ledger decides, the runtime acts, `settle` compares the two
       │
       └── idle sequences ──▶ snapshots (host RAM, disk) ──▶ back again

Every method leaves ledger and runtime in agreement: if an operation fails, its sequence is removed from both.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from shepherd.core import EngineError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.base import CachedPrefix, Chunk, Copy, Forget, Op, Owner, Remove, Runtime, Span
from shepherd.engine.kv.checkpoint import CHECKPOINT_BYTES, Checkpoints
from shepherd.engine.kv.ledger import Ledger, LedgerError, Match, Resident, common_prefix
from shepherd.engine.kv.plan import Plan, Range, Tail, joined
from shepherd.engine.kv.tiers import Snapshot, SnapshotMatch, Snapshots
from shepherd.engine.kv.tiers.arena import Arena
from shepherd.engine.prefill import CHUNK, STRIDE, strides
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Display, Drawn, Kind, Moved, Part, Picture, Seq, Tier

logger = logging.getLogger(__name__)

WORTH_SAVING = 32
"""Fewest tokens of an idle sequence, not held by others, to save; of a short one a `SMALL_PART`."""
SMALL_PART = 8
"""Saving and loading so many tokens costs less than computing one of them."""
WORTH_SHARING = 32
"""Fewest common tokens to share with a long idle conversation if idle cells cost time: llama.cpp reads all cells up to
the last used one, so a few cells that stay of it slow every decode as much as all of it. It leaves them instead."""
LEAST_BASE = 256
"""Fewest tokens of a system prompt to leave out of a conversation that is saved; fewer are copied as fast."""
N_LOGGED = 8
"""Snapshots, the newest ones, with which a prompt is compared for the log."""
REBASE_AT = 0.9
"""Share of the usable positions above which an idle conversation is rebased."""
FLUSH_S = 10.0
"""Longest time without progress in writing to disk when the engine closes."""
_KINDS: Mapping[str, Kind] = {"system": "system", "assistant": "assistant", "tool": "result"}
"""By the label of a span."""
SAVED_PART = 4
"""The checkpoints of one saved conversation take at most one part in so many of the host memory for all of them."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Where idle conversations go when their cells are needed."""

    ram_bytes: int = 0
    folder: Path | None = None
    """For snapshots on disk; None = no disk tier."""
    disk_bytes: int = 0
    arena: Arena | None = None
    """Memory that outlives this process, for those in host memory: then idle conversations are copied there early."""
    least_base: int = LEAST_BASE
    """Fewest tokens of a system prompt that a conversation in host memory leaves out while another one has them."""


def start_of(spans: Sequence[Span], message: int) -> int:
    """The first token of this message, or of the one behind it; 0 where there is none."""
    return next((span.start for span in spans if span.message >= message), 0)


class OperationRefused(Exception):
    """An operation could not be carried out, or is not worth it. A sequence that was changed half way is removed."""


class Pool:
    def __init__(
        self,
        runtime: Runtime,
        tiers: Tiers,
        *,
        name: str,
        on_ready: Callable[[], None],
        checkpoint_bytes: int = CHECKPOINT_BYTES,
    ) -> None:
        """
        on_ready: called on another thread after a snapshot has been fetched from disk, or an image was encoded.
        checkpoint_bytes: a cap on the checkpoints of all sequences in the cells; those in the tiers count there.
        """
        self.runtime = runtime
        self.on_ready = on_ready
        self.ledger = Ledger(runtime.n_ctx, runtime.n_seq, runtime.memory)
        self.checkpoints = Checkpoints(runtime, self.ledger, checkpoint_bytes)
        self.totals = CacheStats(runtime.n_ctx)
        """What has happened on this cache."""
        self.display = Display()
        self.n_spliced = 0
        """Tails kept behind an edit; for tests."""
        self.token_s = 0.0
        """Seconds to compute one prompt token; decides what a snapshot is worth."""
        self._name = name
        self._ram_bytes = tiers.ram_bytes
        self._saved_room = tiers.ram_bytes // SAVED_PART or tiers.disk_bytes
        """Bytes for the checkpoints of one saved conversation."""
        self._token_bytes = 0.0
        """Bytes of a saved state per token; 0 = not known yet."""
        self._has_tiers = tiers.ram_bytes > 0 or tiers.folder is not None
        self._keeps_on_disk = tiers.folder is not None
        outliving = tiers.arena.part(name, runtime.fingerprint) if tiers.arena is not None else None
        self._keeps_copies = self._keeps_on_disk or outliving is not None
        self._least_base = tiers.least_base
        self._copied: dict[int, str] = {}
        """Sequence id -> the key of its last snapshot on disk, or in memory that outlives this process."""
        self.waits_for_disk = False
        """Whether a sequence is not saved yet because those before it are still being written."""
        self.parked: dict[int, Resident] = {}
        """Sequence id -> its tail, parked while the tokens before it are computed."""
        self.snapshots = Snapshots(
            runtime.fingerprint,
            runtime.memory,
            runtime.n_ctx,
            ram_bytes=tiers.ram_bytes,
            folder=tiers.folder,
            disk_bytes=tiers.disk_bytes,
            on_ready=on_ready,
            outliving=outliving,
        )

    # -- looking -------------------------------------------------------------------------------------------------------

    def find(
        self,
        tokens: array[int],
        owner: Owner,
        *,
        holes: bool,
        spans: Sequence[Span],
        without: Sequence[Resident] = (),
        bad: Container[str] = (),
        least_gain: int = 0,
    ) -> tuple[Match | None, SnapshotMatch | None]:
        """The best match of a prompt in the cells, and a snapshot that spares over `least_gain` tokens more, or a
        `SMALL_PART` of a short one.

        Sequences in `without` and keys in `bad` are ignored.
        """
        match = self.ledger.find(tokens, owner, holes=holes, spans=spans, without=without)
        own = (each for each in self.ledger if each.owner.can_share(owner) and not each.aside)
        n_held = max((min(each.n_in_place, common_prefix(each.tokens, tokens)) for each in own), default=0)
        found = self.snapshots.find(tokens[:-1], owner, holes=holes, spans=spans, without=bad, n_held=n_held)
        gain = (found.match.spared(holes=holes) if found else 0) - (match.spared(holes=holes) if match else 0)
        least = min(least_gain, found.match.resident.n_resident // SMALL_PART) if found else 0
        return match, found if gain > least else None

    def held(self, tokens: array[int], spans: Sequence[Span], owner: Owner, *, holes: bool) -> CachedPrefix:
        """What a job with this prompt would reuse: from the cells or from a snapshot, whichever has more.

        holes: whether the job may continue a conversation that has lost turns. The last token is never included: a job
        always computes it.
        """
        match, found = self.find(tokens, owner, holes=holes, spans=spans)
        tier: Literal["cells", "memory", "disk"] = "cells"
        if found is not None:
            match, tier = found.match, "memory" if found.in_ram else "disk"
        if match is None:
            return CachedPrefix()
        runs = tuple((run.start, run.stop) for run in match.resident.runs)
        return CachedPrefix(match.length, runs, tier).until(match.length)

    def beginning_with(
        self, tokens: array[int], owner: Owner, spans: Sequence[Span] = (), n_other: int = 0
    ) -> list[array[int]]:
        """The tokens, evicted ones too, of every conversation of `owner` that is longer and begins with these, or with
        others for the first `n_other` messages. `spans`: of the tokens."""
        known = [(each.tokens, each.spans) for each in self.ledger if each.owner.can_share(owner)]
        outlines = self.snapshots.outlines().values()
        known += [(each.tokens, each.spans) for each in outlines if each.owner.can_share(owner)]
        head, n = tokens[: start_of(spans, n_other)], len(tokens)
        found = [(other, start_of(own, n_other) if head else 0) for other, own in known if len(other) > n - len(head)]
        return [
            other[:]
            for other, start in found
            if (start and other[start : start + n - len(head)] == tokens[len(head) :]) or other[:n] == tokens
        ]

    def recent(self, owner: Owner) -> Iterator[Resident]:
        """All sequences, then the newest snapshots of `owner` as the sequences that they would make."""
        yield from self.ledger
        yield from self.snapshots.newest(owner, N_LOGGED)

    def tokens(self, seq: int, owner: str, start: int, stop: int) -> array[int]:
        """The tokens `[start, stop)` of a sequence; empty for none, and where it is another owner's."""
        found = next((each for each in self.ledger if each.id == seq and each.owner.name == owner), None)
        return found.tokens[start:stop] if found is not None else array("i")

    def pictures(self) -> dict[Seq, Picture]:
        """Every sequence in the cells, and every saved one that is no copy of one of these."""
        copies = set(self._copied.values())
        places: list[tuple[Seq, Resident, Tier]] = [(each.id, each, "cells") for each in self.ledger]
        places += [place for place in self.snapshots.places() if place[0] not in copies]
        known, drawn = self.display.drawn, dict[Seq, Drawn]()
        for seq, resident, tier in places:
            of, spans, picture = known.get(seq, (None, (), None))
            if picture is None or spans is not resident.spans:
                picture = _picture(seq, resident, tier, _parts(resident.spans))
            elif tier == "cells" or of is not resident or picture.tier != tier:  # a saved one does not change
                picture = _picture(seq, resident, tier, picture.parts)
            drawn[seq] = resident, resident.spans, picture
        self.display.drawn = drawn
        return {seq: picture for seq, (_, _, picture) in drawn.items()}

    # -- sequences -----------------------------------------------------------------------------------------------------

    def carry_out(self, plan: Plan, n_free: int, owner: Owner, *, background: bool = False) -> Resident:
        """The sequence for a plan, cut and evicted as planned, with `n_free` cells free for it.

        For a `background` job there must be enough room already: it changes no conversation. Nor is another owner's
        sequence ever changed.

        Raises: `OperationRefused` if the runtime refuses; try another plan.
        """
        old = plan.replaced
        if old is not None and not old.live and old.background >= background and old in self.ledger:
            self.forget(old)
        resident = self._start(plan, owner, background)
        resident.live, resident.owner = True, owner
        self.ledger.touch(resident)
        if plan.tail is not None and len(resident) == plan.tail.at:
            self.splice(resident, plan.tail)
        self.evict(resident, [*plan.cleared, *(range_ for turn in plan.evictions for range_ in turn.ranges)])
        if plan.close_gaps:
            self.close_gaps(resident)
        self.make_room(n_free)
        return resident

    def _start(self, plan: Plan, owner: Owner, background: bool) -> Resident:
        source, length = plan.source, plan.length
        if source is None:
            self._need_id(None)
            return self.ledger.new()
        if (background and not source.background) or not source.owner.can_share(owner):
            if plan.tail is not None or plan.close_gaps or not self._can_fork(source, length):
                raise OperationRefused  # such a job may share a conversation's cells, not change them
            return self._fork(source, length)
        if plan.tail is not None:
            if not self._can_fork(source, length):
                raise OperationRefused
            return self._part(source, plan.tail, length)
        newest = source.spans[-1].start if source.spans else 0
        loses_turns = not self.ledger.memory.share and length < plan.matched and plan.matched >= newest
        is_over = length >= self._answered_at(source) or plan.close_gaps or loses_turns
        leaves = self._costs_to_share(source, length) and self._has_tiers and self._has_ram_for(source)
        if not source.live and (is_over or leaves or not self._can_fork(source, length)):
            # A rewritten answer is not needed again; a sequence that branches off earlier may be another conversation.
            if not is_over and self._is_worth_saving(source):
                self._save(source)
            self.rewind(source, length)
            return source
        return self._fork(source, length)

    def _fork(self, source: Resident, length: int) -> Resident:
        if self._costs_to_share(source, length):
            raise OperationRefused
        state = None if self.ledger.memory.share else self.checkpoints.state_at(source, length)
        if state is None and not self.ledger.memory.share:
            raise OperationRefused
        if not self.ledger.has_free_id:
            self._need_id(source)
        target, ops = self.ledger.fork(source, length)
        target.checkpoints = [(at, state) for at, state in source.checkpoints if at <= length]
        self._do(target, ops)
        if state is not None:
            if not self.runtime.load(target.id, state, partial=True):
                self.apply(self.ledger.forget(target))
                raise OperationRefused
            target.low = max(self.runtime.held(target.id)[0], 0)
        return target

    def _answered_at(self, source: Resident) -> int:
        """Where its last answer begins, as nearly as the sequence can be cut back to it."""
        end = source.n_prompt - 1
        if self.ledger.memory.piece:
            return source.reach(end, self.ledger.memory)
        return min(end, source.spans[-1].stop) if source.spans and not self.ledger.memory.share else end

    def _costs_to_share(self, source: Resident, length: int) -> bool:
        return self.runtime.pays_for_idle and length < WORTH_SHARING and source.n_resident >= STRIDE

    def _part(self, source: Resident, tail: Tail, length: int) -> Resident:
        """Park the tail of a sequence, so that the tokens before it can be computed in its place."""
        if not self.ledger.has_free_id:
            self._need_id(source)
        parked, ops = self.ledger.fork(source, tail.stop)
        try:
            self._do(parked, [*ops, *self.ledger.evict(parked, [(0, tail.start)])])
        except OperationRefused:
            self.apply(self.ledger.forget(source))
            raise
        parked.live = parked.aside = True
        self.parked[source.id] = parked
        self.rewind(source, length)
        return source

    def splice(self, resident: Resident, tail: Tail) -> None:
        """Put the parked tail behind the tokens that have been computed. Raises: `OperationRefused`."""
        self._do(resident, self.ledger.splice(resident, self.parked.pop(resident.id), tail.start, tail.stop))
        self.n_spliced += 1

    def _can_fork(self, source: Resident, length: int) -> bool:
        return (self.ledger.memory.share or self.checkpoints.can_restore(source, length)) and (
            self.ledger.has_free_id or any(resident is not source for resident in self.ledger.idle())
        )

    def _need_id(self, keep: Resident | None, n: int = 1) -> None:
        for resident in self.ledger.idle():
            if len(self.ledger.free_ids) >= n:
                return
            if resident is not keep:
                self.drop(resident, "there are as many conversations as the cache can have")

    def evict(self, resident: Resident, ranges: Sequence[Range]) -> None:
        """Remove logical ranges. Raises: `OperationRefused`."""
        self._do(resident, self.ledger.evict(resident, ranges))

    def rewind(self, resident: Resident, length: int) -> None:
        """Cut a sequence back to logical index `length`, with a checkpoint if needed. Raises: `OperationRefused`."""
        checkpoint = None
        if length < len(resident) and self.ledger.memory.rollback != "any":
            checkpoint = resident.state_at(length)
        if checkpoint is not None and not self.runtime.load(resident.id, checkpoint, partial=True):
            self.apply(self.ledger.forget(resident))
            raise OperationRefused
        self._do(resident, self.ledger.cut(resident, length))

    def extend(self, resident: Resident, tokens: array[int], n: int) -> None:
        """Record that `tokens` were decoded at the end of a sequence, of which the first `n` stay. Raises:
        `OperationRefused`."""
        position = resident.end + n
        self.ledger.extend(resident, tokens[:n])
        if n < len(tokens):
            self._do(resident, [Remove(resident.id, position)])

    def close_gaps(self, resident: Resident) -> None:
        """Move the tokens behind holes forward, if that is exact. Raises: `OperationRefused`."""
        for start, stop in resident.gaps():
            logger.info("Closing the hole of evicted tokens %d-%d on cache %r", start, stop, self._name)
            logger.info("Shifting remaining tokens by -%d", stop - start)
        self._do(resident, self.ledger.close_gaps(resident))
        self.totals.rebases += 1

    def rebase_one(self, n_positions: int, is_urgent: Callable[[], bool]) -> bool:
        """Rebase one idle sequence that comes near the last position, so that it starts at position 0; False if none.

        It stops early when `is_urgent` returns True; a later job computes the rest.
        """
        for resident in self.ledger.idle():
            is_near = resident.end > REBASE_AT * n_positions and resident.end > resident.n_resident
            if n_positions and is_near and any(resident.gaps()):
                try:
                    self._rebase(resident, is_urgent)
                except (OperationRefused, LedgerError, EngineError) as error:
                    logger.warning("an idle conversation on cache %r could not be rebased: %s", self._name, error)
                    if resident in self.ledger:
                        self.apply(self.ledger.forget(resident))
                return True
        return False

    def _rebase(self, resident: Resident, is_urgent: Callable[[], bool]) -> None:
        ledger = self.ledger
        first = next(resident.gaps())[0]
        if ledger.memory.shift and not ledger.is_shared(resident, resident.position_of(first)):
            self.close_gaps(resident)
            self.settle(resident)
            return
        logger.info("Computing the %d tokens of an idle conversation again", resident.n_resident)
        tokens, ranges = resident.tokens, [(run.start, run.stop) for run in resident.runs]
        self.apply(ledger.restart(resident))
        self.totals.rebases += 1
        n = min(CHUNK, self.runtime.n_batch)
        for start, stop in ranges:
            ledger.skip(resident, tokens[len(resident) : start])
            for at in range(start, stop, n):
                part = tokens[at : min(at + n, stop)]
                chunk = Chunk(resident.id, part, resident.end, False, adapters=resident.owner.adapters)
                # A job that continues the conversation brings its images; without them, what is behind waits for it.
                if is_urgent() or min(part) < 0 or self.runtime.decode([chunk]) != "ok":
                    return
                ledger.extend(resident, chunk.tokens)

    def settle(self, resident: Resident) -> None:
        """Compare a sequence whose job is over with the runtime, and let it idle.

        Raises: `LedgerError` if they differ; the sequence is then removed.
        """
        held = self.runtime.held(resident.id)
        self.give_up_tail(resident)
        resident.live = False
        resident.low = max(held[0], 0)
        self.ledger.touch(resident)
        try:
            self.ledger.check(resident, held)
        except LedgerError:
            self.apply(self.ledger.forget(resident))
            raise

    def give_up_tail(self, resident: Resident) -> None:
        parked = self.parked.pop(resident.id, None)
        if parked is not None:
            self.apply(self.ledger.forget(parked))

    # -- room ----------------------------------------------------------------------------------------------------------

    def make_room(self, n: int, *, background: bool = False, keep: Resident | None = None) -> bool:
        """Free `n` cells by dropping idle sequences, least recently used first; False if that is not enough.

        For `background` jobs, conversations leave only for host memory, where nothing of them is lost. `keep` stays in
        any case.
        """
        ledger = self.ledger
        for frees_alone in (True, False):  # the second time also sequences that share all their cells
            for resident in ledger.idle():
                if ledger.free >= n:
                    return True
                if resident is keep or (frees_alone and ledger.used_without([resident]) == ledger.used):
                    continue
                if not background or resident.background or self._has_ram_for(resident):
                    self.drop(resident)
        return ledger.free >= n

    def make_room_beside(self, plan: Plan, n: int) -> bool:
        """Free `n` cells for the plan of a background job without losing any conversation; False if impossible."""
        source = plan.source
        if source is not None and source.background and not source.live:
            n -= source.n_resident_in(plan.length, len(source))  # the cells that cutting it back frees
        return self.make_room(n, background=True, keep=source)

    def _has_ram_for(self, resident: Resident) -> bool:
        """Whether host memory can take it without dropping another snapshot."""
        if not self._token_bytes:
            self._token_bytes = len(self.runtime.save(resident.id)) / max(1, resident.n_resident)
        return self._token_bytes > 0 and self._fits_into_ram(resident)

    def _fits_into_ram(self, resident: Resident) -> bool:
        """The same, by the bytes per token known so far."""
        size = (resident.n_resident - self._n_left_out(resident)) * self._token_bytes
        size += sum(len(state) for _, state in self.checkpoints.within(resident, self._saved_room))
        return size <= self._ram_bytes - self.snapshots.ram_bytes + self.snapshots.spare_bytes

    def tidy(self, n_coming: int) -> None:
        """Move idle sequences into host memory if they make the next `n_coming` tokens slower and RAM has room.

        Their cells do so where those tokens reach a further stride with them. Saving and loading a short conversation
        takes as long as a stride of cells costs some ten tokens of the smallest model; of half a billion parameters,
        less than one.
        """
        if not (self.runtime.pays_for_idle and self._has_tiers):
            return
        idle = self.ledger.idle()
        if strides(self.ledger.used + n_coming) == strides(self.ledger.used_without(idle) + n_coming):
            return
        for resident in idle:
            if not self._fits_into_ram(resident):
                return
            self.drop(resident, "idle cells slow down the running answers")

    def drop(self, resident: Resident, why: str = "other conversations need its cells") -> None:
        """Remove an idle sequence from the cells; the tiers keep it if it is worth it. `why`: for displays."""
        self.totals.dropped += 1
        self.park(resident, why)

    def park(self, resident: Resident, why: str) -> None:
        """Remove a sequence from the cells; the tiers keep it if it is worth it, and its system prompt by itself."""
        n_tokens, begun_s = resident.n_resident, time.perf_counter()
        is_kept = self._is_worth_saving(resident) and bool(self._save(resident, leaves=True))
        self._note_move(resident, ("cells", "memory" if is_kept else "away"), n_tokens, why, begun_s)
        self._copied.pop(resident.id, None)
        self.give_up_tail(resident)
        if not self.checkpoints.bequeath(resident) and self._has_tiers:
            self._save_system(resident)
        if resident in self.ledger:
            self.apply(self.ledger.forget(resident))

    def _note_move(
        self, resident: Resident, way: tuple[Tier, Literal[Tier, "away"]], n: int, why: str, begun_s: float = 0.0
    ) -> None:
        if self.display.is_on and n:
            ms = (time.perf_counter() - begun_s) * 1000 if begun_s else 0.0
            owner = resident.owner.name
            self.display.note(Moved(resident.session, owner, time.time(), *way, n, ms, why))

    def forget(self, resident: Resident, why: str = "a prompt has replaced it") -> None:
        """Remove a sequence from the cells; no tier keeps it. `why`: for displays."""
        self._note_move(resident, ("cells", "away"), resident.n_resident, why)
        self.checkpoints.bequeath(resident)
        self.apply(self.ledger.forget(resident))

    def _save_system(self, resident: Resident) -> None:
        """Let the tiers keep its system prompt by itself: small, it outlives the conversation. The sequence is cut.

        Only where a whole conversation cannot be cut to it: there every new conversation would load all of it first.
        """
        n = resident.n_system
        if n < WORTH_SAVING or resident.n_whole < n or not self.ledger.memory.checkpoint:
            return
        if n < len(resident) and resident.state_at(n) is None:
            return
        whole = self._outline(resident)
        outline = replace(
            whole,
            tokens=resident.tokens[:n],
            runs=((0, n, 0),),
            spans=tuple(span for span in resident.spans if span.stop <= n),
            n_prompt=n,
            cost_s=whole.cost_s * n / resident.n_resident,
            checkpoints=(),
        )
        key = self.snapshots.key(outline)
        if self.snapshots.touch(key) or self.snapshots.is_on_disk(key):
            return
        try:
            self.rewind(resident, n)
        except OperationRefused:
            return
        if state := self.runtime.save(resident.id):
            self.snapshots.put(replace(outline, state=state, low=max(self.runtime.held(resident.id)[0], 0)))

    def _is_worth_saving(self, resident: Resident) -> bool:
        least = min(WORTH_SAVING, resident.n_resident // SMALL_PART + 1)
        return self._has_tiers and self._lost_without(resident, self.ledger) >= least

    def _save(self, resident: Resident, *, leaves: bool = False, is_copy: bool = False) -> bool | None:
        """Let the tiers keep a sequence. One that `leaves` the cells may lose its beginning there; one that does not is
        a copy. False: the disk must write another one first; None: the library has no state of it."""
        outline = self._outline(resident)
        if self.snapshots.touch(self.snapshots.key(outline)):
            return True  # host memory has this state already
        state = b""
        if n_base := 0 if is_copy else self._n_left_out(resident):
            behind = self._behind(outline, n_base)
            if self.snapshots.touch(self.snapshots.key(behind)):
                return True
            if state := self._state_behind(resident, n_base, leaves=leaves):
                outline = behind
        state = state or self.runtime.save(resident.id)
        if not state:
            return None
        self._token_bytes = len(state) / max(1, outline.n_resident)
        kept = {length for length, _ in outline.checkpoints}
        checkpoints = tuple((length, state) for length, state in resident.checkpoints if length in kept)
        is_spare = is_copy and not self._keeps_on_disk
        whole = replace(outline, state=state, checkpoints=checkpoints)
        is_put = self.snapshots.put(whole, waits=is_copy, is_spare=is_spare)
        self.totals.saved += is_put
        return is_put

    def _n_left_out(self, resident: Resident) -> int:
        """How many tokens of its system prompt need not be saved with a conversation: another one in the cells has
        them, too, and the last of these is saved whole. 0: it is saved whole; a file has to be of use by itself, and a
        sliding window loses its beginning.
        """
        n, memory = resident.n_system, self.ledger.memory
        is_possible = memory.share and memory.hole and memory.rollback == "any" and not memory.window
        if not is_possible or self._keeps_on_disk or n < self._least_base or resident.n_in_place < n:
            return 0
        return n if self.ledger.find_holder(resident.tokens, n, resident.owner, resident) else 0

    def _behind(self, outline: Snapshot, n_base: int) -> Snapshot:
        cut = ((max(start, n_base), stop, position + max(0, n_base - start)) for start, stop, position in outline.runs)
        runs = tuple(run for run in cut if run[0] < run[1])
        cost_s = outline.cost_s and outline.cost_s * (1 - n_base / outline.n_resident)
        return replace(outline, runs=runs, n_base=n_base, cost_s=cost_s)

    def _state_behind(self, resident: Resident, n_base: int, *, leaves: bool) -> bytes:
        """The state of a sequence from token `n_base` on; empty if it cannot be saved by itself."""
        if leaves:
            is_alone = self.apply(self.ledger.evict(resident, [(0, n_base)]))
            return self.runtime.save(resident.id) if is_alone else b""
        if not self.ledger.has_free_id:
            return b""
        spare = self.ledger.free_ids[-1]
        is_alone = self.runtime.apply(Copy(resident.id, spare, n_base, resident.end))
        state = self.runtime.save(spare) if is_alone else b""
        self.runtime.apply(Forget(spare))
        return state

    def _lost_without(self, resident: Resident, others: Iterable[Resident]) -> int:
        """Number of its resident tokens that none of `others` has for jobs of the same kind (`Owner`)."""
        memory = self.ledger.memory
        shared = (
            other.n_resident_in(0, other.reach(common_prefix(other.tokens, resident.tokens), memory))
            for other in others
            if other is not resident and other.owner.can_share(resident.owner)
        )
        return resident.n_resident - max(shared, default=0)

    def _outline(self, resident: Resident) -> Snapshot:
        """The snapshot of its present state, without the bytes of the state."""
        return Snapshot(
            tokens=resident.tokens[:],
            runs=tuple((run.start, run.stop, run.position) for run in resident.runs),
            spans=resident.spans,
            n_prompt=resident.n_prompt,
            state=b"",
            # Background jobs are worth nothing, so their snapshots displace no other.
            cost_s=0.0 if resident.background else max(1e-6, resident.n_resident * self.token_s),
            checkpoints=tuple((length, b"") for length, _ in self.checkpoints.within(resident, self._saved_room)),
            low=max(self.runtime.held(resident.id)[0], 0),
            owner=replace(resident.owner, n_common=0),
            n_system=resident.n_system,
            n_pure=resident.n_pure,
            session=resident.session,
        )

    # -- tiers ---------------------------------------------------------------------------------------------------------

    def restore(self, found: SnapshotMatch) -> Resident:
        """Load a snapshot from RAM into the cells as an idle sequence; there must be enough cells.

        Raises: `OperationRefused` if it is gone, cannot be loaded, or is less useful than planned.
        """
        begun_s = time.perf_counter()
        snapshot = self.snapshots.take(found.key)
        if snapshot is None:
            raise OperationRefused
        base = self.ledger.find_holder(snapshot.tokens, snapshot.n_base, snapshot.owner) if snapshot.n_base else None
        self._need_id(base, 2 if base else 1)
        self.make_room(snapshot.n_resident, keep=base)
        if snapshot.n_base and (base is None or len(self.ledger.free_ids) < 2):
            self.snapshots.put(snapshot)  # for a job that finds its beginning
            raise OperationRefused
        resident = self.ledger.adopt(snapshot.tokens, snapshot.runs, snapshot.owner)
        resident.spans, resident.n_prompt, resident.n_system = snapshot.spans, snapshot.n_prompt, snapshot.n_system
        resident.checkpoints, resident.session = list(snapshot.checkpoints), snapshot.session
        resident.n_pure = snapshot.n_pure
        if not self.runtime.load(resident.id, snapshot.state):
            logger.warning("a saved conversation could not be loaded into cache %r and is computed again", self._name)
            self.apply(self.ledger.forget(resident))
            raise OperationRefused
        try:
            self.settle(resident)
        except LedgerError as error:
            logger.warning("a saved conversation differs after loading and is not used: %s", error)
            raise OperationRefused from error
        if base is not None:
            resident = self._joined(base, resident, snapshot.n_base)
        self.totals.restored += 1
        self._note_move(resident, ("memory", "cells"), snapshot.n_resident, "its conversation goes on", begun_s)
        self.checkpoints.bound()
        if self.snapshots.is_on_disk(found.key):
            self._copied[resident.id] = found.key
        if resident.reach(found.match.length, self.ledger.memory) < found.match.length:
            raise OperationRefused  # its first positions are missing; the rest stays as an idle sequence
        return resident

    def _joined(self, base: Resident, rest: Resident, n_base: int) -> Resident:
        """The sequence of the first `n_base` tokens of `base` and of `rest`, which has those behind them."""
        resident, ops = self.ledger.fork(base, n_base)
        resident.spans, resident.n_prompt, resident.n_system = rest.spans, rest.n_prompt, rest.n_system
        resident.owner, resident.session = rest.owner, rest.session
        self._do(resident, [*ops, *self.ledger.splice(resident, rest, n_base, len(rest))])
        return resident

    def save_one(self) -> bool:
        """Copy one idle sequence to where it outlives this process and is not yet: the disk, or the arena. False if
        there is none, or if it `waits_for_disk`."""
        self.waits_for_disk = False
        if not self._keeps_copies:
            return False
        keys = {resident.id: self.snapshots.key(self._outline(resident)) for resident in self.ledger.idle()}
        written = [resident for resident in self.ledger.idle() if self._copied.get(resident.id) == keys[resident.id]]
        # The longest first: shorter ones with the same beginning need not be written then.
        for resident in sorted(self.ledger.idle(), key=lambda resident: -resident.n_resident):
            if resident not in written and self._lost_without(resident, written) >= WORTH_SAVING:
                self.waits_for_disk = self._save(resident, is_copy=True) is False
                if not self.waits_for_disk:
                    self._copied[resident.id] = keys[resident.id]
                return not self.waits_for_disk
        return False

    def save_all(self, on_progress: Callable[[], None]) -> None:
        """Write every idle sequence to disk that is not there, and wait for the disk. One that a newer one has driven
        out of host memory before it was written is saved again. `on_progress`: called after each step."""
        if not self._keeps_on_disk:
            return
        can_write = self.snapshots.flush(FLUSH_S, on_progress)
        self._copied = {of: key for of, key in self._copied.items() if self.snapshots.is_on_disk(key)}
        while can_write and (self.save_one() or self.waits_for_disk):
            on_progress()
            can_write = not self.waits_for_disk or self.snapshots.flush(FLUSH_S, on_progress)
        self.snapshots.flush(FLUSH_S, on_progress)

    # -- the runtime ---------------------------------------------------------------------------------------------------

    def apply(self, ops: Iterable[Op]) -> bool:
        """Carry out operations of the ledger; False if the runtime refused one."""
        return all(self.runtime.apply(op) for op in ops)

    def _do(self, resident: Resident, ops: Sequence[Op]) -> None:
        if not self.apply(ops):
            logger.warning("cache %r: the model's memory refused %s; the sequence is computed again", self._name, ops)
            self.apply(op for op in ops if isinstance(op, Forget))  # the ledger has removed these sequences already
            self.apply(self.ledger.forget(resident))
            raise OperationRefused

    def forget_all(self) -> None:
        """Empty the cells; the tiers keep what they have."""
        for resident in list(self.ledger):
            self.apply(self.ledger.forget(resident))
        self._copied.clear()
        self.parked.clear()

    def close(self) -> None:
        """Write the conversations to disk that are not there yet, and close the tiers."""
        if self._keeps_on_disk and not self.snapshots.flush(FLUSH_S):
            logger.warning("not every conversation of cache %r could be written to disk", self._name)
        self.snapshots.close()


def _parts(spans: Sequence[Span]) -> tuple[Part, ...]:
    made: list[Part] = []
    for span in spans:
        kinds = span.kinds or ((span.stop, _KINDS.get(span.label, "user")),)
        at = 0 if not made and kinds[0][0] <= span.start else span.start
        for stop, kind in kinds:
            if at < stop:
                made.append(Part(at, stop, kind, span.message, span.keep or stop <= span.start))
                at = stop
    return tuple(made)


def _picture(seq: Seq, resident: Resident, tier: Tier, parts: tuple[Part, ...]) -> Picture:
    runs = joined([(run.start, run.stop) for run in resident.runs])  # neighbours may differ in their blocks only
    n_tokens, n_prompt = len(resident), min(resident.n_prompt, len(resident))
    owner = resident.owner.name
    return Picture(seq, resident.session, owner, tier, n_tokens, n_prompt, runs, parts)
