"""The command line in this process does and says what a process of its own does and says."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests import command_line

pytestmark = pytest.mark.model

COMMANDS: dict[str, tuple[tuple[str, ...], bytes]] = {
    "a conversation": (("--temperature", "0", "--verbose", "--log-level", "warning"), b"Hello \xf0\x9f.\r\n/system"),
    "one answer": (("-p", "What is on @cat.png?"), b""),
    "a usage error": (("chat", "--contxt-size", "4"), b""),
    "a tool that starts a program": (
        ("tools", "run", "execute_command", "--enable-tools", "command", "command=echo one; echo two >&2; exit 3"), b"",
    ),
    "a warning": (("config", "show"), b""),
}  # fmt: skip


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_and_says_the_same_here_and_in_a_process_of_its_own(name: str, tmp_path: Path) -> None:
    arguments, stdin = COMMANDS[name]
    (tmp_path / "shepherd.toml").write_text("contxt_size = 512\n")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    words = ["--threads", "1", "--no-recall", "--max-tokens", "8", *arguments]
    there = subprocess.run(
        [sys.executable, "-m", "shepherd", *words], input=stdin, capture_output=True, env=env, cwd=tmp_path, check=False
    )
    here = command_line.run(*words, stdin=stdin, env=env, cwd=tmp_path)
    assert (here.returncode, here.stdout, here.stderr) == (
        there.returncode,
        there.stdout.decode(),
        there.stderr.decode(),
    )


def test_a_file_can_be_standard_input(tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(b"/system\r\n")
    done = command_line.run("--threads", "1", stdin=tmp_path / "script")
    assert done.returncode == 0
    assert "There is no system prompt." in done.stdout


def test_this_process_is_afterwards_as_it_was_before(tmp_path: Path) -> None:
    def state() -> object:
        root = logging.getLogger()
        loggers = [root, *(logging.getLogger(name) for name in ("shepherd", "shepherd.content", "uvicorn"))]
        files = [os.fstat(number)[:3] for number in range(3)]
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM
        return (
            [(one.level, one.handlers[:], one.propagate, one.disabled) for one in loggers],
            [sys.argv, sys.stdin, sys.stdout, sys.stderr, dict(os.environ), Path.cwd(), files],
            [signal.getsignal(number) for number in numbers],
            len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0,
        )

    command_line.run("-p", "Hello", "--threads", "1")  # what is opened once stays open
    before = state()
    env = {**os.environ, "SHEPHERD_CONTEXT_SIZE": "1024"}
    done = command_line.run("--threads", "1", "--debug", stdin="Hello\n", env=env, cwd=tmp_path)
    assert "Context: 1024 tokens" in done.stdout
    assert "[DEBUG] " in done.stderr
    assert state() == before
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_what_is_not_an_error_of_ours_is_a_traceback_when_it_is_asked_for() -> None:
    done = command_line.run("--debug", "-p", "x", "nowhere.gguf")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "nowhere.gguf" in done.stderr.splitlines()[-1]


def test_a_server_is_visited_and_ended_here(tmp_path: Path) -> None:
    asked: list[int] = []

    def visit(banner: list[str]) -> None:
        address = banner[-1].removeprefix("Listening on: ")
        with urllib.request.urlopen(f"{address}/health") as answer:
            asked.append(answer.status)
        if len(asked) > 1:
            raise LookupError

    done = command_line.serve("serve", "--port", "0", "--threads", "1", visit=visit, cwd=tmp_path)
    assert (done.returncode, done.stdout, asked) == (0, "", [200])
    with pytest.raises(LookupError):
        command_line.serve("serve", "--port", "0", "--threads", "1", visit=visit, cwd=tmp_path)
    done = command_line.serve("serve", "--model", "nowhere.gguf", "--port", "0", visit=visit)
    assert (done.returncode, len(asked)) == (1, 2)
    assert "nowhere.gguf" in done.stderr
