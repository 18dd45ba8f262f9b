"""Reads the body of a request up to a limit, and sends an answer as one JSON body. The codecs interpret the bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.server.http.content_encoding import decoder_for

RawHeaders = list[tuple[bytes, bytes]]
UNBUFFERED: RawHeaders = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""Of a stream: nginx collects it otherwise."""
PRIVATE: RawHeaders = [(b"cache-control", b"no-store")]
"""Of words of conversations: a browser must not keep what the memory can forget."""

SLOWEST_BYTES_PER_S = 1024
"""The least average speed of a body, after a first period: a byte a minute must not hold a request open."""

LINGER_S = 2.0
"""How long the server reads on from a client whose body it has refused. Without this the kernel resets the connection
and drops the answer before the client has read it."""


class ClientGone(Exception):
    """The client closed the connection."""


class BodyTooLarge(InvalidRequest):
    """The body exceeds the limit; the rest of it has not been read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes, the limit of this server", status=413)


async def read_body(scope: Scope, receive: Receive, limit: int, stall_s: float) -> bytes:
    """The whole body, decompressed; `limit` holds before and after that.

    Raises: `BodyTooLarge` as soon as it is known; `UnknownEncoding`; `InvalidRequest` for bytes that its encoding does
    not have, when nothing comes for `stall_s`, or when it comes too slowly; `ClientGone`.
    """
    headers = dict(scope["headers"])
    encodings = b", ".join(value for name, value in scope["headers"] if name == b"content-encoding")
    decoder = decoder_for(encodings.decode("latin-1"))
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(limit)
    body = bytearray()
    n_received = 0
    more = True
    begun_s = time.monotonic()
    while more:
        left_s = begun_s + stall_s + n_received / SLOWEST_BYTES_PER_S - time.monotonic()
        try:
            async with asyncio.timeout(min(stall_s, left_s)):
                message = await receive()
        except TimeoutError as error:
            how = f"stopped coming for {stall_s:g} s" if left_s >= stall_s else "comes too slowly"
            raise InvalidRequest(f"the body {how}; send it again", status=408) from error
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        n_received += len(piece)
        for step in (piece,) if decoder is None else decoder.feed(piece):
            body += step
            if len(body) > limit or n_received > limit:
                raise BodyTooLarge(limit)
            if decoder is not None:
                await asyncio.sleep(0)  # the others' turn: a small piece may stand for all that the limit allows
        more = message.get("more_body", False)
    if decoder is not None:
        decoder.end()
    return bytes(body)


def json_bytes(body: Any) -> bytes:
    # Half a character in a model's output or a client's model name must not break the answer.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def with_headers(send: Send, headers: RawHeaders) -> Callable[[Message], Awaitable[None]]:
    """`send`, which also adds `headers` to the head of the answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_with_headers


async def send_json(
    send: Send, status: int, content: bytes, headers: RawHeaders | tuple[()] = (), *, unread: Receive | None = None
) -> None:
    """Send one answer of JSON. With `unread`, read the rest of the body for a while, then close the connection."""
    raw: RawHeaders = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        *headers,
    ]
    if unread is not None:
        raw.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": unread is not None})
    if unread is not None:
        with contextlib.suppress(TimeoutError, ShepherdError):  # the second: other requests need the room
            async with asyncio.timeout(LINGER_S):
                while (await unread()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})
