"""`shepherd mcp add` and `remove`: change the `mcp_servers` of a configuration file; its other lines stay.

A TOML file is changed as text: an entry is appended, or its lines are removed. Before it is written, the new text is
parsed and compared with the expected content, so that a file of an unusual form is refused and not damaged.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from shepherd.cli import render, trust
from shepherd.config import search_paths
from shepherd.config.layers import read_file
from shepherd.core import ConfigError, InvalidRequest, encoding
from shepherd.process.files import replace_private, writing

KEY = "mcp_servers"
HEADER = r"\[\[[ \t]*([\"']?)mcp_servers\1[ \t]*\]\]"
SECRET = re.compile(r"key|token|secret|password|auth", re.IGNORECASE)


def add(
    options: Mapping[str, Any],
    *,
    name: str,
    command: Sequence[str],
    url: str | None,
    env: Sequence[str],
    headers: Sequence[str],
    cwd: str | None,
    timeout: float | None,
    project: bool,
) -> None:
    if not name.strip():
        raise InvalidRequest("the server needs a name", field="name")
    if bool(command) == (url is not None):
        raise InvalidRequest("give either a command behind two dashes, or --url", field="command")
    if url is not None and (env or cwd):
        raise InvalidRequest("--env and --cwd belong to a command; a server with --url has --header", field="url")
    if url is None and headers:
        raise InvalidRequest("--header belongs to --url; a command has --env", field="header")
    entry: dict[str, Any] = {"name": name}
    entry |= {"url": url} if url is not None else {"command": command[0], "args": list(command[1:])}
    entry |= {
        "env": dict(pair(each, "=", "--env NAME=VALUE") for each in env),
        "headers": dict(pair(each, ":", "--header 'Name: value'") for each in headers),
        "cwd": cwd,
        "timeout": timeout,
    }
    entry = {key: value for key, value in entry.items() if value not in (None, [], {})}
    file = target(options, project=project)
    before = read(file)
    if any(each.get("name") == name for each in before.get(KEY, ())):
        raise InvalidRequest(f"{file} already has an MCP server {name!r}; remove it first", field="name")
    after = {**before, KEY: [*before.get(KEY, ()), entry]}
    is_trusted = trust.is_trusted(file)
    block = {KEY: [entry]}
    write(file, after, appended(text_of(file), block), f"add this by hand:\n{appended('', block)}")
    if project and is_trusted:
        trust.add(file)
    render.show(f"Added {name} to {file}. 'shepherd mcp test {name}' tests it.")
    for word, value in (*entry.get("env", {}).items(), *entry.get("headers", {}).items()):
        if SECRET.search(word) and "${" not in value:
            variable = re.sub(r"\W", "_", word).upper()
            render.show_warning(
                f"the file now holds the value of {word}; write '${{{variable}}}' to read it from the environment"
            )


def remove(options: Mapping[str, Any], *, name: str, project: bool) -> None:
    file = target(options, project=project)
    before = read(file)
    entries = list(before.get(KEY, ()))
    index = next((index for index, each in enumerate(entries) if each.get("name") == name), None)
    if index is None:
        known = ", ".join(str(each.get("name")) for each in entries) or "none"
        other = "" if project else "; --project changes the file of this folder"
        raise InvalidRequest(f"{file} has no MCP server {name!r}; it has: {known}{other}", field="name")
    rest = entries[:index] + entries[index + 1 :]
    is_trusted = trust.is_trusted(file)
    after = {key: value for key, value in before.items() if key != KEY} | ({KEY: rest} if rest else {})
    text = without_table(text_of(file), HEADER, f"[{KEY}.", index)
    write(file, after, text, f"remove the entry with name = {json.dumps(name)} by hand")
    if project and is_trusted:
        trust.add(file)
    render.show(f"Removed {name} from {file}.")


def pair(text: str, mark: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(mark)
    if not found or not name.strip():
        raise InvalidRequest(f"{text!r} is not of the form {form}", field=form.split(maxsplit=1)[0].lstrip("-"))
    return name.strip(), value.strip() if mark == ":" else value


# -- files ------------------------------------------------------------------------------------------------------------


def target(options: Mapping[str, Any], *, project: bool) -> Path:
    """The file to change: the one that `config.load` reads, or else a new one."""
    if options.get("config"):
        return Path(options["config"]).expanduser()
    folder = Path.cwd() if project else trust.user_dir()
    paths = [path for path in search_paths(Path.cwd(), trust.user_dir()) if path.parent == folder]
    return next((path for path in paths if path.is_file()), paths[0])


def read(file: Path) -> dict[str, Any]:
    """The content of a file; empty without a file. Raises: `ConfigError`."""
    if not file.exists():
        return {}
    entry = read_file(file)
    entries = entry.get(KEY, []) if isinstance(entry, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise ConfigError("expected a list of tables", key=KEY, file=str(file))
    return dict(entry)


def text_of(file: Path) -> str:
    return encoding.text_of(file.read_bytes()) if file.exists() else ""


def appended(text: str, content: Mapping[str, Any]) -> str:
    """The text of a TOML file with tables of `content` behind it."""
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + tomlkit.dumps(content)


def without_table(text: str, header: str, below: str, index: int = 0) -> str:
    """The text without the table number `index` under a header that matches, and without the tables that begin with
    `below` and follow it. Comments right above the next header belong to that and stay (tomlkit gives them to the
    table before them, and moves the second of two groups of `[[mcp_servers]]` to the first)."""
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if re.match(r"[ \t]*\[", line)] + [len(lines)]
    found = [at for at, number in enumerate(starts[:-1]) if re.fullmatch(rf"\s*{header}[ \t]*(#.*)?\s*", lines[number])]
    if index >= len(found):
        return text
    at = found[index]
    first, last = starts[at : at + 2]
    while last < len(lines) and lines[last].lstrip().startswith(below):
        at += 1
        last = starts[at + 1]
    while first + 1 < last < len(lines) and lines[last - 1].lstrip().startswith("#"):
        last -= 1
    return "".join((*lines[:first], *lines[last:]))


def holds(text: str, content: Mapping[str, Any]) -> bool:
    """Whether this TOML means `content`."""
    try:
        return tomllib.loads(text) == content
    except ValueError:
        return False


def write(
    file: Path, content: Mapping[str, Any], text: str, otherwise: str, *, key: str = KEY, backup: Path | None = None
) -> None:
    """Replace the file in one step: by `content` as JSON, or by `text` in TOML if that holds `content`. A new file is
    private; `backup` gets the content of an old one. Raises: `ConfigError`, which names `otherwise`: how to change the
    file by hand."""
    if file.suffix == ".json":
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    elif not holds(text, content):
        raise ConfigError(f"Shepherd cannot change a file of this form; {otherwise}", key=key, file=str(file))
    real = file.resolve()  # a link to a file elsewhere stays a link
    if backup is not None and file.exists():
        with writing(backup):
            replace_private(backup, file.read_bytes())
    with writing(file):
        real.parent.mkdir(parents=True, exist_ok=True)
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o600
        replace_private(real, text.encode(), mode=mode)
