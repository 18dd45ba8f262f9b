"""`shepherd mcp login` and `logout`, as a person uses them: real processes, and a real authorization server."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests import command_line
from tests.own_server import in_thread
from tests.unit.tools.mcp.authorization import World, world

BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


@contextlib.contextmanager
def served(**faults: Any) -> Iterator[World]:
    worlds: list[World] = []

    async def run(on_ready: Callable[[int], None]) -> None:
        async with world(**faults) as made:
            worlds.append(made)
            on_ready(1)
            await asyncio.Event().wait()

    with in_thread(run):
        yield worlds[0]


class Home:
    """A user's folder, with one server in its configuration."""

    def __init__(self, folder: Path, entry: dict[str, Any]) -> None:
        self.folder = folder
        config = folder / "config" / "shepherd"
        config.mkdir(parents=True)
        (config / "shepherd.json").write_text(json.dumps({"mcp_servers": [entry]}))
        script = folder / "browser.py"
        script.write_text(BROWSER)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHEPHERD_", "SSH_"))}
        self.env = {
            **kept,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "HOME": str(folder),
            "BROWSER": f"{sys.executable} {script} %s",
            "COLUMNS": "200",
        }

    def run(self, *words: str) -> tuple[int, str]:
        done = command_line.run("mcp", *words, env=self.env, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def process(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "shepherd", "mcp", *words], env=self.env, cwd=self.folder, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def tokens(self) -> list[Path]:
        return list((self.folder / "state").rglob("*.json"))


def test_a_login_that_cannot_be_is_refused_in_a_sentence(tmp_path: Path) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"command": "true"}, "web has no login: it is a program"),
        ({"url": "https://x.example/mcp", "headers": {"authorization": "x"}}, "web has no login"),
        ({"url": "https://${NO_SUCH_HOST}/mcp"}, "url needs the environment variable NO_SUCH_HOST"),
        ({"url": "http://mcp.example/mcp"}, "a login at http://mcp.example/mcp needs https"),
        (
            {
                "url": "https://x.example/mcp",
                "grant": "client_credentials",
                "client_id": "robot",
                "client_secret": "${NOT_SET:-x}",
            },
            "web logs in by itself (grant = client_credentials); 'shepherd mcp test web' tests it",
        ),
        ({"url": "https://x.example/mcp", "grant": "device_code"}, "one of authorization_code, client_credentials"),
    ]
    for index, (entry, problem) in enumerate(rows):
        (folder := tmp_path / str(index)).mkdir()
        status, told = Home(folder, {"name": "web", **entry}).run("login", "web")
        assert status != 0
        assert problem in told, entry
    assert (
        "no MCP server is called 'other'; configured: web"
        in Home(tmp_path, {"name": "web", "command": "x"}).run("login", "other")[1]
    )
