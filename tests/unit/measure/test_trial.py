"""Real measurements of the embedded model, as small as they can be, and children that do not end well."""

from __future__ import annotations

import json
import logging
import re
import sys
from array import array
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from shepherd.measure import store
from shepherd.measure.space import GOALS, Candidate
from shepherd.measure.trial import MOST_DIVERGENCE, Run, Workload, _measured, _speeds, measure
from shepherd.measure.tuning import Progress
from shepherd.models import gguf

ONE = Candidate(n_threads=1, n_batch=64, n_ubatch=64, flash_attn=False)


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
def test_one_child_measures_again_and_again(lamb: Path) -> None:
    first, *others = measure(lamb, ONE, Workload(depth=64, n_generate=4, parallel=True), repeat_s=2.0, timeout_s=60)
    assert (first.problem, len(others) > 0) == ("", True)
    assert all(min(each.prompt, each.empty, each.deep, each.parallel) > 0 for each in (first, *others))
    assert first.took_s > 2
    assert first.memory_bytes > 0


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
def test_what_a_child_is_asked_for_reaches_the_library(lamb: Path, caplog: pytest.LogCaptureFixture) -> None:
    candidate = Candidate(n_threads=1, mmap=False, mlock=True, sequences=7, override_tensor=(r"ffn_up=CPU",))
    task = {"path": lamb, "candidate": asdict(candidate), "workload": asdict(Workload(64, 2, parallel=True))}
    with caplog.at_level(logging.DEBUG, "shepherd.engine.llamacpp"):
        (found,) = _measured({**json.loads(json.dumps(task, default=str)), "repeat_s": 0, "use_extra_bufts": False})
    assert found["parallel"] > 0
    assert "(load_mode = mlock)" in caplog.text
    assert re.search(r"n_seq_max += 7\n", caplog.text)
    assert re.search(r"tensor blk\.0\.ffn_up\.weight .* overridden to CPU", caplog.text)


@pytest.mark.model
def test_each_of_many_conversations_has_cells_of_its_own(lamb: Path) -> None:
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    work = Workload(64, 4, parallel=True)
    with closing(Weights.load(lamb)) as weights:
        options = ContextOptions(work.cells(5), n_seq=5, n_threads=1)
        with closing(LlamaRuntime(weights, options)) as runtime:
            found = _speeds(runtime, array("i", range(65)), work, None)
            assert [runtime.held(seq) for seq in range(5)] == [(0, 67)] * 5
    assert found["parallel"] > 0


def test_many_conversations_count_for_throughput_alone() -> None:
    few, many = Run(100.0, 10.0, 10.0, 20.0, 2**20), Run(100.0, 10.0, 10.0, 40.0, 2**20)
    ratios = {goal: (many.score(goal) or 0) / (few.score(goal) or 1) for goal in GOALS}
    assert ratios == {"chat": 1, "agent": 1, "memory": 1, "throughput": pytest.approx(1.6)}
    assert Run(100.0, 10.0, 10.0).score("throughput") is None


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


@pytest.mark.model
def test_the_settings_reach_the_engine(lamb: Path) -> None:
    from shepherd.engine.llamacpp.library import C
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    with closing(Weights.load(lamb)) as weights:
        options = ContextOptions(512, n_batch=128, n_ubatch=64, n_threads=1, n_threads_batch=2)
        with closing(LlamaRuntime(weights, options)) as runtime:
            read = (C.llama_n_threads, C.llama_n_threads_batch, C.llama_n_batch, C.llama_n_ubatch)
            assert [each(runtime._context) for each in read] == [1, 2, 128, 64]


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


@pytest.mark.model
def test_results_are_kept_per_model_build_machine_and_goal(lamb: Path, tmp_path: Path) -> None:
    header = gguf.read_header(lamb)
    file, other = (store.file_of(tmp_path, header, goal) for goal in ("chat", "memory"))
    assert file != other
    text = tmp_path / "text"
    for content in ("a", "b"):
        text.write_text(content)
        judged = store.file_of(tmp_path, header, "chat", text)
        assert judged not in {file, other}, "another text is another judgement"
        other = judged
    placed = Candidate(override_tensor=("x=CPU",))
    progress = Progress(
        ONE,
        Workload(),
        runs=(
            (ONE, Run(problem="no")),
            (placed, Run(1.0, 2.0, 3.0, 0.0, 4, took_s=5.0)),
        ),
    )
    assert store.load(file, ONE) is None
    store.save(file, progress)
    assert store.load(file, ONE) == progress
    assert store.load(file, Candidate(n_threads=2)) is None, "other settings were the start"
    file.write_text('{"start": 7}')
    assert store.load(file, ONE) is None
