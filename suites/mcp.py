"""`@modelcontextprotocol/conformance` against our MCP server and our MCP client, at both revisions of the protocol.

    server   `mcp_fixture.py`: Shepherd's HTTP server, with the tools that the suite calls
    client   `mcp_client.py`: Shepherd's pool of MCP servers, which visits the suite's server

The scenarios are those that a revision requires, and those that the suite runs beside them. Needs npm, and node 22 (the
first run installs both packages into `build/suites/mcp`, or into $SHEPHERD_SUITES_DIR/mcp).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from suites.report import Report, Row, write

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("SHEPHERD_SUITES_DIR") or HERE.parent / "build" / "suites") / "mcp"
PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
"""The first ones with the scenarios of 2026-07-28 are previews; 0.1.16 has only those of 2025-11-25."""
REVISIONS = ("2025-11-25", "2026-07-28")
SCENARIO_S, SUITE_S = 120, 600

NO_OAUTH = "Shepherd's client sends the headers of its configuration; it does not log in with OAuth"
NO_TASKS = "tasks are an extension of the protocol; Shepherd's server does not declare it"
NO_SUBSCRIPTIONS = "Shepherd's server does not declare resources.subscribe: resources are read when they are wanted"
NO_POLLING = "Shepherd's server keeps its streams open; it never makes a client poll"
ASIDE: Mapping[str, str] = {
    "auth/": NO_OAUTH,
    "tasks-": NO_TASKS,
    "resources-subscribe": NO_SUBSCRIPTIONS,
    "resources-unsubscribe": NO_SUBSCRIPTIONS,
    "server-sse-polling": NO_POLLING,
}
"""By the beginning of a scenario's name, why it does not apply."""


def run() -> Report:
    """All scenarios, both ways, at both revisions. Raises: `OSError` and `subprocess` errors where npm is missing."""
    install()
    rows = []
    with tempfile.TemporaryDirectory() as results:
        for revision in REVISIONS:
            scenarios = listed(revision)
            for role in ("server", "client"):
                names = [name for name, whose in scenarios if whose == role]
                taken = [name for name in names if not why_aside(name)]
                results_of = Path(results) / f"{role}-{revision}"
                (ask_server if role == "server" else ask_client)(revision, taken, results_of)
                rows += [judged(role, revision, name, results_of) for name in names]
    return Report("mcp", VERSION, rows)


def install() -> None:
    installed = FOLDER / "node_modules" / PACKAGE / "package.json"
    if installed.exists() and json.loads(installed.read_text(encoding="utf-8"))["version"] == VERSION:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), f"{PACKAGE}@{VERSION}", "node@22"]
    subprocess.run(words, check=True, timeout=SUITE_S, stdout=sys.stderr)


def suite(*words: str, timeout_s: float) -> str:
    """The output of the suite's program; its exit status says only whether all have passed."""
    modules = FOLDER / "node_modules"
    program = [str(modules / "node" / "bin" / "node"), str(modules / PACKAGE / "dist" / "index.js")]
    done = subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=timeout_s, check=False, cwd=FOLDER, env=packages()
    )
    return done.stdout


def packages() -> dict[str, str]:
    """With our packages, for the programs of this folder."""
    root = HERE.parent
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(each) for each in (root / "src", root))}


def listed(revision: str) -> list[tuple[str, str]]:
    """The scenarios that a revision requires, then those that run beside them, each with whose they are."""
    found = []
    role = ""
    for line in suite("list", "--requirements", revision, timeout_s=SCENARIO_S).splitlines():
        role = {"Server": "server", "Client": "client"}.get(line.partition(" ")[0], role)
        if match := re.match(r"\s+- (?P<name>[\w./-]+)(?: \[(?P<role>\w+)\])?$", line):
            found.append((match["name"], match["role"] or role))
    return found


def why_aside(name: str) -> str:
    return next((why for begin, why in ASIDE.items() if name.startswith(begin)), "")


def ask_server(revision: str, names: list[str], results: Path) -> None:
    with fixture() as url:
        for name in names:
            words = ("--scenario", name, "--spec-version", revision, "--url", url, "-o", str(results / name))
            suite("server", *words, timeout_s=SCENARIO_S)


@contextmanager
def fixture() -> Iterator[str]:
    """The address of the fixture, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "suites.mcp_fixture"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, env=packages(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            if not (url := process.stdout.readline().strip()):
                raise OSError("the fixture does not start: python -m suites.mcp_fixture says why")
            yield url
        finally:
            assert process.stdin is not None
            process.stdin.close()


def ask_client(revision: str, names: list[str], results: Path) -> None:
    command = f"{sys.executable} -m suites.mcp_client"
    for name in names:
        words = ("--scenario", name, "--spec-version", revision, "--command", command, "-o", str(results / name))
        suite("client", *words, timeout_s=SCENARIO_S)


def judged(role: str, revision: str, name: str, results: Path) -> Row:
    """The row of a scenario, from the checks that the suite has written."""
    case = f"{role} {revision} {name}"
    if why := why_aside(name):
        return Row(case, "not applicable", why)
    checks = [check for file in (results / name).rglob("checks.json") for check in json.loads(file.read_text("utf-8"))]
    failures = [f"{check['id']}: {check.get('errorMessage') or check['description']}"
                for check in checks if check["status"] == "FAILURE"]  # fmt: skip
    outcome: Literal["passed", "failed"] = "passed" if checks and not failures else "failed"
    return Row(case, outcome, "; ".join(failures) if checks else "the suite wrote no checks")


def table(report: Report) -> str:
    """The rows in Markdown."""
    lines = [f"`{PACKAGE}` {report.version}", "", "| scenario | result | why |", "| --- | --- | --- |"]
    lines += [f"| {row.case} | {row.outcome} | {row.why.replace('|', '/')} |" for row in report.rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = run()
    write(found)
    sys.stdout.write(table(found))
