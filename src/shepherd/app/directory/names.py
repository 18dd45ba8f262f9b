"""What a name stands for that is no entry of the configuration: aliases, names that clients have given, pulled models.

    name ─▶ [aliases] ─▶ an entry itself ─▶ copies ─▶ a pulled model in the words of its source ─▶ the name itself

`meaning` is the one place where the names of requests are followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shepherd.config import CacheConfig, Config, ModelConfig, ProviderConfig
from shepherd.config.aliases import why_no_alias
from shepherd.core import EngineError, InvalidRequest
from shepherd.models.copies import Copies
from shepherd.models.pulled import PREFIXES, PulledModel, models_folder
from shepherd.wire.names import find_name


class Names:
    """The names of one configuration. Any thread."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self.folder = models_folder(env, Path.home())
        """Of the pulled models and the copies."""
        self._aliases = config.aliases
        tables: tuple[Sequence[ModelConfig | CacheConfig | ProviderConfig], ...]
        tables = (config.models, config.caches, config.providers)
        self._entries = tuple(each.name for table in tables for each in table)
        self._copies = Copies(self.folder)
        self._pulled: dict[str, str] = {}

    def meaning(self, name: str) -> str:
        """What an alias stands for, and any other name itself."""
        if (alias := find_name(name, self._aliases)) is not None:
            return self._aliases[alias]
        if find_name(name, self._entries) is not None:
            return name
        for names in (self._copies.read(), self._pulled):
            if (known := find_name(name, names)) is not None:
                return names[known]
        return name

    def all(self) -> dict[str, str]:
        """Every name that stands for another one; those of clients behind those of the configuration."""
        taken = {name.casefold() for name in (*self._aliases, *self._entries)}
        copies = {name: to for name, to in self._copies.read().items() if name.casefold() not in taken}
        return {**self._aliases, **copies}

    def see_pulled(self, models: Mapping[str, PulledModel]) -> None:
        """From now on these models are pulled, each by its name for requests."""
        self._pulled = {short: name for name, model in models.items() for short in short_names(model)}

    def copy(self, source: str, name: str) -> None:
        """Let `name` stand for what `source`, which exists, stands for, also after a restart.

        Raises: `InvalidRequest` for a name of the configuration; `EngineError` where it cannot be written.
        """
        if why := why_no_alias(name):
            raise InvalidRequest(why, field="destination")
        if find_name(name, (*self._aliases, *self._entries)) is not None:
            raise InvalidRequest(f"{name!r} is a name of the configuration; choose another one", field="destination")
        if find_name(name, (*self._pulled, *self._pulled.values())) is not None:
            raise InvalidRequest(
                f"{name!r} is a pulled model; delete it first, or choose another name", field="destination"
            )
        self._change(name, self.meaning(source))

    def forget(self, name: str) -> bool:
        """Take away a name that a client has given; False for any other name."""
        if (known := find_name(name, self._copies.read())) is None:
            return False
        self._change(known, None)
        return True

    def copies_of(self, name: str) -> tuple[str, ...]:
        return tuple(copy for copy, to in self._copies.read().items() if to == name)

    def _change(self, name: str, target: str | None) -> None:
        try:
            self._copies.change({name: target})
        except OSError as error:
            raise EngineError(
                f"the names of models cannot be kept in {self.folder}: {error.strerror or error}"
            ) from error


def short_names(model: PulledModel) -> tuple[str, ...]:
    """The other names of a pulled model: as Ollama's clients ask for it, and the stem of its file."""
    bare = model.name.partition(":")[2] if model.name.startswith(PREFIXES) else model.name
    return tuple({bare: None, f"hf.co/{bare}": None} if model.origin == "hf" else {bare: None})
