"""Which cache answers a request: the routes of the configuration, first match in file order.

A rule's keys are and-ed, globs ignore case, and a request that no rule matches is refused with the names that exist:
there is no silent default.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from shepherd.backends.base import Backend
from shepherd.core import Event, OnFull, Request, UnknownModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """One rule. `None` matches everything."""

    target: str
    """The name of a back end."""
    match: str | None = None
    """A glob over the requested model name."""
    model: str | None = None
    """An exact model name."""
    endpoint: str | None = None
    """An exact path, such as `/v1/messages`."""
    on_full: OnFull | None = None
    """For requests that do not say; so are the three below."""
    user: str | None = None
    archive: bool | None = None
    recall: bool | None = None

    def takes(self, model: str, endpoint: str) -> bool:
        name = model.casefold()
        return (
            (self.endpoint is None or self.endpoint == endpoint)
            and (self.model is None or self.model.casefold() == name)
            and (self.match is None or fnmatchcase(name, self.match.casefold()))
        )


_POLICY = ("on_full", "user", "archive", "recall")
"""What a route says for requests that do not."""


class Router:
    """Several back ends behind one; satisfies `Backend`."""

    def __init__(self, backends: Mapping[str, Backend], routes: Sequence[Route]) -> None:
        self._backends = backends
        self._routes = tuple(routes)

    def choose(self, model: str, endpoint: str = "") -> str:
        """The name of the back end for `model`. Raises: `UnknownModel`."""
        return self._find(model, endpoint).target

    def _find(self, model: str, endpoint: str) -> Route:
        for route in self._routes:
            if route.takes(model, endpoint):
                logger.debug("model %r on %r goes to %r", model, endpoint, route.target)
                return route
        raise UnknownModel(model, known=tuple(route.model or route.match or "*" for route in self._routes))

    def stream(self, request: Request, *, endpoint: str = "") -> AsyncGenerator[Event, None]:
        """See `Backend.stream`; `endpoint` is the path the request came in by."""
        route = self._find(request.model, endpoint)
        silent = {name: value for name in _POLICY if getattr(request, name) is None and (value := getattr(route, name))}
        return self._backends[route.target].stream(replace(request, **silent) if silent else request)
