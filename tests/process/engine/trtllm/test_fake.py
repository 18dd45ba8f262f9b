"""The tests of `tests/unit/engine/trtllm/test_fake.py` that start programs."""

from __future__ import annotations

import importlib
import importlib.util
import json
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


SAMPLED = """
import asyncio, json, sys
from pathlib import Path
from shepherd.core import Sampling, Unsupported
from tests.unit.engine.trtllm.trt import Bench

async def main():
    bench = Bench(Path(sys.argv[1]), say=[["", "a b c d e f g h"]], logits=1.0)
    open_, hot = dict(temperature=2.0, top_k=0, top_p=1.0, min_p=0.0), {}
    async def text(**more):
        try:
            return bench.text(await bench.steps(bench.job("x", 12, sampling=Sampling(**open_ | more))))
        except Unsupported as error:
            return error.field
    seeded = await asyncio.gather(*(text(seed=7) for _ in range(3)), text(), *(text(seed=7) for _ in range(2)))
    print(json.dumps({
        "seed": sorted({*seeded[:3], *seeded[4:]}),
        "most": bench.worker.most_running,
        "others": [await text(seed=8), await text(seed=9)],
        "min_p": [await text(min_p=1.0), await text(min_p=1.0)],
        "plain": await text(top_k=1),
        "penalty": await text(presence_penalty=50.0, repeat_last_n=-1, top_k=1),
    }))
    bench.engine.close()

asyncio.run(main())
"""


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc24", "1.3.0rc25", "1.4.0rc4"])
def test_each_version_heeds_what_is_sent_to_it_and_is_sent_no_more(tmp_path: Path, version: str) -> None:
    code = f"import sys; sys.argv[1:] = [{str(tmp_path / 'm')!r}]\n{SAMPLED}"
    done = run(code, TLLM_DISABLE_MPI="1", FAKE_TRTLLM_VERSION=version)
    assert done.returncode == 0, done
    said = json.loads(done.stdout.splitlines()[-1])
    if version in ("1.3.0rc25", "1.4.0rc4"):
        assert (len(said["seed"]), said["most"]) == (1, 1), "one text, drawn by itself each time"
        assert len({*said["seed"], *said["others"]}) == 3
        assert said["min_p"] == [said["plain"]] * 2
    else:
        assert (said["seed"], said["min_p"]) == (["seed"], ["min_p"] * 2)
    if version == "1.2.1":
        assert said["penalty"] == "presence_penalty"
    else:
        assert said["penalty"] not in ("presence_penalty", said["plain"])


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
