"""`shepherd doctor --build`: builds the native library again, for a device of this machine, where Shepherd runs.

    how Shepherd was installed ─▶ Way ─▶ a command of uv or pip ─▶ --print shows it
                                                                └▶ a question, a line of progress, a sentence at the end

uv and pip put the new library in the place of the old one at the end: a build that fails or is stopped changes nothing.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import platformdirs

from shepherd.cli import render
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import bar, clean, format_age, format_size, output_line
from shepherd.core import ConfigError, ShepherdError
from shepherd.engine.llamacpp import build
from shepherd.process import installed, tree

AUTO = "auto"
"""The best back end of this machine."""
_STEP = re.compile(r"\[(\d+)/(\d+)\] ")
"""Ninja's count of what is compiled."""
_FAULT = re.compile(r"\b(?:fatal )?error\b|No space left", re.IGNORECASE)
_EMPTY = re.compile(r"[Ff]ailed (?:to build|building)|subprocess-exited-with-error|This error originates")
"""Words of uv and pip that say no more than that it failed."""
_REASONS: Sequence[tuple[str, str]] = (
    (r"No space left on device|Disk quota exceeded", "the disk is full; make room, or set TMPDIR to a larger folder"),
    (r"CUDA compiler identification is unknown|No CMAKE_CUDA_COMPILER|nvcc fatal|Could not find nvcc|"
     r"CUDA Toolkit not found|CUDA::\w+|Could NOT find CUDA",
     "the CUDA toolkit is incomplete, or too old or too new for this compiler"),
    (r"Permission denied|Read-only file system|[Nn]ot writeable|Access is denied",
     "this Python's folder cannot be written to"),
    (r"externally-managed-environment",
     "this Python belongs to the system: install Shepherd with uv, pipx or in a venv"),
    (r"name resolution|lookup address|dns error|NewConnectionError|Connection refused|[Nn]etwork is unreachable|"
     r"error sending request|Could not connect|No matching distribution|timed out|network was disabled",
     "the package index cannot be reached; the sources of llama.cpp come from there"),
    (r"Killed signal|out of memory|Cannot allocate memory",
     "memory ran out: compile fewer files at once, with CMAKE_BUILD_PARALLEL_LEVEL=1"),
)  # fmt: skip
"""What pip, uv, CMake and compilers write, and what it means; the first that fits."""


class Way(NamedTuple):
    """How Shepherd was installed."""

    title: str
    start: str
    """The command that starts it."""
    undone: str
    """What would put another library in the place of the one that is built here."""
    checkout: Path | None = None


_WAYS: Mapping[installed.Way, Way] = {
    "uv tool": Way("uv tool", "shepherd", "'uv tool install --reinstall' and 'uv tool upgrade --reinstall'"),
    "pipx": Way("pipx", "shepherd", "'pipx reinstall'"),
    "temporary": Way("uvx or pipx run", "shepherd", "the end of this temporary environment"),
}
_PIP = Way("pip", "shepherd", "'pip install --force-reinstall'")


def find_way(found: installed.Installed, prefix: Path) -> Way:
    """`prefix`: the environment; that of a clone may have been made by pip."""
    if found.way == "clone" and _made_by_uv(prefix):
        undone = "a new .venv and 'uv sync --reinstall'"
        return Way("uv in a checkout", "uv run shepherd", undone, found.folder)
    return _WAYS.get(found.way, _PIP)


def this_way() -> Way:
    prefix = Path(sys.prefix)
    return find_way(installed.find_way(prefix, Path(__file__).parents[2]), prefix)


def _made_by_uv(prefix: Path) -> bool:
    with contextlib.suppress(OSError):
        return re.search(r"^uv = ", (prefix / "pyvenv.cfg").read_text("utf-8", "replace"), re.MULTILINE) is not None
    return False


class Command(NamedTuple):
    words: tuple[str, ...]
    variables: Mapping[str, str]
    """Over the environment."""
    folder: Path | None

    def line(self) -> str:
        """For a shell."""
        there = f"cd {shlex.quote(str(self.folder))} && " if self.folder else ""
        variables = (f"{name}={shlex.quote(value)} " for name, value in self.variables.items())
        return f"{there}{''.join(variables)}{shlex.join(self.words)}"


def make_command(
    backend: build.Backend, way: Way, env: Mapping[str, str], wheel: Path | None, *, has_pip: bool
) -> Command:
    """What builds the library for `backend`. uv reads VARIABLES of a checkout itself, and installs in the next
    `uv run` what its notes in the environment say is missing: it builds in the checkout, so that the notes agree.

    Raises: `ConfigError` without pip and uv.
    """
    wanted = f"{build.PACKAGE}{_version()}"
    flags = ("--verbose", "--no-deps", "--no-binary", build.PACKAGE)
    uv = env.get("UV") or shutil.which("uv", path=env.get("PATH"))
    variables = {**(build.VARIABLES if wheel or not way.checkout else {}), **build.variables(backend, env)}
    words: tuple[str, ...]
    if wheel and has_pip:
        words = (sys.executable, "-m", "pip", "wheel", "--no-cache-dir", *flags, "--wheel-dir", str(wheel), wanted)
        return Command(words, variables, None)
    if wheel:
        raise ConfigError("a wheel needs pip: 'uv run --with pip shepherd doctor --build --wheel FOLDER'")
    if has_pip and not way.checkout:
        words = (sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-cache-dir", *flags, wanted)
    elif uv:
        words = (uv, "pip", "install", "--python", sys.executable, "--reinstall", "--no-cache", *flags, wanted)
    else:
        raise ConfigError(f"{sys.executable} has no pip, and there is no uv on PATH: install one of them")
    return Command(words, variables, way.checkout)


def _version() -> str:
    """The one that is here, or else what Shepherd asks for."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return f"=={importlib.metadata.version(build.PACKAGE)}"
    needs = importlib.metadata.requires("shepherd") or []
    return next(need.removeprefix(build.PACKAGE) for need in needs if need.startswith(build.PACKAGE))


def choose(name: str) -> str:
    """Raises: `ConfigError` for a back end that is not in the table."""
    if name == AUTO:
        return next((seen for seen, _ in build.devices_seen()), "cpu")
    if name not in build.BACKENDS:
        raise ConfigError(f"--build {name!r} is not known; choose one of {', '.join(build.BACKENDS)}")
    if name == "metal" and sys.platform != "darwin":
        raise ConfigError("--build metal needs an Apple computer; 'shepherd doctor' names the devices of this one")
    return name


def run(name: str, *, yes: bool, print_only: bool, wheel: Path | None) -> int:
    """Build the library; the exit status. Raises: `ConfigError` for what is missing, before anything starts."""
    name, way = choose(name), this_way()
    backend = build.BACKENDS[name]
    has_pip = importlib.util.find_spec("pip") is not None
    command = make_command(backend, way, os.environ, wheel, has_pip=has_pip)
    if print_only:
        click.echo(command.line())
        return 0
    target = Path(sysconfig.get_path("platlib")) if wheel is None else wheel
    _check(name, backend, target)
    where = f"in place of the one in {target}" if wheel is None else f"as a wheel in {wheel}"
    render.show(f"Build llama.cpp for: {name} ({backend.title}), {where}")
    render.show(f"Installed with {way.title}. It takes {backend.time}, and up to {backend.gigabytes} GB of disk.")
    if not yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("there is no terminal to ask in; add --yes, or --print to see the command")
    if not yes and not click.confirm("Start?", default=True):
        return 1
    build_it(command)
    if wheel is not None:
        render.show(f"The wheel is in {wheel}. Another environment takes it with --find-links {wheel}")
        return 0
    render.show(f"Built. These would replace it: {way.undone}")
    return subprocess.run([sys.executable, "-m", "shepherd", "build"], check=False).returncode


def _check(name: str, backend: build.Backend, target: Path) -> None:
    if lacking := build.missing(backend, os.environ):
        raise ConfigError(f"a build for {name} needs {'; and '.join(lacking)}. Then run this again")
    existing = next(folder for folder in (target.absolute(), *target.absolute().parents) if folder.exists())
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"{existing} cannot be written to: install Shepherd for yourself, with uv, pipx or in a venv")
    scratch = Path(tempfile.gettempdir())
    free = shutil.disk_usage(scratch).free
    if free < backend.gigabytes * 10**9:
        what = "make room, or set TMPDIR to a folder on a larger disk"
        raise ConfigError(f"a build needs {backend.gigabytes} GB in {scratch}, and {format_size(free)} is free; {what}")


def build_it(command: Command) -> None:
    """Raises: `ShepherdError` when it fails; the library is then as before."""
    lines: deque[str] = deque(maxlen=5000)
    environment, folder = {**os.environ, **command.variables}, str(command.folder or Path.cwd())
    process = tree.start(command.words, env=environment, cwd=folder, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        source = io.BufferedReader(process.stdout)  # type: ignore[type-var]  # it has no buffer of its own
        with io.TextIOWrapper(source, encoding="utf-8", errors="replace") as output:
            _show_progress(output, lines)
    except BaseException:
        tree.ProcessTree(process.pid).end()  # with the compilers
        render.show_error("stopped; the library is as it was before")
        raise
    finally:
        status = process.wait()
    if status:
        raise ShepherdError(explain(lines, status, _keep(lines)))


def _show_progress(output: Iterator[str], lines: deque[str]) -> None:
    screen = Screen(render.console(sys.stderr)) if render.is_terminal(sys.stderr) else None
    started, share, before = time.monotonic(), 0.0, -1
    for line in output:
        lines.append(line)
        if step := _STEP.search(line):
            share = int(step[1]) / max(1, int(step[2]))
        what = f"compiling, {share:.0%}" if share else "getting the sources, and looking at this machine"
        if screen is not None:
            age = format_age(time.monotonic() - started)
            screen.update([], [f"{bar(share, 1)} {what}, {age}"[: screen.console.width - 1]])
        elif int(share * 10) > before:
            before = int(share * 10)
            render.show_note(what)
    if screen is not None:
        screen.update([])


def _keep(lines: Sequence[str]) -> Path | None:
    """The file with what the build has written; None where it cannot be kept."""
    file = Path(platformdirs.user_cache_dir("shepherd")) / "build.log"
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(lines), "utf-8")
        return file
    return None


def explain(lines: Sequence[str], status: int, log: Path | None) -> str:
    """Why a build has failed, from what it has written: the reason that we know, or else its own first words."""
    lines = [line for line in lines if not line.startswith("DEBUG")]  # of uv, which says the end of a build once more
    text = "".join(lines)
    known = next((reason for pattern, reason in _REASONS if re.search(pattern, text)), None)
    own = [
        output_line(line)[:200]
        for line in lines
        if _FAULT.search(line) and not _STEP.search(line) and not _EMPTY.search(line)
    ]
    why = known or (f"it said: {clean(own[0])}" if own else f"it ended with status {status}")
    kept = f" All that it said: {log}" if log else ""
    return f"the library was not built, and is as it was before: {why}.{kept}"
