"""The tests of `tests/unit/server/test_house.py` that start programs."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.unit.server.test_house import BODIES, PATIENCE_S, USER, with_tools


@pytest.mark.model
def test_the_real_server_has_no_tools_of_its_own_over_http(server: str, tmp_path: Path) -> None:
    body = with_tools("/v1/responses", "http://127.0.0.1:9/", tmp_path / "touched")
    for path, asked in (("/v1/responses", body), ("/v1/messages", {**body, **BODIES["/v1/messages"], "max_tokens": 8})):
        answer = httpx2.post(server + path, json={**asked, "max_output_tokens": 8}, timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
    plain = httpx2.post(f"{server}/v1/messages/count_tokens", json=BODIES["/v1/messages"], timeout=PATIENCE_S)
    assert plain.json()["input_tokens"] < 100  # no tool of ours is described in a prompt
    assert not (tmp_path / "touched").exists()


@pytest.mark.model
def test_a_client_that_does_not_read_slows_no_engine_and_no_other_client(server: str) -> None:
    address = urlsplit(server)
    body = {
        "messages": USER,
        "stream": True,
        "ignore_eos": True,
        "max_tokens": 400,
        "logprobs": True,
        "top_logprobs": 20,
    }
    content = json.dumps(body).encode()
    with socket.socket() as slow, httpx2.Client(base_url=server, timeout=PATIENCE_S) as client:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little fits into the kernel's buffers
        slow.connect((address.hostname, address.port))
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(content), content)
        )
        assert slow.recv(12) == b"HTTP/1.1 200"
        answer = client.post("/v1/chat/completions", json={"messages": USER, "max_tokens": 20})
        assert answer.status_code == 200
        # The unread answer is computed to its end: what the engine is asked for is all done.
        caches: Any = {}
        for _ in range(3000):
            (caches,) = client.get("/v1/caches").json()["caches"].values()
            if not caches["live"] and not caches["waiting"]:
                break
        assert (caches["live"], caches["waiting"]) == (0, 0)
