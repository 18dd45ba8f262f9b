"""The tools that are offered: the configured ones, or as many as a small part of the context can hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from shepherd.core import ToolSpec
from shepherd.tools.base import CATEGORIES
from shepherd.tools.tool import Tool

ROOM_SHARE = 8
"""The descriptions of tools that the configuration does not name may take one part in so many of the context."""

DISABLED = "disabled"
NOT_ENABLED = "not enabled"
NO_ROOM = "no room"
NOT_TRAINED = "not for the tiny model"
"""Why a tool is not offered. One without room, and one that its model was not trained for, can be called."""

CATEGORY_ALIASES: Mapping[str, str] = {"command": "command_execution"}
"""The seeds use both names (C21)."""

FIRST = (
    "list_directory", "read_file", "search_memory", "get_fact", "set_fact", "search_files", "write_file", "edit_file",
    "file_exists", "http_get", "json_path",
)  # fmt: skip
"""The most useful ones in a small context; then come the tools that the user has added."""
LAST = ("list_resources", "read_resource", "call_mcp_tool")
"""The tools of MCP servers do the same."""


def rank(tool: Tool) -> int:
    """Smaller is more useful."""
    if tool.name in FIRST:
        return FIRST.index(tool.name)
    if tool.name in LAST:
        return len(FIRST) + 2
    return len(FIRST) + (not _is_added(tool))


def _is_added(tool: Tool) -> bool:
    """Whether a user has added it: a tool of an MCP server, of a file, or another model."""
    return tool.category in {"mcp", "models"} or tool.category not in CATEGORIES


def reasons_off(
    tools: Iterable[Tool],
    *,
    enabled: Sequence[str] | None = None,
    disabled: Sequence[str] = (),
    lacking: Mapping[str, str] = MappingProxyType({}),
    n_ctx: int | None = None,
    cost: Callable[[ToolSpec], int] = lambda spec: 0,
    own: Sequence[str] | None = None,
    share: int = ROOM_SHARE,
) -> dict[str, str]:
    """By name, the tools that are not offered, and why.

    `tools`: the most useful first. `enabled` and `disabled`: patterns as in `matches`; `disabled` wins. `enabled` None:
    those with `offered` whose descriptions, `cost` tokens each, fit into one part in `share` of the context; of
    Shepherd's own tools those that a pattern of `own` matches, if it is given. `lacking`: by pattern, why tools cannot
    work, such as `{"memory": "there is no memory"}`.
    """
    room = None if n_ctx is None else n_ctx // share
    off: dict[str, str] = {}
    for tool in tools:
        if matches(tool, disabled):
            off[tool.name] = DISABLED
        elif missing := next((why for pattern, why in lacking.items() if matches(tool, [pattern])), ""):
            off[tool.name] = missing
        elif not (tool.offered if enabled is None else matches(tool, enabled)):
            off[tool.name] = NOT_ENABLED
        elif enabled is None and own is not None and not (_is_added(tool) or matches(tool, own)):
            off[tool.name] = NOT_TRAINED
        elif enabled is None and room is not None:
            n_tokens = cost(tool.spec)
            if n_tokens > room:
                off[tool.name] = NO_ROOM
            else:
                room -= n_tokens
    return off


def cost(spec: ToolSpec, count: Callable[[str], int]) -> int:
    """How many tokens the description of a tool takes, about."""
    return count(f"{spec.name} {spec.description} {json.dumps(spec.parameters)}")


def context_for(
    tools: Iterable[Tool], off: Mapping[str, str], count: Callable[[str], int], share: int = ROOM_SHARE
) -> int:
    """The tokens of context that have room for the offered tools and those without room; 0 where none lacks it."""
    wanted = [tool for tool in tools if off.get(tool.name, NO_ROOM) == NO_ROOM]
    return share * sum(cost(tool.spec, count) for tool in wanted) if NO_ROOM in off.values() else 0


def matches(tool: Tool, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns matches the tool: its name, an alias, its category, or a glob over those."""
    also = [other for other, category in CATEGORY_ALIASES.items() if category == tool.category]
    words = [word.casefold() for word in (tool.name, tool.category, *also, *tool.aliases)]
    return any(fnmatchcase(word, pattern.strip().casefold()) for pattern in patterns for word in words)


def normalized(name: str) -> str:
    """The name with the signs that every provider takes: `My Tool!` is `my_tool_`."""
    return re.sub(r"[^a-z0-9_-]", "_", name.strip().lower())


def unknown(patterns: Iterable[str], tools: Sequence[Tool], *, servers: Iterable[str] = ()) -> list[str]:
    """The patterns that match no tool. One that begins with the name of an MCP server in `servers` is known."""
    always = {*CATEGORIES, *CATEGORY_ALIASES}
    starts = tuple(
        f"{word}{mark}" for name in servers for word in (name.casefold(), normalized(name)) for mark in (":", "_", "*")
    )
    return [
        pattern
        for pattern in patterns
        if (word := pattern.strip().casefold()) not in always
        and not (starts and word.startswith(starts))
        and not any(matches(tool, [pattern]) for tool in tools)
    ]
