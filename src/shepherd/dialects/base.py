"""The seam between messages and text: what a rendered prompt is, and what a model family must be able to do.

Not here: how a template is run (`template`), how text is scanned (`scanner`), what a family looks like (one file each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shepherd.core import Event, ToolSpec

TOOLS = -1
"""The origin of request data that is no message: tool definitions and extra template arguments."""

Keep = Literal["split", "keep"]
"""What becomes of thoughts: `split` reports them as reasoning, `keep` leaves them in the text with their tags."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a prompt that has one origin."""

    text: str
    origin: int | None
    """`None` is the template's own markup, which may become control tokens. Otherwise the index of the message that
    the text came from, or `TOOLS`; such text never may."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a prompt that is one message: its header, text and trailer."""

    start: int
    stop: int
    """Characters, half open."""
    message: int
    """Its index in the conversation."""
    others: tuple[int, ...] = ()
    """Further messages that stand in it and have lower indexes, ascending: the template has put them together."""
    tools: bool = False
    """Request data that is no message stands in it, too: tool definitions, as a rule."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole conversation as the model will read it."""

    pieces: tuple[Piece, ...]
    """Never empty texts, never two neighbours of equal origin."""
    opened: str
    """What the prompt has already written of the assistant's turn, its header aside: an open thought, a prefill."""
    stops: tuple[str, ...] = ()
    """Turn headers that the answer must never contain."""
    stretches: tuple[Stretch, ...] = ()
    """Where the messages stand; in order, without overlap. What no message owns, such as the head of the answer, and
    messages that do not show, are in none."""

    @property
    def text(self) -> str:
        """The prompt without its origins."""
        return "".join(piece.text for piece in self.pieces)


class Parser(Protocol):
    """Turns the text of one answer into events; one per answer, not for sharing.

    Yields `TextDelta`, `ReasoningDelta` and calls only; `Started` and `Finished` are the back end's.
    """

    def feed(self, text: str) -> list[Event]:
        """The events that the next characters of the output settle."""
        ...

    def close(self, *, truncated: bool = False) -> list[Event]:
        """The events that the end of the output settles; `truncated` when a limit or a cancel ended it."""
        ...


class Dialect(Protocol):
    """A model family: how its templates are recognised and how its output is read."""

    @property
    def name(self) -> str: ...

    @property
    def thoughts(self) -> tuple[tuple[str, str], ...]:
        """The pairs of tags around reasoning, most usual first."""
        ...

    @property
    def answer(self) -> tuple[str, str]:
        """What the family writes before and behind a visible answer; empty in most."""
        ...

    @property
    def openers(self) -> tuple[str, ...]:
        """Every marker that opens a thought or a call."""
        ...

    @property
    def thinks(self) -> bool:
        """Whether this model is known to reason, not merely able to be understood if it did."""
        ...

    @property
    def stops(self) -> tuple[str, ...]:
        """Turn headers that the answer must never contain."""
        ...

    def signs(self, template: str) -> bool:
        """Whether a chat template speaks this dialect."""
        ...

    def fitted(self, template: str) -> Dialect:
        """The same dialect with what the template says about it: which thoughts it knows, which headers it writes."""
        ...

    def parser(self, *, tools: Sequence[ToolSpec] = (), opened: str = "", reasoning: Keep = "split") -> Parser:
        """A parser for one answer that continues `opened`, the `Prompt`'s field of that name.

        What stands in `opened` primes the parser and is not reported again.
        """
        ...
