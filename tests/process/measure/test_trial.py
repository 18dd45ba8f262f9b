"""The tests of `tests/unit/measure/test_trial.py` that start programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.measure.test_trial import ONE

from shepherd.measure.space import Candidate
from shepherd.measure.trial import MOST_DIVERGENCE, Workload, measure
from shepherd.models import gguf


@pytest.mark.model
def test_a_candidate_is_measured_with_its_settings_and_quality(lamb: Path, tmp_path: Path) -> None:
    reference = tmp_path / "reference.npy"
    work = Workload(depth=64, n_generate=4, n_quality=16, parallel=True)
    (plain,) = measure(lamb, ONE, work, timeout_s=60, reference=reference)
    assert plain.problem == ""
    assert min(plain.prompt, plain.empty, plain.deep, plain.parallel) > 0
    assert plain.memory_bytes > gguf.read_header(lamb).size_bytes
    assert plain.divergence is None, "it is what others are compared with"
    small = Candidate(n_threads=1, flash_attn=True, cache_type_k="q4_0", cache_type_v="q4_0")
    (lossy,) = measure(lamb, small, work, timeout_s=60, reference=reference)
    assert lossy.divergence is not None
    assert lossy.divergence > 0
    assert bool(lossy.problem) == (lossy.divergence > MOST_DIVERGENCE)


@pytest.mark.model
def test_a_combination_that_the_library_refuses_is_a_result(lamb: Path) -> None:
    refused = Candidate(n_threads=1, flash_attn=False, cache_type_v="q8_0")
    (run,) = measure(lamb, refused, Workload(64, 2), timeout_s=60)
    assert run.problem.startswith("no context of 256 tokens can be made")
    assert run.score("chat") is None


@pytest.mark.model
def test_a_context_for_which_there_is_no_memory_is_a_result(lamb: Path) -> None:
    wide = replace(ONE, cache_type_k="f32", cache_type_v="f32")  # 72 GiB, and a child may have 64
    (run,) = measure(lamb, wide, Workload(depth=6_291_456), timeout_s=60)
    assert run.problem.startswith("no context of 6291712 tokens can be made")


@pytest.mark.model
def test_quality_is_judged_by_the_text_that_is_given(lamb: Path, tmp_path: Path) -> None:
    text, short = tmp_path / "text.txt", tmp_path / "short.txt"
    text.write_text("A red cup stands on the table beside a green one. " * 20)
    short.write_text("A red cup.")
    work = Workload(64, 2, n_quality=8)
    done = [measure(lamb, ONE, work, timeout_s=60, reference=tmp_path / name, text=given)[0]
            for name, given in (("theirs.npy", text), ("ours.npy", None))]  # fmt: skip
    assert [run.problem for run in done] == ["", ""]
    theirs, ours = (np.load(tmp_path / name) for name in ("theirs.npy", "ours.npy"))
    assert theirs.shape == ours.shape
    assert not np.allclose(theirs, ours)
    (refused,) = measure(lamb, ONE, work, timeout_s=60, text=short)
    assert refused.problem.startswith(f"{short}: has ")
    assert refused.problem.endswith("tokens, 64 are needed; give a longer text")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os; os.abort()", "this combination makes the library crash (SIGABRT)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "this combination makes the library crash"),
        ("import time; time.sleep(60)", "this combination takes longer than 0 s"),
        ("print('{')", "this combination makes the library fail (exit status 0)"),
    ],
)
def test_a_child_that_dies_is_a_result(code: str, problem: str, lamb: Path) -> None:
    (run,) = measure(
        lamb, ONE, Workload(), timeout_s=0.4 if "sleep" in code else 60, command=(sys.executable, "-c", code)
    )
    assert run.problem.startswith(problem)
    assert run.took_s > 0
