"""The providers that a user can name: configured ones, and kinds with a key; and their lists of models, kept a while.

For commands and for shell completion, which imports this from `options.py`; so nothing here imports a command.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from shepherd.backends import registered
from shepherd.backends.cloud.provider import KINDS, find_kind
from shepherd.cli import trust
from shepherd.config import Config, FoundKey, KeyStore, ProviderConfig, find_key, load
from shepherd.core import ConfigError, InvalidRequest, ShepherdError
from shepherd.process.files import keep_json, read_within

LIST_S = 600.0
"""A list of models is valid for this long."""


def store() -> KeyStore:
    return KeyStore(trust.user_dir())


def look_up(row: ProviderConfig, keys: KeyStore) -> tuple[FoundKey | None, str]:
    """The key of a provider, or why it cannot be read."""
    try:
        return find_key(row, os.environ, keys), ""
    except ConfigError as error:
        return None, error.message


def find_row(config: Config, name: str) -> ProviderConfig:
    """The provider that a name means: a configured one, or a kind. Raises: `InvalidRequest`, which lists them."""
    rows = {row.name: row for row in config.providers}
    if name in rows:
        return rows[name]
    if (kind := find_kind(name)) is not None:
        return rows.get(kind.name) or ProviderConfig(kind.name, kind.name)
    known = ", ".join(dict.fromkeys((*rows, *KINDS, *registered.names())))
    raise InvalidRequest(
        f"no provider is called {name!r}; known: {known}; 'shepherd provider add' makes another", field="name"
    )


def known_rows(config: Config, keys: KeyStore) -> Iterator[ProviderConfig]:
    """The configured providers, then the kinds that have a key."""
    yield from config.providers
    names, kept = {row.name for row in config.providers}, keys.names()
    for kind in KINDS.values():
        if kind.name not in names and (kind.name in kept or any(map(os.environ.get, kind.keys))):
            yield ProviderConfig(kind.name, kind.name)


# -- lists of models --------------------------------------------------------------------------------------------------


def _list_file(row: ProviderConfig) -> Path:
    word = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in row.name)
    return Path(platformdirs.user_cache_dir("shepherd")) / "providers" / f"{word}.json"


def read_list(row: ProviderConfig, longest_s: float = LIST_S) -> list[dict[str, Any]] | None:
    """The stored list while it is valid; None = it must be requested."""
    try:
        kept = json.loads(read_within(_list_file(row)))
        is_new = 0 <= time.time() - kept["time"] < longest_s and kept["address"] == _address(row)
        return [{**each, "name": str(each["name"])} for each in kept["models"]] if is_new else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def keep_list(row: ProviderConfig, models: Sequence[Mapping[str, Any]]) -> None:
    file = _list_file(row)
    content = {"time": time.time(), "address": _address(row), "models": list(models)}
    try:
        keep_json(file, content, indent=None)
    except OSError:  # it is asked for again
        return


def _address(row: ProviderConfig) -> str:
    kind = find_kind(row.type)
    assert kind is not None
    return row.base_url or next(filter(None, map(os.environ.get, kind.urls)), None) or kind.base_url


def configured_names(typed: str) -> list[str]:
    """The aliases and models of the configuration that begin so; raises nothing."""
    config = _config()
    names = () if config is None else (*config.aliases, *(each.name for each in config.models))
    return [each for each in names if each.startswith(typed)]


def _config() -> Config | None:
    """The configuration as commands that only look read it; None where it cannot be used."""
    try:
        return load(env=os.environ, cwd=Path.cwd(), user_dir=trust.user_dir(), consent=trust.consent({}, looks=True))
    except ShepherdError:
        return None


def completions(typed: str) -> list[str]:
    """What can stand for `typed` as a name, or as NAME/MODEL behind `-m`; asks no provider and raises nothing."""
    if (config := _config()) is None:
        return []
    try:
        rows = {row.name: row for row in known_rows(config, store())}
    except ShepherdError:
        return []
    name, slash, _ = typed.partition("/")
    if slash:
        models = read_list(rows[name], float("inf")) if name in rows else None
        return [each["name"] for each in models or () if each["name"].startswith(typed)]
    return [each for each in rows if each.startswith(typed)]
