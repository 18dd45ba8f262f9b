"""The tests of `tests/unit/engine/trtllm/test_fake.py` that start programs."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from pathlib import Path

import pytest
from tests.fakes import model_directory
from tests.unit.engine.trtllm import trt  # noqa: F401 - it keeps MPI out of this process  # noqa: F401 - it keeps MPI out of this process
from tests.unit.engine.trtllm.test_fake import run


def test_the_import_writes_a_banner_and_reads_the_log_level_once() -> None:
    code = (
        "import os, tensorrt_llm as t; os.environ['TLLM_LOG_LEVEL'] = 'info'; import tensorrt_llm; print(t.LOG_LEVEL)"
    )
    done = run(code, TLLM_DISABLE_MPI="1", TLLM_LOG_LEVEL="error")
    assert done.stdout.splitlines() == ["[TensorRT-LLM] TensorRT LLM version: 1.2.1 (a fake for tests)", "error"], done


def test_the_later_version_has_its_own_signatures() -> None:
    code = (
        "import inspect, tensorrt_llm as t\nfrom tensorrt_llm import signatures as s\n"
        "print('priority' in s.signature('BaseLLM.generate_async').parameters)\n"
        "t.KvCacheConfig(disk_cache_size=5)\ntry: t.KvCacheConfig(onboard_blocks=True)\n"
        "except ValueError: print('gone')"
    )
    done = run(code, TLLM_DISABLE_MPI="1", FAKE_TRTLLM_VERSION="1.3.0rc15")
    assert done.stdout.splitlines()[1:] == ["True", "gone"], done


NEEDS_MPI = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None,
    reason="Open MPI's mpirun or mpi4py is not installed",
)


RANKS = """
import sys
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor
import tensorrt_llm
if MPI.COMM_WORLD.rank:
    with MPICommExecutor(MPI.COMM_WORLD) as pool: assert pool is None
else:
    from shepherd.engine.trtllm.library import Library, LibraryOptions
    from shepherd.engine.trtllm.arguments import Arguments
    from array import array
    library = Library(LibraryOptions(sys.argv[1], True, 512), lambda make: make(MPI.COMM_WORLD, 2))
    steps = [*library.start(array("i", [5] * 9), Arguments({"top_k": 1}), 5)]
    print("tokens", sum(len(step.tokens) for step in steps), steps[-1].end, library.is_down)
    library.close()
    print("down", library.is_down)
"""


@NEEDS_MPI
def test_an_engine_of_two_ranks_runs_under_a_real_mpirun(tmp_path: Path) -> None:
    directory = model_directory.make(tmp_path / "engine", "engine", pp=2, say=[["", "word " * 20]])
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    done = run(f"import sys, runpy; sys.argv[1:] = [{str(directory)!r}]; runpy.run_path({str(script)!r})", mpirun=2)
    said = [line for line in done.stdout.splitlines() if line and "version" not in line]
    assert said == ["tokens 5 length False", "down True"], done
    assert done.returncode == 0
