"""Files of other programs, opened and cut into objects, and each object read (`formats.py`).

    file, folder, zip ─▶ `members` ─▶ objects: a line, or an element of an array ─▶ Talk | Record | Problem

All is read piece by piece: exports are larger than memories. What cannot be read becomes a `Problem` with its place,
and the rest goes on. Not here: what is stored of it (`export.py`).
"""

from __future__ import annotations

import codecs
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from shepherd.core import InvalidRequest
from shepherd.memory.transfer.formats import Line, Plain, Problem, Record, Talk, UnreadableError, meant

CHUNK_BYTES = 1 << 20
ELEMENT_CHARS = 1 << 29
"""Of one object: more than any program has written, and what would not fit into memory."""
TOO_DEEP = "it has too many brackets inside each other"
SAMPLE_LINES = 10
SAMPLE_CHARS = 1 << 24
"""Of the beginning of a file, which shows whether its objects are lines."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file to read, or one file in an archive."""

    name: str
    size_bytes: int
    open: Callable[[], IO[bytes]]


# -- files ------------------------------------------------------------------------------------------------------------

_WANTED = re.compile(r"(?:^|/)(?:conversations(?:-\d+)?\.json|[^/]+\.(?:jsonl|ndjson))$", re.IGNORECASE)
_MIRRORS = re.compile(r"(?:^|/)conversations/[^/]+\.json$", re.IGNORECASE)
"""One file for each conversation: some exports have them beside the file of all."""
_SHADOWS = re.compile(r"(?:^|/)(?:__MACOSX/|\._)")


@contextmanager
def members(path: Path) -> Iterator[list[Member]]:
    """The files to read of a file, a folder or a zip, in the order of their names.

    Raises: `InvalidRequest` when it cannot be opened or holds nothing of the kind.
    """
    try:
        if path.is_dir():
            found = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
            yield [_file(found[name], name) for name in _chosen(found, path)]
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = {entry.filename: entry for entry in archive.infolist() if not entry.is_dir()}
                chosen = [inside[name] for name in _chosen(inside, path)]
                yield [Member(e.filename, e.file_size, lambda e=e: archive.open(e)) for e in chosen]  # type: ignore[misc]
        else:
            yield [_file(path, path.name)]
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}", field="path") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # RuntimeError is how zipfile says that a password is needed.
        raise InvalidRequest(f"{path} is a damaged or locked zip file: {error}", field="path") from error


def _file(path: Path, name: str) -> Member:
    return Member(name, path.stat().st_size, lambda: path.open("rb"))


def _chosen(names: Mapping[str, object], path: Path) -> list[str]:
    seen = sorted(name for name in names if not _SHADOWS.search(name))
    chosen = [name for name in seen if _WANTED.search(name)] or [name for name in seen if _MIRRORS.search(name)]
    if not chosen:
        raise InvalidRequest(f"{path} holds no conversations.json and no .jsonl file", field="path")
    return chosen


def read(
    stream: IO[bytes], name: str = "", on_bytes: Callable[[int], None] | None = None
) -> Iterator[Talk | Record | Problem]:
    """What a file holds; nothing in a blank one. `on_bytes` is told how many bytes have been read, again and again."""
    text = _Text(stream, on_bytes or (lambda _n: None))
    where = f"{name}, " if name else ""
    plain = Plain()
    found = False
    for place, part in _parts(text):
        try:
            fields = _parsed(part)
            for each in meant(fields, where + place):
                found = True
                if isinstance(each, Line):
                    yield from plain.feed(each)
                else:
                    yield each
        except (UnreadableError, RecursionError) as error:
            found = True
            yield Problem(where + place, str(error) if isinstance(error, UnreadableError) else TOO_DEEP)
    yield from plain.close()
    if not found and not text.is_blank:
        yield Problem(name or "the file", "it holds no conversation that Shepherd knows to read")


def _parsed(text: str) -> Any:
    if len(text) > ELEMENT_CHARS:
        raise UnreadableError(f"it is longer than {ELEMENT_CHARS >> 20} million characters")
    try:
        text.encode()
        return json.loads(text)
    except UnicodeEncodeError:
        raise UnreadableError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is no JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise UnreadableError(TOO_DEEP) from None
    except ValueError:
        raise UnreadableError("it has a number of thousands of digits") from None


# -- frames: where an object begins and ends --------------------------------------------------------------------------


class _Text:
    """The text of a stream, in pieces. A byte that is no UTF-8 stays recognisable, until its object is reported."""

    def __init__(self, stream: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_bytes = on_bytes
        self._n_bytes = 0
        self._decoder: codecs.IncrementalDecoder | None = None
        self._over = False
        self.is_blank = True
        """Nothing but blanks has been read."""

    def more(self, n_bytes: int = CHUNK_BYTES) -> str:
        """Some more of it; empty at its end only."""
        while not self._over:
            raw = self._stream.read(n_bytes)
            self._n_bytes += len(raw)
            self._on_bytes(self._n_bytes)
            if self._decoder is None:
                wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # from a shell of Windows
                self._decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")(
                    "replace" if wide else "surrogateescape"
                )
            self._over = not raw
            if text := self._decoder.decode(raw, final=self._over):
                self.is_blank = self.is_blank and text.isspace()
                return text
        return ""


def _parts(text: _Text) -> Iterator[tuple[str, str]]:
    """Each object's place and text: lines of JSON Lines, elements of an array, or documents one after the other."""
    head = ""
    while not head.strip() and (more := text.more()):
        head += more
    if head.lstrip().startswith("["):
        return _cut(head, text, level=1)
    while head.count("\n") < SAMPLE_LINES and len(head) < SAMPLE_CHARS and (more := text.more(len(head))):
        head += more
    return _lines(head, text) if _is_lines(head) else _cut(head, text, level=0)


def _is_lines(head: str) -> bool:
    """Whether a file that begins so has one object on each line. A document may be written over many lines."""
    begun = [line for line in head.split("\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.startswith("{")]
    if not head.lstrip().startswith("{"):
        return True
    return begun[:1] != ["{"] and (len(begun) > 1 or any(map(_is_whole, begun)))


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _lines(head: str, text: _Text) -> Iterator[tuple[str, str]]:
    number = 0
    while True:
        *whole, head = head.split("\n")
        for line in whole:
            number += 1
            if line.strip():
                yield f"line {number}", line
        if not (more := text.more(max(CHUNK_BYTES, len(head)))):
            break
        head += more
    if head.strip():
        yield f"line {number + 1}", head


_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
"""A whole string, a bracket, or the quote of a string that goes on behind the end of what has been read."""


def _cut(buffer: str, text: _Text, *, level: int) -> Iterator[tuple[str, str]]:
    """The objects inside `level` brackets, cut out by theirs: one that is broken does not take the others along."""
    number, depth, start, at = 0, 0, 0, 0
    while True:
        for match in _BRACKET.finditer(buffer, at):
            found = match.group()
            at = match.end()
            if found in "[{":
                depth += 1
                if depth == level + 1:
                    start = match.start()
            elif found in "]}":
                depth = max(depth - 1, 0)
                if depth == level:
                    number += 1
                    yield f"entry {number}", buffer[start:at]
            elif found == '"':
                at = match.start()
                break
        else:
            at = len(buffer)
        keep = start if depth > level else at
        # Twice as much each time: what has no end yet is looked at again, and must not be looked at for each chunk.
        more = "" if len(buffer) - keep > ELEMENT_CHARS else text.more(max(CHUNK_BYTES, len(buffer) - keep))
        buffer, start, at = buffer[keep:] + more, 0, at - keep
        if not more:
            break
    if depth > level or buffer[at:].strip():
        yield f"entry {number + 1}", buffer
