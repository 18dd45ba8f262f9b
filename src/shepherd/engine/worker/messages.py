"""What crosses between this process and the child: lists of requests in one direction, lists of answers in the other.

    Build ─▶ ( Submit | Cancel | Watch | Call | Close )* End    Progress* Ready ( State | Steps | Seen | Returned ... )*

All that is ready at one moment is one list, one message: a step costs no system call of its own. Numbers name jobs and
calls; a number that the receiver does not know has ended there, and is ignored. An engine is named by its index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shepherd.core import ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.base import Engine, Job, Step
from shepherd.engine.gate import Gate
from shepherd.engine.kv.tiers.arena import Arena, Region
from shepherd.engine.stats import CacheStats
from shepherd.engine.window import Fact

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


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """What a factory makes in the child: the engines of one model, and what else can be asked of it."""

    engines: Sequence[RemoteEngine] = ()
    facts: object = None
    """For the other side; a value that crosses."""
    calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions that the other side calls by name, in threads; each takes `is_wanted` besides its arguments."""
    prepare: Callable[[Job], None] | None = None
    """What a job needs before an engine gets it and that takes long, in a thread. Raises: `ShepherdError`."""
    down: Callable[[], str | None] = lambda: None
    """Why `calls` compute nothing."""
    stats: Callable[[], CacheStats] = lambda: CacheStats(0)
    """What `calls` have computed, of a model without engines."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a child offers to the factory, as its keyword `workplace`."""

    report: Callable[[str, float], None] = lambda stage, fraction: None
    """Tell the other side how far the model is."""
    arena: Arena | None = None
    """Memory that outlives this process."""


class Build(NamedTuple):
    """The first request: make the model. With an arena, its handle comes next."""

    factory: str
    """`package.module:function`; it returns a `RemoteModel`, in the main thread."""
    arguments: tuple[object, ...]
    levels: Mapping[str, int]
    """Logger -> level: what is logged in the child and comes back as `Logged`."""
    regions: Mapping[str, Region] | None = None
    """What is in the arena; None = there is none."""


class Submit(NamedTuple):
    number: int
    engine: int
    job: Job


class Cancel(NamedTuple):
    """End a job, a call or a watch."""

    number: int


class Watch(NamedTuple):
    """Show what an engine's cache holds, as it changes, until `Cancel`."""

    number: int
    engine: int


class Call(NamedTuple):
    """Call one of an engine's `CALLS`, or one of the model's."""

    number: int
    engine: int | None
    method: str
    arguments: tuple[object, ...]
    keywords: Mapping[str, object]


CALLS = frozenset({"clear", "evict", "held", "beginning_with", "tokens"})


class Close(NamedTuple):
    number: int
    engine: int
    timeout_s: float


class End(NamedTuple):
    """End the process."""


Request = Build | Submit | Cancel | Watch | Call | Close | End


class Progress(NamedTuple):
    """Of `Build`."""

    stage: str
    fraction: float


class EngineFacts(NamedTuple):
    gate: Gate
    n_low: int


class Ready(NamedTuple):
    """The model works."""

    engines: tuple[EngineFacts, ...]
    facts: object


class State(NamedTuple):
    """Pushed at least once in `BEAT_S` for each engine, and before every answer that ends a job or a call of it."""

    engine: int | None
    """None: of a model without engines."""
    stats: CacheStats
    down: str | None
    is_saving: bool = False
    """It writes conversations to disk before it closes, which takes as long as it takes."""


class Beat(NamedTuple):
    """A sign of life before `Ready`."""


class Steps(NamedTuple):
    number: int
    steps: list[Step]


class Seen(NamedTuple):
    """Of a watch; a `State` of the same moment, or a later one, comes before it."""

    number: int
    facts: list[Fact]


class Returned(NamedTuple):
    number: int
    value: Any


class Failed(NamedTuple):
    """The end of a job or a call; number 0: of `Build`."""

    number: int
    error: ShepherdError


class Kept(NamedTuple):
    """A region of the arena holds something now; without a region it does no longer."""

    key: str
    region: Region | None


class Ended(NamedTuple):
    """The process ends."""


class Logged(NamedTuple):
    logger: str
    level: int
    text: str


Answer = Progress | Ready | State | Beat | Steps | Seen | Returned | Failed | Kept | Ended | Logged
