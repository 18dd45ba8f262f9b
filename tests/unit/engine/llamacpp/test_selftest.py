"""The self-test of the native library: it passes here, it is remembered, and a planted crash is caught."""

import os
from pathlib import Path

import pytest

from shepherd.engine.llamacpp.selftest import build_id, verdict


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
