"""A user for the tests that run the program: in this process, or in one of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from click.testing import CliRunner, Result
from tests import command_line
from tests.own_server import in_thread

from shepherd.cli.main import cli
from shepherd.server.app import Service, create_app, serve


class Program(subprocess.Popen[str]):
    """A process whose output goes into pipes."""

    stdout: IO[str]
    stderr: IO[str]


class Home:
    """A user that runs the program in an empty home folder."""

    command: tuple[str, ...] = (sys.executable, "-m", "shepherd", "--threads", "1")
    timeout_s = 60.0
    banner = r"""Shepherd LLM System v\d+\.\d+\S*
Backend: llama\.cpp \(.+\)
Model: lamb
Context: \d+ tokens
Tools: \d+ available
(?:Memory: .+\.db
)?"""
    """A regular expression for the lines that every chat opens with."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "SHEPHERD_"))}
        for name in ("MODEL_PATH", "COLUMNS", "LINES"):  # the size is for the terminal to say
            self.env.pop(name, None)
        # One cache for all: the library's self-test runs once.
        self.env |= {"HOME": str(folder), "XDG_CACHE_HOME": str(cache), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.env["SHEPHERD_TRUST"] = "1"  # the user has written the files of the folder
        self.env["CI"] = "1"  # no start is a first one, which offers a model (process/cli/test_first_start.py)

    def run(self, *arguments: str | Path, text: str | bytes | Path = "") -> subprocess.CompletedProcess[str]:
        """Run a command in this process (`tests/command_line.py`); `text`: what a pipe holds, or a file."""
        return command_line.run(
            *self.command[3:], *arguments, stdin=text, env=self.env, cwd=self.folder, timeout_s=self.timeout_s
        )

    def serve(self, *arguments: str | Path, visit: Callable[[list[str]], object]) -> subprocess.CompletedProcess[str]:
        """Run a server in this process until `visit`, which gets the lines of its banner, returns."""
        return command_line.serve(*self.command[3:], *arguments, visit=visit, env=self.env, cwd=self.folder)

    def run_apart(self, *arguments: str | bytes, raw: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command in a process of its own, byte for byte."""
        return subprocess.run(
            [*self.command, *arguments],
            input=raw,
            capture_output=True,
            timeout=self.timeout_s,
            cwd=self.folder,
            env=self.env,
            check=False,
        )

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[Program]:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with Program([*self.command, *arguments], **pipes, text=True, cwd=self.folder, env=self.env) as process:
            try:
                yield process
            finally:
                process.kill()

    def never_ending(self) -> None:
        """From now on, answers go on until they are stopped."""
        # Nothing at random, and no tools: what is drawn may be a call, and that ends the answer.
        config = "[sampling]\nignore_eos = true\ntemperature = 0\n[tools]\nenabled = []\n"
        (self.folder / "shepherd.toml").write_text(config)


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and the working folder at once."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("XDG_", "SHEPHERD_"))] + ["MODEL_PATH"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHEPHERD_TRUST", "1")
    return tmp_path


def shepherd(*arguments: str, **settings: Any) -> Result:
    """Run a command through click: what it prints, and its exit status."""
    return CliRunner().invoke(cli, arguments, prog_name="shepherd", **settings)


class Shell:
    """A user that runs the commands of one group."""

    group: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env: dict[str, str | None] = {"HOME": str(folder), "COLUMNS": "200", "SHEPHERD_CONFIG": None}

    def run(self, *arguments: str | Path, text: str | bytes = "", ends: int = 0) -> Result:
        done = CliRunner(env=self.env).invoke(cli, [self.group, *map(str, arguments)], input=text)
        assert done.exit_code == ends, done.output
        assert "Traceback" not in done.output
        return done

    def json(self, *arguments: str | Path, text: str = "", ends: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", text=text, ends=ends).stdout)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def home(tmp_path: Path, shared_cache: Path) -> Home:
    return Home(tmp_path, shared_cache)


@contextlib.contextmanager
def listen(service: Service, port: int = 0, **options: Any) -> Iterator[int]:
    """The port of a server in a thread of its own."""

    async def run(on_ready: Callable[[int], None]) -> None:
        await serve(create_app(service, **options), host="127.0.0.1", port=port, on_ready=on_ready)

    with in_thread(run) as chosen:
        yield chosen


@pytest.fixture
def listening() -> Callable[..., contextlib.AbstractContextManager[int]]:
    """`with listening(service, ...) as port:` - a server in this process, for commands that ask one."""
    return listen


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands that run in this process set up logging for it; other tests must not find that."""
    with command_line.logging_as_before():
        yield
