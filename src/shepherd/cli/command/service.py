"""`shepherd service`: keeps `shepherd serve` running as a service of the user, who needs no rights of root for it.

The two managers, systemd and launchd, are two rows of `MANAGERS`. Not here: the text of the files (`service_unit.py`).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import click
import httpx2
import platformdirs

from shepherd.cli import configure, render
from shepherd.cli.command import server_client
from shepherd.cli.command.launch import as_arguments
from shepherd.cli.command.service_unit import (
    LABEL,
    MARK,
    NAME,
    Service,
    command_of_agent,
    command_of_unit,
    launchd_agent,
    systemd_unit,
)
from shepherd.cli.options import given_options
from shepherd.cli.text import clean, last_line
from shepherd.config import Config
from shepherd.config.schema import ENVIRONMENT, TRUST
from shepherd.core import ConfigError, EngineError, ShepherdError, TimedOut
from shepherd.core.dataclasses import dataclass
from shepherd.process.files import read_within
from shepherd.process.installed import find_way
from shepherd.server.http.caller import is_loopback

SAVING_S = 60
"""What a server may take to stop, besides the `grace_s` of its answers: it writes its conversations to disk."""
ANSWER_S = 15.0
"""For a manager that only tells something."""
HEALTH_S = 2.0
NOT_RUNNING, NOT_INSTALLED = 3, 4
"""Exit statuses of `status`, as those of `systemctl status`."""
KEPT = (
    *("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME", "HF_HUB_CACHE"),
    *("OLLAMA_MODELS", "SSL_CERT_FILE", "CUDA_VISIBLE_DEVICES"),
)
"""Variables of the shell that the service gets: where things are. Secrets stay out of the file."""
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]").search


@dataclass(frozen=True, slots=True)
class Manager:
    """How one service manager is told what to do.

    A step is a command line; `{domain}`, `{target}` and `{file}` are filled in. Before it, `-`: it may fail; `!`: it is
    repeated until it fails, since the manager ends a service in its own time.
    """

    title: str
    program: str
    file: Callable[[Path, Mapping[str, str]], Path]
    """From the home and the environment."""
    text: Callable[[Service], str]
    command: Callable[[str], tuple[str, list[str]]]
    probe: str
    """Succeeds where the user has a manager that can be talked to."""
    steps: Mapping[str, tuple[str, ...]]
    state: str
    """Prints lines of `name=value`."""
    logs: str
    follow: str


def _config_home(home: Path, env: Mapping[str, str]) -> Path:
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config")


_AGAIN = (f"-systemctl --user reset-failed {NAME}", f"systemctl --user restart {NAME}")
_OUT = ("-launchctl bootout {target}", "!launchctl print {target}")
MANAGERS: Mapping[str, Manager] = {
    "linux": Manager(
        "systemd",
        "systemctl",
        lambda home, env: _config_home(home, env) / "systemd" / "user" / NAME,
        systemd_unit,
        command_of_unit,
        probe="systemctl --user show-environment",
        steps={
            "install": ("systemctl --user daemon-reload", f"systemctl --user enable {NAME}", *_AGAIN),
            "uninstall": (f"-systemctl --user disable --now {NAME}",),
            "uninstalled": ("systemctl --user daemon-reload",),
            "start": (_AGAIN[0], f"systemctl --user start {NAME}"),
            "stop": (f"systemctl --user stop {NAME}",),
            "restart": _AGAIN,
        },
        state=f"systemctl --user show {NAME} --property=ActiveState,SubState,MainPID,NRestarts,Result,StatusText",
        logs=f"journalctl --user-unit {NAME} --no-pager --lines {{lines}}",
        follow=" --follow",
    ),
    "darwin": Manager(
        "launchd",
        "launchctl",
        lambda home, env: home / "Library" / "LaunchAgents" / f"{LABEL}.plist",
        launchd_agent,
        command_of_agent,
        probe="launchctl print {domain}",
        steps={
            "install": (*_OUT, "launchctl enable {target}", "launchctl bootstrap {domain} {file}"),
            "uninstall": _OUT,
            "uninstalled": (),
            "start": ("-launchctl bootstrap {domain} {file}", "launchctl kickstart {target}"),
            "stop": _OUT,
            "restart": (*_OUT, "launchctl bootstrap {domain} {file}"),
        },
        state="launchctl print {target}",
        logs="tail -n {lines} {log}",
        follow=" -F",
    ),
}


# -- the commands -----------------------------------------------------------------------------------------------------


def install(options: Mapping[str, Any], *, arguments: Sequence[str], force: bool, printing: bool) -> None:
    manager = _manager()
    words = [*as_arguments(options), *arguments]
    config = _read(words)
    _refuse_what_cannot_last(config, options, words)
    service = Service(
        [*_program(), "serve", *words],
        os.getcwd(),
        ceil(config.server.grace_s) + SAVING_S,
        str(_log()),
        {name: os.environ[name] for name in KEPT if os.environ.get(name)},
    )
    _refuse_what_no_file_holds(service)
    text, file = manager.text(service), _file(manager)
    if printing:
        render.write(text)
        return
    _reach(manager)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        render.show_warning("this is a service of root, and models need no such rights; a user of its own is safer")
    if os.path.lexists(file) and _text_of(file) != text and not force and not _may_replace(file):
        raise ConfigError(f"{file} exists and is different; --force replaces it, --print shows what it would be")
    file.parent.mkdir(parents=True, exist_ok=True)
    _log().parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)  # a link: not what it leads to is ours
    file.write_text(text, "utf-8")
    _do(manager, "install", service.stop_s)
    render.show(f"Installed {file}; it starts when you log in, and runs now in {service.folder}.")
    render.show(f"Address: {_address(config).url}")
    if _is_lingering() is False:
        render.show_note(
            f"it stops when you log out; to let it start with the machine and stay: loginctl enable-linger {_user()}"
        )
    if names := sorted(ENVIRONMENT.keys() & os.environ.keys()):
        render.show_warning(
            f"the service does not get {', '.join(names)} of this shell; write settings into the configuration, and "
            "let 'shepherd keys set' keep the keys of providers"
        )
    if os.environ.get(TRUST):
        render.show_warning(f"the service does not get {TRUST} of this shell; run 'shepherd trust' in this folder")


def uninstall(options: Mapping[str, Any], *, force: bool) -> None:
    manager = _manager()
    file = _installed(manager)
    if MARK not in _text_of(file) and not force:
        raise ConfigError(f"{file} was not made by 'shepherd service install'; --force removes it all the same")
    _reach(manager)
    _do(manager, "uninstall", _stop_s(file))
    file.unlink()
    _do(manager, "uninstalled", 0)
    render.show(f"Removed {file}. Models, conversations and the configuration are still there.")


def status(options: Mapping[str, Any], *, as_json: bool) -> int:
    manager = _manager()
    file = _file(manager)
    if not file.is_file():
        render.show_done({"installed": False}, f"No service is installed ({file}).", as_json=as_json)
        return NOT_INSTALLED
    _reach(manager)
    told = _state(_run(_filled(manager.state), ANSWER_S).stdout)
    try:
        folder, command = manager.command(_text_of(file))
        with contextlib.chdir(folder):
            address = _address(_read(command[command.index("serve") + 1 :], looks=True))
        url, health = address.url, _health(address)
    except (ShepherdError, click.ClickException, OSError, ValueError) as error:
        url, health = "-", f"unknown: {clean(getattr(error, 'message', None) or str(error))}"
    is_running = told["state"].split()[0] in ("active", "running")
    facts = {"manager": manager.title, "file": str(file), **told, "address": url, "health": health}
    if as_json:
        render.show_json({"installed": True, "running": is_running, **facts})
    else:
        render.show_fields({name.capitalize(): text for name, text in facts.items() if text})
    return 0 if is_running else NOT_RUNNING


def health(options: Mapping[str, Any]) -> int:
    """Ask the configured server for its health; 0 = it can answer. Needs no manager: containers and monitors use it.
    Raises: `ShepherdError`."""
    told = _health(_address(configure.read_config({**options, "server": True}, looks=True)))
    render.show(told)
    return int(told.partition(":")[0] not in ("ok", "degraded"))


def logs(options: Mapping[str, Any], *, lines: int, following: bool) -> int:
    manager = _manager()
    _installed(manager)
    command = _filled(manager.logs + manager.follow * following, lines=str(lines))
    if shutil.which(command[0]) is None:
        raise EngineError(f"there is no program {command[0]} here, which shows the log")
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 0


def _act(verb: str, done: str, options: Mapping[str, Any]) -> None:
    manager = _manager()
    file = _installed(manager)
    _reach(manager)
    _do(manager, verb, _stop_s(file))
    render.show(f"The service is {done}.")


start, stop, restart = (
    partial(_act, *words) for words in (("start", "started"), ("stop", "stopped"), ("restart", "restarted"))
)


# -- the manager ------------------------------------------------------------------------------------------------------


def _manager() -> Manager:
    """Raises: `ConfigError` where there is none."""
    if "SUDO_USER" in os.environ:
        raise ConfigError("run this without sudo: the service belongs to your own user, and needs no rights of root")
    manager = MANAGERS.get(sys.platform)
    if manager is None:
        raise ConfigError(
            f"'shepherd service' knows systemd and launchd, and not the services of {sys.platform}; on Windows, let "
            "the Task Scheduler start 'shepherd serve' at log-on"
        )
    return manager


def _reach(manager: Manager) -> None:
    """Raises: `ConfigError` where the user's manager does not answer."""
    missing = shutil.which(manager.program) is None
    found = None if missing else _run(_filled(manager.probe), ANSWER_S)
    if found is None or found.returncode != 0:
        raise ConfigError(why_not(manager, os.environ, Path("/"), "" if found is None else found.stderr))


def why_not(manager: Manager, env: Mapping[str, str], root: Path, told: str) -> str:
    """Why no manager answers, and what to do. `root`: the folder /."""
    is_container = "container" in env or any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
    if is_container:
        return (
            "a container has no service manager of its own: let its command be 'shepherd serve' ('shepherd help "
            "service' has a Containerfile)"
        )
    if "WSL_DISTRO_NAME" in env and not (root / "run" / "systemd" / "system").exists():
        return (
            "systemd is off in this WSL: write [boot] and systemd=true into /etc/wsl.conf, run 'wsl --shutdown' in "
            "Windows, and try again"
        )
    if manager.program == "launchctl":
        return f"launchd has no session for this user; log in at the screen of this Mac once ({clean(last_line(told))})"
    if not (root / "run" / "systemd" / "system").exists():
        return "this system does not run systemd; let its own service manager start 'shepherd serve'"
    if not env.get("XDG_RUNTIME_DIR"):
        return (
            "this login has no session of systemd (su and some ssh logins have none): log in as the user itself, or "
            "run 'sudo loginctl enable-linger USER' for it and set XDG_RUNTIME_DIR=/run/user/UID"
        )
    return f"systemd does not answer for this user ({clean(last_line(told))}); 'systemctl --user status' shows more"


def _do(manager: Manager, verb: str, stop_s: int) -> None:
    """Raises: `EngineError` with the manager's own words."""
    for step in manager.steps[verb]:
        mark, command = (step[0], step[1:]) if step[0] in "-!" else ("", step)
        until = time.monotonic() + stop_s + ANSWER_S
        while True:
            done = _run(_filled(command), stop_s + 2 * SAVING_S)
            if mark != "!" or done.returncode != 0:
                break
            if time.monotonic() > until:
                raise TimedOut("the service does not end; 'shepherd service logs' shows why", backend=manager.title)
            time.sleep(0.2)
        if not mark and done.returncode != 0:
            why = clean(last_line(done.stderr)) or f"status {done.returncode}"
            raise EngineError(
                f"'{command.format_map(_names())}' failed: {why}; 'shepherd service logs' shows what the server said"
            )


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Raises: `TimedOut`, `EngineError`."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"'{shlex.join(command)}' has not ended after {timeout_s:g} s", backend=command[0]) from error
    except OSError as error:
        raise EngineError(f"'{command[0]}' cannot be started: {error.strerror}") from error


def _filled(line: str, **more: str) -> list[str]:
    return [word.format_map({**_names(), **more}) for word in line.split()]


def _names() -> dict[str, str]:
    domain = f"gui/{os.getuid()}" if hasattr(os, "getuid") else ""
    agent = str(_file(MANAGERS["darwin"]))
    return {"domain": domain, "target": f"{domain}/{LABEL}", "file": agent, "log": str(_log())}


def _state(told: str) -> dict[str, str]:
    """The state, the process and what else is worth a line, of the output of a manager."""
    # launchd indents what belongs to something else.
    lines = re.findall(r"^\t?(\w[\w ]*?) ?= ?(.*)$", told, re.MULTILINE)
    found = {name: text.strip() for name, text in lines}
    state = " ".join(filter(None, (found.get("ActiveState"), found.get("SubState") and f"({found['SubState']})")))
    result, n = found.get("Result", "success"), found.get("NRestarts", "0")
    pid = found.get("MainPID") or found.get("pid") or ""
    return {
        "state": clean(state or found.get("state") or "not loaded"),
        "process": pid if pid != "0" else "",
        "serves": clean(found.get("StatusText", "")),
        "restarts": n if n != "0" else "",
        "result": result if result != "success" else found.get("last exit code", ""),
    }


# -- what is installed ------------------------------------------------------------------------------------------------


def _read(words: Sequence[str], *, looks: bool = False) -> Config:
    """The configuration of 'shepherd serve WORDS'. Raises: `UsageError` as that command does, `ConfigError`."""
    program = click.get_current_context().find_root().command
    assert isinstance(program, click.Group)
    context = program.commands["serve"].make_context("shepherd serve", [*words])
    options = given_options(context)
    if (model := context.params.get("model_word")) is not None:
        options.setdefault("model", model)
    read = configure.read_config if looks else configure.load_config
    return read({**options, "server": True}, looks=looks)


def _refuse_what_cannot_last(config: Config, options: Mapping[str, Any], words: Sequence[str]) -> None:
    """Raises: `ConfigError` for what works in this shell only, `UsageError` for a port of 0."""
    if options.get("api_keys") or any(word.partition("=")[0] == "--api-key" for word in words):
        raise ConfigError("other users can read the command of a service; write the key into the configuration",
                          key="server.api_keys")  # fmt: skip
    if os.environ.get("SHEPHERD_API_KEY"):
        raise ConfigError("the service does not get SHEPHERD_API_KEY; write the key into the configuration",
                          key="server.api_keys")  # fmt: skip
    if config.server.api_keys is None and config.server.keys is None and not is_loopback(config.server.host):
        raise ConfigError(
            f"other machines can reach {config.server.host}, so the service needs a key in the configuration: one that "
            "is made at each start, as 'shepherd serve' does, would be in the log only",
            key="server.api_keys",
        )
    _address(config)
    here = find_way(Path(sys.prefix), Path(__file__).parents[2])
    if here.way == "temporary":
        raise ConfigError(
            f"this shepherd is in a temporary folder ({here.folder}) that may be removed; install it first, with "
            "'uv tool install' or pipx"
        )


def _refuse_what_no_file_holds(service: Service) -> None:
    """Raises: `ConfigError`."""
    for word in (*service.command, service.folder, *service.environment.values()):
        if _UNFIT(word):
            raise ConfigError(
                f"{clean(word)!a} has a line break, another control character or a byte that is not UTF-8, which the "
                "file of a service cannot hold; rename it"
            )
    if service.folder.endswith(("\\", " ")):  # systemd would go on in the next line, or leave the space out
        raise ConfigError(f"the name of the folder {service.folder!r} ends in a backslash or a space; rename it")


def _address(config: Config) -> server_client.Address:
    """Raises: `UsageError` for a port of 0."""
    return server_client.find_address(config, None, (), is_running=True)


def _health(address: server_client.Address) -> str:
    try:
        with server_client.connect(address, HEALTH_S) as client:
            told = server_client.json_object(client.get("/health"))
    except httpx2.TransportError as error:
        return server_client.transport_error(error, address.url, HEALTH_S).message
    why = f": {told['detail']}" if told.get("detail") else ""
    return clean(f"{told.get('status', 'this is no Shepherd server')}{why}")


def _program() -> list[str]:
    script = Path(sys.executable).with_name("shepherd")
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "shepherd"]


def _file(manager: Manager) -> Path:
    return manager.file(Path.home(), os.environ)


def _installed(manager: Manager) -> Path:
    """Raises: `ConfigError` where no service is installed."""
    if not (file := _file(manager)).is_file():
        raise ConfigError(f"no service is installed ({file}); 'shepherd service install' makes one")
    return file


def _text_of(file: Path) -> str:
    """Raises: `ConfigError`."""
    try:
        return read_within(file).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _stop_s(file: Path) -> int:
    found = re.search(r"TimeoutStopSec=(\d{1,6})$|ExitTimeOut</key>\s*<integer>(\d{1,6})", _text_of(file), re.MULTILINE)
    return int(found[1] or found[2]) if found else 2 * SAVING_S


def _may_replace(file: Path) -> bool:
    return render.is_terminal(sys.stdin) and click.confirm(f"{file} exists and is different. Replace it?", err=True)


def _log() -> Path:
    return Path(platformdirs.user_log_dir("shepherd")) / "service.log"


def _is_lingering() -> bool | None:
    """Whether the user's services run without a login; None = unknown."""
    if shutil.which("loginctl") is None:
        return None
    told = _run(["loginctl", "show-user", _user(), "--property=Linger"], ANSWER_S).stdout.strip()
    return {"Linger=yes": True, "Linger=no": False}.get(told)


def _user() -> str:
    return getpass.getuser()
