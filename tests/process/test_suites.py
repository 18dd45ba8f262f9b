"""The tests of `tests/search/test_suites.py` that start programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from suites.report import FOLDER

CHECKS = """
import assert from 'node:assert/strict';
import { notApplicable, run } from './checks.mjs';
await run({ one: {} }, {
  good: async () => {},
  bad: async () => assert.equal(1, 2),
  aside: async () => notApplicable('no such thing'),
  silent: async () => notApplicable(),
  blank: async () => notApplicable(' '),
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_a_check_in_javascript_that_throws_or_gives_no_reason_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "planted.mjs").write_text(CHECKS)
    shutil.copy(FOLDER / "checks.mjs", tmp_path)
    rows = tmp_path / "rows.json"
    environment = {**os.environ, "SHEPHERD_SUITE_ROWS": str(rows)}
    subprocess.run(["node", "planted.mjs"], cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert {case: outcome for case, outcome, _ in json.loads(rows.read_text())} == {
        "one: good": "passed", "one: bad": "failed", "one: aside": "not applicable",
        "one: silent": "failed", "one: blank": "failed",
    }  # fmt: skip
