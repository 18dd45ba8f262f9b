"""Where the owner's memory file is when no configuration names it, and whether it is elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs


def default_path(env: Mapping[str, str]) -> Path:
    """`RAG_DB_PATH`, else a file in the user's data folder."""
    if chosen := env.get("RAG_DB_PATH", "").strip():
        return Path(chosen).expanduser()
    return Path(platformdirs.user_data_dir("shepherd")) / "memory.db"


def unusual_path(configured: str | None, env: Mapping[str, str]) -> Path | None:
    """Where the memory is; None = at the usual place, in the user's data folder."""
    path = Path(configured or default_path(env))
    return None if path == default_path({}) else path
