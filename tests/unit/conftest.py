"""What a test of this folder may not do: start a process (`tests/process` does). See `test_tiers.py`, too."""

import sys
from typing import Any

import pytest

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"})
SELF_TEST = "shepherd.engine.llamacpp.selftest"
"""Of the library: the first test of a worker that loads a model starts it, whichever that is."""
started: list[str] = []
"""Events of Python's audit hooks since this test began."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS and SELF_TEST not in str(arguments[:2]):
        started.append(f"{event}{arguments[:2]}"[:300])


sys.addaudithook(watch)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    started.clear()  # by a test of another folder


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    if started:
        first = started[0]
        started.clear()
        pytest.fail(f"this test starts a process ({first}): it belongs into tests/process")
