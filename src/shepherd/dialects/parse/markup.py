"""What a family writes around its thoughts and calls, as data, and how markers are found in a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass
from shepherd.dialects.parse.call import Calls
from shepherd.dialects.parse.spelling import Spelling

MAX_BLANKS = 64
"""So many blanks are held back at most until text or markup follows: models write endless newlines."""
Where = Literal["line", "start", "anywhere", "never", "last"]
"""Where an opener opens a block; elsewhere it is text that speaks of the opener.

`line`: at the start of a line, and in the middle of one if the block's inside follows. `start`: only where nothing
visible stands before it, in the answer or since the last block. `anywhere`, `never`: everywhere, nowhere. `last`, in a
thought: where no text follows the call; else the thought speaks of one."""


class Markers:
    def __init__(self, markers: Iterable[str]) -> None:
        ordered = sorted(set(markers) - {""}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._prefixes = frozenset(marker[:length] for marker in ordered for length in range(1, len(marker)))
        self._longest = max(map(len, self._prefixes), default=0)
        firsts = "".join(sorted({re.escape(marker[0]) for marker in ordered}))
        self.can_begin_in = re.compile(f"[{firsts}]" if firsts else r"(?!)").search
        """Finds the next character that a marker begins with."""

    def find(self, text: str, at: int) -> tuple[int, str]:
        """The place and the text of the next marker from `at` on; `(len(text), "")` when there is none."""
        match = self._pattern.search(text, at)
        return (match.start(), match[0]) if match else (len(text), "")

    def find_settled(self, text: str, at: int, final: bool) -> tuple[int, str]:
        """As `find`, but without a marker the place is before what more text could make one of; with `final` no more
        text comes."""
        match = self._pattern.search(text, at)
        if match:
            return match.start(), match[0]
        return len(text) - (0 if final else self.begun(text, at)), ""

    def standing(self, text: str, at: int) -> str:
        """The marker that stands exactly at `at`; empty when none does."""
        match = self._pattern.match(text, at)
        return match[0] if match else ""

    def begun(self, text: str, at: int) -> int:
        """How many characters at the end of `text[at:]` could become a marker with more text."""
        match = self.can_begin_in(text, max(at, len(text) - self._longest))
        while match:
            if text[match.start() :] in self._prefixes:
                return len(text) - match.start()
            match = self.can_begin_in(text, match.start() + 1)
        return 0

    def is_begun(self, text: str, at: int) -> bool:
        """Whether `text[at:]` is not empty and could become a marker with more text."""
        return self.begun(text, at) == len(text) - at > 0

    def is_open(self, text: str, at: int) -> bool:
        """Whether a marker could still come to stand at `at`: `text[at:]` is empty or the beginning of one."""
        return self.begun(text, at) == len(text) - at


@lru_cache(maxsize=512)  # openers may name the tools of a request, so their number has no limit
def markers_of(*markers: str) -> Markers:
    """The set of these markers; it is made once."""
    return Markers(markers)


@dataclass(frozen=True, slots=True)
class Thought:
    opener: str
    """Empty when only a header opens it (`Body.then`)."""
    closers: tuple[str, ...]
    """The most common one first."""
    spoken: bool = False
    """Its opener is the beginning of the thought's text and is reported with it."""


class Body(Protocol):
    """Reads the inside of one block as it streams in, from behind its opener to behind its closer. One per block."""

    ended: bool
    """Nothing more belongs to this block."""
    closed: bool
    """It ended with its closer, not because something else came."""
    declined: str
    """The text that the block turned out to be, its opener included; empty when it is a block. The scanner reports it
    when the block has ended and holds it back until then, so a body decides as early as it can."""
    then: Thought | None
    """The thought that the block has opened; `None`: visible text follows."""

    def feed(self, text: str, at: int, final: bool) -> int:
        """Reads `text` from `at` on; returns the place up to which it has read, short of the end while it needs more.

        `final`: no more text comes; the body must end.
        """
        ...

    def take_calls(self) -> list[tuple[str, Calls]]:
        """What was completed since the last time: the characters as written, and the calls they hold."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    opener: str
    closers: tuple[str, ...]
    body: MakeBody
    where: Where = "line"
    within: Where = "line"
    """Where the opener counts in an open thought: models forget to close thoughts."""
    starts: str = r"[{\[]"
    """A regular expression for the first character of the inside, blanks aside."""
    tight: bool = False
    """In the middle of a line the opener counts only if the inside follows without blanks."""
    unseen: bool = False
    """The block leaves no trace, such as a footnote: blanks around it belong to the text, and a thought continues."""
    mute: bool = False
    """At the start of the answer the opener is markup even where the block turns out to be text."""
    spelling: Spelling | None = None
    """How to write a call in this block; `None` where another block is the one to write."""


class Opening(NamedTuple):  # one for each block of an answer, so it must be cheap
    block: Block
    openers: Sequence[str]
    """The markers that open something in this dialect: a block without a closer ends at one."""
    tools: Sequence[ToolSpec]
    written: str = ""
    """What another body has read of the block, the opener included; empty: the opener only."""


MakeBody = Callable[[Opening], Body]


def no_blocks(tools: Sequence[ToolSpec]) -> tuple[Block, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Markup:
    thoughts: tuple[Thought, ...] = ()
    """The most common one first."""
    headed: tuple[Thought, ...] = ()
    """Thoughts that a header opens (`Body.then`), with their whole opener and closer; for constrained output."""
    blocks: tuple[Block, ...] = ()
    """The most common one first; no two have the same opener."""
    spelled: tuple[Block, ...] = ()
    """Blocks as constrained output writes them, where `blocks` are headers. The first one serves forced calls; one with
    `where="never"` serves nothing else. If there are none, the `blocks` that have a spelling serve."""
    skips: tuple[str, ...] = ()
    """Markers without content, dropped wherever they stand in text: the tags around a visible answer, turn ends."""
    answer: tuple[str, str] = ("", "")
    """What stands before and behind a visible answer that follows thoughts; for constrained output."""
    declared: Callable[[Sequence[ToolSpec]], tuple[Block, ...]] = no_blocks
    """Makes the blocks that exist only for the tools of a request: calls that no tag marks as calls."""

    @property
    def openers(self) -> tuple[str, ...]:
        """Every marker that opens a thought or a block, `declared` ones aside."""
        named = (*(thought.opener for thought in self.thoughts), *(block.opener for block in self.blocks))
        return tuple(opener for opener in named if opener)
