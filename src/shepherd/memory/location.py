"""Where the owner's memory file is when no configuration names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs

DEFAULT_NAME = "shepherd_memory.db"


def default_path(env: Mapping[str, str]) -> Path:
    """`RAG_DB_PATH`; else `DEFAULT_NAME` in the working folder, if it exists; else a file in the user's data folder."""
    if chosen := env.get("RAG_DB_PATH", "").strip():
        return Path(chosen).expanduser()
    if Path(DEFAULT_NAME).exists():
        return Path(DEFAULT_NAME)
    return Path(platformdirs.user_data_dir("shepherd")) / "memory.db"
