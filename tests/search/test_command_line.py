"""The tests of `tests/unit/test_command_line.py` that take long."""

from __future__ import annotations

import os
import subprocess
import sys
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
