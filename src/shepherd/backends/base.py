"""The interface of every back end: messages in, events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from shepherd.core import Event, Request


class Backend(Protocol):
    """Answers requests: a cache of our own engine, a provider, a wrapper around another back end.

    Safe for concurrent use from one event loop.
    """

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer, in the grammar of `core.events`.

        The first event, `Started`, comes when the request is known to fit, before any long work. Closing the iterator
        (`aclosing`) cancels the work at once.

        Raises: `InvalidRequest`, `ContextFull`, `UnknownModel` before `Started`; `EngineError`, `BackendError` at any
        time.
        """
        ...
