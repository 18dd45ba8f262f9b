"""What crosses between this process and the child: lists of requests in one direction, lists of answers in the other.

    Build ─▶ ( Submit | Cancel | Call )* Close          Ready ( State | Steps | Returned | Failed | Logged )*

All that is ready at one moment is one list, one message: a step costs no system call of its own. Numbers name jobs and
calls; a number that the receiver does not know has ended there, and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from shepherd.core import ShepherdError
from shepherd.engine.base import Engine, Job, Step
from shepherd.engine.gate import Gate
from shepherd.engine.stats import CacheStats

ADDRESS = "SHEPHERD_WORKER_ADDRESS"
"""The variable with the path of the socket. It stays in the environment: it marks all processes of one child."""
KEY = "SHEPHERD_WORKER_KEY"
"""The variable with the key of the connection, in hexadecimal digits; the child deletes it at once."""
BEAT_S = 1.0
"""Longest time between two messages of a child that lives."""


class RemoteEngine(Engine, Protocol):
    """An engine that a child can serve."""

    @property
    def gate(self) -> Gate:
        """What it checks of a job; the same checks are made where the job is submitted."""


class Build(NamedTuple):
    """The first request: make the engine."""

    factory: str
    """`package.module:function`; it returns a `RemoteEngine`, in the main thread."""
    arguments: tuple[object, ...]
    levels: Mapping[str, int]
    """Logger -> level: what is logged in the child and comes back as `Logged`."""


class Submit(NamedTuple):
    number: int
    job: Job


class Cancel(NamedTuple):
    number: int


class Call(NamedTuple):
    """Call one of the engine's `CALLS`."""

    number: int
    method: str
    arguments: tuple[object, ...]
    keywords: Mapping[str, object]


CALLS = frozenset({"clear", "evict", "held", "beginning_with"})


class Close(NamedTuple):
    timeout_s: float


Request = Build | Submit | Cancel | Call | Close


class Ready(NamedTuple):
    """The engine works."""

    gate: Gate
    n_low: int


class State(NamedTuple):
    """Pushed at least once in `BEAT_S`, and before every answer that ends a job or a call."""

    stats: CacheStats
    down: str | None


class Steps(NamedTuple):
    number: int
    steps: list[Step]


class Returned(NamedTuple):
    number: int
    value: Any


class Failed(NamedTuple):
    """The end of a job or a call; number 0: of `Build`."""

    number: int
    error: ShepherdError


class Closed(NamedTuple):
    """The engine has closed; the process ends."""


class Logged(NamedTuple):
    logger: str
    level: int
    text: str


Answer = Ready | State | Steps | Returned | Failed | Closed | Logged
