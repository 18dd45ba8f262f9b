"""Ollama's `/api/pull`: gets a model, and reports how far it is, one JSON object a line.

    {"status": "pulling manifest"} · {"status": "pulling 5ee4f07cdb9b", "digest": …, "total": …, "completed": …} ·
    {"status": "verifying sha256 digest"} · {"status": "writing manifest"} · {"status": "success"}

A model that the server has is a success at once: many clients pull before they ask. When the client disconnects, the
pull ends; what was transferred is kept for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from shepherd.core import EngineDown, UnknownModel
from shepherd.server.endpoints.handler import RequestContext, log_failure
from shepherd.server.endpoints.ollama import find_card, named_in
from shepherd.server.http.body import UNBUFFERED, json_bytes
from shepherd.server.http.send_buffer import ClientTooSlow, SendBuffer
from shepherd.wire.base import Fields, Json, decode_json
from shepherd.wire.ollama.fields import encode_error

if TYPE_CHECKING:
    from shepherd.models.pull.pull import Event

LINE_S = 0.1
"""The least time between two lines about the bytes of one file."""
_SUCCESS: Json = {"status": "success"}


async def respond(context: RequestContext) -> None:
    """Pull the model of the body, whole or streamed. Raises: `ShepherdError` before anything was sent."""
    body = await context.decode(await context.read_body(), decode_json)
    name, streams = named_in(body), Fields(body).find_boolean("stream") is not False
    context.record.model, context.record.reason = name, "answered"
    try:
        await context.state.service.catalogue.look_again()
        find_card(context.state.service, name)
    except EngineDown:
        context.check_deed("models")
        raise
    except UnknownModel:
        context.check_deed("models")
        if streams:
            await context.while_connected(_send_stream(context, name))
            return
        await context.while_connected(context.state.service.catalogue.pull(name, lambda event: None))
    await context.answer(json_bytes(_SUCCESS) + b"\n" * streams)


async def _send_stream(context: RequestContext, name: str) -> None:
    """The lines of a pull. An error before the first has a status of its own; behind it, it is the last line.

    Raises: `ShepherdError` before the first line; `ClientTooSlow`.
    """
    limits, buffer = context.state.limits, SendBuffer(context.state.limits.max_unread_bytes)

    async def work() -> None:
        try:
            await context.state.service.catalogue.pull(name, _lines(lambda line: buffer.put(json_bytes(line) + b"\n")))
            buffer.put(json_bytes({"status": "writing manifest"}) + b"\n")
            buffer.put(json_bytes(_SUCCESS) + b"\n", is_last=True)
        finally:
            buffer.close()

    pulling = asyncio.create_task(work())
    try:
        fragment = await buffer.take(limits.ping_s)
        if fragment is None:  # it failed at once
            await pulling
        await context.begin([(b"content-type", b"application/x-ndjson"), *UNBUFFERED])
        while fragment is not None:
            if fragment:
                await _send(context, fragment, is_last=buffer.has_last)
            fragment = await buffer.take(limits.ping_s)
        try:
            await pulling
        except ClientTooSlow:
            raise
        except Exception as error:  # the client gets it as the last line
            log_failure(error, context.record)
            await _send(context, json_bytes(encode_error(error)[1]) + b"\n", is_last=True)
        context.record.complete = True
        await _send(context, b"", is_last=True, more=False)
    finally:
        pulling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await pulling


async def _send(context: RequestContext, fragment: bytes, *, is_last: bool = False, more: bool = True) -> None:
    context.observers.send(fragment)
    await context.send_fragment(fragment, is_last=is_last, more=more)


def _lines(put: Callable[[Json], None], clock: Callable[[], float] = time.monotonic) -> Callable[[Event], None]:
    """Puts what happens as Ollama's lines."""
    from shepherd.models.pull import pull  # noqa: PLC0415 - few servers pull
    from shepherd.models.pull.transfer import Waiting  # noqa: PLC0415

    next_s: dict[str, float] = {}

    def show(event: Event) -> None:
        match event:
            case pull.Planned():
                put({"status": "pulling manifest"})
            case pull.Fetched(file, n_bytes):
                now = clock()
                if now < next_s.get(file.name, 0.0) and n_bytes < file.size_bytes:
                    return
                next_s[file.name] = now + LINE_S
                mark = {"digest": f"sha256:{file.sha256}"} if file.sha256 else {}
                status = f"pulling {file.sha256[:12] or file.name}"
                put({"status": status, **mark, "total": file.size_bytes, "completed": n_bytes})
            case Waiting(seconds, why):
                put({"status": f"{why}; trying again in {seconds:.0f} s"})
            case pull.Held():
                put({"status": "waiting for another pull of the same model"})
            case pull.Verifying():
                put({"status": "verifying sha256 digest"})
            case _:
                assert_never(event)

    return show
