"""What TensorRT-LLM reports about its cache: an index of its blocks, and the thread that fetches the reports.

    created ─ stored(parent, blocks with their tokens) ─ updated(level) ─ removed(hashes) ─▶ BlockIndex

The library keeps the blocks of finished requests and gives the stalest leaf to a request that needs room. So a removed
block is pressure, and no loss: a running prompt is never shortened, and no message leaves a conversation because of
it. A block that moves to host memory is `updated` and stays reusable. All numbers are exact while no event is missing.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from shepherd.core.dataclasses import dataclass

logger = logging.getLogger(__name__)

FETCH_S = 0.1
"""Seconds that one fetch waits for events."""
PAUSE_S = 0.5
"""Seconds between two fetches that brought nothing: one shape of the call returns at once when there is nothing."""
MAX_FAILURES = 20
"""Fetches in a row that may fail before they become rare."""
MAX_BRANCHES = 64
"""Blocks behind one place, the newest, that are compared for a common beginning."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Removed:
    """What left the cache, in one batch of events."""

    blocks: int = 0
    tokens: int = 0
    is_exact: bool = True
    """Whether every block was known; the size of a block stands for the others' tokens."""


@dataclass(frozen=True, slots=True)
class _Block:
    parent: int | None
    tokens: bytes
    """As of an `array("i")`."""
    level: int
    """0: on the GPU; above: in host memory or on disk."""

    @property
    def n(self) -> int:
        return len(self.tokens) // _SIZE


_SIZE = array("i").itemsize


class BlockIndex:
    """The blocks in the library's cache, as its events tell. One thread at a time."""

    def __init__(self, block_size: int) -> None:
        """`block_size`: tokens of a full block of this engine."""
        self.block_size = block_size
        self.n_blocks = 0
        """Blocks that fit on the GPU; 0 while unknown."""
        self.n_tokens = 0
        """Tokens of the known blocks on the GPU."""
        self.n_gaps = 0
        """How often events were missing, and the index began again from nothing."""
        self._blocks: dict[int, _Block] = {}
        self._behind: dict[int | None, dict[int, None]] = {}
        """Hash of a block (None: the beginning) -> hashes of the blocks behind it."""
        self._found: dict[tuple[int | None, bytes], dict[int, None]] = {}
        """The same by their tokens too: requests with different salts make blocks of equal tokens."""
        self._window: int | None = None
        self._last: dict[object, int] = {}
        """The last event's id, for each rank of attention data parallelism."""

    def __len__(self) -> int:
        return len(self._blocks)

    def feed(self, events: object) -> Removed:
        """Read a batch of events: dictionaries, JSON texts, or lists of them. What cannot be read is passed over."""
        n, tokens, is_exact = 0, 0, True
        for event in _flat(events):
            kind, detail = self._next(event)
            if kind == "stored":
                self._store(detail)
            elif kind == "updated":
                self._update(detail)
            elif kind == "removed":
                for hash_ in (each for each in _list(detail.get("block_hashes")) if isinstance(each, int)):
                    block = self._forget(hash_)
                    n += 1
                    tokens += block.n if block is not None else self.block_size
                    is_exact &= block is not None
        return Removed(n, tokens, is_exact)

    def held(self, tokens: array[int]) -> int:
        """How many leading tokens of a prompt are in blocks; the last token never counts, it is always computed."""
        limit = len(tokens) - 1
        nodes: list[int | None] = [None]
        n = 0
        while n < limit:
            wanted = tokens[n : min(n + self.block_size, limit)].tobytes()
            whole = [hash_ for node in nodes for hash_ in self._found.get((node, wanted), ())]
            if not whole or len(wanted) < self.block_size * _SIZE:
                behind = (
                    hash_ for node in nodes for hash_ in islice(reversed(self._behind.get(node, {})), MAX_BRANCHES)
                )
                return n + max((_common(self._blocks[hash_].tokens, wanted) for hash_ in behind), default=0)
            nodes, n = [*whole], n + self.block_size
        return n

    def held_whole(self, tokens: array[int]) -> int:
        """The same of whole blocks, which requests share: a block that is equal in part only is made anew."""
        n = self.held(tokens)
        return n - n % self.block_size

    def _next(self, event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The kind and the content of an event that counts; an empty kind for the others."""
        data, id_, window = event.get("data"), event.get("event_id"), event.get("window_size")
        if not isinstance(data, Mapping):
            return "", {}
        if isinstance(id_, int):
            rank = event.get("attention_dp_rank")
            last = self._last.get(rank if isinstance(rank, int) else None)
            if last is not None and id_ > last + 1:
                self._begin_again()
            self._last[rank if isinstance(rank, int) else None] = id_
        kind = data.get("type")
        if kind == "created" and isinstance(window, int):
            self._create(data, window)
        if isinstance(window, int) and self._window is not None and window != self._window:
            return "", {}  # another attention window: the same tokens would count twice
        return kind if isinstance(kind, str) else "", data

    def _create(self, data: Mapping[str, Any], window: int) -> None:
        if self._window is not None and window <= self._window:
            return
        self._window = window
        levels = data.get("num_blocks_per_cache_level")
        if isinstance(levels, list) and levels and isinstance(levels[0], int):
            self.n_blocks = levels[0]

    def _begin_again(self) -> None:
        self.n_gaps += 1
        self.n_tokens = 0
        for each in (self._blocks, self._behind, self._found):
            each.clear()

    def _store(self, data: Mapping[str, Any]) -> None:
        parent = data.get("parent_hash")
        parent = parent if isinstance(parent, int) else None
        for given in _list(data.get("blocks")):
            hash_ = given.get("block_hash") if isinstance(given, Mapping) else None
            if not isinstance(hash_, int):
                continue
            self._forget(hash_)
            level = given.get("cache_level")
            tokens = array("i", _token_ids(given.get("tokens")))
            block = _Block(parent, tokens.tobytes(), level if isinstance(level, int) else 0)
            self._blocks[hash_] = block
            self._behind.setdefault(parent, {})[hash_] = None
            self._found.setdefault((parent, block.tokens), {})[hash_] = None
            self.n_tokens += 0 if block.level else block.n
            parent = hash_

    def _update(self, data: Mapping[str, Any]) -> None:
        hash_, diff = data.get("block_hash"), data.get("cache_level")
        level = diff.get("new_value") if isinstance(diff, Mapping) else None
        block = self._blocks.get(hash_) if isinstance(hash_, int) else None
        if block is None or not isinstance(level, int) or not isinstance(hash_, int):
            return
        self.n_tokens += block.n * (bool(block.level) - bool(level))
        self._blocks[hash_] = _Block(block.parent, block.tokens, level)

    def _forget(self, hash_: int) -> _Block | None:
        block = self._blocks.pop(hash_, None)
        if block is not None:
            self.n_tokens -= 0 if block.level else block.n
            _drop(self._behind, block.parent, hash_)
            _drop(self._found, (block.parent, block.tokens), hash_)
        return block


class EventPoller:
    """A thread that fetches events and hands them on. It works with both shapes of the library's call:

    one drains until it has been silent for the timeout, and then returns nothing until the next request; the other
    waits for events up to the timeout. Neither may make the thread spin.
    """

    def __init__(
        self, fetch: Callable[[float], Sequence[Any]], hand_on: Callable[[Sequence[Any]], None], *, name: str
    ) -> None:
        """`fetch` gets the seconds to wait; `hand_on` is called on the poller's thread."""
        self.n_fetches = 0
        self._fetch = fetch
        self._hand_on = hand_on
        self._name = name
        self._woken = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kv-events-{name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Fetch now: a request came, or ended. Any thread."""
        self._woken.set()

    def close(self, timeout_s: float = 2.0) -> None:
        self._stop.set()
        self._woken.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        n_failures = 0
        while not self._stop.is_set():
            events: Sequence[Any] = ()
            self.n_fetches += 1
            try:
                events = self._fetch(FETCH_S)
                n_failures = 0
            except AssertionError:
                pass  # one shape of the call: no request has been submitted yet
            except Exception as error:
                n_failures += 1
                if n_failures == MAX_FAILURES and not self._stop.is_set():
                    logger.warning("the cache events of %r cannot be fetched: %s", self._name, error)
            if events:
                self._hand_on(events)
            elif not self._stop.is_set():
                self._woken.wait(PAUSE_S if n_failures < MAX_FAILURES else 10 * PAUSE_S)
                self._woken.clear()


class PressureLog:
    """Logs what left the cache, at most once in `every_s` seconds."""

    def __init__(self, name: str, *, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._every_s, self._clock = name, every_s, clock
        self._blocks = self._tokens = 0
        self._next_s = -1.0

    def note(self, removed: Removed) -> None:
        self._blocks += removed.blocks
        self._tokens += removed.tokens
        if not self._blocks or self._clock() < self._next_s:
            return
        logger.info(
            "KVCacheRemovedData: %d blocks (%s%d tokens) left the reuse cache of %r to make room; no message left its "
            "conversation", self._blocks, "" if removed.is_exact else "about ", self._tokens, self._name,
        )  # fmt: skip
        self._blocks = self._tokens = 0
        self._next_s = self._clock() + self._every_s


def _drop(sets: dict[K, dict[int, None]], key: K, hash_: int) -> None:
    del sets[key][hash_]
    if not sets[key]:
        del sets[key]


def _flat(events: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(events, str):
        try:
            events = json.loads(events)
        except ValueError:
            return
    if isinstance(events, Mapping):
        yield events
    elif isinstance(events, Sequence) and not isinstance(events, str):
        for event in events:
            yield from _flat(event)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _token_ids(value: object) -> Iterator[int]:
    for token in _list(value):
        id_ = token.get("token_id") if isinstance(token, Mapping) else token
        if isinstance(id_, int) and 0 <= id_ < 1 << 31:
            yield id_


def _common(one: bytes, other: bytes) -> int:
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n // _SIZE
    return next(at for at in range(0, n, _SIZE) if one[at : at + _SIZE] != other[at : at + _SIZE]) // _SIZE
