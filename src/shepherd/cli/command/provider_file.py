"""`shepherd provider add` and `remove`: change the `providers` of the user's configuration; its comments stay.

The file before the change is kept beside it, with `.bak` behind its name. What is written is parsed and compared first
(`mcp_file.write`), so that a file of an unusual form is refused and not damaged.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import tomlkit

from shepherd.app.providers import made_of
from shepherd.backends import registered
from shepherd.backends.cloud.provider import KINDS, find_kind
from shepherd.cli import known_providers, render
from shepherd.cli.command import keys, mcp_file
from shepherd.config import ProviderConfig
from shepherd.config.layers import read_file
from shepherd.core import ConfigError, InvalidRequest

KEY = "providers"


def add(
    options: Mapping[str, Any],
    *,
    name: str,
    type: str | None,
    url: str | None,
    model: str | None,
    key_env: str | None,
    as_json: bool,
) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InvalidRequest(f"{name!r} is no name; use letters, digits, dots and dashes", field="name")
    file = mcp_file.target(options, project=False)
    content, providers = _read(file)
    if name in providers:
        raise InvalidRequest(f"{file} already has a provider {name!r}; remove it first", field="name")
    asks = sys.stdin.isatty() and not as_json
    named = find_kind(type or name)
    if named is None:
        types = (*KINDS, *registered.names())
        if type is not None or not asks:
            raise InvalidRequest(f"give --type, one of {', '.join(types)}", field="type")
        choice = click.prompt("Type", type=click.Choice(types), default="openai_compat", err=True)
        named = find_kind(str(choice))
        assert named is not None
    if url is None and not named.base_url and named.make is None:
        if not asks:
            raise InvalidRequest(f"give --url, the address of {named.title}", field="url")
        url = str(click.prompt("Address, such as http://127.0.0.1:8000", err=True)).strip()
    if model is None and asks:
        model = str(click.prompt("Model (empty: requests name it)", default="", show_default=False, err=True)).strip()
    entry = {"type": named.name, "base_url": url, "model": model, "api_key_env": key_env}
    entry = {word: value for word, value in entry.items() if value}
    row = ProviderConfig(name, named.name, model=model or None, base_url=url, api_key_env=key_env)
    _check(row, asks=asks)
    after = {**content, KEY: {**providers, name: entry}}
    _write(file, after, name, entry)
    done = {"name": name, "file": str(file), "entry": entry, "added": True}
    render.show_done(done, f"Added {name} to {file}. 'shepherd provider test {name}' tests it.", as_json=as_json)
    if key_env and not os.environ.get(key_env):
        render.show_warning(f"the variable {key_env} is not set")


def _check(row: ProviderConfig, *, asks: bool) -> None:
    """Whether the provider can be asked; a missing key is asked for, and kept. Raises: `ConfigError`."""
    store, kind = known_providers.store(), find_kind(row.type)
    found, _ = known_providers.look_up(row, store)
    assert kind is not None
    if found is None and kind.needs_key and not row.api_key_env and asks:
        store.set(row.name, keys.read_key(row.name))
        found, _ = known_providers.look_up(row, store)
    if found is None and kind.needs_key:
        variable = row.api_key_env or " or ".join(kind.keys)
        render.show_warning(f"there is no key yet; set {variable}, or run 'shepherd keys set {row.name}'")
        row = ProviderConfig(row.name, row.type, base_url=row.base_url, api_key="none-yet")
    made_of(row, os.environ, store)


def remove(options: Mapping[str, Any], *, name: str, as_json: bool) -> None:
    file = mcp_file.target(options, project=False)
    content, providers = _read(file)
    if name not in providers:
        known = ", ".join(providers) or "none"
        raise InvalidRequest(f"{file} has no provider {name!r}; it has: {known}", field="name")
    for rule in content.get("routes", ()):
        if isinstance(rule, Mapping) and (rule.get("provider") == name or name in rule.get("fallback", ())):
            raise InvalidRequest(f"a route of {file} names {name!r}; change the route first", field="name")
    rest = {word: value for word, value in providers.items() if word != name}
    after = {word: value for word, value in content.items() if word != KEY} | ({KEY: rest} if rest else {})
    _write(file, after, name, None)
    keeps_key = name in known_providers.store().names()
    more = [f"Its key stays; 'shepherd keys remove {name}' removes it."] if keeps_key else []
    done = {"name": name, "file": str(file), "removed": True, "key_stays": keeps_key}
    render.show_done(done, f"Removed {name} from {file}.", *more, as_json=as_json)


# -- the file ---------------------------------------------------------------------------------------------------------


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of the file, and its providers. Raises: `ConfigError`."""
    content = read_file(file) if file.exists() else {}
    providers = content.get(KEY, {}) if isinstance(content, Mapping) else None
    if not isinstance(providers, Mapping):
        raise ConfigError("expected a table", key=KEY, file=str(file))
    return dict(content), dict(providers)


def _write(file: Path, after: Mapping[str, Any], name: str, entry: Mapping[str, Any] | None) -> None:
    text = "" if file.suffix == ".json" else changed(mcp_file.text_of(file), after, name, entry)
    backup = file.with_name(f"{file.name}.bak")
    mcp_file.write(file, after, text, f"change [{KEY}.{name}] by hand", key=KEY, backup=backup)


def changed(text: str, after: Mapping[str, Any], name: str, entry: Mapping[str, Any] | None) -> str:
    """The text of a TOML file that then holds `after`: with `entry` as a new provider `name`; None = without it."""
    header = rf"\[[ \t]*{KEY}[ \t]*\.[ \t]*([\"']?){re.escape(name)}\1[ \t]*\]"
    simple = (
        mcp_file.without_table(text, header, f"[{KEY}.{name}.")
        if entry is None
        else mcp_file.appended(text, {KEY: {name: dict(entry)}})
    )
    if mcp_file.holds(simple, after):
        return simple
    document: Any = tomlkit.parse(text)  # such as `providers = {...}` in one line, which takes no table
    if entry is None:
        del document[KEY][name]
        if not document[KEY]:
            del document[KEY]
    else:
        document[KEY][name] = tomlkit.inline_table()
        document[KEY][name].update(entry)
    return str(tomlkit.dumps(document))
