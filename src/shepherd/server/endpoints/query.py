"""One question that is answered at once and as a whole: how many tokens, which vector, what a model is called.

    body ─ row.answer(service, body) ─▶ JSON

A row of `surfaces.QUERIES` is an async function from the service and the body's JSON to the answer's. It raises a
`ShepherdError`, which the row's protocol words. Questions about the memory are `inquiry`'s; answers that are generated
are `exchange`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.server.endpoints.generate import Shared, note
from shepherd.server.http.body import BodyTooLarge, ClientGone, json_bytes, read_body, send_json
from shepherd.server.http.errors import Stopping, retry_headers, with_id
from shepherd.server.observe.observer import Observers
from shepherd.server.observe.record import Record
from shepherd.server.service import Service
from shepherd.wire.base import Json, decode_json

T = TypeVar("T")

EncodeError = Callable[[Exception], tuple[int, Json]]


@dataclass(frozen=True, slots=True)
class Query:
    """One endpoint that takes a JSON object and answers with one."""

    name: str
    """In the log."""
    paths: tuple[str, ...]
    """The first is the canonical one."""
    answer: Callable[[Service, Json, str], Awaitable[Json]]
    """From the service, the body and the canonical path. Raises: `ShepherdError`."""
    encode_error: EncodeError
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of the request, for `/docs` only."""
    keeps: bool = False
    """Bodies may refer to answers that are remembered (`Surface.keeps`)."""

    @property
    def path(self) -> str:
        return self.paths[0]


async def while_there(receive: Receive, answering: Awaitable[T]) -> T:
    """What is awaited. Raises: `ClientGone` when the client goes away before; it is cancelled then."""
    work, watch = asyncio.ensure_future(answering), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        work.cancel()
        watch.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Asked(Response):
    """Answers one request. An ASGI application for one call."""

    background = None

    def __init__(self, query: Query, shared: Shared) -> None:
        self._query = query
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = Record.of(scope, self._query.name)
        send = record.counting(send)
        observers = Observers(self._shared.observe, record)
        try:
            limits = self._shared.limits
            if self._shared.live.stopping:
                raise Stopping
            body = await read_body(scope, receive, limits.max_body_bytes, limits.stall_s)
            record.n_received = len(body)
            observers.receive(scope, body)
            is_small = len(body) <= limits.inline_bytes
            asked = decode_json(body) if is_small else await asyncio.to_thread(decode_json, body)
            if self._query.keeps and self._shared.kept is not None:
                asked = self._shared.kept.resolve(asked)
            record.model = model if isinstance(model := asked.get("model"), str) else ""
            answering = self._query.answer(self._shared.service, asked, self._query.path)
            told = await while_there(receive, answering)
            content = await asyncio.to_thread(json_bytes, told)  # vectors by the thousand take a second
            record.status, record.reason = 200, "answered"
            observers.send(content)
            await send_json(send, 200, content)
        except ClientGone:
            record.reason = "client gone"
        except Exception as error:  # the wall: every failure is answered in the protocol's own shape
            note(error, record)
            record.status, told = self._query.encode_error(error)
            content = json_bytes(with_id(told, record.id))
            observers.send(content)
            unread = receive if isinstance(error, BodyTooLarge) else None
            await send_json(send, record.status, content, retry_headers(error), unread=unread)
        finally:
            record.write()
            self._shared.metrics.count(record)
            observers.close(record)
