"""Back ends of other packages, by name: what `type` of a provider may say beside the kinds that Shepherd knows.

    entry point `shepherd.backends` ─┐
    register(name, maker) ───────────┴─ find(name) ─▶ BackendMaker ─ BackendSettings ─▶ Backend

A package is imported when a configuration or a command names its back end, not before. Not here: how such a back end is
asked and checked (`cloud/packaged.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from shepherd.backends.base import Backend
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field

ENTRY_POINTS = "shepherd.backends"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """What the configuration says of a provider whose `type` is a registered back end."""

    name: str
    """Of the provider: `[providers.NAME]`."""
    model: str | None = None
    """The model that takes the place of the one a request names."""
    n_ctx: int | None = None
    base_url: str | None = None
    key: str | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)


class BackendMaker(Protocol):
    """A class or a function. It may have two attributes: `title`, a text for people, and `is_local`: True where prompts
    stay on this machine (False without it, so that no private route leads there)."""

    def __call__(self, settings: BackendSettings, /) -> Backend:
        """Raises: `ConfigError` for settings that it cannot use."""
        ...


_registered: dict[str, BackendMaker] = {}


def register(name: str, maker: BackendMaker) -> None:
    """Let `type = NAME` of a provider mean this back end, in this process; a later one of the name replaces it.

    Raises: `ValueError` for a name that is not in small letters, digits and `_.-`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name a back end; use small letters, digits and _ . -")
    _registered[name] = maker


def names() -> tuple[str, ...]:
    """All that can be named; imports no package."""
    return tuple(sorted({*_registered, *_points()}))


def find(name: str) -> BackendMaker | None:
    """The back end of a name in small letters. Raises: `ConfigError` where its package cannot be imported."""
    if (maker := _registered.get(name)) is None and (point := _points().get(name)) is not None:
        try:
            maker = point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.module
            raise ConfigError(
                f"the back end {name!r} of the package {package} cannot be loaded ({type(error).__name__}: {error}); "
                "repair or remove the package"
            ) from error
        if not callable(maker):
            raise ConfigError(
                f"the back end {name!r} is {point.value}, which is not a class or a function that makes one"
            )
        _registered[name] = maker
    return maker


def _points() -> Mapping[str, EntryPoint]:
    return _points_on(tuple(sys.path))


@lru_cache(maxsize=1)
def _points_on(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Of all packages on the path, whose files are read once."""
    return {point.name.casefold(): point for point in entry_points(group=ENTRY_POINTS)}
