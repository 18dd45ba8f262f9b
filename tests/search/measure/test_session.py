"""The tests of `tests/unit/measure/test_session.py` that take long."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import until

from shepherd import config as configuration
from shepherd.measure.session import Session
from shepherd.measure.subject import subject_of

MEASURES = "shepherd.measure.trial"


@pytest.mark.model
async def test_a_cancelled_run_ends_its_children_and_keeps_what_it_has(lamb: Path, tmp_path: Path) -> None:
    import psutil

    config = configuration.load(
        env={}, cwd=tmp_path, user_dir=tmp_path, flags={"threads": 1, "model": str(lamb)}, read_files=False
    )

    def served(_: object) -> Any:
        raise AssertionError("it was cancelled before")

    run = Session(config, subject_of(config, None), budget_s=600, folder=tmp_path, cache_folder=tmp_path, served=served)

    def children() -> list[Any]:
        """Those that measure for long; the first one, which does not, ends by itself."""
        found = psutil.process_iter(["cmdline", "ppid"])
        words = {each: " ".join(each.info["cmdline"] or ()) for each in found if each.info["ppid"] == os.getpid()}
        return [each for each, line in words.items() if MEASURES in line and '"repeat_s": 0.0' not in line]

    task = asyncio.create_task(run.run())
    await until(lambda: bool(children()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not children())
    assert run.phase == "engine"
    assert not (tmp_path / "memory.db").exists()
