"""Where the program keeps conversations on the disk, beside the memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import platformdirs

from shepherd.config import Config
from shepherd.memory.location import default_path


def snapshot_folder(config: Config, cache_folder: Path | None = None) -> Path:
    """The folder for conversations on disk, if they are kept."""
    if config.kv.folder:
        return Path(config.kv.folder)
    return (cache_folder or Path(platformdirs.user_cache_dir("shepherd"))) / "conversations"


def compactions_file(config: Config, env: Mapping[str, str]) -> Path | None:
    """The file of compacted conversations, beside the memory; None where nothing is kept on the disk."""
    if not config.memory.enable_archival and not config.kv.disk:
        return None
    return Path(config.memory.database_path or default_path(env)).parent / "compactions.db"


def drop_snapshots(folder: Path) -> None:
    """Delete every conversation that is kept in the folder: their numbers are texts of users."""
    for file in folder.glob("*.kv"):
        file.unlink(missing_ok=True)  # another process deletes files, too
