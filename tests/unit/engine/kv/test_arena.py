"""Memory that outlives its process: what is kept is found by the next one, and what is dropped takes no memory."""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.engine.base import Memory, Owner
from shepherd.engine.kv.tiers import Snapshot, Snapshots, arena
from shepherd.engine.kv.tiers.arena import Arena, Region

pytestmark = pytest.mark.skipif(not arena.IS_POSSIBLE, reason="this system has no files without a name")
ATTENTION = Memory(hole=True, rollback="any", share=True, shift=True, checkpoint=False)
BLOCK = 512
"""Bytes of a unit of `st_blocks`."""


@pytest.fixture
def handle() -> Iterator[int]:
    made = arena.create()
    yield made
    os.close(made)


def snapshot(first: int = 1, size: int = 100_000, **fields: object) -> Snapshot:
    tokens = array("i", range(first, first + 50))
    made = Snapshot(tokens, ((0, 50, 0),), (), 10, bytes([first % 256]) * size, 1.0)
    return replace(made, **fields)  # type: ignore[arg-type]


def opened(handle: int, regions: dict[str, Region]) -> Arena:
    """An arena whose parent notes what it tells."""

    def note(key: str, region: Region | None) -> None:
        if region is None:
            regions.pop(key, None)
        else:
            regions[key] = region

    return Arena(handle, regions, note)


def store(parent: Arena, *, ram_bytes: int = 1 << 20, cache: str = "main", fingerprint: str = "f") -> Snapshots:
    return Snapshots(fingerprint, ATTENTION, 10_000, ram_bytes=ram_bytes, outliving=parent.part(cache, fingerprint))


def same(one: Snapshot | None, other: Snapshot) -> bool:
    assert one is not None
    states = [(bytes(each.state), [(n, bytes(state)) for n, state in each.checkpoints]) for each in (one, other)]
    return states[0] == states[1] and one.outline() == other.outline()


def used(handle: int) -> int:
    return os.fstat(handle).st_blocks * BLOCK


def test_the_next_process_has_what_the_one_before_kept(handle: int) -> None:
    regions: dict[str, Region] = {}
    kept = [
        snapshot(1),
        snapshot(100, owner=Owner("bob"), checkpoints=((20, b"c" * 999), (30, b"")), n_system=5),
        snapshot(200, 7, n_base=10, runs=((10, 50, 10),)),
    ]
    first = store(opened(handle, regions))
    for each in kept:
        assert first.put(each)
    del first
    second = store(opened(handle, regions))
    for each in kept:
        assert same(second.take(second.key(each)), each)
    assert regions == {}, "what is taken is in the cells now"


def test_what_is_dropped_takes_no_memory_and_what_a_process_had_not_told_does_not_either(handle: int) -> None:
    regions: dict[str, Region] = {}
    made = store(opened(handle, regions))
    for first in (1, 100, 200):
        made.put(snapshot(first))
    assert used(handle) >= 300_000
    taken = made.take(made.key(snapshot(1)))
    assert used(handle) >= 300_000, "it is still being loaded"
    del taken
    assert used(handle) < 250_000
    made.clear()
    assert used(handle) == 0
    made.put(snapshot(7))
    assert used(handle) > 0
    del made
    opened(handle, {})
    assert used(handle) == 0


def test_a_cap_holds_in_the_next_process_too(handle: int) -> None:
    regions: dict[str, Region] = {}
    made = store(opened(handle, regions))
    for first in (1, 100, 200):
        made.put(snapshot(first))
    smaller = store(opened(handle, regions), ram_bytes=150_000)
    assert smaller.ram_bytes <= 150_000
    assert len(regions) == 1


def test_each_cache_has_its_own_and_none_of_another_model(handle: int) -> None:
    regions: dict[str, Region] = {}
    parent = opened(handle, regions)
    one, other = store(parent), store(parent, cache="other")
    one.put(snapshot(1))
    other.put(snapshot(1))
    assert len(regions) == 2
    again = opened(handle, regions)
    assert not store(again, fingerprint="another").outlines()
    assert list(regions) == [f"other/{other.key(snapshot(1))}"]
    assert store(again, cache="other").outlines()


def test_a_copy_of_the_cells_leaves_for_whatever_else_comes_and_drives_nothing_out(handle: int) -> None:
    regions: dict[str, Region] = {}
    made = store(opened(handle, regions), ram_bytes=250_000)
    made.put(snapshot(1), is_spare=True)
    made.put(snapshot(100))
    assert made.spare_bytes == snapshot(1).size_bytes
    made.put(snapshot(200), is_spare=True)
    assert set(made.outlines()) == {made.key(snapshot(1)), made.key(snapshot(100))}
    made.put(snapshot(300, cost_s=1e-6))
    assert set(made.outlines()) == {made.key(snapshot(300, cost_s=1e-6)), made.key(snapshot(100))}
    assert made.spare_bytes == 0


def test_without_room_a_snapshot_stays_where_it_is(handle: int) -> None:
    full = os.open("/dev/null", os.O_RDONLY)  # no file that can grow
    try:
        made = Arena(full, {}, lambda key, region: None)
        assert made.part("main", "f").keep("k", snapshot(1)).state == snapshot(1).state
    finally:
        os.close(full)


@given(st.binary(max_size=300), st.integers(0, 3))
def test_whatever_is_in_a_region_is_no_error(content: bytes, n_before: int) -> None:
    handle = arena.create()
    try:
        os.ftruncate(handle, (n_before + 1) * mmap.PAGESIZE)
        os.pwrite(handle, content, n_before * mmap.PAGESIZE)
        regions = {"main/x": Region(n_before * mmap.PAGESIZE, max(1, len(content)))}
        assert not store(opened(handle, regions)).outlines()
        assert regions == {}
    finally:
        os.close(handle)
