"""What a test of this folder may not do: start a process (`tests/process` does). See `test_tiers.py`, too."""

import platform
import sys
from typing import Any

import pytest

STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "os.exec"})
CHILDREN = tuple(f"shepherd.engine.llamacpp.{name}" for name in ("selftest", "trial", "pixels", "samples"))
"""The trials of the library and of each new model file, which whichever test of a worker loads one first starts, and
the decoders of what a model sees and hears."""
started: list[str] = []
"""Events of Python's audit hooks since this test began."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS and not any(child in str(arguments[:2]) for child in CHILDREN):
        started.append(f"{event}{arguments[:2]}"[:300])


platform.processor()  # of vendors' clients: it runs `uname` once for each process, and remembers
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
