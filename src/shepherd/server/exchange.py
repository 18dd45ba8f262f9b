"""One request that generates, from its first byte to its last, in any protocol.

    body ─ codec ─▶ Request ─ service ─▶ events ─ encoder ─▶ outbox ─▶ client
                                 ▲                                      │
                                 └──────────── cancel ◀── it goes away ─┘

The status line waits for the first event, so that a prompt that does not fit is a real 400 and a full queue a real 429.
Three things then run at the same time: the pump takes events as fast as they come, the sender writes what the client
can read, the watcher waits for the client to go away.

Not here: what the bytes mean (`wire`), who answers (the service).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.core import (
    Assembler,
    EngineDown,
    Event,
    InvalidRequest,
    RateLimited,
    Reply,
    Request,
    ShepherdError,
)
from shepherd.server.body import BodyTooLarge, ClientGone, RawHeaders, read_body, send_json
from shepherd.server.metrics import Metrics
from shepherd.server.outbox import ClientTooSlow, Outbox
from shepherd.server.record import Record
from shepherd.server.surfaces import Surface
from shepherd.wire.base import Decoded, Encoder, decode_json
from shepherd.wire.sse import PING

logger = logging.getLogger("shepherd.server")

REQUEST_ID = "shepherd.request_id"
"""Key in the ASGI scope."""

USER = b"x-shepherd-user"
"""The header that says whose memory is meant; it stands above what the body says."""

BURST_BYTES = 64 * 2**10
"""What may be written without giving the sender a turn: as much as uvicorn takes before it waits for the client."""

LOADING_RETRY_S = 5
"""What a client is told to wait for while the engine is loading or being restarted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost."""

    max_body_bytes: int = 64 * 2**20
    """A dozen large images; whole conversations are a few MB."""
    max_unread_bytes: int = 8 * 2**20
    """About 30,000 tokens that a streaming client has not read."""
    stall_s: float = 60.0
    """How long a client may neither read nor send what is expected of it."""
    ping_s: float = 10.0
    """Silence before a comment keeps the connection alive; proxies commonly give up after 30 s or more."""
    inline_bytes: int = 256 * 2**10
    """Bodies above this size are decoded in a thread."""


class Answers(Protocol):
    """What an exchange needs of the service."""

    def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]: ...


class Live:
    """The answers in the making, so that stopping the server can end them in order."""

    def __init__(self) -> None:
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Cancel every answer; each says so to its client. New requests are refused."""
        self.stopping = True
        for task in self.tasks:
            task.cancel()


class Exchange(Response):
    """Answers one request. An ASGI application for one call."""

    background = None

    def __init__(self, surface: Surface, service: Answers, limits: Limits, live: Live, metrics: Metrics) -> None:
        self._surface = surface
        self._codec = surface.codec
        self._service = service
        self._limits = limits
        self._live = live
        self._metrics = metrics
        self._encoder: Encoder | None = None
        """There from the first event on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = Record(scope.get(REQUEST_ID, "-"), self._surface.name)
        try:
            decoded = await self._read(scope, receive, send, record)
            if decoded is not None:
                await self._run(decoded, receive, send, record)
        except ClientGone:
            record.reason = "client gone"
        finally:
            record.write()
            self._metrics.count(record)

    async def _read(self, scope: Scope, receive: Receive, send: Send, record: Record) -> Decoded[Any] | None:
        """What the client asks; `None` when that has been refused."""
        try:
            body = await read_body(scope, receive, self._limits.max_body_bytes, self._limits.stall_s)
            if len(body) <= self._limits.inline_bytes:
                decoded = self._decode(body)
            else:
                decoded = await asyncio.to_thread(self._decode, body)
            user = named_user(scope)
            return replace(decoded, request=replace(decoded.request, user=user)) if user else decoded
        except BodyTooLarge as error:
            await self._refuse(error, send, record, unread=receive)
        except ClientGone:
            raise
        except Exception as error:  # the wall: every failure is answered in the protocol's own shape
            await self._refuse(error, send, record)
        return None

    def _decode(self, body: bytes) -> Decoded[Any]:
        return self._codec.decode_request(decode_json(body))

    async def _run(self, decoded: Decoded[Any], receive: Receive, send: Send, record: Record) -> None:
        record.model = decoded.request.model
        if self._live.stopping:
            await self._refuse(_Stopping(), send, record)
            return
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(self._answer(decoded, send, record))
            watching = tasks.create_task(_watch(receive, answering, record))
            self._live.tasks.add(answering)
            answering.add_done_callback(self._live.tasks.discard)
            answering.add_done_callback(lambda _: watching.cancel())
        if record.client_gone:
            raise ClientGone
        if answering.cancelled():
            with contextlib.suppress(ClientTooSlow):
                await self._fail(_Stopping(), send, record, patience_s=1.0)

    async def _answer(self, decoded: Decoded[Any], send: Send, record: Record) -> None:
        try:
            async with aclosing(self._service.stream(decoded.request, endpoint=self._surface.path)) as events:
                first = await anext(events)
                record.see(first)
                encoder = self._encoder = self._codec.encoder(
                    decoded.options,
                    id=self._surface.id_prefix + secrets.token_hex(12),
                    created=int(time.time()),
                    model=decoded.request.model,
                )
                if decoded.stream:
                    await self._send_stream(first, events, encoder, send, record)
                else:
                    await self._send_reply(await _fold(first, events, record), encoder, send, record)
        except ClientTooSlow as error:
            logger.debug("%s: %s", record.id, error)
            record.reason = "client too slow"
        except Exception as error:  # the wall
            with contextlib.suppress(ClientTooSlow):
                await self._fail(error, send, record, patience_s=self._limits.stall_s)

    async def _send_reply(self, reply: Reply, encoder: Encoder, send: Send, record: Record) -> None:
        body = encoder.encode_reply(reply)
        record.status = 200
        record.complete = True
        await _within(self._limits.stall_s, send_json(send, 200, body, _facts(record)))

    async def _send_stream(
        self, first: Event, events: AsyncIterator[Event], encoder: Encoder, send: Send, record: Record
    ) -> None:
        outbox = Outbox(self._limits.max_unread_bytes)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(first, events, encoder, outbox, record))
                # One turn for the pump: the head tells what the events that are there already say, evictions above all.
                await asyncio.sleep(0)
                headers = [*_STREAM_HEADERS, *_facts(record)]
                record.status = 200
                head = {"type": "http.response.start", "status": 200, "headers": headers}
                await _within(self._limits.stall_s, send(head))
                while (fragment := await outbox.take(self._limits.ping_s)) is not None:
                    await self._send_fragment(fragment or PING, send)
        except* ClientTooSlow as group:
            raise ClientTooSlow(str(group.exceptions[0])) from None
        record.complete = True
        await self._send_fragment(b"", send, more=False)

    async def _send_fragment(self, fragment: bytes, send: Send, *, more: bool = True) -> None:
        message = {"type": "http.response.body", "body": fragment, "more_body": more}
        await _within(self._limits.stall_s, send(message))

    async def _fail(self, error: Exception, send: Send, record: Record, *, patience_s: float) -> None:
        """Tell the client: by the status if nothing has been sent, by the stream's own means otherwise."""
        if record.status == 0:
            await _within(patience_s, self._refuse(error, send, record))
        elif self._encoder is not None:
            _note(error, record)
            fragment = self._encoder.encode_failure(error)
            message = {"type": "http.response.body", "body": fragment, "more_body": False}
            await _within(patience_s, send(message))

    async def _refuse(self, error: Exception, send: Send, record: Record, *, unread: Receive | None = None) -> None:
        _note(error, record)
        record.status, body = self._codec.encode_error(error)
        await send_json(send, record.status, body, retry_headers(error), unread=unread)


async def _watch(receive: Receive, answering: asyncio.Task[None], record: Record) -> None:
    """Wait until the client goes away, then cancel its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
    # A server also says so once the whole answer is out; the end of the work behind it must not be cancelled then.
    if not record.complete:
        record.client_gone = answering.cancel()


async def _pump(first: Event, events: AsyncIterator[Event], encoder: Encoder, outbox: Outbox, record: Record) -> None:
    """Encode every event as soon as it comes. Raises: `ClientTooSlow`; other failures go to the client."""
    try:
        outbox.put(encoder.encode(first))
        async for event in events:
            record.see(event)
            if fragment := encoder.encode(event):
                outbox.put(fragment)
                if outbox.n_bytes > BURST_BYTES:
                    await asyncio.sleep(0)  # events that are ready all at once must not keep the sender from sending
        if not record.finished:
            raise _CutShort
    except ClientTooSlow:
        raise
    except Exception as error:  # the wall
        _note(error, record)
        outbox.put(encoder.encode_failure(error))
    finally:
        outbox.close()


async def _fold(first: Event, events: AsyncIterator[Event], record: Record) -> Reply:
    assembler = Assembler()
    assembler.feed(first)
    async for event in events:
        record.see(event)
        assembler.feed(event)
    return assembler.reply()


async def _within(patience_s: float, sending: Awaitable[None]) -> None:
    """Wait for `sending` to end. Raises: `ClientTooSlow` when it takes longer than `patience_s`."""
    try:
        async with asyncio.timeout(patience_s):
            await sending
    except TimeoutError as error:
        raise ClientTooSlow(f"nothing could be sent for {patience_s:g} s") from error


class _CutShort(AssertionError):
    """A stream ended without `Finished`: a bug of ours."""


class _Stopping(EngineDown):
    """The server is being stopped: not a failure."""

    def __init__(self) -> None:
        super().__init__("the server is stopping; send the request again when it is back")


def _note(error: Exception, record: Record) -> None:
    """Write to the log what the client is not told. What it is told may quote its own words, so it is not repeated."""
    if isinstance(error, ShepherdError):
        field = f" field={error.field}" if isinstance(error, InvalidRequest) and error.field else ""
        record.reason = "server stopping" if isinstance(error, _Stopping) else f"{error.code}{field}"
        if error.status >= 500 and not isinstance(error, _Stopping):
            logger.warning("%s: %s", record.id, error)
    else:
        record.reason = "server_error"
        logger.error("%s: unexpected failure", record.id, exc_info=error)


def retry_headers(error: Exception) -> RawHeaders:
    """When to come back, for the errors that pass."""
    match error:
        case RateLimited(retry_after_s=float() | int() as seconds) if math.isfinite(seconds):
            return [(b"retry-after", str(max(0, math.ceil(seconds))).encode())]
        case EngineDown():
            return [(b"retry-after", str(LOADING_RETRY_S).encode())]
        case _:
            return []


def named_user(scope: Scope) -> str | None:
    """Whose memory the caller means, if the header says so."""
    return dict(scope["headers"]).get(USER, b"").decode("utf-8", "replace").strip() or None


def _facts(record: Record) -> RawHeaders:
    """What is known of the answer before its first byte."""
    backend = (b"x-shepherd-backend", quote(record.backend, safe=":/@+ ").encode())
    return [backend, (b"x-shepherd-evicted", str(record.evicted).encode())] if record.evicted else [backend]


_STREAM_HEADERS: RawHeaders = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx collects events otherwise (H15)
]
