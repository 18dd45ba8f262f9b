"""How the native library is built again: for which device, by which command, and what a failure says."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.unit.cli.conftest import shepherd

from shepherd.cli.command import build as command
from shepherd.cli.command import doctor
from shepherd.core import ConfigError
from shepherd.engine.llamacpp import build
from shepherd.process import installed

CHECKOUT = command.Way("uv in a checkout", "uv run shepherd", "", Path("/a checkout"))
TOOL = command.Way("uv tool", "shepherd", "")
CUDA = build.BACKENDS["cuda"]


def test_uv_in_a_checkout_and_every_other_way_build_with_the_same_switches() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["uv"]["extra-build-variables"][build.PACKAGE] == dict(build.VARIABLES)


def test_the_page_of_installing_has_the_same_switches() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    for name, value in build.VARIABLES.items():
        assert f"export {name}={shlex.quote(value)}\n" in page


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("dev/nvidia0", "cuda"),
        ("usr/lib/wsl/lib/libcuda.so.1", "cuda"),
        ("dev/kfd", "rocm"),
        ("dev/dri/renderD128", "vulkan"),
        ("dev/dri/card0", None),  # a screen alone, such as that of a server
        ("dev/nvidiactl", None),  # left by a driver without a card
    ],
)
def test_a_device_is_seen_by_the_files_of_its_driver(file: str, name: str | None, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    seen = [*build.devices_seen(tmp_path, system="linux")]
    assert seen == ([(name, str(tmp_path / file))] if name else [])


def test_an_apple_processor_has_metal(tmp_path: Path) -> None:
    assert [*build.devices_seen(tmp_path, system="darwin", machine="arm64")] == [("metal", "an Apple processor")]
    assert [*build.devices_seen(tmp_path, system="darwin", machine="x86_64")] == []


@pytest.mark.parametrize(
    ("usable", "seen", "library", "state", "words"),
    [
        (["RTX 4090"], ["cuda"], "libggml-cuda.so", "ok", "RTX 4090"),
        ([], [], "libggml-cpu.so", "ok", "none found"),
        ([], ["cuda"], "libggml-cpu.so", "note", "not built for it"),
        ([], ["cuda", "vulkan"], "libggml-cuda.so", "note", "and cannot use it"),
    ],
)
def test_doctor_says_when_the_library_lacks_the_gpu_that_the_machine_has(
    *, usable: list[str], seen: list[str], library: str, state: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / library).touch()
    result = doctor.gpu_result(usable, [(name, "/dev/it") for name in seen], tmp_path)
    assert result.state == state
    assert words in result.detail
    assert ("shepherd doctor --build cuda" in result.hint) == (words == "not built for it")


@pytest.mark.parametrize(
    ("way", "made_by", "title"),
    [
        ("clone", "home = /usr/bin\nuv = 0.13.9\n", "uv in a checkout"),
        ("clone", "home = /usr/bin\n", "pip"),
        ("uv tool", "uv = 0.13.9\n", "uv tool"),
        ("pipx", "", "pipx"),
        ("temporary", "uv = 0.13.9\n", "uvx or pipx run"),
        ("pip", "uv = 0.13.9\n", "pip"),
    ],
)
def test_only_uv_builds_in_a_clone(way: installed.Way, made_by: str, title: str, tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text(made_by)
    found = command.find_way(installed.Installed(way, Path("/my clone")), tmp_path)
    assert (found.title, found.checkout) == (title, Path("/my clone") if title == "uv in a checkout" else None)


@pytest.mark.parametrize(
    ("way", "has_pip", "wheel", "words", "folder", "has_ours"),
    [
        (CHECKOUT, True, False, ["/bin/uv", "pip", "install"], Path("/a checkout"), False),
        (TOOL, False, False, ["/bin/uv", "pip", "install"], None, True),
        (TOOL, True, False, [sys.executable, "-m", "pip", "install"], None, True),
        (CHECKOUT, True, True, [sys.executable, "-m", "pip", "wheel"], None, True),
    ],
)
def test_the_command_is_that_of_the_installer_and_keeps_our_switches_and_those_of_the_person(
    *,
    way: command.Way,
    has_pip: bool,
    wheel: bool,
    words: list[str],
    folder: Path | None,
    has_ours: bool,
    tmp_path: Path,
) -> None:
    env = {"UV": "/bin/uv", "PATH": str(tmp_path), "CMAKE_ARGS": "-DMINE='a b'"}
    made = command.make_command(CUDA, way, env, tmp_path if wheel else None, has_pip=has_pip)
    assert list(made.words[: len(words)]) == words
    assert made.words[-1].startswith("llama-cpp-python==")
    assert made.folder == folder
    assert made.variables["CMAKE_ARGS"] == "-DGGML_CUDA=ON -DMINE='a b'"
    assert (made.variables.get("SKBUILD_CMAKE_ARGS") == build.VARIABLES["SKBUILD_CMAKE_ARGS"]) == has_ours
    typed = shlex.split(made.line())
    assert typed[-len(made.words) :] == list(made.words)
    assert f"CMAKE_ARGS={made.variables['CMAKE_ARGS']}" in typed


def test_without_pip_and_uv_nothing_can_be_built() -> None:
    with pytest.raises(ConfigError, match="has no pip, and there is no uv on PATH"):
        command.make_command(CUDA, TOOL, {"PATH": "/nowhere"}, None, has_pip=False)
    with pytest.raises(ConfigError, match="uv run --with pip"):
        command.make_command(CUDA, TOOL, {"UV": "/bin/uv"}, Path("wheels"), has_pip=False)


def test_a_missing_program_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "CXX": "clang++"}
    vulkan = build.BACKENDS["vulkan"]
    assert [hint.partition(":")[0] for hint in build.missing(vulkan, env)] == ["the Vulkan SDK"]
    assert len(build.missing(vulkan, {"PATH": str(tmp_path)})) == 2
    glslc = tmp_path / "glslc"
    glslc.touch(0o755)
    assert build.missing(vulkan, env) == []


def test_a_toolkit_beside_path_is_found_and_put_on_it(tmp_path: Path) -> None:
    tool = tmp_path / "nvcc-of-a-test"
    tool.touch(0o755)
    need = build.Needed((tool.name,), "NO_SUCH_VARIABLE", "", (str(tmp_path),))
    backend = build.Backend("", "-DX=ON", (need,), 1)
    assert build.variables(backend, {"PATH": "/bin"}) == {"CMAKE_ARGS": "-DX=ON", "PATH": f"/bin:{tmp_path}"}
    assert build.variables(backend, {"PATH": str(tmp_path)}) == {"CMAKE_ARGS": "-DX=ON"}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("x\n c++: fatal error: a.o: No space left on device\n", "the disk is full"),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'\n", "the disk is full"),
        ("ERROR: No matching distribution found for llama-cpp-python\n", "the package index cannot be reached"),
        ("  error sending request for url\n  dns error: failed to lookup address\n", "index cannot be reached"),
        ("[Errno 13] Permission denied: '/usr/lib/x'\n", "cannot be written to"),
        ("error: externally-managed-environment\n", "belongs to the system"),
        ("CMake Error: No CMAKE_CUDA_COMPILER could be found.\n", "the CUDA toolkit is incomplete"),
        ("c++: fatal error: Killed signal terminated program cc1plus\n", "memory ran out"),
        ("[3/9] c++ error.cpp\n a.cpp:3: error: \x1b[31mno thing\x1b[0m\n", "it said: a.cpp:3: error: no thing."),
        ("something else\n", "it ended with status 9"),
        ("DEBUG an error\nerror: Failed to build `x`\n  c++: error: no file\n", "it said: c++: error: no file."),
    ],
)  # fmt: skip
def test_a_build_that_fails_says_why_and_that_nothing_has_changed(output: str, words: str) -> None:
    said = command.explain(output.splitlines(keepends=True), 9, Path("/log"))
    assert words in said
    assert said.startswith("the library was not built, and is as it was before: ")
    assert said.endswith("All that it said: /log")
    assert "\x1b" not in said


def test_the_command_that_is_shown_finds_the_same_compilers() -> None:
    shown = command.Command(("uv", "pip"), {"CMAKE_ARGS": "-DX=ON -DY=ON", "PATH": "/bin:/usr/local/cuda/bin"}, None)
    assert shown.line() == "CMAKE_ARGS='-DX=ON -DY=ON' PATH=/bin:/usr/local/cuda/bin uv pip"


def test_the_command_line_says_what_belongs_together() -> None:
    assert "--yes, --print and --wheel belong to --build" in shepherd("doctor", "--yes").output
    assert "choose one of cuda, rocm, vulkan, metal, cpu" in shepherd("doctor", "--build", "cudda").output
    assert "there is no terminal to ask in; add --yes" in shepherd("doctor", "--build", "cpu").output
    if sys.platform != "darwin":
        assert "--build metal needs an Apple computer" in shepherd("doctor", "--build", "metal").output
    shown = shepherd("doctor", "--build", "--print")
    assert shown.exit_code == 0
    assert "llama-cpp-python==" in shown.output
