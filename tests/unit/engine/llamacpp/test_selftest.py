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


def test_without_room_for_the_test_the_library_is_not_called_broken(tmp_path: Path) -> None:
    def run(_: bool) -> int:
        return 1  # as a child ends that cannot write

    found = verdict(tmp_path, run=run, build="b", room_bytes=1_000_000)
    assert not found.use_extra_bufts
    assert "no room for 32 MiB" in found.detail
    assert verdict(tmp_path, run=lambda _: 0, build="b", room_bytes=2**30).use_extra_bufts, "and tested when there is"


@pytest.mark.model
def test_the_build_has_a_stable_name() -> None:
    assert build_id() == build_id()
    assert len(build_id()) == 16
    assert os.sep not in build_id()
