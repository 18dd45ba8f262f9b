"""Saved conversations against naive models, damaged files, full disks, other processes and SIGKILL."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import random
import stat
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fake_engine import PLAIN, RECURRENT

from shepherd.engine.base import Memory, Owner, Saved, Span
from shepherd.engine.kv.ledger import usable
from shepherd.engine.kv.tiers import Snapshot, SnapshotMatch, Snapshots, file
from shepherd.engine.kv.tiers.gdsf import GdsfPolicy
from shepherd.engine.kv.tiers.snapshot import covers

MB = 1 << 20
MANY = 1 << 20
"""Cells: enough for every snapshot here."""
Runs = tuple[tuple[int, int, int], ...]


def snap(tokens: list[int] | range, runs: Runs | None = None, *, cost_s: float = 1.0, size: int = 100) -> Snapshot:
    """A snapshot whose state is `size` bytes that depend on its tokens."""
    state = random.Random(str(list(tokens))).randbytes(size)
    spans = (Span(0, len(tokens), 0, 0, label="user"),)
    return Snapshot(array("i", tokens), runs or ((0, len(tokens), 0),), spans, len(tokens) // 2, state, cost_s)


def prompt(tokens: list[int] | range) -> array[int]:
    return array("i", tokens)


@contextmanager
def opened(
    folder: Path | None = None,
    *,
    name: str = "model",
    ram: int = MB,
    disk: int = MB,
    memory: Memory = PLAIN,
    n_cells: int = MANY,
) -> Iterator[Snapshots]:
    """Snapshots whose folder has been read."""
    store = Snapshots(name, memory, n_cells, ram_bytes=ram, folder=folder, disk_bytes=disk if folder else 0)
    try:
        store.flush(30)
        yield store
    finally:
        store.close()


def write(store: Snapshots, snapshot: Snapshot) -> None:
    store.put(snapshot)
    assert store.flush(30)


def found_in(store: Snapshots, tokens: list[int] | range) -> SnapshotMatch | None:
    return store.find(prompt(tokens), holes=True)


def get_in(store: Snapshots, tokens: list[int] | range) -> SnapshotMatch:
    found = found_in(store, tokens)
    assert found is not None
    return found


def restore(folder: Path, tokens: list[int] | range, *, name: str = "model") -> Snapshot | None:
    """What a fresh process finds for a prompt and reads from disk."""
    ready = threading.Event()
    store = Snapshots(name, PLAIN, MANY, ram_bytes=64 * MB, folder=folder, disk_bytes=64 * MB, on_ready=ready.set)
    try:
        assert store.flush(30)
        found = found_in(store, tokens)
        if found is None:
            return None
        assert not found.in_ram
        store.fetch(found.key)
        assert ready.wait(30)
        return store.take(found.key)
    finally:
        store.close()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kv"))


def bytes_of(folder: Path) -> int:
    """Of all complete files."""
    total = 0
    for path in files(folder):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


class Gate:
    """Stands before a function of the operating system, and stops the first call there until it is opened."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.calls_before = 0
        self.error: OSError | None = None
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, *arguments: object) -> object:
        if self.calls_before:
            self.calls_before -= 1
            return self.function(*arguments)
        self.entered.set()
        assert self.open.wait(60)
        if self.error:
            raise self.error
        return self.function(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Before `os.fsync`: whoever writes stops there, in the middle of the file."""
    gate = Gate(os.fsync)
    monkeypatch.setattr(os, "fsync", gate)
    return gate


# -- what a prompt can use -----------------------------------------------------------------------------------------


@st.composite
def snapshots(draw: st.DrawFn, *, of: Snapshot | None = None) -> Snapshot:
    """Small conversations over a small vocabulary, so that prefixes are shared; some evicted, some rebased.

    of: a conversation that this is an earlier moment of, perhaps.
    """
    if of:
        tokens = list(of.tokens[: draw(st.integers(1, len(of.tokens)))])
        choices = {index for start, stop, _ in of.runs for index in range(start, min(stop, len(tokens)))}
    else:
        tokens = draw(st.lists(st.integers(0, 1), min_size=1, max_size=10))
        choices = set(range(len(tokens)))
    evicted = draw(st.sets(st.integers(0, 9), max_size=draw(st.sampled_from([0, 1, 5]))))
    jumps = draw(st.sampled_from([[0], [0, 1]]))
    runs: list[tuple[int, int, int]] = []
    position = 0
    for index in sorted(choices - evicted):
        jump = draw(st.sampled_from(jumps))
        if runs and runs[-1][1] == index and not jump:
            runs[-1] = (runs[-1][0], index + 1, runs[-1][2])
        else:
            position += jump
            runs.append((index, index + 1, position))
        position += 1
    lengths = draw(st.one_of(st.just(set[int]()), st.sets(st.integers(1, len(tokens)), max_size=3)))
    return replace(
        snap(tokens, size=draw(st.integers(1, 50))),
        runs=tuple(runs),
        checkpoints=tuple((length, bytes(length)) for length in sorted(lengths)),
    )


def naive_reach(snapshot: Snapshot, tokens: array[int], *, holes: bool, exact: bool) -> tuple[int, int]:
    positions = {index: place + index - start for start, stop, place in snapshot.runs for index in range(start, stop)}
    length = 0
    for mine, theirs in zip(snapshot.tokens, tokens, strict=False):
        if mine != theirs or (not holes and length not in positions):
            break
        length += 1
    if exact and length != len(snapshot.tokens):
        length = max([0, *(n for n, _ in snapshot.checkpoints if n <= length)])
    return length, sum(index < length for index in positions)


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(prompt)


def of_a_size(puts: list[Snapshot]) -> list[Snapshot]:
    """The same where a sequence that comes again has a state of the same size, as it has in life."""
    states: dict[str, Saved] = {}
    return [replace(each, state=states.setdefault(each.key(""), each.state)) for each in puts]


kept = st.lists(snapshots(), max_size=12).map(of_a_size)
HOW = ("holes", "exact")


def test_the_newest_snapshots_are_the_owners_own_the_last_one_first() -> None:
    with opened() as store:
        for first, owner in ((10, "ada"), (20, "bob"), (30, "ada"), (40, "ada")):
            store.put(replace(snap(range(first, first + 9)), owner=Owner(owner)))
        store.touch(store.key(replace(snap(range(10, 19)), owner=Owner("ada"))))
        assert [each.tokens[0] for each in store.newest(Owner("ada"), 2)] == [10, 40]
        assert [each.tokens[0] for each in store.newest(Owner("bob"), 2)] == [20]
        assert store.newest(Owner("eve"), 2) == []


@pytest.mark.parametrize("n_held", [0, 5, 6, 9])
def test_a_snapshot_without_its_beginning_is_found_only_where_that_is_held(n_held: int) -> None:
    with opened() as store:
        store.put(replace(snap(range(20), ((6, 20, 6),)), n_base=6))
        found = store.find(prompt(range(30)), holes=False, n_held=n_held)
        assert (found is not None) == (n_held >= 6)
        if found is not None:
            assert (found.match.length, found.match.saved) == (20, 20), "as the sequence that loading it makes"
            taken = store.take(found.key)
            assert taken is not None
            assert taken.n_resident == 14


@given(kept, prompts, st.booleans(), st.booleans())
def test_find_gives_the_best_of_what_is_kept(puts: list[Snapshot], asked: array[int], holes: bool, exact: bool) -> None:
    with opened(memory=RECURRENT if exact else PLAIN) as store:
        naive: list[Snapshot] = []
        for snapshot in puts:
            store.put(snapshot)
            naive = [*(old for old in naive if not covers(snapshot, old)), snapshot]
        assert store.counts.in_ram == len(naive)
        found = store.find(asked, holes=holes)
        reached = [naive_reach(snapshot, asked, holes=holes, exact=exact) for snapshot in naive]
        best = max((length for length, saved in reached if saved), default=0)
        if best == 0:
            assert found is None
            return
        assert found is not None
        ways = zip(naive, reached, strict=True)
        smallest = min(each.size_bytes for each, (length, saved) in ways if saved and length == best)
        taken = store.take(found.key)
        assert taken is not None
        assert taken in naive
        assert (found.match.length, found.match.saved) == naive_reach(taken, asked, holes=holes, exact=exact)
        assert (found.match.length, found.in_ram, taken.size_bytes) == (best, True, smallest)
        assert found.match.resident.n_resident == sum(stop - start for start, stop, _ in taken.runs)


@given(st.data(), snapshots(), st.integers(0, 10), prompts, st.fixed_dictionaries(dict.fromkeys(HOW, st.booleans())))
def test_what_is_superseded_was_never_better(
    data: st.DataObject, new: Snapshot, n_shared: int, rest: array[int], how: dict[str, bool]
) -> None:
    old = data.draw(snapshots(of=new))
    asked = new.tokens[:n_shared] + rest
    if covers(new, old) and not (how["exact"] and not new.checkpoints and not old.checkpoints):
        assert naive_reach(new, asked, **how)[1] >= naive_reach(old, asked, **how)[1]


@given(snapshots(), st.integers(1, 10))
def test_a_conversation_that_went_on_supersedes_itself(old: Snapshot, extra: int) -> None:
    n = len(old.tokens)
    tokens = old.tokens + array("i", [1] * extra)
    new = replace(old, tokens=tokens, runs=(*old.runs, (n, n + extra, 2 * n)), checkpoints=(*old.checkpoints, (n, b"")))
    assert covers(new, old)
    assert not covers(old, new)
    evicted = replace(new, runs=new.runs[1:])
    assert not covers(evicted, old) or not old.runs


HOLE: Runs = ((0, 5, 0), (10, 30, 10))


@pytest.mark.parametrize(
    ("new", "old", "checkpoints", "is_covered"),
    [
        (HOLE, ((0, 5, 0), (10, 20, 10)), ((), ()), True),
        (HOLE, ((0, 5, 0), (12, 14, 12), (16, 20, 16)), ((), ()), True),
        (HOLE, ((0, 5, 0), (9, 20, 9)), ((), ()), False),  # holds one more
        (((0, 5, 0), (10, 30, 5)), ((0, 5, 0), (10, 20, 10)), ((), ()), True),  # was rebased meanwhile
        (HOLE, ((0, 5, 0),), ((), (4,)), False),
        (HOLE, ((0, 5, 0),), ((4,), (4,)), False),  # cannot stop at 20
        (HOLE, ((0, 5, 0),), ((4, 20), (4,)), True),
        (HOLE, ((0, 5, 0),), ((4, 20), ()), True),
    ],
)
def test_superseding_in_numbers(
    new: Runs, old: Runs, checkpoints: tuple[tuple[int, ...], tuple[int, ...]], is_covered: bool
) -> None:
    of_new, of_old = (tuple((length, b"") for length in lengths) for lengths in checkpoints)
    longer = replace(snap(range(30), new), checkpoints=of_new)
    assert covers(longer, replace(snap(range(20), old), checkpoints=of_old)) == is_covered
    assert not covers(longer, replace(snap([*range(19), 0], old), checkpoints=of_old))
    assert not covers(longer, replace(snap(range(31), old), checkpoints=of_old))


def test_what_a_snapshot_promises_in_numbers() -> None:
    def reach(snapshot: Snapshot, length: int, *, holes: bool, memory: Memory = PLAIN) -> tuple[int, int]:
        match = usable(snapshot.sequence(), length, memory, holes=holes)
        return match.length, match.saved

    evicted = snap(range(200), ((0, 40, 0), (90, 200, 90)))
    assert reach(evicted, 150, holes=True) == (150, 100)
    assert reach(evicted, 150, holes=False) == (40, 40)
    assert reach(evicted, 150, holes=True, memory=RECURRENT) == (0, 0)
    assert reach(evicted, 200, holes=True, memory=RECURRENT) == (200, 150)
    marked = replace(evicted, checkpoints=((30, b""), (120, b"")))
    assert reach(marked, 150, holes=True, memory=RECURRENT) == (120, 70)
    assert reach(marked, 150, holes=False, memory=RECURRENT) == (30, 30)
    assert reach(snap(range(200), ((0, 40, 0), (90, 200, 40))), 200, holes=True) == (200, 150)
    windowed = Memory(hole=True, rollback="window", share=False, shift=False, checkpoint=True, window=16)
    assert reach(replace(snap(range(200)), low=100), 150, holes=True, memory=windowed) == (150, 150)
    assert reach(replace(snap(range(200)), low=140), 150, holes=True, memory=windowed) == (0, 0)


def test_a_snapshot_promises_nothing_behind_a_kept_span_that_it_has_lost() -> None:
    evicted = snap(range(200), ((0, 40, 0), (90, 200, 90)))
    with opened() as store:
        store.put(evicted)
        for spans, length in [
            ((Span(0, 30, 0, 0, keep=True), Span(30, 300, 1, 1)), 150),  # cut here: it must be there as a whole
            ((Span(0, 30, 0, 0, keep=True), Span(30, 95, 1, 1), Span(95, 300, 2, 2)), 150),
            ((Span(0, 30, 0, 0, keep=True), Span(30, 95, 1, 1, keep=True), Span(95, 300, 2, 2)), 150),
        ]:
            found = store.find(prompt([*range(length), *range(500, 600)]), holes=True, spans=spans)
            promised = usable(
                evicted.sequence(), length, PLAIN, holes=True, kept=[s for s in spans if s.keep], spans=spans
            )
            assert found is not None
            assert (found.match.length, found.match.saved) == (promised.length, promised.saved)
        assert [found.match.length for found in [found] if found] == [30]


def test_a_sequence_that_has_not_changed_keeps_its_key_and_is_not_written_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(50)))
        first = get_in(store, range(50))
        for _ in range(3):
            assert store.take(first.key) is not None
            write(store, snap(range(50), cost_s=2.0))  # computed on a slower day: still the same
            again = get_in(store, range(50))
            assert again.key == first.key
        assert store.counts.written == 1
        store.put(snap(range(51)))
        longer = get_in(store, range(51))
        assert longer.key != first.key


def test_what_was_computed_at_another_pace_meanwhile_comes_back_from_disk(tmp_path: Path) -> None:
    ready = threading.Event()
    store = Snapshots("model", PLAIN, MANY, ram_bytes=MB, folder=tmp_path, disk_bytes=MB, on_ready=ready.set)
    assert store.flush(30)
    store.put(snap(range(50), cost_s=1.0), to_disk=False)
    found = get_in(store, range(50))
    assert store.take(found.key) is not None
    write(store, snap(range(50), cost_s=2.0))
    assert store.take(found.key) is not None
    store.fetch(found.key)
    assert ready.wait(30)
    assert store.take(found.key) is not None
    assert store.counts.damaged == 0
    store.close()


def test_what_a_larger_cache_has_saved_is_not_found_where_it_does_not_fit(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(50)))
    with opened(tmp_path, n_cells=49) as smaller:
        assert found_in(smaller, range(50)) is None
    with opened(tmp_path, n_cells=50) as same:
        assert found_in(same, range(50)) is not None


def test_ram_is_preferred_to_disk_among_equals(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(10)))
        on_disk = get_in(store, range(10))
        assert store.take(on_disk.key) is not None
        store.put(snap([*range(9), 77], size=5000), to_disk=False)
        found = get_in(store, range(9))
        assert (found.in_ram, found.key == on_disk.key) == (True, False)


# -- what is worth keeping -----------------------------------------------------------------------------------------

shelf_steps = st.lists(
    st.tuples(st.sampled_from(["place", "touch", "remove"]), st.integers(0, 19), st.integers(9, 50), st.integers(1, 9)),
    min_size=20,
    max_size=60,
)


@settings(max_examples=examples(300))
@given(shelf_steps)
def test_a_shelf_is_greedy_dual_size_frequency(steps: list[tuple[str, int, int, int]]) -> None:
    shelf, clock = GdsfPolicy(100), 0.0
    naive: list[tuple[str, int, float]] = []  # key, size, priority; by age
    for step, number, size, value in steps:
        key = str(number)
        mine = next((item for item in naive if item[0] == key), None)
        if step == "remove":
            shelf.remove(key)
            naive = [item for item in naive if item is not mine]
        elif step == "touch" and mine:
            shelf.touch(key, value)
            naive = [*(item for item in naive if item is not mine), (key, mine[1], clock + value)]
        elif step == "place" and not mine:
            shelf.place(key, size, value)
            naive.append((key, size, clock + value))
            everything, leaving = list(naive), list[tuple[str, int, float]]()
            while sum(item[1] for item in naive) > 100:
                leaving.append(min(naive, key=lambda item: item[2]))
                naive.remove(leaving[-1])
            if any(item[0] == key for item in leaving):
                leaving, naive = everything[-1:], everything[:-1]
            elif leaving:
                naive[-1] = (key, size, max(clock, *(item[2] for item in leaving)) + value)
            clock = max([clock, *(item[2] for item in leaving)])
            assert shelf.overflow(key) == [item[0] for item in leaving]
        assert list(shelf) == [item[0] for item in naive]
        assert shelf.clock == clock
        assert shelf.used == sum(item[1] for item in naive) <= 100


def test_those_of_higher_rank_leave_later_and_those_without_never() -> None:
    shelf = GdsfPolicy(10)
    for key, value in (("stays", 0.0), ("saved", 9.0), ("unsaved", 1.0)):
        shelf.place(key, 5, value)
    assert shelf.overflow(rank={"stays": None, "saved": 0, "unsaved": 1}.get) == ["saved"]


def test_what_was_used_again_stays_and_what_is_cheap_to_recompute_leaves() -> None:
    with opened(ram=3 * 140) as store:
        often, rare, costly = snap(range(10)), snap(range(100, 110)), snap(range(200, 210), cost_s=5)
        store.put(often)
        for _ in range(3):  # taken and put back: nowhere in between, and remembered all the same
            found = get_in(store, range(10))
            assert store.take(found.key) == often
            store.put(often)
        store.put(rare)
        store.put(costly)
        store.put(snap(range(300, 310)))
        assert found_in(store, range(100, 110)) is None
        assert [found_in(store, range(start, start + 9)) is not None for start in (0, 200, 300)] == [True] * 3


def test_what_is_not_worth_its_room_does_not_come_in_but_later_ones_do() -> None:
    with opened(ram=300) as store:
        store.put(snap(range(10), cost_s=2))
        store.put(snap(range(100, 110), cost_s=2))
        store.put(snap(range(200, 210), cost_s=1.5))
        assert (found_in(store, range(200, 210)), store.counts.dropped) == (None, 1)
        store.put(snap(range(300, 310), cost_s=1.5))  # the clock has moved
        assert found_in(store, range(300, 310)) is not None


@pytest.mark.parametrize("cost_s", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_cost_that_makes_no_sense_is_none(tmp_path: Path, cost_s: float) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(10), cost_s=cost_s))
    assert restore(tmp_path, range(10)) == snap(range(10), cost_s=0)


steps_of_a_store = st.lists(
    st.tuples(st.sampled_from(["put", "put", "lazy", "take", "fetch", "flush", "clear"]), st.integers(0, 7)),
    max_size=25,
)


@settings(max_examples=examples(100), deadline=None)
@given(steps_of_a_store, st.booleans(), st.sampled_from([600, 1500]), st.sampled_from([2000, 5000]))
def test_caps_hold_and_nothing_comes_back_changed(
    steps: list[tuple[str, int]], has_disk: bool, ram: int, disk: int
) -> None:
    with TemporaryDirectory() as name, opened(Path(name) if has_disk else None, ram=ram, disk=disk) as store:
        for step, number in steps:
            tokens = range(100 * (number // 2), 100 * (number // 2) + 10 + 10 * (number % 2))
            snapshot = snap(tokens, size=150 + 40 * number)
            found = found_in(store, tokens)
            if step in ("put", "lazy"):
                store.put(snapshot, to_disk=step == "put")
            elif step == "flush":
                assert store.flush(30)
            elif step == "clear":
                store.clear()
                assert store.counts.in_ram == 0
            elif found and step == "fetch":
                store.fetch(found.key)
            elif found and (taken := store.take(found.key)):
                assert taken == snap(list(taken.tokens), size=len(taken.state))
                assert taken.tokens[: found.match.length] == prompt(tokens)[: found.match.length]
            assert store.ram_bytes <= ram
            assert bytes_of(Path(name)) <= disk
        assert store.flush(30)
        assert store.disk_bytes == bytes_of(Path(name))
        assert store.counts.on_disk == len(files(Path(name))) == len(os.listdir(name))


# -- the disk ------------------------------------------------------------------------------------------------------


def test_a_restart_finds_all_of_it_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kv"
    saved = replace(
        snap(range(500), ((0, 40, 0), (90, 500, 60)), cost_s=2.5, size=300_000),
        spans=(
            Span(0, 40, 0, 0, keep=True, label="system"),
            Span(40, 90, 5, 2, cleared=True),
            Span(90, 500, 7, 3, label="user"),
        ),
        n_prompt=321,
        checkpoints=((40, b"partial"), (200, b"")),
    )
    with opened(folder) as store:
        write(store, saved)
        assert store.counts.written == 1
    assert restore(folder, range(500)) == saved
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in files(folder)] == [0o600]


def test_what_is_on_disk_already_is_not_written_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(10)))
        found = get_in(store, range(10))
        taken = store.take(found.key)
        assert taken is not None
        write(store, taken)
        assert (store.counts.written, store.counts.in_ram, store.counts.on_disk) == (1, 1, 1)


def test_a_longer_conversation_replaces_the_file_of_the_shorter(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for length in (10, 20, 30):
            write(store, snap(range(length)))
        store.put(snap([*range(20), 99]))  # another branch
        assert store.flush(30)
        assert store.counts.on_disk == len(files(tmp_path)) == 2
    assert restore(tmp_path, range(30)) == snap(range(30))


def test_an_older_file_stays_until_the_newer_one_is_there(tmp_path: Path) -> None:
    with opened(tmp_path, ram=1000, disk=800) as store:
        write(store, snap(range(10)))
        store.put(snap(range(20), size=900))  # larger than the whole disk tier
        assert store.flush(30)
        assert store.counts.on_disk == 1
    assert restore(tmp_path, range(20)) == snap(range(10))


def test_written_later_means_when_ram_is_half_full_or_at_the_end(tmp_path: Path, gate: Gate) -> None:
    with opened(tmp_path, ram=600) as store:
        store.put(snap(range(10)), to_disk=False)
        store.put(snap(range(100, 110)), to_disk=False)
        assert not gate.entered.is_set()
        store.put(snap(range(200, 210)), to_disk=False)
        assert gate.entered.wait(30)  # the first one is being written, without a flush
        gate.open.set()
        assert store.flush(30)
        assert store.counts.written == 3
        for start in range(300, 1000, 100):
            write(store, snap(range(start, start + 10)))
        assert store.counts.dropped == 0
        assert all(found_in(store, range(start, start + 10)) for start in range(0, 1000, 100))
    assert restore(tmp_path, range(10)) == snap(range(10))


def test_one_snapshot_larger_than_ram_passes_through_it(tmp_path: Path) -> None:
    with opened(tmp_path, ram=0) as store:
        keys = []
        for start, size in ((0, 100), (100, 200)):
            store.put(snap(range(start, start + 10), size=size), to_disk=False)
            assert store.flush(30)
            assert store.ram_bytes == 0
            found = get_in(store, range(start, start + 10))
            keys.append(found.key)
        for key, size in zip(keys, (140, 240), strict=True):
            store.fetch(key)
            assert store.flush(30)
            assert store.ram_bytes == size
        assert store.take(keys[0]) is None
        assert store.take(keys[1]) == snap(range(100, 110), size=200)
        assert store.ram_bytes == 0
        store.put(snap(range(10)))  # is there already
        assert (store.ram_bytes, store.counts.on_disk, store.counts.dropped) == (0, 2, 0)
    with opened(ram=0) as nowhere:
        nowhere.put(snap(range(10)))
        assert (nowhere.ram_bytes, nowhere.counts.in_ram, nowhere.counts.dropped) == (0, 0, 1)


def test_the_least_valuable_of_any_model_leaves_a_full_disk(tmp_path: Path) -> None:
    with opened(tmp_path, name="other") as other:
        other.put(snap(range(10), cost_s=0.5))
        write(other, snap(range(100, 110), cost_s=50))
        both = other.disk_bytes
    with opened(tmp_path, disk=both + 20) as store:
        assert (found_in(store, range(10)), store.counts.on_disk) == (None, 0)
        assert store.disk_bytes == both
        write(store, snap(range(10)))
        assert store.counts.on_disk == 1
    assert restore(tmp_path, range(10), name="other") is None
    assert restore(tmp_path, range(100, 110), name="other") is not None
    assert restore(tmp_path, range(10)) == snap(range(10))


def test_a_smaller_cap_is_kept_from_the_start(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for start in range(0, 1000, 100):
            store.put(snap(range(start, start + 10)))
        assert store.flush(30)
        total = store.disk_bytes
    with opened(tmp_path, disk=total // 2) as store:
        assert total // 3 < store.disk_bytes <= total // 2
        assert store.disk_bytes == bytes_of(tmp_path)


def test_how_old_a_file_is_survives_a_restart(tmp_path: Path) -> None:
    for start in range(0, 1000, 100):
        with opened(tmp_path, disk=1500) as store:
            write(store, snap(range(start, start + 10)))
    with opened(tmp_path) as store:
        there = [start for start in range(0, 1000, 100) if found_in(store, range(start, start + 10))]
    assert there == [700, 800, 900]


def test_what_is_taken_from_disk_again_stays_there(tmp_path: Path) -> None:
    with opened(tmp_path, ram=0, disk=1500) as store:
        for start in range(0, 1000, 100):
            write(store, snap(range(start, start + 10)))
            found = get_in(store, range(10))
            store.fetch(found.key)
            assert store.flush(30)
            assert store.take(found.key) is not None


def test_what_is_on_disk_as_well_leaves_ram_first_unless_it_was_fetched(tmp_path: Path) -> None:
    with opened(tmp_path, ram=420) as store:
        for start in (0, 100):
            store.put(snap(range(start, start + 10), cost_s=9))
        assert store.flush(30)
        first = get_in(store, range(10))
        assert found_in(store, range(100, 110)) is not None
        assert store.take(first.key) is not None
        store.fetch(first.key)
        assert store.flush(30)
        for start in (200, 300):
            store.put(snap(range(start, start + 10)), to_disk=False)
        there = [found_in(store, range(start, start + 10)) for start in (0, 100, 200, 300)]
        assert [found is not None and found.in_ram for found in there] == [True, False, True, True]
        assert store.counts.dropped == 0


def test_clear_forgets_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path, name="other") as other:
        write(other, snap(range(10)))
    with opened(tmp_path) as before:
        write(before, snap(range(100, 110)))
    with opened(tmp_path) as store:
        store.put(snap(range(200, 210)))
        store.put(snap(range(300, 310)), to_disk=False)
        store.clear()
        write(store, snap(range(400, 410)))
        assert [found_in(store, range(start, start + 10)) is None for start in (100, 200, 300, 400)] == [True] * 3 + [
            False
        ]
    assert len(files(tmp_path)) == 2
    assert restore(tmp_path, range(10), name="other") is not None


def test_the_engine_never_waits_for_the_io_thread(tmp_path: Path) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(60)

    store = Snapshots("model", PLAIN, MANY, ram_bytes=1000, folder=tmp_path, disk_bytes=MB, on_ready=hold)
    store.fetch("unknown")
    assert held.wait(30)
    for start in range(0, 2000, 100):
        store.put(snap(range(start, start + 10)))
        assert store.ram_bytes <= 1000
    found = get_in(store, range(1900, 1910))
    assert store.take(found.key) is not None
    assert not store.flush(0.01)
    assert files(tmp_path) == []
    go_on.set()
    assert store.flush(30)
    assert store.counts.written == store.counts.in_ram > 3
    store.close()


def test_without_a_disk_a_fetch_is_answered_at_once() -> None:
    calls: list[int] = []
    store = Snapshots("model", PLAIN, MANY, ram_bytes=1000, on_ready=lambda: calls.append(1))
    store.fetch("unknown")
    assert calls == [1]
    assert store.flush(0)
    store.close()
    store.put(snap(range(10)))
    assert found_in(store, range(10)) is None


# -- while the I/O thread is in the middle of something -------------------------------------------------------------


def test_bytes_count_until_they_are_written(tmp_path: Path, gate: Gate) -> None:
    with opened(tmp_path, ram=300) as store:
        store.put(snap(range(10)))
        assert gate.entered.wait(30)
        store.put(snap(range(11), size=96, cost_s=2))
        assert store.ram_bytes == 280
        store.put(snap(range(100, 110)))  # no room: one is being written, the other is worth more
        assert store.ram_bytes <= 300
        gate.open.set()
        assert store.flush(30)
        assert store.ram_bytes == 140
    assert restore(tmp_path, range(10)) == snap(range(11), size=96, cost_s=2)


def test_taken_while_it_is_written(tmp_path: Path, gate: Gate) -> None:
    with opened(tmp_path) as store:
        store.put(snap(range(10)))
        assert gate.entered.wait(30)
        found = get_in(store, range(10))
        assert store.take(found.key) == snap(range(10))
        assert found_in(store, range(10)) is None
        gate.open.set()
        assert store.flush(30)
        assert (store.ram_bytes, store.counts.on_disk) == (0, 1)


@pytest.mark.parametrize("calls_before", [0, 1])  # fsync of the file, of the folder
def test_cleared_while_it_is_written(tmp_path: Path, gate: Gate, calls_before: int) -> None:
    gate.calls_before = calls_before
    with opened(tmp_path) as store:
        store.put(snap(range(10)))
        assert gate.entered.wait(30)
        store.clear()
        store.put(snap(range(100, 110)))
        gate.open.set()
        assert store.flush(30)
        assert found_in(store, range(10)) is None
        assert (store.counts.on_disk, len(os.listdir(tmp_path)), store.ram_bytes) == (1, 1, 140)
        assert store.counts.written == 1 + calls_before  # given up as soon as that was possible


def test_cleared_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        write(store, snap(range(10)))
        found = get_in(store, range(10))
        assert store.take(found.key) is not None
        gate = Gate(json.loads)
        monkeypatch.setattr(json, "loads", gate)
        store.fetch(found.key)
        assert gate.entered.wait(30)
        assert store.ram_bytes == 140
        assert store.take(found.key) is None
        store.clear()
        gate.open.set()
        assert store.flush(30)
        assert (store.take(found.key), store.ram_bytes, len(files(tmp_path))) == (None, 0, 0)


@pytest.mark.parametrize("ram", [0, MB])
def test_put_back_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ram: int) -> None:
    with opened(tmp_path, ram=ram) as store:
        write(store, snap(range(10)))
        found = get_in(store, range(10))
        taken = snap(range(10))
        store.take(found.key)
        gate = Gate(json.loads)
        monkeypatch.setattr(json, "loads", gate)
        store.fetch(found.key)
        assert gate.entered.wait(30)
        store.put(taken)
        files(tmp_path)[0].unlink()
        gate.open.set()
        assert store.flush(30)
        assert store.take(found.key) == taken
        assert store.ram_bytes == 0


def test_closed_while_it_is_written(tmp_path: Path, gate: Gate) -> None:
    store = Snapshots("model", PLAIN, MANY, ram_bytes=MB, folder=tmp_path, disk_bytes=MB)
    store.put(snap(range(10)))
    assert gate.entered.wait(30)
    closing = threading.Thread(target=store.close)
    closing.start()
    gate.open.set()
    closing.join(30)
    assert not closing.is_alive()
    assert [path.suffix for path in tmp_path.iterdir()] in ([], [".kv"])


def test_a_disk_that_fails_frees_what_waits_for_it(
    tmp_path: Path, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, ram=200) as store:
        store.put(snap(range(10)))
        assert gate.entered.wait(30)
        store.put(snap(range(100, 110), size=1000))
        assert store.ram_bytes == 140 + 1040
        gate.error = OSError(errno.ENOSPC, "No space left on device")
        gate.open.set()
        assert not store.flush(30)
        assert (store.ram_bytes, store.counts.in_ram, os.listdir(tmp_path)) == (140, 1, [])
    assert len(caplog.records) == 1
    assert caplog.text.rstrip().endswith(f"no more conversations are saved in {tmp_path}: No space left on device")


# -- files that are not as they should be --------------------------------------------------------------------------


def packed(folder: Path) -> Path:
    """A small file with every kind of content."""
    snapshot = replace(snap(range(12), ((0, 4, 0), (6, 12, 6)), size=60), checkpoints=((4, b"partial"),))
    head, _ = file.pack(snapshot, file.fingerprint_id("model"), 3, 0.25)
    assert file.write(folder, "0" * 32, head, snapshot, lambda: True)
    assert file.read(file.path(folder, "0" * 32)) == snapshot
    return file.path(folder, "0" * 32)


def test_no_byte_can_change_unnoticed_and_none_be_missing(tmp_path: Path) -> None:
    path = packed(tmp_path)
    whole = path.read_bytes()
    damages = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(len(whole))]
    damages += [whole[:length] for length in range(len(whole))] + [whole + b"\0", whole + whole]
    for number, damage in enumerate(damages):
        path.write_bytes(damage)
        with pytest.raises(file.OtherVersion if len(file.MAGIC) <= number < len(file.MAGIC) + 4 else file.Damaged):
            file.read(path)


def plant(folder: Path, damages: dict[str, Callable[[bytes], bytes]]) -> None:
    """One good file, and one for each damage."""
    with opened(folder) as store:
        for number in range(1 + len(damages)):
            store.put(snap(range(1000 * number, 1000 * number + 50), size=5000))
        assert store.flush(30)
    by_tokens = {file.read_head(path).outline.tokens[0]: path for path in files(folder)}
    for number, damage in enumerate(damages.values(), 1):
        path = by_tokens[1000 * number]
        path.write_bytes(damage(path.read_bytes()))


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda whole: (
        whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :] if at >= 0 else flip(len(whole) + at)(whole)
    )


HEADS: dict[str, Callable[[bytes], bytes]] = {
    "magic": flip(2),
    "length of the facts": flip(13),
    "number of tokens": flip(23),
    "facts": flip(60),
    "tokens": lambda whole: flip(whole.index(b"}") + 50)(whole),
    "nothing": lambda whole: b"",
    "half": lambda whole: whole[: len(whole) // 2],
    "more": lambda whole: whole + b"x",
}


def test_damaged_files_are_ignored_with_one_warning_and_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plant(tmp_path, HEADS)
    with opened(tmp_path) as store:
        assert [record.getMessage() for record in caplog.records] == [
            f"{len(HEADS)} saved conversations in {tmp_path} cannot be used: damaged, or of another version"
        ]
        assert store.counts.on_disk == len(files(tmp_path)) == 1
        write(store, snap(range(5)))
    assert restore(tmp_path, range(50)) == snap(range(50), size=5000)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("at", [-3000, -33, -1])
def test_a_damaged_state_is_found_when_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, at: int) -> None:
    plant(tmp_path, {"state": flip(at)})
    assert restore(tmp_path, range(1000, 1050)) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(tmp_path) in caplog.text
    assert len(files(tmp_path)) == 1
    assert restore(tmp_path, range(50)) is not None
    assert restore(tmp_path, range(1000, 1050)) is None


def test_a_file_in_the_place_of_another_is_not_believed(tmp_path: Path) -> None:
    ready = threading.Event()
    plant(tmp_path, {"none": lambda whole: whole})
    store = Snapshots("model", PLAIN, MANY, ram_bytes=MB, folder=tmp_path, disk_bytes=MB, on_ready=ready.set)
    assert store.flush(30)
    found = get_in(store, range(50))
    mine = tmp_path / f"{found.key}.kv"
    (other,) = set(files(tmp_path)) - {mine}
    mine.write_bytes(other.read_bytes())
    store.fetch(found.key)
    assert ready.wait(30)
    assert store.take(found.key) is None
    assert found_in(store, range(50)) is None
    store.close()


def test_files_of_another_version_stay_until_room_is_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plant(tmp_path, {"version": flip(8)})
    with opened(tmp_path) as store:
        assert len(caplog.records) == 1
        assert (store.counts.on_disk, len(files(tmp_path))) == (1, 2)
        cap = store.disk_bytes
    with opened(tmp_path, disk=cap) as store:
        write(store, snap(range(5000, 5005)))
        assert (store.counts.on_disk, len(files(tmp_path))) == (2, 2)


def test_what_does_not_look_like_ours_is_not_touched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes.kv").write_text("mine")
    (tmp_path / f"{'a' * 32}.kv").mkdir()
    (tmp_path / f"{'b' * 32}.kv").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / f"{'c' * 32}.part")
    with opened(tmp_path) as store:
        write(store, snap(range(5)))
        store.clear()
        assert store.flush(30)
        assert store.disk_bytes == 0
    assert len(os.listdir(tmp_path)) == 4
    assert caplog.records == []


def test_a_leftover_of_a_dead_process_is_removed_and_a_file_being_written_is_not(tmp_path: Path) -> None:
    leftover = tmp_path / f"{'a' * 32}.part"
    leftover.write_bytes(b"half")
    with opened(tmp_path):
        assert not leftover.exists()
    snapshot = snap(range(10))
    head, _ = file.pack(snapshot, file.fingerprint_id("model"), 1, 0.0)
    looks = []

    def look() -> bool:
        with opened(tmp_path) as other:
            looks.append((other.disk_bytes, len(os.listdir(tmp_path))))
        return True

    assert file.write(tmp_path, "b" * 32, head, snapshot, look)
    assert set(looks) == {(0, 1)}
    assert restore(tmp_path, range(10)) == snapshot


@pytest.mark.parametrize("is_removed_first", [False, True])
def test_a_file_that_was_taken_for_a_leftover_too_early_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed_first: bool
) -> None:
    """Another process looks between the making of a file and its locking, which are two calls."""
    real, cleaners = fcntl.flock, iter([True, True, False])

    def flock(descriptor: int, operation: int) -> None:
        if not next(cleaners):
            real(descriptor, operation)
            return
        (part,) = tmp_path.glob("*.part")
        with part.open() as cleaner:
            real(cleaner, operation)
            try:
                if is_removed_first:
                    part.unlink()
                    real(cleaner, fcntl.LOCK_UN)
                real(descriptor, operation)
            finally:
                part.unlink(missing_ok=True)

    snapshot = snap(range(10))
    head, _ = file.pack(snapshot, file.fingerprint_id("model"), 1, 0.0)
    monkeypatch.setattr(fcntl, "flock", flock)
    assert file.write(tmp_path, "b" * 32, head, snapshot, lambda: True)
    monkeypatch.undo()
    assert restore(tmp_path, range(10)) == snapshot


def test_a_write_that_is_not_wanted_any_more_leaves_nothing(tmp_path: Path) -> None:
    snapshot = snap(range(10))
    head, _ = file.pack(snapshot, file.fingerprint_id("model"), 1, 0.0)
    for looks in range(3):
        assert not file.write(tmp_path, "b" * 32, head, snapshot, iter([True] * looks + [False]).__next__)
        assert os.listdir(tmp_path) == []


# -- disks and processes -------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with opened(tmp_path / "file") as store:
        for start in range(0, 500, 100):
            store.put(snap(range(start, start + 10)))
        assert not store.flush(30)
        assert all(found_in(store, range(start, start + 10)) for start in range(0, 500, 100))
        store.clear()
        assert store.counts.in_ram == 0
        assert not store.flush(30)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(tmp_path / "file") in caplog.text


def test_a_folder_that_goes_away_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "kv"
    with opened(folder) as store:
        write(store, snap(range(10)))
        files(folder)[0].unlink()
        folder.rmdir()
        assert found_in(store, range(10)) is not None
        write(store, snap(range(20)))
    assert restore(folder, range(20)) == snap(range(20))
    assert caplog.records == []


def test_what_another_process_saved_or_deleted_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as mine, opened(tmp_path) as theirs:
        write(theirs, snap(range(10)))
        mine.put(snap(range(100, 110)))
        assert mine.flush(30)
        found = get_in(mine, range(10))
        theirs.clear()
        assert theirs.flush(30)
        mine.fetch(found.key)
        assert mine.flush(30)
        assert mine.take(found.key) is None
        assert found_in(mine, range(10)) is None
        write(theirs, snap(range(10)))
        mine.put(snap(range(200, 210)))
        assert mine.flush(30)
        assert found_in(mine, range(10)) is not None
        theirs.clear()
        assert theirs.flush(30)
        write(mine, snap(range(300, 310)))
        assert found_in(mine, range(10)) is None  # without having tried to read it
        assert mine.disk_bytes == bytes_of(tmp_path)


def test_what_another_process_has_written_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    with opened(tmp_path) as mine, opened(tmp_path) as theirs:
        write(theirs, snap(range(10)))
        mine.put(snap(range(10)))
        assert mine.flush(30)
        assert (mine.counts.written, mine.counts.on_disk, len(files(tmp_path))) == (0, 1, 1)
