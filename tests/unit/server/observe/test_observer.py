"""Whoever looks on at requests sees all of it, and harms none of them."""

import json
from typing import Any

import httpx2
import pytest
from starlette.types import Scope
from tests import in_process
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import ContextFull, Event, Finished, Started, TextDelta, Usage
from shepherd.server.observe.observer import Observer
from shepherd.server.observe.record import Record
from shepherd.wire.base import Decoded

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


class Diary(Observer):
    """Writes down the calls that it gets."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.decoded: list[Decoded[Any]] = []
        self.events: list[tuple[int, Event]] = []
        self.sent = b""
        self.records: list[Record] = []

    def receive(self, scope: Scope, body: bytes) -> None:
        self.received.append(body)

    def decode(self, decoded: Decoded[Any]) -> None:
        self.decoded.append(decoded)

    def see(self, event: Event, choice: int) -> None:
        self.events.append((choice, event))

    def send(self, fragment: bytes) -> None:
        self.sent += fragment

    def close(self, record: Record) -> None:
        self.records.append(record)


class Tracing(Diary):
    wants_trace = True


class Broken(Observer):
    """Fails wherever it can."""

    def receive(self, scope: Scope, body: bytes) -> None:
        raise ValueError("receive")

    def see(self, event: Event, choice: int) -> None:
        raise ValueError("see")

    def close(self, record: Record) -> None:
        raise ValueError("close")


def client_of(service: ScriptedService, *observers: Observer) -> httpx2.AsyncClient:
    return in_process.client_of(service, observe=[lambda record, each=each: each for each in observers])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_observer_sees_a_request_from_its_first_byte_to_its_last(stream: bool) -> None:
    diary = Diary()
    events: list[Event] = [Started("m"), TextDelta("Hi"), Finished("end", Usage(3, 4, 0, 9))]
    async with client_of(ScriptedService(playing(*events)), diary) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert [json.loads(body) for body in diary.received] == [{**BODY, "stream": stream}]
    assert [decoded.request.model for decoded in diary.decoded] == ["m"]
    assert diary.events == [(0, event) for event in events]
    assert diary.sent == answer.content
    assert [(record.status, record.reason) for record in diary.records] == [(200, "end")]


@pytest.mark.parametrize(
    ("content", "script", "status"),
    [(b"{", saying("a"), 400), (json.dumps(BODY).encode(), playing(ContextFull(needed=9, limit=8)), 400)],
    ids=["not understood", "refused"],
)
async def test_failures_are_seen_too(content: bytes, script: Any, status: int) -> None:
    diary = Diary()
    async with client_of(ScriptedService(script), diary) as client:
        answer = await client.post(CHAT, content=content)
    assert (diary.received, diary.sent, answer.status_code) == ([content], answer.content, status)
    assert [record.status for record in diary.records] == [status]


async def test_back_ends_report_what_the_model_reads_and_writes_only_if_an_observer_wants_it() -> None:
    for observer, wanted in ((Diary(), False), (Tracing(), True)):
        service = ScriptedService(saying("a"))
        async with client_of(service, observer) as client:
            await client.post(CHAT, json=BODY)
        assert service.requests[0].trace is wanted


@pytest.mark.parametrize("stream", [False, True])
async def test_an_observer_that_fails_is_logged_and_does_no_harm(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    diary = Diary()
    async with client_of(ScriptedService(saying("a")), Broken(), diary) as client:
        answer = await client.post(CHAT, json={**BODY, "stream": stream})
    assert answer.status_code == 200
    assert diary.sent == answer.content
    assert len([record for record in caplog.records if "observer" in record.getMessage()]) == 1
