"""How this program was installed, from where it lies. Reads file names only."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shepherd.core.dataclasses import dataclass

Way = Literal["clone", "uv tool", "pipx", "temporary", "pip"]


@dataclass(frozen=True, slots=True)
class Installed:
    way: Way
    folder: Path
    """The clone, or else the environment (`sys.prefix`)."""


def find_way(prefix: Path, package: Path) -> Installed:
    """`package`: the folder of the package. A clone counts before the environment into which it is linked."""
    clone = package.parent.parent
    if (clone / ".git").exists() and (clone / "pyproject.toml").is_file():
        return Installed("clone", clone)
    if any(part.startswith(("archive-v", "builds-v", "environments-v")) for part in prefix.parts):
        return Installed("temporary", prefix)  # uvx, uv run --with
    if ".cache" in prefix.parts and "pipx" in prefix.parts:
        return Installed("temporary", prefix)  # pipx run
    if (prefix / "uv-receipt.toml").is_file():
        return Installed("uv tool", prefix)
    return Installed("pipx" if (prefix / "pipx_metadata.json").is_file() else "pip", prefix)
