"""What a family writes around its thoughts and calls, as data, and how markers are found in a stream.

Not here: what to do on meeting one (`scanner`), where a call's inside ends (`body`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shepherd.core import ToolSpec
from shepherd.dialects.call import Fault, Found


class Markers:
    """A set of markers, ready to be looked for in a stream. Immutable."""

    def __init__(self, markers: Iterable[str]) -> None:
        ordered = sorted(set(markers), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._prefixes = frozenset(marker[:length] for marker in ordered for length in range(1, len(marker)))
        self._longest = max(map(len, self._prefixes), default=0)

    def find(self, text: str, at: int) -> tuple[int, str]:
        """Where the next marker from `at` on stands, and which it is; `(len(text), "")` when there is none."""
        match = self._pattern.search(text, at)
        return (match.start(), match[0]) if match else (len(text), "")

    def standing(self, text: str, at: int) -> str:
        """The marker that stands exactly at `at`; empty when none does."""
        match = self._pattern.match(text, at)
        return match[0] if match else ""

    def begun(self, text: str, at: int) -> int:
        """How many characters at the end of `text`, from `at` on at most, could become a marker with more text."""
        for length in range(min(self._longest, len(text) - at), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0


class Body(Protocol):
    """The inside of one block as it streams in, from behind its opener to behind its closer. One per block."""

    ended: bool
    """Nothing more belongs to this block."""
    closed: bool
    """It ended with its closer, not because something else came."""

    def feed(self, text: str, at: int, final: bool) -> int:
        """How far into `text` the block has been taken in from `at` on; short of the end while more is needed.

        `final` when there will be no more; the body must then end.
        """
        ...

    def take_calls(self) -> list[tuple[str, tuple[Found | Fault, ...]]]:
        """What was completed since the last time: the characters as written, and the calls they hold."""
        ...


class MakeBody(Protocol):
    """How a block's inside is read: a constructor."""

    def __call__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec]) -> Body: ...


@dataclass(frozen=True, slots=True)
class Block:
    """The markup around calls."""

    opener: str
    closers: tuple[str, ...]
    body: MakeBody
    starts: str = "{["
    """With one of these next, blanks aside, the opener counts in the middle of a line too."""


@dataclass(frozen=True, slots=True)
class Markup:
    """Everything that a family writes and that is not text."""

    thoughts: tuple[tuple[str, str], ...] = ()
    """The pairs of tags around reasoning, most usual first."""
    blocks: tuple[Block, ...] = ()

    @property
    def openers(self) -> tuple[str, ...]:
        return (*(opener for opener, _ in self.thoughts), *(block.opener for block in self.blocks))
