"""`shepherd doctor`: checks whether Shepherd has all that it needs, and what would make it better.

Each check is a function that yields results; the table at the end lists the checks. A check that fails is a result too.
Only the verdict of the library's self-test is stored; nothing else changes. Not here: --build (`build.py`).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import platformdirs
import psutil

import shepherd
from shepherd.app import tensorrt
from shepherd.app.directory.entries import read
from shepherd.cli import configure, known_providers, logs, render
from shepherd.cli.command import build as building
from shepherd.cli.text import clean, format_size
from shepherd.config import Config
from shepherd.core import ConfigError, ShepherdError
from shepherd.core.dataclasses import asdict, dataclass
from shepherd.core.status import WAYS
from shepherd.engine.llamacpp import rpc, selftest, trial
from shepherd.engine.llamacpp.build import BACKENDS, built_for, devices_seen
from shepherd.memory.location import unusual_path
from shepherd.models import catalog, soundness
from shepherd.models.checkpoint import Checkpoint
from shepherd.server.http.tls import find_faults

State = Literal["ok", "note", "bad"]
HEALTH_S = 2.0
"""For a server to say how it is."""

_MARKS: Mapping[State, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("•", "yellow"), "bad": ("✗", "red")}


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    state: State
    detail: str
    hint: str = ""
    """What the user can do; one sentence."""


Check = Callable[[Mapping[str, Any]], Iterator[CheckResult]]
"""Gets the shared options. Raises: `ShepherdError`, which is a bad result."""


def run(
    options: Mapping[str, Any], *, as_json: bool, build: str | None, yes: bool, print_only: bool, wheel: Path | None
) -> int:
    """Print every result, and exit with 1 when a check fails; or build the native library."""
    logs.set_up({"log_level": "error", **options})
    if build is not None:
        return building.run(build, yes=yes, print_only=print_only, wheel=wheel)
    if yes or print_only or wheel is not None:
        raise ConfigError("--yes, --print and --wheel belong to --build")
    return _report(CHECKS, options, as_json=as_json)


def show_build(options: Mapping[str, Any]) -> int:
    logs.set_up({"log_level": "error"})
    return _report((_library, _gpu), options)


def _report(checks: Sequence[Check], options: Mapping[str, Any], *, as_json: bool = False) -> int:
    results = [result for check in checks for result in _results(check, options)]
    if as_json:
        render.show_json([asdict(result) for result in results])
    else:
        for result in results:
            mark, colour = _MARKS[result.state]
            render.show_marked(mark, colour, f"{result.name}: {result.detail}")
            if result.hint:
                render.show(f"    {result.hint}")
    return int(any(result.state == "bad" for result in results))


def _results(check: Check, options: Mapping[str, Any]) -> Iterator[CheckResult]:
    try:
        yield from check(options)
    except ShepherdError as error:
        yield CheckResult(check.__name__.strip("_"), "bad", error.message)


def _optional(name: str, found: str, otherwise: str, hint: str = "") -> CheckResult:
    """A good result with what was `found`; without it, a note with a hint."""
    return CheckResult(name, "ok", found) if found else CheckResult(name, "note", otherwise, hint)


# -- checks -----------------------------------------------------------------------------------------------------------


def _versions(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    yield CheckResult(
        "shepherd", "ok", f"{shepherd.__version__}, Python {platform.python_version()} ({sys.executable})"
    )


def _library(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    from shepherd.engine.llamacpp.library import library_path

    yield CheckResult("library", "ok", str(library_path()))
    verdict = selftest.verdict(Path(platformdirs.user_cache_dir("shepherd")))
    yield CheckResult("self-test", "ok" if verdict.use_extra_bufts else "note", verdict.detail)


def _processor(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    from shepherd.engine.llamacpp.library import supports_rpc, system_info
    from shepherd.engine.llamacpp.machine import n_processors
    from shepherd.engine.llamacpp.runtime import default_threads

    features = [
        word.split(" = ")[0].split(":")[-1].strip() for word in system_info().split("|") if word.strip().endswith("= 1")
    ]
    yield CheckResult("CPU features", "ok", ", ".join(features) or "none reported")
    yield CheckResult("threads", "ok", f"{default_threads()} of {os.cpu_count()} CPUs, {n_processors()} may be used")
    yield _optional("RPC", "built in" if supports_rpc() else "", "not built in")


def _gpu(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    from shepherd.engine.llamacpp.library import devices, library_path

    yield gpu_result(devices(), [*devices_seen()], library_path().parent)


def gpu_result(usable: Sequence[str], seen: Sequence[tuple[str, str]], folder: Path) -> CheckResult:
    """`usable`: by the library in `folder`; `seen`: the back ends whose devices this machine has, and what shows it."""
    if usable:
        return CheckResult("GPU", "ok", ", ".join(usable))
    if not seen:
        return CheckResult("GPU", "ok", "none found; models run on the CPU")
    (name, what), built = seen[0], built_for(folder)
    title = BACKENDS[name].title
    if name in built:
        why = f"the library is built for this machine's {title} ({what}), and cannot use it"
        return CheckResult("GPU", "note", why, "Look whether its driver is installed and new enough.")
    others = " or ".join(each for each, _ in seen[1:])
    hint = f"Build one for it: {building.this_way().start} doctor --build {name}" + (
        f" (or: {others})" if others else ""
    )
    return CheckResult(
        "GPU", "note", f"this machine has one ({title}, {what}), and the library is not built for it", hint
    )


def _memory(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    memory = psutil.virtual_memory()
    low = memory.available < 2**30
    yield CheckResult(
        "memory",
        "note" if low else "ok",
        f"{format_size(memory.available)} of {format_size(memory.total)} free",
        "Close other programs, or choose a smaller model or context." if low else "",
    )


def _configuration(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    config = configure.read_config(options, looks=True)
    files = [str(source.file) for source in config.sources if source.file is not None]
    yield CheckResult("configuration", "ok", ", ".join(files) or "no file; only defaults, environment and flags")
    for warning in config.warnings:
        yield CheckResult("configuration", "note", warning)
    if path := unusual_path(config.memory.database_path, os.environ):
        yield CheckResult(
            "memory file", "note", f"{path}, not the usual place", "'shepherd config' shows what names it."
        )


def _models(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    home, here = Path.home(), Path.cwd()
    folders = list(catalog.folders(env=os.environ, home=home, cwd=here))
    for folder in folders:
        if folder.exists and not folder.readable:
            yield CheckResult("models", "note", f"{folder.path} cannot be read", "Check its permissions.")
    places = [f"{folder.count} in {folder.path}" for folder in folders if folder.count]
    yield CheckResult("models", "ok", ", ".join(places) or "none found", "'shepherd models list' shows them.")


def _configured(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    try:
        config = configure.read_config(options, looks=True)
    except ShepherdError:  # `_configuration` reports it
        return
    folder = Path(platformdirs.user_cache_dir("shepherd"))
    for server in dict.fromkeys(server for model in config.models for server in model.rpc_servers):
        yield _worker(server)
    for model in config.models:
        try:
            path = catalog.find(model.path, env=os.environ, home=Path.home(), cwd=Path.cwd())
            header = read(path)
            if isinstance(header, Checkpoint):
                tensorrt.check(model, header, model.tensorrt.over(config.tensorrt).python)
                where = f"{path} ({header.architecture}, {header.file_type}), for TensorRT-LLM"
                yield CheckResult(f"model {model.name}", "ok", where)
                continue
            soundness.check(header)
            is_proved = trial.is_proved(header, folder, build=selftest.build_id())
        except ShepherdError as error:
            yield CheckResult(f"model {model.name}", "bad", error.message)
        else:
            checked = "has been loaded before" if is_proved else "its first load will be checked in a child process"
            about = f"{path} ({header.architecture}, {header.file_type}); {checked}"
            yield CheckResult(f"model {model.name}", "ok", about)
    yield from _certificate(config)
    host, port = config.server.host, config.server.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            taken = CheckResult(
                "port", "note", f"{host}:{port} is not free ({error.strerror})", "Choose another port with --port."
            )
            yield _server(config) or taken
        else:
            yield CheckResult("port", "ok", f"{host}:{port} is free")


def _certificate(config: Config) -> Iterator[CheckResult]:
    cert, key = config.server.tls_cert, config.server.tls_key
    if cert and key:
        faults = find_faults(cert, key)
        yield from (CheckResult("certificate", "note", fault) for fault in faults)
        if not faults:
            yield CheckResult("certificate", "ok", f"{cert} and its key fit and are valid")


def _worker(server: str) -> CheckResult:
    try:
        free = rpc.probe(server).free_bytes
    except ShepherdError as error:
        return CheckResult(f"worker {server}", "bad", error.message, "'shepherd help rpc' says how to start one.")
    lent = f"devices: {len(free)}, memory: {format_size(sum(free))}"
    return CheckResult(f"worker {server}", "ok", f"answers; {lent}")


def _server(config: Config) -> CheckResult | None:
    """What a Shepherd that has the configured port says of its health; None where none answers."""
    import httpx2

    from shepherd.cli.command.server_client import connect, find_address, health_of

    address = find_address(config, None, ())
    try:
        with connect(address, HEALTH_S) as client:
            told = health_of(client, address.url)
    except (httpx2.HTTPError, ShepherdError):
        return None
    why = f": {clean(str(told['detail']))}" if told.get("detail") else ""
    state: State = "ok" if told["backend_connected"] and not why else "note" if told["backend_connected"] else "bad"
    return CheckResult("server", state, f"{address.url} is {clean(str(told.get('status')))}{why}")


def _providers(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    try:
        config, store = configure.read_config(options, looks=True), known_providers.store()
    except ShepherdError:  # `_configuration` reports it
        return
    for row in known_providers.known_rows(config, store):
        from shepherd.cli.command import provider

        facts = provider.facts(row, config.network, config.providers)
        where = facts["address"] or f"replicas {', '.join(row.replicas)}"
        key = f"key from {facts['key']}" if facts["key"] else "no key"
        detail = f"{facts['title']}, {where}, {key}; {WAYS[not facts['is_local']]}"
        problem = facts["problem"]
        yield CheckResult(f"provider {row.name}", "note" if problem else "ok", problem or detail)
    if store.is_open_to_others:
        yield CheckResult("keys", "bad", f"{store.path} can be read by other users", "Run chmod 600 on it.")


def _parts(options: Mapping[str, Any]) -> Iterator[CheckResult]:
    fast = importlib.util.find_spec("uvloop") is not None
    python = configure.read_config(options, looks=True).tensorrt.python
    version = tensorrt.installed(python)
    found = "" if version is None else " ".join(filter(None, (version or "installed", python and f"for {python}")))
    yield _optional("TensorRT-LLM", found, "not installed; it runs model folders", "See 'shepherd help tensorrt'.")
    if found:
        yield _optional(
            "mpirun",
            shutil.which("mpirun") or "",
            "not installed; engines that are split into stages start with it",
            'Install Open MPI, or set launch = "spawn" in [tensorrt].',
        )
    yield _optional("uvloop", "installed" if fast else "", "not installed; the server is a little slower")


CHECKS: tuple[Check, ...] = (
    _versions, _library, _processor, _gpu, _memory, _configuration, _models, _configured, _providers, _parts,
)  # fmt: skip
