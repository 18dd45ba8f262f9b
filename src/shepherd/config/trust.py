"""What a file of the working folder may not do before the user trusts it: the table of settings, and the trusted files.

    shepherd.toml ─▶ risks (settings that start a program or widen a permission) ─none─▶ read
                       └─▶ trusted (path, content)? ─▶ consent of the caller ─▶ read, or left out, or refused

A folder can be a stranger's: a clone, a download. The user's own file, a file that `--config` or SHEPHERD_CONFIG names,
variables and flags are the user's words and need no trust. Not here: the question in the terminal (`cli/trust.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import platformdirs

from shepherd.backends import registered
from shepherd.backends.cloud.provider import find_model
from shepherd.config.layers import Setting
from shepherd.config.schema import LOCAL_BACKENDS, PROVIDER_TYPES
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass
from shepherd.process.files import find_object, keep_json, writing

# -- which settings need trust ----------------------------------------------------------------------------------------

_PROMPTS, _CLIENTS = "may send prompts to a provider", "decides which clients the server lets in"
_WORKERS = "sends parts of a model, and what they compute, to other machines"
_FILES, _MEMORY = "writes requests or conversations to files", "gives requests a memory"

NEEDS_TRUST: Mapping[str, str] = {
    "mcp_servers": "starts a program, or connects to a server",
    "tools.files": "runs Python code",
    "tools.enabled": "lets tools run without a question where Shepherd cannot ask",
    "tools.allow": "lets tools run without a question",
    "tools.ask": "replaces the rules of what is asked",
    "tools.roots": "opens folders to file tools",
    "tools.http.allow_*": "opens hosts to HTTP tools",
    "tools.command.keep_env": "shows secrets of the environment to programs",
    "tools.command.allow_sudo": "lets programs become root, and look into other processes",
    "tools.read_only": "lifts a limit of the tools",
    "tools.dry_run": "lifts a limit of the tools",
    "backend": _PROMPTS,
    "model": _PROMPTS,
    "aliases.*": _PROMPTS,
    "providers.*": _PROMPTS,
    "network.*": "decides by which way prompts leave",
    "api_keys.*": _PROMPTS,
    "routes.provider": _PROMPTS,
    "routes.fallback": _PROMPTS,
    "routes.user": _MEMORY,
    "routes.archive": _MEMORY,
    "routes.recall": _MEMORY,
    "system": "is in every prompt",
    "models.*.chat_template": "writes every prompt",
    "models.*.rpc_servers": _WORKERS,
    "rpc_servers": _WORKERS,
    "models.*.tensorrt.python": "starts a program",
    "tensorrt.python": "starts a program",
    "memory.mmap_size": "",
    "memory.*": "decides which memory is used, and what it keeps",
    "kv.disk": _FILES,
    "kv.folder": _FILES,
    **dict.fromkeys(("chat.instructions", "chat.notify", "chat.notify_after_s"), ""),
    "chat.*": "decides where conversations are saved, and how many",
    "images.hosts": "lets clients have addresses called",
    "server.enabled": "starts a server",
    "server.host": _CLIENTS,
    "server.tls_*": "decides by which certificate clients know the server",
    "server.api_keys": _CLIENTS,
    "server.keys": _CLIENTS,
    "server.origins": _CLIENTS,
    "server.allow_hosts": _CLIENTS,
    "server.use_tools": "gives clients the tools",
    "server.manage_models": "lets clients pull and delete models",
    "server.pull_hosts": "lets clients have addresses called",
    "server.shared_prefix": "lets users of the server guess the prompts of others",
    "server.debug": _FILES,
    "server.debug_dir": _FILES,
    "server.record_dir": _FILES,
    "server.responses_file": _FILES,
}
"""Glob over keys -> what the setting does; the first match counts. An empty text: nothing that needs trust."""
HARMLESS = (
    *(
        "model_path",
        "models.*",
        "caches.*",
        "sampling.*",
        "context_size",
        "window",
        "overflow",
        "speculate",
        "gpu_layers",
    ),
    *("threads", "batch", "tensorrt.*"),
    *("flash_attn", "isolate", "cache_type_?", "thinking", "show_thinking"),
    *("max_tokens", "strict_max_tokens", "reserve"),
    *("memory_budget", "kv.*", "routes.*", "tools.disabled", "tools.deny", "tools.max_*", "tools.timeout_s"),
    *("tools.result_tokens", "tools.http.max_bytes", "tools.command.max_bytes", "server.port", "server.max_body_bytes"),
    *("server.concurrent", "server.per_client", "server.responses_bytes", "server.grace_s", "server.log_json"),
    *(
        "images.max_*",
        "audio.max_*",
        "server.debug_keep",
        "server.debug_bytes",
        "server.client_tools",
        "server.disabled",
        "server.page",
    ),
)
"""Globs over the other keys. A key in neither table needs trust."""
_NARROW: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools.files", "tools.enabled", "tools.allow", "tools.http.allow_hosts"), ((),)),
    **dict.fromkeys(("tools.command.keep_env", "server.origins", "server.allow_hosts", "images.hosts"), ((),)),
    "server.pull_hosts": ((),),
    **dict.fromkeys(
        ("tools.http.allow_private", "tools.command.allow_sudo", "memory.enable_archival", "memory.recall"), (False,)
    ),
    **dict.fromkeys(("kv.disk", "chat.save", "server.enabled", "server.use_tools", "server.debug"), (False,)),
    "server.manage_models": (False,),
    **dict.fromkeys(("tools.read_only", "tools.dry_run"), (True,)),
    "routes.archive": (False, None),
    "routes.recall": (False, None),
    "mcp_servers": ([],),
    **dict.fromkeys(("models.NAME.rpc_servers", "rpc_servers"), ((),)),
    "server.shared_prefix": ("none",),
    "backend": LOCAL_BACKENDS,
    "server.host": ("127.0.0.1", "localhost", "::1"),
}
"""Values that start nothing and only make less possible."""
_SECRET = re.compile(r"api_keys?(\.|$)")
UNKNOWN = "changes what Shepherd does"


@dataclass(frozen=True, slots=True)
class Risk:
    """A setting that needs trust."""

    key: str
    """Empty for a file that is no configuration."""
    effect: str
    """What it does, in the indicative."""
    value: str
    """For people; without secrets. It may contain control characters."""


def risks_of(settings: Mapping[tuple[str, ...], Setting], providers: Collection[str] = ()) -> tuple[Risk, ...]:
    """The settings of a file that need trust, programs first. `providers`: those, and aliases, of other files."""
    ranks = {effect: rank for rank, effect in enumerate(NEEDS_TRUST.values())}
    elsewhere = {each.casefold() for each in (*PROVIDER_TYPES, *registered.names(), *providers)}
    found = [
        Risk(label, effect, shown)
        for path, setting in settings.items()
        for key, label, value, shown in _entries(path, setting)
        if (effect := _effect(key, value, elsewhere))
    ]
    return tuple(sorted(found, key=lambda risk: ranks.get(risk.effect, -1)))


def _effect(key: str, value: Any, elsewhere: Set[str]) -> str:
    """What a setting does that needs trust; empty = nothing. `elsewhere`: names of providers, in small letters."""
    words = str(value).casefold()
    is_elsewhere = not elsewhere.isdisjoint((words, words.partition("/")[0])) or find_model(str(value)) is not None
    is_here = key in ("model", "aliases.NAME") and not is_elsewhere
    if is_here or value in _NARROW.get(key, ()):
        return ""
    listed = next((effect for glob, effect in NEEDS_TRUST.items() if fnmatchcase(key, glob)), None)
    harmless = listed is None and any(fnmatchcase(key, glob) for glob in HARMLESS)
    return "" if harmless else UNKNOWN if listed is None else listed


def _entries(path: tuple[str, ...], setting: Setting) -> Iterator[tuple[str, str, Any, str]]:
    """Key, label, value and shown value of a setting; of a list of tables, those of each row."""
    value, label = setting.value, setting.key
    if path == ("routes",):
        for index, row in enumerate(value or ()):
            for name, each in row.items():
                yield f"routes.{name}", f"{label}[{index}].{name}", each, _shown(each)
    elif path == ("mcp_servers",) and value:
        for index, row in enumerate(value):
            starts = row.get("url") or shlex.join((row.get("command") or "", *row.get("args", ())))
            where = f" in {row['cwd']}" if row.get("cwd") else ""
            own = [name for name in ("client_secret", "client_key") if row.get(name)]
            names = [*row.get("env", ()), *row.get("headers", ()), *own]
            sets = f", with {', '.join(names)}" if names else ""
            shown = f"{row.get('name', '')}: {_shown(starts)}{where}{sets}"
            yield "mcp_servers", f"{label}[{index}]", row, shown
    elif path == ("server", "keys"):
        yield "server.keys", label, value, ", ".join(str(row.get("name")) for row in value or ()) or "none"
    else:
        named = path[0] in {"models", "caches", "providers", "aliases"}
        key = ".".join((path[0], "NAME", *path[2:]) if named else path)
        yield key, label, value, "(a secret)" if _SECRET.search(key) else "" if value is None else _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return re.sub(r"(?<=://)[^/@]*@", "***@", value)
    return json.dumps(value, ensure_ascii=False, default=str)


# -- files, and the user's word about them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file of the working folder that needs trust."""

    path: Path
    """Absolute, with its links followed."""
    digest: str
    """Of its content; another content needs new trust."""
    risks: tuple[Risk, ...]

    def refusal(self) -> ConfigError:
        """The error where the user does not trust it, with the command that trusts it."""
        return ConfigError(
            f"is not trusted, and it {self.does}; check it and trust it with 'shepherd trust "
            f"{shlex.quote(str(self.path))}', or leave it out with SHEPHERD_TRUST=0",
            file=str(self.path),
        )

    @property
    def left_out(self) -> str:
        """The warning where it does not count."""
        why = f"left out, because it is not trusted and {self.does}"
        return f"{self.path}: {why}; check it, then trust it with 'shepherd trust'"

    @property
    def does(self) -> str:
        keys = dict.fromkeys(re.sub(r"\[\d+\]", "", risk.key) for risk in self.risks)
        return f"sets {', '.join(keys)}" if all(keys) else self.risks[0].effect.partition(":")[0]


Consent = Callable[[FolderFile], bool]
"""Whether a file counts; False = it is left out. Raises: `ConfigError` where that is no answer."""


def refuse(file: FolderFile) -> bool:
    """The consent that a program without a user gives: none. Raises: `ConfigError`."""
    raise file.refusal()


def digest_of(content: bytes, files: Collection[str]) -> str:
    """The digest of a configuration, and of the Python `files` that it runs."""
    total = hashlib.sha256(content)
    for file in files:
        total.update(b"\0" + os.fsencode(file) + b"\0")
        try:
            total.update(_digest(Path(file)))
        except OSError:  # it cannot run, either
            total.update(b"unreadable")
    return total.hexdigest()


def _digest(file: Path) -> bytes:
    """Of the content; of no content where there is no file. Raises: `OSError`."""
    if not file.is_file():
        return hashlib.sha256().digest()
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def memory_file(path: Path) -> FolderFile:
    """A memory in the working folder. Its content changes with each message: the digest identifies the file itself."""
    found = path.stat()
    effect = (
        "would become your memory: what it quotes and instructs is in your prompts, and what you write goes into it"
    )
    return FolderFile(path.resolve(), f"{found.st_dev}:{found.st_ino}", (Risk("", effect, ""),))


class TrustStore:
    """The file of trusted files. Several processes may use it; of two changes at the same moment one may be lost."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls) -> TrustStore:
        """The one in the user's state folder."""
        return cls(Path(platformdirs.user_state_dir("shepherd")) / "trusted.json")

    def entries(self) -> dict[str, str]:
        """The digests by path; none if the file cannot be read, so that everything is asked again."""
        found = (find_object(self.path) or {}).get("trusted")
        return {path: str(digest) for path, digest in found.items()} if isinstance(found, dict) else {}

    def __contains__(self, file: FolderFile) -> bool:
        return self.entries().get(str(file.path)) == file.digest

    def add(self, file: FolderFile) -> None:
        """Raises: `ConfigError`."""
        self._write(self.entries() | {str(file.path): file.digest})

    def remove(self, path: Path) -> bool:
        """Whether the file was trusted. Raises: `ConfigError`."""
        entries = self.entries()
        if entries.pop(str(path), None) is None:
            return False
        self._write(entries)
        return True

    def _write(self, entries: Mapping[str, str]) -> None:
        with writing(self.path):
            keep_json(self.path, {"version": 1, "trusted": entries})
