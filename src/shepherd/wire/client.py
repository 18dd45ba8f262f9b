"""The client half of a protocol: a request to a body, the bytes of an answer to events. No I/O.

    Request ─ encode_request ─▶ body ─▶ provider ─▶ records ─ Decoder.feed ─▶ events

A module with the functions of `ClientCodec` is one. It reads the answer as it is, unknown fields and events included,
and raises a `Failure` for what is an error in it; which error of `core` that becomes is decided in
`backends/cloud/failure.py`. What every protocol needs of a history, pairs of calls and results for example, is in
`history.py`. The round trip is tested: our server's encoder, then this decoder, gives the same events.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Opaque,
    Request,
    Started,
    StopReason,
    ToolCall,
    Unsupported,
    Usage,
)
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.wire.base import Json
from shepherd.wire.ending import ending_of
from shepherd.wire.halves import Halves, may_have_halves
from shepherd.wire.values import ended_call, index_in, object_at, objects_in, record_of, same_arguments

logger = logging.getLogger(__name__)

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


class Decoder:
    """Reads one answer; not for sharing. Yields the grammar of `core.events`, `Started` first, `Finished` last.
    It never waits for what it does not need: text goes out with the record it came in.

    All protocols share this: one `Started`, whole characters, calls whose ids are unique and that come once, and why an
    answer ended. A protocol reads its records in `_take`, a whole body in `_read_whole`, and ends in `_end_of_body`.
    """

    id_prefix = "call_"

    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        """`new_id`: for calls that have no id, or another call's; random unless a test gives it."""
        self._endpoint = endpoint
        self._new_id = new_id or (lambda: new_call_id(self.id_prefix))
        self._ids = set[str]()
        self._made: list[tuple[str, str, str]] = []
        """Each call that came whole: the provider's id, the name, the arguments."""
        self._made_by_id: dict[str, tuple[str, str]] = {}
        """The name and the arguments of the first call of each id."""
        self._has_started = False
        self._halves = Halves()
        self._has_halves = False
        """A record has had halves of characters: the end of a call repeats what came in its pieces."""

    def feed(self, event: str, data: bytes) -> Iterator[Event]:
        """One record of a stream: an SSE event (its name may be empty) or a line of NDJSON.

        Raises: `Failure`, `BrokenAnswer`.
        """
        data = data.strip()
        events = self._read(event, data) if data and data != b"[DONE]" else self._pause(data)
        self._has_halves = self._has_halves or may_have_halves(data)
        return self._halves.joined(events) if self._has_halves else events

    def whole(self, body: Json) -> Iterator[Event]:
        """An answer in one body, although a stream was asked for, or because none was. Raises: as `feed`."""
        return self._halves.joined(self._read_whole(body))

    def close(self) -> Iterator[Event]:
        """The body has ended: what is still open, then `Finished`. Raises: `BrokenAnswer` where the end is missing."""
        return self._halves.joined(self._end_of_body()) if self._has_halves else self._end_of_body()

    def _read(self, event: str, data: bytes) -> Iterator[Event]:
        """One record that is not blank. `event`: as the server names it."""
        yield from self._take(record_of(data))

    def _pause(self, data: bytes) -> Iterator[Event]:
        """A record without an object: blank, or the mark at the end of OpenAI's streams, which gateways put behind
        those of every protocol."""
        return iter(())

    def _take(self, record: Json) -> Iterator[Event]:
        raise NotImplementedError

    def _read_whole(self, body: Json) -> Iterator[Event]:
        yield from self._take(body)
        yield from self._end_of_body()

    def _end_of_body(self) -> Iterator[Event]:
        raise NotImplementedError

    def _start(self, model: str, usage: Usage = Usage(), own: Opaque | None = None) -> Iterator[Event]:
        """`Started`, where it has not been sent. `model`: as the provider calls it; empty = not known."""
        if not self._has_started:
            self._has_started = True
            yield Started(model or self._endpoint.model, self._endpoint.origin, usage, own=own)

    def _ending(self, word: str, *, has_answer: bool, details: str = "") -> StopReason:
        """Why the answer ended, by the provider's word for it. `has_answer`: a part of it has come; `details`: what
        the provider says besides.

        Raises: `Failure` where the provider has failed, and where nothing came of what it could not read.
        """
        ending = ending_of(word) if word else "end"
        if ending is None:
            words = "%s ended its answer with the reason %r, which is not known; it counts as cut off"
            logger.warning(words, self._endpoint.origin, word)
            return "length"
        if ending == "failed" or (ending == "unreadable" and not has_answer):
            message = f"the provider ended the answer: {word}" + (f": {details}" if details else "")
            raise Failure({"error": {"message": message, "type": "server_error"}}, status=500)
        return "length" if ending == "unreadable" else ending

    def _unique(self, id: str) -> str:
        """The id of a call; a new one for those of servers that leave it out or repeat it."""
        id = id if id and id not in self._ids else self._new_id()
        self._ids.add(id)
        return id

    def _is_made(self, id: str, name: str, arguments: str) -> bool:
        """Whether a call repeats one that came: it has its id, and calls the same."""
        made = self._made_by_id.get(id)
        return made is not None and made[0] == name and same_arguments(arguments, made[1])

    def _note_made(self, id: str, name: str, arguments: str) -> None:
        self._made.append((id, name, arguments))
        if id:
            self._made_by_id.setdefault(id, (name, arguments))

    def _are_made(self, calls: Sequence[tuple[str, str, str]]) -> bool:
        """Whether a list of calls repeats all that came. One call alone, without an id, may be called twice."""
        return len(calls) > 1 and [call[1:] for call in calls] == [made[1:] for made in self._made]

    def _whole_call(self, own_id: str, name: str, arguments: str, signature: str | None = None) -> Iterator[Event]:
        """A call as one piece; nothing for one that came before. `own_id`: the provider's, may be empty."""
        if self._is_made(own_id, name, arguments):
            return
        self._note_made(own_id, name, arguments)
        id = self._unique(own_id)
        call = ended_call(id, name, arguments)
        yield CallStarted(id, call.name)
        if isinstance(call, ToolCall):
            yield CallDelta(call.arguments)
            call = replace(call, signature=signature)
        yield CallEnded(call)


def new_call_id(prefix: str = "call_") -> str:
    return f"{prefix}{secrets.token_hex(12)}"


class ClientCodec(Protocol):
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


MOST_WAITING = 8
"""Records that wait for a choice 0. Servers that write several choices send them in turn."""


class Choices:
    """Which of the choices of an answer is the one that was asked for.

        {"index": 0, ...} {"index": 1, ...}   the first by its number
        {"index": 1, ...} {"index": 1, ...}   the only one: some servers begin to count elsewhere

    Choices with another number than 0 wait until it is clear that there is no 0: for a few records, or until one has
    ended.
    """

    def __init__(self, ending: str) -> None:
        """`ending`: the field of a choice that says why it ended."""
        self._ending = ending
        self._index: int | None = None
        """Of the choice that is the answer; None = not known yet."""
        self._waiting: list[Json] = []

    def take(self, choices: list[Json]) -> list[Json]:
        """The choices that are read now: those of the answer, which a server may split (Copilot: text and calls), and
        those that have waited."""
        if self._index is None and any(not index_in(each, "index") for each in choices):
            self._index = 0
            self._waiting.clear()
        if self._index is not None:
            return [each for each in choices if (index_in(each, "index") or 0) == self._index]
        self._waiting += choices
        is_clear = len(self._waiting) >= MOST_WAITING or any(each.get(self._ending) for each in choices)
        return self.rest() if is_clear else []

    def rest(self) -> list[Json]:
        """The choices that still wait, of the lowest number: no other will come."""
        if self._index is None and self._waiting:
            self._index = min(index_in(each, "index") or 0 for each in self._waiting)
        found = [each for each in self._waiting if index_in(each, "index") == self._index]
        self._waiting.clear()
        return found
