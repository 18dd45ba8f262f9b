"""The seam of every back end: messages in, events out; and the facts a back end tells about itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from shepherd.core import Event, Request


class Backend(Protocol):
    """Whatever can answer a request: a cache of our own engine, a provider, a router over several.

    Safe for concurrent use from one event loop.
    """

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer, in the grammar of `core.events`.

        The first event, `Started`, comes when the request is known to fit and before any work that takes long. Leaving
        the iteration (`aclosing`) cancels the work at once.

        Raises: `InvalidRequest`, `ContextFull`, `UnknownModel` before `Started`; `EngineError`, `BackendError` at any
        time.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What `/v1/models` says of one model."""

    id: str
    n_ctx: int
    """Tokens that one conversation can hold."""
    created: int
    """Unix time of the model file, in seconds."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """How full one cache is."""

    n_ctx: int
    used: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether requests can be answered now."""

    status: Literal["ok", "loading", "error"]
    backend: str
    model: str
    """File name of the default model, without its folder."""
    caches: Mapping[str, CacheUsage] = field(default_factory=dict)
    detail: str = ""
    """What is wrong or being waited for; one sentence for a person."""
