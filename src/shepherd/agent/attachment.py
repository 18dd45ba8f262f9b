"""A file as a part of a message: an image, a recording, or text that stands in front of what the user has written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from shepherd.core import Audio, Image, InvalidRequest, Text
from shepherd.core.dataclasses import dataclass
from shepherd.core.encoding import readable, text_encoding
from shepherd.media import sound
from shepherd.media.image import find_type

if TYPE_CHECKING:
    from shepherd.core.status import ModelCard

MOST_BYTES = 2**20
"""The most bytes of a text file, for any context."""
BYTES_PER_TOKEN = 6
"""Ordinary text has fewer: a file with more bytes than this allows does not fit into the context."""

Attached = Text | Image | Audio
SENSES: Mapping[type[Image | Audio], tuple[str, str, str]] = {
    Image: ("an image", "vision", "reads only text"),
    Audio: ("a recording", "audio", "cannot hear"),
}
"""How a part is called, the capability of the models that take it, and how an error describes the others."""
_BINARY = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b"))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of a file, by what it is."""

    text: int
    image: int
    audio: int

    @classmethod
    def of(cls, n_ctx: int, *, image: int, audio: int) -> Self:
        """`n_ctx`: tokens of the conversation."""
        return cls(min(MOST_BYTES, BYTES_PER_TOKEN * n_ctx), image, audio)

    @property
    def most(self) -> int:
        """Of any file."""
        return max(self.text, self.image, self.audio)


def part_of(
    name: str, raw: bytes, size: int, limits: Limits, *, called: str, field: str, otherwise: str = ""
) -> Attached:
    """What is sent of a file. `raw`: its first bytes, more than the limit where it is longer; `called`: its name in
    errors; `otherwise`: what else to do with a file that is no text.

    Raises: `InvalidRequest` for a file that is too large, or is neither text, an image nor a recording.
    """
    media = media_of(raw, called)
    if media is None and text_encoding(raw) is None and raw[:8192].translate(None, _BINARY) != raw[:8192]:
        raise InvalidRequest(f"{called} is not a text file; convert it to text{otherwise}", field=field)
    limit, way = {
        type(None): (limits.text, "attach a part of it, or let the model read it with read_file"),
        Image: (limits.image, "send a smaller file, or raise images.max_bytes"),
        Audio: (limits.audio, "send a smaller file, or raise audio.max_bytes"),
    }[type(media)]
    if size > limit:
        raise InvalidRequest(f"{called} has {size:,} bytes, and the limit is {limit:,} here; {way}", field=field)
    if media is not None:
        return media
    suffix = Path(name).suffix.removeprefix(".")
    return Text(f"File {name}:\n{fenced(readable(raw), suffix if suffix.isalnum() else '')}\n\n", aside=True)


def senses(cards: Iterable[ModelCard], model: str) -> frozenset[type[Image | Audio]]:
    """What the model of this name takes besides text."""
    able = {word for card in cards if card.id == model for word in card.capabilities}
    return frozenset(kind for kind, (_, word, _) in SENSES.items() if word in able)


def check_senses(
    sent: Iterable[object], able: frozenset[type[Image | Audio]], model: str, *, where: str = "", field: str
) -> None:
    """Raises: `InvalidRequest` for the first part that a model with these senses does not take; `where` names all."""
    for part in sent:
        if isinstance(part, Image | Audio) and type(part) not in able:
            name, _, way = SENSES[type(part)]
            raise InvalidRequest(
                f"{where or part.path or 'the message'} is {name}, and {model} {way}; "
                f"leave it out, or change to a model for {name.split()[-1]}s with /model NAME",
                field=field,
            )


def fenced(text: str, language: str = "") -> str:
    """`text` between fences longer than any in it."""
    fence = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def media_of(raw: bytes, path: str) -> Image | Audio | None:
    """The image or the recording in a file, by its first bytes; None for any other. `path` names it in errors."""
    if (kind := find_type(raw)) is not None:
        return Image(kind, raw, path=path)
    kind = sound.find_type(raw)
    return None if kind is None else Audio(kind, raw, path=path)
