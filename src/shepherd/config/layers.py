"""One source of configuration, read by the schema into flat paths, each value with its origin."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shepherd.config.kinds import Kind, PathBase, Table
from shepherd.config.schema import ALIASES, REMOVED, SCHEMA, Source
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field
from shepherd.core.encoding import text_of
from shepherd.process.files import read_within


@dataclass(frozen=True, slots=True)
class Setting:
    value: Any
    rank: int = -1
    """The rank of its layer: a higher one wins."""
    key: str = ""
    file: str = ""

    def error(self, message: str, key: str = "") -> ConfigError:
        return ConfigError(message, key=key or self.key, file=self.file)


Entries = dict[str, dict[str, Setting]]
UNSET = Setting(None)


@dataclass(slots=True)
class Layer:
    """One source, read by the schema into flat paths such as `("models", "qwen", "path")`."""

    source: Source
    rank: int
    base: PathBase
    settings: dict[tuple[str, ...], Setting] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def read(self, table: Any, keys: Mapping[str, Kind | Table], path: tuple[str, ...] = (), label: str = "") -> None:
        """Read a table of a file. Raises: `ConfigError`."""
        if not isinstance(table, Mapping):
            raise self.error(f"got {_shown(table)}, expected a table", label)
        for word, value in table.items():
            spelled = f"{label}.{word}" if label else word
            name = str(ALIASES.get(spelled, word))
            kind = keys.get(name)
            if kind is None and not self.is_removed(spelled):
                near = difflib.get_close_matches(word, [*keys, *ALIASES], 1)
                hint = f"; did you mean {near[0]!r}?" if near else "; it is ignored"
                self.warnings.append(f"{self.source.file}: unknown key {spelled!r}{hint}")
            elif kind is not None and value is not None:
                self._take(value, kind, (*path, name), spelled)

    def _take(self, value: Any, kind: Kind | Table, path: tuple[str, ...], label: str) -> None:
        if isinstance(kind, Kind):
            self.accept(value, kind, path, label)
        elif kind.form == "one":
            self.read(value, kind.keys, path, label)
        elif kind.form == "map":
            entries = value if isinstance(value, Mapping) else {}
            self.read(value, dict.fromkeys(entries, kind.keys["NAME"]), path, label)
        elif kind.form == "named":
            if not isinstance(value, Mapping):
                raise self.error(f"got {_shown(value)}, expected tables such as [{label}.NAME]", label)
            for name, entry in value.items():
                self._set((*path, name), None, f"{label}.{name}")
                self.read(entry, kind.keys, (*path, name), f"{label}.{name}")
        else:
            if not isinstance(value, list):
                raise self.error(f"got {_shown(value)}, expected a list of tables", label)
            rows = [Layer(self.source, self.rank, self.base, warnings=self.warnings) for _ in value]
            for index, (row, entry) in enumerate(zip(rows, value, strict=True)):
                row.read(entry, kind.keys, (), f"{label}[{index}]")
            found = [{name: setting.value for (name,), setting in row.settings.items()} for row in rows]
            self._set(path, found, label)

    def accept(self, value: Any, kind: Kind, path: tuple[str, ...], label: str) -> None:
        try:
            final = kind.accept(value, self.base)
        except ValueError as error:
            got = _named(value) if kind.secret else _shown(value)
            raise self.error(f"got {got}, expected {kind.expected}", label) from error
        if path in self.settings:
            raise self.error(f"is set twice, as {self.settings[path].key} and as {label}; keep one of them", label)
        self._set(path, final, label)

    def is_removed(self, label: str) -> bool:
        """Whether a key, a variable or a flag is one of an earlier version; adds the warning."""
        why = next((why for glob, why in REMOVED.items() if fnmatchcase(label, glob)), None)
        if why is not None:
            place = f"{self.source.file}: " if self.source.file else ""
            self.warnings.append(f"{place}{label} has no effect: {why}")
        return why is not None

    def accept_text(self, value: Any, dotted: str, label: str) -> None:
        """Read a variable or a flag. Raises: `ConfigError`."""
        path = tuple(dotted.split("."))
        kind = SCHEMA[path[0]] if len(path) == 1 else keys_below(path[0])[path[1]]
        assert isinstance(kind, Kind)
        if isinstance(value, str):
            try:
                value = kind.parse(value)
            except ValueError as error:
                raise self.error(f"got {_shown(value)}, expected {kind.expected}", label) from error
        self.accept(value, kind, path, label)

    def _set(self, path: tuple[str, ...], value: Any, label: str) -> None:
        self.settings[path] = Setting(value, self.rank, label, str(self.source.file or ""))

    def error(self, message: str, label: str) -> ConfigError:
        return ConfigError(message, key=label, file=str(self.source.file or ""))


def keys_below(name: str) -> Mapping[str, Kind | Table]:
    table = SCHEMA[name]
    assert isinstance(table, Table)
    return table.keys


def _named(value: Any) -> str:
    """What a secret is, without its words."""
    if isinstance(value, list | tuple):
        return f"a list with {'an empty text' if '' in value else 'something else'}"
    return "an empty text" if value == "" else {str: "a text", int: "a number"}.get(type(value), "something else")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def search_paths(cwd: Path, user_dir: Path) -> tuple[Path, ...]:
    """The configuration files that `load` looks for; in each folder it reads the first that exists."""
    names = {cwd: ("shepherd.toml", "shepherd.json"), user_dir: ("config.toml", "shepherd.toml", "shepherd.json")}
    return tuple(folder / name for folder in names for name in names[folder])


def read_file(path: Path) -> Any:
    """The content of a file, unchecked. Raises: `ConfigError`."""
    return parse(path, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Raises: `ConfigError`."""
    try:
        return read_within(path)
    except FileNotFoundError as error:
        link = f"is a link to {os.readlink(path)}, which does not exist; mend or remove it" if path.is_symlink() else ""
        raise ConfigError(link or "this configuration file does not exist; check the path", file=str(path)) from error
    except IsADirectoryError as error:
        raise ConfigError("is a folder, and a configuration is a file; remove or rename it", file=str(path)) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error


def parse(path: Path, content: bytes) -> Any:
    """What the content of a file means, unchecked. Raises: `ConfigError`."""
    try:
        text = text_of(content)
        is_json = path.suffix == ".json" or (path.suffix != ".toml" and text.lstrip().startswith("{"))
        return json.loads(text, object_pairs_hook=_without_twins) if is_json else tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"is not text in UTF-8 or UTF-16 (byte {error.start}); save it as UTF-8", file=str(path)
        ) from error
    except RecursionError as error:
        raise ConfigError("is nested too deeply", file=str(path)) from error
    except ValueError as error:
        raise ConfigError(f"cannot be understood: {error}", file=str(path)) from error


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        words = [word for word, _ in pairs]
        raise ValueError(f"the key {next(word for word in words if words.count(word) > 1)!r} is set twice")
    return found


def _is_there(path: Path) -> bool:
    """Whether there is a file, or what `read_bytes` reports in its place: a folder, or a link that leads nowhere."""
    # os.path: in a folder without access, the methods of Path would raise.
    return os.path.isfile(path) or os.path.isdir(path) or (os.path.islink(path) and not os.path.exists(path))


def find_files(cwd: Path, user_dir: Path, chosen: Path | None, warnings: list[str]) -> Iterator[tuple[str, Path]]:
    """The files to read, the weakest first."""
    existing = [path for path in search_paths(cwd, user_dir) if _is_there(path)]
    folders = (("user file", user_dir), ("project file", cwd)) if user_dir != cwd else (("project file", cwd),)
    for kind, folder in folders:
        here = [path for path in existing if path.parent == folder]
        if kind == "project file" and chosen is not None:
            yield kind, chosen
        elif here:
            yield kind, here[0]
            warnings += [f"{path}: ignored, because {here[0].name} is beside it" for path in here[1:]]
