"""Real measurements of the embedded model, as small as they can be, and children that do not end well."""

from __future__ import annotations

import json
import logging
import re
from array import array
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from shepherd.measure import store
from shepherd.measure.space import GOALS, Candidate
from shepherd.measure.trial import Run, Workload, _measured, _speeds
from shepherd.measure.tuning import Progress
from shepherd.models import gguf

ONE = Candidate(n_threads=1, n_batch=64, n_ubatch=64, flash_attn=False)


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


@pytest.mark.model
def test_the_time_of_other_programs_does_not_count_where_processor_time_is_measured(lamb: Path) -> None:
    """A million threads that share the processor time would be a million times as fast: the clock is not looked at."""
    task = {"path": lamb, "candidate": asdict(ONE), "repeat_s": 0, "use_extra_bufts": False}
    slow, fast = (
        _measured({**json.loads(json.dumps(task, default=str)), "workload": asdict(Workload(64, 2, n_busy=n))})[0]
        for n in (0, 1_000_000)
    )
    for name in ("prompt", "empty", "deep"):
        assert fast[name] > 10_000 * slow[name] > 0


def test_many_conversations_count_for_throughput_alone() -> None:
    few, many = Run(100.0, 10.0, 10.0, 20.0, 2**20), Run(100.0, 10.0, 10.0, 40.0, 2**20)
    ratios = {goal: (many.score(goal) or 0) / (few.score(goal) or 1) for goal in GOALS}
    assert ratios == {"chat": 1, "agent": 1, "memory": 1, "throughput": pytest.approx(1.6)}
    assert Run(100.0, 10.0, 10.0).score("throughput") is None


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
