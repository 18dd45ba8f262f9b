"""`shepherd launch CLIENT`: a coding agent that talks to our server, started if none runs, for as long as it is used.

    find or start a server ─▶ ask which models ─▶ settings (`launch_settings`) ─▶ run the client ─▶ stop what we started

The client has the terminal to itself: signals are its own, and its exit status is ours. What it is told goes by
variables, arguments and files in a folder that is removed at the end; its own configuration is not touched.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import httpx2

from shepherd.cli import configure, render
from shepherd.cli.command import server_client
from shepherd.cli.command.launch_settings import (
    CLIENTS,
    KEY,
    NO_KEY,
    SIDE_MODEL,
    Client,
    LaunchTarget,
    Settings,
    as_shell,
    side_model,
)
from shepherd.cli.options import SHARED
from shepherd.cli.signals import handling
from shepherd.core import BadReply, EngineDown, EngineError
from shepherd.server.http.auth import is_loopback

if TYPE_CHECKING:
    from shepherd.config import Config

MISSING = 127
"""Exit status for a program that is not there, as of any shell."""

STOP_S = 60.0
"""How long the server may take to write its conversations to disk."""

MAX_LOGS = 10
"""Of servers that were started here; the newest are kept."""

NOTE_S = 10.0
"""Silence of a server that is starting before we say that it still is."""


def run(
    options: Mapping[str, Any],
    *,
    client: str,
    arguments: Sequence[str],
    url: str | None,
    printing: bool,
    show_key: bool,
) -> int:
    """Run the client called `client` with `arguments`, or print how to; its exit status.

    `options` are those of `shepherd serve`, for a server that has to be started; their model is also the one to use.

    Raises: `ShepherdError` when there is no server to be had, or it lets us not in.
    """
    agent = CLIENTS[client]
    if printing:
        return _print(agent, options, arguments, url, show_key=show_key)
    program = shutil.which(agent.program)
    if program is None:
        render.show_error(f"there is no program {agent.program!r} on this machine; install it with: {agent.install}")
        return MISSING
    config = configure.load_config(_for_asking(options))
    with ExitStack() as stack:
        address = server_client.find_address(config, url, options.get("api_keys") or ())
        found, model = _ask(address), options.get("model")
        if found is None:
            if url is not None:
                raise server_client.no_server(address.url)
            address = stack.enter_context(_started(options, config))
            found = _ask(address)
            assert found is not None
            # It may have been named by its file; then it is the default one of the server that was told so.
            model = model if model in found.rooms else None
        else:
            _warn_of_options(options, address)
        served = _choose(found, model, address, config)
        _warn_of_room(agent, served)
        settings = agent.tell(served, arguments)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shepherd-launch-"))
        _write(settings, Path(folder))
        room = f", {served.n_ctx} tokens of context" if served.n_ctx else ""
        render.show_note(f"{agent.title} uses {served.model} at {address.url}{room}")
        return _run([program, *settings.in_folder(folder), *arguments], settings.variables)


def _print(client: Client, options: Mapping[str, Any], said: Sequence[str], url: str | None, *, show_key: bool) -> int:
    """The settings in the words of a shell. Nothing is started: without a server the configuration must know."""
    config = configure.load_config(_for_asking(options))
    address = server_client.find_running(config, url, options.get("api_keys") or ())
    found = _ask(address)
    served = _choose(found, options.get("model"), address, config) if found else _expected(options, address)
    if found is None:
        render.show_note(f"no server answers at {address.url}; start it with 'shepherd serve'")
    if address.key and not show_key:
        served = replace(served, key=KEY)
        render.write("# Set SHEPHERD_API_KEY to the server's key first, or see it with --show-key.\n")
    for line in as_shell(client, client.tell(served, said), said):
        render.write(line + "\n")
    return 0


def _for_asking(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without the model: a server that runs may know names that mean nothing to this machine."""
    return {name: value for name, value in options.items() if name != "model"}


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a running server says of itself."""

    rooms: Mapping[str, int]
    """Tokens of context by model, the default one first."""
    catalog: tuple[Mapping[str, Any], ...]
    """The same in the words of Codex."""
    knows_side_model: bool


def _ask(address: server_client.Address) -> ServerInfo | None:
    """What the server at `address` has; None when nobody answers there. Waits while it is loading.

    Raises: `NotAllowed`, `EngineError` when it cannot answer, `BadReply` when it is no Shepherd server.
    """
    with server_client.connect(address) as client:
        try:
            _wait_for_model(client, address)
            answer = client.get("/v1/models")
            if answer.status_code in {401, 403}:
                raise server_client.refusal(answer, address.url)
            body = server_client.json_object(answer)
            rooms = {
                str(model["id"]): room if isinstance(room := model.get("max_model_len"), int) else 0
                for model in _objects(body, "data")
                if model.get("id")
            }
            if not rooms:
                raise BadReply(f"{address.url} lists no models", backend=address.url)
            knows = _knows(client, SIDE_MODEL)
        except httpx2.ConnectError:
            return None
        except httpx2.TransportError as error:
            raise server_client.transport_error(error, address.url, client.timeout.read or 0.0) from error
    return ServerInfo(rooms, tuple(model for model in _objects(body, "models") if model.get("slug")), knows)


def _knows(client: httpx2.Client, model: str) -> bool:
    """Whether the routes lead this name somewhere: counting costs nothing, unless a model must be loaded for it."""
    probe = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    try:
        return client.post("/v1/messages/count_tokens", json=probe).status_code == 200
    except httpx2.TimeoutException:
        return True


def _wait_for_model(client: httpx2.Client, address: server_client.Address) -> None:
    """Wait until the server can answer. Raises: `BadReply`, `EngineDown`; of the transport's, `ConnectError`."""
    told = False
    while True:
        health = server_client.json_object(client.get("/health"))
        if "backend_connected" not in health:
            raise BadReply(
                f"the program at {address.url} is no Shepherd server; choose another port with --port, or name the "
                "server with --url",
                backend=address.url,
            )
        match health.get("status"):
            case "loading":
                if not told:
                    render.show_note(f"{address.url} is still loading its model")
                told = True
                time.sleep(0.5)
            case "ok":
                return
            case status:
                raise EngineDown(f"{address.url} cannot answer: {health.get('detail') or status}")


def _objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = body.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


@contextmanager
def _started(options: Mapping[str, Any], config: Config) -> Iterator[server_client.Address]:
    """A server of our own, for the length of the block. Raises: `EngineError` when it does not start."""
    # It finds keys in files by itself. Those of our command line go by its environment, which others cannot read.
    said = tuple(options.get("api_keys") or ())
    key = server_client.own_key(config)
    if not (said or key or server_client.has_keys(config) or is_loopback(config.server.host)):
        key = secrets.token_urlsafe(24)
        said = (key,)
    environment = {**os.environ, **({"SHEPHERD_API_KEY": ",".join(said)} if said else {})}
    command = [sys.executable, "-m", "shepherd", "serve", *as_arguments(options)]
    log = _log_file()
    render.show_note(f"starting a server for as long as the client runs (its log: {log})")
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
        # A session of its own: Ctrl-C in the client's terminal is not meant for it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, start_new_session=True
        )
    try:
        yield server_client.Address(server_client.local(_wait_for_line(process, log)), key)
        if process.poll() is not None:
            render.show_warning(f"the server had ended before the client did; its log: {log}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """The shared options as they are written on a command line; but for keys, which everybody could read there."""
    words: list[str] = []
    for option in SHARED:
        value = options.get(option.name or "")
        if value is None or option.name in {"api_keys", "server", "list_tools"}:
            continue
        if option.is_flag:
            is_off = value is False
            words.append((option.secondary_opts if is_off and option.secondary_opts else option.opts)[-1])
        else:
            words += [option.opts[-1], ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


def _log_file() -> Path:
    import platformdirs

    folder = Path(platformdirs.user_log_dir("shepherd"))
    folder.mkdir(parents=True, exist_ok=True)
    before = sorted(folder.glob("launch-*.log"), key=lambda file: file.stat().st_mtime)
    for file in before[: 1 - MAX_LOGS]:
        file.unlink(missing_ok=True)
    return folder / f"launch-{os.getpid()}.log"


READY = "Listening on: "


def _wait_for_line(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the server says it is ready at. Raises: `EngineError` with its own words."""
    began = noted = time.monotonic()
    while True:
        lines = log.read_text("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith(READY):
                return line.removeprefix(READY).strip()
        if process.poll() is not None:
            said = next(
                (line.removeprefix("shepherd: ") for line in reversed(lines) if line.strip()), "it said nothing"
            )
            raise EngineError(f"the server did not start: {said}")
        if (now := time.monotonic()) - noted > NOTE_S:
            render.show_note(f"still starting, after {now - began:.0f} s")
            noted = now
        time.sleep(0.1)


# -- which model ------------------------------------------------------------------------------------------------------


def _choose(found: ServerInfo, model: str | None, address: server_client.Address, config: Config) -> LaunchTarget:
    """The model that is asked for, or the server's default, with its room."""
    name = model or next(iter(found.rooms))
    if name not in found.rooms:
        # A route may take any name; what it leads to is not told.
        known = ", ".join(found.rooms)
        render.show_warning(f"{address.url} lists no model {name!r} (it has: {known}); its routes decide")
    return LaunchTarget(
        address.url,
        name,
        address.key or NO_KEY,
        n_ctx=found.rooms.get(name) or next(iter(found.rooms.values())),
        side_model=SIDE_MODEL if found.knows_side_model else "",
        reserve=config.reserve,
        catalog=found.catalog,
    )


def _expected(options: Mapping[str, Any], address: server_client.Address) -> LaunchTarget:
    """What a server of this configuration would have."""
    config, key = configure.read_config(options), address.key or NO_KEY
    if not config.caches:
        return LaunchTarget(address.url, options.get("model") or "default", key)
    cache = config.caches[0]
    return LaunchTarget(address.url, cache.model, key, cache.n_ctx, side_model(config.routes), config.reserve)


OURS = frozenset({"api_keys", "config", "debug", "host", "log_level", "model", "port", "reserve", "verbose"})
"""Shared options that mean something without a server of our own, or choose it."""


def _warn_of_options(options: Mapping[str, Any], address: server_client.Address) -> None:
    if words := as_arguments({name: value for name, value in options.items() if name not in OURS}):
        render.show_warning(
            f"a server runs at {address.url} already, and goes on as it is: {shlex.join(words)} is not for it; stop it "
            "first, or choose another port with --port"
        )


def _warn_of_room(client: Client, served: LaunchTarget) -> None:
    if served.n_ctx and served.prompt < 2 * client.first_prompt:
        render.show_warning(
            f"{served.model} has a context of {served.n_ctx} tokens, and {client.title} begins with about "
            f"{client.first_prompt} of its own; give it more with --context-size 64k, or expect it to be refused"
        )


# -- the client -------------------------------------------------------------------------------------------------------


def _write(settings: Settings, folder: Path) -> None:
    for name, text in settings.files.items():
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the client in our place; its exit status, or 128 and the number of the signal that ended it."""
    with ExitStack() as stack:
        process: list[subprocess.Popen[bytes]] = []

        def pass_on(number: int, _frame: FrameType | None) -> None:
            if process:
                process[0].send_signal(number)

        # The terminal sends these two to the client as well; it decides what they mean.
        for number in (signal.SIGINT, signal.SIGQUIT):
            stack.enter_context(handling(number, lambda *_: None))
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.enter_context(handling(number, pass_on))
        process.append(subprocess.Popen(command, env={**os.environ, **variables}))
        status = process[0].wait()
    return status if status >= 0 else 128 - status
