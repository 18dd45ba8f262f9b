"""The prepared run on a GPU keeps its budget, says what a machine lacks, and goes on where it stopped."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from bench.gpu import build, facts, pack, plan, run
from bench.gpu.facts import GIB, Facts
from bench.gpu.plan import BY_NAME, STEPS, Clock, Go, Pass, Stamp
from bench.rig.random_gguf import FileType, Shape, tiled_model
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.places import BENCH

PACK = "0123456789abcdef"
FRESH = Clock(plan.TOTAL_S, 0, plan.CALL_S)
READY = {step.name: Stamp("done", 9, PACK) for step in STEPS if step.needed}
MACHINE = Facts(
    gpu="NVIDIA H100 80GB HBM3", capability=90, gpu_bytes=80 * GIB, driver="580.159.04", driver_cuda=(13, 0),
    nvcc="/usr/local/cuda/bin/nvcc", nvcc_cuda=(13, 0), toolkit="/usr/local/cuda", cmake="/usr/bin/cmake",
    cmake_version=(3, 28), ninja="/usr/bin/ninja", cxx="/usr/bin/c++", cores=16, memory_bytes=120 * GIB,
    disk_bytes=60 * GIB, python=(3, 12), cpu="a CPU",
)  # fmt: skip


# -- the plan ------------------------------------------------------------------------------------------------------


def test_all_steps_fit_into_fifteen_minutes_of_a_machine_and_each_into_a_call() -> None:
    assert sum(step.gpu_s for step in STEPS) <= plan.TOTAL_S
    assert plan.TOTAL_S + 120 <= 15 * 60
    assert all(step.gpu_s < plan.CALL_S < plan.STEP_S < 600 for step in STEPS)


def test_the_page_has_the_budgets_of_the_plan() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (BENCH / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(step.name, f"{step.gpu_s:.0f}") for step in STEPS]


def test_a_step_that_is_done_is_not_run_again_unless_it_is_asked_for() -> None:
    done = {**READY, "small": Stamp("done", 40, PACK)}
    assert plan.decide(BY_NAME["small"], done, FRESH, PACK, cpu=False) == Pass("done")
    assert isinstance(plan.decide(BY_NAME["small"], done, FRESH, PACK, cpu=False, again=True), Go)


@pytest.mark.parametrize("stamp", [None, Stamp("failed", 3, PACK), Stamp("left out", 0, PACK), Stamp("done", 9, "old")])
def test_what_failed_was_left_out_or_made_from_other_archives_is_run(stamp: Stamp | None) -> None:
    stamps = READY if stamp is None else {**READY, "small": stamp}
    assert plan.decide(BY_NAME["small"], stamps, FRESH, PACK, cpu=False) == Go(2 * BY_NAME["small"].gpu_s)


def test_a_step_names_what_it_needs_first() -> None:
    stamps = {**READY, "unpack": Stamp("done", 5, "old"), "build": Stamp("failed", 5, PACK)}
    assert plan.decide(BY_NAME["small"], stamps, FRESH, PACK, cpu=False) == Pass("it needs unpack, build first")
    assert isinstance(plan.decide(BY_NAME["unpack"], stamps, FRESH, PACK, cpu=False), Go)


def test_a_step_that_would_pass_the_whole_budget_is_left_out_with_the_numbers() -> None:
    clock = Clock(plan.TOTAL_S, plan.TOTAL_S - 40, plan.CALL_S)
    assert plan.decide(BY_NAME["large"], READY, clock, PACK, cpu=False) == Pass(
        "it may take 120 s, and 40 of 780 s are left"
    )


def test_a_step_that_would_pass_the_call_is_left_to_the_next_one() -> None:
    decision = plan.decide(BY_NAME["large"], READY, Clock(plan.TOTAL_S, 300, 100), PACK, cpu=False)
    assert decision == Pass("it may take 120 s, and this call has 100 s left", later=True)


@settings(max_examples=examples(50))
@given(step=st.sampled_from(STEPS), spent_s=st.floats(0, 900), call_left_s=st.floats(0, 600))
def test_no_step_gets_more_time_than_there_is(step: plan.Step, spent_s: float, call_left_s: float) -> None:
    clock = Clock(plan.TOTAL_S, spent_s, call_left_s)
    decision = plan.decide(step, READY, clock, PACK, cpu=False, again=True)
    if isinstance(decision, Go):
        assert step.gpu_s <= decision.limit_s <= min(clock.left_s, call_left_s, plan.STEP_S)


def test_stamps_come_back_and_a_torn_one_counts_as_none(tmp_path: Path) -> None:
    stamp = Stamp("done", 12.5, PACK, notes=["a note"], promises=[{"id": "ENG-33"}])
    plan.write(tmp_path, "small", stamp)
    plan.write(tmp_path, "build", stamp)
    (tmp_path / "middle.json").write_text("{")
    (tmp_path / "large.json").write_text('{"state": "done"}')
    (tmp_path / "build.new").write_text("{")
    assert plan.read(tmp_path) == {"small": stamp, "build": stamp}


def test_the_table_has_figures_promises_and_what_became_of_each_step() -> None:
    row = {"measured": "decode", "unit": "tokens/s", "shepherd": 99.5, "llama-bench": 100.0,
           "ratio": {"llama-bench": 0.995}, "rounds": {"shepherd": [99.5], "llama-bench": [100.0]}}  # fmt: skip
    alone = {"measured": "again", "unit": "ms", "a re-prefill": 7.0, "ratio": {}, "rounds": {"a re-prefill": [7.0]}}
    promise = {"id": "ENG-33", "what": "generation", "promised": "25 tokens/s", "measured": "31 tokens/s"}
    stamps = {
        "small": Stamp("done", 40.4, PACK, rows=[row, alone], promises=[promise], notes=["a note"]),
        "large": Stamp("left out", 0, PACK, "it may take 120 s"),
    }
    said = plan.report(stamps, cpu=False)
    rows = [re.split(r"  +", line) for line in said.splitlines()]
    for expected in (
        ["decode", "tokens/s", "99.5", "llama-bench 100", "0.99"],
        ["again", "ms", "a re-prefill 7"],
        ["ENG-33", "generation", "25 tokens/s", "31 tokens/s"],
        ["build", "not yet", "240"],
        ["small", "done", "40", "45"],
        ["large", "left out", "0", "120", "it may take 120 s"],
    ):
        assert expected in rows
    assert said.endswith("small: a note")
    assert plan.report(stamps, cpu=True).startswith("A dry run on the CPU")


# -- what a machine lacks ------------------------------------------------------------------------------------------


def test_a_machine_with_everything_has_no_problem() -> None:
    assert facts.problems(MACHINE, cpu=False, python=(3, 12)) == []
    assert facts.problems(replace(MACHINE, gpu="", nvcc="", nvcc_cuda=None), cpu=True, python=(3, 12)) == []


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        (replace(MACHINE, gpu="", capability=0), "nvidia-smi lists no GPU"),
        (replace(MACHINE, nvcc="", nvcc_cuda=None), "nvcc is not there: install the CUDA toolkit"),
        (replace(MACHINE, driver="550.90", driver_cuda=(12, 4)), "driver 550.90 runs CUDA up to 12.4, and nvcc makes"),
        (replace(MACHINE, gpu="NVIDIA P100", capability=60), "NVIDIA P100 has compute capability 6.0, and nvcc 13.0"),
        (replace(MACHINE, cmake="", cmake_version=None), "CMake is not there"),
        (replace(MACHINE, cmake_version=(3, 10)), "CMake is 3.10, and llama.cpp needs 3.18 or later"),
        (replace(MACHINE, cxx=""), "a C++ compiler is not there"),
        (replace(MACHINE, python=(3, 13)), "for Python 3.12, and this is 3.13"),
        (replace(MACHINE, disk_bytes=3 * GIB), "3.0 GiB of disk are free, and the smallest run needs 8 GiB"),
        (replace(MACHINE, memory_bytes=GIB), "1.0 GiB of memory are free, and the smallest run needs 6 GiB"),
    ],
)
def test_what_a_machine_lacks_is_a_sentence(lacking: Facts, sentence: str) -> None:
    found = facts.problems(lacking, cpu=False, python=(3, 12))
    assert len(found) == 1
    assert sentence in found[0]


# -- the build -----------------------------------------------------------------------------------------------------


def test_a_whole_toolkit_is_built_for_one_kind_of_gpu_alone(tmp_path: Path) -> None:
    for name in ("include/cublas_v2.h", "lib64/stubs/libcuda.so"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    found = build.cuda_build(replace(MACHINE, toolkit=str(tmp_path)), tmp_path / "links")
    assert "-DCMAKE_CUDA_ARCHITECTURES=90-real" in found.options
    assert (found.environment, found.notes) == ({}, ())


def test_cublas_of_a_python_package_is_linked_under_the_names_that_compilers_look_for(tmp_path: Path) -> None:
    package = tmp_path / "site" / "nvidia" / "cu13"
    for name in ("include/cublas_v2.h", "include/cuda_runtime.h", "lib/libcublas.so.13", "lib/libcublasLt.so.13"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    links = tmp_path / "links"
    machine = replace(MACHINE, toolkit=str(tmp_path / "toolkit"), packages=(str(tmp_path / "site"),))
    for _ in range(2):  # a build that was ended goes on
        found = build.cuda_build(machine, links)
    assert f"-DCUDA_cublas_LIBRARY={links}/libcublas.so" in found.options
    assert "-DGGML_CUDA_NO_VMM=ON" in found.options  # nothing to link the driver with
    driver = build.cuda_build(replace(machine, driver_library="/lib/libcuda.so.1"), links)
    assert "-DCUDA_cuda_driver_LIBRARY=/lib/libcuda.so.1" in driver.options
    assert found.environment == {"CPATH": f"{links}/include"}
    assert {path.name: path.resolve().parent.name for path in links.glob("**/*") if path.is_symlink()} == {
        "cublas_v2.h": "include", "libcublas.so": "lib", "libcublas.so.13": "lib", "libcublasLt.so": "lib",
        "libcublasLt.so.13": "lib",
    }  # fmt: skip


def test_a_toolkit_without_cublas_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="install libcublas-dev of this version of CUDA"):
        build.cuda_build(replace(MACHINE, toolkit=str(tmp_path)), tmp_path / "links")


# -- the pack ------------------------------------------------------------------------------------------------------


def test_the_archive_has_what_is_compiled_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    kept = ["CMakeLists.txt", "ggml/src/ggml-cuda/mmq.cu", "scripts/ui-assets.cmake", "tools/ui/ui.cpp.in"]
    dropped = [
        "tests/test.cpp", "docs/build.md", "models/a.gguf", "ggml/src/ggml-vulkan/vulkan.cpp", "src/README.md",
        "scripts/more.cmake", "tools/server/tests/unit/a.cpp", "tools/mtmd/test-1.jpeg",
    ]  # fmt: skip
    for name in (*kept, *dropped):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(name)
    for target in ("one.tar.xz", "two.tar.xz"):
        (tmp_path / "tree" / "CMakeLists.txt").touch()
        pack.pack_source(tmp_path / "tree", tmp_path / target)
    with tarfile.open(tmp_path / "one.tar.xz") as tar:
        assert sorted(tar.getnames()) == sorted(kept)
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()


def test_a_pack_that_is_missing_or_torn_says_how_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(
        run.Failed, match=r"lacks pack\.json, llama\.tar\.xz, site\.tar\.xz: make it .* bench\.gpu\.pack"
    ):
        run.read_pack(tmp_path)
    for name in (run.CONTENTS, run.SOURCE, run.SITE):
        (tmp_path / name).write_text("{}")
    with pytest.raises(run.Failed, match="pack again"):
        run.read_pack(tmp_path)
    whole = {"python": [3, 12], "key": PACK, "sha256": {run.SOURCE: "0", run.SITE: "0"}}
    (tmp_path / run.CONTENTS).write_text(json.dumps(whole))
    assert run.read_pack(tmp_path) == whole


# -- the models ----------------------------------------------------------------------------------------------------

SHAPE = Shape(2, 64, 96, 4, 2, 300, tied=False)


BLOCK_BYTES: dict[FileType, int] = {"F16": 2, "Q8_0": 34, "Q4_0": 18}


@pytest.mark.parametrize(("file_type", "size"), [("F16", 2.0), ("Q8_0", 34 / 32), ("Q4_0", 18 / 32)])
def test_a_tiled_model_has_random_weights_of_the_usual_spread_in_every_row(
    file_type: FileType, size: float, tmp_path: Path
) -> None:
    n_blocks = 312  # a few more than there are rows; with 310 every second row would be another one again
    path = tiled_model(tmp_path / "model.gguf", SHAPE, file_type, n_blocks * BLOCK_BYTES[file_type])
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert set(tensors) == {*SHAPE.vectors(), *(name for name, _, _ in SHAPE.matrices())}
    n_values = 0
    for name, rows, columns in SHAPE.matrices():
        values = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        assert values.shape == (rows, columns)
        assert len(np.unique(values, axis=0)) == rows
        assert 0.018 < values.std() < 0.022
        n_values += rows * columns
    assert SHAPE.size_bytes(file_type) == int(n_values * size)
    assert all((tensors[name].data == 1).all() for name in SHAPE.vectors())
