"""Which of several servers of one provider answers a request: one that can, that has the request's beginning in its
cache, and that is not much busier than the others.

    request ─ marks ──┐
    looks, failures ──┤
    open requests ────┴─ Replicas.order ─▶ names, the best first ─▶ fallback.first_to_answer

Not asked at all: replicas that an operator has taken out, and those that do not list the model although another one
does. Asked last: those that rest (`fallback.Health`) after a failure or a look at them. The others stand in this order:

    1. not full before full. Of n open requests of the group, this one included, a replica of the weight w may have
       max(FREE, ceil(CROWD · n · w / W)), where W is the weight of all that can be asked
    2. the one that has answered the longest beginning of this request: the conversation so far, its session, or else a
       long system prompt with tools
    3. the least loaded: open requests by weight
    4. weighted rendezvous hashing of the conversation's beginning, which a restart, and other routers with the same
       addresses, repeat; a replica that comes or goes moves only its own share. A request without a beginning, such as
       one for vectors, goes to the replica that was asked the longest time ago

The bound is that of "Consistent Hashing with Bounded Loads" (Mirrokni, Thorup, Zadimoghaddam, 2016, arXiv 1608.01350);
the hashing that of "Weighted Distributed Hash Tables" (Schindelhauer, Schomaker, 2005). FREE is needed beside the
bound: engines compute a few answers at once at the price of one, and a long prompt that is computed again elsewhere
costs more than company. Which beginning a replica has is known from what it was asked, as SGLang's router does it; its
cache is not looked at. One event loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import accumulate, chain

from shepherd.backends.fallback import Health
from shepherd.core import Request
from shepherd.core.dataclasses import dataclass
from shepherd.core.lru import LruCache
from shepherd.core.status import ReplicaState, ReplicaStatus
from shepherd.wire.names import model_names

logger = logging.getLogger(__name__)

FREE = 4
"""Open requests that make no replica full."""
CROWD = 1.25
"""How much more than its share a replica may have, as HAProxy and Envoy recommend (1.25 to 2)."""
LONG = 2_000
"""Characters of a system prompt with its tools from which on it is worth to be found in a cache: some 500 tokens."""
MARKS = 100_000
"""Beginnings that are remembered, of all groups; each takes some 400 bytes."""
LATEST = 64
"""Messages of a conversation, from its end, at which an earlier request may have ended."""
MISSES = 2
"""Looks in a row that find no connection until a replica rests: a busy one may miss one."""
MOST_SHOWN = 100
"""Of the models that a replica lists."""
AGAIN_S, LONGEST_S = 1.0, 60.0
"""Until a replica that could not be seen is looked at again: the first pause, which doubles, and the longest."""


@dataclass(frozen=True, slots=True)
class Replica:
    name: str
    address: str
    """What is hashed: a name may be a number in a list."""
    model: str
    """What it will be asked for."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a replica has found; see `CloudBackend.look`."""

    problem: str = ""
    """Empty = it takes requests."""
    is_answer: bool = False
    """The problem is what the replica itself says: it is loading, or stopping."""
    models: frozenset[str] | None = None
    """What it lists; None = as before."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The beginnings of one request."""

    all: tuple[bytes, ...]
    """The strongest first."""
    kept: tuple[bytes, ...]
    """Those by which a later request of the conversation finds this one."""
    first: bytes
    """Of the beginning that all requests of the conversation have."""


@dataclass(slots=True)
class _State:
    n_open: int = 0
    asked_at: int = 0
    """The number of the last request, of those of all replicas."""
    is_out: bool = False
    models: frozenset[str] | None = None
    """That it lists, in small letters."""
    names: tuple[str, ...] = ()
    """Some of them, as it writes them."""
    n_missed: int = 0
    """Looks in a row that found a problem."""


class Replicas:
    """All replicas of a program, by name."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self._states: dict[str, _State] = {}
        self._marks: LruCache[dict[str, int]] = LruCache(MARKS)
        """By beginning, the replicas that have answered it, with the times that each had been away before."""
        self._n_asked = 0
        self._last: tuple[Request | None, Marks] = (None, Marks((), (), b""))

    def add(self, name: str) -> None:
        self._states.setdefault(name, _State())

    def __contains__(self, name: object) -> bool:
        return name in self._states

    # -- the choice

    def order(self, group: Sequence[Replica], request: Request) -> tuple[str, ...]:
        """The names of those that may be asked, the best first; empty where all of them are taken out."""
        able = [each for each in group if not self._states[each.name].is_out]
        able = [each for each in able if self._lists(each)] or able
        awake = [each for each in able if not self.health.rests(each.name)]
        among = awake or able
        marks = self._marks_of(request)
        held = self._held(marks)
        n_open = 1 + sum(self._states[each.name].n_open for each in among)
        share = CROWD * n_open / (sum(each.weight for each in among) or 1.0)

        def rank(replica: Replica) -> tuple[bool, bool, float, float, float]:
            n_own = self._states[replica.name].n_open
            is_full = n_own >= max(FREE, math.ceil(share * replica.weight))
            has = 0 if is_full else held.get(replica.name, 0)
            tie = -_score(replica, marks.first) if marks.first else float(self._states[replica.name].asked_at)
            return replica not in among, is_full, -has, n_own / replica.weight, tie

        return tuple(each.name for each in sorted(able, key=rank))

    def _lists(self, replica: Replica) -> bool:
        models = self._states[replica.name].models
        return models is None or not replica.model or any(_small(each) in models for each in model_names(replica.model))

    def _held(self, marks: Marks) -> dict[str, int]:
        """By replica, how strong a mark of the request it has; 0 = none, and it is left out."""
        held: dict[str, int] = {}
        for strength, mark in zip(range(len(marks.all), 0, -1), marks.all, strict=True):
            for name, n_away in (self._marks.find(mark) or {}).items():
                if n_away == self.health.n_away(name):
                    held.setdefault(name, strength)
        return held

    def _marks_of(self, request: Request) -> Marks:
        if self._last[0] is not request:  # it is asked for the order, and again by the attempt at once
            self._last = request, marks_of(request)
        return self._last[1]

    @contextmanager
    def answering(self, name: str, request: Request) -> Iterator[None]:
        """A request is open at a replica for the length of the block, and the replica has its beginning from now on."""
        if (state := self._states.get(name)) is None:
            yield
            return
        for mark in self._marks_of(request).kept:
            holders = self._marks.find(mark) or {}
            self._marks.keep(mark, {**holders, name: self.health.n_away(name)})
        self._n_asked += 1
        state.asked_at = self._n_asked
        state.n_open += 1
        try:
            yield
        finally:
            state.n_open -= 1

    # -- what is known of them

    def see(self, name: str, look: Look, every_s: float) -> float:
        """Note a look at a replica; seconds until the next one, `every_s` where it takes requests."""
        state = self._states[name]
        if look.models is not None:
            state.models = frozenset(map(_small, look.models))
            state.names = tuple(sorted(look.models)[:MOST_SHOWN])
        if not look.problem:
            if self.health.wake(name):
                logger.info("%s can be asked again", name)
            state.n_missed = 0
            return every_s
        state.n_missed += 1
        if look.is_answer or state.n_missed >= MISSES:
            if not self.health.rests(name):
                logger.warning("%s is not asked for now: %s", name, look.problem)
            self.health.rest(name, look.problem)
        return min(LONGEST_S, AGAIN_S * 2.0 ** min(state.n_missed - 1, 10))

    def wants_models(self, name: str) -> bool:
        """Whether its list of models is not known, or may be another one since it was away."""
        return self._states[name].models is None or self._states[name].n_missed > 0

    def take_out(self, name: str, *, is_out: bool) -> None:
        """Let a replica get no new requests, or some again; running answers end."""
        self._states[name].is_out = is_out

    def status(self, name: str) -> ReplicaStatus:
        state = self._states[name]
        rests_s = self.health.down().get(name)
        word: ReplicaState = "ready" if rests_s is None else "resting"
        if state.is_out:
            word = "draining" if state.n_open else "drained"
        detail = self.health.reason(name) if rests_s is not None else ""
        return ReplicaStatus(word, state.n_open, max(0.0, rests_s or 0.0), detail, state.names)


def marks_of(request: Request) -> Marks:
    """Hashes of the beginnings of a request: of the conversation after each message, of its session, and of its system
    prompt with its tools where that is long."""
    from shepherd.backends.local.prefix_hash import prefix_hashes, text_hash, tool_hash  # noqa: PLC0415 - few need it

    messages = request.messages
    n_system = next((at for at, each in enumerate(messages) if each.role != "system"), len(messages))
    tools = b"".join(map(tool_hash, request.tools))
    hashes = prefix_hashes(messages, tools.hex())
    sizes = chain(
        (len(each.text) for each in messages[:n_system]),
        (len(each.description) + len(repr(each.parameters)) for each in request.tools),
    )
    is_long = any(size >= LONG for size in accumulate(sizes))
    session = text_hash(repr((request.owner, request.session))) if request.session else b""
    turns = hashes[max(n_system, len(hashes) - LATEST) :]
    head = text_hash(repr((tools, hashes[n_system - 1] if n_system else b""))) if is_long else b""
    found = (*reversed(turns), *hashes[n_system : n_system + 1], session, head)
    first = session or (hashes[n_system] if n_system < len(hashes) else head)
    last = hashes[-1] if n_system < len(hashes) else b""
    return Marks(tuple(filter(None, found)), tuple(filter(None, (last, session, head))), first)


def _small(model: str) -> str:
    return model.casefold().removesuffix(":latest")  # Ollama lists it, and takes the name without it


def _score(replica: Replica, key: bytes) -> float:
    """From 0 up; the replica with the highest one has the key. As often as its weight says."""
    digest = blake2b(replica.address.encode("utf-8", "replace") + b"\0" + key, digest_size=8).digest()
    return -replica.weight / math.log((int.from_bytes(digest, "big") + 1) / (2**64 + 1))
