"""What a family writes around its thoughts and calls, as data, and how markers are found in a stream.

Not here: what to do on meeting one (`scanner`), where a call's inside ends (`bodies`), how a call is spelt for a
sampler that must not go astray (`spelling`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Protocol

from shepherd.core import ToolSpec
from shepherd.dialects.grammar.spelling import Spelling
from shepherd.dialects.parse.call import Fault, Found

Where = Literal["line", "start", "anywhere", "never"]
"""Where an opener counts, and is no text that speaks of it: at the start of a line, and in the middle of one if the
block's inside follows; only where nothing visible stands before it, in the answer or since the last block; everywhere;
nowhere."""


class Markers:
    """A set of markers, ready to be looked for in a stream. Immutable."""

    def __init__(self, markers: Iterable[str]) -> None:
        ordered = sorted(set(markers) - {""}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._prefixes = frozenset(marker[:length] for marker in ordered for length in range(1, len(marker)))
        self._longest = max(map(len, self._prefixes), default=0)
        firsts = "".join(sorted({re.escape(marker[0]) for marker in ordered}))
        self.can_begin_in = re.compile(f"[{firsts}]" if firsts else r"(?!)").search
        """Finds the next character that a marker begins with."""

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
        match = self.can_begin_in(text, max(at, len(text) - self._longest))
        while match:
            if text[match.start() :] in self._prefixes:
                return len(text) - match.start()
            match = self.can_begin_in(text, match.start() + 1)
        return 0

    def is_begun(self, text: str, at: int) -> bool:
        """Whether all that stands from `at` on, one character at least, could become a marker with more text."""
        return self.begun(text, at) == len(text) - at > 0


@lru_cache(maxsize=512)  # openers may name the tools of a request: there is no end of them
def markers_of(*markers: str) -> Markers:
    """The set of these markers, made once."""
    return Markers(markers)


@dataclass(frozen=True, slots=True)
class Thought:
    """The markup around reasoning."""

    opener: str
    """Empty when only a header opens it (`Body.then`)."""
    closers: tuple[str, ...]
    """Most usual first."""
    spoken: bool = False
    """Its opener is the beginning of the thought, and reported with it."""


class Body(Protocol):
    """The inside of one block as it streams in, from behind its opener to behind its closer. One per block."""

    ended: bool
    """Nothing more belongs to this block."""
    closed: bool
    """It ended with its closer, not because something else came."""
    declined: str
    """What turned out to be text after all, its opener included; reported as such when the block has ended. Decided as
    early as can be: until then it is held back."""
    then: Thought | None
    """What the block has opened: the text behind it is this thought. `None`: visible text."""

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

    def __call__(self, block: Block, openers: Sequence[str], tools: Sequence[ToolSpec]) -> Body:
        """`openers` are the tags that open something in this dialect: a block that lacks its closer ends there."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """The markup around calls, or a header that says what follows."""

    opener: str
    closers: tuple[str, ...]
    body: MakeBody
    where: Where = "line"
    """In text."""
    within: Where = "line"
    """In a thought that has not been closed; models forget to."""
    starts: str = r"[{\[]"
    """A regular expression of one character: what a block's inside begins with, blanks aside."""
    tight: bool = False
    """No blanks may stand between the opener and the inside, for the opener to count in the middle of a line."""
    unseen: bool = False
    """Dropped without a trace, such as a footnote: the blanks around it stay the text's, and a thought goes on."""
    mute: bool = False
    """At the start of the answer its opener is markup even where the block turns out to be text."""
    spelling: Spelling | None = None
    """How to write a call in this block; `None` where the family has a better one."""


def no_blocks(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    """Nothing."""
    return ()


@dataclass(frozen=True, slots=True)
class Markup:
    """Everything that a family writes and that is not text."""

    thoughts: tuple[Thought, ...] = ()
    """Most usual first."""
    headed: tuple[Thought, ...] = ()
    """Thoughts that a header opens (`Body.then`), written out with all that stands before what follows; for constrained
    output, which must know how a thought ends."""
    blocks: tuple[Block, ...] = ()
    """Most usual first; no two with the same opener."""
    spelled: tuple[Block, ...] = ()
    """Calls as they are written out, where `blocks` are headers, for constrained output; the first one for calls that
    are forced, those with `where="never"` for nothing else. Without any, the blocks that have a spelling."""
    skips: tuple[str, ...] = ()
    """Markers that say nothing, dropped wherever they stand in text: the tags around a visible answer, turn ends."""
    answer: tuple[str, str] = ("", "")
    """What stands before and behind a visible answer, behind thoughts; for constrained output."""
    declared: Callable[[Sequence[ToolSpec]], tuple[Block, ...]] = field(default=no_blocks)
    """Further blocks that exist only for the tools of a request: those that no tag declares to be calls."""

    @property
    def openers(self) -> tuple[str, ...]:
        """Every marker that opens a thought or a block, `declared` ones aside."""
        named = (*(thought.opener for thought in self.thoughts), *(block.opener for block in self.blocks))
        return tuple(opener for opener in named if opener)
