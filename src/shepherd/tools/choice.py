"""Which tools are offered: those that were asked for, or as many as a small part of the context can describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from shepherd.core import ToolSpec

ROOM_SHARE = 8
"""Tools that nobody asked for by name may take one part in so many of the context."""


def choose(
    groups: Mapping[str, Sequence[ToolSpec]],
    *,
    enabled: Sequence[str] | None,
    disabled: Sequence[str],
    n_ctx: int,
    cost: Callable[[ToolSpec], int],
) -> list[ToolSpec]:
    """The tools to offer, of those in `groups`, most useful first.

    `enabled` and `disabled` are names of tools or groups, or globs over them; `disabled` wins. `enabled` None: the
    first ones whose descriptions, `cost` tokens each, fit together into their part of the context.
    """
    room = n_ctx // ROOM_SHARE
    chosen: list[ToolSpec] = []
    for group, specs in groups.items():
        for spec in specs:
            if _is_among(spec.name, group, disabled):
                continue
            if enabled is None:
                room -= cost(spec)
                if room < 0:
                    return chosen
            elif not _is_among(spec.name, group, enabled):
                continue
            chosen.append(spec)
    return chosen


def unknown(names: Sequence[str], groups: Mapping[str, Sequence[ToolSpec]]) -> list[str]:
    """The names that stand for no tool."""
    tools = [(spec.name, group) for group, specs in groups.items() for spec in specs]
    return [name for name in names if not any(_is_among(tool, group, [name]) for tool, group in tools)]


def _is_among(name: str, group: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(word, pattern.casefold()) for pattern in names for word in (name, group))
