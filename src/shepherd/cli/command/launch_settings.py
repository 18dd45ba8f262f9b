"""The settings with which each client talks to a Shepherd server: a table of clients.

Pure: `launch` writes the files and runs the client, or prints the settings. They override the client's own files for
one run, and do not change them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from shepherd.config import RouteConfig
from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass, field

PATIENCE_S = 1800
"""How long a client waits for the next token: a long prompt on a CPU takes minutes, and a retry starts again."""
KEY = "\ue000"
"""Placeholder of a key that is not shown."""
FOLDER = "\ue001"
"""Placeholder of the folder with the files."""
NO_KEY = "shepherd"
"""For servers without keys: clients require one."""
SIDE_MODEL = "claude-haiku-4-5"
"""The model of side tasks, where the routes know it: `*haiku*` matches it."""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    url: str
    """Without `/v1` and without a slash at its end."""
    model: str
    key: str = NO_KEY
    n_ctx: int = 0
    """Tokens that a conversation can have; 0 = unknown."""
    n_cells: int = 0
    """Tokens that the context holds at a time; 0 = all of them."""
    side_model: str = ""
    """The model for titles, summaries and other side tasks; empty = the same model."""
    reserve: int | None = None
    """Tokens kept free for an answer; None = an eighth of what the context holds, at most 16384."""
    catalog: tuple[Mapping[str, Any], ...] = ()
    """The models of the server in the format of Codex (`slug`, `context_window`, ...)."""

    @property
    def answer(self) -> int:
        """The most tokens of an answer."""
        held = self.n_cells or self.n_ctx
        wanted = min(16384, held // 8) if self.reserve is None else self.reserve
        return max(1, min(wanted, held - 1))

    @property
    def prompt(self) -> int:
        """The most tokens of a prompt that leaves room for an answer."""
        return self.n_ctx - self.answer

    @property
    def side(self) -> str:
        return self.side_model or self.model


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run. Arguments may contain `FOLDER`."""

    variables: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    """Before those of the user."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By name, in `FOLDER`."""

    def in_folder(self, folder: str) -> tuple[str, ...]:
        return tuple(word.replace(FOLDER, folder) for word in self.arguments)


@dataclass(frozen=True, slots=True)
class Client:
    title: str
    program: str
    install: str
    first_prompt: int
    """Tokens of its own instructions and tools, and a short question, as lamb counts them: other models count fewer."""
    measured: str
    """The version of that, and the day."""
    configure: Callable[[LaunchTarget, Sequence[str]], Settings]
    """Gets the arguments of the user, too. Raises: `InvalidRequest` for arguments that cannot be parsed."""


def side_model(routes: Sequence[RouteConfig]) -> str:
    """The model for side tasks under these routes; empty without a route for them."""
    for route in routes:
        pattern = (route.match or route.model or "").casefold()
        if route.endpoint is None and pattern.strip("*") and fnmatchcase(SIDE_MODEL, pattern):
            return SIDE_MODEL
    return ""


# -- the clients ------------------------------------------------------------------------------------------------------


def _claude(target: LaunchTarget, arguments: Sequence[str]) -> Settings:
    """Variables in its settings.json override the environment, so a settings file of ours repeats them."""
    milliseconds = str(PATIENCE_S * 1000)
    tiers = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{tier}_MODEL" for tier in ("OPUS", "SONNET", "FABLE")))
    variables = {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_AUTH_TOKEN": target.key,
        "ANTHROPIC_API_KEY": "",  # else the client asks whether to use the one of the environment
        **dict.fromkeys(tiers, target.model),
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": target.side,
        "ANTHROPIC_SMALL_FAST_MODEL": target.side,  # for older versions
        "CLAUDE_CODE_SUBAGENT_MODEL": "inherit",
        # Three features that change the prompt in each request, so that the cached prefix is lost.
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
    if target.n_ctx:
        # It applies this to all models but claude-*, for which it has its own numbers. So a name such as
        # claude-local-qwen, or a row of `modelPicker` with `behavesAs`, would end the line `unrecognized_model` at each
        # start, and give the conversation 200,000 tokens in place of ours (2.1.332, 2026-11-28).
        variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(target.prompt)
        variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(target.answer)
    theirs = _settings_of(arguments)
    above = {**theirs, "env": {**theirs.get("env", {}), **variables}}
    name = "settings.json"
    return Settings(variables, ("--settings", f"{FOLDER}/{name}"), {name: _json(above)})


def _settings_of(arguments: Sequence[str]) -> dict[str, Any]:
    """The user's own `--settings`: the client reads only one. Raises: `InvalidRequest`."""
    given = [word.removeprefix("--settings=") for word in arguments if word.startswith("--settings=")]
    given += [following for word, following in pairwise((*arguments, "")) if word == "--settings"]
    if not given:
        return {}
    try:
        found = json.loads(given[-1])
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("env", {}), dict):
        raise InvalidRequest(
            "Claude Code reads only one --settings, and 'shepherd launch' needs it; give yours as JSON text, which is "
            'merged: --settings "$(cat FILE)"'
        )
    return found


def _codex(target: LaunchTarget, arguments: Sequence[str]) -> Settings:
    """A provider of its own on the command line, which overrides its config.toml."""
    provider: dict[str, Any] = {
        "name": "Shepherd",
        "base_url": f"{target.url}/v1",
        "wire_api": "responses",
        "env_key": "SHEPHERD_API_KEY",
        "stream_idle_timeout_ms": PATIENCE_S * 1000,
        "request_max_retries": 1,
        "stream_max_retries": 1,
    }
    overrides: dict[str, Any] = {
        "model": target.model,
        "model_provider": "shepherd",
        **{f"model_providers.shepherd.{key}": value for key, value in provider.items()},
        "web_search": "disabled",
        "features.image_generation": False,
    }
    if target.n_ctx:
        overrides["model_context_window"] = target.n_ctx
        overrides["model_auto_compact_token_limit"] = target.prompt
    files = {}
    if catalog := _catalog(target):
        files["models.json"] = _json({"models": catalog})
        overrides["model_catalog_json"] = f"{FOLDER}/models.json"
    # A JSON string, number or boolean is the same in TOML.
    pairs = [("-c", f"{key}={_json(value, indent=None)}") for key, value in overrides.items()]
    return Settings({"SHEPHERD_API_KEY": target.key}, tuple(word for pair in pairs for word in pair), files)


def _catalog(target: LaunchTarget) -> list[Mapping[str, Any]]:
    """The models of the server with the requested one, which may be the name of a route."""
    if not target.catalog or any(entry.get("slug") == target.model for entry in target.catalog):
        return list(target.catalog)
    return [{**target.catalog[0], "slug": target.model, "display_name": target.model}, *target.catalog]


def _opencode(target: LaunchTarget, arguments: Sequence[str]) -> Settings:
    """A configuration in a variable, which overrides its files."""
    limit = {"limit": {"context": target.n_ctx, "output": target.answer}} if target.n_ctx else {}
    models = {
        name: {"name": name, "tool_call": True, "interleaved": {"field": "reasoning_content"}, **limit}
        for name in dict.fromkeys((target.model, target.side))
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Shepherd",
        "options": {"baseURL": f"{target.url}/v1", "apiKey": target.key, "timeout": PATIENCE_S * 1000},
        "models": models,
    }
    above = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"shepherd": provider},
        "model": f"shepherd/{target.model}",
        "small_model": f"shepherd/{target.side}",
    }
    return Settings({"OPENCODE_CONFIG_CONTENT": _json(above, indent=None)})


def _aider(target: LaunchTarget, arguments: Sequence[str]) -> Settings:
    """Its LiteLLM calls the model `openai/NAME`; a file of metadata has the size of its context."""
    name = f"openai/{target.model}"
    variables = {
        "OPENAI_API_BASE": f"{target.url}/v1",
        "OPENAI_API_KEY": target.key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it downloads the map at every start
    }
    arguments = ("--model", name, "--weak-model", f"openai/{target.side}", "--timeout", str(PATIENCE_S))
    if not target.n_ctx:
        return Settings(variables, arguments)
    facts = {
        "max_tokens": target.answer,
        "max_input_tokens": target.prompt,
        "max_output_tokens": target.answer,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    metadata = dict.fromkeys(dict.fromkeys((name, f"openai/{target.side}")), facts)
    file = "models.json"
    return Settings(variables, (*arguments, "--model-metadata-file", f"{FOLDER}/{file}"), {file: _json(metadata)})


def _pi(target: LaunchTarget, arguments: Sequence[str]) -> Settings:
    """An extension that adds a provider: its models.json can be replaced only together with its sessions and keys."""
    room = {"contextWindow": target.n_ctx, "maxTokens": target.answer} if target.n_ctx else {}
    thinks = any(
        entry.get("slug") == target.model and entry.get("supported_reasoning_levels") for entry in target.catalog
    )
    model = {
        "id": target.model,
        "name": target.model,
        "input": ["text"],
        "reasoning": thinks,
        "thinkingLevelMap": {"off": "none"},  # else it sends nothing, and the model may think
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "compat": {"sendSessionAffinityHeaders": True},  # the name of the conversation
        **room,
    }
    provider = {
        "name": "Shepherd",
        "baseUrl": f"{target.url}/v1",
        "api": "openai-completions",
        # A command: `$NAME` is a variable in new versions only, and `NAME` in old ones only.
        "apiKey": '!printf %s "$SHEPHERD_API_KEY"',
        "models": [model],
    }
    variables = {"SHEPHERD_API_KEY": target.key, "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
    words = ("-e", f"{FOLDER}/shepherd.mjs", "--provider", "shepherd", "--model", target.model)
    script = f'export default (pi) => pi.registerProvider("shepherd", {_json(provider)});'
    return Settings(variables, words, {"shepherd.mjs": script})


def _json(value: Any, indent: int | None = 2) -> str:
    # The placeholder of the key must stay one character.
    return json.dumps(value, ensure_ascii=False, indent=indent)


CLIENTS: Mapping[str, Client] = {
    name: Client(title, name, install, first_prompt, measured, configure)
    for name, title, install, first_prompt, measured, configure in (
        ("claude", "Claude Code", "npm install -g @anthropic-ai/claude-code", 23_624, "2.1.332, 2026-11-28", _claude),
        ("codex", "Codex", "npm install -g @openai/codex", 8_649, "0.171.0, 2026-11-27", _codex),
        ("opencode", "opencode", "npm install -g opencode-ai", 14_240, "1.18.33, 2026-11-27", _opencode),
        ("aider", "aider", "uv tool install aider-chat", 3_000, "estimated", _aider),
        ("pi", "pi", "npm install -g @earendil-works/pi-coding-agent", 2_359, "1.6.0, 2026-11-27", _pi),
    )
}


# -- as shell commands -----------------------------------------------------------------------------------------------

SHELL_FOLDER = '"${TMPDIR:-/tmp}/shepherd-launch"'
SHELL_KEY = '"$SHEPHERD_API_KEY"'


def as_shell(client: Client, settings: Settings, arguments: Sequence[str]) -> list[str]:
    """Lines for a POSIX shell that do what launching does; `KEY` is written as the variable SHEPHERD_API_KEY."""
    lines = [f"export {name}={_quoted(value)}" for name, value in settings.variables.items()]
    if settings.files:
        lines.append(f"mkdir -p -m 700 {SHELL_FOLDER}")
    lines += [f"printf '%s\\n' {_quoted(text)} > {SHELL_FOLDER}/{name}" for name, text in settings.files.items()]
    return [*lines, " ".join([client.program, *map(_quoted, settings.arguments), *map(shlex.quote, arguments)])]


def _quoted(text: str) -> str:
    """`text` as one word of a shell, with references to the key and the folder."""
    for mark, reference in ((KEY, SHELL_KEY), (FOLDER, SHELL_FOLDER)):
        if mark in text:
            return reference.join(_quoted(part) if part else "" for part in text.split(mark))
    return shlex.quote(text)
