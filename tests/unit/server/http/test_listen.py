"""Opening a port, and leaving it: what can go wrong is one sentence, and a signal is an orderly end."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn
from tests.in_time import until
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying
from uvicorn.server import ServerState

from shepherd.core import ConfigError, Event, Request, Started, TextDelta
from shepherd.server.app import create_app, serve
from shepherd.server.http.body import LINGER_S
from shepherd.server.http.listen import HEAD_S, IDLE_S, MAX_HEAD_BYTES, Connection, bind

PATIENCE_S = 60.0
"""Only a test that fails waits this long; the machine may be busy."""

PROGRAM = """
import asyncio, sys
from shepherd.core import Finished, Started, TextDelta
from shepherd.server.app import create_app, serve
from tests.scripted_service import ScriptedService
from shepherd.server.http.listen import loop_factory

async def words(request):
    n_words = int(request.messages[0].text)
    yield Started("m")
    for _ in range(n_words):
        yield TextDelta("word ")
        await asyncio.sleep(0.01)
    yield Finished("end")

async def main():
    on_ready = lambda port: print(port, flush=True)
    app, grace_s = create_app(ScriptedService(words)), float(sys.argv[1])
    await serve(app, host="127.0.0.1", port=0, on_ready=on_ready, grace_s=grace_s)
    print("cleaned up", flush=True)

loop = asyncio.new_event_loop if "asyncio" in sys.argv else loop_factory()
with asyncio.Runner(loop_factory=loop) as runner:
    runner.run(main())
"""


def test_a_port_in_use_is_one_sentence_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} is already in use; stop the other program or choose"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("127.0.0.1", -1, "between 0 and 65535"),
        ("127.0.0.1", 65536, "between 0 and 65535"),
        ("no-such-host.invalid", 0, "cannot be resolved"),
        ("a" * 80, 0, "cannot be resolved"),
        ("203.0.113.7", 0, "no address '203.0.113.7'"),
    ],
)
def test_a_bad_address_is_one_sentence(host: str, port: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bind(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", ""])
def test_port_0_takes_a_free_port_the_same_for_every_address(host: str) -> None:
    try:
        sockets = bind(host, 0)
    except ConfigError as error:
        pytest.skip(f"no such address here: {error}")
    ports = {listener.getsockname()[1] for listener in sockets}
    for listener in sockets:
        listener.close()
    assert len(ports) == 1
    assert ports != {0}


@pytest.mark.parametrize("host", ["127.0.0.1,::1", "127.0.0.2, 127.0.0.1,"])
def test_several_addresses_share_one_port(host: str) -> None:
    try:
        sockets = bind(host, 0)
    except ConfigError as error:
        pytest.skip(f"no such address here: {error}")
    places = [listener.getsockname()[:2] for listener in sockets]
    for listener in sockets:
        listener.close()
    assert [place[0] for place in places] == [name.strip() for name in host.split(",") if name]
    assert len({place[1] for place in places}) == 1
    with pytest.raises(ConfigError, match=r"no address '203\.0\.113\.7'"):
        bind("127.0.0.1,203.0.113.7", places[0][1])
    bind("127.0.0.1", places[0][1])[0].close()  # the failure has left none open


async def test_small_answers_are_not_held_back_by_nagles_algorithm() -> None:
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Look(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.set_result(option)
            transport.close()

    (listener,) = bind("127.0.0.1", 0)
    async with await asyncio.get_running_loop().create_server(Look, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await accepted
        writer.close()


@contextmanager
def started(grace_s: float, loop: str = "fastest") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-c", PROGRAM, str(grace_s), loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            yield program, f"http://127.0.0.1:{int(program.stdout.readline())}"
        finally:
            program.kill()


def asking(n_words: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": str(n_words)}], "stream": True}


# ---- connections that cost more than they bring


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.grid(0.3)
@pytest.mark.parametrize("name", [b"X-Long: ", b"X-Many: x\r\nX-Many: ", b"", b"Cookie: a;"])
async def test_a_head_without_end_is_refused(listening: Listening, name: bytes) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\n" + name if name else b"GET /")
        for _ in range(MAX_HEAD_BYTES // 4096 + 1):
            writer.write((b"x" * 98 + b"\r\n") * 40 if name.startswith(b"X-Many") else b"x" * 4096)
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))  # 400: what the parser itself cannot take
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).status_code == 200


async def test_a_head_of_ordinary_size_is_accepted_after_any_other(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(10):
            body = {"messages": [{"role": "user", "content": "x" * MAX_HEAD_BYTES}]}
            headers = {"x-long": "x" * (MAX_HEAD_BYTES // 2)}
            assert (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200


async def test_white_space_around_the_value_of_a_header_is_no_part_of_it() -> None:
    connection, _, _ = connection_in_process()
    connection.data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\nMcp-Name: \t read file \t \r\n\r\n")
    assert dict(connection.headers)[b"mcp-name"] == b"read file"


async def test_a_head_that_does_not_come_to_its_end_is_given_up() -> None:
    connection, transport, loop = connection_in_process()
    connection.data_received(b"GET /health HTTP/1.1\r\nHost: ")
    assert not transport.is_closing()
    loop.pass_time(HEAD_S)
    assert transport.written.startswith(b"HTTP/1.1 408 ")
    loop.pass_time(LINGER_S)  # what the client still sends must not drop the answer
    assert transport.is_closing()
    loop.pass_time(IDLE_S)  # its other timers find nothing to do


async def test_half_a_head_behind_a_request_does_not_cut_its_answer() -> None:
    connection, transport, loop = connection_in_process()
    connection.data_received(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he")
    loop.pass_time(HEAD_S)  # the answer is still being made
    assert not transport.is_closing()
    async with asyncio.timeout(PATIENCE_S):
        while not transport.is_closing():  # noqa: ASYNC110 - nothing sets an event for it
            await asyncio.sleep(0)
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert b'"status":"ok"' in transport.written


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_the_head_goes_out_with_the_beginning_of_the_body(stream: bool) -> None:
    connection, transport, _ = connection_in_process()
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.data_received(head + body)
    await written_to(transport, b"0\r\n\r\n" if stream else b"}")
    assert transport.writes[0].startswith(b"HTTP/1.1 200 ")
    assert b'"role":"assistant"' in transport.writes[0]
    assert len(transport.writes) == (2 if stream else 1)  # what a stream has at once is one piece; then its end


async def test_a_head_without_a_body_goes_out_alone() -> None:
    connection, transport, _ = connection_in_process()
    connection.data_received(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\n\r\n")
    await written_to(transport, b"\r\n\r\n")
    assert transport.is_closing()
    connection, transport, _ = connection_in_process()
    connection.data_received(
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    )
    await written_to(transport, b"100 Continue\r\n\r\n")
    connection.data_received(b"{}")
    await written_to(transport, b"}")
    assert transport.writes[1].startswith(b"HTTP/1.1 400 ")


async def written_to(transport: Transport, end: bytes) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not transport.written.endswith(end):  # noqa: ASYNC110 - nothing sets an event for it
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", "cannot be read as HTTP/1.1: Invalid header token"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", "Invalid character in Content-Length"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            "a client speaks https, and this server http; give the client",
        ),
        (
            b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
            f"the head is larger than {MAX_HEAD_BYTES} bytes",
        ),
    ],
    ids=["header", "length", "tls", "address"],
)
async def test_what_cannot_be_read_as_a_request_is_refused_with_its_reason(request_: bytes, said: str) -> None:
    connection, transport, _ = connection_in_process()
    connection.data_received(request_)
    head, _, why = transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 " if "larger" in said else b"HTTP/1.1 400 ")
    assert said in why.decode()


async def test_what_cannot_be_read_behind_a_request_does_not_cut_its_answer(listening: Listening) -> None:
    body = json.dumps({**asking(1), "stream": False}).encode()
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(head_of(body) + body + b"garbage\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.parametrize("n_first", [0, 1, 10_000], ids=["body alone", "body in two", "together"])
async def test_a_request_that_offers_another_protocol_is_answered_in_this_one(
    listening: Listening, n_first: int
) -> None:
    """Java's client offers h2c with its first request, and goes on with what the server speaks."""
    body = json.dumps({**asking(1), "stream": False}).encode()
    head = head_of(body)[:-2] + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAE\r\n\r\n"
    whole, at = (head + body) * 2, len(head) + n_first
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(whole[:at])
        await writer.drain()
        writer.write(whole[at:])
        for _ in range(2):
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            n_bytes = int(re.search(rb"content-length: (\d+)", answer)[1])  # type: ignore[index]  # a whole answer has it
            content = json.loads(await asyncio.wait_for(reader.readexactly(n_bytes), PATIENCE_S))
            assert content["choices"][0]["message"]["content"] == "Hi"


@pytest.mark.grid(0.3)
@pytest.mark.parametrize(
    "framing",
    [b"5;" + b"x" * 200_000, b"0" * 200_000 + b"5\r\nhello\r\n", b"0\r\nX: " + b"x" * 200_000],
    ids=["extension", "size", "trailer"],
)
async def test_what_stands_around_the_chunks_of_a_body_has_a_limit(listening: Listening, framing: bytes) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(framing)
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_a_body_in_chunks_of_one_byte_is_read_to_its_end(listening: Listening) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 200_000}]}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(chunks)
        assert await asyncio.wait_for(reader.readline(), PATIENCE_S) == b"HTTP/1.1 200 OK\r\n"


# ---- a client that ends its own side of the connection


def head_of(body: bytes) -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("n_events", [0, 2])
async def test_a_client_that_has_gone_stops_its_answer(listening: Listening, stream: bool, n_events: int) -> None:
    async def silent(request: Request) -> AsyncGenerator[Event, None]:
        for event in (Started("m"), TextDelta("x"))[:n_events]:
            yield event
        await asyncio.Event().wait()

    service = ScriptedService(silent)
    body = json.dumps({**asking(1), "stream": stream}).encode()
    async with listening(service) as url, connected(url) as (_, writer):
        writer.write(head_of(body) + body)
        await until(lambda: service.n_events == n_events and service.n_running == 1)
        writer.close()
        await asyncio.wait_for(service.ended.wait(), PATIENCE_S)


async def test_half_a_body_and_the_end_of_the_connection_is_no_request(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, connected(url) as (reader, writer):
        writer.write(head_of(b"0123456789") + b"{")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""


async def test_a_connection_that_sends_nothing_is_closed() -> None:
    _, transport, loop = connection_in_process()
    loop.pass_time(IDLE_S - 1)
    assert not transport.is_closing()
    loop.pass_time(1)
    assert transport.is_closing()
    assert transport.written == b""


# ---- HTTP/1.0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "stream": True}),
        ("/v1/responses", {"input": "x", "stream": True}),
        ("/api/chat", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ],
)
async def test_a_client_of_http_1_0_gets_what_one_of_1_1_gets_without_chunks(
    listening: Listening, path: str, body: dict[str, Any]
) -> None:
    async with listening(ScriptedService(saying("One", "two"))) as url:
        content = json.dumps({"model": "m", **body}).encode()
        async with connected(url) as (reader, writer):
            writer.write(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(content), content))
            head, _, old = (await asyncio.wait_for(reader.read(), PATIENCE_S)).partition(b"\r\n\r\n")
        async with httpx2.AsyncClient(base_url=url) as client:
            new = await client.post(path, content=content, headers={"content-type": "application/json"})
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert (b"content-length" in head.lower()) == ("content-length" in new.headers)
    assert CHANGING.sub(b"", old) == CHANGING.sub(b"", new.content)


CHANGING = re.compile(rb"\w+_[0-9a-f]{16,}|chatcmpl-\w+|\d{4}-\d\d-\d\dT[\d:.]+Z|\d+(\.\d+)?(e[-+]?\d+)?")
"""Ids and times."""


async def test_a_head_of_http_1_0_has_no_body() -> None:
    connection, transport, _ = connection_in_process()
    connection.data_received(b"HEAD / HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        while not transport.is_closing():  # noqa: ASYNC110 - nothing sets an event for it
            await asyncio.sleep(0)
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    assert transport.written.endswith(b"\r\n\r\n")


# ---- writing


async def test_bytes_go_to_the_kernel_as_far_as_it_takes_them_and_the_rest_behind_them_in_order() -> None:
    with connection_over_sockets() as (connection, transport, peer):
        sent = b"".join(b"%07d " % n for n in range(100_000))
        connection.transport.write(sent[:8])
        assert transport.written == b"", "the kernel had room"
        assert peer.recv(100) == sent[:8]
        for at in range(8, len(sent), 64_000):
            connection.transport.write(sent[at : at + 64_000])
        assert len(transport.writes) > 2, "this is more than the kernel takes"
        received = bytearray()
        while len(received) < len(sent) - 8 - len(transport.written):
            received += peer.recv(1 << 20)
        connection.transport.write(b"behind what waits")
        assert sent[:8] + received + transport.written == sent + b"behind what waits"


async def test_a_closed_or_broken_socket_is_left_to_the_transport() -> None:
    with connection_over_sockets() as (connection, transport, peer):
        peer.close()
        connection.transport.write(b"to nobody")
        assert transport.written == b"to nobody"
    with connection_over_sockets() as (connection, transport, peer):
        connection.transport.close()
        connection.transport.write(b"too late")
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(100)


@contextmanager
def connection_over_sockets() -> Iterator[tuple[Connection, Transport, socket.socket]]:
    """A connection, its transport, which keeps all that it is given, and the client's end."""
    own, peer = socket.socketpair()
    own.setblocking(False)
    peer.settimeout(30)
    with own, peer:
        transport = Transport({"socket": own})
        connection = connection_in_process(transport)[0]
        yield connection, transport, peer


class Transport(asyncio.Transport):
    """The side of a connection that a test looks at."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self.writes: list[bytes] = []
        self.closed = False

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Timers:
    """In the place of a loop: the test runs its timers."""

    def __init__(self) -> None:
        self.create_task = asyncio.get_running_loop().create_task
        self.call_soon = asyncio.get_running_loop().call_soon
        self.now_s = 0.0
        self.set: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        self.set.append(Timer(self.now_s + delay_s, call))
        return self.set[-1]

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in [timer for timer in self.set if timer.at_s <= self.now_s]:
            self.set.remove(timer)
            if not timer.cancelled:
                timer.call()


@dataclass
class Timer:
    at_s: float
    call: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


def connection_in_process(transport: Transport | None = None) -> tuple[Connection, Transport, Timers]:
    loop = Timers()
    config = uvicorn.Config(create_app(ScriptedService(saying("Hi"))), lifespan="off", timeout_keep_alive=IDLE_S)
    connection = Connection(config, ServerState(), {}, _loop=loop)  # type: ignore[arg-type]  # all that it needs
    transport = transport or Transport()
    connection.connection_made(transport)
    return connection, transport, loop


# ---- who may be served


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
async def test_an_open_server_is_never_put_where_others_can_reach_it(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.api_keys: other machines can reach .* an API key is needed"):
        await serve(create_app(ScriptedService(saying("Hi"))), host=host, port=0)
