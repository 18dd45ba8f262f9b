"""A cache folder of an application that knows already that the native library works: its self-test takes a process."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def _verdicts() -> tempfile.TemporaryDirectory[str]:
    from shepherd.engine.llamacpp import selftest  # loads the native library

    folder = tempfile.TemporaryDirectory(prefix="shepherd-verdicts-")
    selftest.verdict(Path(folder.name))
    return folder


@functools.cache
def _shared() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="shepherd-cache-")
    proven(Path(folder.name) / "shepherd")
    return folder


def cache_home() -> str:
    """For `XDG_CACHE_HOME`, of programs that need none of their own: never the developer's."""
    return _shared().name


def proven(folder: Path) -> Path:
    """`folder`, made if need be, with the verdict in it unless it holds one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("selftest-*.json")):
        shutil.copytree(_verdicts().name, folder, dirs_exist_ok=True)
    return folder
