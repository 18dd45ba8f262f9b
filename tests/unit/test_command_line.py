"""The command line in this process does and says what a process of its own does and says."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest
from tests import command_line

pytestmark = pytest.mark.model


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
