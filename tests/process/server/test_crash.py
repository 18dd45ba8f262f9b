"""What the death of an engine's process costs: its requests end in their client's protocol, and nothing else ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.in_time import PATIENCE_S, until
from tests.own_server import serving
from tests.pictures import data_url
from tests.places import ROOT
from tests.process.engine.factories import WIDE, hang_in
from tests.unit.engine.tiny_projector import png, write_seeing

from shepherd.engine.llamacpp.library import libmtmd
from shepherd.engine.worker.messages import ADDRESS

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(sys.platform == "win32", reason="models stay in the process there"),
]
MODELS = """
isolate = true
[models.lamb]
path = "embedded"
[models.lamb.sampling]
ignore_eos = true
[models.vec]
path = "embedded"
pooling = "mean"
[caches.main]
model = "lamb"
n_ctx = 2048
[caches.side]
model = "lamb"
n_ctx = 512
"""
HELLO = [{"role": "user", "content": "Tell me about the sheep."}]
LONG = [{"role": "system", "content": "You are a sheep. " * 10}, *HELLO]
REASON = "the process of the engine of cache 'main' was killed by SIGSEGV"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx2.Client]:
    with serving(tmp_path, MODELS) as url, httpx2.Client(base_url=url, timeout=PATIENCE_S) as client:
        yield client


def children() -> list[psutil.Process]:
    """The processes of engines, the oldest first."""
    found = {}
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if ADDRESS in each.environ() and each.status() != psutil.STATUS_ZOMBIE:
                found[each.create_time()] = each
    return [found[began] for began in sorted(found)]


def chat(client: httpx2.Client, messages: Any = HELLO, **fields: Any) -> dict[str, Any]:
    answer = client.post(
        "/v1/chat/completions", json={"model": "main", "messages": messages, "max_tokens": 5, **fields}
    )
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def figures(client: httpx2.Client, name: str) -> list[float]:
    """A metric's values of all caches."""
    lines = client.get("/metrics").text.splitlines()
    return [float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{")]


def saved(client: httpx2.Client, n: int) -> None:
    """Wait until so many caches have conversations that outlive their process."""
    asyncio.run(until(lambda: sum(n_bytes > 0 for n_bytes in figures(client, "shepherd_snapshot_bytes")) == n))


def died(client: httpx2.Client, child: psutil.Process) -> None:
    """Kill the process of a model with caches, and wait until another one works in its place."""
    before = sum(figures(client, "shepherd_engine_restarts_total"))
    child.kill()
    asyncio.run(until(lambda: sum(figures(client, "shepherd_engine_restarts_total")) > before))


STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat completions": ("/v1/chat/completions", {"messages": HELLO, "stream": True}),
    "messages": ("/v1/messages", {"messages": HELLO, "stream": True, "max_tokens": 1500}),
    "responses": ("/v1/responses", {"input": "Tell me about the sheep.", "stream": True}),
    "ollama": ("/api/chat", {"messages": HELLO}),
    "completion": ("/completion", {"prompt": "The sheep", "stream": True}),
}


def error_of(protocol: str, line: str) -> Any:
    """The text of the error that a stream ends with."""
    told = json.loads(line.removeprefix("data: ").removeprefix("error: "))
    told = told["response"] if protocol == "responses" else told
    return told["error"] if protocol == "ollama" else told["error"]["message"]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("protocol", STREAMS)
def test_a_stream_ends_with_the_error_of_its_protocol_and_the_next_request_is_answered(
    protocol: str, client: httpx2.Client
) -> None:
    chat(client, LONG)
    saved(client, 1)
    path, body = STREAMS[protocol]
    with client.stream("POST", path, json={"model": "main", **body}) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith(("data: {", "error: {", "{")))
        said = [next(lines) for _ in range(5)]
        children()[0].send_signal(signal.SIGSEGV)
        said += lines
    assert error_of(protocol, said[-1]) == REASON
    usage = chat(client, LONG)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1, "from host memory"
    assert client.get("/health").json()["status"] == "ok"
    assert 'shepherd_engine_restarts_total{cache="main"} 1.0' in client.get("/metrics").text


def test_one_model_dies_and_the_others_and_the_memory_go_on_and_both_its_caches_come_back_with_what_each_had(
    client: httpx2.Client,
) -> None:
    def ask() -> httpx2.Response:
        return client.post("/v1/embeddings", json={"model": "vec", "input": "sheep"})

    def vectors() -> Any:
        return ask().json()["data"][0]["embedding"]

    for cache in ("main", "side"):
        chat(client, LONG, model=cache)
    (first,) = children()
    before = vectors()
    (second,) = (each for each in children() if each != first)
    second.kill()
    assert chat(client)["choices"]
    assert client.get("/v1/memory/facts").status_code == 200
    asyncio.run(until(lambda: ask().status_code == 200))  # one that comes before the death is noticed fails
    assert vectors() == before, "the model of vectors has been started again"
    assert first in children()
    saved(client, 2)
    died(client, first)
    assert vectors() == before
    for cache in ("main", "side"):
        usage = chat(client, LONG, model=cache)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_health_says_why_a_model_of_vectors_is_down(tmp_path: Path) -> None:
    with (
        serving(tmp_path, f"{MODELS}[kv]\nstall_s = 3\n") as url,
        httpx2.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        before = client.post("/v1/embeddings", json={"model": "vec", "input": "sheep"}).json()["data"]
        children()[-1].suspend()
        reason = "the engine of model 'vec' has sent nothing for 3 s"
        asyncio.run(until(lambda: reason in client.get("/health").json().get("detail", "")))
        asyncio.run(until(lambda: client.get("/health").json()["status"] == "ok"))
        assert client.post("/v1/embeddings", json={"model": "vec", "input": "sheep"}).json()["data"] == before


HANGING = f"""
import os, threading
if {ADDRESS!r} in os.environ:
    from tests.process.engine.factories import hang_in
    hang_in("mtmd_encode_chunk", threading.Event())
"""
"""Run by each Python that starts: in the process of an engine the library never ends to encode a wide image."""


@pytest.mark.parametrize("isolate", ["true", "false"])
def test_health_says_that_a_projector_hangs_and_its_stall_is_counted(
    isolate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, where = threading.Event(), "mtmd_encode_chunk"
    if isolate == "true":
        (tmp_path / "sitecustomize.py").write_text(HANGING)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    else:
        monkeypatch.setattr(libmtmd(), where, getattr(libmtmd(), where))  # it is put back
        hang_in(where, free)
    model, projector = write_seeing("qwen", tmp_path)
    text = f'isolate = {isolate}\n[models.eyes]\npath = "{model}"\nmmproj = "{projector}"\n'
    reason = "the engine of mmproj-qwen.gguf has made no progress"
    with (
        serving(tmp_path, f"{text}[caches.eyes]\nn_ctx = 1024\n[kv]\nstall_s = 1\n") as url,
        httpx2.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):

        def look(width: int) -> httpx2.Response:
            return client.post("/v1/chat/completions", json=seen(png(1, width, width)))

        try:
            assert look(48).status_code == 200  # behind it is known how long one takes
            with ThreadPoolExecutor(1) as beside:
                asked = beside.submit(look, WIDE + 20)
                asyncio.run(until(lambda: reason in client.get("/health").json().get("detail", "")))
                answer = asked.result()
            assert (answer.status_code, reason in answer.json()["error"]["message"]) == (503, True)
            asyncio.run(until(lambda: figures(client, "shepherd_engine_stalls_total") == [1.0]))
            if isolate == "false":
                assert client.get("/health").status_code == 503
                assert chat(client, model="eyes")["choices"], "texts are answered"
                free.set()
            asyncio.run(until(lambda: client.get("/health").json()["status"] == "ok"))
            assert figures(client, "shepherd_engine_restarts_total") == [1.0 if isolate == "true" else 0.0]
            assert look(48).status_code == 200
        finally:
            free.set()


def seen(image: bytes) -> dict[str, Any]:
    shown = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": data_url(image)}},
    ]
    return {"model": "eyes", "messages": [{"role": "user", "content": shown}], "max_tokens": 4, "temperature": 0}


def test_an_image_in_the_conversation_comes_back_with_it(tmp_path: Path) -> None:
    model, projector = write_seeing("qwen", tmp_path)
    text = f'isolate = true\n[models.eyes]\npath = "{model}"\nmmproj = "{projector}"\n[caches.eyes]\nn_ctx = 1024\n'
    body = seen(png(1))
    with serving(tmp_path, text) as url, httpx2.Client(base_url=url, timeout=PATIENCE_S) as client:
        first = client.post("/v1/chat/completions", json=body).json()
        saved(client, 1)
        died(client, children()[0])
        again = client.post("/v1/chat/completions", json=body).json()
        assert again["choices"] == first["choices"]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
