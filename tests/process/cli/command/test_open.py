"""`shepherd open`: finds or starts a server, and gives its address to the browser, which is a program of the test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import command_line
from tests.own_server import in_thread
from tests.scripted_service import ScriptedService, saying

from shepherd.server.app import create_app, serve

NO_BROWSER = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


class Browser:
    """A program that writes down the addresses that it is started with."""

    def __init__(self, folder: Path) -> None:
        self.seen = folder / "seen"
        self.program = folder / "browser"
        self.program.write_text(f'#!/bin/sh\necho "$1" >> {self.seen}\n')
        self.program.chmod(0o755)

    def variables(self) -> Mapping[str, str]:
        return {**os.environ, "BROWSER": str(self.program)}

    def take(self) -> list[str]:
        """The addresses since the last call."""
        found = self.seen.read_text().splitlines() if self.seen.exists() else []
        self.seen.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Of the whole module: the module `webbrowser` reads the variable once."""
    return Browser(tmp_path_factory.mktemp("browser"))


def without_browser() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NO_BROWSER}


def test_the_browser_opens_the_page_of_a_running_server(browser: Browser) -> None:
    app = create_app(ScriptedService(saying("Hi")), api_keys=("sk-one",))
    with in_thread(lambda ready: serve(app, host="127.0.0.1", port=0, on_ready=ready)) as port:
        ran = command_line.run("open", "--url", f"127.0.0.1:{port}/v1", env=browser.variables())
        assert (ran.returncode, browser.take()) == (0, [f"http://127.0.0.1:{port}/"])
        ran = command_line.run("open", "--port", str(port), env=without_browser())
        assert (ran.returncode, browser.take()) == (0, [])
        assert f"there is no browser here; open http://127.0.0.1:{port}/ in one" in ran.stderr


def test_a_server_without_the_page_is_not_opened(browser: Browser) -> None:
    app = create_app(ScriptedService(saying("Hi")), page=False)
    with in_thread(lambda ready: serve(app, host="127.0.0.1", port=0, on_ready=ready)) as port:
        ran = command_line.run("open", "--url", f"127.0.0.1:{port}", env=browser.variables())
        assert (ran.returncode != 0, browser.take()) == (True, [])
        assert "has no page: it is switched off there ([server] page), or the server is old" in ran.stderr


def test_a_server_that_is_named_is_not_started(browser: Browser) -> None:
    ran = command_line.run("open", "--url", "127.0.0.1:1", env=browser.variables())
    assert (ran.returncode != 0, browser.take()) == (True, [])
    assert "no server answers at http://127.0.0.1:1;" in ran.stderr


def test_where_no_server_runs_it_is_started_and_its_page_opened(browser: Browser, tmp_path: Path) -> None:
    addresses: list[str] = []

    def visit(banner: list[str]) -> None:
        addresses.append(banner[-1].removeprefix("Listening on: "))
        assert f"Page for a browser: {addresses[0]}/" in banner

    ran = command_line.serve("open", "--port", "0", visit=visit, env=browser.variables(), cwd=tmp_path)
    assert ran.returncode == 0
    assert browser.take() == [f"{addresses[0]}/"]
    (tmp_path / "off.toml").write_text("[server]\nport = 0\npage = false\n")
    ran = command_line.run("open", "--config", "off.toml", env=browser.variables(), cwd=tmp_path)
    assert (ran.returncode != 0, browser.take()) == (True, [])
    assert "the page is switched off; set [server] page = true" in ran.stderr
