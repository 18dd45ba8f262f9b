"""The page on this machine at which a login in the browser ends.

    browser ─▶ authorization server ─▶ http://127.0.0.1:PORT/callback?code=...&state=... ─▶ `Redirect`

It listens on the loopback address only, answers one redirect, and closes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import ToolError

HOST, PATH = "127.0.0.1", "/callback"
REQUEST_BYTES, REQUEST_S = 16_384, 10.0
"""Of a browser's request, and the time for it."""
HEADERS = (
    "Content-Type: text/html; charset=utf-8",
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'",
    "Cache-Control: no-store",
    "Referrer-Policy: no-referrer",
    "Connection: close",
)
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Shepherd</title>
<body style="font:1rem sans-serif;margin:3rem"><p>{text}</p></body></html>
"""


@dataclass(frozen=True, slots=True, repr=False)
class Redirect:
    code: str
    state: str
    issuer: str | None = None


class RedirectPage:
    """Waits for one redirect; made by `open_page`."""

    def __init__(self, port: int) -> None:
        self.address = f"http://{HOST}:{port}{PATH}"
        self.state = ""
        """The one that the redirect must have; set before the browser is opened."""
        self.answer: asyncio.Future[Redirect] = asyncio.get_running_loop().create_future()

    async def redirect(self, timeout_s: float) -> Redirect:
        """Raises: `ToolError`: refused, not ours, or too late."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.answer
        except TimeoutError as error:
            raise ToolError(f"the browser did not come back within {timeout_s:g} s; log in again") from error

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
            status, text = self._take(request.partition(b"\r\n")[0].decode("latin-1"))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            status, text = HTTPStatus.BAD_REQUEST, "This is not a request of a browser."
        body = PAGE.format(text=text).encode()
        head = (f"HTTP/1.1 {status.value} {status.phrase}", *HEADERS, f"Content-Length: {len(body)}", "", "")
        writer.write("\r\n".join(head).encode() + body)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    def _take(self, line: str) -> tuple[HTTPStatus, str]:
        """The answer to a request line; the first redirect counts."""
        method, target, _version = line.split(" ", 2)
        parts = urlsplit(target)
        if method != "GET" or parts.path != PATH:
            return HTTPStatus.NOT_FOUND, "There is nothing here."
        if self.answer.done() or not self.state:
            return HTTPStatus.GONE, "This login has ended."
        found = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if not secrets.compare_digest(found.get("state", "").encode(), self.state.encode()):
            self.answer.set_exception(ToolError("the browser came back from another login (wrong state); log in again"))
            return HTTPStatus.BAD_REQUEST, "This is not the login that Shepherd has begun. Begin it again."
        if "code" not in found:
            why = format_error(found.get("error", "no code"), found.get("error_description", ""))
            self.answer.set_exception(ToolError(f"the authorization server refused the login: {why}"))
            return HTTPStatus.BAD_REQUEST, "The login was refused. The terminal says more."
        self.answer.set_result(Redirect(found["code"], found["state"], found.get("iss")))
        return HTTPStatus.OK, "Shepherd has the answer. You can close this page; the terminal shows the result."


@asynccontextmanager
async def open_page(port: int = 0) -> AsyncIterator[RedirectPage]:
    """A page that listens on this port until the block ends; 0 = a free one. Raises: `OSError` where it is taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await page.serve(reader, writer)

    server = await asyncio.start_server(serve, HOST, port, limit=REQUEST_BYTES, start_serving=False)
    page = RedirectPage(server.sockets[0].getsockname()[1])
    await server.start_serving()
    try:
        yield page
    finally:
        server.close()
        if page.answer.done() and not page.answer.cancelled():
            page.answer.exception()  # it may come when it is not waited for any more


def format_error(error: str, description: str) -> str:
    """A server's error for a terminal: one line, without control characters."""
    text = f"{error} ({description})" if description else error
    return "".join(sign if sign.isprintable() else " " for sign in text)[:300]
