"""The client half of a protocol: a request to a body, the bytes of an answer to events. No I/O.

    Request ─ encode_request ─▶ body ─▶ provider ─▶ records ─ Decoder.feed ─▶ events

A module with the functions of `ClientCodec` is one. It reads the answer as it is, unknown fields and events included,
and raises a `Failure` for what is an error in it; which error of `core` that becomes is decided in
`backends/cloud/failure.py`. What every protocol needs of a history, pairs of calls and results for example, is in
`history.py`. The round trip is tested: our server's encoder, then this decoder, gives the same events.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Opaque,
    Request,
    Started,
    ToolCall,
    Unsupported,
    Usage,
)
from shepherd.wire.base import Json
from shepherd.wire.values import object_at, objects_in, parsed_call, record_of

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""What providers call the levels of thinking."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The model that a body is for, and what its provider accepts. The table of providers and models fills it."""

    model: str
    """As the provider calls it."""
    origin: str
    """`backend:model`: signatures of messages of this origin go back, those of others do not."""
    n_ctx: int | None = None
    """Tokens; None = not known."""
    max_output: int | None = None
    """The most tokens of an answer; None = not known."""
    default_output: int = 8_192
    """For a protocol that demands a number where the request has none."""
    efforts: tuple[Effort, ...] = ()
    """Of thinking, the least first; empty = the model has no such setting."""
    thinks_by: Literal["", "effort", "budget", "adaptive", "level", "switch"] | None = ""
    """How thinking is asked for: a word, a number of tokens, the model decides (Anthropic), Gemini's level, on or
    off. Empty = never send anything about it; None = not known: send what a client of the same protocol sends."""
    refuses: frozenset[str] = frozenset()
    """Fields of the body that the model refuses; they are never sent."""
    sees_images: bool = True
    reads_documents: bool = False
    hears: bool = True
    quirks: frozenset[str] = frozenset()
    """How a server of the protocol departs from it, by names that the codec documents."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the configuration adds to every body."""


def native_of(request: Request, protocol: str) -> Mapping[str, Any]:
    """The body as the client sent it, if it has sent it in this protocol; else empty."""
    return request.native.body if request.native is not None and request.native.protocol == protocol else {}


def native_tools(request: Request, protocol: str, inner: str = "") -> dict[str, Json]:
    """The tools as the client sent them, by their names; `inner`: the field that holds the name, where there is one.

    Fields that `ToolSpec` has no word for are sent too, such as when the provider shows a tool to the model.
    """
    tools = objects_in(native_of(request, protocol).get("tools"))
    named = ((object_at(tool, inner) or tool if inner else tool, tool) for tool in tools)
    return {name: tool for holder, tool in named if isinstance(name := holder.get("name"), str)}


def alternating(turns: Iterable[tuple[str, list[Json]]], key: str) -> list[Json]:
    """Messages `{"role": ..., key: [...]}` from roles and their parts: neighbours of one role become one message."""
    made: list[Json] = []
    for role, parts in turns:
        if parts and made and made[-1]["role"] == role:
            made[-1][key] += parts
        elif parts:
            made.append({"role": role, key: parts})
    return made


def check_messages(request: Request, no_grammar: str = "") -> None:
    """Raises: `Unsupported` for a bare prompt, which no provider's protocol has a place for, and for a grammar where
    the protocol has none: `no_grammar` is the message then."""
    if request.completion is not None:
        raise Unsupported("this model answers messages, not a bare prompt; use a chat endpoint", field="prompt")
    if request.grammar is not None and no_grammar:
        raise Unsupported(no_grammar, field="grammar")


def limit_for(request: Request, endpoint: Endpoint) -> int | None:
    if request.max_tokens is None or endpoint.max_output is None:
        return request.max_tokens
    return min(request.max_tokens, endpoint.max_output)


class Failure(Exception):
    """An error that the provider reports, in its own words: a whole body, or a record in a stream."""

    def __init__(self, body: Any, *, status: int | None = None) -> None:
        """`body`: JSON, or text. `status`: where a record in a stream names one."""
        super().__init__(str(body)[:200])
        self.body = body
        self.status = status


class Decoder(Protocol):
    """Reads one answer; not for sharing. Yields the grammar of `core.events`, `Started` first, `Finished` last.

    A decoder never waits for what it does not need: text goes out with the record it came in.
    """

    def feed(self, event: str, data: bytes) -> Iterable[Event]:
        """One record of a stream: an SSE event (its name may be empty) or a line of NDJSON.

        Raises: `Failure`, `BrokenAnswer`.
        """
        ...

    def whole(self, body: Json) -> Iterable[Event]:
        """An answer that came as one body, although a stream was asked for, or because none was.

        Raises: as `feed`.
        """
        ...

    def close(self) -> Iterable[Event]:
        """The body has ended: what is still open, then `Finished`. Raises: `BrokenAnswer` where the end is missing."""
        ...


class AnswerDecoder:
    """What the decoders of all protocols share: one `Started`, and calls whose ids are unique.

    A protocol reads its records in `_take`.
    """

    id_prefix = "call_"

    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        """`new_id`: for calls that have no id, or another call's; random unless a test gives it."""
        self._endpoint = endpoint
        self._new_id = new_id or (lambda: new_call_id(self.id_prefix))
        self._ids = set[str]()
        self._has_started = False

    def feed(self, event: str, data: bytes) -> Iterator[Event]:
        yield from self._take(record_of(data))

    def _take(self, record: Json) -> Iterator[Event]:
        raise NotImplementedError

    def _start(self, model: str, usage: Usage = Usage(), own: Opaque | None = None) -> Iterator[Event]:
        """`Started`, where it has not been sent. `model`: as the provider calls it; empty = not known."""
        if not self._has_started:
            self._has_started = True
            yield Started(model or self._endpoint.model, self._endpoint.origin, usage, own=own)

    def _unique(self, id: str) -> str:
        """The id of a call; a new one for those of servers that leave it out or repeat it."""
        id = id if id and id not in self._ids else self._new_id()
        self._ids.add(id)
        return id

    def _whole_call(self, id: str, name: str, arguments: str, signature: str | None = None) -> Iterator[Event]:
        call = parsed_call(id, name, arguments)
        yield CallStarted(id, call.name)
        if isinstance(call, ToolCall):
            yield CallDelta(call.arguments)
            call = replace(call, signature=signature)
        yield CallEnded(call)


def new_call_id(prefix: str = "call_") -> str:
    return f"{prefix}{secrets.token_hex(12)}"


class ClientCodec(Protocol):
    """One protocol; modules are codecs."""

    def encode_request(self, request: Request, endpoint: Endpoint) -> Json:
        """The body. Equal for equal requests, and a longer conversation begins with the same bytes where the protocol
        allows it, so that the provider's own cache hits. Raises: `InvalidRequest` for what it cannot express."""
        ...

    def decoder(self, request: Request, endpoint: Endpoint) -> Decoder: ...


class CountingCodec(ClientCodec, Protocol):
    """A protocol with an endpoint that counts the tokens of a prompt."""

    def encode_count(self, request: Request, endpoint: Endpoint) -> Json: ...

    def decode_count(self, body: Json) -> int:
        """Raises: `BrokenAnswer`."""
        ...
