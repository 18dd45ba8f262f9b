"""The tests of `tests/unit/engine/trtllm/test_events.py` that take long."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import pytest
from tests.in_time import becomes_true
from tests.unit.engine.trtllm import trt  # noqa: F401 - it keeps MPI out of this process
from tests.unit.engine.trtllm.test_events import BIG, SIZE, A, B, Json, created, removed, stored

from shepherd.engine.trtllm.events import BlockIndex, EventPoller, Removed


class QueueShape:
    """Drains until it has been silent for the timeout, and then returns nothing until the next request."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Json] = queue.Queue()
        self.is_ready, self.is_done = False, False

    def submit(self) -> None:
        self.is_ready, self.is_done = True, False

    def fetch(self, timeout: float) -> list[Json]:
        assert self.is_ready, "KV Event IterationResult is not properly instantiated."
        found = []
        while not self.is_done:
            try:
                found.append(self.queue.get(timeout=timeout))
            except queue.Empty:
                self.is_done = True
        return found


class RpcShape:
    """Returns what there is; waits for it up to the timeout."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Json] = queue.Queue()

    def submit(self) -> None: ...

    def fetch(self, timeout: float) -> list[Json]:
        try:
            return [self.queue.get(timeout=timeout)]
        except queue.Empty:
            return []


@pytest.mark.parametrize("shape", [QueueShape, RpcShape])
def test_the_poller_reads_both_shapes_and_does_not_spin(shape: Callable[[], QueueShape | RpcShape]) -> None:
    library, known, got = shape(), BlockIndex(SIZE), list[Removed]()
    poller = EventPoller(library.fetch, lambda events: got.append(known.feed(events)), name="test")
    time.sleep(0.2)
    assert poller.n_fetches < 5
    library.submit()
    poller.wake()
    for each in (created(), stored(1, None, A, B), removed(2, 7), removed(9, BIG)):
        library.queue.put(each)
    assert becomes_true(lambda: sum(each.blocks for each in got) == 2)
    assert sum(each.tokens for each in got) == 2 + SIZE
    assert known.n_gaps == 1
    before = poller.n_fetches
    time.sleep(0.6)
    assert poller.n_fetches - before < 6
    poller.close()
    assert not [each for each in threading.enumerate() if each.name == "kv-events-test"]
