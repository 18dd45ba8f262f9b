"""The tests of `tests/unit/engine/llamacpp/test_selftest.py` that start programs."""

import signal
import sys
from pathlib import Path

import pytest
from tests.proven import proven

from shepherd.core import EngineError
from shepherd.engine.llamacpp.selftest import Verdict, run_child, verdict

CRASH = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"]


PASS = [sys.executable, "-c", ""]


@pytest.mark.model
def test_this_build_passes_and_is_not_tested_twice(tmp_path: Path) -> None:
    folder = proven(tmp_path)  # by a child, once for all tests
    found = verdict(folder, run=lambda _: pytest.fail("tested again"))
    assert (found.use_extra_bufts, found.cached) == (True, True)


@pytest.mark.model
def test_this_build_passes_without_extra_buffer_types_too() -> None:
    assert run_child(False) == 0


def test_a_crashing_child_is_noticed_and_the_fallback_is_taken(tmp_path: Path) -> None:
    found = verdict(tmp_path, run=lambda extra: run_child(extra, CRASH if extra else PASS), build="b")
    assert not found.use_extra_bufts
    assert "SIGSEGV" in found.detail
    assert verdict(tmp_path, run=lambda _: pytest.fail("tested again"), build="b") == Verdict(
        False, found.detail, cached=True
    )


def test_when_both_ways_crash_the_engine_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"does not work on this machine.*SIGSEGV"):
        verdict(tmp_path, run=lambda extra: run_child(extra, CRASH), build="b")
    assert list(tmp_path.iterdir()) == [], "a failure is tested again next time"
