"""The self-test of the native library: it passes here, it is remembered, and a planted crash is caught."""

import os
import signal
import sys
from pathlib import Path

import pytest

from shepherd.core import EngineError
from shepherd.engine.llamacpp.selftest import Verdict, build_id, run_child, verdict

CRASH = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGSEGV)})"]
PASS = [sys.executable, "-c", ""]


@pytest.mark.model
def test_this_build_passes_and_is_not_tested_twice(tmp_path: Path) -> None:
    assert verdict(tmp_path).use_extra_bufts
    assert verdict(tmp_path, run=lambda _: pytest.fail("tested again")).cached


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


def test_another_build_is_tested_afresh(tmp_path: Path) -> None:
    verdict(tmp_path, run=lambda _: 0, build="one")
    asked: list[bool] = []

    def run(extra: bool) -> int:
        asked.append(extra)
        return 0

    verdict(tmp_path, run=run, build="two")
    assert asked == [True]


def test_a_damaged_verdict_is_tested_again(tmp_path: Path) -> None:
    (tmp_path / "selftest-b.json").write_text("{")
    assert not verdict(tmp_path, run=lambda _: 0, build="b").cached


@pytest.mark.model
def test_the_build_has_a_stable_name() -> None:
    assert build_id() == build_id()
    assert len(build_id()) == 16
    assert os.sep not in build_id()
