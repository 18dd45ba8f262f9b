"""The tests of `tests/unit/cli/command/test_mcp.py` that start programs."""

import os
import sys

from tests.unit.cli.command.test_mcp import (
    Shell,
    shell,  # noqa: F401 - fixtures
)
from tests.unit.tools.mcp.scene import SCRIPT


def test_servers_are_tried(shell: Shell) -> None:
    shell.run("add", "good", "--", sys.executable, "-I", "-S", SCRIPT)
    shell.run("add", "bad", "--", sys.executable, "-c", "import sys; sys.exit('no licence')")
    said = shell.run("test", "good").output
    assert "good: ready, scripted 1.0, MCP 2025-11-25" in said
    assert "good_echo" in said
    assert "3 resources: note://1, note://2" in said
    assert "2 prompts: greet, plain" in said
    assert "Not offered, because they are deprecated: freeze, old" in said
    assert "bad: failed, ended with exit status 1 before it was ready" in shell.run("test", ends=1).output
    good, bad = shell.json("test", ends=1)
    assert (good["state"], len(good["tools"]), good["tools"][0]["effect"]) == ("ready", 19, "write")
    assert (bad["state"], bad["log"]) == ("failed", ["no licence"])


def test_nothing_of_a_server_steers_the_terminal(shell: Shell) -> None:
    script = "import sys; sys.exit('\\x1b]0;title\\x07 \\x1b[2J')"
    shell.run("add", "bad", "--", sys.executable, "-c", script)
    assert "\x1b" not in shell.run("test", ends=1).output
    assert os.path.exists(shell.user)
