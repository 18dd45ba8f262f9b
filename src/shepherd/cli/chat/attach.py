"""Files that go along with a message: `@path` in what is typed.

    "Why does @src/app.py fail?"  ─▶  Text(the file, aside), Text("Why does @src/app.py fail?")

The words of the person stay as they are and come last; the files stand before them as asides, so that they are not
archived as something that was said. An `@` that names no file is text, and so is one behind a backslash. Not here: how
paths are completed (`cli/terminal/editor.py`).
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shepherd.core import Image, InvalidRequest, Text

if TYPE_CHECKING:
    from shepherd.app.conversations import ActiveModel
    from shepherd.core.status import ModelCard

MOST_BYTES = 2**20
"""Of one file, whatever the context."""
MOST_IMAGE_BYTES = 20 * 2**20
BYTES_PER_TOKEN = 6
"""No ordinary text has more: a file that is larger than the context by this measure need not be read."""

_MENTION = re.compile(r'(?<![^\s([{])@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>\S+))')
_ESCAPED = re.compile(r"(?<![^\s([{])\\(?=@)")
_CLOSING = ".,;:!?)]}>'\""
"""What may stand behind a path in a sentence."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF????WEBP", "image/webp"),
    (b"BM????\x00\x00\x00\x00", "image/bmp"),
)
"""How image files begin, `?` for any byte."""
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_BINARY = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b"))


class Models(Protocol):
    """Who answers, and what it can do."""

    def facts(self) -> ActiveModel: ...

    def models(self) -> Sequence[ModelCard]: ...


def parts(text: str, models: Models, n_ctx: int) -> tuple[Text | Image, ...]:
    """What is to be said: the files and images that `text` names, then `text`. Reads files: not on the event loop.

    `n_ctx`: tokens that the conversation can hold.

    Raises: `InvalidRequest` for a path that is there and cannot go along.
    """
    found: dict[Path, Text | Image] = {}
    for name, path in mentions(text, Path.cwd()):
        if path not in found:
            found[path] = _read(name, path, models, n_ctx)
    return (*found.values(), Text(_ESCAPED.sub("", text)))


def sees_images(models: Models) -> bool:
    """Whether the model that answers takes more than text."""
    stem = models.facts().model
    return any("vision" in card.capabilities for card in models.models() if card.id == stem)


def mentions(text: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The paths after `@` that are there, as they were typed and as they are found."""
    for match in _MENTION.finditer(text):
        quoted, plain = match["quoted"], match["plain"]
        for name in (quoted,) if quoted else (plain, plain.rstrip(_CLOSING)):
            if name.strip(_CLOSING) and os.path.lexists(path := _path(name, folder)):
                yield name, path
                break


def decode(raw: bytes) -> str:
    """The text of a file, its line ends as `\\n`; bytes that are none become U+FFFD."""
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), "utf-8")
    return raw.decode(encoding, "replace").replace("\r\n", "\n").replace("\r", "\n")


def fenced(title: str, text: str, suffix: str = "") -> str:
    """A text under its title, between fences that nothing in it closes."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    language = suffix.removeprefix(".") if suffix.removeprefix(".").isalnum() else ""
    return f"{title}:\n{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def _path(name: str, folder: Path) -> Path:
    try:
        return folder / Path(name).expanduser()
    except (RuntimeError, ValueError):  # such as ~nobody
        return folder / name


def _read(name: str, path: Path, models: Models, n_ctx: int) -> Text | Image:
    try:
        raw, size = _bytes(name, path)
    except OSError as error:
        raise InvalidRequest(f"@{name} cannot be read: {error.strerror or error}", field="message") from error
    if (media_type := _image_type(raw)) is not None:
        if not sees_images(models):
            raise InvalidRequest(
                f"@{name} is an image, and {models.facts().model} reads text only; leave it out, or choose a "
                "model that can see with /model NAME",
                field="message",
            )
        limit = MOST_IMAGE_BYTES
    else:
        if not any(raw.startswith(mark) for mark, _ in _MARKS) and raw[:8192].translate(None, _BINARY) != raw[:8192]:
            raise InvalidRequest(
                f"@{name} is no text file; attach what it says as text, or write \\@{name} to send the name alone",
                field="message",
            )
        limit = min(MOST_BYTES, BYTES_PER_TOKEN * n_ctx)
    if size > limit:
        raise InvalidRequest(
            f"@{name} has {size:,} bytes, more than the {limit:,} that can go along here; attach a part of it, or let "
            "the model read it with read_file",
            field="message",
        )
    if media_type is not None:
        return Image(media_type, raw)
    return Text(f"{fenced(f'File {name}', decode(raw), Path(name).suffix)}\n\n", aside=True)


def _bytes(name: str, path: Path) -> tuple[bytes, int]:
    """The beginning of a file, and its size. Raises: `InvalidRequest` when it is no file; `OSError`."""
    # A pipe with nobody at its other end must not hang us.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise InvalidRequest(
            f"@{name} is {kind}; name a text file, or write \\@{name} to send the name alone", field="message"
        )
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(MOST_IMAGE_BYTES + 1)
        return raw, max(found.st_size, len(raw))


def _image_type(raw: bytes) -> str | None:
    for start, media_type in _IMAGES:
        if len(raw) >= len(start) and all(want in (b"?"[0], byte) for want, byte in zip(start, raw, strict=False)):
            return media_type
    return None
