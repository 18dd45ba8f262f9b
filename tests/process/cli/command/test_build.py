"""A build of the native library that runs: what is shown of it, and what is left of one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.in_time import becomes_true

from shepherd.cli.command import build
from shepherd.core import ShepherdError
from shepherd.process import tree

PROGRAM = """
import os, sys
print("CMake configures")
print("[1/4] c++ a.cpp")
print("[4/4] c++ d.cpp", file=sys.stderr)
print(os.environ["SWITCHES"])
sys.exit(os.environ.get("FAILS"))
"""


def test_a_build_shows_how_far_it_is_in_a_pipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    build.build_it(build.Command((sys.executable, "-u", "-c", PROGRAM), {"SWITCHES": "-DX=ON"}, tmp_path))
    assert [line.removeprefix("shepherd: ") for line in capsys.readouterr().err.splitlines()] == [
        "getting the sources, and looking at this machine",
        "compiling, 25%",
        "compiling, 100%",
    ]


def test_a_build_that_fails_is_explained_and_its_words_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    variables = {"SWITCHES": "-DX=ON", "FAILS": "c++: fatal error: a.o: No space left on device"}
    with pytest.raises(ShepherdError, match="the disk is full"):
        build.build_it(build.Command((sys.executable, "-c", PROGRAM), variables, None))
    kept = (tmp_path / "shepherd" / "build.log").read_text("utf-8")
    assert "-DX=ON\n" in kept
    assert kept.endswith("No space left on device\n")


COMPILES = """
import os, pathlib, signal, subprocess, sys
compiler = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
pathlib.Path("compiler").write_text(str(compiler.pid))
os.kill(os.getppid(), signal.SIGINT)
compiler.wait()
"""


def test_ctrl_c_ends_a_build_with_its_compilers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build.build_it(build.Command((sys.executable, "-c", COMPILES), {}, tmp_path))
    assert "stopped; the library is as it was before" in capsys.readouterr().err
    number = int((tmp_path / "compiler").read_text())
    assert becomes_true(lambda: (compiler := tree.find(number)) is None or not tree.is_alive(compiler))


@pytest.mark.parametrize("content", ["no library", "another library"])
def test_a_library_that_does_not_load_is_named_with_what_builds_another(content: str, tmp_path: Path) -> None:
    from shepherd.engine.llamacpp.library import library_path

    here = library_path()
    other = next(here.parent.glob(f"*ggml-base{here.suffix}"))
    (tmp_path / here.name).write_bytes(other.read_bytes() if content == "another library" else b"no library")
    done = subprocess.run(
        [sys.executable, "-m", "shepherd", "build"],
        env={**os.environ, "LLAMA_CPP_LIB_PATH": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the native llama.cpp library cannot be loaded (" in done.stdout
    assert "'shepherd doctor --build' builds it again" in done.stdout
