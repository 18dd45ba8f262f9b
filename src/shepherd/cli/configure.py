"""From the options of a command line to the configuration and the logging; `shepherd config`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shepherd import config
from shepherd.cli import logs, render, trust
from shepherd.cli.options import config_flags
from shepherd.config import Config


def read_config(options: Mapping[str, Any], *, looks: bool = False) -> Config:
    """The configuration from `options`, the environment and the files. `looks`: the command starts nothing, so a file
    of the working folder that is not trusted is left out without a question. Raises: `ConfigError`."""
    file = options.get("config")
    made = config.load(
        flags=config_flags(options),
        env=os.environ,
        cwd=Path.cwd(),
        user_dir=trust.user_dir(),
        file=Path(file) if file else None,
        consent=trust.consent(options, looks=looks),
    )
    return replace(made, server=replace(made.server, debug=True)) if options.get("debug") else made


def load_config(options: Mapping[str, Any], *, looks: bool = False) -> Config:
    """`read_config`, which also sets up logging and shows the warnings; once for each command."""
    logs.set_up(options)
    made = read_config(options, looks=looks)
    if made.server.log_json:
        logs.set_up({**options, "log_json": True})
    for warning in made.warnings:
        render.show_warning(warning)
    return made


def show_config(options: Mapping[str, Any]) -> None:
    render.write(config.to_toml(load_config(options, looks=True)).rstrip("\n") + "\n")


def show_paths(options: Mapping[str, Any]) -> None:
    file = options.get("config")
    paths = [Path(file)] if file else list(config.search_paths(Path.cwd(), trust.user_dir()))
    width = max(len(str(path)) for path in paths)
    for path in paths:
        render.show(f"{path!s:<{width}}  {'found' if path.is_file() else 'not found'}")
