"""A reverse proxy on loopback that serves another server under a path, as nginx does with `location /PREFIX/`.

    async with prefixed("/ai", "http://127.0.0.1:8000") as proxy:
        proxy.url                  # http://127.0.0.1:PORT/ai
        proxy.target = another     # a server that has restarted elsewhere; None: it is away, connections are closed

What is outside the prefix gets 404. One request a connection; an answer goes on as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Prefix:
    def __init__(self, prefix: str, target: str | None) -> None:
        self.target = target
        self.url = ""
        self._prefix = prefix.encode() + b"/"
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, rest = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
        if not path.startswith(self._prefix):
            writer.write(NOT_FOUND)
            return
        if self.target is None:
            return
        behind = urlsplit(self.target)
        answers, requests = await asyncio.open_connection(behind.hostname, behind.port)
        first, *fields = rest.strip().split(b"\r\n")
        kept = [each for each in fields if not each.lower().startswith(b"connection:")]
        line = b" ".join((method, path[len(self._prefix) - 1 :], first))
        requests.write(b"\r\n".join((line, *kept, b"connection: close", b"", b"")))
        ways = [asyncio.create_task(_copy(reader, requests)), asyncio.create_task(_copy(answers, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            requests.close()

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def prefixed(prefix: str, target: str | None = None) -> AsyncIterator[Prefix]:
    proxy = Prefix(prefix, target)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{prefix}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.aclose()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await source.read(2**16):
            sink.write(part)
            await sink.drain()
