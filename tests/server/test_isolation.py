"""Keys of different users on one cache: none learns from a count of cached tokens what another one's prompt says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.in_time import until
from tests.scripted_service import ScriptedService

from shepherd.backends.local.backend import LocalBackend
from shepherd.dialects import Template, detect
from shepherd.engine.engine import Engine
from shepherd.engine.stats import CacheStats
from shepherd.server.app import create_app
from shepherd.server.http.auth import Key
from shepherd.wire.base import Json

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ADA, BOB = "sk-ada", "sk-bob"
KEYS = (Key.of(ADA, name="ada", user="ada"), Key.of(BOB, name="bob", user="bob"))
SECRET = "428"
SAYS = "The code of the safe in the cellar is "

Ask = Callable[..., Any]


class LocalService(ScriptedService):
    """One cache of a made-up model behind the server's seam; a token is a byte."""

    def __init__(self) -> None:
        vocabulary = FakeVocabulary()
        ends = frozenset({vocabulary.ids["<|im_end|>"]})
        runtime = FakeRuntime(say(vocabulary, "Yes"), ends, n_ctx=16384, n_seq=64, n_batch=512)
        self.engine = Engine(runtime, show=vocabulary.piece)
        template = Template(TEMPLATE)
        backend = LocalBackend(self.engine, vocabulary, template=template, dialect=detect(TEMPLATE), model="m")
        super().__init__(backend.stream)
        self.n_jobs = 0

    def stats(self) -> Mapping[str, CacheStats]:
        return {"main": self.engine.stats()}

    async def rested(self) -> None:
        """Wait until the closing tag of the newest answer has been computed."""
        self.n_jobs += 1
        await until(lambda: ((stats := self.engine.stats()).jobs, stats.live) == (self.n_jobs, 0))


@asynccontextmanager
async def serving(*keys: Key | str) -> AsyncIterator[tuple[Ask, LocalService]]:
    """Asks a server as the holder of a key: the body of the answer."""
    service = LocalService()
    app = create_app(service, api_keys=keys or None)

    async def ask(secret: str, path: str, body: Json, **headers: str) -> Any:
        headers = {"x-api-key": secret, **headers}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            answer = await client.post(path, json={"model": "m", **body}, headers=headers)
        assert answer.status_code == 200, answer.text
        await service.rested()
        return answer.json()

    try:
        yield ask, service
    finally:
        await asyncio.to_thread(service.engine.close)


def chat(text: str, **fields: Any) -> Json:
    return {"messages": [{"role": "user", "content": text}], **fields}


def n_cached(answer: Json) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


async def guessed(ask: Ask, **fields: Any) -> str:
    """What 30 requests of ada learn of the secret: at each place the one digit that has most cached, else `?`."""
    learned = ""
    await ask(ADA, "/v1/chat/completions", chat(f"{SAYS}x", **fields))  # from here on her own words are cached
    for _ in SECRET:
        counts = [
            n_cached(await ask(ADA, "/v1/chat/completions", chat(f"{SAYS}{learned}{digit}, is it?", **fields)))
            for digit in range(10)
        ]
        best = [digit for digit, n in enumerate(counts) if n == max(counts)]
        learned += str(best[0]) if len(best) == 1 else "?"
    return learned


@pytest.mark.parametrize("body", [{"messages": [{"role": "user", "content": f"{SAYS}{SECRET}, is it?"}]}], ids=["chat"])
async def test_cached_tokens_do_not_spell_the_secret_of_another_user(body: Json) -> None:
    async with serving(*KEYS) as (ask, _):
        await ask(BOB, "/v1/chat/completions", body)
        assert await guessed(ask) == "???"
