"""npm packages for suites, a folder each, and checks of ours that use them, run by node.

    suites/NAME_checks.mjs ─ copy ─▶ folder with node_modules ─ node ─▶ rows
                                                                  │ asks
                                                                  ▼
                                                               servers.py

Not here: what is checked (one `.mjs` file for each suite).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from suites.report import FOLDER, Row
from suites.servers import KEY, real, scripted
from suites.venv import CACHE

NODE = "node@22.23.3"
INSTALL_S = 600


def modules(name: str, *packages: str) -> Path:
    """A folder with these packages (`NAME@VERSION`) and node, installed when one is missing. Raises: `OSError` and
    `subprocess` errors where npm is missing or fails."""
    folder = Path(os.environ.get("SHEPHERD_SUITES_DIR") or CACHE) / "npm" / name
    wanted = [*packages, NODE]
    if not all(_is_installed(folder, package) for package in wanted):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *wanted]
        subprocess.run(command, check=True, timeout=INSTALL_S, stdout=sys.stderr, cwd=folder)
    return folder


def _is_installed(folder: Path, package: str) -> bool:
    name, _, version = package.rpartition("@")
    file = folder / "node_modules" / name / "package.json"
    return file.exists() and json.loads(file.read_text(encoding="utf-8"))["version"] == version


def node(folder: Path) -> str:
    return str(folder / "node_modules" / "node" / "bin" / "node")


def checked(folder: Path, checks: str, *, timeout_s: float = 900) -> list[Row]:
    """The rows of our file `checks`, run with these packages. Raises: `RuntimeError` if it breaks off."""
    for name in ("checks.mjs", checks):
        shutil.copy(FOLDER / name, folder / name)
    rows = folder / "rows.json"
    rows.unlink(missing_ok=True)
    with real() as url, scripted() as script:
        environment = {
            **os.environ,
            "SHEPHERD_SUITE_URL": url,
            "SHEPHERD_SUITE_SCRIPT": script,
            "SHEPHERD_SUITE_KEY": KEY,
            "SHEPHERD_SUITE_ROWS": str(rows),
        }
        command = [node(folder), str(folder / checks)]
        subprocess.run(command, check=False, timeout=timeout_s, cwd=folder, stdout=sys.stderr, env=environment)
    if not rows.exists():
        raise RuntimeError(f"{checks} ended before its last check")
    return [Row(*row) for row in json.loads(rows.read_text(encoding="utf-8"))]
