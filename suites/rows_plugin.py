"""A plugin of pytest that keeps what every test came to, in the file that SHEPHERD_SUITE_ROWS names."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

rows: dict[str, tuple[str, str]] = {}
"""Outcome and reason, by the id of a test."""
notes: dict[str, str] = {}
"""What another plugin says of a test that passes, by its id."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        rows[report.nodeid] = ("not applicable", f"it skips itself: {reason}")
    elif report.failed:
        crash: Any = getattr(report.longrepr, "reprcrash", None)
        why = getattr(crash, "message", None) or str(report.longrepr)[-200:]
        rows[report.nodeid] = ("failed", why.splitlines()[0] if why else "")
    elif report.when == "call":
        rows.setdefault(report.nodeid, ("passed", notes.get(report.nodeid, "")))
    if report.when == "teardown":  # a run that is broken off leaves what it has found
        _write()


def pytest_sessionfinish() -> None:
    _write()


def _write() -> None:
    with open(os.environ["SHEPHERD_SUITE_ROWS"], "w", encoding="utf-8") as file:
        json.dump([[case, *row] for case, row in sorted(rows.items())], file)
