"""Merges all layers, the weakest first: files, environment, flags. A file of the working folder needs trust."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shepherd.config.kinds import EMPTY_JSON, FLAG, PathBase
from shepherd.config.layers import UNSET, Layer, Setting, find_files, parse, read_bytes
from shepherd.config.resolve import Resolver
from shepherd.config.schema import (
    ENVIRONMENT,
    FLAGS,
    KEPT_EMPTY,
    MEMORY_NAME,
    REMOVED,
    SCHEMA,
    SPELLED,
    TRUST,
    Config,
    Source,
)
from shepherd.config.trust import Consent, FolderFile, digest_of, memory_file, refuse, risks_of
from shepherd.core import ConfigError
from shepherd.models.copies import Copies
from shepherd.models.pulled import models_folder


def load(
    *,
    flags: Mapping[str, Any] = EMPTY_JSON,
    env: Mapping[str, str],
    cwd: Path,
    user_dir: Path,
    file: Path | None = None,
    read_files: bool = True,
    consent: Consent = refuse,
) -> Config:
    """The configuration from all layers. `read_files=False` reads only the file that `file` or SHEPHERD_CONFIG names.
    `consent` decides about a file of the working folder that needs trust, unless SHEPHERD_TRUST does.

    Raises: `ConfigError`.
    """
    home = Path(env.get("HOME") or Path.home())
    consent = given_consent(env) or consent
    warnings: list[str] = []
    layers: list[Layer] = []

    def layer(kind: str, folder: Path, path: Path | None = None) -> Layer:
        layers.append(Layer(Source(kind, (), path), len(layers), PathBase(folder, cwd, home)))
        return layers[-1]

    chosen = file or (Path(env["SHEPHERD_CONFIG"]) if env.get("SHEPHERD_CONFIG") else None)
    chosen = Path(PathBase(cwd, cwd, home).resolve(str(chosen))) if chosen else None
    named = [("project file", chosen)] if chosen else []
    for kind, path in find_files(cwd, user_dir, chosen, warnings) if read_files else named:
        content, read = read_bytes(path), layer(kind, path.parent, path)
        read.read(parse(path, content), SCHEMA)
        if kind == "project file" and path != chosen and cwd != user_dir:
            known = {name[1] for each in layers[:-1] for name in each.settings if name[0] in ("providers", "aliases")}
            if not _is_trusted(_folder_file(path, content, read, known), consent, warnings):
                layers.pop()
    variables = layer("environment", cwd)
    for variable, dotted in ENVIRONMENT.items():
        text = env.get(variable)
        if text or (text == "" and variable in KEPT_EMPTY):
            variables.accept_text(text, dotted, variable)
    for name in REMOVED:
        if env.get(name):
            variables.is_removed(name)
    flag_layer = layer("flags", cwd)
    for flag, value in flags.items():
        label = SPELLED.get(flag, "--" + flag.replace("_", "-"))
        if value is not None and not flag_layer.is_removed(label):
            flag_layer.accept_text(value, FLAGS[flag], label)

    if read_files and not any(MEMORY_PATH in each.settings for each in layers) and os.path.isfile(cwd / MEMORY_NAME):
        memory = layer("working folder", cwd, cwd / MEMORY_NAME)
        if _is_trusted(memory_file(cwd / MEMORY_NAME), consent, warnings):
            memory.accept_text(MEMORY_NAME, ".".join(MEMORY_PATH), MEMORY_NAME)

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
    copies = Copies(models_folder(env, home)).read() if read_files else {}
    config = Resolver(settings, env, variables.base, warnings, copies).config()
    return replace(config, sources=sources, warnings=tuple(warnings))


MEMORY_PATH = ("memory", "database_path")
ACCUMULATED = {("tools", "disabled"), ("tools", "deny"), ("mcp_servers",)}
"""Lists that grow from layer to layer: no layer opens what another has closed; a server replaces one of its name."""


def _with_earlier(earlier: Setting, later: Setting) -> Setting:
    if later.value and isinstance(later.value[0], Mapping):
        names = {row.get("name") for row in later.value}
        return replace(later, value=(*(row for row in earlier.value if row.get("name") not in names), *later.value))
    return replace(later, value=tuple(dict.fromkeys((*(earlier.value or ()), *(later.value or ())))))


# -- trust ------------------------------------------------------------------------------------------------------------


def given_consent(env: Mapping[str, str]) -> Consent | None:
    """The consent that the environment gives for one run; None = not set. Raises: `ConfigError`."""
    if not (text := env.get(TRUST)):
        return None
    try:
        answer = bool(FLAG.parse(text))
    except ValueError as error:
        what = "1 to trust the files of the working folder in this run, or 0 to leave them out"
        raise ConfigError(f"got {text!r}, expected {what}", key=TRUST) from error
    return lambda file: answer


def _folder_file(path: Path, content: bytes, read: Layer, providers: set[str]) -> FolderFile:
    risks = risks_of(read.settings, providers)
    files = read.settings.get(("tools", "files"), UNSET).value or ()
    return FolderFile(path.resolve(), digest_of(content, files) if risks else "", risks)


def _is_trusted(file: FolderFile, consent: Consent, warnings: list[str]) -> bool:
    if not file.risks or consent(file):
        return True
    warnings.append(file.left_out)
    return False
