"""The effective configuration as TOML, for people and for `load`; secrets and origins are comments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shepherd.config.kinds import BASE_URLS, NAMES, SAMPLING, Kind, Table, keys_of
from shepherd.config.schema import Config, ModelConfig, ProviderConfig
from shepherd.core import Sampling


def to_toml(config: Config) -> str:
    lines = [f"# {source.file or source.kind}: {', '.join(source.keys)}" for source in config.sources]
    lines += _shown_keys(config)
    if config.sampling != Sampling():
        lines += _shown_table("[sampling]", config.sampling)
    for name, kind in keys_of(Config).items():
        value = getattr(config, name)
        if isinstance(kind, Table) and kind.form == "one":
            lines += _shown_table(f"[{name}]", value)
            for inner, its_kind in keys_of(type(value)).items():
                if isinstance(its_kind, Table) and its_kind.form == "one":
                    lines += _shown_table(f"[{name}.{inner}]", getattr(value, inner))
        elif isinstance(kind, Table) and kind.form == "map":
            lines += ["", f"[{name}]", *(f"{_quoted(word)} = {_toml(each)}" for word, each in value.items())]
        elif isinstance(kind, Table):
            for entry in filter(None, map(_as_written, value)):
                header = f"[[{name}]]" if kind.form == "list" else f"[{name}.{_quoted(entry.name)}]"
                lines += _shown_table(header, entry)
                for inner in ("sampling", "network", "tensorrt"):
                    found = getattr(entry, inner, None)
                    if found is not None and found != type(found)():
                        lines += _shown_table(f"[{name}.{_quoted(entry.name)}.{inner}]", found)
                for adapter in entry.adapters if isinstance(entry, ModelConfig) else ():
                    lines += _shown_table(f"[[{name}.{_quoted(entry.name)}.adapters]]", adapter)
    return "\n".join(lines).lstrip() + "\n"


def _as_written(entry: Any) -> Any:
    """The entry as a file has it; None for one that another entry makes."""
    if not isinstance(entry, ProviderConfig):
        return entry
    if entry.group:
        return None
    return replace(entry, replicas=()) if entry.base_urls else entry


def _shown_table(header: str, value: Any) -> list[str]:
    lines = _shown_keys(value)
    return ["", header, *lines] if lines or not header.startswith("[[") else []


def _shown_keys(value: Any) -> list[str]:
    kinds = SAMPLING.keys if isinstance(value, Sampling) else keys_of(type(value))
    lines = []
    for name, kind in kinds.items():
        found = getattr(value, name)
        has_own_tables = isinstance(value, (Config, ModelConfig))
        if isinstance(kind, Table) and kind.form == "list" and found is not None and not has_own_tables:
            names = ", ".join(entry.name for entry in found) or "none"
            lines.append(f"# {name}: set, not shown, for {names}")
        elif not isinstance(kind, Kind) or _is_open(kind, found):
            continue
        elif kind.secret and found != ():
            names = f", for {', '.join(found)}" if isinstance(found, Mapping) else ""
            lines.append(f"# {name}: set, not shown{names}")
        else:  # without the password of an address
            lines.append(f"{name} = {_toml(_veiled(found))}")
    return lines


def _is_open(kind: Kind, value: Any) -> bool:
    may_be_empty = not isinstance(value, Mapping) and kind not in (NAMES, BASE_URLS)
    return value is None or (not value and not may_be_empty)


def _veiled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_veiled, value))
    return re.sub(r"(?<=://)[^/@]*@", "***@", value) if isinstance(value, str) else value


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, list):
        return _toml(tuple(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_quoted(name)} = {_toml(each)}' for name, each in value.items())}}}"
    # JSON's escapes are TOML's; DEL needs one, and so does what steers a terminal or changes how the line reads.
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


_HIDDEN = re.compile(r"[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
