"""The tests of `tests/unit/cli/command/test_mcp_login.py` that start programs."""

import signal
from pathlib import Path

from tests.unit.cli.command.test_mcp_login import Home, served


def test_without_a_browser_the_address_is_printed_and_ctrl_c_ends_the_login(tmp_path: Path) -> None:
    with served() as made:
        home = Home(tmp_path, {"name": "web", "url": made.url})
        with home.process("login", "web", "--no-browser") as process:
            assert process.stdout is not None
            lines = list(iter(process.stdout.readline, "Waiting for the browser. Ctrl-C stops.\n"))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
        assert process.returncode == 130
        assert any(line.startswith(f"{made.origin}/authorize?") for line in lines)
        assert any("ssh -L " in line for line in lines)
        assert err == "shepherd: the login was stopped; the tokens are as before\n"
        assert "Traceback" not in err
        assert made.tokens == {}
