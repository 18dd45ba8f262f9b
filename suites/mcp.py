"""`@modelcontextprotocol/conformance` against our MCP server and our MCP client, at both revisions of the protocol.

    server   `mcp_fixture.py`: Shepherd's HTTP server, with the tools that the suite calls
    client   `mcp_client.py`: Shepherd's pool of MCP servers, which visits the suite's server

The scenarios are those that a revision requires, and those that the suite runs beside them. Needs npm.
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
from functools import cache
from pathlib import Path

from suites.npm import modules, node
from suites.report import FOLDER, Report, Row, write

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
"""The first ones with the scenarios of 2026-07-28 are previews; 0.1.16 has only those of 2025-11-25."""
REVISIONS = ("2025-11-25", "2026-07-28")
FORCE = "--force"
"""Extensions belong to no revision; without it, the suite skips their scenarios."""
SCENARIO_S = 120

NO_DPOP = "an extension of OAuth that the official Python SDK lacks: all its tokens are bearer tokens"
NO_ENTERPRISE = "an extension for companies: neither the SDK nor Shepherd logs in at a company's identity provider"
NO_WORKLOADS = "an extension for programs in a cloud: the SDK has its grant only for clients with a secret"
NO_TASKS = "tasks are an extension of the protocol; Shepherd's server does not declare it"
ASIDE: Mapping[str, str] = {
    "auth/dpop": NO_DPOP,
    "auth/enterprise-managed-authorization": NO_ENTERPRISE,
    "auth/wif-jwt-bearer": NO_WORKLOADS,
    "tasks-": NO_TASKS,
}
"""Extensions of the protocol: by the beginning of a scenario's name, why it does not apply."""
NO_SUBSCRIPTIONS = "Shepherd's server does not declare resources.subscribe: resources are read when they are wanted"
WHY: Mapping[str, str] = {
    "resources-subscribe": NO_SUBSCRIPTIONS,
    "resources-unsubscribe": NO_SUBSCRIPTIONS,
    "server-sse-polling": "Shepherd's server keeps its streams open; it never makes a client poll",
}
"""What a scenario wants that is not here, by its name; it counts as failed all the same."""


def run() -> Report:
    """All scenarios, both ways, at both revisions. Raises: `OSError` and `subprocess` errors where npm is missing."""
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
    return Report("mcp", "theirs", VERSION, rows)


@cache
def installed() -> Path:
    return modules("mcp", f"{PACKAGE}@{VERSION}")


def suite(*words: str, timeout_s: float) -> str:
    """The output of the suite's program; its exit status says only whether all have passed."""
    folder = installed()
    command = [node(folder), str(folder / "node_modules" / PACKAGE / "dist" / "index.js"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=folder, env=packages()
    ).stdout


def packages() -> dict[str, str]:
    """With our packages, for the programs of this folder."""
    root = FOLDER.parent
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
        words = ("--scenario", name, "--spec-version", revision, "--command", command, "-o", str(results / name), FORCE)
        suite("client", *words, timeout_s=SCENARIO_S)


def judged(role: str, revision: str, name: str, results: Path) -> Row:
    """The row of a scenario, from the checks that the suite has written.

    One in which nothing succeeds has failed, though the suite only warns of what the protocol recommends.
    """
    case = f"{role} {revision} {name}"
    if why := why_aside(name):
        return Row(case, "not applicable", why)
    checks = [check for file in (results / name).rglob("checks.json") for check in json.loads(file.read_text("utf-8"))]
    found = {check["status"] for check in checks}
    if "SUCCESS" in found and "FAILURE" not in found:
        return Row(case, "passed")
    bad = [f"{check['id']}: {check.get('errorMessage') or check['description']}"
           for check in checks if check["status"] in ("FAILURE", "WARNING")]  # fmt: skip
    why = "; ".join(bad) or "the suite wrote no check that succeeded"
    return Row(case, "failed", f"{WHY[name]}: {why}" if name in WHY else why)


def table(report: Report) -> str:
    """The rows in Markdown."""
    lines = [f"`{PACKAGE}` {report.version}", "", "| scenario | result | why |", "| --- | --- | --- |"]
    lines += [f"| {row.case} | {row.outcome} | {row.why.replace('|', '/')} |" for row in report.rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    found = run()
    write(found)
    sys.stdout.write(table(found))
