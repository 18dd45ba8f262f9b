"""The tests of `tests/unit/cli/command/test_mcp_login.py` that take long."""

import json
from pathlib import Path

from tests.unit.cli.command.test_mcp_login import Home, served


def test_a_person_logs_in_and_out(tmp_path: Path) -> None:
    with served() as made:
        home = Home(tmp_path, {"name": "web", "url": made.url, "client_secret": "hush-hush"})
        assert home.run("test") == (1, "web: failed, needs a login; 'shepherd mcp login web' logs in\n")
        with home.process("login", "web") as browser:
            out, err = browser.communicate()
        assert (browser.returncode, err) == (0, "")
        assert out.splitlines()[-1] == "Logged in to web: odd 1, 1 tools."
        assert home.run("test")[0] == 0
        status, listed = home.run("list", "--json")
        (row,) = json.loads(listed)
        assert (status, row["login"]) == (0, "logged in")
        assert "logged in" in home.run("list")[1]
        shown = home.run("test", "--debug")[1] + listed + out + home.run("list")[1] + home.run("test", "--json")[1]
        assert [each for each in (*made.secrets, "hush-hush") if each in shown] == []
        assert home.run("logout", "web")[1].startswith("Logged out of web.")
        assert home.tokens() == []
        assert home.run("logout", "web") == (0, "There was no login at web.\n")
        assert home.run("test")[0] == 1
