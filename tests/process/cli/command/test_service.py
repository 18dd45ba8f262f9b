"""`shepherd service` with managers that start the real server, and with systemd's own reader of units."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx2
import pytest
from tests import command_line
from tests.fakes import service_manager
from tests.in_time import PATIENCE_S, becomes_true
from tests.proven import proven
from tests.started import serving

from shepherd.cli.command.service_unit import Service, systemd_unit

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(sys.platform != "linux", reason="the whole of 127.0.0.0/8 is this machine only here"),
]
MAC = """
import sys, psutil, platformdirs, shepherd.cli.command.service, shepherd.config, shepherd.cli.main
sys.platform = "darwin"
shepherd.cli.main.main()
"""
"""`shepherd` as on a Mac, as far as it looks at `sys.platform` when it runs."""
Said = tuple[int, str]


class Machine:
    """A home with managers of services, and the commands that run there."""

    def __init__(self, home: Path, system: str) -> None:
        self.home, self.system = home, system
        self.folder = home / "my work"
        self.folder.mkdir()
        (self.folder / "shepherd.toml").write_text('[models.lamb]\npath = "embedded"\n[server]\ngrace_s = 1.5\n')
        self.bin = home / "bin"
        service_manager.install(self.bin)
        proven(home / ".cache" / "shepherd")
        self.address = "127.77.3.1" if system == "linux" else "127.77.3.2"

    @property
    def file(self) -> Path:
        if self.system == "linux":
            return self.home / ".config" / "systemd" / "user" / "shepherd.service"
        return self.home / "Library" / "LaunchAgents" / "shepherd.serve.plist"

    @property
    def asked(self) -> list[str]:
        return list(self.state.get("said", []))

    @property
    def state(self) -> service_manager.State:
        return service_manager.State(self.bin / "state.json")

    def run(self, *words: str, **more: str) -> Said:
        """The exit status of `shepherd service WORDS`, and all that it prints."""
        if self.system != "linux":
            return self.run_apart(*words, **more)
        done = command_line.run(
            "service", *words, env=self.environment(more), cwd=self.folder, timeout_s=3 * PATIENCE_S
        )
        return done.returncode, done.stderr + done.stdout

    def run_apart(self, *words: str, **more: str) -> Said:
        """`run`, in a process of its own."""
        program = ["-m", "shepherd"] if self.system == "linux" else ["-c", MAC]
        done = subprocess.run(
            [sys.executable, *program, "service", *words], cwd=self.folder, env=self.environment(more),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            timeout=3 * PATIENCE_S,
        )  # fmt: skip
        return done.returncode, done.stdout

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        dropped = ("XDG_", "SHEPHERD_", "SUDO_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
        return kept | {"HOME": str(self.home), "PATH": f"{self.bin}:{kept['PATH']}", "COLUMNS": "200", **more}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[[str], Machine]]:
    made: list[Machine] = []

    def make(system: str = "linux") -> Machine:
        made.append(Machine(tmp_path, system))
        return made[-1]

    yield make
    for each in made:
        service_manager.end_program(each.state, 1.0)


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_service_lives_from_its_installation_to_its_end(system: str, machine: Callable[[str], Machine]) -> None:
    here = machine(system)
    env = {"SHEPHERD_TRUST": "1"}
    status, told = here.run_apart("install", "--port", "8000", "--", "--host", here.address, **env)
    assert status == 0, told
    url = f"http://{here.address}:8000"
    assert f"Address: {url}" in told
    assert "the service does not get SHEPHERD_TRUST of this shell" in told
    first = here.state["pid"]
    assert becomes_true(lambda: httpx2.get(f"{url}/health", timeout=PATIENCE_S).status_code == 200)

    status, told = here.run("status", "--json", **env)
    facts = json.loads(told[told.index("{") :])
    assert (status, facts["running"], facts["address"], facts["health"]) == (0, True, url, "ok")
    assert facts["process"] == str(first)

    last = 0, f"Listening on: {url}\n"
    assert becomes_true(lambda: here.run("logs", "-n", "1", **env) == last)
    assert here.run("restart", **env)[0] == 0
    assert here.state["pid"] != first
    assert here.run("stop", **env)[0] == 0
    status, told = here.run("status", **env)
    assert status == 3
    assert f"no server answers at {url}" in told
    assert here.run("start", **env)[0] == 0
    assert service_manager.is_alive(here.state["pid"])
    status, told = here.run("uninstall", **env)
    assert (status, here.file.exists()) == (0, False), told
    assert not service_manager.is_alive(here.state.get("pid", 0))
    assert "result" not in here.state  # each end was in order
    assert here.run("status", **env)[0] == 4
    status, told = here.run("logs", **env)
    assert (status, "no service is installed" in told) == (1, True)


def test_a_file_of_others_is_neither_replaced_nor_removed_without_a_word(machine: Callable[[str], Machine]) -> None:
    here = machine("linux")
    here.file.parent.mkdir(parents=True)
    here.file.write_text("[Service]\nExecStart=/bin/true\n")
    words = ("install", "--", "--host", here.address)
    status, told = here.run(*words)
    assert (status, "exists and is different; --force replaces it" in told) == (1, True)
    status, told = here.run("uninstall")
    assert (status, "was not made by 'shepherd service install'; --force removes it" in told) == (1, True)
    assert here.file.read_text() == "[Service]\nExecStart=/bin/true\n"
    status, told = here.run("status")
    assert (status, "no folder, or no command 'serve'" in told) == (3, True)
    assert here.run(words[0], "--force", *words[1:])[0] == 0
    assert "ExecStart=" + str(Path(sys.executable).with_name("shepherd")) in here.file.read_text()


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--prot", "1"], {}, "No such option '--prot'"),
        (["--port", "0"], {}, "The configured port is 0"),
        (["--host", "0.0.0.0"], {}, "server.api_keys: other machines can reach 0.0.0.0, so the service needs a key"),
        (["--api-key", "s"], {}, "server.api_keys: other users can read the command of a service"),
        (["--api-key=s"], {}, "server.api_keys: other users can read the command of a service"),
        ([], {"SHEPHERD_API_KEY": "s"}, "the service does not get SHEPHERD_API_KEY; write the key"),
        ([], {"SUDO_USER": "ann"}, "run this without sudo"),
        (["--system", "two\nlines"], {}, "has a line break, another control character"),
        (["--system", os.fsdecode(b"\xff")], {}, "or a byte that is not UTF-8"),
        (["--tls-cert", "server.pem"], {}, "needs server.tls_key as well"),
    ],
)
def test_what_cannot_be_a_service_is_a_sentence_and_changes_nothing(
    words: list[str], env: dict[str, str], said: str, machine: Callable[[str], Machine]
) -> None:
    here = machine("linux")
    status, told = here.run("install", "--", *words, **env)
    assert status in (1, 2)
    assert said in told
    assert not here.file.exists()
    assert here.asked == []


def test_a_folder_that_a_unit_would_read_as_another_one_is_refused(machine: Callable[[str], Machine]) -> None:
    here = machine("linux")
    here.folder = here.folder.rename(here.home / "my work\\")
    status, told = here.run("install")
    assert (status, "ends in a backslash or a space; rename it" in told) == (1, True)
    assert not here.file.exists()


def test_a_server_that_cannot_start_is_told_with_the_place_of_its_log(machine: Callable[[str], Machine]) -> None:
    here = machine("linux")
    with socket.create_server((here.address, 8000)):
        status, told = here.run("install", "--", "--host", here.address)
    assert status == 1
    assert "failed because the control process exited with error code" in told
    assert "'shepherd service logs' shows what the server said" in told


def test_without_a_manager_the_reason_is_named_and_the_file_can_still_be_seen(tmp_path: Path) -> None:
    here = Machine(tmp_path, "linux")
    for program in here.bin.iterdir():
        program.unlink()
    system = here.bin / "systemctl"
    system.write_text("#!/bin/sh\necho Failed to connect to bus: No medium found >&2\nexit 1\n")
    system.chmod(0o755)
    status, told = here.run("install")
    assert (status, len(told.strip().splitlines())) == (1, 1)
    assert not here.file.exists()
    status, told = here.run("install", "--print")
    assert status == 0
    assert "Type=notify" in told


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    program = shutil.which("true") or ""
    folder = tmp_path / "50% of it"
    folder.mkdir()
    other = folder / "a $HOME of programs"  # of the program itself, systemd takes a $ as it is
    other.symlink_to(program)
    service = Service(
        [str(other), "serve", "--system", 'say "$HOME" \\ 100%'], str(folder), 65, "", {"PATH": "/a b:/c"}
    )

    def verify(text: str) -> str:
        unit = tmp_path / "shepherd.service"
        unit.write_text(text)
        command = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=False)
        return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "shepherd.service" in line)

    assert verify(systemd_unit(service)) == ""
    assert "ExecSart" in verify(systemd_unit(service).replace("ExecStart", "ExecSart"))


def test_systemd_is_told_when_a_server_listens_and_when_it_stops(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text('[models.lamb]\npath = "embedded"\n')
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(PATIENCE_S)
        with serving(tmp_path, before=["env", f"NOTIFY_SOCKET={address}"]) as (process, url):
            assert listener.recv(4096) == b"READY=1"
            assert listener.recv(4096).decode() == f"STATUS=lamb at {url}"
            process.send_signal(signal.SIGTERM)
            assert listener.recv(4096) == b"STOPPING=1"
            assert process.wait(PATIENCE_S) == 0
