"""What each client must be told so that it talks to a Shepherd server: a table of clients, and what is made of it.

    Served (where, which model, how much room) ─ row.tell ─▶ Settings (variables, arguments, files)

Nothing here touches the system: `launch` writes the files and runs the client, or prints all of it. Files of the
client's own are never changed; what is told lies above them for the one run.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from shepherd.core import InvalidRequest

if TYPE_CHECKING:
    from shepherd.config import RouteConfig

PATIENCE_S = 1800
"""How long a client may wait for a word: a long prompt on a CPU takes minutes, and a retry begins it anew."""

KEY = "\ue000"
"""Stands for a key that is not shown."""

FOLDER = "\ue001"
"""Stands for the folder that the files are in."""

NO_KEY = "shepherd"
"""For servers that ask for no key: clients insist on having one."""

SIDE_MODEL = "claude-haiku-4-5"
"""What side tasks ask for where the routes know it: the name that `*haiku*` catches."""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """A server, and what of it is used."""

    url: str
    """Without `/v1` and without a slash at its end."""
    model: str
    key: str = NO_KEY
    n_ctx: int = 0
    """Tokens that a conversation can hold; 0 = not known."""
    side_model: str = ""
    """What titles, summaries and other side tasks ask for; empty = the same model."""
    reserve: int | None = None
    """Tokens of `n_ctx` that are kept for an answer; None = an eighth of it, at most 16384."""
    catalog: tuple[Mapping[str, Any], ...] = ()
    """What the server says of its models in the words of Codex (`slug`, `context_window`, ...)."""

    @property
    def answer(self) -> int:
        """Tokens that an answer may have."""
        asked = min(16384, self.n_ctx // 8) if self.reserve is None else self.reserve
        return max(1, min(asked, self.n_ctx - 1))

    @property
    def prompt(self) -> int:
        """Tokens that a prompt may have, so that an answer still fits."""
        return self.n_ctx - self.answer

    @property
    def side(self) -> str:
        return self.side_model or self.model


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client is told. `FOLDER` may stand in arguments."""

    variables: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    """Before those of the user."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By name, in `FOLDER`."""

    def in_folder(self, folder: str) -> tuple[str, ...]:
        """The arguments, with the files in `folder`."""
        return tuple(word.replace(FOLDER, folder) for word in self.arguments)


@dataclass(frozen=True, slots=True)
class Client:
    """A program that can be launched."""

    title: str
    program: str
    install: str
    """The command that installs it."""
    first_prompt: int
    """Tokens of its own instructions and tools, about: what is sent before the user has said anything."""
    tell: Callable[[LaunchTarget, Sequence[str]], Settings]
    """From the server and the user's arguments. Raises: `InvalidRequest` for arguments that cannot be read."""


def side_model(routes: Sequence[RouteConfig]) -> str:
    """The name that side tasks should ask for under these routes; empty when none is there for them."""
    for route in routes:
        pattern = (route.match or route.model or "").casefold()
        if route.endpoint is None and pattern.strip("*") and fnmatchcase(SIDE_MODEL, pattern):
            return SIDE_MODEL
    return ""


# -- the clients ------------------------------------------------------------------------------------------------------


def _claude(served: LaunchTarget, said: Sequence[str]) -> Settings:
    """Its settings.json holds variables that beat the environment, so an overlay above that file says them again."""
    milliseconds = str(PATIENCE_S * 1000)
    tiers = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in ("OPUS", "SONNET", "FABLE")))
    variables = {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_AUTH_TOKEN": served.key,
        "ANTHROPIC_API_KEY": "",  # or it would go along, and the client would ask whether it may
        **dict.fromkeys(tiers, served.model),
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": served.side,
        "ANTHROPIC_SMALL_FAST_MODEL": served.side,  # what older versions call it
        "CLAUDE_CODE_SUBAGENT_MODEL": "inherit",
        # Three things that change from one request to the next and cost the whole prefix.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_MODEL_CAPABILITIES": "-mid_conv_system,-mid_conv_tool_change",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_UNKNOWN_MODEL_WINDOW_ENFORCEMENT": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "API_TIMEOUT_MS": milliseconds,
        "API_FORCE_IDLE_TIMEOUT": "0",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": milliseconds,
    }
    if served.n_ctx:
        # It takes this for every model but those called claude-*, whose window it believes to know.
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(served.prompt)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(served.answer)
    theirs = _settings_of(said)
    above = {**theirs, "env": {**theirs.get("env", {}), **variables}}
    name = "settings.json"
    return Settings(variables, ("--settings", f"{FOLDER}/{name}"), {name: _json(above)})


def _settings_of(said: Sequence[str]) -> dict[str, Any]:
    """What the user's own `--settings` says: the client reads one of them only. Raises: `InvalidRequest`."""
    given = [word.removeprefix("--settings=") for word in said if word.startswith("--settings=")]
    given += [following for word, following in pairwise((*said, "")) if word == "--settings"]
    if not given:
        return {}
    try:
        found = json.loads(given[-1])
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("env", {}), dict):
        raise InvalidRequest(
            "Claude Code reads one --settings only, and launching needs it; give yours as JSON text, to be joined with "
            'ours: --settings "$(cat FILE)"'
        )
    return found


def _codex(served: LaunchTarget, said: Sequence[str]) -> Settings:
    """A provider of its own, said on the command line above its config.toml."""
    provider: dict[str, Any] = {
        "name": "Shepherd",
        "base_url": f"{served.url}/v1",
        "wire_api": "responses",
        "env_key": "SHEPHERD_API_KEY",
        "stream_idle_timeout_ms": PATIENCE_S * 1000,
        "request_max_retries": 1,
        "stream_max_retries": 1,
    }
    said_above: dict[str, Any] = {
        "model": served.model,
        "model_provider": "shepherd",
        **{f"model_providers.shepherd.{key}": value for key, value in provider.items()},
        "web_search": "disabled",
        "features.image_generation": False,
    }
    if served.n_ctx:
        said_above["model_context_window"] = served.n_ctx
        said_above["model_auto_compact_token_limit"] = served.prompt
    files = {}
    if catalog := _catalog(served):
        files["models.json"] = _json({"models": catalog})
        said_above["model_catalog_json"] = f"{FOLDER}/models.json"
    # A JSON string, number or boolean is the same in TOML.
    pairs = [("-c", f"{key}={_json(value, indent=None)}") for key, value in said_above.items()]
    return Settings({"SHEPHERD_API_KEY": served.key}, tuple(word for pair in pairs for word in pair), files)


def _catalog(served: LaunchTarget) -> list[Mapping[str, Any]]:
    """The server's own, with the model among them that is asked for: a route's name may stand for any."""
    if not served.catalog or any(entry.get("slug") == served.model for entry in served.catalog):
        return list(served.catalog)
    return [{**served.catalog[0], "slug": served.model, "display_name": served.model}, *served.catalog]


def _opencode(served: LaunchTarget, said: Sequence[str]) -> Settings:
    """A configuration in a variable, which it lays over its files."""
    limit = {"limit": {"context": served.n_ctx, "output": served.answer}} if served.n_ctx else {}
    models = {
        name: {"name": name, "tool_call": True, "interleaved": {"field": "reasoning_content"}, **limit}
        for name in dict.fromkeys((served.model, served.side))
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Shepherd",
        "options": {"baseURL": f"{served.url}/v1", "apiKey": served.key, "timeout": PATIENCE_S * 1000},
        "models": models,
    }
    above = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"shepherd": provider},
        "model": f"shepherd/{served.model}",
        "small_model": f"shepherd/{served.side}",
    }
    return Settings({"OPENCODE_CONFIG_CONTENT": _json(above, indent=None)})


def _aider(served: LaunchTarget, said: Sequence[str]) -> Settings:
    """LiteLLM inside asks for `openai/NAME`; a file of metadata says how much room that has."""
    name = f"openai/{served.model}"
    variables = {
        "OPENAI_API_BASE": f"{served.url}/v1",
        "OPENAI_API_KEY": served.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or it asks the web at every start
    }
    arguments = ("--model", name, "--weak-model", f"openai/{served.side}", "--timeout", str(PATIENCE_S))
    if not served.n_ctx:
        return Settings(variables, arguments)
    facts = {
        "max_tokens": served.answer,
        "max_input_tokens": served.prompt,
        "max_output_tokens": served.answer,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    metadata = dict.fromkeys(dict.fromkeys((name, f"openai/{served.side}")), facts)
    file = "models.json"
    return Settings(
        variables,
        (*arguments, "--model-metadata-file", f"{FOLDER}/{file}"),
        {file: _json(metadata)},
    )


def _json(value: Any, indent: int | None = 2) -> str:
    # What stands for the key must stay one character.
    return json.dumps(value, ensure_ascii=False, indent=indent)


CLIENTS: Mapping[str, Client] = {
    "claude": Client("Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", 25_000, _claude),
    "codex": Client("Codex", "codex", "npm install -g @openai/codex", 8_000, _codex),
    "opencode": Client("opencode", "opencode", "npm install -g opencode-ai", 10_000, _opencode),
    "aider": Client("aider", "aider", "uv tool install aider-chat", 3_000, _aider),
}


# -- in the words of a shell ------------------------------------------------------------------------------------------

SHELL_FOLDER = '"${TMPDIR:-/tmp}/shepherd-launch"'
SHELL_KEY = '"$SHEPHERD_API_KEY"'


def as_shell(client: Client, settings: Settings, said: Sequence[str]) -> list[str]:
    """Lines for a POSIX shell that do what launching does; `KEY` is written as the variable SHEPHERD_API_KEY."""
    lines = [f"export {name}={_quoted(value)}" for name, value in settings.variables.items()]
    if settings.files:
        lines.append(f"mkdir -p -m 700 {SHELL_FOLDER}")
    lines += [f"printf '%s\\n' {_quoted(text)} > {SHELL_FOLDER}/{name}" for name, text in settings.files.items()]
    return [*lines, " ".join([client.program, *map(_quoted, settings.arguments), *map(shlex.quote, said)])]


def _quoted(text: str) -> str:
    """`text` as one word of a shell, with references to the key and the folder."""
    for mark, reference in ((KEY, SHELL_KEY), (FOLDER, SHELL_FOLDER)):
        if mark in text:
            return reference.join(_quoted(part) if part else "" for part in text.split(mark))
    return shlex.quote(text)
