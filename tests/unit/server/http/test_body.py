"""The body of a request as it comes in, piece by piece."""

import asyncio
import importlib
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive

from shepherd.core import InvalidRequest
from shepherd.server.http.body import BodyTooLarge, ClientGone, read_body
from shepherd.server.http.content_encoding import UnknownEncoding


def coming(*chunks: bytes, ends: bool = True) -> Receive:
    """A client that sends `chunks`, and then ends the body or goes away."""
    left = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    left.append({"type": "http.request", "body": b""} if ends else {"type": "http.disconnect"})

    async def receive() -> Message:
        await asyncio.sleep(0)
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


async def test_a_client_that_disconnects_in_the_middle_is_an_error_of_its_own() -> None:
    with pytest.raises(ClientGone):
        await read_body(scope_of(), coming(b"half", ends=False), 100, 60)


def compressed(name: str, body: bytes) -> bytes:
    if name == "zstd":
        library: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
        return bytes(library.compress(body))
    wbits = {"gzip": 31, "x-gzip": 31, "deflate": 15, "Deflate": -15}[
        name
    ]  # the last one as clients without zlib's head
    stream = zlib.compressobj(wbits=wbits)
    return stream.compress(body) + stream.flush()


ENCODINGS = ("zstd", "gzip", "x-gzip", "deflate", "Deflate")


@given(st.sampled_from(ENCODINGS), st.binary(max_size=2_000), st.lists(st.integers(1, 50), min_size=1, max_size=20))
async def test_a_compressed_body_is_read_however_it_is_cut(name: str, body: bytes, cuts: list[int]) -> None:
    sent = compressed(name, body)
    if name in ("zstd", "gzip", "x-gzip"):
        sent += compressed(name, b"!")  # frames and members follow each other
        body += b"!"
    chunks, at = list[bytes](), 0
    while at < len(sent):
        step = cuts[len(chunks) % len(cuts)]
        chunks, at = [*chunks, sent[at : at + step]], at + step
    assert await read_body(scope_of(content_encoding=name.upper()), coming(*chunks), 10_000, 60) == body


@pytest.mark.parametrize("name", ENCODINGS)
async def test_a_bomb_is_cut_off_at_the_limit(name: str) -> None:
    bomb = compressed(name, bytes(50_000_000))
    assert len(bomb) < 60_000
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="1000000 bytes"):
            await read_body(scope_of(content_encoding=name), coming(bomb), 1_000_000, 60)
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()


async def test_frames_that_stand_for_nothing_have_a_limit_too() -> None:
    nothing = compressed("zstd", b"")
    with pytest.raises(BodyTooLarge):
        await read_body(scope_of(content_encoding="zstd"), coming(*[nothing * 100] * 100), 50_000, 60)


@pytest.mark.parametrize("name", ENCODINGS)
async def test_a_compressed_body_that_breaks_off_or_is_none_is_refused(name: str) -> None:
    whole = compressed(name, bytes(range(256)) * 40)
    with pytest.raises(InvalidRequest, match="ends in the middle") as cut:
        await read_body(scope_of(content_encoding=name), coming(whole[: len(whole) // 2]), 100_000, 60)
    assert cut.value.status == 400
    with pytest.raises(InvalidRequest, match="not valid") as broken:
        await read_body(scope_of(content_encoding=name), coming(b'{"model": "m"}'), 100_000, 60)
    assert broken.value.status == 400


async def test_a_frame_that_asks_for_gigabytes_of_memory_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd 00 a8".replace(" ", ""))  # a window of 2 GiB
    with pytest.raises(InvalidRequest, match="not valid zstd"):
        await read_body(scope_of(content_encoding="zstd"), coming(frame + b"\x01\x00\x00"), 100_000, 60)


@pytest.mark.parametrize("name", ["br", "gzip, zstd", "zstd, identity", "aws-chunked"])
async def test_other_encodings_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnknownEncoding, match=f"'{name}' is not supported; send one of zstd, gzip") as refused:
        await read_body(scope_of(content_encoding=name), coming(b"x"), 100, 60)
    assert refused.value.status == 415
