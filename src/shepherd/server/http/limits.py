"""How much one caller may ask for, so that there is always something left for the others.

    request ─ Guard (who is it?) ─ Gate ─▶ router ─▶ ... ─ admit_choices
                                    │ too many per minute, or too many at once: 429
                                    └ the house is full: 503

A caller is a key; without keys, an address. Requests per minute count whatever a key asks. What is limited at the same
time are requests that make the server work: GET and HEAD only tell, and whoever watches a full house must get in. A
body that asks for several answers counts as that many requests.

Not here: the length of one request (`body`), the room in a model's context (the engine), who may ask at all (`auth`).
Event loop only.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.core import InvalidRequest, RateLimited
from shepherd.server.http.body import EncodeError, RawHeaders, send_json
from shepherd.server.observe.record import CALLER, REQUEST_ID, Caller, shown

logger = logging.getLogger("shepherd.server")

PASS = "shepherd.pass"  # noqa: S105 - what a caller holds while inside
"""Key in the ASGI scope."""

CONCURRENT = 256
"""Requests in the house: each may hold a body and a connection, and the engine's queues are shorter."""
PER_CLIENT = 32
"""Of them by one caller: half of the queue of a cache, so that nobody fills one alone."""
MAX_CHOICES = 64
"""Answers that one body may ask for: the length of a cache's queue."""
HELD_BYTES = 2**30
"""Of bodies that are being read or answered, all together: a few of the largest, thousands of ordinary ones."""
BUSY_RETRY_S = 2.0
"""When to come back: nobody knows how long the answers in the making will take."""

_TELLING = frozenset(("GET", "HEAD", "OPTIONS"))


class HouseFull(RateLimited):
    """Everybody together asks for more than there is."""

    status = 503
    code = "overloaded"


@dataclass(slots=True)
class _Allowance:
    """So many requests per minute: they come back one by one, and a minute's worth can be saved up."""

    per_minute: int
    left: float
    at_s: float

    def take(self, now_s: float) -> bool:
        """Use up one request, if one is left."""
        self.left = min(self.per_minute, self.left + (now_s - self.at_s) * self.per_minute / 60)
        self.at_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True

    @property
    def wait_s(self) -> float:
        """Until one is left."""
        return max(0.0, (1 - self.left) * 60 / self.per_minute) if self.per_minute else 3600.0

    @property
    def refill_s(self) -> float:
        """Until all are."""
        return (self.per_minute - self.left) * 60 / self.per_minute if self.per_minute else 3600.0


class Gates:
    """The counts of one application."""

    def __init__(
        self,
        *,
        concurrent: int = CONCURRENT,
        per_client: int = PER_CLIENT,
        held_bytes: int = HELD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`concurrent`: requests at the same time. `per_client`: of them by one caller whose key says nothing else, if
        others can be there. `held_bytes`: of their bodies. `clock`: seconds that never go back."""
        self._concurrent = concurrent
        self._per_client = per_client
        self._held_bytes = held_bytes
        self._clock = clock
        self._inside: Counter[str] = Counter()
        """By caller; who is not inside is not in it."""
        self._allowances: dict[str, _Allowance] = {}
        """By key."""
        self.n_held_bytes = 0

    @property
    def n_active(self) -> int:
        """Requests, or answers where a request asks for several, that are inside."""
        return self._inside.total()

    def spend(self, caller: Caller) -> RawHeaders:
        """Take one request off the caller's minute; the headers that tell what is left of it.

        Raises: `RateLimited`.
        """
        limit = caller.requests_per_minute
        if limit is None:
            return []
        now_s = self._clock()
        allowance = self._allowances.setdefault(caller.key, _Allowance(limit, limit, now_s))
        if not allowance.take(now_s):
            raise RateLimited(
                f"this API key may send {limit} requests per minute; try again in {math.ceil(allowance.wait_s)} s",
                backend="server",
                retry_after_s=allowance.wait_s,
            )
        return _rate_headers(allowance)

    def left(self, caller: Caller) -> RawHeaders:
        """The headers that tell what is left of the caller's minute."""
        allowance = self._allowances.get(caller.key)
        return [] if allowance is None else _rate_headers(allowance)

    def enter(self, caller: Caller, n: int = 1) -> None:
        """Let `n` more requests of the caller in; every one must `leave`.

        Raises: `RateLimited` when the caller has too many inside, `HouseFull` when all together have.
        """
        name = _name(caller)
        limit = self._limit(caller)
        if limit is not None and self._inside[name] + n > limit:
            self._forget(name)
            raise RateLimited(
                f"this {'API key' if caller.key else 'address'} may have {limit} requests answered at the same time; "
                "wait for one to end",
                backend="server",
                retry_after_s=BUSY_RETRY_S,
            )
        if self.n_active + n > self._concurrent:
            self._forget(name)
            raise HouseFull(
                f"the server is busy: it answers {self._concurrent} requests at the same time; try again",
                backend="server",
                retry_after_s=BUSY_RETRY_S,
            )
        self._inside[name] += n

    def leave(self, caller: Caller, n: int = 1) -> None:
        """`n` requests of the caller have ended."""
        name = _name(caller)
        self._inside[name] -= n
        self._forget(name)

    def hold(self, n_bytes: int) -> None:
        """Make room for so much of a body; whoever holds it must `drop` it. Raises: `HouseFull`."""
        if self.n_held_bytes + n_bytes > self._held_bytes:
            raise HouseFull(
                f"the server is busy: the requests that it answers hold {self.n_held_bytes} bytes already; try again",
                backend="server",
                retry_after_s=BUSY_RETRY_S,
            )
        self.n_held_bytes += n_bytes

    def drop(self, n_bytes: int) -> None:
        """So much is held no more."""
        self.n_held_bytes -= n_bytes

    def _limit(self, caller: Caller) -> int | None:
        if caller.concurrent is not None:
            return caller.concurrent
        return None if caller.is_alone else self._per_client

    def _forget(self, name: str) -> None:
        if not self._inside[name]:
            del self._inside[name]  # callers come from everywhere: no trace of who has gone


@dataclass(slots=True)
class _Pass:
    """What one request has taken of its caller's share."""

    gates: Gates
    caller: Caller
    n: int = 1
    n_bytes: int = 0

    def metering(self, receive: Receive) -> Receive:
        """`receive`, and what it brings is held. Its calls raise `HouseFull`, too."""

        async def metered() -> Message:
            message = await receive()
            n_bytes = len(message.get("body", b""))
            self.gates.hold(n_bytes)
            self.n_bytes += n_bytes
            return message

        return metered

    def close(self) -> None:
        """Give all of it back."""
        self.gates.leave(self.caller, self.n)
        self.gates.drop(self.n_bytes)

    def widen(self, n: int) -> None:
        """Make it `n` in all. Raises: as `Gates.enter`."""
        if n > self.n:
            self.gates.enter(self.caller, n - self.n)
            self.n = n


def admit_choices(scope: Scope, n_choices: int) -> None:
    """Count a request whose body asks for `n_choices` answers as that many.

    Raises: `InvalidRequest` when no body may ask for so many; `RateLimited`, `HouseFull` when they are too many now.
    """
    if n_choices > MAX_CHOICES:
        raise InvalidRequest(
            f"the body asks for {n_choices} answers (prompts times n) and may for {MAX_CHOICES}; send several requests"
        )
    admitted: _Pass | None = scope.get(PASS)
    if admitted is not None:
        admitted.widen(n_choices)


class Gate:
    """ASGI middleware inside of `Guard` that refuses what is too much, in the error shape of the path's protocol."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        gates: Gates,
        encode_error: EncodeError,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`refused` is told `rate`, `client` or `house` at each refusal."""
        self._app = app
        self._encode_error = encode_error
        self._gates = gates
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get(CALLER)
        if scope["type"] != "http" or caller is None:
            await self._app(scope, receive, send)
            return
        try:
            headers = self._gates.spend(caller)
        except RateLimited as error:
            await self._refuse("rate", error, self._gates.left(caller), scope, send)
            return
        if headers:
            send = _telling(send, headers)
        if scope["method"] in _TELLING:
            await self._app(scope, receive, send)
            return
        try:
            self._gates.enter(caller)
        except RateLimited as error:
            await self._refuse("house" if isinstance(error, HouseFull) else "client", error, [], scope, send)
            return
        admitted = scope[PASS] = _Pass(self._gates, caller)
        try:
            await self._app(scope, admitted.metering(receive), send)
        finally:
            admitted.close()

    async def _refuse(self, reason: str, error: RateLimited, headers: RawHeaders, scope: Scope, send: Send) -> None:
        caller: Caller = scope[CALLER]
        status, body = self._encode_error(scope["path"], error)
        logger.info("%s refused status=%d reason=%s key=%s path=%s", scope.get(REQUEST_ID, "-"), status, reason,
                    shown(caller.key), shown(scope["path"]))  # fmt: skip
        self._refused(reason)
        wait_s = max(1, math.ceil(error.retry_after_s or 0))
        await send_json(send, status, body, [(b"retry-after", str(wait_s).encode()), *headers])


def _name(caller: Caller) -> str:
    # No key is called like an address.
    return f"key {caller.key}" if caller.key else caller.address


def _rate_headers(allowance: _Allowance) -> RawHeaders:
    """As OpenAI names them."""
    said = {
        "limit": str(allowance.per_minute),
        "remaining": str(int(allowance.left)),
        "reset": f"{math.ceil(allowance.refill_s)}s",
    }
    return [(f"x-ratelimit-{name}-requests".encode(), value.encode()) for name, value in said.items()]


def _telling(send: Send, headers: RawHeaders) -> Callable[[Message], Awaitable[None]]:
    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return telling
