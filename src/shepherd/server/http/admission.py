"""How many requests run at the same time, and how many per minute, so that one caller leaves room for the others.

    request ─ AuthMiddleware (finds the caller) ─ AdmissionMiddleware ─▶ router ─▶ ... ─ admit_choices
                                                     │ too many per minute, or at once: 429
                                                     └ too many of all callers together: 503

A caller is a key; without keys, an address. Requests per minute count every request of a key. Only requests that make
the server work count as running: GET and HEAD only report, and must be answered by a server that is full. A body that
asks for several answers counts as that many requests. A turn of a chat runs without a request and counts against the
limit of its key, too; requests about chats do not wait for it: they stop it, and answer its questions.

A body that does not come to its end keeps its place only while there are others: a whole request must not wait for it.
When the places, or the bytes, are used up, the body that has been silent longest is given up for the next request.

Not here: the size of one request (`body`), the room in a model's context (the engine), keys (`auth`). Event loop only.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.core import InvalidRequest, RateLimited
from shepherd.core.dataclasses import dataclass, field
from shepherd.server.http.body import RawHeaders, with_headers
from shepherd.server.http.errors import refuse
from shepherd.server.observe.record import CALLER, Caller

ADMITTED = "shepherd.admitted"
"""Key in the ASGI scope."""

CONCURRENT = 256
"""Running requests: each may hold a body and a connection, and the engine's queues are shorter."""
PER_CLIENT = 32
"""Of them by one caller: half of the queue of a cache, so that one caller cannot fill it alone."""
MAX_CHOICES = 64
"""Answers that one body may ask for: the length of a cache's queue."""
HELD_BYTES = 2**30
"""Of bodies that are being read or answered, all together: a few of the largest, thousands of ordinary ones."""
BUSY_RETRY_S = 2.0
"""When to try again: how long the running answers take is not known."""

_REPORTING = frozenset(("GET", "HEAD", "OPTIONS"))


class ServerOverloaded(RateLimited):
    """All callers together ask for more than the server accepts."""

    status = 503
    code = "overloaded"

    def __init__(self, message: str) -> None:
        super().__init__(message, backend="server", retry_after_s=BUSY_RETRY_S)


@dataclass(slots=True)
class _Allowance:
    """Requests per minute, as a token bucket that holds one minute's worth."""

    per_minute: int
    left: float
    at_s: float

    def take(self, now_s: float) -> bool:
        self.left = min(self.per_minute, self.left + (now_s - self.at_s) * self.per_minute / 60)
        self.at_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def seconds_until(self, left: float) -> float:
        return max(0.0, (left - self.left) * 60 / self.per_minute) if self.per_minute else 3600.0


class Admission:
    """The running requests of one application, by caller."""

    def __init__(
        self,
        *,
        concurrent: int = CONCURRENT,
        per_client: int = PER_CLIENT,
        held_bytes: int = HELD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`concurrent`: requests at the same time. `per_client`: of them by one caller, unless its key has its own
        limit or it is the only possible caller. `held_bytes`: of their bodies. `clock`: monotonic seconds."""
        self._concurrent = concurrent
        self._per_client = per_client
        self._held_bytes = held_bytes
        self._clock = clock
        self._running: Counter[str] = Counter()
        """By caller; a caller without a running request is not in it."""
        self._turns: Counter[str] = Counter()
        """Turns of chats that run, by caller."""
        self._allowances: dict[str, _Allowance] = {}
        """By key."""
        self._waiting: dict[_AdmittedRequest, None] = {}
        """Requests that wait for the next piece of their body, the longest first."""
        self.n_held_bytes = 0
        self.n_answered = 0
        """Of the running requests, those whose last bytes are on their way."""

    @property
    def n_active(self) -> int:
        """Requests that are being answered; one that asks for several answers counts as that many."""
        return self._running.total() - self.n_answered

    def spend(self, caller: Caller) -> RawHeaders:
        """Count one request against the caller's limit per minute; the headers that report the rest.

        Raises: `RateLimited`.
        """
        limit = caller.requests_per_minute
        if limit is None:
            return []
        now_s = self._clock()
        allowance = self._allowances.setdefault(caller.key, _Allowance(limit, limit, now_s))
        if not allowance.take(now_s):
            wait_s = allowance.seconds_until(1)
            raise RateLimited(
                f"this API key may send at most {limit} requests per minute; try again in {math.ceil(wait_s)} s",
                backend="server",
                retry_after_s=wait_s,
            )
        return self.left(caller)

    def left(self, caller: Caller) -> RawHeaders:
        """The headers, as OpenAI names them, that report the rest of the caller's limit per minute."""
        if (allowance := self._allowances.get(caller.key)) is None:
            return []
        values = {
            "limit": str(allowance.per_minute),
            "remaining": str(int(allowance.left)),
            "reset": f"{math.ceil(allowance.seconds_until(allowance.per_minute))}s",
        }
        return [(f"x-ratelimit-{name}-requests".encode(), value.encode()) for name, value in values.items()]

    def enter(self, caller: Caller, n: int = 1, *, beside_turns: bool = False) -> None:
        """Start `n` more requests of the caller; each must `leave`. `beside_turns`: its turns do not count.

        Raises: `RateLimited` when the caller has too many running, `ServerOverloaded` when all callers together have.
        """
        name = _name(caller)
        self._check(caller, n + (0 if beside_turns else self._turns[name]))
        if not self._give_up(self._running.total() + n - self._concurrent, lambda request: request.n):
            raise ServerOverloaded(
                f"the server is busy: it runs at most {self._concurrent} requests at the same time; try again"
            )
        self._running[name] += n

    def begin_turn(self, caller: Caller) -> Callable[[], None]:
        """Start a turn of a chat, in the place of the request that asks for it; the function ends it. Raises:
        `RateLimited`."""
        name = _name(caller)
        self._check(caller, self._turns[name])
        self._turns[name] += 1

        def end() -> None:
            self._turns[name] -= 1

        return end

    def _check(self, caller: Caller, n: int) -> None:
        """Raises: `RateLimited` where the caller may not have `n` more."""
        name, limit = _name(caller), caller.concurrent
        if limit is None and not caller.is_alone:
            limit = self._per_client
        excess = 0 if limit is None else self._running[name] + n - limit
        if not self._give_up(excess, lambda request: request.n if _name(request.caller) == name else 0):
            raise RateLimited(
                f"this {'API key' if caller.key else 'address'} may have at most {limit} requests running at the same "
                "time, turns of chats included; wait until one ends",
                backend="server",
                retry_after_s=BUSY_RETRY_S,
            )

    def leave(self, caller: Caller, n: int = 1) -> None:
        name = _name(caller)
        self._running[name] -= n
        if not self._running[name]:
            del self._running[name]  # addresses are unlimited in number

    def hold(self, n_bytes: int) -> None:
        """Count `n_bytes` more of a body; the caller must `drop` them. Raises: `ServerOverloaded`."""
        if not self._give_up(self.n_held_bytes + n_bytes - self._held_bytes, lambda request: request.n_bytes):
            raise ServerOverloaded(
                f"the server is busy: running requests hold {self.n_held_bytes} of {self._held_bytes} bytes; try again"
            )
        self.n_held_bytes += n_bytes

    def drop(self, n_bytes: int) -> None:
        self.n_held_bytes -= n_bytes

    async def wait(self, request: _AdmittedRequest, receive: Receive) -> Message:
        """The next piece of a body. Raises: `ServerOverloaded` when another request gets the place."""
        self._waiting[request] = None
        try:
            async with asyncio.timeout(None) as request.patience:
                message = await receive()
            if request in self._waiting:
                return message
        except TimeoutError:
            if request in self._waiting:
                raise
        finally:
            self._waiting.pop(request, None)
        raise ServerOverloaded(
            "the server is busy and this body did not come to its end, so another request got its place; try again"
        )

    def _give_up(self, excess: int, size: Callable[[_AdmittedRequest], int]) -> bool:
        """Give up unfinished bodies until their sizes make up for `excess`; False, and none, where they never do."""
        chosen = []
        for request in self._waiting if excess > 0 else ():
            if excess > 0 and size(request):
                chosen.append(request)
                excess -= size(request)
        if excess > 0:
            return False
        for request in chosen:
            del self._waiting[request]
            request.leave()
            request.patience.reschedule(0)
        return True


@dataclass(slots=True, eq=False)
class _AdmittedRequest:
    """What one running request counts for."""

    admission: Admission
    caller: Caller
    n: int = 1
    n_bytes: int = 0
    is_whole: bool = False
    """Its body has come to its end."""
    is_answered: bool = False
    patience: asyncio.Timeout = field(init=False)
    """Ends the wait for the next piece of the body."""

    def metering(self, receive: Receive) -> Receive:
        """`receive`, which also counts the bytes of the body. Its calls raise `ServerOverloaded`, too."""

        async def metered() -> Message:
            if self.is_whole:
                return await receive()
            message = await self.admission.wait(self, receive)
            self.is_whole = not message.get("more_body", False)
            n_bytes = len(message.get("body", b""))
            self.admission.hold(n_bytes)
            self.n_bytes += n_bytes
            return message

        return metered

    def answer(self) -> None:
        """The last bytes are on their way: it still counts against the limits, and is not active any more."""
        if not self.is_answered:
            self.is_answered = True
            self.admission.n_answered += self.n

    def leave(self) -> None:
        self.admission.n_answered -= self.n if self.is_answered else 0
        self.admission.leave(self.caller, self.n)
        self.admission.drop(self.n_bytes)
        self.n = self.n_bytes = 0


def admit_choices(scope: Scope, n_choices: int) -> None:
    """Count a request whose body asks for `n_choices` answers as that many.

    Raises: `InvalidRequest` for more than `MAX_CHOICES`; `RateLimited`, `ServerOverloaded` when too many are running.
    """
    if n_choices > MAX_CHOICES:
        raise InvalidRequest(
            f"the body asks for {n_choices} answers (prompts times n); at most {MAX_CHOICES} are allowed: send "
            "several requests"
        )
    admitted: _AdmittedRequest | None = scope.get(ADMITTED)
    if admitted is not None and n_choices > admitted.n:
        admitted.admission.enter(admitted.caller, n_choices - admitted.n)
        admitted.n = n_choices


def turn_of(scope: Scope) -> Callable[[], Callable[[], None]]:
    """`Admission.begin_turn` for the sender of this request."""
    admitted: _AdmittedRequest | None = scope.get(ADMITTED)
    if admitted is None:
        return lambda: lambda: None
    return lambda: admitted.admission.begin_turn(admitted.caller)


def note_answered(scope: Scope) -> None:
    """The last bytes of the answer to this request are on their way."""
    admitted: _AdmittedRequest | None = scope.get(ADMITTED)
    if admitted is not None:
        admitted.answer()


class AdmissionMiddleware:
    """ASGI middleware that refuses requests beyond the limits, in the error shape of the path's protocol.

    It stands behind `AuthMiddleware`, which finds the caller.
    """

    def __init__(
        self, app: ASGIApp, *, admission: Admission, refused: Callable[[str], None] = lambda reason: None
    ) -> None:
        """`refused` is called with `rate`, `client` or `house` (all callers together) at each refusal."""
        self._app = app
        self._admission = admission
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get(CALLER)
        if scope["type"] != "http" or caller is None:
            await self._app(scope, receive, send)
            return
        try:
            headers = self._admission.spend(caller)
        except RateLimited as error:
            left = self._admission.left(caller)
            await refuse(scope, send, error, "rate", count=self._refused, headers=left)
            return
        if headers:
            send = with_headers(send, headers)
        if scope["method"] in _REPORTING:
            await self._app(scope, receive, send)
            return
        try:
            self._admission.enter(caller, beside_turns=scope["path"].startswith("/v1/chats"))
        except RateLimited as error:
            reason = "house" if isinstance(error, ServerOverloaded) else "client"
            await refuse(scope, send, error, reason, count=self._refused)
            return
        admitted = scope[ADMITTED] = _AdmittedRequest(self._admission, caller)
        try:
            await self._app(scope, admitted.metering(receive), send)
        finally:
            admitted.leave()


def _name(caller: Caller) -> str:
    # A name of a key is never an address.
    return f"key {caller.key}" if caller.key else caller.address
