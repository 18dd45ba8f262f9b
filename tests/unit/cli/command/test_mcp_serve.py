"""`shepherd mcp serve` from the outside: how it starts, and its errors."""

import os
import subprocess
from pathlib import Path

import pytest
from tests import command_line


def serve(
    folder: Path, *arguments: str, command: tuple[str, ...] = ("mcp", "serve")
) -> "subprocess.CompletedProcess[str]":
    """The program, whose agent closes its input at once."""
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "none"), "XDG_DATA_HOME": str(folder / "data")}
    return command_line.run(*command, "--threads", "1", *arguments, env=env, cwd=folder)


@pytest.mark.model
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--enable-tools", "filesytem"), "tools.enabled: there is no tool or category 'filesytem'"),
        (("--disable-tools", "chatt"), "tools.disabled: there is no tool or category 'chatt'"),
        (("--allow-tools", "write_file("), "the rule 'write_file(' is not valid"),
        (("--root", "gone"), "is not a folder"),
        (("--config", "gone.toml"), "gone.toml"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_is_one_sentence_and_nothing_of_the_protocol(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = serve(tmp_path, *arguments)
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.model
@pytest.mark.parametrize("command", [("mcp", "serve"), ("mcp-serve",)], ids=" ".join)
def test_an_agent_that_leaves_at_once_is_no_failure(tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = serve(tmp_path, command=command)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Traceback" not in ended.stderr


@pytest.mark.model
def test_without_its_model_the_tools_are_served_all_the_same(tmp_path: Path) -> None:
    ended = serve(tmp_path, "--model", "./gone.gguf")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), "a model is loaded by the first `chat`"
