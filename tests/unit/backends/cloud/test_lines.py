"""Servers that send lines of JSON, and Ollama's window: it must be sent, is kept, and grows by doubling."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cases import amount
from tests.providers_replay import Answer, Way, replaying
from tests.unit.backends.cloud.providing import LONG

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.provider import KINDS, Provider, provider_of
from shepherd.core import BadReply, ContextFull, Event, Finished, Message, Request, TextDelta, Unavailable
from shepherd.core.dataclasses import dataclass, fields
from shepherd.wire.base import Json
from shepherd.wire.client import ClientCodec, Decoder, Endpoint, Failure
from shepherd.wire.values import BrokenAnswer

NDJSON = {"content-type": "application/x-ndjson"}
LINES = [{"message": {"content": word}, "done": False} for word in ("Hello", " w\u00f6rld\u2028", "!")]
SPOKEN = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in [*LINES, {"done": True}]).encode()


class Lines:
    """The smallest codec of such a protocol."""

    def encode_request(self, request: Request, endpoint: Endpoint) -> Json:
        return {"model": endpoint.model, "num_ctx": endpoint.n_ctx, "messages": len(request.messages)}

    def decoder(self, request: Request, endpoint: Endpoint) -> Decoder:
        return LinesDecoder(request, endpoint)


class LinesDecoder(Decoder):
    is_open = True

    def _take(self, record: Json) -> Iterator[Event]:
        if "error" in record:
            raise Failure(record)
        yield from self._start("m")
        if text := record.get("message", {}).get("content"):
            yield TextDelta(text)
        if record.get("done"):
            self.is_open = False
            yield Finished("end")

    def _read_whole(self, body: Json) -> Iterator[Event]:
        yield from self._take(body)

    def _end_of_body(self) -> Iterator[Event]:
        if self.is_open:
            raise BrokenAnswer("it ends before its end")
        yield from ()


@dataclass(frozen=True, slots=True)
class Small(Provider):
    def codec(self) -> ClientCodec:
        return Lines()


def backend(url: str, **more: Any) -> CloudBackend:
    provider = provider_of(KINDS["ollama"], base_url=url, **more)
    values = {each.name: getattr(provider, each.name) for each in fields(provider)}
    return CloudBackend(Small(**values), timeouts=Timeouts(attempts=1))


async def answered(it: CloudBackend, text: str = "hi", **more: Any) -> str:
    events = [event async for event in it.stream(Request("m", (Message.user(text),), **more))]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_lines_cut_anywhere_and_without_their_last_end() -> None:
    answers = [Answer("/api/chat", body, headers=headers, way=Way(seed, longest=9))
               for seed in range(amount(5, 40))
               for body in (SPOKEN, SPOKEN.rstrip(), SPOKEN.replace(b"\n", b"\r\n\r\n"), b"\n" + SPOKEN)
               for headers in (NDJSON, {"content-type": "application/json"}, {})]  # fmt: skip
    async with replaying(*answers) as server:
        it = backend(server.url)
        for answer in answers:
            assert await answered(it) == "Hello w\u00f6rld\u2028!", (answer.headers, answer.way)
        await it.aclose()


async def test_one_object_in_place_of_lines() -> None:
    whole = {"message": {"content": "all"}, "done": True}
    for body in (json.dumps(whole), json.dumps(whole, indent=1)):
        answer = Answer("/api/chat", body.encode(), headers={"content-type": "application/json"})
        async with replaying(answer) as server:
            it = backend(server.url)
            assert await answered(it) == "all"
            await it.aclose()


async def test_errors_in_lines() -> None:
    cases = {
        b'{"error":"an error was encountered while running the model"}\n': Unavailable,
        SPOKEN[:50] + b"\nnonsense\n": BadReply,
        SPOKEN[:40]: BadReply,
        b"[1]\n": BadReply,
    }
    for body, kind in cases.items():
        async with replaying(Answer("/api/chat", body, headers=NDJSON)) as server:
            it = backend(server.url)
            with pytest.raises(kind):
                await answered(it)
            await it.aclose()


async def test_the_window_is_sent_is_kept_and_grows() -> None:
    show = Answer("/api/show", b'{"model_info": {"q.context_length": 32768}, "capabilities": ["completion"]}', 200)
    spoken = Answer("/api/chat", SPOKEN, headers=NDJSON)
    async with replaying(spoken, show, spoken, spoken) as server:
        it = backend(server.url)
        for text in ("hi", LONG * 2, "hi"):
            await answered(it, text)
        sent = [each.json.get("num_ctx") for each in server.requests if each.path == "/api/chat"]
        assert sent == [8_192, 16_384, 16_384]
        with pytest.raises(ContextFull, match="32768 maximum"):
            await answered(it, LONG * 9)  # Ollama would cut it, and not say so
        assert len(server.requests) == 4
        await it.aclose()
    async with replaying(spoken) as server:
        it = backend(server.url, n_ctx=4_096)
        await answered(it)
        assert server.requests[0].json["num_ctx"] == 4_096
        await it.aclose()
