"""Merges all layers, the weakest first: files, environment, flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shepherd.config.kinds import NOTHING, PathBase
from shepherd.config.layers import Layer, Setting, find_files, read_file
from shepherd.config.resolve import Resolver
from shepherd.config.schema import ENVIRONMENT, FLAGS, KEPT_EMPTY, SCHEMA, SPELLED, Config, Source


def load(
    *,
    flags: Mapping[str, Any] = NOTHING,
    env: Mapping[str, str],
    cwd: Path,
    user_dir: Path,
    file: Path | None = None,
    read_files: bool = True,
) -> Config:
    """The configuration from all layers. `read_files=False` reads only the file that `file` or SHEPHERD_CONFIG names.

    Raises: `ConfigError`.
    """
    home = Path(env.get("HOME") or Path.home())
    warnings: list[str] = []
    layers: list[Layer] = []

    def layer(kind: str, folder: Path, path: Path | None = None) -> Layer:
        layers.append(Layer(Source(kind, (), path), len(layers), PathBase(folder, cwd, home)))
        return layers[-1]

    chosen = file or (Path(env["SHEPHERD_CONFIG"]) if env.get("SHEPHERD_CONFIG") else None)
    chosen = Path(PathBase(cwd, cwd, home).resolve(str(chosen))) if chosen else None
    named = [("project file", chosen)] if chosen else []
    for kind, path in find_files(cwd, user_dir, chosen, warnings) if read_files else named:
        layer(kind, path.parent, path).read(read_file(path), SCHEMA)
    variables = layer("environment", cwd)
    for variable, dotted in ENVIRONMENT.items():
        text = env.get(variable)
        if text or (text == "" and variable in KEPT_EMPTY):
            variables.accept_text(text, dotted, variable)
    flag_layer = layer("flags", cwd)
    for flag, value in flags.items():
        if value is not None:
            flag_layer.accept_text(value, FLAGS[flag], SPELLED.get(flag, "--" + flag.replace("_", "-")))

    settings: dict[tuple[str, ...], Setting] = {}
    for each in layers:
        in_both = ACCUMULATED & settings.keys() & each.settings.keys()
        grown = {path: _with_earlier(settings[path], each.settings[path]) for path in in_both}
        settings |= each.settings | grown
        warnings += each.warnings
    sources = tuple(
        replace(each.source, keys=tuple(one.key for one in each.settings.values() if one.key))
        for each in layers
        if each.settings
    )
    config = Resolver(settings, env, variables.base, warnings).config()
    return replace(config, sources=sources, warnings=tuple(warnings))


ACCUMULATED = {("tools", "disabled"), ("tools", "deny"), ("mcp_servers",)}
"""Lists that grow from layer to layer: no layer opens what another has closed; a server replaces one of its name."""


def _with_earlier(earlier: Setting, later: Setting) -> Setting:
    if later.value and isinstance(later.value[0], Mapping):
        names = {row.get("name") for row in later.value}
        return replace(later, value=(*(row for row in earlier.value if row.get("name") not in names), *later.value))
    return replace(later, value=tuple(dict.fromkeys((*(earlier.value or ()), *(later.value or ())))))
