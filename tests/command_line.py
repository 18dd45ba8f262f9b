"""The command line in the test's own process: the tenth part of what a process costs, which imports everything first.

What a process has for itself is put in place for the length of a command and then put back: arguments, variables, the
working folder, the three standard streams down to their descriptors, logging. Not here: what only a process has - how
it dies, and what it imports at its start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

import pytest

from shepherd.cli.main import cli

TIMEOUT_S = 120.0
"""Only a command that hangs runs that long."""


def run(
    *arguments: str | Path,
    stdin: str | bytes | Path = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    out: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `python -m shepherd ARGUMENTS` does and says; main thread only. As `subprocess.run` with pipes and text.

    `stdin`: what a pipe holds, or a file; `env`: all variables, by default those of the test; `out`: where to write
    instead of into the result. Line ends stay as they are.
    """
    words = [str(word) for word in arguments]
    with (
        tempfile.TemporaryFile() as kept,
        tempfile.TemporaryFile() as err,
        _input(stdin) as source,
        _descriptors(source.fileno(), (out or kept).fileno(), err.fileno()),
        _variables(env),
        _folder(cwd),
        logging_as_before(),
        _deadline(words, timeout_s),
    ):
        logging.getLogger().handlers.clear()
        status = _main(words)
        told = [_content(file) for file in (kept, err)]
    return subprocess.CompletedProcess(["shepherd", *words], status, *told)


def serve(
    *arguments: str | Path,
    visit: Callable[[list[str]], object],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """`run` for a command that serves, its model in this process too. `visit` gets the lines of its banner in a thread;
    then SIGTERM ends it.

    Raises: what `visit` raises.
    """
    errors: list[BaseException] = []
    rest: list[str] = []
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    theirs, ours = os.pipe()

    def look() -> None:
        with open(theirs, encoding="utf-8") as told:
            for line in told:
                rest.append(line.rstrip("\n"))
                if line.startswith("Listening on: "):
                    try:
                        visit(rest[:])
                    except BaseException as error:
                        errors.append(error)
                    rest.clear()
                    signal.pthread_kill(main_thread, signal.SIGTERM)

    visitor = threading.Thread(target=look)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # for one that does not serve
    visitor.start()
    try:
        with open(ours, "wb") as out:
            done = run(*arguments, "--no-isolate", env=env, cwd=cwd, out=out)
    finally:
        visitor.join()
        signal.signal(signal.SIGTERM, before)
    for error in errors:
        raise error
    done.stdout = "\n".join(rest)
    return done


def _main(words: list[str]) -> int:
    """Run the program on new streams, but for what `main` does to its process; the exit status."""
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["shepherd", *words]
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - they live
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - as the command
    try:
        cli.main(prog_name="shepherd")
    except SystemExit as left:
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError):  # somebody has closed it
                stream.flush()
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before
    return 0


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@contextlib.contextmanager
def _input(stdin: str | bytes | Path) -> Iterator[IO[bytes]]:
    """The open end of a pipe that holds this, or the open file."""
    if isinstance(stdin, Path):
        with stdin.open("rb") as file:
            yield file
        return
    theirs, ours = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), open(ours, "wb") as pipe:
            pipe.write(stdin.encode() if isinstance(stdin, str) else stdin)

    writer = threading.Thread(target=write)
    writer.start()
    with open(theirs, "rb") as pipe:
        yield pipe
    writer.join()


@contextlib.contextmanager
def _descriptors(*files: int) -> Iterator[None]:
    """These files as 0, 1 and 2: for programs that the command starts, and for libraries that know no Python."""
    before = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        yield
    finally:
        for number, file in enumerate(before):
            os.dup2(file, number)
            os.close(file)


@contextlib.contextmanager
def _variables(env: Mapping[str, str] | None) -> Iterator[None]:
    before = dict(os.environ)
    try:
        if env is not None:
            _replace(env)
        yield
    finally:
        _replace(before)


def _replace(env: Mapping[str, str]) -> None:
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)


@contextlib.contextmanager
def _folder(cwd: Path | None) -> Iterator[None]:
    with contextlib.chdir(cwd) if cwd else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def logging_as_before() -> Iterator[None]:
    """Put back after the block what it has set up for logging: levels, handlers, flags, of every logger."""
    before: list[tuple[logging.Logger, dict[str, Any]]] = [
        (one, {name: getattr(one, name) for name in ("disabled", "propagate")} | {"handlers": one.handlers[:]})
        for one in _loggers()
    ]
    levels = {one: one.level for one in _loggers()}
    try:
        yield
    finally:
        for one in _loggers():
            if one.level != (level := levels.get(one, logging.NOTSET)):
                one.setLevel(level)  # which empties a table of every logger
        for one, facts in before:
            vars(one).update(facts)


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(one for one in named if isinstance(one, logging.Logger))]


@contextlib.contextmanager
def _deadline(words: list[str], timeout_s: float) -> Iterator[None]:
    """Fail the test when the block takes longer, where the system has an alarm."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"shepherd {' '.join(words)} runs for more than {timeout_s} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
