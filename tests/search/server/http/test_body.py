"""Bodies that come slowly: the clock decides."""

import asyncio

import pytest
from starlette.types import Message, Receive
from tests.unit.server.http.test_body import coming, scope_of

from shepherd.core import InvalidRequest
from shepherd.server.http.body import read_body


def slowly(receive: Receive, after_s: float) -> Receive:
    async def receive_late() -> Message:
        await asyncio.sleep(after_s)
        return await receive()

    return receive_late


async def test_a_body_that_comes_at_a_trickle_is_given_up() -> None:
    trickle = slowly(coming(*[b"x"] * 1000), 0.005)
    with pytest.raises(InvalidRequest, match=r"comes too slowly|stopped coming") as refused:
        await read_body(scope_of(), trickle, 2000, 0.05)
    assert refused.value.status == 408


async def test_a_large_body_may_take_its_time() -> None:
    chunks = [b"x" * 100_000] * 10
    assert len(await read_body(scope_of(), slowly(coming(*chunks), 0.02), 10**6, 5.0)) == 10**6
