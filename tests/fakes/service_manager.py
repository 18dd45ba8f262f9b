"""systemd's and launchd's commands, as much of them as a service needs: they start and stop the real program.

    service_manager.install(bin)   ─▶ bin/systemctl, journalctl, loginctl, launchctl: put `bin` first into PATH

Strict: a command line that is not known, a unit that has changed since the last daemon-reload, an agent that is loaded
twice, and an exit of the program before it is ready are errors, as they are there. The state is a file beside the
programs.
"""

from __future__ import annotations

import json
import os
import plistlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

UNIT, LABEL = "shepherd.service", "shepherd.serve"
READY_S = 120.0


def install(folder: Path) -> None:
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {name} "$@"\n')
        program.chmod(0o755)


class Failure(Exception):
    """Said on standard error, with the status 1."""


class State(dict[str, Any]):
    """A dictionary in a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(json.loads(file.read_text()) if file.exists() else {})
        self.file = file

    def save(self) -> None:
        self.file.write_text(json.dumps(self))


def log_of(state: State) -> str:
    """The journal of systemd's unit."""
    return str(state.file.with_name("log"))


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def run_program(state: State, command: list[str], folder: str, variables: dict[str, str], log_file: str) -> None:
    """Start it with nothing of our environment but what a manager has; wait until it says READY=1."""
    own = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    address = state.file.with_name("notify")
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, Path(log_file).open("ab") as log:
        listener.bind(str(address))
        listener.settimeout(0.05)
        process = subprocess.Popen(
            command, cwd=folder, env={**own, **variables, "NOTIFY_SOCKET": str(address)}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        state["pid"] = process.pid
        state.save()
        until = time.monotonic() + READY_S
        while True:
            try:
                if b"READY=1" in listener.recv(4096):
                    break
            except TimeoutError:
                if process.poll() is not None or time.monotonic() > until:
                    raise Failure(
                        f"Job for {UNIT} failed because the control process exited with error code."
                    ) from None


def end_program(state: State, stop_s: float) -> None:
    pid = state.pop("pid", 0)
    if not is_alive(pid):
        return
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + stop_s
    while is_alive(pid):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            state["result"] = "timeout"
            break
        time.sleep(0.02)
    state.save()


# -- systemd ----------------------------------------------------------------------------------------------------------


def systemctl(state: State, words: list[str]) -> None:
    file = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user" / UNIT
    on_disk = file.read_text() if file.exists() else None

    def checked() -> dict[str, list[str]]:
        text = state.get("unit")
        if text is None:
            raise Failure(f"Failed to start {UNIT}: Unit {UNIT} not found.")
        if text != on_disk:
            raise Failure("The unit file changed on disk. Run 'systemctl --user daemon-reload'.")
        found: dict[str, list[str]] = {}
        for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
            found.setdefault(name, []).append(value)
        return found

    def stop() -> None:
        end_program(state, float(checked()["TimeoutStopSec"][0]))

    def start() -> None:
        unit = checked()
        if unit["Type"] != ["notify"] or is_alive(state.get("pid", 0)):
            return
        command = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(unit["ExecStart"][0])]
        named = (shlex.split(each)[0].replace("%%", "%").split("=", 1) for each in unit.get("Environment", []))
        run_program(state, command, unit["WorkingDirectory"][0].replace("%%", "%"), dict(named), log_of(state))

    def show() -> None:
        is_running = is_alive(state.get("pid", 0))
        print(f"NRestarts=0\nMainPID={state['pid'] if is_running else 0}\nResult={state.get('result', 'success')}")
        print("ActiveState=active\nSubState=running" if is_running else "ActiveState=inactive\nSubState=dead")

    def reload() -> None:
        state["unit"] = on_disk

    def enable() -> None:
        if on_disk is None:
            raise Failure(f"Failed to enable unit: Unit file {UNIT} does not exist.")
        state["enabled"] = True

    def disable() -> None:
        state["enabled"] = False
        stop()

    def restart() -> None:
        stop()
        start()

    known: dict[str, Callable[[], object]] = {
        "show-environment": lambda: None,
        "daemon-reload": reload,
        f"enable {UNIT}": enable,
        f"disable --now {UNIT}": disable,
        f"reset-failed {UNIT}": checked,
        f"start {UNIT}": start,
        f"stop {UNIT}": stop,
        f"restart {UNIT}": restart,
        f"show {UNIT} --property=ActiveState,SubState,MainPID,NRestarts,Result,StatusText": show,
    }
    if words[:1] != ["--user"]:
        raise Failure("System has not been booted with systemd as init system.")
    known[" ".join(words[1:])]()


# -- launchd ----------------------------------------------------------------------------------------------------------


def launchctl(state: State, words: list[str]) -> None:
    domain = f"gui/{os.getuid()}"
    target, file = f"{domain}/{LABEL}", Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    def loaded() -> dict[str, Any]:
        if "agent" not in state:
            raise Failure(f'Could not find service "{LABEL}" in domain for user gui: {os.getuid()}')
        return dict(state["agent"])

    def start() -> None:
        agent = loaded()
        if not is_alive(state.get("pid", 0)):
            places = agent["WorkingDirectory"], agent["EnvironmentVariables"], agent["StandardErrorPath"]
            run_program(state, agent["ProgramArguments"], *places)

    def bootstrap() -> None:
        if "agent" in state:
            raise Failure("Bootstrap failed: 5: Input/output error")
        agent = plistlib.loads(file.read_bytes())
        assert agent["Label"] == LABEL
        assert Path(agent["StandardOutPath"]).parent.is_dir()
        state["agent"] = agent
        start()

    def bootout() -> None:
        end_program(state, loaded()["ExitTimeOut"])
        del state["agent"]

    def show() -> None:
        loaded()
        is_running = is_alive(state.get("pid", 0))
        state_line = f"\tstate = running\n\tpid = {state['pid']}" if is_running else "\tstate = not running"
        print(f"{target} = {{\n{state_line}\n\tendpoints = {{\n\t\tstate = active\n\t}}\n}}")

    known: dict[str, Callable[[], object]] = {
        f"print {domain}": lambda: None,
        f"print {target}": show,
        f"enable {target}": lambda: None,
        f"bootstrap {domain} {file}": bootstrap,
        f"bootout {target}": bootout,
        f"kickstart {target}": start,
    }
    known[" ".join(words)]()


def journalctl(state: State, words: list[str]) -> None:
    *words, number = words
    if words != ["--user-unit", UNIT, "--no-pager", "--lines"]:
        raise KeyError(words)
    print("\n".join(Path(log_of(state)).read_text().splitlines()[-int(number) :]))


def loginctl(state: State, words: list[str]) -> None:
    assert words[0] == "show-user"
    assert words[2:] == ["--property=Linger"]
    print("Linger=no")


PROGRAMS: dict[str, Callable[[State, list[str]], None]] = {
    "systemctl": systemctl, "journalctl": journalctl, "loginctl": loginctl, "launchctl": launchctl
}  # fmt: skip


def main() -> int:
    name, *words = sys.argv[1:]
    bin_folder = next(Path(each) for each in os.environ["PATH"].split(":") if (Path(each) / name).exists())
    state = State(bin_folder / "state.json")
    state["said"] = [*state.get("said", []), " ".join([name, *words])]
    try:
        PROGRAMS[name](state, words)
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    except KeyError:
        print(f"Unknown command: {name} {' '.join(words)}", file=sys.stderr)
        return 2
    finally:
        state.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
