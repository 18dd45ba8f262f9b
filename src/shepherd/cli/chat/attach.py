"""Attaches files to a message: `@path` in the typed text, and the pasted path of an image or a recording.

    "Why does @src/app.py fail?"  ─▶  Text(the file, aside), Text("Why does @src/app.py fail?")

The typed text stays unchanged and comes last; the files come before it as asides, which are not archived as messages of
the user. An `@` that names no file is text, which a line says where it looks like one (`missing`), and so is one behind
a backslash. A whole path without an `@` attaches an image only where the model sees, a recording only where it hears.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from shepherd.agent import attachment
from shepherd.agent.attachment import Attached, media_of
from shepherd.app.app import App
from shepherd.cli.text import format_count, format_size
from shepherd.core import Audio, Image, InvalidRequest, Text
from shepherd.core.encoding import readable
from shepherd.media.image import HEAD_BYTES, NotMedia, read_header
from shepherd.process.files import working_folder

_MENTION = re.compile(r'(?<![^\s([{])@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>\S+))')
_ESCAPED = re.compile(r"(?<![^\s([{])\\(?=@)")
_CLOSING = ".,;:!?)]}>'\""
"""Characters that may follow a path in a sentence."""
_FILE_NAME = re.compile(r"[^(){}@]{0,200}[^/(){}@]\.[A-Za-z][A-Za-z0-9]{0,3}")
_PASTED = re.compile(
    r"""(?<!\S)(?:'(?P<single>(?:file://|~?/)[^'\n]+)'|"(?P<double>(?:file://|~?/)[^"\n]+)"|"""
    r"""(?P<bare>(?:file://|~?/)(?:\\.|[^\s\\])+))"""
)
"""A path as terminals paste a file that was dragged into them: quoted, with backslashes, or as a file: URL."""
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".wav", ".mp3", ".flac"})
"""Of the files that are looked into because a message names their path."""


def parts(
    text: str, app: App, n_ctx: int, note: Callable[[str, Attached | None], object] = lambda _, __: None
) -> tuple[Attached, ...]:
    """The files, images and recordings that `text` names, then `text`. Reads files: not on the event loop. `n_ctx`:
    tokens of the conversation. `note` gets a line about each, and its part; none for a name that is `missing`. Raises:
    `InvalidRequest` for an existing path that cannot be attached.
    """
    found: dict[Path, Attached] = {}
    folder = working_folder()
    for name in missing(text, folder):
        note(f"@{name} names no file here; it is sent as it is", None)
    for name, path in mentions(text, folder):
        if path not in found:
            found[path], what = _read(name, path, app, n_ctx)
            note(f"Attached: {name} ({what})", found[path])
    able = senses(app)
    for name, path in pasted(text) if able else ():
        if path not in found and _kind_of(path) in able:
            found[path], what = _read(name, path, app, n_ctx)
            note(f"Attached: {name} ({what})", found[path])
    return (*found.values(), Text(_ESCAPED.sub("", text)))


def senses(app: App) -> frozenset[type[Image | Audio]]:
    """What the model that answers takes besides text."""
    return attachment.senses(app.catalogue.models(), app.conversations.active.model)


def mentions(text: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The existing paths behind an `@`, as typed and resolved."""
    for match in _MENTION.finditer(text):
        quoted, plain = match["quoted"], match["plain"]
        for name in (quoted,) if quoted else (plain, plain.rstrip(_CLOSING)):
            if name.strip(_CLOSING) and os.path.lexists(path := _path(name, folder)):
                yield name, path
                break


def missing(text: str, folder: Path) -> Iterator[str]:
    """What stands behind an `@`, looks like the name of a file, and names none: it has a short ending, and no call
    follows as behind `@app.get("/")`."""
    for match in _MENTION.finditer(text):
        name = match["quoted"] or match["plain"].rstrip(_CLOSING)
        if _FILE_NAME.fullmatch(name) and not os.path.lexists(_path(name, folder)):
            yield name


def pasted(text: str) -> Iterator[tuple[str, Path]]:
    """The whole paths in a text that may be of an image, as typed and without quotes and escapes."""
    for match in _PASTED.finditer(text):
        quoted, bare = match["single"] or match["double"], match["bare"] or ""
        for name in (quoted,) if quoted else (bare, bare.rstrip(_CLOSING)):
            plain = name if quoted else re.sub(r"\\(.)", r"\1", name)
            if plain.startswith("file://"):
                host, slash, rest = plain.removeprefix("file://").partition("/")
                plain = unquote(slash + rest) if host in {"", "localhost"} else ""
            path = _path(plain, Path("/"))
            if path.suffix.lower() in _SUFFIXES:
                yield name, path
                break


def _path(name: str, folder: Path) -> Path:
    try:
        return folder / Path(name).expanduser()
    except (RuntimeError, ValueError):  # such as an unknown ~user
        return folder / name


def _kind_of(path: Path) -> type[Image | Audio] | None:
    try:
        raw, _ = _bytes(str(path), path, most=HEAD_BYTES)
    except (OSError, ValueError, InvalidRequest):
        return None
    return type(part) if (part := media_of(raw, "")) is not None else None


def _read(name: str, path: Path, app: App, n_ctx: int) -> tuple[Attached, str]:
    """What is sent of a file, and how much it is."""
    limits = attachment.Limits.of(n_ctx, image=app.config.images.max_bytes, audio=app.config.audio.max_bytes)
    try:
        raw, size = _bytes(name, path, most=limits.most)
    except OSError as error:
        raise InvalidRequest(f"@{name} cannot be read: {error.strerror or error}", field="message") from error
    otherwise = f", or write \\@{name} to send only the name"
    part = attachment.part_of(name, raw, size, limits, called=f"@{name}", field="message", otherwise=otherwise)
    if not isinstance(part, Text):
        attachment.check_senses([part], senses(app), app.conversations.active.model, field="message")
        return part, f"{part.media_type}, {_sides(raw) if isinstance(part, Image) else ''}{format_size(size)}"
    text = readable(raw)
    n_lines = text.count("\n") + (text[-1:] not in {"", "\n"})
    return part, f"{format_count(n_lines, 'line')}, {format_size(size)}"


def _sides(raw: bytes) -> str:
    """The width and the height of an image, where its header has them."""
    with contextlib.suppress(NotMedia):
        found = read_header(raw)
        return f"{found.width} x {found.height}, "
    return ""


def _bytes(name: str, path: Path, *, most: int) -> tuple[bytes, int]:
    """The first bytes of a file, and its size. Raises: `InvalidRequest` when it is no regular file; `OSError`."""
    # Opening a pipe without a writer must not block.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        raise InvalidRequest(
            f"@{name} is {kind}; name a text file, or write \\@{name} to send only the name", field="message"
        )
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(most + 1)
        return raw, max(found.st_size, len(raw))
