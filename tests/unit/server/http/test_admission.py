"""What one caller, and all together, may ask for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send
from tests.in_process import client_of
from tests.in_time import until
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.core import Event, Finished, InvalidRequest, RateLimited, Request, Started, TextDelta
from shepherd.server.app import create_app
from shepherd.server.http.admission import MAX_CHOICES, Admission, AdmissionMiddleware, ServerOverloaded, admit_choices
from shepherd.server.http.auth import Key
from shepherd.server.observe.record import CALLER, Caller

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}

SOMEBODY = Caller("", "10.0.0.1", is_alone=False)
ALONE = Caller("", "127.0.0.1", is_alone=True)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Held:
    """A script whose answers begin and then wait."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        yield TextDelta("x")
        await self.release.wait()
        yield Finished("end")


async def until_running(service: ScriptedService, n: int) -> None:
    await until(lambda: service.n_running >= n)


# ---- requests per minute


async def test_a_key_may_send_so_many_requests_in_a_minute() -> None:
    clock = Clock()
    keys = (Key.of("sk-ann", name="ann", requests_per_minute=3), Key.of("sk-bob", name="bob"))
    async with client_of(ScriptedService(saying("Hi")), api_keys=keys, admission=Admission(clock=clock)) as client:
        ann, bob = {"authorization": "Bearer sk-ann"}, {"x-api-key": "sk-bob"}
        left = []
        for _ in range(3):
            answer = await client.post(CHAT, json=BODY, headers=ann)
            assert answer.status_code == 200
            left.append(answer.headers["x-ratelimit-remaining-requests"])
        assert left == ["2", "1", "0"]
        refused = await client.post(CHAT, json=BODY, headers=ann)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "3 requests per minute" in refused.json()["error"]["message"]
        said = {name: refused.headers[name] for name in refused.headers if name.startswith(("x-ratelimit", "retry"))}
        assert said == {
            "retry-after": "20",
            "x-ratelimit-limit-requests": "3",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "60s",
        }
        other = await client.post(CHAT, json=BODY, headers=bob)
        assert other.status_code == 200
        assert "x-ratelimit-limit-requests" not in other.headers
        clock.now_s += 20
        assert (await client.post(CHAT, json=BODY, headers=ann)).status_code == 200
        assert (await client.get("/v1/models", headers=ann)).status_code == 429
        figures = (await client.get("/metrics", headers=bob)).text
    assert 'shepherd_refused_total{reason="rate"} 2.0' in figures


@given(st.integers(1, 100), st.lists(st.floats(0, 90), max_size=60))
def test_no_minute_has_more_than_twice_the_limit_and_a_client_that_waits_is_admitted(
    limit: int, waits: list[float]
) -> None:
    clock = Clock()
    admission = Admission(clock=clock)
    caller = Caller("ann", "", is_alone=True, requests_per_minute=limit)
    passed: list[float] = []
    for wait_s in waits:
        clock.now_s += wait_s
        try:
            admission.spend(caller)
        except RateLimited as error:
            clock.now_s += (error.retry_after_s or 0) + 1e-6
            admission.spend(caller)
        passed.append(clock.now_s)
    for at_s in passed:
        # A full minute's worth saved up, and another that comes back meanwhile.
        assert sum(at_s - 60 < other <= at_s for other in passed) <= 2 * limit


def test_a_key_with_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(RateLimited, match="0 requests per minute"):
        Admission().spend(Caller("ann", "", is_alone=True, requests_per_minute=0))


# ---- at the same time


async def test_one_client_leaves_room_for_the_others() -> None:
    script = Held()
    service = ScriptedService(script)
    app = create_app(service, host="0.0.0.0", admission=Admission(concurrent=3, per_client=2))
    clients = [
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app, client=(peer, 1)), base_url="http://10.0.0.9")
        for peer in ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    ]
    one, two, three = clients
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(one.post(CHAT, json=BODY)) for _ in range(2)]
        await until_running(service, 2)
        refused = await one.post(CHAT, json=BODY)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "2 requests running at the same time" in refused.json()["error"]["message"]
        answers.append(tasks.create_task(two.post(CHAT, json=BODY)))
        await until_running(service, 3)
        full = await three.post(CHAT, json=BODY)
        assert (full.status_code, full.headers["retry-after"]) == (503, "2")
        assert "the server is busy" in full.json()["error"]["message"]
        figures = (await three.get("/metrics")).text  # who only looks is always let in
        assert "shepherd_active_requests 3.0" in figures
        assert 'shepherd_refused_total{reason="client"} 1.0' in figures
        assert 'shepherd_refused_total{reason="house"} 1.0' in figures
        script.release.set()
    assert [answer.result().status_code for answer in answers] == [200, 200, 200]
    assert (await one.post(CHAT, json=BODY)).status_code == 200
    for client in clients:
        await client.aclose()


async def test_a_client_that_goes_away_gives_its_place_back() -> None:
    service = ScriptedService(Held())
    admission = Admission(per_client=1)
    async with client_of(service, peer="10.0.0.1", host="0.0.0.0", admission=admission) as client:
        asking = asyncio.create_task(client.post(CHAT, json=BODY))
        await until_running(service, 1)
        assert admission.n_active == 1
        asking.cancel()
        await asyncio.wait((asking,))
    assert admission.n_active == 0


@pytest.mark.parametrize(
    ("caller", "limit"),
    [
        (SOMEBODY, 32),
        (ALONE, 256),
        (Caller("ann", "", is_alone=False), 32),
        (Caller("ann", "", is_alone=True), 256),
        (Caller("ann", "", is_alone=True, concurrent=2), 2),
        (Caller("ann", "", is_alone=False, concurrent=100), 100),
        (Caller("ann", "", is_alone=False, concurrent=1000), 256),
    ],
)
def test_the_only_caller_may_use_the_whole_server_and_a_key_has_its_own_limit(caller: Caller, limit: int) -> None:
    admission = Admission()
    admission.enter(caller, limit)
    with pytest.raises(RateLimited):
        admission.enter(caller)


CALLERS = (SOMEBODY, ALONE, Caller("ann", "10.0.0.1", is_alone=False), Caller("bob", "x", is_alone=True, concurrent=3))


@given(st.lists(st.tuples(st.sampled_from(CALLERS), st.integers(1, 4), st.booleans()), max_size=60))
def test_no_caller_ever_has_more_than_its_limit_and_nothing_is_left_behind(
    steps: list[tuple[Caller, int, bool]],
) -> None:
    admission = Admission(concurrent=8, per_client=4)
    inside: list[tuple[Caller, int]] = []
    for caller, n, enters in steps:
        if enters:
            mine = sum(each for who, each in inside if who == caller) + n
            fits = sum(each for _, each in inside) + n <= 8 and (caller.is_alone or mine <= 4)
            fits &= caller.concurrent is None or mine <= caller.concurrent
            if fits:
                admission.enter(caller, n)
                inside.append((caller, n))
            else:
                with pytest.raises(RateLimited) as refused:
                    admission.enter(caller, n)
                assert isinstance(refused.value, ServerOverloaded) == (refused.value.status == 503)
        elif inside:
            admission.leave(*inside.pop())
        assert admission.n_active == sum(each for _, each in inside)
    for left in inside:
        admission.leave(*left)
    assert admission.n_active == 0
    assert not admission._running  # no trace of who has gone


async def test_bodies_that_are_held_at_the_same_time_have_a_limit_together() -> None:
    script = Held()
    service = ScriptedService(script)
    admission = Admission(held_bytes=10_000)
    large = {**BODY, "user": "x" * 6_000}
    async with client_of(service, admission=admission) as client:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(client.post(CHAT, json=large))
            await until_running(service, 1)
            refused = await client.post(CHAT, json=large)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
            assert "the server is busy" in refused.json()["error"]["message"]
            small = tasks.create_task(client.post(CHAT, json=BODY))
            await until_running(service, 2)
            script.release.set()
        assert (first.result().status_code, small.result().status_code) == (200, 200)
        assert admission.n_held_bytes == 0
        assert (await client.post(CHAT, json=large)).status_code == 200


# ---- bodies that do not come to their end

UNFINISHED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"


@asynccontextmanager
async def unfinished(url: str, n: int, begun: bytes = b"{") -> AsyncIterator[list[asyncio.StreamReader]]:
    """`n` connections, each with the beginning of a body."""
    async with AsyncExitStack() as stack:
        streams = [await asyncio.open_connection("127.0.0.1", urlsplit(url).port) for _ in range(n)]
        for _, writer in streams:
            stack.callback(writer.transport.abort)
            writer.write(UNFINISHED + begun)
        yield [reader for reader, _ in streams]


async def test_unfinished_bodies_take_no_place_from_a_whole_request(listening: Listening) -> None:
    admission = Admission(concurrent=4)
    async with listening(ScriptedService(saying("Hi")), admission=admission) as url, unfinished(url, 4) as readers:
        await until(lambda: admission.n_active == 4)
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.post(CHAT, json=BODY)).status_code == 200
        first = await asyncio.wait_for(asyncio.wait([asyncio.ensure_future(one.readline()) for one in readers],
                                                    return_when=asyncio.FIRST_COMPLETED), 60)  # fmt: skip
        assert [task.result() for task in first[0]] == [b"HTTP/1.1 503 Service Unavailable\r\n"]
        await until(lambda: admission.n_active == 3)  # the others may still end


async def test_the_bytes_of_unfinished_bodies_take_no_room_from_a_whole_request(listening: Listening) -> None:
    admission = Admission(held_bytes=10_000)
    service = ScriptedService(saying("Hi"))
    async with listening(service, admission=admission) as url, unfinished(url, 3, b"x" * 3_000):
        await until(lambda: admission.n_held_bytes == 9_000)
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.post(CHAT, json={**BODY, "user": "x" * 5_000})).status_code == 200
        await until(lambda: admission.n_held_bytes == 3_000)  # two had to leave


async def test_a_caller_with_unfinished_bodies_takes_the_place_of_its_own_only() -> None:
    admission = Admission(concurrent=3, per_client=2)
    app = AdmissionMiddleware(reading, admission=admission)
    ended: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        for name in ("ann", "bob", "bob"):
            tasks.create_task(waiting_for_a_body(app, name, ended, asyncio.Event()))
        await until(lambda: len(admission._waiting) == 3)
        admission.enter(Caller("bob", "", is_alone=False))
        await until(lambda: ended == ["bob"])
        admission.enter(Caller("bob", "", is_alone=False))
        await until(lambda: ended == ["bob", "bob"])
        with pytest.raises(RateLimited, match="2 requests running"):
            admission.enter(Caller("bob", "", is_alone=False))
        admission.enter(Caller("carl", "", is_alone=False))
        await until(lambda: ended == ["bob", "bob", "ann"])
        with pytest.raises(ServerOverloaded):
            admission.enter(Caller("dora", "", is_alone=False))
    assert admission.n_active == 3


async def test_the_end_of_a_body_that_comes_with_its_giving_up_comes_too_late() -> None:
    admission, comes, ended = Admission(concurrent=1), asyncio.Event(), list[str]()
    app = AdmissionMiddleware(reading, admission=admission)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(waiting_for_a_body(app, "ann", ended, comes))
        await until(lambda: len(admission._waiting) == 1)
        comes.set()
        admission.enter(Caller("bob", "", is_alone=False))
    assert (ended, admission.n_active) == (["ann"], 1)


async def reading(scope: Scope, receive: Receive, send: Send) -> None:
    with pytest.raises(ServerOverloaded, match="did not come to its end"):
        await receive()


async def waiting_for_a_body(app: AdmissionMiddleware, name: str, ended: list[str], comes: asyncio.Event) -> None:
    async def receive() -> Message:
        await comes.wait()
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], CALLER: Caller(name, "", is_alone=False)}
    await app(scope, receive, send)
    ended.append(name)


# ---- several answers to one body


async def test_a_body_that_asks_for_several_answers_counts_as_that_many() -> None:
    script = Held()
    service = ScriptedService(script)
    app = create_app(service, host="0.0.0.0", admission=Admission(per_client=4))
    transport = httpx2.ASGITransport(app, client=("10.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://10.0.0.9") as client:
        async with asyncio.TaskGroup() as tasks:
            three = tasks.create_task(client.post(CHAT, json={**BODY, "n": 3}))
            await until_running(service, 3)
            refused = await client.post(CHAT, json={**BODY, "n": 2})
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "2"
            one = tasks.create_task(client.post(CHAT, json=BODY))
            await until_running(service, 4)
            script.release.set()
        assert len(three.result().json()["choices"]) == 3
        assert one.result().status_code == 200
        assert (await client.post(CHAT, json={**BODY, "n": 4})).status_code == 200


async def test_no_body_may_ask_for_more_answers_than_the_limit() -> None:
    admit_choices({"type": "http"}, MAX_CHOICES)
    with pytest.raises(InvalidRequest, match=f"asks for {MAX_CHOICES + 1} answers"):
        admit_choices({"type": "http"}, MAX_CHOICES + 1)
    service = ScriptedService(saying("Hi"))
    async with client_of(service) as client:
        answer = await client.post(CHAT, json={**BODY, "n": MAX_CHOICES + 1})
    assert answer.status_code == 400
    assert service.requests == []


@pytest.mark.parametrize("path", ["/v1/messages", "/api/chat", CHAT])
async def test_a_refusal_has_the_shape_of_the_paths_protocol(path: str) -> None:
    keys = (Key.of("sk-ann", name="ann", concurrent=0),)
    async with client_of(ScriptedService(saying("Hi")), api_keys=keys) as client:
        answer = await client.post(path, json=BODY, headers={"x-api-key": "sk-ann"})
    told = answer.json()
    assert answer.status_code == 429
    if path == "/v1/messages":
        assert (told["type"], told["error"]["type"]) == ("error", "rate_limit_error")
    elif path == "/api/chat":
        assert isinstance(told["error"], str)
    else:
        assert told["error"]["type"] == "rate_limit_error"
