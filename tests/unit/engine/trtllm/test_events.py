"""The cache's events: what the index makes of them, compared with a naive one, and the thread that fetches them."""

from __future__ import annotations

import json
import logging
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tensorrt_llm.blocks import BlockCache, common
from tests.in_time import becomes_true
from tests.unit.engine.trtllm import trt  # noqa: F401 - it keeps MPI out of this process

from shepherd.engine.trtllm.events import BlockIndex, EventPoller, PressureLog, Removed

Json = dict[str, Any]
SIZE = 4


def event(id_: int, data: Json, window: int = 2048, **more: Any) -> Json:
    return {"event_id": id_, "data": data, "window_size": window, **more}


def created(id_: int = 0, window: int = 2048) -> Json:
    return event(id_, {"type": "created", "num_blocks_per_cache_level": [8, 0]}, window)


def stored(id_: int, parent: int | None, *blocks: tuple[int, list[int]], window: int = 2048, **more: Any) -> Json:
    made = [
        {
            "type": "stored_block",
            "block_hash": hash_,
            "tokens": [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens],
            "cache_level": 0,
            "priority": 35,
            **more,
        }
        for hash_, tokens in blocks
    ]
    return event(id_, {"type": "stored", "parent_hash": parent, "blocks": made}, window)


def removed(id_: int, *hashes: int, window: int = 2048) -> Json:
    return event(id_, {"type": "removed", "block_hashes": list(hashes)}, window)


def index(*events: Any) -> BlockIndex:
    made = BlockIndex(SIZE)
    made.feed(list(events))
    return made


BIG = 2**64 - 5
A, B = (BIG, [1, 2, 3, 4]), (7, [5, 6])


def held(of: BlockIndex, *tokens: int) -> int:
    return of.held(array("i", tokens))


def test_stored_blocks_are_found_by_their_tokens_and_the_last_one_never_counts() -> None:
    known = index(created(), stored(1, None, A, B))
    assert (len(known), known.n_tokens, known.n_blocks) == (2, 6, 8)
    assert held(known, 1, 2, 3, 4, 5, 6, 9) == 6
    assert held(known, 1, 2, 3, 4, 5, 6) == 5
    assert held(known, 1, 2, 3, 4, 5, 9, 9) == 5, "a block is reused in part"
    assert held(known, 1, 2, 9, 9) == 2
    assert held(known, 9, 1, 2, 3) == 0
    assert held(known) == held(known, 1) == 0


def test_removed_tokens_are_counted_by_what_the_blocks_held() -> None:
    known = index(created(), stored(1, None, A, B))
    assert known.feed([removed(2, 7)]) == Removed(1, 2, True)
    assert known.feed([removed(3, 7, BIG)]) == Removed(2, SIZE + 4, False), "an unknown block counts as a full one"
    assert (len(known), known.n_tokens) == (0, 0)


def test_a_missing_event_begins_the_index_again() -> None:
    known = index(created(), stored(1, None, A, B))
    assert known.feed([removed(3, 7)]) == Removed(1, SIZE, False)
    assert (known.n_gaps, len(known)) == (1, 0)
    known.feed([stored(4, None, A)])
    assert held(known, 1, 2, 3, 4, 5) == 4


def test_each_rank_counts_its_events_for_itself() -> None:
    known = index(created())
    for rank in (0, 1):
        known.feed([event(id_, {"type": "removed", "block_hashes": []}, attention_dp_rank=rank) for id_ in range(4)])
    assert known.n_gaps == 0


def test_only_the_largest_attention_window_counts() -> None:
    known = index(created(0, 512), created(1, 2048), stored(2, None, A, window=512), stored(3, None, B))
    assert len(known) == 1
    assert known.feed([removed(4, 7, window=512)]) == Removed()
    assert known.feed([removed(5, 7)]) == Removed(1, 2)


def test_a_move_to_the_host_is_no_removal() -> None:
    move = {"type": "updated", "block_hash": BIG, "priority": None}
    diff = {"type": "event_diff", "new_value": 1, "old_value": 0}
    known = index(created(), stored(1, None, A))
    assert known.feed([event(2, {**move, "cache_level": diff})]) == Removed()
    assert (len(known), known.n_tokens, held(known, 1, 2, 3, 4, 5)) == (1, 0, 4)
    known.feed([event(3, {**move, "cache_level": None}), event(4, {**move, "cache_level": {**diff, "new_value": 0}})])
    assert known.n_tokens == 4


def test_lists_texts_and_later_additions_are_read() -> None:
    first = [created(), [stored(1, None, A, mm_keys=[], lora_id=None)]]
    second = json.dumps(event(2, {"type": "removed", "block_hashes": [BIG], "hash_algo": "x"}, layer_group_id=0))
    known = index(*first)
    assert len(known) == 1
    assert known.feed([second]) == Removed(1, 4)


def test_the_same_tokens_of_two_conversations_are_both_followed() -> None:
    """Salts make two blocks of equal tokens; which of them goes on is known only later."""
    known = index(created(), stored(1, None, (1, [1, 2, 3, 4])), stored(2, None, (2, [1, 2, 3, 4]), (3, [5, 6, 7, 8])))
    assert held(known, 1, 2, 3, 4, 5, 6, 7, 8, 9) == 8


JUNK: list[Any] = [
    None, 5, "", "{", "[]", {}, {"data": None}, {"data": []}, {"data": {"type": None}}, {"event_id": "x", "data": {}},
    event(1, {"type": "stored", "parent_hash": "x", "blocks": None}), event(1, {"type": "stored"}),
    event(1, {"type": "stored", "blocks": [None, 3, {}, {"block_hash": "x"}, {"block_hash": 5, "tokens": None}]}),
    event(1, {"type": "stored", "blocks": [{"block_hash": 6, "tokens": [None, 3, -1, 2**40, {"token_id": "x"}]}]}),
    event(1, {"type": "removed", "block_hashes": None}), event(1, {"type": "removed", "block_hashes": ["x", None]}),
    event(1, {"type": "updated", "block_hash": None, "cache_level": None}),
    event(1, {"type": "updated", "block_hash": 9, "cache_level": {"new_value": "x"}}),
    event(1, {"type": "created", "num_blocks_per_cache_level": None}), {"event_id": 1, "data": {"type": "created"}},
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: str(junk)[:60])
def test_what_cannot_be_read_is_passed_over(junk: Any) -> None:
    known = index(created(), junk, [junk, [junk]], stored(1, None, A))
    known.feed(junk)
    assert held(known, 1, 2, 3, 4, 5) == 4


# -- against a naive model ---------------------------------------------------------------------------------------------

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=22), min_size=1, max_size=24)


@given(prompts, st.integers(3, 12), st.integers(0, 4), st.booleans())
def test_the_index_holds_exactly_what_the_cache_holds(
    asked: list[list[int]], n_blocks: int, n_host: int, partial: bool
) -> None:
    """A cache with random prompts: the index that reads its events answers as the cache itself, after every request."""
    cache = BlockCache(
        n_blocks=n_blocks, n_host=n_host, block_size=SIZE, window=64, n_events=10_000, partial=True, reuse=True
    )
    known = BlockIndex(SIZE)
    gone = 0
    for tokens in asked:
        before = sum(len(block.tokens) for block in cache.blocks.values())
        admitted = cache.admit(tokens, 2, "")
        if admitted is not None:
            pinned, _, n_reserved = admitted
            if partial:
                cache.store(tokens, "", whole_only=True)
            cache.release(pinned, n_reserved)
            cache.store(tokens, "", whole_only=False)
        got = known.feed([*cache.buffer])
        new = sum(len(block["tokens"]) for each in cache.buffer for block in each["data"].get("blocks", ()))
        cache.buffer.clear()
        gone += got.tokens
        after = sum(len(block.tokens) for block in cache.blocks.values())
        assert got.is_exact
        assert before + new - got.tokens == after, "removed tokens are counted exactly"
        assert len(known) == len(cache.blocks)
        assert known.n_tokens == sum(len(block.tokens) for block in cache.blocks.values() if not block.level)
        for other in asked:
            assert known.held(array("i", other)) == naive(cache, other)


def naive(cache: BlockCache, tokens: list[int]) -> int:
    """The longest common beginning with any path of blocks, where only the last block of a path may be used in part."""
    paths: list[list[int]] = []

    def walk(block: Any, path: list[int]) -> None:
        for child in block.children.values():
            paths.append([*path, *child.tokens])
            if len(child.tokens) == SIZE:
                walk(child, [*path, *child.tokens])

    for root in cache.roots.values():
        walk(root, [])
    return max((common(path, tokens[:-1]) for path in paths), default=0)


# -- the poller --------------------------------------------------------------------------------------------------------


def test_a_fetch_that_fails_is_tried_again_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    n_calls = 0

    def fetch(timeout: float) -> list[Json]:
        nonlocal n_calls
        n_calls += 1
        raise RuntimeError("RPC closed")

    poller = EventPoller(fetch, lambda events: None, name="test")

    def is_over() -> bool:
        poller.wake()
        return n_calls > 60

    assert becomes_true(is_over)
    poller.close()
    assert caplog.text.count("cannot be fetched: RPC closed") == 1


def test_pressure_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = iter([0.0, 0.0, 1.0, 2.0, 11.0, 11.0, 30.0, 30.0])
    log = PressureLog("main", every_s=10, clock=lambda: next(clock))
    for _ in range(5):
        log.note(Removed(1, 32))
    log.note(Removed())
    assert [record.getMessage().split(" left")[0] for record in caplog.records] == [
        "KVCacheRemovedData: 1 blocks (32 tokens)",
        "KVCacheRemovedData: 3 blocks (96 tokens)",
        "KVCacheRemovedData: 1 blocks (32 tokens)",
    ]
