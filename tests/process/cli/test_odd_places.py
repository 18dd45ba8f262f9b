"""Places in which a program can be started: a home of any name, a folder that is gone, an output that takes nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.places import SOURCE
from tests.unit.cli.conftest import Home

from shepherd.models import catalog

COMMAND = (sys.executable, "-m", "shepherd", "--threads", "1")


def run(*words: str, home: Path | bytes, shell: str = 'exec "$@"', text: str = "") -> subprocess.CompletedProcess[str]:
    """What the program does and says; `shell` starts it."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "SHEPHERD_"))}
    return subprocess.run(
        ["sh", "-c", shell, "sh", *COMMAND, *words],
        env={**keep, "HOME": os.fsdecode(home)}, input=text, capture_output=True, text=True, timeout=300, check=False,
        cwd=home,
    )  # fmt: skip


@pytest.mark.search
@pytest.mark.model
def test_a_home_whose_name_is_not_utf_8_has_a_memory(tmp_path: Path) -> None:
    home = os.fsencode(tmp_path) + b"/h\xfc"
    os.mkdir(home)
    done = run("--max-tokens", "4", home=home, text="Hello!\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Hello" in done.stdout
    done = run("memory", "check", "--deep", home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is sound" in done.stdout


@pytest.mark.model
def test_windows_line_ends_are_read_as_line_ends(home: Home, tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_bytes(b"context_size = 1024\r\n[memory]\r\nrecall = false\r\n")
    config = ("--config", str(tmp_path / "shepherd.toml"))
    done = home.run(*config, "--max-tokens", "4", text="Hello!\r\n/nope\r\n/context\r\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Context: 1024 tokens" in done.stdout
    assert "there is no command /nope" in done.stdout
    assert "\r" not in done.stdout


def test_a_working_folder_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    shell = f'mkdir "{gone}" && cd "{gone}" && rmdir "{gone}" && exec "$@"'
    done = run("config", "show", home=tmp_path, shell=shell)
    assert done.returncode == 1
    assert done.stderr.startswith("shepherd: the working folder cannot be used (No such file or directory); change to")
    assert done.stderr.count("\n") == 1
    assert run("--help", home=tmp_path, shell=shell).returncode == 0


@pytest.mark.search
def test_a_package_whose_model_is_damaged_says_what_to_do_before_anything_loads_it(tmp_path: Path) -> None:
    models = tmp_path / "shepherd" / "models"
    models.mkdir(parents=True)
    for part in (*SOURCE.iterdir(), *(SOURCE / "models").iterdir()):
        if part.name not in ("models", "lamb.gguf"):
            (tmp_path / "shepherd" / part.relative_to(SOURCE)).symlink_to(part)
    content = bytearray(catalog.embedded().read_bytes())
    content[len(content) // 2] ^= 1
    (models / "lamb.gguf").write_bytes(content)
    done = run("-p", "Hello!", home=tmp_path, shell='PYTHONPATH=$HOME exec "$@"')
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        rf"shepherd: {re.escape(str(models))}/lamb\.gguf: this model of the package is damaged: its [\d,]+ bytes do "
        r"not have the checksum that lamb\.gguf\.sha256 says; install Shepherd again, or name another model with "
        r"--model\n",
        done.stderr,
    )


@pytest.mark.grid(0.2)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")
@pytest.mark.parametrize("words", [("config", "show"), ("--help",), ("models", "list", "--json")])
@pytest.mark.parametrize("variable", ["", "PYTHONUNBUFFERED=1"])
def test_a_full_output_is_one_sentence(tmp_path: Path, words: tuple[str, ...], variable: str) -> None:
    shell = f'unset PYTHONUNBUFFERED; exec env {variable} "$@" > /dev/full'
    done = run(*words, home=tmp_path, shell=shell)
    said = "shepherd: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.search
@pytest.mark.model
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")
@pytest.mark.parametrize("words", [("chat", "-p", "Hello", "--max-tokens", "4"), ("--max-tokens", "4")])
def test_a_chat_whose_output_is_full_ends_with_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(*words, home=tmp_path, shell='exec "$@" > /dev/full', text="Hello\n")
    said = "shepherd: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_reader_that_has_read_enough_is_no_fault(tmp_path: Path) -> None:
    shell = '{ "$@"; echo "status $?" >&2; } | true'
    done = run("config", "show", home=tmp_path, shell=shell)
    assert done.stderr in ("status 1\n", "status 0\n"), "0: the pipe took all before its reader ended"
