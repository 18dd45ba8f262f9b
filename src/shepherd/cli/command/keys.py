"""`shepherd keys`: sets, lists and removes keys of providers. A key comes from a hidden prompt or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from shepherd.backends.cloud.provider import find_kind
from shepherd.cli import configure, render
from shepherd.cli.known_providers import find_row, known_rows, look_up, store
from shepherd.cli.terminal.reader import read_pipe
from shepherd.config import find_key
from shepherd.core import InvalidRequest


def set_key(options: Mapping[str, Any], *, name: str, typed: Sequence[str], keyring: bool, as_json: bool) -> None:
    row = find_row(configure.load_config(options, looks=True), name)
    if typed:
        raise InvalidRequest(
            "a command line is seen by other programs and kept by the shell, so it takes no key; write it at the "
            "prompt, or send it through a pipe",
            field="key",
        )
    keys = store()
    keys.set(row.name, read_key(row.name), keyring=keyring)
    place = "the system's keyring" if keyring else str(keys.path)
    found = find_key(row, os.environ, keys)
    done = {"name": row.name, "place": place, "counts": found.source if found else "", "set": True}
    words = f"The key of {row.name} is in {place}. 'shepherd provider test {row.name}' tries it."
    render.show_done(done, words, as_json=as_json)
    if found is not None and found.place in ("configuration", "environment"):
        render.show_warning(f"the key in the {found.source} takes precedence over it")


def read_key(name: str) -> str:
    """The key that the user types unseen, or that a pipe holds."""
    if sys.stdin.isatty():
        return str(click.prompt(f"Key of {name} (not shown)", hide_input=True, err=True)).strip()
    return read_pipe().strip()


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    keys = store()
    rows = []
    for row in known_rows(configure.load_config(options, looks=True), keys):
        found, problem = look_up(row, keys)
        if found is not None or problem:
            rows.append((row.name, found.source if found else problem, found.ending if found else ""))
    if keys.is_open_to_others:
        render.show_warning(f"{keys.path} can be read by other users; chmod 600 it, or set a key again")
    if as_json:
        render.show_json([dict(zip(("name", "source", "ending"), row, strict=True)) for row in rows])
    else:
        render.show_table(("NAME", "FROM", "KEY"), rows, "There is no key. 'shepherd keys set NAME' keeps one.")


def remove(options: Mapping[str, Any], *, name: str, as_json: bool) -> None:
    keys, kind = store(), find_kind(name)
    names = keys.names()
    found = next((each for each in (name, kind.name if kind else "") if each in names), None)
    if found is None:
        kept = ", ".join(names) or "none"
        raise InvalidRequest(f"no key of {name!r} is kept; kept: {kept}", field="name")
    keys.remove(found)
    render.show_done({"name": found, "removed": True}, f"The key of {found} is removed.", as_json=as_json)
