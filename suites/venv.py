"""Virtual environments for suites, one each: what they need must not meet what we need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import platformdirs

CACHE = Path(platformdirs.user_cache_dir("shepherd-suites"))


def python_of(name: str, *needs: str) -> str:
    """The Python of an environment with these packages, made when it is missing. Raises: `RuntimeError` without uv."""
    python = CACHE / f"{name}-venv" / "bin" / "python"
    if not python.exists():
        if shutil.which("uv") is None:
            raise RuntimeError("uv is needed, to install what the suite imports")
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["uv", "venv", "-q", str(python.parent.parent)], check=True, cwd=CACHE)
        subprocess.run(["uv", "pip", "install", "-q", "-p", str(python), *needs], check=True, cwd=CACHE)
    return str(python)


def version_in(python: str, package: str) -> str:
    """The version of a package there."""
    command = [python, "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
