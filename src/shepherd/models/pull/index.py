"""Which package indexes this machine asks: those that pip or uv is configured with. Asks no host.

    environment of uv ▶ of pip ▶ uv.toml of the user, of the system ▶ pip.conf of the environment, the user, the system
        └─ the first that names an index first in line, and the first that names further ones ─▶ [Index]
    neither names one ─▶ `uv pip install --help`, `pip download --help`: each prints the index that it asks by default

No index is built in: without a configured one, and without pip or uv on this machine, there is none. Further indexes
come before the default one, as uv orders them; the first that has a package gives it, so that a package of the same
name at another host is never mixed in. The pyproject.toml and uv.toml of a folder do not count: a folder that was
cloned could name a host of its own.
"""

from __future__ import annotations

import configparser
import functools
import importlib.util
import netrc
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2

from shepherd.core import ConfigError, Refused
from shepherd.core.dataclasses import dataclass, field
from shepherd.process import child
from shepherd.process.files import read_within

HELP_S = 60.0
"""For pip or uv to print its help, on a busy machine."""
_DEFAULT = re.compile(r"\((?:by\s+)?default:?\s+<?(https?://[^\s<>)]+)")
"""Where the help of uv and of pip names the index that is asked by default."""
_HELP = (("uv", "pip", "install", "--help"), ("pip", "download", "--help"), ("pip3", "download", "--help"))
_SWITCHES = ("UV_OFFLINE", "UV_NO_INDEX", "PIP_NO_INDEX")
_OFF = ("", "0", "false", "no", "off", "f", "n")


@dataclass(frozen=True, slots=True)
class Index:
    """One package index."""

    url: str
    """Without a password, and without a slash at its end."""
    login: str = field(default="", repr=False)
    """`name:password`; empty: without one."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """What one place says."""

    first: str = ""
    more: tuple[tuple[str, str], ...] = ()
    """Names, which may be empty, and addresses."""
    why_none: str = ""
    """The switch that forbids every index, if one does."""


def indexes(env: Mapping[str, str], home: Path) -> list[Index]:
    """Those to ask, in their order. Raises: `Refused` where there is none, or the configuration forbids to ask any;
    `ConfigError` for a file that cannot be read."""
    found = list(_settings(env, home))
    if why := next((each.why_none for each in found if each.why_none), ""):
        raise Refused(
            f"{why} is set, so no package index is asked; unset it to pull a model", backend="pip", status=503
        )
    more = next((each.more for each in found if each.more), ())
    first = next((each.first for each in found if each.first), "") or _default(env.get("PATH", ""))
    known = dict.fromkeys((*more, *((("", first),) if first else ())))
    asked = [_index(name, url, env, home) for name, url in known if re.match(r"https?://[^/]", url, re.IGNORECASE)]
    if not asked:
        folders = "; those that are folders (file://) are not read" if known else ""
        raise Refused(
            "no package index is known here: none is configured, and neither pip nor uv is on this machine; name one "
            f"in PIP_INDEX_URL or UV_DEFAULT_INDEX{folders}",
            backend="pip",
            status=503,
        )
    return asked


def _settings(env: Mapping[str, str], home: Path) -> Iterator[_Settings]:
    """What each place says, the one that counts most first. Raises: `ConfigError`."""
    for variable in _SWITCHES:
        if env.get(variable, "").strip().lower() not in _OFF:
            yield _Settings(why_none=variable)
    more = [*env.get("UV_INDEX", "").split(), *env.get("UV_EXTRA_INDEX_URL", "").split()]
    first = env.get("UV_DEFAULT_INDEX", "") or env.get("UV_INDEX_URL", "")
    yield _Settings(_named(first)[1], tuple(map(_named, more)))
    yield _Settings(env.get("PIP_INDEX_URL", "").strip(), _nameless(env.get("PIP_EXTRA_INDEX_URL", "").split()))
    for file in _uv_files(env, home):
        yield from _of_uv(file)
    for file in _pip_files(env, home):
        yield from _of_pip(file)


def _named(text: str) -> tuple[str, str]:
    """`name=url`, or a URL alone."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)=(.+)", text.strip())
    return (match[1], match[2]) if match else ("", text.strip())


def _nameless(urls: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("", url) for url in urls)


def _index(name: str, url: str, env: Mapping[str, str], home: Path) -> Index:
    """With its login: of the address, of uv's variables for an index with a name, or of the netrc file. Raises:
    `ConfigError`, without the address, in which a password may be."""
    try:
        parts = urlsplit(url)
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        httpx2.URL(bare)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ConfigError(
            f"the address of the package index {name}".rstrip() + ", as pip or uv is configured, is none; 'pip config "
            "debug' shows where pip's comes from"
        ) from error
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    word = re.sub(r"[^A-Z0-9]", "_", name.upper())
    if word and not user:
        user, password = env.get(f"UV_INDEX_{word}_USERNAME", ""), env.get(f"UV_INDEX_{word}_PASSWORD", "")
    if not user and not password:
        user, password = _netrc(parts.hostname or "", env, home)
    return Index(bare, f"{user}:{password}" if user or password else "")


def _netrc(host: str, env: Mapping[str, str], home: Path) -> tuple[str, str]:
    try:
        found = netrc.netrc(env.get("NETRC") or home / ("_netrc" if os.name == "nt" else ".netrc")).authenticators(host)
    except (OSError, ValueError, netrc.NetrcParseError):  # pip, too, goes on without it
        return "", ""
    return (found[0], found[2]) if found else ("", "")


# -- files ------------------------------------------------------------------------------------------------------------


def _uv_files(env: Mapping[str, str], home: Path) -> list[Path]:
    if env.get("UV_NO_CONFIG", "").strip().lower() not in _OFF:
        return []
    if env.get("UV_CONFIG_FILE"):
        return [Path(env["UV_CONFIG_FILE"])]
    if sys.platform == "win32":
        roaming, common = env.get("APPDATA"), env.get("PROGRAMDATA")
        return [Path(folder) / "uv" / "uv.toml" for folder in (roaming, common) if folder]
    folders = [Path(env.get("XDG_CONFIG_HOME") or home / ".config")]
    folders += [Path(each) for each in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if each]
    return [folder / "uv" / "uv.toml" for folder in (*folders, Path("/etc"))]


def _pip_files(env: Mapping[str, str], home: Path) -> list[Path]:
    if (own := env.get("PIP_CONFIG_FILE")) is not None:
        return [Path(own)] if own and own != os.devnull else []
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    found = [Path(env.get("VIRTUAL_ENV") or sys.prefix) / name]
    if sys.platform == "win32":
        roaming, common = env.get("APPDATA"), env.get("PROGRAMDATA")
        return [*found, *(Path(folder) / "pip" / name for folder in (roaming, common) if folder)]
    places = [Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "pip", home / ".pip"]
    if sys.platform == "darwin":
        places = [home / "Library/Application Support/pip", *places, Path("/Library/Application Support/pip")]
    places += [Path(each) / "pip" for each in (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":") if each]
    return [*found, *(place / name for place in places), Path("/etc") / name]


def _read(file: Path) -> str | None:
    """None where there is no such file. Raises: `ConfigError`."""
    try:
        return read_within(file).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"this file, which may name a package index, cannot be read: {why}", file=str(file)
        ) from error


def _of_uv(file: Path) -> Iterator[_Settings]:
    try:
        table: dict[str, Any] = tomllib.loads(_read(file) or "")
        rows = [row for row in table.get("index", []) if not row.get("explicit")]
        first = next((str(row["url"]) for row in rows if row.get("default")), str(table.get("index-url", "")))
        more = [(str(row.get("name", "")), str(row["url"])) for row in rows if not row.get("default")]
        more += _nameless(map(str, table.get("extra-index-url", [])))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            "this file names the package indexes of uv in a way that uv does not know", file=str(file)
        ) from error
    yield _Settings(first, tuple(more), f"offline in {file}" if table.get("offline") or table.get("no-index") else "")


def _of_pip(file: Path) -> Iterator[_Settings]:
    """Of the command `download` first, and then of all commands."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_read(file) or "")
    except configparser.Error as error:
        raise ConfigError(
            "this file of pip cannot be read: it has no [sections] with key = value", file=str(file)
        ) from error
    for section in ("download", "global"):
        if parser.has_section(section):
            # pip reads a key with underscores like one with hyphens.
            values = {name.replace("_", "-"): value.strip() for name, value in parser.items(section)}
            is_off = values.get("no-index", "").lower() not in _OFF
            more = _nameless(values.get("extra-index-url", "").split())
            yield _Settings(values.get("index-url", ""), more, f"no-index in {file}" if is_off else "")


@functools.lru_cache(maxsize=1)
def _default(path: str) -> str:
    """What the installed uv or pip asks by default, as its help says; empty where neither is on this machine."""
    commands = [(found, *rest) for name, *rest in _HELP if (found := shutil.which(name, path=path or None))]
    if importlib.util.find_spec("pip"):
        commands.append((sys.executable, "-m", "pip", "download", "--help"))
    for command in commands:
        try:
            # COLUMNS: no address is broken at the end of a line.
            ended = child.run(command, timeout_s=HELP_S, variables={"COLUMNS": "500"})
        except OSError:
            continue
        if match := _DEFAULT.search(ended.answer.strip()):
            return match[1].rstrip("/.")
    return ""
