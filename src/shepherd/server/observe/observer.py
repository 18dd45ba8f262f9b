"""Observers of requests: debug files, recordings, traces.

One observer per request, made when it arrives and closed when its record is complete. The event loop calls observers:
they must not block it. An observer that fails is logged and removed; the client is not affected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Scope

from shepherd.core import Event
from shepherd.server.observe.record import Record
from shepherd.wire.base import Decoded

logger = logging.getLogger("shepherd.server")


class Observer:
    """Follows one request. A subclass overrides the methods that it needs."""

    wants_trace = False
    """Whether back ends must report the model's input and output (`Traced`)."""

    def receive(self, scope: Scope, body: bytes) -> None:
        """The whole body has come."""

    def decode(self, decoded: Decoded[Any]) -> None:
        """The body has been decoded."""

    def see(self, event: Event, choice: int) -> None:
        """An event of the answer has come, before it is encoded."""

    def send(self, fragment: bytes) -> None:
        """These bytes of the answer's body go out: one event of a stream, or a whole body."""

    def close(self, record: Record) -> None:
        """The request has ended; `record` is complete."""


ObserverFactory = Callable[[Record], Observer]
"""Makes the observer of a request that has just arrived."""


class Observers:
    def __init__(self, makers: Sequence[ObserverFactory], record: Record) -> None:
        self._all: list[Observer] = []
        for make in makers:
            try:
                self._all.append(make(record))
            except Exception:
                logger.exception("%s: an observer could not be made", record.id)

    @property
    def wants_trace(self) -> bool:
        return any(observer.wants_trace for observer in self._all)

    def receive(self, scope: Scope, body: bytes) -> None:
        self._call(lambda observer: observer.receive(scope, body))

    def decode(self, decoded: Decoded[Any]) -> None:
        self._call(lambda observer: observer.decode(decoded))

    def see(self, event: Event, choice: int) -> None:
        if self._all:
            self._call(lambda observer: observer.see(event, choice))

    def send(self, fragment: bytes) -> None:
        if self._all:
            self._call(lambda observer: observer.send(fragment))

    def close(self, record: Record) -> None:
        self._call(lambda observer: observer.close(record))

    def _call(self, what: Callable[[Observer], None]) -> None:
        for observer in tuple(self._all):
            try:
                what(observer)
            except Exception:
                logger.exception("an observer of a request failed and is removed")
                self._all.remove(observer)
