"""Aliases: names of one's own for models, followed to what they stand for. Pure.

[aliases] fast = "main", main = "qwen"      fast ─▶ main ─▶ qwen
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from shepherd.config.kinds import EMPTY_JSON, is_spec
from shepherd.config.layers import Setting

_NAME = re.compile(r"[^\s*?\[\]\x00-\x1f\x7f]{1,200}")
"""Globs of routes have their characters to themselves."""


class Aliases:
    """All aliases of a configuration, found in any case."""

    def __init__(self, settings: Mapping[str, Setting], copies: Mapping[str, str] = EMPTY_JSON) -> None:
        """`copies`: names that clients have made; an alias of the same name counts before one of them.

        Raises: `ConfigError` for a name that cannot be one, and for a circle, with its names.
        """
        self._steps: dict[str, Setting] = {}
        self._names: dict[str, str] = {}
        """Without the copies."""
        for name, setting in sorted(settings.items(), key=lambda each: each[1].rank):
            if why := why_no_alias(name):
                raise setting.error(why)
            self._steps[name.casefold()] = setting
            self._names[name.casefold()] = name
        for name, setting in settings.items():
            *way, last = self.chain(name)
            if last.casefold() in _small(way):
                raise setting.error(
                    f"stands for itself in the end ({' -> '.join((*way, last))}); let one of these name a model"
                )
        for name, target in copies.items():
            if name.casefold() not in (*self._steps, *_small(self.chain(target))):
                self._steps[name.casefold()] = Setting(target)

    def __iter__(self) -> Iterator[str]:
        """Their names, the strongest layer last."""
        return iter(self._names.values())

    def chain(self, name: str) -> tuple[str, ...]:
        """`name`, and what it stands for, step by step; it ends where a name comes a second time."""
        way = [name]
        while (step := self._steps.get(way[-1].casefold())) is not None:
            is_new = str(step.value).casefold() not in _small(way)
            way.append(str(step.value))
            if not is_new:
                break
        return tuple(way)

    def find(self, name: str) -> Setting | None:
        """What an alias stands for at last, with the origin of the last step; None for a name that is no alias."""
        *way, last = self.chain(name)
        return replace(self._steps[way[-1].casefold()], value=last) if way else None


def why_no_alias(name: str) -> str:
    """Why no alias can have this name; empty = one can."""
    if _NAME.fullmatch(name) and not is_spec(name):
        return ""
    return (
        f"{name[:200]!r} cannot be another name of a model: it needs 1 to 200 characters without spaces, *, ?, [ and "
        "], and is neither embedded nor begins with hf:, ollama: or pypi:"
    )


def _small(names: Iterable[str]) -> list[str]:
    return [each.casefold() for each in names]
