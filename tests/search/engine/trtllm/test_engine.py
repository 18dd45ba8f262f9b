"""The tests of `tests/unit/engine/trtllm/test_engine.py` that take long."""

from __future__ import annotations

import asyncio

import pytest
from tests.in_time import until
from tests.unit.engine.trtllm.test_engine import (
    CUP,
    Make,
    make,  # noqa: F401 - fixtures
)


@pytest.mark.parametrize("events", ["queue", "rpc"])
async def test_both_shapes_of_the_events_call_feed_the_index_without_spinning(make: Make, events: str) -> None:
    bench = make(say=CUP, events=events)
    assert bench.engine._poller is not None
    for n in range(3):
        await bench.steps(bench.job(f"cup {n}"))
    await bench.steps(bench.job("the last one brings what one shape keeps back"))
    await until(lambda: bench.engine._index.n_tokens > 60)
    fetches = bench.engine._poller.n_fetches
    await asyncio.sleep(1.0)  # a pause is what is measured
    assert bench.engine._poller.n_fetches - fetches < 8
