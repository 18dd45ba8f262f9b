"""Opens files to import, and splits them into JSON objects, each of which `formats.py` reads.

    file, folder, zip ─▶ `members` ─▶ objects: a line, or an element of an array ─▶ `read_object` ─▶ items

Files are read in chunks, since an export may be larger than the machine's memory. An object that cannot be read becomes
an `ImportProblem` with its place; reading continues with the next one.
"""

from __future__ import annotations

import codecs
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.core.encoding import json_fault
from shepherd.memory.transfer.formats import LooseMessages, read_object
from shepherd.memory.transfer.items import ImportedConversation, ImportProblem, Items, UnreadableError

CHUNK_BYTES = 1 << 20
ELEMENT_CHARS = 1 << 29
"""Of one object: above what any program has written, and below what fits into memory."""
TOO_DEEP = "its brackets are nested too deep"
SAMPLE_LINES = 10
SAMPLE_CHARS = 1 << 24
"""Of the beginning of a file, which shows whether its objects are lines."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    size_bytes: int
    open: Callable[[], IO[bytes]]


# -- files ------------------------------------------------------------------------------------------------------------

_WANTED = re.compile(r"(?:^|/)(?:conversations(?:-\d+)?\.json|[^/]+\.(?:jsonl|ndjson))$", re.IGNORECASE)
_MIRRORS = re.compile(r"(?:^|/)conversations/[^/]+\.json$", re.IGNORECASE)
"""One file for each conversation. Some exports have them beside the file of all conversations."""
_SHADOWS = re.compile(r"(?:^|/)(?:__MACOSX/|\._)")


@contextmanager
def members(path: Path) -> Iterator[list[Member]]:
    """The files to read of a file, a folder or a zip, in the order of their names. Raises: `InvalidRequest`."""
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
        # zipfile raises RuntimeError when a password is needed.
        raise InvalidRequest(f"{path} is a damaged zip file or needs a password: {error}", field="path") from error


def _file(path: Path, name: str) -> Member:
    return Member(name, path.stat().st_size, lambda: path.open("rb"))


def _chosen(names: Mapping[str, object], path: Path) -> list[str]:
    seen = sorted(name for name in names if not _SHADOWS.search(name))
    chosen = [name for name in seen if _WANTED.search(name)] or [name for name in seen if _MIRRORS.search(name)]
    if not chosen:
        raise InvalidRequest(f"{path} holds no conversations.json and no .jsonl file", field="path")
    return chosen


def read(stream: IO[bytes], name: str = "", on_bytes: Callable[[int], None] | None = None) -> Items:
    """What a file holds; nothing for a blank one. `on_bytes` gets how many bytes have been read, after each chunk."""
    text = _TextStream(stream, on_bytes or (lambda _n: None))
    where = f"{name}, " if name else ""
    loose = LooseMessages()
    found = False
    for place, part in _objects(text):
        try:
            for each in read_object(_parsed(part), where + place):
                found = True
                if isinstance(each, ImportedConversation) and each.is_loose:
                    yield from loose.add(each)
                else:
                    yield each
        except (UnreadableError, RecursionError) as error:
            found = True
            yield ImportProblem(where + place, str(error) if isinstance(error, UnreadableError) else TOO_DEEP)
    yield from loose.close()
    if not found and not text.is_blank:
        yield ImportProblem(name or "the file", "it holds no conversation in a known format")


def _parsed(text: str) -> Any:
    if len(text) > ELEMENT_CHARS:
        raise UnreadableError(f"it is longer than {ELEMENT_CHARS >> 20} million characters")
    try:
        text.encode()
        return json.loads(text)
    except UnicodeEncodeError:
        raise UnreadableError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"it is not JSON ({json_fault(error)} at character {error.pos + 1})") from None
    except RecursionError:
        raise UnreadableError(TOO_DEEP) from None
    except ValueError:
        raise UnreadableError("it has a number with thousands of digits") from None


# -- where an object begins and ends ----------------------------------------------------------------------------------


class _TextStream:
    """The text of a stream, in chunks. Bytes that are not UTF-8 become surrogates, which `_parsed` reports."""

    def __init__(self, stream: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_bytes = on_bytes
        self._n_bytes = 0
        self._decoder: codecs.IncrementalDecoder | None = None
        self._at_end = False
        self.is_blank = True
        """Only white space has been read."""

    def more(self, n_bytes: int = CHUNK_BYTES) -> str:
        """The next chunk; empty at the end only."""
        while not self._at_end:
            raw = self._stream.read(n_bytes)
            self._n_bytes += len(raw)
            self._on_bytes(self._n_bytes)
            if self._decoder is None:
                wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # written by a Windows shell
                self._decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")(
                    "replace" if wide else "surrogateescape"
                )
            self._at_end = not raw
            if text := self._decoder.decode(raw, final=self._at_end):
                self.is_blank = self.is_blank and text.isspace()
                return text
        return ""


def _objects(text: _TextStream) -> Iterator[tuple[str, str]]:
    """Place and text of each object: a line of JSON Lines, an element of an array, or one of several documents."""
    head = ""
    while not head.strip() and (more := text.more()):
        head += more
    if head.lstrip().startswith("["):
        return _split_json(head, text, level=1)
    while head.count("\n") < SAMPLE_LINES and len(head) < SAMPLE_CHARS and (more := text.more(len(head))):
        head += more
    return _split_lines(head, text) if _is_lines(head) else _split_json(head, text, level=0)


def _is_lines(head: str) -> bool:
    """Whether a file with this beginning has one object on each line, rather than a document on many lines."""
    begun = [line for line in head.split("\n", SAMPLE_LINES)[:SAMPLE_LINES] if line.startswith("{")]
    if not head.lstrip().startswith("{"):
        return True
    return begun[:1] != ["{"] and (len(begun) > 1 or any(map(_is_whole, begun)))


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _split_lines(head: str, text: _TextStream) -> Iterator[tuple[str, str]]:
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
"""A whole string, a bracket, or the opening quote of a string whose end has not been read yet."""


def _split_json(buffer: str, text: _TextStream, *, level: int) -> Iterator[tuple[str, str]]:
    """The objects inside `level` brackets, found by their own brackets: a broken one does not spoil the others."""
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
        # Read twice as much each time: an unfinished object is scanned again, which must not happen for every chunk.
        more = "" if len(buffer) - keep > ELEMENT_CHARS else text.more(max(CHUNK_BYTES, len(buffer) - keep))
        buffer, start, at = buffer[keep:] + more, 0, at - keep
        if not more:
            break
    if depth > level or buffer[at:].strip():
        yield f"entry {number + 1}", buffer
