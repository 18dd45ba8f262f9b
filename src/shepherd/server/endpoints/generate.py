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
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.core import (
    Assembler,
    ContextFull,
    Event,
    Evicted,
    InvalidRequest,
    ShepherdError,
)
from shepherd.server.http.body import BodyTooLarge, ClientGone, RawHeaders, json_bytes, read_body, send_json
from shepherd.server.http.caller import as_from
from shepherd.server.http.choices import together
from shepherd.server.http.errors import Stopping, retry_headers, with_id
from shepherd.server.http.limits import admit_choices
from shepherd.server.http.outbox import ClientTooSlow, Outbox
from shepherd.server.observe.metrics import Metrics
from shepherd.server.observe.observer import Observe, Observers
from shepherd.server.observe.record import Record
from shepherd.server.service import Service
from shepherd.wire.base import Codec, Decoded, Encoder, Json, decode_json
from shepherd.wire.sse import MEDIA_TYPE as EVENT_STREAM
from shepherd.wire.sse import PING, encode_comment

logger = logging.getLogger("shepherd.server")

BURST_BYTES = 64 * 2**10
"""What may be written without giving the sender a turn: as much as uvicorn takes before it waits for the client."""


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
    inline_bytes: int = 64 * 2**10
    """Bodies above this size are decoded in a thread: it takes 20 ms where they consist of small values."""


Told = AsyncGenerator[tuple[int, Event], None]
"""Events with the index of the choice that each belongs to."""


@dataclass(frozen=True, slots=True)
class Surface:
    """One endpoint that answers with a generated message."""

    name: str
    """In the log."""
    paths: tuple[str, ...]
    """The first is the canonical one, which routes can name; the others are what clients send, too."""
    codec: Codec[Any]
    id_prefix: str
    """Of the ids of its answers."""
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of the request, for `/docs` only: the codec decides what is accepted."""
    keeps: bool = False
    """Its answers are remembered, and bodies may refer to them."""

    @property
    def path(self) -> str:
        return self.paths[0]


class Keeps(Protocol):
    """What surfaces need that remember their answers (`Surface.keeps`)."""

    def resolve(self, body: Json) -> Json:
        """The body with what it only refers to. Raises: `InvalidRequest`."""
        ...

    def keep(self, encoder: Any) -> None:
        """Remember the answer that `encoder`, of such a surface, has finished."""
        ...


class Live:
    """The answers in the making, so that stopping the server can end them in order."""

    def __init__(self) -> None:
        self.stopping = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.held: set[asyncio.Task[None]] = set()
        """What stays open for as long as the server runs, and whose end nobody waits for."""

    def refuse(self) -> None:
        """Take no more requests; those that are being answered go on."""
        self.stopping = True

    def stop(self) -> None:
        """Cancel every answer as well; each says so to its client."""
        self.refuse()
        for task in (*self.tasks, *self.held):
            task.cancel()


@dataclass(frozen=True, slots=True)
class Shared:
    """What all exchanges of one application have in common."""

    service: Service
    limits: Limits
    live: Live
    metrics: Metrics
    observe: Sequence[Observe] = ()
    kept: Keeps | None = None


class Exchange(Response):
    """Answers one request. An ASGI application for one call."""

    background = None

    def __init__(self, surface: Surface, shared: Shared) -> None:
        self._surface = surface
        self._codec = surface.codec
        self._shared = shared
        self._service = shared.service
        self._limits = shared.limits
        self._live = shared.live
        self._kept = shared.kept if surface.keeps else None
        self._encoder: Encoder | None = None
        """There from the first event on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = Record.of(scope, self._surface.name)
        send = record.counting(send)
        self._observers = Observers(self._shared.observe, record)
        try:
            decoded = await self._read(scope, receive, send, record)
            if decoded is not None:
                await self._run(decoded, receive, send, record)
        except ClientGone:
            record.reason = "client gone"
        finally:
            record.write()
            self._shared.metrics.count(record)
            self._observers.close(record)

    async def _read(self, scope: Scope, receive: Receive, send: Send, record: Record) -> Decoded[Any] | None:
        """What the client asks; `None` when that has been refused."""
        try:
            body = await read_body(scope, receive, self._limits.max_body_bytes, self._limits.stall_s)
            record.n_received = len(body)
            self._observers.receive(scope, body)
            if len(body) <= self._limits.inline_bytes:
                decoded = self._decode(body)
            else:
                decoded = await asyncio.to_thread(self._decode, body)
            admit_choices(scope, len(decoded.requests))
            decoded = as_from(decoded, scope, trace=self._observers.want_trace)
        except BodyTooLarge as error:
            await self._refuse(error, send, record, unread=receive)
        except ClientGone:
            raise
        except Exception as error:  # the wall: every failure is answered in the protocol's own shape
            await self._refuse(error, send, record)
        else:
            self._observers.decode(decoded)
            return decoded
        return None

    def _decode(self, body: bytes) -> Decoded[Any]:
        asked = decode_json(body)
        if self._kept is not None:
            asked = self._kept.resolve(asked)
        return self._codec.decode_request(asked)

    async def _run(self, decoded: Decoded[Any], receive: Receive, send: Send, record: Record) -> None:
        record.take(decoded)
        if self._live.stopping:
            await self._refuse(Stopping(), send, record)
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
                await self._fail(Stopping(), send, record, patience_s=1.0)

    async def _answer(self, decoded: Decoded[Any], send: Send, record: Record) -> None:
        streams = [self._service.stream(request, endpoint=self._surface.path) for request in decoded.requests]
        try:
            async with aclosing(together(streams)) as events:
                if decoded.stream:
                    await self._send_stream(decoded, events, send, record)
                else:
                    await self._send_replies(decoded, events, send, record)
        except ClientTooSlow as error:
            logger.debug("%s: %s", record.id, error)
            record.reason = "client too slow"
        except Exception as error:  # the wall
            with contextlib.suppress(ClientTooSlow):
                await self._fail(error, send, record, patience_s=self._limits.stall_s)

    def _new_encoder(self, decoded: Decoded[Any]) -> Encoder:
        return self._codec.encoder(
            decoded.options,
            id=self._surface.id_prefix + secrets.token_hex(12),
            created=int(time.time()),
            model=decoded.request.model,
        )

    def _see(self, event: Event, choice: int, record: Record) -> None:
        record.see(event, choice)
        self._observers.see(event, choice)

    async def _send_replies(self, decoded: Decoded[Any], events: Told, send: Send, record: Record) -> None:
        assemblers = [Assembler() for _ in decoded.requests]
        encoder = self._new_encoder(decoded)
        hear = getattr(encoder, "hear", None)  # of the protocols that tell how long things took
        async for choice, event in events:
            self._see(event, choice, record)
            assemblers[choice].feed(event)
            if hear is not None:
                hear(event)
        body = encoder.encode_replies([assembler.reply() for assembler in assemblers])
        if self._kept is not None:
            self._kept.keep(encoder)
        record.status = 200
        record.complete = True
        content = json_bytes(body)
        self._observers.send(content)
        await _within(self._limits.stall_s, send_json(send, 200, content, _facts(record)))

    async def _send_stream(self, decoded: Decoded[Any], events: Told, send: Send, record: Record) -> None:
        """Begin with the first event, or after a long silence without it: proxies and clients give up otherwise.

        An error before the first event has a status of its own, unless the wait was that long.
        """
        encoder = self._new_encoder(decoded)
        outbox = Outbox(self._limits.max_unread_bytes)
        first = asyncio.ensure_future(anext(events))
        try:
            await asyncio.wait((first,), timeout=self._limits.ping_s)
            if first.done():
                first.result()  # its error has a status of its own
            self._encoder = encoder
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(first, events, encoder, outbox, record))
                # Two turns for the pump: the head tells what the events that are there already say.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                headers = [(b"content-type", encoder.media_type.encode()), *_STREAM_HEADERS, *_facts(record)]
                record.status = 200
                head = {"type": "http.response.start", "status": 200, "headers": headers}
                await _within(self._limits.stall_s, send(head))
                while (fragment := await outbox.take(self._limits.ping_s)) is not None:
                    # Before its first event a protocol of SSE may allow nothing; every reader skips a comment.
                    comes_late = not record.started and encoder.media_type == EVENT_STREAM
                    ping = PING if comes_late else encoder.ping
                    await self._send_fragment(fragment or ping, send)
        except* ClientTooSlow as group:
            raise ClientTooSlow(str(group.exceptions[0])) from None
        finally:
            first.cancel()
            await asyncio.wait((first,))
        record.complete = True
        await self._send_fragment(b"", send, more=False)

    async def _pump(
        self, first: asyncio.Future[tuple[int, Event]], events: Told, encoder: Encoder, outbox: Outbox, record: Record
    ) -> None:
        """Encode every event as soon as it comes. Raises: `ClientTooSlow`; other failures go to the client."""
        try:
            choice, event = await first
            while True:
                self._see(event, choice, record)
                fragment = encoder.encode(event, choice)
                if isinstance(event, Evicted) and encoder.media_type == EVENT_STREAM:
                    # The head tells of it only if it came before; no protocol has a word for it.
                    fragment += encode_comment(f"evicted {event.messages} messages, {event.tokens} tokens")
                if fragment:
                    if self._kept is not None and record.finished:
                        self._kept.keep(encoder)  # before the client, who may go on with it at once, knows the end
                    self._observers.send(fragment)
                    outbox.put(fragment)
                    if outbox.n_bytes > BURST_BYTES:
                        await asyncio.sleep(0)  # events that are all there must not keep the sender from sending
                following = await anext(events, None)
                if following is None:
                    break
                choice, event = following
            if not record.finished:
                raise _CutShort
        except ClientTooSlow:
            raise
        except Exception as error:  # the wall
            note(error, record)
            fragment = encoder.encode_failure(error)
            self._observers.send(fragment)
            outbox.put(fragment)
        finally:
            outbox.close()

    async def _send_fragment(self, fragment: bytes, send: Send, *, more: bool = True) -> None:
        message = {"type": "http.response.body", "body": fragment, "more_body": more}
        await _within(self._limits.stall_s, send(message))

    async def _fail(self, error: Exception, send: Send, record: Record, *, patience_s: float) -> None:
        """Tell the client: by the status if nothing has been sent, by the stream's own means otherwise."""
        if record.status == 0:
            await _within(patience_s, self._refuse(error, send, record))
        elif self._encoder is not None:
            note(error, record)
            fragment = self._encoder.encode_failure(error)
            self._observers.send(fragment)
            message = {"type": "http.response.body", "body": fragment, "more_body": False}
            await _within(patience_s, send(message))

    async def _refuse(self, error: Exception, send: Send, record: Record, *, unread: Receive | None = None) -> None:
        note(error, record)
        record.status, body = self._codec.encode_error(error)
        content = json_bytes(with_id(body, record.id))
        self._observers.send(content)
        await send_json(send, record.status, content, retry_headers(error), unread=unread)


async def _watch(receive: Receive, answering: asyncio.Task[None], record: Record) -> None:
    """Wait until the client goes away, then cancel its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass
    # A server also says so once the whole answer is out; the end of the work behind it must not be cancelled then.
    if not record.complete:
        record.client_gone = answering.cancel()


async def _within(patience_s: float, sending: Awaitable[None]) -> None:
    """Wait for `sending` to end. Raises: `ClientTooSlow` when it takes longer than `patience_s`."""
    try:
        async with asyncio.timeout(patience_s):
            await sending
    except TimeoutError as error:
        raise ClientTooSlow(f"nothing could be sent for {patience_s:g} s") from error


class _CutShort(AssertionError):
    """A stream ended without `Finished`: a bug of ours."""


def note(error: Exception, record: Record) -> None:
    """Write to the log what the client is not told. What it is told may quote its own words, so it is not repeated."""
    if isinstance(error, ShepherdError):
        field = f" field={error.field}" if isinstance(error, InvalidRequest) and error.field else ""
        record.reason = "server stopping" if isinstance(error, Stopping) else f"{error.code}{field}"
        if isinstance(error, ContextFull):
            record.cache = error.cache  # no `Started` has told it
        if error.status >= 500 and not isinstance(error, Stopping):
            logger.warning("%s: %s", record.id, error)
    else:
        record.reason = "server_error"
        logger.error("%s: unexpected failure", record.id, exc_info=error)


def _facts(record: Record) -> RawHeaders:
    """What is known of the answer before its first byte."""
    backend = (b"x-shepherd-backend", quote(record.backend, safe=":/@+ ").encode())
    return [backend, (b"x-shepherd-evicted", str(record.evicted).encode())] if record.evicted else [backend]


_STREAM_HEADERS: RawHeaders = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx collects events otherwise (H15)
]
