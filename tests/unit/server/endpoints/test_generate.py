"""One request over a real connection: clients that go away, read slowly or wait long, and the end of the server."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.in_process import client_of
from tests.in_time import until
from tests.own_server import Listening
from tests.scripted_service import Script, ScriptedService, playing, saying

from shepherd.core import Event, Finished, Progress, Request, Started, TextDelta
from shepherd.server.app import Limits, create_app

CHAT = "/v1/chat/completions"
PATIENCE_S = 60.0
"""Only a test that fails waits this long; the machine may be busy."""


def body_of(text: str = "Hello", *, stream: bool) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": stream}


@asynccontextmanager
async def asking(url: str, body: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """What comes back over a connection of its own, for clients that behave as no library would."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port, limit=2**16)
    content = json.dumps(body).encode()
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(content), content)
    )
    await writer.drain()
    try:
        yield reader
    finally:
        writer.transport.abort()  # reads nothing more, as a process that was killed


async def endless_text(request: Request) -> AsyncGenerator[Event, None]:
    yield Started("m")
    while True:
        yield TextDelta("word ")
        await asyncio.sleep(0)


async def silent_prefill(request: Request) -> AsyncGenerator[Event, None]:
    yield Started("m")
    yield Progress(1, 1000)
    await asyncio.Event().wait()


async def queued_for_ever(request: Request) -> AsyncGenerator[Event, None]:
    await asyncio.Event().wait()
    yield Started("m")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [endless_text, silent_prefill, queued_for_ever])
async def test_a_client_that_goes_away_cancels_its_answer(
    listening: Listening, script: Script, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    service = ScriptedService(script)
    async with listening(service) as url:
        async with asking(url, body_of(stream=stream)) as reader:
            if stream and script is not queued_for_ever:
                await asyncio.wait_for(reader.readuntil(b'"role":"assistant"'), PATIENCE_S)
            else:
                await until(lambda: service.n_running > 0)
        await asyncio.wait_for(service.ended.wait(), PATIENCE_S)
        assert service.n_running == 0
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).status_code == 200
    assert "stop=client gone" in caplog.text
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_cancelled_answer_stops_within_a_few_tokens(listening: Listening) -> None:
    service = ScriptedService(endless_text)
    async with listening(service) as url:
        async with asking(url, body_of(stream=True)) as reader:
            await asyncio.wait_for(reader.readuntil(b"word"), PATIENCE_S)
            before = service.n_events
        await asyncio.wait_for(service.ended.wait(), PATIENCE_S)
        assert service.n_events - before < 100  # 100 ms of tokens, on a machine that is busy with other things


async def test_text_arrives_while_the_answer_is_still_being_made(listening: Listening) -> None:
    release = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        yield TextDelta("first")
        await release.wait()
        yield TextDelta("second")
        yield Finished("end")

    async with listening(ScriptedService(script)) as url, asking(url, body_of(stream=True)) as reader:
        await asyncio.wait_for(reader.readuntil(b"first"), PATIENCE_S)
        release.set()
        await asyncio.wait_for(reader.readuntil(b"data: [DONE]"), PATIENCE_S)


async def test_a_silence_is_filled_with_comments(listening: Listening) -> None:
    release = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        await release.wait()
        yield TextDelta("at last")
        yield Finished("end")

    limits = Limits(ping_s=0.01)
    async with (
        listening(ScriptedService(script), limits=limits) as url,
        asking(url, body_of(stream=True)) as reader,
    ):
        for _ in range(3):
            await asyncio.wait_for(reader.readuntil(b": ping\n\n"), PATIENCE_S)
        release.set()
        await asyncio.wait_for(reader.readuntil(b"at last"), PATIENCE_S)


async def test_the_status_line_waits_for_the_first_event_only(listening: Listening) -> None:
    async with (
        listening(ScriptedService(silent_prefill)) as url,
        asking(url, body_of(stream=True)) as reader,
    ):
        assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"HTTP/1.1 200")


async def test_events_that_are_ready_together_go_out_together(listening: Listening) -> None:
    texts = [f"t{number} " for number in range(50)]
    async with listening(ScriptedService(saying(*texts))) as url, asking(url, body_of(stream=True)) as reader:
        answer = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), PATIENCE_S)
    head, _, chunked = answer.partition(b"\r\n\r\n")
    assert b"chunked" in head
    assert chunked.count(b'"content":"t') == 50
    assert chunked.count(b"\r\n") // 2 < 5  # pieces of the transfer, of which the empty one is the last


async def flood(request: Request) -> AsyncGenerator[Event, None]:
    yield Started("m")
    for _ in range(2_000):
        yield TextDelta("x" * 10_000)
    yield Finished("end")


@pytest.mark.parametrize(
    "limits",
    [Limits(max_unread_bytes=1_000_000), Limits(max_unread_bytes=100_000_000, stall_s=0.2)],
    ids=["too many unread bytes", "nothing read for too long"],
)
async def test_a_client_that_stops_reading_is_dropped(
    listening: Listening, limits: Limits, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    service = ScriptedService(flood)
    async with listening(service, limits=limits) as url, asking(url, body_of(stream=True)):
        await until(lambda: "stop=client too slow" in caplog.text)
        assert service.n_running == 0


async def test_a_slow_reader_delays_no_other_client(listening: Listening) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        nonce = request.messages[0].text
        if nonce == "slow":
            async with aclosing(flood(request)) as events:
                async for event in events:
                    yield event
            return
        yield Started("m")
        for _ in range(100):
            yield TextDelta(f"{nonce} ")
            await asyncio.sleep(0)
        yield Finished("end")

    async def ask(client: httpx2.AsyncClient, nonce: str) -> None:
        answer = await client.post(CHAT, json=body_of(nonce, stream=True))
        assert answer.text.count(f'"content":"{nonce} "') == 100
        assert answer.text.count('"content":"') == 100

    limits = Limits(max_unread_bytes=100_000_000)
    service = ScriptedService(script)
    async with (
        listening(service, limits=limits) as url,
        asking(url, body_of("slow", stream=True)) as reader,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        await asyncio.wait_for(reader.readline(), PATIENCE_S)
        async with asyncio.TaskGroup() as clients:
            for number in range(8):
                clients.create_task(ask(client, f"nonce-{number}"))
            clients.create_task(client.get("/health"))
        await until(lambda: not service.n_running)  # the slow one's ends, too, though nobody reads it


async def test_a_burst_of_events_does_not_count_as_a_slow_reader(listening: Listening) -> None:
    limits = Limits(max_unread_bytes=5_000_000)
    async with (
        listening(ScriptedService(flood), limits=limits) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        answer = await client.post(CHAT, json=body_of(stream=True))
    assert answer.text.count("x") >= 20_000_000


async def test_an_event_that_is_larger_than_the_buffer_says_nothing_about_the_reader(listening: Listening) -> None:
    """Of a provider: an event has up to 64 MiB. Responses repeat the whole text at the end."""

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        for _ in range(3):
            yield TextDelta("small")
            yield TextDelta("x" * 3_000_000)
        yield Finished("end")

    limits = Limits(max_unread_bytes=1_000_000)
    async with (
        listening(ScriptedService(script), limits=limits) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client,
    ):
        for path, body in ((CHAT, body_of(stream=True)), ("/v1/responses", {"input": "Hi", "stream": True})):
            answer = await client.post(path, json=body)
            assert answer.text.count("x") >= 9_000_000, path
            assert "[DONE]" in answer.text or "response.completed" in answer.text


async def test_a_client_that_stops_reading_is_dropped_in_the_middle_of_a_large_event(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        while True:
            yield TextDelta("x" * 9_000_000)

    caplog.set_level(logging.INFO, logger="shepherd.server")
    service = ScriptedService(script)
    async with listening(service, limits=Limits(stall_s=0.2)) as url, asking(url, body_of(stream=True)):
        await until(lambda: "stop=client too slow" in caplog.text)
        assert service.n_running == 0


async def test_a_body_that_stops_coming_is_given_up(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi")), limits=Limits(stall_s=0.05)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{" % CHAT.encode())
        assert b"408" in await asyncio.wait_for(reader.readline(), PATIENCE_S)
        writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_when_the_server_stops_a_running_answer_ends_with_an_error(listening: Listening, stream: bool) -> None:
    service = ScriptedService(endless_text)
    async with listening(service) as url:
        asked = asking(url, body_of(stream=stream))
        reader = await asked.__aenter__()
        await until(lambda: service.n_events > 2)
    answer = await asyncio.wait_for(reader.read(10_000_000), PATIENCE_S)
    while rest := await asyncio.wait_for(reader.read(10_000_000), PATIENCE_S):
        answer += rest
    await asked.__aexit__(None, None, None)
    assert answer.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 503")
    assert b"the server is stopping" in answer
    assert service.n_running == 0


async def test_a_server_that_stops_before_the_head_of_a_stream_answers_with_a_status() -> None:
    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        app.state.server.active.cancel_all()
        await asyncio.Event().wait()

    app = create_app(ScriptedService(script))
    async with client_of(app) as client:
        answer = await client.post(CHAT, json=body_of(stream=True))
    assert answer.status_code == 503
    assert "the server is stopping" in answer.json()["error"]["message"]


async def test_requests_on_one_connection_follow_each_other(listening: Listening) -> None:
    service = ScriptedService(saying("Hi"))
    limits = httpx2.Limits(max_connections=1)
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, limits=limits) as client:
        for stream in (True, False, True, False):
            answer = await client.post(CHAT, json=body_of(stream=stream))
            assert answer.status_code == 200
    assert len(service.requests) == 4


async def test_an_answer_of_many_megabytes_arrives_whole(listening: Listening) -> None:
    service = ScriptedService(playing(Started("m"), TextDelta("x" * 20_000_000), Finished("end")))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.post(CHAT, json=body_of(stream=False))
    assert len(answer.json()["choices"][0]["message"]["content"]) == 20_000_000
