"""How a family spells a call, as data: what a sampler must keep to so that no call is ever wrong (`grammar`).

The mirror image of `bodies`, which read what models write with all their slips; this writes it once, and right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shepherd.core import ToolSpec


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value of this schema."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Until:
    """Any text that does not hold the marker, and the marker."""

    marker: str


@dataclass(frozen=True, slots=True)
class Maybe:
    """These parts, or nothing."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """Exactly one of these."""

    options: tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Text that matches a regular expression."""

    regex: str


Part = str | Json | Until | Maybe | Pick | Pattern
"""A piece of a call; a `str` is written as it is."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """What stands between a block's opener and its closer: `before call (between call)* after`.

    The block's opener and its first closer are not part of it.
    """

    call: Callable[[ToolSpec], tuple[Part, ...]]
    before: str = ""
    between: str | None = None
    """What stands between two calls of one block; `None` when every call has a block of its own."""
    after: str = ""
