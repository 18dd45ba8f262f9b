"""The facts of one request, and their line in the log: the cost of the request and its end, never its content.

    [INFO ] req_1 openai-chat model=m backend=local:m cache=main upstream=- in=7 cached=4 recalled=0 out=9 drafted=6
            accepted=5 evicted=0 first_ms=41.0 tokens_per_s=80.1 queue_ms=0.4 received=312 sent=901 key=ann session=8f3a
            status=200 stop=end

(one line in the log). The names are promised to users; `stop` is the last, because a reason can be several words.
`facts` returns the same for programs.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.types import Message, Scope, Send

from shepherd.core import (
    BackendError,
    CallDelta,
    CallStarted,
    ContextFull,
    ContextTooSmall,
    Event,
    Evicted,
    Finished,
    ReasoningDelta,
    ShepherdError,
    Started,
    TextDelta,
    Usage,
)
from shepherd.core.dataclasses import dataclass, field
from shepherd.wire.base import Decoded

logger = logging.getLogger("shepherd.server")

REQUEST_ID = "shepherd.request_id"
CALLER = "shepherd.caller"
"""Keys in the ASGI scope."""

_FREQUENT = frozenset((TextDelta, ReasoningDelta, CallDelta))
_SESSION_CHARACTERS = 12
"""Of a session's name: enough to find its lines, too few to hijack it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, after authentication."""

    key: str
    """The name of the key; empty without one."""
    address: str
    is_alone: bool
    """There can be no other caller: it has the only key, or is a program on this machine without keys."""
    requests_per_minute: int | None = None
    """The key's limit; None = it has none."""
    concurrent: int | None = None
    owner: str = ""
    """The owner of the answers that its requests store: other callers cannot read them. Empty without keys."""
    user: str | None = None
    """The only user as which its key acts; None = its requests name a user, or none."""

    @property
    def is_one_of_many(self) -> bool:
        """Its key is bound to a user, and there are other keys."""
        return self.user is not None and not self.is_alone


@dataclass(slots=True)
class Record:
    """The facts of one request, collected while it runs."""

    id: str
    surface: str
    model: str = ""
    """As the client named it."""
    backend: str = "-"
    cache: str = ""
    """Of our own engine, or the provider, by its name in the configuration."""
    upstream: str = ""
    """The provider's id of the request."""
    spoke: str = ""
    """The model that the provider names, if it is another one than it was asked for: an alias, a retired model."""
    instead_of: tuple[str, ...] = ()
    """Caches and providers that have precedence and could not answer."""
    status: int = 0
    """0 = nothing was sent."""
    reason: str = "-"
    """The stop reason, or why there is none."""
    key: str = ""
    """The name of the key that came with it."""
    session: str = ""
    n_choices: int = 1
    is_first: bool = False
    """No answer is in the request yet: its prompt begins a conversation."""
    n_refused: int = 0
    """Tokens of a prompt that did not fit."""
    evicted: int = 0
    """Messages that have left the context for this answer, as a whole or in part."""
    cleared: int = 0
    """Messages, results and turns that left it because the client asked for that."""
    changed: int = 0
    """Lines of the system prompt that are repeated at the end of the prompt."""
    left_out: tuple[str, ...] = ()
    """Parts of the request's schema that the answer is not held to."""
    archived: bool = True
    """False: the messages should have been archived, and could not be."""
    n_finished: int = 0
    """Choices whose `Finished` has come."""
    n_received: int = 0
    """Bytes of the body."""
    n_sent: int = 0
    """Bytes of the answer's body."""
    complete: bool = False
    """The last byte is on its way."""
    client_gone: bool = False
    begun_s: float = field(default_factory=time.perf_counter)
    started_s: float | None = None
    """When the engine began with it."""
    first_s: float | None = None
    """When the first visible part of the answer came."""
    ended_s: float | None = None
    usages: dict[int, Usage] = field(default_factory=dict)
    """By choice, from its first event on."""

    @classmethod
    def of(cls, scope: Scope, surface: str) -> Record:
        caller: Caller | None = scope.get(CALLER)
        return cls(scope.get(REQUEST_ID, "-"), surface, key=caller.key if caller else "")

    @property
    def started(self) -> bool:
        return bool(self.usages)

    @property
    def finished(self) -> bool:
        return self.n_finished == self.n_choices

    @property
    def usage(self) -> Usage:
        """Of all choices together."""
        return sum(self.usages.values(), Usage())

    def take(self, decoded: Decoded[Any]) -> None:
        self.model = decoded.request.model
        self.session = decoded.request.session or ""
        self.n_choices = len(decoded.requests)
        self.is_first = not any(message.role == "assistant" for message in decoded.request.messages)

    def counting(self, send: Send) -> Send:
        """`send`, which also counts the bytes of the answer's body."""

        async def counted(message: Message) -> None:
            if self.ended_s is None:  # else they were counted before
                self.n_sent += len(message.get("body", b""))
            await send(message)

        return counted

    def see(self, event: Event, choice: int = 0) -> None:
        """Note an event. Called once per token: the frequent case comes first and is cheap."""
        if self.first_s is not None and type(event) in _FREQUENT:
            return
        match event:
            case TextDelta() | ReasoningDelta() | CallStarted():
                self.first_s = self.first_s or time.perf_counter()
            case Evicted():
                self.evicted += event.messages + len(event.partly)
            case Started():
                self.backend = event.origin or "-"  # the model may be a name of the client's, of any length
                self.cache = event.cache
                self.upstream = event.request_id
                provider, _, asked = self.backend.partition(":")
                self.spoke = "" if provider == "local" or event.model == asked else event.model[:200]
                self.instead_of = event.instead_of
                self.cleared += sum(each.count for each in event.edits)
                self.archived = self.archived and event.archived
                self.changed = event.n_changed
                self.left_out = event.left_out
                self.started_s = self.started_s or event.at_ns / 1e9 or time.perf_counter()
                self.usages[choice] = event.usage
            case Finished():
                self.usages[choice] = event.usage
                self.reason = event.reason
                self.n_finished += 1
            case _:
                pass

    def see_failure(self, error: ShepherdError) -> None:
        """Note what failed; there may have been no `Started` to report it."""
        self.upstream = error.request_id or self.upstream
        if isinstance(error, ContextFull | ContextTooSmall):
            self.n_refused = error.n_prompt
        if isinstance(error, ContextFull):
            self.cache = error.cache
        elif isinstance(error, BackendError) and not self.started:
            self.backend = error.backend
            self.cache = self.cache or error.backend.removeprefix("local:")

    def facts(self) -> dict[str, Any]:
        """The values of the line, for programs; None = not known."""
        usage = self.usage
        # The first token's time is prefill; the rate is that of the others.
        seconds = 0.0 if self.first_s is None else (self.ended_s or time.perf_counter()) - self.first_s
        return {
            "id": self.id,
            "surface": self.surface,
            "model": format_name(self.model),
            "backend": format_name(self.backend),
            "cache": format_name(self.cache),
            "upstream": format_name(self.upstream),
            "in": usage.prompt,
            "cached": usage.cache_read,
            "recalled": usage.recalled,
            "out": usage.output,
            "drafted": usage.drafted,
            "accepted": usage.accepted,
            "evicted": self.evicted,
            "first_ms": _ms(self.first_s, self.begun_s),
            "tokens_per_s": round((usage.output - 1) / seconds, 1) if usage.output > 1 and seconds > 0 else None,
            "queue_ms": _ms(self.started_s, self.begun_s),
            "received": self.n_received,
            "sent": self.n_sent,
            "key": format_name(self.key),
            "session": format_name(self.session, _SESSION_CHARACTERS),
            "status": self.status,
            "stop": self.reason,
        }

    def write(self, n_last: int = 0) -> None:
        """Write the line; the request has ended but for the sending of `n_last` bytes."""
        self.n_sent += n_last
        self.ended_s = time.perf_counter()
        facts = self.facts()
        line = " ".join(f"{name}={'-' if value is None else value}" for name, value in list(facts.items())[2:])
        logger.info("%s %s %s", self.id, self.surface, line, extra={"facts": facts})


def format_name(name: str, limit: int = 80) -> str:
    """A name from a client as one word of the line, without control characters."""
    return "".join(char if char.isprintable() and char != " " else "?" for char in name[:limit]) or "-"


def _ms(moment_s: float | None, begun_s: float) -> float | None:
    return None if moment_s is None else round((moment_s - begun_s) * 1e3, 1)
