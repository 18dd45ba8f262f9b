"""`shepherd launch CLIENT`: runs a coding agent on a local server, which is started for the time if none runs.

The client has the terminal to itself: it gets the signals, and its exit status is that of `shepherd`. Its settings are
variables, arguments and files in a temporary folder; its own configuration does not change.
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import platformdirs

from shepherd.cli import configure, render
from shepherd.cli.command import server_client
from shepherd.cli.command.launch_program import find_package, keep_prompt, lacks_node, recall_prompt
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
from shepherd.cli.signals import HANG_UP, handling
from shepherd.config import Config
from shepherd.core import BadReply, EngineDown, EngineError, ShepherdError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.errors import usual_size
from shepherd.models.pull.network import distrust
from shepherd.server.endpoints.caches import decode_server
from shepherd.server.http.caller import is_loopback

WINDOW = "8x"
"""Of a server that is started here, unless its configuration has a window or an overflow of its own."""
MISSING = 127
"""Exit status for a missing program, as in a shell."""
STOP_S = 60.0
"""How long the server may take to stop: it writes its conversations to disk."""
MAX_LOGS = 10
"""Log files of started servers that are kept, the newest ones."""
NOTE_S = 10.0
"""Between two notes that the server is still starting."""
TRUST = ("NODE_EXTRA_CA_CERTS", "CODEX_CA_CERTIFICATE")
"""Variables that name further certificates. SSL_CERT_FILE is none: it takes the place of the system's, also for the
programs that an agent runs."""
OURS = frozenset({"api_keys", "config", "debug", "host", "log_level", "model", "port", "reserve", "verbose"})
"""Shared options that this command uses itself, or that choose a running server."""


def run(
    options: Mapping[str, Any],
    *,
    client: str,
    arguments: Sequence[str],
    url: str | None,
    no_window: bool,
    printing: bool,
    show_key: bool,
) -> int:
    """Run the client called `client` with `arguments`, or print its settings; its exit status. `options` are those of
    `shepherd serve`, for a server that is started here; the client uses their model. `no_window`: that server has no
    window larger than its context. Raises: `ShepherdError`."""
    agent = CLIENTS[client]
    if printing:
        return _print(agent, options, arguments, url, show_key=show_key)
    program = shutil.which(agent.program)
    if program is None:
        render.show_error(f"there is no program {agent.program!r} on this machine; install it with: {agent.install}")
        return MISSING
    config = configure.load_config({**options, "model": None})  # a server may know names that this machine does not
    package, seen = find_package(program), _prompts_file()
    if lack := lacks_node(package):
        render.show_warning(f"{agent.title} {lack}")
    is_ours = False
    with ExitStack() as stack:
        address = server_client.find_address(config, url, options.get("api_keys") or ())
        found, model = _query(address), options.get("model")
        if found is None:
            if url is not None:
                raise server_client.no_server(address.url)
            own_choice = no_window or any(each.window or each.overflow for each in config.caches)
            window = {} if own_choice else {"window": options.get("window") or WINDOW}
            address = stack.enter_context(_started({**options, **window}, config))
            found, is_ours = _query(address), True
            assert found is not None
            # A model named by its file has another name on the server, where it is the default.
            model = model if model in found.n_ctx else None
        elif words := as_arguments({name: value for name, value in options.items() if name not in OURS}):
            render.show_warning(
                f"a server already runs at {address.url}, and {shlex.join(words)} does not change it; stop the server "
                "first, or choose another port with --port"
            )
        target = _choose_model(found, model, address, config)
        held = target.n_cells or target.n_ctx
        if lack := too_small(agent, held, target.answer, recall_prompt(client, seen)):
            render.show_warning(f"{target.model} {lack}")
        settings = _settings(agent, target, arguments, address)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shepherd-launch-"))
        for name, text in settings.files.items():
            made = os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(made, "w", encoding="utf-8") as file:
                file.write(text)
        context = f", {held} tokens of context" if held else ""
        render.show_note(f"{agent.title} uses {target.model} at {address.url}{context}")
        if target.n_ctx > held:
            render.show_note(
                f"its conversations may have {target.n_ctx} tokens: what is old leaves the context; "
                "--no-window switches this off"
            )
        status = _run([program, *settings.in_folder(folder), *arguments], settings.variables)
        # Another server may have had other clients.
        if is_ours and (n_tokens := _first_prompt(address)):
            keep_prompt(client, package, n_tokens, seen)
        return status


def too_small(agent: Client, held: int, answer: int, seen: tuple[int, str]) -> str:
    """What is wrong with a context of `held` tokens, `answer` of them for an answer; empty where nothing is. `seen`:
    the tokens of the agent's first prompt here, and when that was."""
    n_tokens, when = max(seen, (agent.first_prompt, agent.measured))
    if not held or held - answer >= 2 * n_tokens:
        return ""
    what = "cannot answer" if held <= n_tokens else "has little room for its work, and some requests may fail"
    return (
        f"has a context of {held:,} tokens, and the first prompt of {agent.title} has about {n_tokens:,} ({when}): it "
        f"{what}; start with --context-size {usual_size(2 * n_tokens + answer)}"
    )


def _prompts_file() -> Path:
    return Path(platformdirs.user_state_dir("shepherd")) / "launch.json"


def _first_prompt(address: server_client.Address) -> int:
    """Tokens of the longest prompt with which a conversation on the server has begun; 0 if it does not say."""
    with suppress(httpx2.HTTPError, ShepherdError), server_client.connect(address) as client:
        return decode_server(server_client.json_object(client.get("/v1/caches"))).get("first_prompt_tokens", 0)
    return 0


def _print(
    client: Client, options: Mapping[str, Any], arguments: Sequence[str], url: str | None, *, show_key: bool
) -> int:
    """Print the settings as shell commands. Starts nothing: without a server, the configuration has the model."""
    config = configure.load_config({**options, "model": None}, looks=True)
    address = server_client.find_address(config, url, options.get("api_keys") or (), is_running=True)
    found = _query(address)
    target = (
        _choose_model(found, options.get("model"), address, config) if found else _configured_model(options, address)
    )
    if found is None:
        render.show_note(f"no server answers at {address.url}; start it with 'shepherd serve'")
    if address.key and not show_key:
        target = replace(target, key=KEY)
        render.write("# First set SHEPHERD_API_KEY to the key of the server, or show it with --show-key.\n")
    for line in as_shell(client, _settings(client, target, arguments, address), arguments):
        render.write(line + "\n")
    return 0


def _settings(
    client: Client, target: LaunchTarget, arguments: Sequence[str], address: server_client.Address
) -> Settings:
    """The client's settings; with a server whose certificate is known, it is trusted besides the system's."""
    settings = client.configure(target, arguments)
    trust = {name: address.certificate for name in TRUST if address.certificate and name not in os.environ}
    return replace(settings, variables={**settings.variables, **trust})


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerInfo:
    n_ctx: Mapping[str, int]
    """Tokens of a conversation by model, the default one first."""
    n_cells: Mapping[str, int]
    """Those that the context holds at a time."""
    catalog: tuple[Mapping[str, Any], ...]
    """The models in the format of Codex."""
    knows_side_model: bool


def _query(address: server_client.Address) -> ServerInfo | None:
    """The models of the server at `address`; None when no server answers. Waits while it loads. Raises: `NotAllowed`,
    `EngineError` when it cannot answer, `BadReply` when it is no Shepherd server."""
    with server_client.connect(address) as client:
        try:
            _wait_for_model(client, address)
            answer = client.get("/v1/models")
            if answer.status_code in {401, 403}:
                raise server_client.refusal(answer, address.url)
            body = server_client.json_object(answer)
            models = {str(model["id"]): model for model in _objects(body, "data") if model.get("id")}
            n_ctx = {name: _whole(model.get("max_model_len")) for name, model in models.items()}
            n_cells = {name: _whole((model.get("meta") or {}).get("n_cells")) for name, model in models.items()}
            if not n_ctx:
                raise BadReply(f"{address.url} lists no models", backend=address.url)
            # Counting tokens is cheap, unless a model must be loaded for it.
            probe = {"model": SIDE_MODEL, "messages": [{"role": "user", "content": "Hello"}]}
            try:
                knows = client.post("/v1/messages/count_tokens", json=probe).status_code == 200
            except httpx2.TimeoutException:
                knows = True
        except httpx2.TransportError as error:
            if isinstance(error, httpx2.ConnectError) and distrust(error) is None:
                return None
            raise server_client.transport_error(error, address.url, client.timeout.read or 0.0) from error
    return ServerInfo(n_ctx, n_cells, tuple(model for model in _objects(body, "models") if model.get("slug")), knows)


def _wait_for_model(client: httpx2.Client, address: server_client.Address) -> None:
    """Wait until the server can answer. Raises: `BadReply`, `EngineDown`; `ConnectError` of the transport."""
    noted = False
    while True:
        health = server_client.health_of(client, address.url)
        match health.get("status"):
            case "loading":
                if not noted:
                    render.show_note(f"{address.url} is still loading its model")
                noted = True
                time.sleep(0.5)
            case "ok" | "degraded":
                return
            case status:
                raise EngineDown(f"{address.url} cannot answer: {health.get('detail') or status}")


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    listed = body.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


@contextmanager
def _started(options: Mapping[str, Any], config: Config) -> Iterator[server_client.Address]:
    """A server that runs during the block. Raises: `EngineError` when it does not start."""
    # The server reads keys in files itself. Keys of this command line go through its environment, which is private.
    keys = tuple(options.get("api_keys") or ())
    key = server_client.own_key(config)
    asks_for_keys = config.server.api_keys is not None or config.server.keys is not None
    if not (keys or key or asks_for_keys or is_loopback(config.server.host)):
        key = secrets.token_urlsafe(24)
        keys = (key,)
    environment = {**os.environ, **({"SHEPHERD_API_KEY": ",".join(keys)} if keys else {})}
    command = [sys.executable, "-m", "shepherd", "serve", *as_arguments(options)]
    log = _log_file()
    render.show_note(f"starting a server until the client exits (its log: {log})")
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as sink:
        # A session of its own: Ctrl-C in the terminal goes to the client only.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=environment, start_new_session=True
        )
    try:
        yield server_client.Address(server_client.local(_wait_for_line(process, log)), key, config.server.tls_cert)
        if process.poll() is not None:
            render.show_warning(f"the server ended before the client; its log: {log}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """The shared options as command-line arguments; without keys, which other users could read there."""
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
    folder = Path(platformdirs.user_log_dir("shepherd"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:  # no home, or one that cannot be written
        folder = Path(tempfile.mkdtemp(prefix="shepherd-log-"))
    before = sorted(folder.glob("launch-*.log"), key=lambda file: file.stat().st_mtime)
    for file in before[: 1 - MAX_LOGS]:
        file.unlink(missing_ok=True)
    return folder / f"launch-{os.getpid()}.log"


READY = "Listening on: "


def _wait_for_line(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the server prints when it is ready. Raises: `EngineError` with the server's last line."""
    began = noted = time.monotonic()
    while True:
        lines = log.read_text("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith(READY):
                return line.removeprefix(READY).strip()
        if process.poll() is not None:
            last = next(
                (line.removeprefix("shepherd: ") for line in reversed(lines) if line.strip()), "its log is empty"
            )
            raise EngineError(f"the server did not start: {last}")
        if (now := time.monotonic()) - noted > NOTE_S:
            render.show_note(f"still starting, after {now - began:.0f} s")
            noted = now
        time.sleep(0.1)


# -- which model ------------------------------------------------------------------------------------------------------


def _choose_model(found: ServerInfo, model: str | None, address: server_client.Address, config: Config) -> LaunchTarget:
    """The requested model, or the default of the server, with its context."""
    name = model or next(iter(found.n_ctx))
    known_as = name if name in found.n_ctx else next(iter(found.n_ctx))
    if name not in found.n_ctx:
        # A route may accept any name; the server does not list its target.
        known = ", ".join(found.n_ctx)
        render.show_warning(f"{address.url} lists no model {name!r} (it has: {known}); its routes decide")
    return LaunchTarget(
        address.url,
        name,
        address.key or NO_KEY,
        n_ctx=found.n_ctx[known_as],
        n_cells=found.n_cells[known_as],
        side_model=SIDE_MODEL if found.knows_side_model else "",
        reserve=config.reserve,
        catalog=found.catalog,
    )


def _configured_model(options: Mapping[str, Any], address: server_client.Address) -> LaunchTarget:
    config, key = configure.read_config(options, looks=True), address.key or NO_KEY
    if not config.caches:
        return LaunchTarget(address.url, options.get("model") or "default", key)
    cache = config.caches[0]
    n_ctx, side = cache.tokens_of_window(cache.n_ctx), side_model(config.routes)
    return LaunchTarget(address.url, cache.model, key, n_ctx, cache.n_ctx, side_model=side, reserve=config.reserve)


# -- the client -------------------------------------------------------------------------------------------------------


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run the client; its exit status, or 128 + the number of the signal that ended it."""
    with ExitStack() as stack:
        process: list[subprocess.Popen[bytes]] = []

        def pass_on(number: int, _frame: FrameType | None) -> None:
            if process:
                process[0].send_signal(number)

        # The terminal sends these two to the client as well, which handles them.
        for number in (signal.SIGINT, signal.SIGQUIT):
            stack.enter_context(handling(number, lambda *_: None))
        for number in (signal.SIGTERM, HANG_UP):
            stack.enter_context(handling(number, pass_on))
        process.append(subprocess.Popen(command, env={**os.environ, **variables}))
        status = process[0].wait()
    return status if status >= 0 else 128 - status
