"""The body of a request as it comes in, piece by piece."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive

from shepherd.core import InvalidRequest
from shepherd.server.http.body import BodyTooLarge, ClientGone, read_body


def coming(*chunks: bytes, after_s: float = 0.0, ends: bool = True) -> Receive:
    """A client that sends `chunks`, each after a while, and then ends the body or goes away."""
    left = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    left.append({"type": "http.request", "body": b""} if ends else {"type": "http.disconnect"})

    async def receive() -> Message:
        await asyncio.sleep(after_s)
        return left.pop(0)

    return receive


def scope_of(**headers: str) -> dict[str, Any]:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "headers": named}


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(0, 100))
async def test_a_body_is_the_sum_of_its_pieces_up_to_the_limit(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    if len(whole) > limit:
        with pytest.raises(BodyTooLarge, match=f"{limit} bytes"):
            await read_body(scope_of(), coming(*chunks), limit, 60)
    else:
        assert await read_body(scope_of(), coming(*chunks), limit, 60) == whole


async def test_a_declared_length_above_the_limit_is_refused_unread() -> None:
    async def receive() -> Message:
        raise AssertionError("read")

    with pytest.raises(BodyTooLarge):
        await read_body(scope_of(content_length="11"), receive, 10, 60)


async def test_a_body_that_comes_at_a_trickle_is_given_up() -> None:
    trickle = coming(*[b"x"] * 1000, after_s=0.005)
    with pytest.raises(InvalidRequest, match=r"comes too slowly|stopped coming") as refused:
        await read_body(scope_of(), trickle, 2000, 0.05)
    assert refused.value.status == 408


async def test_a_large_body_may_take_its_time() -> None:
    chunks = [b"x" * 100_000] * 10
    assert len(await read_body(scope_of(), coming(*chunks, after_s=0.02), 10**6, 5.0)) == 10**6


async def test_a_client_that_disconnects_in_the_middle_is_an_error_of_its_own() -> None:
    with pytest.raises(ClientGone):
        await read_body(scope_of(), coming(b"half", ends=False), 100, 60)


async def test_compressed_bodies_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="'zstd' is not supported") as refused:
        await read_body(scope_of(content_encoding="ZSTD"), coming(b"x"), 100, 60)
    assert refused.value.status == 415
