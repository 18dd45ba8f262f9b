"""The files of a service: a unit of systemd, an agent of launchd; and the command that one of them starts.

Pure: not here what is done with them (`service.py`). Of systemd's protections, the unit has those that a user's own
manager always can give. The ones that hide or lock folders (ProtectSystem, PrivateTmp) need user namespaces, which some
systems refuse to users, and a server that uses one of them does not start there; docs/service.md has them to add.
"""

from __future__ import annotations

import plistlib
import re
import shlex
from collections.abc import Mapping, Sequence
from xml.parsers.expat import ExpatError

from shepherd.core.dataclasses import dataclass, field

NAME = "shepherd.service"
LABEL = "shepherd.serve"
MARK = "Made by 'shepherd service install'"
"""In the first lines of each file: other files are not ours to remove."""
N_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Service:
    command: Sequence[str]
    folder: str
    """In which it starts: its `shepherd.toml` counts, if it is trusted, and paths of the command are relative to it."""
    stop_s: int
    """The time from SIGTERM to SIGKILL."""
    log: str = ""
    """Where launchd writes what it prints; systemd has a journal."""
    environment: Mapping[str, str] = field(default_factory=dict)


def systemd_unit(service: Service) -> str:
    program, *words = map(_quoted, service.command)
    # Of the program itself, systemd leaves a $ as it is.
    command = " ".join([program, *(word.replace("$", "$$") for word in words)])
    variables = "".join(f"Environment={_quoted(f'{name}={text}')}\n" for name, text in service.environment.items())
    return f"""\
# {MARK}. To change it: 'shepherd service install' again, or 'systemctl --user edit shepherd'.
[Unit]
Description=Shepherd: language models over HTTP
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
WorkingDirectory={service.folder.replace("%", "%%")}
ExecStart={command}
{variables}Restart=on-failure
RestartSec=5
# SIGTERM goes to the server alone, which ends its models after it has saved their conversations.
KillMode=mixed
TimeoutStopSec={service.stop_s}
# A model that is killed for its memory is started again by the server.
OOMPolicy=continue
UMask=0077
LimitNOFILE={N_FILES}
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


def launchd_agent(service: Service) -> str:
    agent = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "WorkingDirectory": service.folder,
        "EnvironmentVariables": dict(service.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": service.stop_s,
        "ProcessType": "Interactive",  # else it gets little processor time
        "StandardOutPath": service.log,
        "StandardErrorPath": service.log,
        "Umask": 0o077,
        "SoftResourceLimits": {"NumberOfFiles": N_FILES, "Core": 0},
    }
    text = plistlib.dumps(agent, sort_keys=False).decode()
    return text.replace("<plist", f"<!-- {MARK} -->\n<plist", 1)


def command_of_unit(text: str) -> tuple[str, list[str]]:
    """The folder and the command of a unit as `systemd_unit` writes it. Raises: `ValueError`."""
    found = dict(re.findall(r"^(WorkingDirectory|ExecStart)=(.*)$", text, re.MULTILINE))
    program, *words = [word.replace("%%", "%") for word in shlex.split(found.get("ExecStart", ""))] or [""]
    words = [program, *(word.replace("$$", "$") for word in words)]
    return _checked(found.get("WorkingDirectory", "").replace("%%", "%"), words)


def command_of_agent(text: str) -> tuple[str, list[str]]:
    """The same of an agent. Raises: `ValueError`."""
    try:
        agent = plistlib.loads(text.encode())
    except (ExpatError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError("no property list") from error
    words = agent.get("ProgramArguments") if isinstance(agent, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("no ProgramArguments")
    return _checked(str(agent.get("WorkingDirectory", "")), words)


def _checked(folder: str, words: list[str]) -> tuple[str, list[str]]:
    if not folder or "serve" not in words:
        raise ValueError("no folder, or no command 'serve'")
    return folder, words


def _quoted(text: str) -> str:
    if re.fullmatch(r"[\w@+=:,./-]+", text, re.ASCII):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
