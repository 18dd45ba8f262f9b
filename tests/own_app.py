"""An application of a test: made from the text of a configuration, and loaded for the length of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.proven import proven

from shepherd import config as configuration
from shepherd.app.app import App


def app_of(folder: Path, text: str = "", env: Mapping[str, str] | None = None, **flags: Any) -> App:
    """Its files are in `folder`, the memory too. `env`: of the configuration and of the application."""
    file, env = folder / "shepherd.toml", env or {}
    file.write_text(text)
    flags = {"threads": 1, **flags}
    config = configuration.load(flags=flags, env=env, cwd=folder, user_dir=folder / "none", file=file)
    memory = {"RAG_DB_PATH": str(folder / "memory.db")}
    return App(config, cache_folder=proven(folder / "cache"), env={**memory, **env}, user_folder=folder / "user")


@asynccontextmanager
async def loaded(app: App, **options: Any) -> AsyncIterator[App]:
    """`options`: those of `App.load`."""
    try:
        await app.load(**options)
        yield app
    finally:
        await app.aclose()
