"""Connections to a provider: answers of every form and cut, used again only where that is sound, bounded, one write."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import httpx2
import pytest

from shepherd.backends.cloud.connection import MAX_FRAME_BYTES, Connections

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Sends the same bytes to each request."""

    content: bytes
    closes: bool = False
    pieces: int = 0
    """The length of a write; 0 = all in one."""
    n_connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            self.requests.append(head + await reader.readexactly(length))
            size = self.pieces or len(self.content) or 1
            for at in range(0, len(self.content), size):
                writer.write(self.content[at : at + size])
                await writer.drain()
                await asyncio.sleep(0)
            if self.closes:
                break


@contextlib.asynccontextmanager
async def connected(peer: Peer, host: str = "127.0.0.1") -> AsyncIterator[tuple[Connections, httpx2.URL]]:
    tasks: list[asyncio.Task[None]] = []

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await peer(reader, writer)
        writer.close()

    listener = await asyncio.start_server(answering, "127.0.0.1", 0)
    url = httpx2.URL(f"http://{host}:{listener.sockets[0].getsockname()[1]}/v1/chat?a=b%20c")
    connections = Connections(None, 5.0)
    try:
        yield connections, url
    finally:
        await connections.aclose()
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def answer(connections: Connections, url: httpx2.URL, idle_s: float = 5.0) -> tuple[httpx2.Response, bytes]:
    response = await connections.send("POST", url, {"a": "b"}, b"{}", idle_s)
    try:
        return response, b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
SOUND = {
    "chunks": (CHUNKED + b"\r\n2\r\nhi\r\n3\r\n!!!\r\n0\r\n\r\n", b"hi!!!", True),
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "extensions and trailers": (CHUNKED + b"\r\n2;a=b\r\nhi\r\n0\r\nx: y\r\n\r\n", b"hi", True),
    "LF without CR": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi", False),
    "both lengths": (CHUNKED + b"content-length: 9\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi", False),
    "notices before it": (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 2
                          + b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi", b"hi", True),
    "it asks to close": (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", b"hi", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", b"hi", False),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
async def test_answers_cut_anywhere_and_the_connection_after_them(name: str) -> None:
    content, body, is_kept = SOUND[name]
    for size in (0, 1, 3, 7):
        server = Server(content, pieces=size)
        async with connected(server) as (connections, url):
            for _ in range(2):
                response, found = await answer(connections, url)
                assert (response.status_code // 100, found) == (2, body), size
                assert "link" not in response.headers
            if name not in ("LF without CR", "both lengths"):  # either is sound
                assert server.n_connections == (1 if is_kept else 2), size


@pytest.mark.parametrize("behind", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nXX"])
async def test_what_stands_behind_an_answer_is_never_the_answer_to_the_next_request(behind: bytes) -> None:
    n = 0

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n
        while await reader.readuntil(b"{}"):
            n += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh%d" % n + (behind if n == 1 else b""))

    async with connected(peer) as (connections, url):
        assert (await answer(connections, url))[1] == b"h1"
        with pytest.raises(httpx2.RemoteProtocolError):
            await answer(connections, url)
        assert [(await answer(connections, url))[1] for _ in range(2)] == [b"h3", b"h4"]


async def test_a_body_that_ends_with_its_connection() -> None:
    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nx: y\r\n\r\n"):
        async with connected(Server(head + b"all of it", closes=True)) as (connections, url):
            assert (await answer(connections, url))[1] == b"all of it"


BROKEN = {
    "no word": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    "half of the chunks": CHUNKED + b"\r\n2\r\nhi\r\n",
    "no HTTP": b"220 smtp.example ESMTP\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nxx",
    "a length that is none": b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nx: " + b"y" * (2 * MAX_FRAME_BYTES),
    "trailers without end": CHUNKED + b"\r\n2\r\nhi\r\n0\r\nx: " + b"y" * (2 * MAX_FRAME_BYTES),
    "extensions without end": CHUNKED + b"\r\n2;" + b"y" * (2 * MAX_FRAME_BYTES),
    "chunks of nothing but frames": CHUNKED + b"\r\n" + b"1;yyyyyyyyyy\r\nx\r\n" * (MAX_FRAME_BYTES // 4),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_answers_are_errors_of_the_library(name: str) -> None:
    async with connected(Server(BROKEN[name], closes=True)) as (connections, url):
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await answer(connections, url)


async def test_what_came_before_a_break_comes_before_the_error() -> None:
    async with connected(Server(CHUNKED + b"\r\n2\r\nhi\r\n", closes=True)) as (connections, url):
        response = await connections.send("POST", url, {}, b"", 5.0)
        pieces: list[bytes] = []
        with pytest.raises(httpx2.TransportError):
            pieces.extend([piece async for piece in response.aiter_raw()] or pieces)
        await response.aclose()
    async with connected(Server(CHUNKED + b"\r\n2\r\nhi\r\n", closes=True)) as (connections, url):
        response = await connections.send("POST", url, {}, b"", 5.0)
        stream = response.aiter_raw()
        assert await anext(stream) == b"hi"
        with pytest.raises(httpx2.TransportError):
            await anext(stream)
        await response.aclose()


async def test_a_request_has_its_length_and_an_escaped_path() -> None:
    server = Server(SOUND["a length"][0])
    async with connected(server) as (connections, url):
        await answer(connections, url)
        response = await connections.send("GET", url, {"host": "other", "x": " é "}, b"", 5.0)
        await response.aclose()
    line, *rest = server.requests[0].split(b"\r\n")
    assert line == b"POST /v1/chat?a=b%20c HTTP/1.1"
    assert rest == [f"host: 127.0.0.1:{url.port}".encode(), b"a: b", b"content-length: 2", b"", b"{}"]
    assert server.requests[1].split(b"\r\n")[1:] == [b"host: other", b"x: \xe9", b"", b""]


async def test_a_connection_that_the_provider_has_closed_is_not_used() -> None:
    writers: list[asyncio.StreamWriter] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await Server(SOUND["a length"][0])(reader, writer)

    async with connected(peer) as (connections, url):
        for unasked in (b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"):
            await answer(connections, url)
            n = len(writers)
            if unasked:
                writers[-1].write(unasked)
                await writers[-1].drain()
            else:
                writers[-1].close()
                await writers[-1].wait_closed()
            await answer(connections, url)
            assert len(writers) == n + 1


@pytest.mark.parametrize("said", [b"", b"H", b"HTTP/1.1 200 OK\r\n"])
async def test_a_request_is_sent_again_where_a_kept_connection_closes_without_a_byte(said: bytes) -> None:
    """llama-server closes a connection that it has kept while the next request is on its way."""
    requests: list[int] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for n in range(2):
            await reader.readuntil(b"{}")
            requests.append(n)
            writer.write(said if n else SOUND["a length"][0])

    async with connected(peer) as (connections, url):
        await answer(connections, url)
        if said:  # an answer has begun: the request may have done its work
            with pytest.raises(httpx2.RemoteProtocolError):
                await answer(connections, url)
            assert requests == [0, 1]
        else:
            assert (await answer(connections, url))[1] == b"hello"
            assert requests == [0, 1, 0]


async def test_a_new_connection_that_closes_without_a_byte_is_an_error() -> None:
    requests: list[bytes] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"{}"))

    async with connected(peer) as (connections, url):
        with pytest.raises(httpx2.RemoteProtocolError):
            await answer(connections, url)
    assert len(requests) == 1


async def test_an_answer_that_nobody_reads_waits_at_the_provider() -> None:
    sent = 0

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 64000000\r\n\r\n")
        for _ in range(640):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with connected(peer) as (connections, url):
        response = await connections.send("POST", url, {}, b"{}", 5.0)
        n_still = 0
        while n_still < 1_000:  # turns of the loop in which nothing goes out
            before = sent
            await asyncio.sleep(0)
            n_still = n_still + 1 if sent == before else 0
        assert sent < 32_000_000  # what the kernel's buffers hold
        sizes = [len(piece) async for piece in response.aiter_raw()]
        await response.aclose()
    assert sum(sizes) == 64_000_000
    assert max(sizes) <= 2**20


async def test_a_host_answers_at_its_second_address() -> None:
    async with connected(Server(SOUND["a length"][0]), host="localhost") as (connections, url):  # perhaps ::1 first
        assert (await answer(connections, url))[1] == b"hello"
    nowhere = Connections(None, 5.0)
    with pytest.raises(httpx2.ConnectError):
        await nowhere.send("GET", httpx2.URL("http://host.invalid/"), {}, b"", 5.0)


def test_the_next_event_loop_opens_its_own() -> None:
    asked: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.client_address[1])
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = httpx2.URL(f"http://127.0.0.1:{server.server_port}/")
        connections = Connections(None, 5.0)

        async def twice() -> None:
            for _ in range(2):
                response = await connections.send("GET", url, {}, b"", 5.0)
                await response.aread()
                await response.aclose()

        with warnings.catch_warnings(action="ignore"):  # each loop leaves one unclosed
            for _ in range(2):
                asyncio.run(twice())
            asyncio.run(connections.aclose())
            gc.collect()
        server.shutdown()
        thread.join()
    assert len(asked) == 4
    assert (asked[0], asked[2]) == (asked[1], asked[3])
    assert asked[0] != asked[2]
