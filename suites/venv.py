"""Virtual environments for suites, one each: what they need must not meet what we need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs
from suites.report import FOLDER, Row

CACHE = Path(platformdirs.user_cache_dir("shepherd-suites"))

SUITE_S = 3600
"""For all tests of one run together; each has a limit of its own."""


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


def rows_of(
    python: str, *words: str, cwd: Path, environment: Mapping[str, str], paths: Sequence[Path] = ()
) -> list[Row]:
    """What each test of that Python's pytest comes to; `words` are its options, files and tests.

    It imports our `suites`, and what is in `paths`. Raises: `RuntimeError` when it does not run, or does not end.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        variables = {
            "SHEPHERD_SUITE_ROWS": rows.name,
            "PYTHONPATH": os.pathsep.join(map(str, (FOLDER.parent, *paths))),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # A long traceback writes the values of arguments, which may take locks that a test hangs in.
        options = ["-q", "-p", "suites.rows_plugin", "-p", "no:cacheprovider", "--tb=short"]
        command = [python, "-m", "pytest", *options, *words]
        try:
            done = subprocess.run(
                command, cwd=cwd, env={**os.environ, **variables, **environment}, check=False, timeout=SUITE_S
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"pytest has not ended after {SUITE_S} s: {' '.join(command)}") from None
        found = rows.read()
    if not found:
        raise RuntimeError(f"pytest ended with {done.returncode} and ran no test: {' '.join(command)}")
    return [Row(*row) for row in json.loads(found)]


def rows_of_cases(python: str, file: str, *tests: str, **environment: str) -> list[Row]:
    """What each test in a file of this folder comes to, or each of `tests` in it."""
    cases = [f"{FOLDER / file}::{test}" for test in tests] or [str(FOLDER / file)]
    options = ["--timeout=120", "--asyncio-mode=auto", "-o", "asyncio_default_test_loop_scope=session"]
    # Their modules have the names of ours: `suites/mcp.py` must not be what a library imports as `mcp`.
    options += ["--import-mode=importlib", "-c", os.devnull, "--rootdir", str(FOLDER)]
    with tempfile.TemporaryDirectory() as name:
        return rows_of(python, *options, *cases, cwd=Path(name), environment=environment)
