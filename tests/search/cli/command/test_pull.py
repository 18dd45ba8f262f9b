"""The tests of `tests/unit/cli/command/test_pull.py` that take long."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.fakes.hub import Hub
from tests.unit.cli.command.test_pull import env, hub, shepherd  # noqa: F401 - fixtures

from shepherd.models import catalog, pulled


def on_terminal(answer: str, env: Mapping[str, str], cwd: Path, *words: str) -> tuple[int, str]:
    """The status and the screen of a command in a terminal where a person answers the question."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "shepherd", *words]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env, cwd=cwd) as process:
        os.close(follower)
        screen = b""
        try:
            while chunk := os.read(leader, 65536):
                screen += chunk
                if b"[Y/n]" in screen and answer:
                    os.write(leader, f"{answer}\n".encode())
                    answer = ""
        except OSError:  # the other end is closed
            pass
        status = process.wait(120)
    os.close(leader)
    return status, screen.decode("utf-8", "replace")


@pytest.mark.model
def test_in_a_terminal_a_missing_model_is_offered_pulled_and_answers(
    env: Mapping[str, str], hub: Hub, tmp_path: Path
) -> None:
    settings = {**env, "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    words = ("-m", "hf:acme/lamb-GGUF:Q8_0", "--threads", "1", "-p", "Hello!", "--no-save")
    status, screen = on_terminal("n", settings, tmp_path, *words)
    assert status == 1
    assert "hf:acme/lamb-GGUF:Q8_0 is not on this machine" in screen
    assert f"Pull hf:acme/lamb-GGUF:Q8_0, {catalog.embedded().stat().st_size / 2**20:.1f} MiB? [Y/n]" in screen
    assert hub.n_sent("cdn") == 0
    status, screen = on_terminal("y", settings, tmp_path, *words)
    assert status == 0, screen
    assert "100%" in screen, "the bar"
    assert "How can I help" in screen
    assert [model.name for model in pulled.pulled_models(tmp_path / "models")] == ["hf:acme/lamb-GGUF:Q8_0"]
