"""The interfaces between messages and text: a rendered prompt, and a parser."""

from __future__ import annotations

from typing import Literal, Protocol

from shepherd.core import Event
from shepherd.core.dataclasses import dataclass

TOOLS = -1
"""The origin of request data that is no message: tool definitions and extra template arguments."""

Keep = Literal["split", "keep"]
"""`split` reports thoughts as reasoning, `keep` leaves them in the text with their tags."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment of a prompt that has one origin."""

    text: str
    origin: int | None
    """`None` is the template's own markup, which may become control tokens. Otherwise the index of the message that
    the text came from, or `TOOLS`; such text never may."""
    is_media: bool = False
    """An image or a recording stands here; the text only names it (`render.provenance.name_of`)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a prompt that is one message: its header, text and trailer."""

    start: int
    stop: int
    """Characters, half open."""
    message: int
    others: tuple[int, ...] = ()
    """Further messages in it, with lower indexes, ascending: the template has put them together."""
    tools: bool = False
    """It also holds request data that is no message, usually tool definitions."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A whole conversation as the model reads it."""

    pieces: tuple[Piece, ...]
    """Never empty texts, never two neighbours of equal origin, but for images and recordings."""
    opened: str
    """The beginning of the assistant's turn that the prompt holds, without its header: an open thought, a prefill."""
    stops: tuple[str, ...] = ()
    """Turn headers that the answer must never contain."""
    segments: tuple[Segment, ...] = ()
    """Where the messages stand; in order, without overlap. Text of no message, such as the head of the answer, is in
    none; a message that does not show has none."""

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Parser(Protocol):
    """Turns the text of one answer into events; one per answer, not for sharing.

    Yields `TextDelta`, `ReasoningDelta` and calls only; `Started` and `Finished` are the back end's.
    """

    def feed(self, text: str) -> list[Event]:
        """The events that the next characters of the output complete."""
        ...

    def close(self, *, truncated: bool = False) -> list[Event]:
        """The events that the end of the output completes; `truncated` when a limit or a cancel ended it."""
        ...
