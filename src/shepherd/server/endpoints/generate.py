"""An endpoint that generates an answer, whole or streamed, in any protocol.

    body ─ codec ─▶ Request ─ service ─▶ events ─ encoder ─▶ buffer ─▶ client
                                 ▲                                      │
                                 └────────────── cancel ◀── disconnect ─┘

The status line waits for the first event, so that a prompt that does not fit is a real 400 and a full queue a real 429.
Three tasks run at the same time: the pump takes events as fast as they come, the sender writes what the client
can read, and `while_connected` waits for the client to disconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from shepherd.app.media import fetching_once
from shepherd.core import Assembler, Event, Evicted, Request, Started
from shepherd.core.dataclasses import dataclass
from shepherd.server.endpoints.handler import BURST_BYTES, RequestContext, backend_headers, log_failure
from shepherd.server.endpoints.ollama import stream_load
from shepherd.server.http.admission import admit_choices
from shepherd.server.http.body import UNBUFFERED, ClientGone, RawHeaders, json_bytes
from shepherd.server.http.caller import caller_of, with_caller
from shepherd.server.http.choices import merge_choices
from shepherd.server.http.send_buffer import ClientTooSlow, SendBuffer
from shepherd.server.observe.record import Record
from shepherd.wire.base import Codec, Decoded, Encoder, decode_json
from shepherd.wire.sse import MEDIA_TYPE as EVENT_STREAM
from shepherd.wire.sse import PING, encode_comment

ChoiceEvents = AsyncGenerator[tuple[int, Event], None]
"""Events with the index of the choice that each belongs to."""


@dataclass(frozen=True, slots=True)
class Generate:
    codec: Codec[Any]
    id_prefix: str
    """Of the ids of its answers."""
    stored_responses: bool = False
    """Its answers are stored, and bodies may refer to them."""

    async def respond(self, context: RequestContext) -> None:
        def decode(body: bytes) -> Decoded[Any]:
            asked = decode_json(body)
            if context.state.verbose:
                asked.setdefault("verbose", True)
            if self.stored_responses:
                asked = context.state.responses.resolve(asked, owner=caller_of(context.scope).owner)
            return self.codec.decode_request(asked)

        decoded = await context.decode(await context.read_body(), decode)
        admit_choices(context.scope, len(decoded.requests))
        if any(each.extra.get("keep_alive") == 0 and _only_loads(each) for each in decoded.requests):
            context.check_deed("stay")
        decoded = with_caller(decoded, context.scope, trace=context.observers.wants_trace)
        context.observers.decode(decoded)
        context.record.take(decoded)
        answer = _Answer(self, decoded, context)
        try:
            with fetching_once():
                await context.while_connected(answer.send())
        except (ClientGone, ClientTooSlow):
            raise
        except Exception as error:
            if context.record.status == 0:
                raise  # the client gets a status
            with contextlib.suppress(ClientTooSlow):
                await answer.fail(error)


def _only_loads(request: Request) -> bool:
    """Whether it has no prompt: Ollama's way to load a model, or with `keep_alive` 0 to unload it."""
    return not (request.messages or request.completion)


class _Answer:
    def __init__(self, endpoint: Generate, decoded: Decoded[Any], context: RequestContext) -> None:
        self._endpoint = endpoint
        self._decoded = decoded
        self._context = context
        self._limits = context.state.limits
        self._encoder: Encoder = endpoint.codec.encoder(
            decoded.options,
            id=endpoint.id_prefix + secrets.token_hex(12),
            created=int(time.time()),
            model=decoded.request.model,
        )
        self._has_begun = False
        """The first event of a stream has come."""
        self._refusal: Exception | None = None
        """What came in its place: it has a status of its own."""

    async def send(self) -> None:
        """Send all of it. Raises: `ClientTooSlow`; what the service raises."""
        service, path = self._context.state.service, self._context.path
        streams = [
            stream_load(service, one, path) if _only_loads(one) else service.conversations.stream(one, endpoint=path)
            for one in self._decoded.requests
        ]
        async with aclosing(merge_choices(streams)) as events:
            if self._decoded.stream:
                await self._send_stream(events)
            else:
                await self._send_whole(events)

    async def fail(self, error: Exception) -> None:
        """End a stream that has begun with an error, as its protocol does. Raises: `ClientTooSlow`."""
        if self._decoded.stream:
            log_failure(error, self._context.record)
            fragment = self._encoder.encode_failure(error)
            self._context.observers.send(fragment)
            patience_s = self._context.patience_s(error)
            await self._context.send_fragment(fragment, is_last=True, more=False, patience_s=patience_s)

    def _store(self) -> None:
        if self._endpoint.stored_responses:
            self._context.state.responses.store(self._encoder, owner=caller_of(self._context.scope).owner)

    async def _send_whole(self, events: ChoiceEvents) -> None:
        record, observers, encoder = self._context.record, self._context.observers, self._encoder
        assemblers = [Assembler() for _ in self._decoded.requests]
        note_time = getattr(encoder, "note_time", None)  # only protocols that report durations have it
        async for choice, event in events:
            record.see(event, choice)
            observers.see(event, choice)
            assemblers[choice].feed(event)
            if note_time is not None:
                note_time(event)
        body = encoder.encode_replies([assembler.reply() for assembler in assemblers])
        self._store()
        record.complete = True
        await self._context.answer(json_bytes(body), _headers(record), patience_s=self._limits.stall_s)

    async def _send_stream(self, events: ChoiceEvents) -> None:
        """Begin with the first event, or without it after a long silence: proxies and clients give up otherwise.

        An error before the first event has a status of its own, unless the wait was that long.
        """
        record, limits, encoder = self._context.record, self._limits, self._encoder
        buffer = SendBuffer(limits.max_unread_bytes)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(events, buffer))
                fragment = await buffer.take(limits.ping_s)
                if self._refusal is None:
                    kind = (b"content-type", encoder.media_type.encode())
                    await self._context.begin([kind, *UNBUFFERED, *_headers(record)])
                    if fragment == b"":
                        fragment = await buffer.take(limits.ping_s)
                    while fragment is not None:
                        # Before its first event a protocol of SSE may allow nothing; every reader skips a comment.
                        is_early = not record.started and encoder.media_type == EVENT_STREAM
                        fragment = fragment or (PING if is_early else encoder.ping)
                        await self._context.send_fragment(fragment, is_last=buffer.has_last)
                        fragment = await buffer.take(limits.ping_s)
        except* ClientTooSlow as group:
            raise ClientTooSlow(str(group.exceptions[0])) from None
        if self._refusal is not None:
            raise self._refusal
        record.complete = True
        await self._context.send_fragment(b"", is_last=True, more=False)

    async def _pump(self, events: ChoiceEvents, buffer: SendBuffer) -> None:
        """Encode every event as soon as it comes. Raises: `ClientTooSlow`; other failures go to the client."""
        record, observers, encoder = self._context.record, self._context.observers, self._encoder
        try:
            async for choice, event in events:
                self._has_begun = True
                record.see(event, choice)
                observers.see(event, choice)
                fragment = encoder.encode(event, choice)
                if isinstance(event, Evicted) and encoder.media_type == EVENT_STREAM:
                    # The head reports it only if it came before; no protocol has a field for it.
                    parts = f"parts of {len(event.partly)} more, " if event.partly else ""
                    fragment += encode_comment(f"evicted {event.messages} messages, {parts}{event.tokens} tokens")
                elif isinstance(event, Started) and event.edits and encoder.media_type == EVENT_STREAM:
                    n_tokens = sum(each.tokens for each in event.edits)
                    fragment += encode_comment(f"cleared {record.cleared} parts as asked, {n_tokens} tokens")
                if fragment:
                    if record.finished:
                        self._store()  # before the client sees the end and refers to this answer
                    observers.send(fragment)
                if len(fragment) > BURST_BYTES:
                    await buffer.put_alone(fragment, is_last=record.finished)
                elif fragment or record.status == 0:  # the head waits for the first event, not for its bytes
                    buffer.put(fragment, is_last=record.finished)
                    if buffer.n_bytes > BURST_BYTES:
                        await asyncio.sleep(0)  # many events at once must not keep the sender from sending
            if not record.finished:
                raise AssertionError("a stream has ended without `Finished`")
        except ClientTooSlow:
            raise
        except Exception as error:
            if not self._has_begun and record.status == 0:  # the client gets a status
                self._refusal = error
                return
            log_failure(error, record)
            fragment = encoder.encode_failure(error)
            observers.send(fragment)
            buffer.put(fragment, is_last=True)
        finally:
            buffer.close()


def _headers(record: Record) -> RawHeaders:
    """What the head reports of the answer."""
    headers = backend_headers(record)
    counts = {
        b"evicted": record.evicted,
        b"cleared": record.cleared,
        b"recalled": record.usage.recalled,
        b"system-changes": record.changed,
    }
    headers += [(b"x-shepherd-" + name, b"%d" % n) for name, n in counts.items() if n]
    if record.left_out:
        headers.append((b"x-shepherd-left-out", _listed(record.left_out)))
    if not record.archived:
        headers.append((b"x-shepherd-archived", b"false"))
    return headers


MAX_LISTED = 2_000
"""Bytes of a list in a header: proxies refuse heads of more than 4,096 to 8,192."""


def _listed(paths: Sequence[str]) -> bytes:
    """As many of the paths as fit, and how many more there are."""
    listed = b""
    for n, path in enumerate(paths):
        more = quote(path, safe="$[]{}()/:@+^*?'!=<>|~ ").encode()
        if len(listed) + len(more) > MAX_LISTED:
            return listed + b"%sand %d more" % (b", " if listed else b"", len(paths) - n)
        listed += (b", " if listed else b"") + more
    return listed
