"""The tests of `tests/unit/cli/test_process.py` that start programs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home, Program

pytestmark = pytest.mark.model


def test_one_prompt_gives_one_answer_and_nothing_else(home: Home) -> None:
    done = home.run("chat", "-p", "Hello", "--temperature", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n")
    assert len(done.stdout.splitlines()) == 1
    assert home.run("-p", "Hello", "--temperature", "0").stdout == done.stdout
    assert home.run("chat", text="Hello\n").stdout == done.stdout


def test_one_answer_starts_mcp_servers_only_where_it_has_tools(home: Home) -> None:
    started = home.folder / "started"
    assert home.run("mcp", "add", "noted", "--", "sh", "-c", f"echo >> '{started}'").returncode == 0
    done = home.run("chat", "-p", "Hello")
    assert (done.returncode, done.stderr, started.exists()) == (0, "", False)
    assert home.run(text="Hello\n").returncode == 0  # a conversation to continue
    for given in (["--enable-tools", "read_file"], ["--continue"]):
        started.unlink(missing_ok=True)
        assert home.run("chat", "-p", "Hello", *given).returncode == 0
        assert started.exists(), given


def test_one_answer_for_a_pipe_imports_nothing_for_terminals_and_without_a_memory_no_numpy_and_looks_for_no_garbage(
    home: Home,
) -> None:
    program = (
        "import gc, sys; from shepherd.cli.main import main\nbefore = gc.get_stats()\n"
        "try: main()\nfinally: print(gc.get_stats() == before, *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "-p", "Hello", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=home.env, stdin=subprocess.DEVNULL, check=True)
    never_looked, *modules = done.stderr.split()
    heavy = {"rich", "prompt_toolkit", "markdown_it", "fastapi", "uvicorn", "numpy"}
    assert (never_looked, sorted(heavy & set(modules))) == ("True", [])


def test_an_encoding_that_cannot_show_the_answer_does_not_end_it(home: Home) -> None:
    home.env |= {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = home.run_apart("--max-tokens", "8", "--system", "Say é.", raw="Hello é\n/system\n".encode())
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Say ?" in done.stdout


def test_closed_streams_are_no_trouble(home: Home) -> None:
    command = '"$@" <&- >&- 2>&-'
    shell = ["sh", "-c", command, "sh", *home.command, "-p", "Hello"]
    subprocess.run(shell, cwd=home.folder, env=home.env, check=True, timeout=home.timeout_s)


def test_a_reader_that_goes_away_ends_the_program_quietly(home: Home) -> None:
    home.never_ending()
    with home.start("-p", "Hello") as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(home.timeout_s) != 0


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_one_answer_at_once(home: Home, number: int, status: int) -> None:
    home.never_ending()
    with home.start("-p", "Hello") as process:
        process.stdout.read(1)
        process.send_signal(number)
        assert process.wait(home.timeout_s) == status
        assert process.stderr.read() == ""


def truncated(folder: Path, lamb: Path) -> Path:
    path = folder / "truncated.gguf"
    path.write_bytes(lamb.read_bytes()[:100_000])
    return path


def no_gguf(folder: Path, lamb: Path) -> Path:
    path = folder / "text.gguf"
    path.write_text("This is no model.")
    return path


def unknown_architecture(folder: Path, lamb: Path) -> Path:
    import gguf
    import numpy as np

    path = folder / "martian.gguf"
    writer = gguf.GGUFWriter(path, "martian")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


BAD: dict[str, tuple[Callable[[Path, Path], Path], str, str]] = {
    "missing": (lambda folder, lamb: folder / "missing.gguf", "4096", "does not exist"),
    "directory": (lambda folder, lamb: folder, "4096", "holds no GGUF file"),
    "truncated": (truncated, "4096", "not complete"),
    "not a GGUF": (no_gguf, "4096", "is not a GGUF file"),
    "unknown architecture": (unknown_architecture, "4096", "martian"),
    "too little memory": (lambda folder, lamb: lamb, "100000000", "of memory"),
}
"""The input (made from a folder and the embedded model), the context size, and the expected message."""


CHAT, REPL, SERVE = ("chat", "-p", "Hello"), (), ("serve", "--port", "0")


@pytest.mark.parametrize(
    ("command", "case"),
    [*((CHAT, case) for case in BAD), *((command, case) for command in (REPL, SERVE) for case in list(BAD)[4:])],
)
def test_what_cannot_be_loaded_is_one_sentence_and_status_1(
    home: Home, lamb: Path, command: Sequence[str], case: str
) -> None:
    make, n_ctx, message = BAD[case]
    done = home.run(*command, "--model", make(home.folder, lamb), "--context-size", n_ctx, text="Hello\n")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if not line.startswith("[INFO ]")]  # the log of a server
    assert len(said) == 1, done.stderr
    assert said[0].startswith("shepherd: ")
    assert message in said[0]
    assert done.stdout == ""


def address_of(process: Program) -> str:
    line = next(line for line in process.stdout if line.startswith("Listening on: "))
    return line.removeprefix("Listening on: ").strip()


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_says_where_it_listens_and_stops_with_status_0(home: Home, number: int) -> None:
    with home.start("--server", "--port", "0") as process:
        address = address_of(process)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
        with urllib.request.urlopen(f"{address}/health", timeout=home.timeout_s) as answer:
            assert answer.status == 200
            assert json.load(answer)["model"] == "lamb.gguf"
        process.send_signal(number)
        assert process.wait(home.timeout_s) == 0
        assert process.stdout.read() == ""
        told = process.stderr.read().splitlines()
        assert [line for line in told if not line.startswith("[INFO ]")] == []


def test_prompt_and_pipe_are_joined_by_an_empty_line(home: Home) -> None:
    joined = home.run("chat", "-p", "My name is Ann.\n\nWhat is my name?", "--json").stdout
    apart = home.run("chat", "-p", "My name is Ann.", "--json", text="What is my name?\n").stdout
    assert joined == apart
