"""Answers of our own making, and a back end in front of a replaying server, for the tests of this room."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.providers_replay import Answer, ReplayServer, Way, replaying

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.kept import KeptAnswers
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.backends.cloud.transport import Deadlines, Transport
from shepherd.core import Event, Message, Request, ShepherdError, TextDelta
from shepherd.dialects import TagDialect

KEY = "sk-test-SECRET-4242424242"
CHAT = "/v1/chat/completions"
LONG = "some words " * 2_000
"""About 5,500 tokens."""
WORDS = ["Hello", " wide", " w\u00f6rld", "\u2028", " \U0001f40f", " end"]


def sse(*records: Any, done: bool = True) -> bytes:
    lines = [f"data: {each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}\n\n" for each in records]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


COUNTS = {"prompt_tokens": 900, "completion_tokens": 6, "total_tokens": 906}
USAGE = {"id": "c1", "model": "m", "choices": [], "usage": COUNTS}
SPOKEN = sse(
    chunk({"role": "assistant", "content": ""}), *(chunk({"content": word}) for word in WORDS), chunk({}, "stop"), USAGE
)
WHOLE = {
    "id": "c1",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "finish_reason": "stop"}],
    "usage": COUNTS,
}


def spoken(way: Way | None = None, body: bytes = SPOKEN, **more: Any) -> Answer:
    return Answer(CHAT, body, way=way or Way(), **more)


def refusal(status: int, body: Any, path: str = CHAT, **headers: str) -> Answer:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(path, sent, status, {"content-type": "application/json", **named})


def listing(body: Any, path: str = "/v1/models") -> Answer:
    return Answer(path, json.dumps(body).encode(), 200, {"content-type": "application/json"}, "GET")


@dataclass
class Stage:
    """A back end and its provider."""

    backend: CloudBackend
    server: ReplayServer
    waits: list[float]
    events: list[Event] = field(default_factory=list)
    """Of the last answer."""

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    async def ask(self, request: Request | None = None) -> ShepherdError | None:
        """The error of one answer, if it has one."""
        self.events = []
        try:
            async with aclosing(self.backend.stream(request or asking())) as events:
                async for event in events:
                    self.events.append(event)
        except ShepherdError as error:
            return error
        return None


def asking(*texts: str, **more: Any) -> Request:
    return Request("m", tuple(map(Message.user, texts or ("hi",))), **more)


@contextlib.asynccontextmanager
async def staged(
    *answers: Answer,
    kind: str = "openai_compat",
    base: str = "",
    deadlines: Deadlines | None = None,
    timeouts: Timeouts | None = None,
    kept: KeptAnswers | None = None,
    library: dict[str, Iterable[Answer]] | None = None,
    clock: Any = None,
    dialect: TagDialect | None = None,
    **more: Any,
) -> AsyncIterator[Stage]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))

    async with replaying(*answers, library=library) as server:
        provider = provider_of(KINDS[kind], name="prov", base_url=server.url + base, key=KEY, **more)
        timer = {} if clock is None else {"clock": clock}
        transport = Transport(provider, deadlines=deadlines, **timer)
        backend = CloudBackend(
            provider,
            transport=transport,
            timeouts=timeouts,
            kept=kept,
            sleep=sleep,
            chance=lambda: 0.0,
            dialect=dialect,
        )
        try:
            yield Stage(backend, server, waits)
        finally:
            await backend.aclose()
