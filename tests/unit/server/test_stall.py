"""An engine thread that stalls, under a real server: /health, metrics and every protocol report it, and it recovers."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.fake_engine import in_process
from tests.own_app import app_of
from tests.own_server import Listening

pytestmark = pytest.mark.model

PATIENCE_S = 60.0
SAY: dict[str, Any] = {"model": "lamb", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", SAY),
    "chat, streamed": ("/v1/chat/completions", {**SAY, "stream": True}),
    "anthropic": ("/v1/messages", SAY),
    "responses": ("/v1/responses", {"model": "lamb", "input": "Hi", "max_output_tokens": 16}),
    "ollama": ("/api/chat", {**SAY, "stream": False}),
    "completions": ("/v1/completions", {"model": "lamb", "prompt": "Hi", "max_tokens": 4}),
}


async def test_a_stalled_engine_is_reported_everywhere_and_continues_when_it_can(
    listening: Listening, tmp_path: Path
) -> None:
    app = app_of(tmp_path, "[kv]\nstall_s = 0.5\n")
    await app.load()
    (engine,) = [in_process(backend.engine) for backend in app.dispatcher.backends().values()]
    free, entered = threading.Event(), threading.Event()

    def stall() -> None:
        entered.set()
        free.wait()

    try:
        async with listening(app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            assert (await client.get("/health")).status_code == 200
            stalling = asyncio.create_task(engine._call(stall))
            assert await asyncio.to_thread(entered.wait, PATIENCE_S)
            answers = await asyncio.gather(*(client.post(path, json=body) for path, body in REQUESTS.values()))
            for name, answer in zip(REQUESTS, answers, strict=True):
                assert answer.status_code == 503, (name, answer.text)
                assert "has made no progress for" in answer.text, name
                assert "error" in answer.json(), name
            health = await client.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "error")
            assert re.search(r"cache 'main' has made no progress for \d+ s", health.json()["detail"])
            metrics = (await client.get("/metrics")).text
            assert 'shepherd_engine_stalls_total{cache="main"} 1.0' in metrics
            assert not re.search(r'shepherd_engine_quiet_seconds{cache="main"} 0\.0', metrics)
            free.set()
            await asyncio.wait((stalling,))
            assert stalling.exception() is not None
            path, body = REQUESTS["chat"]
            async with asyncio.timeout(PATIENCE_S):  # a machine that is busy enough may stall once more
                while (await client.post(path, json=body)).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0)
    finally:
        free.set()
        await app.aclose()
