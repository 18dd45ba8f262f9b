"""The tests of `tests/unit/backends/cloud/test_connection.py` that take long."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from tests.unit.backends.cloud.test_connection import SOUND, connected


async def test_silence_is_an_error_and_a_long_request_on_its_way_is_none() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(40):  # a slow line
            await reader.readexactly(1_000_000)
            await asyncio.sleep(0.01)
        writer.write(SOUND["a length"][0])
        await reader.read()

    async with connected(peer) as (connections, url):
        response = await connections.send("POST", url, {}, b"x" * 40_000_000, 0.2)
        await response.aclose()
        with pytest.raises(httpx2.ReadTimeout):
            await connections.send("POST", url, {}, b"x", 0.05)
