"""Pictures that keep decoders busy: each is decoded in a child, which ends with its client and with its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.in_time import PATIENCE_S, until
from tests.own_server import serving
from tests.pictures import data_url, of_scans
from tests.unit.engine.tiny_projector import png, write_seeing
from tests.unit.server.test_vision import config

from shepherd.core import InvalidRequest
from shepherd.engine.llamacpp import pixels
from shepherd.process.pools import THREADS

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def picture() -> bytes:
    """As large as a picture may be, and of as many scans: some seconds of a processor."""
    return of_scans(80, size=(6000, 6000))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path, config(*write_seeing("qwen", tmp_path))) as url:
        yield url


def decoders() -> list[psutil.Process]:
    """The processes below this one, where the server runs, that decode an image."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            found += [child] if pixels.__name__ in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE else []
        except psutil.Error:  # it has just ended
            continue
    return found


def asked(*content: dict[str, Any] | str) -> dict[str, Any]:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"model": "eyes", "max_tokens": 2, "messages": [{"role": "user", "content": parts}]}


def shown(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


async def test_slow_pictures_delay_no_other_request_and_end_with_their_clients(address: str, picture: bytes) -> None:
    path = "/v1/chat/completions"
    async with httpx2.AsyncClient(base_url=address, timeout=2 * PATIENCE_S) as client:
        slow = [asyncio.create_task(client.post(path, json=asked(shown(picture), f"{n}"))) for n in range(8)]
        await until(lambda: len(decoders()) == THREADS["media"])
        for other in (
            client.get("/health"),
            client.post(path, json=asked("hello")),
            client.post("/tokenize", json={"content": "word " * 10_000}),
            client.get("/v1/memory/search?q=sheep"),
        ):
            assert (await other).status_code == 200
        assert not any(task.done() for task in slow[4:]), "all of this was answered before they were"
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await until(lambda: not decoders())
        assert (await client.post(path, json=asked(shown(png(1)), "what is it?"))).status_code == 200


def test_a_picture_that_takes_too_long_is_a_sentence(picture: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"takes a decoder more than 0\.01 s or too much memory; save it again"):
        pixels.decode(picture, deadline_s=0.01)
