"""One HTTP request, from its first byte to the last byte of its answer: the same path for every endpoint.

    scope ─ Record, observers ─▶ endpoint.respond(context) ─▶ answer
                                         │ an error, in the shape of the endpoint's protocol
                                         ▼
       before the last bytes go out, always: one log line, the metrics, the observers

There are three kinds of `respond`: `generate` streams an answer, `query` computes one, `memory_request` reads or
changes the memory. Not here: paths that only report something (`/v1/models`, `/health`), which have no record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast
from urllib.parse import quote

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.core import InvalidRequest, NotAllowed, ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.process.pools import in_pool
from shepherd.server.http.admission import note_answered
from shepherd.server.http.body import (
    UNBUFFERED,
    BodyTooLarge,
    ClientGone,
    RawHeaders,
    json_bytes,
    read_body,
    send_json,
)
from shepherd.server.http.caller import Deed, address_of, check_deed, check_origin, is_loopback
from shepherd.server.http.errors import Stopping, encode_error
from shepherd.server.http.send_buffer import ClientTooSlow
from shepherd.server.observe.metrics import Metrics
from shepherd.server.observe.observer import ObserverFactory, Observers
from shepherd.server.observe.record import Record, format_name
from shepherd.server.response_store import ResponseStore
from shepherd.server.service import Service
from shepherd.wire import sse
from shepherd.wire.base import public_error

logger = logging.getLogger("shepherd.server")

T = TypeVar("T")

STOPPING_S = 1.0
"""How long a client may take to read that the server is stopping."""
BURST_BYTES = 64 * 2**10
"""What may be written without giving the sender a turn: as much as uvicorn takes before it waits for the client."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may cost."""

    max_body_bytes: int = 64 * 2**20
    """A dozen large images; whole conversations are a few MB."""
    max_unread_bytes: int = 8 * 2**20
    """About 30,000 tokens that a streaming client has not read."""
    stall_s: float = 60.0
    """How long a client may stop reading the answer, or stop sending the body."""
    ping_s: float = 10.0
    """Silence before a comment keeps the connection alive; proxies commonly give up after 30 s or more."""
    inline_bytes: int = 64 * 2**10
    """Bodies above this size are decoded in a thread: it takes 20 ms where they consist of small values."""


class ActiveRequests:
    """The requests that are being answered, so that stopping the server can end them in order."""

    def __init__(self) -> None:
        self.stopping = False
        """New requests are refused; those that are being answered continue."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.background: set[asyncio.Task[Any]] = set()
        """Tasks that run as long as the server; a stop does not wait for them."""

    def cancel_all(self) -> None:
        """Refuse new requests and cancel every answer; each client gets an error."""
        self.stopping = True
        for task in (*self.tasks, *self.background):
            task.cancel()


@dataclass(frozen=True, slots=True)
class ServerState:
    """What all requests of one application share."""

    service: Service
    limits: Limits
    active: ActiveRequests
    metrics: Metrics
    responses: ResponseStore
    documented: Sequence[Endpoint | PlainEndpoint]
    """The rows that `/docs` and `/openapi.json` describe."""
    observe: Sequence[ObserverFactory] = ()
    is_open: bool = False
    """No API keys are configured."""
    verbose: bool = False
    """Whole answers of chat say how the prompt was read, also where the body does not ask for it."""
    page: bool = True
    """Browsers get the page."""
    origins: Collection[str] = ()
    """Of pages that the operator has named."""


def state_of(request: HTTPRequest) -> ServerState:
    state: ServerState = request.app.state.server
    return state


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row: a path whose requests have a record."""

    name: str
    """In the log, and as `surface` in the metrics."""
    paths: tuple[str, ...]
    """The first is the canonical one, which routes of the configuration can name; clients send the others, too."""
    respond: Callable[[RequestContext], Awaitable[None]]
    """Reads the request and sends the whole answer. The client gets the error that it raises, if nothing was sent."""
    openapi: Mapping[str, Any]
    """The OpenAPI operation, as far as it differs from that of every row (`openapi.py`)."""
    methods: tuple[str, ...] = ("POST",)
    """The first is the one in `/docs`."""
    documented: bool = True
    deed: Deed | None = None
    """What each of its requests does to what all users share: asked before anything else."""


@dataclass(frozen=True, slots=True)
class PlainEndpoint:
    """One row: a path that reports or deletes something. Its requests have no body and no record."""

    methods: tuple[str, ...]
    paths: tuple[str, ...]
    handler: Callable[[HTTPRequest], Awaitable[Response]] | ASGIApp
    """The name and the docstring of a function are in `/docs`."""
    openapi: Mapping[str, Any] = field(default_factory=dict)
    documented: bool = True
    deed: Deed | None = None
    """As that of `Endpoint`."""


class RequestContext:
    def __init__(self, scope: Scope, receive: Receive, send: Send, endpoint: Endpoint, state: ServerState) -> None:
        self.scope = scope
        self.receive = receive
        self.state = state
        self.path = endpoint.paths[0]
        """The canonical path."""
        self.record = Record.of(scope, endpoint.name)
        self.send = self.record.counting(send)
        self.observers = Observers(state.observe, self.record)
        self._is_closed = False

    def check_deed(self, deed: Deed) -> None:
        """Raises: as `caller.check_deed`."""
        check_deed(self.scope, deed, manages_models=self.state.service.manages_models)

    def check_local(self, what: str) -> None:
        """That an open server shows words of conversations to no other machine, and to no page of another origin.
        `what`: such as `the memory`. Raises: `NotAllowed`."""
        host = address_of(self.scope)
        if self.state.is_open and not is_loopback(host):
            raise NotAllowed(
                f"without an API key {what} answers only programs on this machine, not {host[:80]!r}; configure a key "
                "(server.api_keys)",
                status=403,
            )
        if self.state.is_open:  # with keys, no page has one that it was not given
            check_origin(self.scope, what, self.state.origins)

    async def read_body(self) -> bytes:
        """The whole body. Raises: as `body.read_body`."""
        limits = self.state.limits
        body = await read_body(self.scope, self.receive, limits.max_body_bytes, limits.stall_s)
        self.record.n_received = len(body)
        self.observers.receive(self.scope, body)
        return body

    async def decode(self, body: bytes, decode: Callable[[bytes], T]) -> T:
        """What `decode` makes of the body; a large one is decoded in a thread."""
        if len(body) <= self.state.limits.inline_bytes:
            return decode(body)
        return await in_pool("bodies", decode, body)

    async def while_connected(self, answering: Coroutine[Any, Any, T], *, is_endless: bool = False) -> T:
        """The result of `answering`, which is cancelled when the client disconnects or the server stops.

        `is_endless`: a server that stops does not wait for it.

        Raises: `ClientGone`, `Stopping`; what `answering` raises.
        """
        active = self.state.active
        if active.stopping:
            answering.close()
            raise Stopping
        task = cast("asyncio.Task[Any]", asyncio.current_task())

        def leave(_: object) -> None:
            # An ASGI server also reports a disconnect after the last byte; the work that is left must continue then.
            if not self.record.complete:
                self.record.client_gone = True
                task.cancel()

        watch = asyncio.create_task(self._disconnected())
        watch.add_done_callback(leave)
        tasks = active.background if is_endless else active.tasks
        tasks.add(task)
        try:
            return await answering
        except asyncio.CancelledError:
            if not self.record.client_gone and not active.stopping:
                raise
            task.uncancel()
            raise (ClientGone if self.record.client_gone else Stopping) from None
        finally:
            tasks.discard(task)
            watch.remove_done_callback(leave)
            watch.cancel()
            await asyncio.wait((watch,))

    async def stream_events(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Send server-sent events until there are no more, or the server stops; an empty piece becomes a ping.

        Raises: `ClientGone`, `ClientTooSlow`; what `pieces` raises.
        """

        async def send() -> None:
            await self.begin([(b"content-type", sse.MEDIA_TYPE.encode()), *UNBUFFERED])
            async with aclosing(pieces):
                async for piece in pieces:
                    await self.send_fragment(piece or sse.PING)

        try:
            await self.while_connected(send(), is_endless=True)
        except Stopping:  # the client may come back to the next server
            self.record.reason = "server stopping"
        self.record.complete = True
        await self.send_fragment(b"", is_last=True, more=False, patience_s=STOPPING_S)

    async def begin(self, headers: RawHeaders) -> None:
        """Send the head of an answer that comes in pieces. Raises: `ClientTooSlow`."""
        self.record.status = 200
        head = {"type": "http.response.start", "status": 200, "headers": headers}
        await within(self.state.limits.stall_s, self.send(head))

    async def send_fragment(
        self, fragment: bytes, *, is_last: bool = False, more: bool = True, patience_s: float | None = None
    ) -> None:
        """`is_last`: the client has its answer with it, even if the protocol allows `more`. Raises: `ClientTooSlow`."""
        send = self.send_last if is_last else self.send
        message = {"type": "http.response.body", "body": fragment, "more_body": more}
        await within(patience_s or self.state.limits.stall_s, send(message))

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self,
        content: bytes,
        headers: RawHeaders | tuple[()] = (),
        *,
        status: int = 200,
        patience_s: float | None = None,
    ) -> None:
        """Send one whole answer. Raises: `ClientTooSlow` after `patience_s`."""
        self.record.status = status
        self.observers.send(content)
        await within(patience_s, send_json(self.send_last, status, content, headers))

    async def refuse(self, error: Exception) -> None:
        """Send an error. Raises: `ClientTooSlow`."""
        self.record.status, content, headers = encode_error(self.scope, error)
        if self.record.backend != "-":
            headers = [*headers, *backend_headers(self.record)]
        self.observers.send(content)
        # The rest of a body that is too large is read and dropped for a while.
        unread = self.receive if isinstance(error, BodyTooLarge) else None
        sending = send_json(self.send_last, self.record.status, content, headers, unread=unread)
        await within(None if unread else self.patience_s(error), sending)

    async def send_last(self, message: Message) -> None:
        """Send a message; of a body these are the last bytes. Before the client can have all of them, `close`."""
        if message["type"] == "http.response.body":
            body: bytes = message["body"]
            if len(body) > BURST_BYTES:  # a client that does not read them is noted
                await self.send({**message, "body": body[:-BURST_BYTES], "more_body": True})
            message = {**message, "body": body[-BURST_BYTES:]}
            self.close(len(message["body"]))
        await self.send(message)

    def close(self, n_last: int = 0) -> None:
        """Complete the record, once, and publish it. n_last: bytes of the body that are still to be sent."""
        if self._is_closed:
            return
        self._is_closed = True
        note_answered(self.scope)
        self.record.write(n_last)
        self.state.metrics.count(self.record)
        self.observers.close(self.record)

    def patience_s(self, error: Exception) -> float:
        return STOPPING_S if isinstance(error, Stopping) else self.state.limits.stall_s


def backend_headers(record: Record) -> RawHeaders:
    """What has answered, and in whose place."""

    def encoded(name: str) -> bytes:
        return quote(name, safe=":/@+ ").encode()

    instead_of = b", ".join(map(encoded, record.instead_of))
    headers = [(b"x-shepherd-backend", encoded(record.backend))]
    if record.spoke:
        headers.append((b"x-shepherd-model", encoded(record.spoke)))
    return [*headers, (b"x-shepherd-instead-of", instead_of)] if instead_of else headers


def json_response(body: Any, status: int = 200) -> Response:
    return Response(json_bytes(body), status, media_type="application/json")


async def handle(endpoint: Endpoint, state: ServerState, scope: Scope, receive: Receive, send: Send) -> None:
    context = RequestContext(scope, receive, send, endpoint, state)
    record = context.record
    try:
        if endpoint.deed is not None:
            context.check_deed(endpoint.deed)
        await endpoint.respond(context)
    except ClientGone:
        record.reason = "client gone"
    except ClientTooSlow as error:
        logger.debug("%s: %s", record.id, error)
        record.reason = "client too slow"
    except Exception as error:  # every failure is answered in the protocol's own shape
        log_failure(error, record)
        if record.status == 0:
            with contextlib.suppress(ClientTooSlow):
                await context.refuse(error)
    finally:
        context.close()


async def within(patience_s: float | None, sending: Awaitable[None]) -> None:
    """Wait until `sending` ends. Raises: `ClientTooSlow` when it takes longer than `patience_s`; None = no limit."""
    try:
        async with asyncio.timeout(patience_s):
            await sending
    except TimeoutError as error:
        raise ClientTooSlow(f"nothing could be sent for {patience_s:g} s") from error


def log_failure(error: Exception, record: Record) -> None:
    """Note an error in the record, and log what the client does not get.

    An error that the client gets may quote the client's own words, so the log does not repeat it.
    """
    if isinstance(error, ShepherdError):
        field_name = f" field={format_name(error.field)}" if isinstance(error, InvalidRequest) and error.field else ""
        record.reason = "server stopping" if isinstance(error, Stopping) else f"{error.code}{field_name}"
        record.see_failure(error)
        if public_error(error)[0] >= 500 and not isinstance(error, Stopping):
            logger.warning("%s: %s", record.id, error)
    else:
        record.reason = "server_error"
        logger.error("%s: unexpected failure", record.id, exc_info=error)
