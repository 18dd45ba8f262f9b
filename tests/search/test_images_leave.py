"""Images that leave a full context, on real models with a memory: named in the archive, recalled as a note, and not
computed again until somebody sends them again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.own_app import app_of
from tests.own_server import serving
from tests.unit.engine.tiny_projector import png, write_seeing

from shepherd.app.app import App
from shepherd.core import Evicted, Image, Started, Text
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import LOCAL

pytestmark = pytest.mark.model

N_CTX = 2560
PICTURE = png(1)
NOTE = f"[image {hashlib.sha256(PICTURE).hexdigest()[:8]}: image/png, {len(PICTURE)} bytes]"


QUOTED = f"hamster Bertram: ({NOTE[1:-1]}) He likes it."


@dataclass
class Turn:
    evicted: int
    new: int
    """Tokens that were computed of the prompt."""


Say = Callable[..., Awaitable[Turn]]


@dataclass
class Talk:
    """A conversation, and the program that holds it."""

    say: Say
    quoted: Callable[[], Awaitable[str]]
    """What the memory has put before the newest question, or the prompt that has it."""
    app: App

    def n_image_cells(self) -> int:
        """Cells that hold a part of an image."""
        (backend,) = self.app.dispatcher.backends().values()
        return sum(
            token < 0
            for resident in backend.engine._scheduler.pool.ledger  # type: ignore[attr-defined]
            for run in resident.runs
            for token in resident.tokens[run.start : run.stop]
        )


def config(folder: Path, kind: str) -> str:
    model, projector = write_seeing(kind, folder)
    return f"""
max_tokens = 4
overflow = "evict"
[models.eyes]
path = "{model}"
mmproj = "{projector}"
[caches.eyes]
model = "eyes"
n_ctx = {N_CTX}
[kv]
disk = false
[[routes]]
match = "*"
cache = "eyes"
user = "local"
archive = true
recall = true
"""


@asynccontextmanager
async def in_process(folder: Path, kind: str) -> AsyncIterator[Talk]:
    """A conversation of the library."""
    app = app_of(folder, config(folder, kind), os.environ)
    try:
        await app.load()
        session = app.conversations.session(user=LOCAL)

        async def say(*parts: str | bytes) -> Turn:
            evicted = new = 0
            said = [Text(part) if isinstance(part, str) else Image("image/png", part) for part in parts]
            async with aclosing(session.chat(said)) as events:
                async for event in events:
                    match event:
                        case Evicted():
                            evicted += event.messages
                        case Started(usage=usage):
                            new = usage.input
                        case _:
                            pass
            return Turn(evicted, new)

        async def quoted() -> str:
            return "\n".join(row.excerpt for row in (await session.window()).rows if row.kind == "memory")

        yield Talk(say, quoted, app)
    finally:
        await app.aclose()


@asynccontextmanager
async def over_http(folder: Path, kind: str) -> AsyncIterator[Talk]:
    """A client that sends its whole history each time."""
    apps: list[App] = []
    history: list[dict[str, Any]] = []

    def around(app: App) -> App:
        apps.append(app)
        return app

    with serving(folder, config(folder, kind), around=around) as address:
        async with httpx2.AsyncClient(base_url=address, timeout=60) as client:

            async def say(*parts: str | bytes) -> Turn:
                content = [
                    {"type": "text", "text": part}
                    if isinstance(part, str)
                    else {"type": "image_url", "image_url": {
                        "url": "data:image/png;base64," + base64.b64encode(part).decode(),
                    }}
                    for part in parts
                ]  # fmt: skip
                history.append({"role": "user", "content": content})
                told = await client.post("/v1/chat/completions", json={"messages": history, "max_tokens": 4})
                assert told.status_code == 200, told.text
                answer = told.json()
                history.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
                usage = answer["usage"]
                new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
                return Turn(int(told.headers.get("x-shepherd-evicted", 0)), new)

            async def quoted() -> str:
                told = await client.post("/apply-template", json={"messages": history[:-1]})
                return str(told.json()["prompt"])

            yield Talk(say, quoted, apps[0])


@pytest.mark.parametrize("way", [in_process, over_http])
@pytest.mark.parametrize("kind", ["llava", "gemma3", "qwen", "idefics"])
async def test_an_image_that_has_left_is_named_and_does_not_come_back(way: Any, kind: str, tmp_path: Path) -> None:
    async with way(tmp_path, kind) as talk:
        await talk.say("This is a photo of my hamster Bertram: ", PICTURE, " He likes it.")
        n_cells = talk.n_image_cells()
        assert n_cells
        n_evicted = 0
        for number in range(100):
            turn = await talk.say(f"Number {number}: this is about the weather in town {number}, and nothing else.")
            n_evicted += turn.evicted
            assert turn.new < 250, "only what is new, and what left is not computed again"
            if n_evicted:
                break
        assert n_evicted, "the context is too large for this test"
        assert talk.n_image_cells() == 0
        for question in ("What did I say of the photo of my hamster Bertram?", "And what is two and two?"):
            turn = await talk.say(question)
            assert turn.new < 600, "the question with its note"
            assert talk.n_image_cells() == 0, "the note came back, and not the image"
            assert QUOTED in await talk.quoted()
        asked = await asyncio.to_thread(archived)
        assert any(f"hamster Bertram: {NOTE} He likes it." in body for body in asked)
        await talk.say("Here it is again: ", PICTURE, " Do you see it?")
        assert talk.n_image_cells() == n_cells


def archived() -> list[str]:
    with MemoryStore(Path(os.environ["RAG_DB_PATH"])) as store:
        ids = store.read(lambda connection: [id for (id,) in connection.execute("SELECT id FROM message ORDER BY id")])
        return [message.body for message in store.stored(ids)]
