"""vLLM's server as a router sees it: `/health`, `/v1/models`, chat with `cached_tokens`; it dies and returns.

    async with vllm("qwen") as server:   ... base_urls=[server.url]
        await server.die()               # the port is closed, running answers break off, the cache is gone
        await server.live()              # the same port again

Written from vLLM's protocol, without our code: the health check has no body, a stopped engine answers 503, usage names
the tokens that were in the prefix cache where the server was started with `--enable-prompt-tokens-details`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.providers_replay import Answer, Received
from tests.providers_scripted import JSON, Said, Script, ScriptedProvider

BLOCK = 64
"""Characters of a prompt that are cached as one: 16 tokens."""


class Vllm(ScriptedProvider):
    def __init__(self, *models: str, script: Script) -> None:
        super().__init__("openai.chat", script)
        self.models = list(models)
        self.health = 200
        self.health_body: Any = None
        self.n_looks = self.n_embedded = 0
        self.is_seen = asyncio.Event()
        """Its health check was asked for."""
        self.n_cached = self.n_prompt = 0
        """Tokens of all prompts: in the cache, and all."""
        self._blocks: set[str] = set()
        self._server: asyncio.Server | None = None

    async def live(self) -> None:
        self._server = await self.serve(self.port)

    async def die(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.aclose()
        await self._server.wait_closed()
        self._blocks.clear()

    def _next(self, received: Received) -> tuple[Answer, str]:
        if received.method == "GET" and received.path == "/health":
            self.n_looks += 1
            self.is_seen.set()
            body = b"" if self.health_body is None else json.dumps(self.health_body).encode()
            return Answer("/health", body, self.health, {"content-type": JSON}), ""
        if received.method == "GET":
            data = [{"id": name, "object": "model", "owned_by": "vllm", "max_model_len": 8192} for name in self.models]
            return self._json(received.path, {"object": "list", "data": data}), ""
        if received.path.endswith("/embeddings"):
            self.n_embedded += 1
            rows = [{"index": at, "embedding": [3.0, 4.0]} for at, _ in enumerate(received.json["input"])]
            return self._json(received.path, {"data": rows, "usage": {"prompt_tokens": 5}}), ""
        return super()._next(received)

    def _answer_to(self, path: str, body: Any) -> Answer:
        if body["model"] not in self.models:
            words = f"The model `{body['model']}` does not exist."
            error = {"message": words, "type": "NotFoundError", "param": "model", "code": 404}
            return Answer("", json.dumps({"error": error}).encode(), 404, {"content-type": JSON})
        cached, total = self._compute(json.dumps([body.get("tools"), *body["messages"]], ensure_ascii=False))
        answer = super()._answer_to(path, body)
        details = f'"usage": {{"prompt_tokens_details": {{"cached_tokens": {cached}}}, '
        self.n_cached, self.n_prompt = self.n_cached + cached, self.n_prompt + total
        return Answer(answer.path, answer.body.replace(b'"usage": {', details.encode()), answer.status, answer.headers,
                      way=answer.way)  # fmt: skip

    def _compute(self, prompt: str) -> tuple[int, int]:
        """Tokens of the prompt that whole blocks of the cache begin with, and all; four characters are a token."""
        begun = [prompt[:end] for end in range(BLOCK, len(prompt) + 1, BLOCK)]
        n_cached = next((at for at, each in enumerate(begun) if each not in self._blocks), len(begun))
        self._blocks.update(begun)
        return n_cached * BLOCK // 4, len(prompt) // 4


@contextlib.asynccontextmanager
async def vllm(*models: str, script: Script = lambda heard: Said("Hello there.")) -> AsyncIterator[Vllm]:
    """A server in this event loop."""
    server = Vllm(*models, script=script)
    await server.live()
    try:
        yield server
    finally:
        await server.die()
