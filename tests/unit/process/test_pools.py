"""Each kind of work has threads of its own: one that is full does not delay the others."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import httpx2
import pytest
from tests.in_time import PATIENCE_S
from tests.own_server import serving
from tests.pictures import data_url, picture
from tests.places import ROOT
from tests.unit.engine.tiny_projector import write_seeing

from shepherd.process.pools import THREADS, Kind, in_pool, while_wanted

SRC = ROOT / "src" / "shepherd"
NOT_OF_CLIENTS = {"app", "cli", "config", "core", "engine", "measure", "memory", "models", "process", "media"}
"""Rooms whose threads without a kind do what takes no time that a client chooses. `app`: at the start and at the end,
and the folders of models."""


@asynccontextmanager
async def full(kind: Kind) -> AsyncIterator[None]:
    """Within the block, every thread of a kind is busy."""
    busy, go_on = threading.Semaphore(0), threading.Event()

    def work() -> None:
        busy.release()
        assert go_on.wait(PATIENCE_S)

    tasks = [asyncio.create_task(in_pool(kind, work)) for _ in range(THREADS[kind])]
    try:
        for _ in tasks:
            assert await asyncio.to_thread(busy.acquire, timeout=PATIENCE_S)
        yield
    finally:
        go_on.set()
        await asyncio.gather(*tasks)


def chat(content: Any, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"model": "eyes", "messages": messages, "max_tokens": 2, "temperature": 0, **more}


PICTURE = [{"type": "image_url", "image_url": {"url": data_url(picture(size=(48, 40)))}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
REQUESTS: dict[str, tuple[str, dict[str, Any] | None, set[Kind]]] = {
    "health": ("/health", None, set()),
    "models": ("/v1/models", None, set()),
    "a text": ("/v1/chat/completions", chat("hello"), set()),
    "a long text": ("/v1/chat/completions", chat("word " * 30_000), {"bodies", "prompts"}),
    "a very long text": ("/v1/chat/completions", chat("word " * 405_000), {"bodies", "heavy prompts"}),
    "a picture": ("/v1/chat/completions", chat(PICTURE), {"media"}),
    "a form": ("/v1/chat/completions", chat("hello", response_format=SCHEMA), {"grammars"}),
    "tokens": ("/tokenize", {"content": "hello"}, {"bodies", "texts"}),
    "a search": ("/v1/memory/search?q=sheep", None, {"memory"}),
}
"""Path, body, and the kinds of work that a request takes."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pools")
    model, projector = write_seeing("qwen", folder)
    text = f'[models.eyes]\npath = "{model}"\nmmproj = "{projector}"\n[caches.eyes]\nmodel = "eyes"\nn_ctx = 2048\n'
    with serving(folder, text) as url:
        yield url


@pytest.mark.model
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_is_answered_while_every_other_kind_of_work_is_full(name: str, address: str) -> None:
    path, body, uses = REQUESTS[name]
    async with AsyncExitStack() as stack:
        for kind in THREADS.keys() - uses:
            await stack.enter_async_context(full(kind))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S))
        answer = await (client.get(path) if body is None else client.post(path, json=body))
        assert answer.status_code == (400 if "long" in name else 200), answer.text


@pytest.mark.model
@pytest.mark.parametrize("name", [name for name, row in REQUESTS.items() if row[2]])
async def test_a_request_waits_for_the_kind_of_work_that_it_takes(name: str, address: str) -> None:
    """So that the table above says what is so: another request that comes later is answered before it."""
    path, body, uses = REQUESTS[name]
    async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S) as client:
        for kind in sorted(uses):
            async with full(kind):
                waiting = asyncio.create_task(client.get(path) if body is None else client.post(path, json=body))
                for _ in range(3):
                    await client.get("/health")
                assert not waiting.done()
            assert (await waiting).status_code in {200, 400}


async def test_work_that_waits_for_a_thread_leaves_with_its_caller_and_does_not_begin() -> None:
    begun: list[int] = []

    def note(number: int, _is_wanted: Any) -> None:
        begun.append(number)

    async with full("media"):
        tasks = [asyncio.create_task(while_wanted("media", partial(note, n))) for n in range(5)]
        await asyncio.sleep(0)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.gather(*tasks[:4], return_exceptions=True)
        assert all(task.cancelled() for task in tasks[:4])
    await tasks[4]
    assert begun == [4]


async def test_work_that_runs_is_told_that_its_caller_has_gone_and_is_waited_for() -> None:
    running, told = threading.Event(), threading.Event()

    def work(is_wanted: Any) -> None:
        running.set()
        while is_wanted():
            pass
        told.set()

    task = asyncio.create_task(while_wanted("texts", work))
    assert await asyncio.to_thread(running.wait, PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told.is_set()


async def test_work_sees_the_context_of_its_caller() -> None:
    variable = ContextVar("variable", default="")
    variable.set("mine")
    assert await in_pool("memory", variable.get) == "mine"
    assert await while_wanted("memory", lambda _: variable.get()) == "mine"


def without_a_kind(source: str) -> list[int]:
    """The lines that hand work to the threads that all kinds share."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = [(call.lineno, ast.unparse(call)) for call in calls]
    return [line for line, text in found if text.startswith("asyncio.to_thread(") or "run_in_executor(None" in text]


def test_what_clients_cause_names_its_kind() -> None:
    assert without_a_kind("await asyncio.to_thread(work)\nawait in_pool('media', work)\n") == [1]
    files = [path for path in sorted(SRC.rglob("*.py")) if path.relative_to(SRC).parts[0] not in NOT_OF_CLIENTS]
    files += (SRC / "app" / "chats").glob("*.py")
    found = {f"{path.relative_to(SRC)}:{line}" for path in files for line in without_a_kind(path.read_text("utf-8"))}
    assert {each.partition(":")[0] for each in found} <= {
        "tools/mcp/connection.py", "tools/mcp/process.py", "tools/mcp/servers.py",
    }, "servers of the operator"  # fmt: skip
