"""The client half of a protocol: a request to a body, the bytes of an answer to events. No I/O.

    Request ─ encode_request ─▶ body ─▶ provider ─▶ records ─ Decoder.feed ─▶ events

A module with the functions of `ClientCodec` is one. It reads the answer as it is, unknown fields and events included,
and raises a `Failure` for what is an error in it; which error of `core` that becomes is decided in
`backends/cloud/failure.py`. What every protocol needs of a history, pairs of calls and results for example, is in
`history.py`. The round trip is tested: our server's encoder, then this decoder, gives the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from shepherd.core import Event, Request
from shepherd.wire.base import Json

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

    Their fields that `ToolSpec` has no word for go on, such as when the provider shows a tool to the model.
    """
    found: dict[str, Json] = {}
    tools = native_of(request, protocol).get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            named = tool.get(inner) if isinstance(tool.get(inner), dict) else tool
            if isinstance(named, dict) and isinstance(name := named.get("name"), str):
                found[name] = tool
    return found


def limit_for(request: Request, endpoint: Endpoint) -> int | None:
    """The most tokens of the answer."""
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


class BrokenAnswer(Exception):
    """The answer breaks the protocol, or ends before its end. The message says where; it holds no text of a user."""


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


class ClientCodec(Protocol):
    """One protocol; modules are codecs."""

    def encode_request(self, request: Request, endpoint: Endpoint) -> Json:
        """The body. Equal for equal requests, and a longer conversation begins with the same bytes where the protocol
        allows it, so that the provider's own cache hits. Raises: `InvalidRequest` for what the protocol cannot say."""
        ...

    def decoder(self, request: Request, endpoint: Endpoint) -> Decoder:
        """A reader of the answer to `request`."""
        ...


class CountingCodec(ClientCodec, Protocol):
    """A protocol with an endpoint that counts the tokens of a prompt."""

    def encode_count(self, request: Request, endpoint: Endpoint) -> Json: ...

    def decode_count(self, body: Json) -> int:
        """Raises: `BrokenAnswer`."""
        ...
