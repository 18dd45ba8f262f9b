"""Chooses the cache for a request: the first route of the configuration that matches, in file order.

All keys of a rule must match, and globs ignore case. A request that matches no rule is refused with the names that
exist: there is no silent default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from shepherd.core import OnFull, Request, UnknownModel
from shepherd.core.dataclasses import dataclass, replace
from shepherd.wire.names import endpoint_names, full_path, model_names

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """One rule. `None` matches everything."""

    target: str
    match: str | None = None
    """A glob over the requested model name."""
    model: str | None = None
    """An exact model name."""
    endpoint: str | None = None
    """A path, such as `/v1/messages`, or a glob over paths; see `endpoint_names`."""
    on_full: OnFull | None = None
    """For requests that leave it open; so are the four below."""
    user: str | None = None
    archive: bool | None = None
    recall: bool | None = None
    background: bool | None = None
    fallback: tuple[str, ...] = ()
    """Back ends that answer where the target cannot, in order."""
    is_private: bool = False
    """No prompt leaves this machine."""

    def takes(self, model: str, endpoint: str) -> bool:
        return self._takes_path(endpoint) and any(self._takes_name(name.casefold()) for name in model_names(model))

    def _takes_path(self, path: str) -> bool:
        globs = () if self.endpoint is None else (self.endpoint, full_path(self.endpoint))
        return not globs or any(fnmatchcase(name, glob) for name in endpoint_names(path) for glob in globs)

    def _takes_name(self, name: str) -> bool:
        return (self.model is None or self.model.casefold() == name) and (
            self.match is None or fnmatchcase(name, self.match.casefold())
        )

    def fill(self, request: Request) -> Request:
        """The request, with this route's values for the fields that it leaves open."""
        silent = {name: value for name in _POLICY if getattr(request, name) is None and (value := getattr(self, name))}
        return replace(request, **silent) if silent else request


_POLICY = ("on_full", "user", "archive", "recall", "background")
"""Fields that a route fills in."""


def base_of(model: str, adapters: Mapping[str, str]) -> str | None:
    """The model of a name with an adapter, which ignores case; None for other names."""
    if not adapters:
        return None
    asked = {name.casefold() for name in model_names(model)}
    return next((base for name, base in adapters.items() if name.casefold() in asked), None)


class Router:
    def __init__(
        self,
        routes: Sequence[Route],
        models: Sequence[str] = (),
        meaning: Callable[[str], str] = str,
        *,
        adapters: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`models`: names for the message of a refusal, besides those of the rules. `meaning`: what a name stands for
        that is an alias, and any other name itself; a rule takes a request by both. `adapters`: by the name of a model
        with an adapter, the model's: a rule for the one takes the other."""
        self._routes = tuple(routes)
        self._models = tuple(models)
        self.meaning = meaning
        self._adapters = adapters

    def names(self) -> dict[str, str]:
        """The names that a rule has without a glob, and the target of each."""
        exact = dict.fromkeys(route.model for route in self._routes if route.model is not None)
        return {name: route.target for name in exact if (route := self.find(name)) is not None}

    def globless(self) -> dict[str, str]:
        """As `names`, with globs that match one name only."""
        exact = (route.match for route in self._routes if route.match and not set(route.match) & set("*?["))
        targets = {name: route.target for name in exact if (route := self.find(name)) is not None}
        return self.names() | targets

    def choose(self, model: str, endpoint: str = "") -> Route:
        """The rule for a request that names `model` and came by the path `endpoint`. Raises: `UnknownModel`."""
        if (route := self.find(model, endpoint)) is not None:
            logger.debug("model %r on %r goes to %r", model, endpoint, route.target)
            return route
        rules = (route.model or route.match or "*" for route in self._routes)
        raise UnknownModel(model, known=tuple(dict.fromkeys((*self._models, *rules))))

    def find(self, model: str, endpoint: str = "") -> Route | None:
        """As `choose`; None where no rule takes the request."""
        meaning = self.meaning(model)
        names = dict.fromkeys((model, meaning, base_of(meaning, self._adapters()) or meaning))
        return next((route for route in self._routes if any(route.takes(name, endpoint) for name in names)), None)
