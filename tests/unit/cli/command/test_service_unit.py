"""The files of a service hold any command, and only what the user's own manager can do."""

from __future__ import annotations

import plistlib
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.cli.command.service import MANAGERS, why_not
from shepherd.cli.command.service_unit import (
    MARK,
    Service,
    command_of_agent,
    command_of_unit,
    launchd_agent,
    systemd_unit,
)

SERVICE = Service(
    ["/opt/shepherd/bin/shepherd", "serve", "--port", "8080", "--system", 'Say "$HOME" 100% \\ \u00e9'],
    "/home/ann/my models",
    65,
    "/home/ann/service.log",
    {"PATH": "/usr/bin:/bin", "HF_HOME": "/data/50% full"},
)


def test_the_unit_is_what_a_person_can_read() -> None:
    assert systemd_unit(SERVICE) == (
        f"# {MARK}. To change it: 'shepherd service install' again, or 'systemctl --user edit shepherd'.\n"
        """[Unit]
Description=Shepherd: language models over HTTP
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
WorkingDirectory=/home/ann/my models
ExecStart=/opt/shepherd/bin/shepherd serve --port 8080 --system "Say \\"$$HOME\\" 100%% \\\\ \u00e9"
Environment=PATH=/usr/bin:/bin
Environment="HF_HOME=/data/50%% full"
Restart=on-failure
RestartSec=5
# SIGTERM goes to the server alone, which ends its models after it has saved their conversations.
KillMode=mixed
TimeoutStopSec=65
# A model that is killed for its memory is started again by the server.
OOMPolicy=continue
UMask=0077
LimitNOFILE=65536
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
    )


def test_the_agent_has_the_same_and_restarts_only_after_a_failure() -> None:
    text = launchd_agent(SERVICE)
    assert MARK in text
    agent = plistlib.loads(text.encode())
    assert agent["ProgramArguments"] == SERVICE.command
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert (agent["ExitTimeOut"], agent["Umask"], agent["RunAtLoad"]) == (65, 0o77, True)
    assert agent["StandardErrorPath"] == "/home/ann/service.log"


WORDS = st.lists(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ")), max_size=4)


@settings(max_examples=examples(100), deadline=None)
@given(words=WORDS, folder=st.text(st.characters(exclude_categories=("C", "Z")), min_size=1))
def test_any_command_comes_back_from_the_file(words: list[str], folder: str) -> None:
    service = Service(["/usr/bin/shepherd", "serve", *words], f"/{folder}", 65)
    assert command_of_unit(systemd_unit(service)) == (f"/{folder}", service.command)
    assert command_of_agent(launchd_agent(service)) == (f"/{folder}", service.command)
    line = next(line for line in systemd_unit(service).splitlines() if line.startswith("ExecStart="))
    assert "$" not in line.replace("$$", "")
    program = Service([f"/{folder}/shepherd", "serve"], "/", 65)
    assert command_of_unit(systemd_unit(program)) == ("/", program.command)
    assert "%" not in line.replace("%%", "")
    assert len(shlex.split(line)) == len(service.command)


@pytest.mark.parametrize("text", ["", "[Service]\nExecStart=/bin/true\n", "ExecStart='", "<plist>", "<plist/>", "\0"])
def test_a_file_of_others_is_an_error_that_can_be_caught(text: str) -> None:
    with pytest.raises(ValueError):
        command_of_unit(text)
    with pytest.raises(ValueError):
        command_of_agent(text)


LINUX, MAC = MANAGERS["linux"], MANAGERS["darwin"]


@pytest.mark.parametrize(
    ("env", "files", "said"),
    [
        ({}, [".dockerenv"], "a container has no service manager of its own"),
        ({}, ["run/.containerenv"], "let its command be 'shepherd serve'"),
        ({"container": "podman"}, ["run/systemd/system/x"], "a container has no service manager"),
        ({"WSL_DISTRO_NAME": "Ubuntu"}, [], "write [boot] and systemd=true into /etc/wsl.conf"),
        ({}, [], "this system does not run systemd"),
        ({}, ["run/systemd/system/x"], "sudo loginctl enable-linger USER"),
        ({"XDG_RUNTIME_DIR": "/run/user/5"}, ["run/systemd/system/x"], "does not answer for this user (No medium)"),
        ({"WSL_DISTRO_NAME": "Ubuntu"}, ["run/systemd/system/x"], "this login has no session of systemd"),
    ],
)
def test_where_no_manager_answers_the_reason_is_named(
    env: dict[str, str], files: list[str], said: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert said in why_not(LINUX, env, tmp_path, "Failed to connect to bus:\nNo medium\n\n")


def test_a_mac_without_a_session_says_how_to_get_one(tmp_path: Path) -> None:
    assert "log in at the screen of this Mac once (Bad domain)" in why_not(MAC, {}, tmp_path, "Bad domain\n")
