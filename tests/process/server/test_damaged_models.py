"""Damaged models, loaded on demand by a server that runs: the request gets one sentence, and the server goes on."""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.in_process import client_of
from tests.in_time import until
from tests.own_app import loaded
from tests.own_server import serving
from tests.proven import proven
from tests.search.fuzz.models import VOCABULARIES
from tests.unit.engine.tiny_gguf import RECIPES, write

from shepherd import config as configuration
from shepherd.app.app import App

pytestmark = pytest.mark.model

CONFIG = """
[models.lamb]
path = "embedded"
[models.other]
path = "{path}"
load = "demand"
{more}
[caches.main]
model = "lamb"
n_ctx = 512
[caches.other]
model = "other"
n_ctx = 512
"""


def flipped(lamb: Path, path: Path) -> Path:
    """The embedded model with one bit of its vocabulary changed: two tokens are one."""
    content = bytearray(lamb.read_bytes())
    place = content.index(struct.pack("<Q", 1) + b"A") + 8
    content[place] ^= 2
    path.write_bytes(content)
    return path


def accepted(path: Path) -> Path:
    """A model whose fault only the library knows."""
    write(RECIPES["hybrid"], path, VOCABULARIES["gpt2"])
    key = b"lfm2.attention.head_count" + struct.pack("<I", 4)
    content = path.read_bytes()
    assert key + struct.pack("<I", 2) in content
    path.write_bytes(content.replace(key + struct.pack("<I", 2), key + struct.pack("<I", 1)))
    return path


@asynccontextmanager
async def asking(folder: Path, model: Path, more: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application in this process, which has the model on demand, and no child but for its trial."""
    file = folder / "shepherd.toml"
    file.write_text("isolate = false\n" + CONFIG.format(path=model, more=more))
    config = configuration.load(flags={"threads": 1}, env={}, cwd=folder, user_dir=folder, file=file)
    async with loaded(App(config, cache_folder=proven(folder / "cache"), env={})) as app, client_of(app) as client:
        yield client


def question(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0}


async def ask(client: httpx2.AsyncClient, model: str) -> tuple[int, str]:
    reply = await client.post("/v1/chat/completions", json=question(model))
    body = reply.json()
    return reply.status_code, body["error"]["message"] if "error" in body else body["choices"][0]["message"]["content"]


def test_a_flipped_bit_of_a_vocabulary_does_not_end_a_running_server(lamb: Path, tmp_path: Path) -> None:
    model = tmp_path / "other.gguf"
    model.write_bytes(lamb.read_bytes())
    written = CONFIG.format(path=model, more="")
    with serving(tmp_path, written) as url, httpx2.Client(base_url=url, timeout=120) as client:
        flipped(lamb, model)  # after its header has been read
        reply = client.post("/v1/chat/completions", json=question("other"))
        assert reply.status_code == 500
        assert "has the token 'C' twice" in reply.json()["error"]["message"]
        assert client.get("/health").status_code == 200
        assert client.post("/v1/chat/completions", json=question("lamb")).status_code == 200
        model.write_bytes(lamb.read_bytes())
        assert client.post("/v1/chat/completions", json=question("other")).status_code == 200


async def test_a_model_that_the_reader_accepts_and_the_library_aborts_on_is_an_error(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    async with asking(tmp_path, accepted(tmp_path / "other.gguf"), f'chat_template = "{template}"') as client:
        for _ in range(2):
            status, says = await ask(client, "other")
            assert status == 500
            assert "other.gguf ends the process that loads it (crash (SIGABRT)" in says
            assert "GGML_ASSERT" in says
        assert (await ask(client, "lamb"))[0] == 200


def children() -> Iterator[psutil.Process]:
    """The children of this process that try a model."""
    for child in psutil.Process().children():
        try:
            if "shepherd.engine.llamacpp.trial" in child.cmdline():
                yield child
        except psutil.NoSuchProcess:
            continue


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A model that takes as long as a test wants: its child is stopped as soon as it is there."""
    write(RECIPES["plain"], path := tmp_path / "other.gguf")
    return path


async def the_child() -> psutil.Process:
    found = list[psutil.Process]()

    def look() -> bool:
        found.extend(children())
        return bool(found)

    await until(look)
    return found[0]


async def test_the_server_is_healthy_while_a_child_tries_a_model(stopped: Path, tmp_path: Path) -> None:
    async with asking(tmp_path, stopped) as client:
        waiting = asyncio.create_task(ask(client, "other"))
        child = await the_child()
        child.suspend()
        assert (await client.get("/health")).json()["status"] == "ok"
        assert (await ask(client, "lamb"))[0] == 200
        assert not waiting.done()
        child.resume()
        status, says = await waiting
        assert (status, "no vocabulary of texts" in says) == (500, True), "it has loaded; it has no text"


async def test_the_child_is_killed_when_its_request_goes_away(stopped: Path, tmp_path: Path) -> None:
    async with asking(tmp_path, stopped) as client:
        waiting = asyncio.create_task(ask(client, "other"))
        child = await the_child()
        child.suspend()
        waiting.cancel()
        await asyncio.wait([waiting])
        gone, _ = await asyncio.to_thread(psutil.wait_procs, [child], 60)
        assert gone
        assert (await ask(client, "lamb"))[0] == 200


async def test_the_child_is_killed_when_the_server_stops(stopped: Path, tmp_path: Path) -> None:
    async with asking(tmp_path, stopped) as client:
        waiting = asyncio.create_task(ask(client, "other"))
        child = await the_child()
        child.suspend()
    status, says = await waiting
    assert (status, "stopping" in says) == (503, True)
    assert not child.is_running()
