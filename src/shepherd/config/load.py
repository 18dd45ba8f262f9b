"""All layers together, lowest first: files, environment, flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shepherd.config.layers import Layer, Said, find_files, read_file
from shepherd.config.resolve import Resolver
from shepherd.config.schema import ENVIRONMENT, FLAGS, KEPT_EMPTY, SCHEMA, SPELLED, Config, Source
from shepherd.config.types import NOTHING, Place


def load(
    *,
    flags: Mapping[str, Any] = NOTHING,
    env: Mapping[str, str],
    cwd: Path,
    user_dir: Path,
    file: Path | None = None,
    read_files: bool = True,
) -> Config:
    """The configuration that all layers make together. `read_files=False` leaves out the files nobody named.

    Raises: `ConfigError`.
    """
    home = Path(env.get("HOME") or Path.home())
    warnings: list[str] = []
    layers: list[Layer] = []

    def layer(kind: str, folder: Path, path: Path | None = None) -> Layer:
        layers.append(Layer(Source(kind, (), path), len(layers), Place(folder, cwd, home)))
        return layers[-1]

    chosen = file or (Path(env["SHEPHERD_CONFIG"]) if env.get("SHEPHERD_CONFIG") else None)
    chosen = Path(Place(cwd, cwd, home).resolve(str(chosen))) if chosen else None
    named = [("project file", chosen)] if chosen else []
    for kind, path in find_files(cwd, user_dir, chosen, warnings) if read_files else named:
        layer(kind, path.parent, path).read(read_file(path), SCHEMA)
    variables = layer("environment", cwd)
    for variable, dotted in ENVIRONMENT.items():
        text = env.get(variable)
        if text or (text == "" and variable in KEPT_EMPTY):
            variables.accept_text(text, dotted, variable)
    spoken = layer("flags", cwd)
    for flag, value in flags.items():
        if value is not None:
            spoken.accept_text(value, FLAGS[flag], SPELLED.get(flag, "--" + flag.replace("_", "-")))

    said: dict[tuple[str, ...], Said] = {}
    for each in layers:
        grown = {
            path: _with_earlier(said[path], one) for path, one in each.said.items() if path in GROWING & said.keys()
        }
        said |= each.said | grown
        warnings += each.warnings
    sources = tuple(
        replace(each.source, keys=tuple(one.key for one in each.said.values() if one.key))
        for each in layers
        if each.said
    )
    return replace(Resolver(said, env, variables.place, warnings).config(), sources=sources, warnings=tuple(warnings))


GROWING = {("tools", "disabled"), ("tools", "deny"), ("mcp_servers",)}
"""Lists to which a layer adds: what one has closed no other opens; a server replaces one of its name."""


def _with_earlier(earlier: Said, later: Said) -> Said:
    if later.value and isinstance(later.value[0], Mapping):
        names = {row.get("name") for row in later.value}
        return replace(later, value=(*(row for row in earlier.value if row.get("name") not in names), *later.value))
    return replace(later, value=tuple(dict.fromkeys((*(earlier.value or ()), *(later.value or ())))))
