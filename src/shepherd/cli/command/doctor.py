"""`shepherd doctor`: is everything here that Shepherd needs, and what would make it better?

Each check is a function that tells findings; the table at the end says which run. A check never raises: what it cannot
find out is a finding too. Nothing is changed, but that the library's self-test keeps its verdict.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shepherd.cli import configure, logs, render
from shepherd.cli.text import format_size
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.config import Config

State = Literal["ok", "note", "bad"]

_MARKS: Mapping[State, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("•", "yellow"), "bad": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report."""

    name: str
    state: State
    detail: str
    hint: str = ""
    """What to do about it; one sentence."""


@dataclass(slots=True)
class CheckContext:
    """What the checks look at, read once."""

    options: Mapping[str, Any]
    config: Config | None = None


def run(options: Mapping[str, Any], *, as_json: bool) -> int:
    """Print every finding; the exit status: 1 when something is broken."""
    logs.set_up({"log_level": "error", **options})
    findings = list(examine(CheckContext(options)))
    if as_json:
        render.show_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _show(finding)
    return int(any(finding.state == "bad" for finding in findings))


def show_build(options: Mapping[str, Any]) -> int:
    """Print the verdict on the native library only; the exit status."""
    logs.set_up({"log_level": "error"})
    findings = list(_results(_library, CheckContext({})))
    for finding in findings:
        _show(finding)
    return int(any(finding.state == "bad" for finding in findings))


def examine(visit: CheckContext) -> Iterator[CheckResult]:
    """All findings, in order, as they are made."""
    for check in CHECKS:
        yield from _results(check, visit)


def _results(check: Callable[[CheckContext], Iterator[CheckResult]], visit: CheckContext) -> Iterator[CheckResult]:
    try:
        yield from check(visit)
    except ShepherdError as error:
        yield CheckResult(check.__name__.strip("_"), "bad", error.message)


def _show(finding: CheckResult) -> None:
    mark, colour = _MARKS[finding.state]
    render.show_marked(mark, colour, f"{finding.name}: {finding.detail}")
    if finding.hint:
        render.show(f"    {finding.hint}")


# -- checks -----------------------------------------------------------------------------------------------------------


def _versions(visit: CheckContext) -> Iterator[CheckResult]:
    import shepherd

    yield CheckResult(
        "shepherd", "ok", f"{shepherd.__version__}, Python {platform.python_version()} ({sys.executable})"
    )


def _library(visit: CheckContext) -> Iterator[CheckResult]:
    import platformdirs

    from shepherd.engine.llamacpp import library_path, selftest

    yield CheckResult("library", "ok", str(library_path()))
    verdict = selftest.verdict(Path(platformdirs.user_cache_dir("shepherd")))
    yield CheckResult("self-test", "ok" if verdict.use_extra_bufts else "note", verdict.detail)


def _processor(visit: CheckContext) -> Iterator[CheckResult]:
    from shepherd.engine.llamacpp import default_threads, devices, supports_rpc, system_info

    features = [
        word.split(" = ")[0].split(":")[-1].strip() for word in system_info().split("|") if word.strip().endswith("= 1")
    ]
    yield CheckResult("CPU features", "ok", ", ".join(features) or "none reported")
    found = devices()
    yield CheckResult(
        "GPU",
        "ok" if found else "note",
        ", ".join(found) or "none found; models run on the CPU",
        "" if found else "A GPU needs a build of the library for it: docs/troubleshooting.md, 'Slow generation'.",
    )
    yield CheckResult("threads", "ok", f"{default_threads()} of {os.cpu_count()} would be used now")
    yield CheckResult("RPC", "ok" if supports_rpc() else "note", "built in" if supports_rpc() else "not built in")


def _memory(visit: CheckContext) -> Iterator[CheckResult]:
    import psutil

    memory = psutil.virtual_memory()
    low = memory.available < 2**30
    yield CheckResult(
        "memory",
        "note" if low else "ok",
        f"{format_size(memory.available)} of {format_size(memory.total)} free",
        "Close other programs, or choose a smaller model or context." if low else "",
    )


def _configuration(visit: CheckContext) -> Iterator[CheckResult]:
    visit.config = configure.read_config(visit.options)
    files = [str(source.file) for source in visit.config.sources if source.file is not None]
    yield CheckResult("configuration", "ok", ", ".join(files) or "no file; defaults, environment and flags only")
    for warning in visit.config.warnings:
        yield CheckResult("configuration", "note", warning)


def _models(visit: CheckContext) -> Iterator[CheckResult]:
    from shepherd.models import catalog

    home, here = Path.home(), Path.cwd()
    folders = list(catalog.folders(env=os.environ, home=home, cwd=here))
    for folder in folders:
        if folder.exists and not folder.readable:
            yield CheckResult("models", "note", f"{folder.path} cannot be read", "Check its permissions.")
    places = [f"{folder.count} in {folder.path}" for folder in folders if folder.count]
    yield CheckResult("models", "ok", ", ".join(places) or "none found", "'shepherd models list' shows them.")


def _chosen_model(visit: CheckContext) -> Iterator[CheckResult]:
    import platformdirs

    from shepherd.engine.llamacpp import selftest, trial
    from shepherd.models import catalog, gguf, soundness

    if visit.config is None:
        return
    folder = Path(platformdirs.user_cache_dir("shepherd"))
    for model in visit.config.models:
        try:
            path = catalog.find(model.path, env=os.environ, home=Path.home(), cwd=Path.cwd())
            header = gguf.read_header(path)
            soundness.check(header)
            is_proved = trial.is_proved(header, folder, build=selftest.build_id())
        except ShepherdError as error:
            yield CheckResult(f"model {model.name}", "bad", error.message)
        else:
            checked = "has loaded before" if is_proved else "will be checked in a child process when it is first loaded"
            about = f"{path} ({header.architecture}, {header.file_type}); {checked}"
            yield CheckResult(f"model {model.name}", "ok", about)


def _port(visit: CheckContext) -> Iterator[CheckResult]:
    if visit.config is None:
        return
    host, port = visit.config.server.host, visit.config.server.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            yield CheckResult(
                "port", "note", f"{host}:{port} cannot be used now ({error.strerror})", "Choose another with --port."
            )
        else:
            yield CheckResult("port", "ok", f"{host}:{port} is free")


def _parts(visit: CheckContext) -> Iterator[CheckResult]:
    fast = importlib.util.find_spec("uvloop") is not None
    yield CheckResult(
        "uvloop", "ok" if fast else "note", "installed" if fast else "not installed; the server is a bit slower"
    )
    hub = shutil.which("hf")
    yield CheckResult(
        "hf",
        "ok" if hub else "note",
        hub or "not installed; it downloads models from Hugging Face",
        "" if hub else "Get it with: uv tool install huggingface_hub",
    )


CHECKS: tuple[Callable[[CheckContext], Iterator[CheckResult]], ...] = (
    _versions,
    _library,
    _processor,
    _memory,
    _configuration,
    _models,
    _chosen_model,
    _port,
    _parts,
)
