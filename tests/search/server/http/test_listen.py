"""The tests of `tests/unit/server/http/test_listen.py` that take long."""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse
from urllib.parse import urlsplit

import pytest
from tests.unit.server.http.test_listen import PATIENCE_S, asking, head_of, started


@pytest.mark.parametrize("loop", ["asyncio", "fastest"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_client_that_ends_its_own_side_gets_its_answer(stream: bool, loop: str) -> None:
    body = json.dumps({**asking(50), "stream": stream}).encode()
    with started(60, loop) as (_, url), socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as client:
        client.settimeout(PATIENCE_S)
        client.sendall(head_of(body) + body)
        client.shutdown(socket.SHUT_WR)
        answer = HTTPResponse(client)
        answer.begin()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        assert answer.read().count(b"word") == 50
        assert client.recv(1) == b""
