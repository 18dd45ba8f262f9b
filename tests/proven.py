"""The cache folder of the tests, and others that know already that the native library works: its self-test takes a
process."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

CACHE = tempfile.TemporaryDirectory(prefix="shepherd-cache-")
"""`XDG_CACHE_HOME` of each test (`conftest.py`): never the developer's."""


@functools.cache
def _verdict() -> Path:
    from shepherd.engine.llamacpp import selftest  # loads the native library

    folder = Path(CACHE.name) / "shepherd"
    folder.mkdir(exist_ok=True)
    selftest.verdict(folder)
    return folder / f"selftest-{selftest.build_id()}.json"


def proven(folder: Path) -> Path:
    """`folder`, made if need be, with the verdict in it unless it holds one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("selftest-*.json")):
        shutil.copy(_verdict(), folder)
    return folder
