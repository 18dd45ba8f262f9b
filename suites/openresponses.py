"""Open Responses' own runner (`bin/compliance-test.ts` of its repository), against our server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from suites.npm import modules, node
from suites.report import Report, Row
from suites.servers import KEY, real
from suites.venv import CACHE

REPOSITORY = "https://github.com/openresponses/openresponses"
REVISION = "92c12d96d7b61d6d15e2214daa5e9c6000ab6e1c"
TSX = "tsx@4.23.15"
PACKAGES = (TSX, "zod@3.25.76")
RUN_S = 300

ASIDE = {
    "websocket-": "Shepherd answers over HTTP and server-sent events; it has no WebSocket",
    "response-output-phase-schema": "it checks a fixture of its own and sends nothing",
}
"""By the beginning of a test's name, why it does not apply."""


def run() -> Report:
    """All its tests that apply. Raises: `OSError` and `subprocess` errors where git, npm or the network are missing."""
    source, folder = _source(), modules("openresponses", *PACKAGES)
    link = folder / "source"  # inside the folder, for its imports
    link.unlink(missing_ok=True)
    link.symlink_to(source)
    program = [node(folder), "--preserve-symlinks", "--preserve-symlinks-main", "--import", "tsx"]
    command = [*program, str(link / "bin" / "compliance-test.ts"), "--model", "lamb", "--api-key", KEY, "--json"]
    names = _names(command, folder)
    taken = [name for name in names if not _why_aside(name)]
    with real() as url:
        asked = [*command, "--base-url", f"{url}/v1", "--filter", ",".join(taken)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=RUN_S, check=False, cwd=folder)
    results = {result["id"]: result for result in json.loads(done.stdout)["results"]}
    return Report("openresponses", "theirs", REVISION[:8], [judged(name, results.get(name)) for name in names])


def _source() -> Path:
    source = CACHE / "openresponses"
    if not source.exists():
        subprocess.run(["git", "clone", "-q", REPOSITORY, str(source)], check=True, timeout=RUN_S)
    subprocess.run(["git", "checkout", "-q", REVISION], check=True, cwd=source)
    return source


def _names(command: list[str], folder: Path) -> list[str]:
    """The names of all tests, as the runner lists them for a name that does not exist."""
    asked = [*command, "--base-url", "http://localhost", "--filter", "?"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=RUN_S, check=False, cwd=folder)
    listed = done.stderr.partition("Available test IDs:")[2].splitlines()
    if not listed:
        raise OSError(f"the runner lists no tests: {done.stderr[-300:]}")
    return listed[0].replace(",", " ").split()


def _why_aside(name: str) -> str:
    return next((why for begin, why in ASIDE.items() if name.startswith(begin)), "")


def judged(name: str, result: dict[str, Any] | None) -> Row:
    if why := _why_aside(name):
        return Row(name, "not applicable", why)
    if result is None:
        return Row(name, "failed", "the runner has no result")
    errors = "; ".join(result["errors"])
    return Row(name, "passed" if result["status"] == "passed" else "failed", errors)
