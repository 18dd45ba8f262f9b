"""The GGUF format: the header of one file, read from its bytes and never past their end.

    file := "GGUF" version n_tensors n_pairs pair* tensor* padding data
    pair := key type value                      value := scalar | string | array of scalars or strings
    tensor := name n_dims dim* type offset      offset counts from the start of data

An array (a vocabulary has 150,000 strings) is stepped over: its length is kept, its values are decoded on demand. No
count or length is trusted: each is compared with the size of the file before anything is allocated, and every fault
becomes one `ConfigError` that names the file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field

MAX_PAIRS = MAX_TENSORS = 1 << 16
MAX_STRINGS = 1 << 21
MAX_TEXT_BYTES = 1 << 24
"""Far above any real model; stepping through each takes less than a second, so a damaged count cannot cost minutes."""
MAX_NAME_BYTES = 63
"""Of the name of a tensor; the library refuses longer names."""

_STRING, _ARRAY = 8, 9
_SCALARS = {
    number: (name, struct.Struct("<" + code))
    for number, name, code in (
        (0, "uint8", "B"), (1, "int8", "b"), (2, "uint16", "H"), (3, "int16", "h"), (4, "uint32", "I"),
        (5, "int32", "i"), (6, "float32", "f"), (7, "bool", "?"), (10, "uint64", "Q"), (11, "int64", "q"),
        (12, "float64", "d"),
    )
}  # fmt: skip
_TENSOR_TYPES = {
    number: (name, per_block, size_bytes)
    for name, number, per_block, size_bytes in (
        ("f32", 0, 1, 4), ("f16", 1, 1, 2), ("q4_0", 2, 32, 18), ("q4_1", 3, 32, 20), ("q5_0", 6, 32, 22),
        ("q5_1", 7, 32, 24), ("q8_0", 8, 32, 34), ("q8_1", 9, 32, 40), ("q2_K", 10, 256, 84), ("q3_K", 11, 256, 110),
        ("q4_K", 12, 256, 144), ("q5_K", 13, 256, 176), ("q6_K", 14, 256, 210), ("q8_K", 15, 256, 292),
        ("iq2_xxs", 16, 256, 66), ("iq2_xs", 17, 256, 74), ("iq3_xxs", 18, 256, 98), ("iq1_s", 19, 256, 50),
        ("iq4_nl", 20, 32, 18), ("iq3_s", 21, 256, 110), ("iq2_s", 22, 256, 82), ("iq4_xs", 23, 256, 136),
        ("i8", 24, 1, 1), ("i16", 25, 1, 2), ("i32", 26, 1, 4), ("i64", 27, 1, 8), ("f64", 28, 1, 8),
        ("iq1_m", 29, 256, 56), ("bf16", 30, 1, 2), ("tq1_0", 34, 256, 54), ("tq2_0", 35, 256, 66),
        ("mxfp4", 39, 32, 17), ("nvfp4", 40, 64, 36), ("q1_0", 41, 128, 18),
    )
}  # fmt: skip
"""ggml's number of a type -> name, elements per block, bytes per block."""
BLOCKS = {name: (per_block, size_bytes) for name, per_block, size_bytes in _TENSOR_TYPES.values()}
"""Name of a type -> elements per block, bytes per block."""
NUMBERS = {name: number for number, (name, _, _) in _TENSOR_TYPES.items()}
"""Name of a type -> ggml's number of it."""
_LOOKS_LIKE: tuple[tuple[bytes | tuple[bytes, ...], str], ...] = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the model itself; fetch it with 'git lfs pull'"),
    (b"PK\x03\x04", "is a zip archive or a PyTorch checkpoint, not GGUF; unpack it or get the GGUF version"),
    (b"\x1f\x8b", "is a gzip archive, not GGUF; unpack it first"),
    ((b"tjgg", b"fmgg", b"lmgg"), "is in an older GGML format; get the GGUF version of the model"),
    (b"\x80\x02", "is a PyTorch checkpoint, not GGUF; get the GGUF version of the model"),
    (b"<", "is a web page, not GGUF; the download was probably refused: download it again"),
    (b"{", "is JSON, not GGUF; choose the model file itself"),
    (b"\0\0\0\0", "begins with zeros, as an unfinished download does; download it again"),
)


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the metadata, not decoded yet."""

    kind: str
    """Type of the elements: `string`, `int32`, ..."""
    length: int
    path: Path = field(repr=False)
    offset: int = field(repr=False)

    def values(self) -> tuple[Any, ...]:
        """Decode all values from the file. O(length). Raises: `ConfigError` when the file has changed."""
        return self.first(self.length)

    def first(self, count: int) -> tuple[Any, ...]:
        """At most `count` values from its start."""
        with open_file(self.path) as cursor:
            cursor.at = self.offset
            return tuple(cursor.elements(self.kind, min(count, self.length)))

    def texts(self) -> list[bytes]:
        """The elements of an array of strings as bytes; three times as fast as `values`."""
        with open_file(self.path) as cursor:
            content, at, size_at = cursor.content, self.offset, _SCALARS[10][1].unpack_from
            found = []
            try:
                for _ in range(self.length):
                    start = at + 8
                    at = start + size_at(content, at)[0]
                    found.append(content[start:at])
            except (struct.error, OverflowError):
                cursor.room(len(content), "metadata")
            return found


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor, as the file describes it."""

    kind: str | None
    """Number format; None = newer than our table."""
    dims: tuple[int, ...]
    """The row length comes first."""
    n_values: int
    n_bytes: int
    """0 if the format is not known."""
    offset: int
    """From the start of the tensors' data."""


@dataclass(slots=True)
class Cursor:
    """Reads the bytes of one file in order. Every method raises `ConfigError` at the end of the file."""

    path: Path
    content: mmap.mmap
    at: int = 0

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.content.close()

    def room(self, n_bytes: int, what: str) -> None:
        if self.at + n_bytes > len(self.content):
            self.damaged(f"ends in the middle of its {what} ({len(self.content)} bytes)", "truncated or damaged")

    def damaged(self, fault: str, how: str = "damaged") -> NoReturn:
        refuse(self.path, f"{fault}; it is {how}: download it again")

    def scalar(self, number: int, what: str) -> Any:
        layout = _SCALARS[number][1]
        self.room(layout.size, what)
        (value,) = layout.unpack_from(self.content, self.at)
        self.at += layout.size
        return value

    def text(self, what: str) -> str:
        size = self.scalar(10, what)
        if size > MAX_TEXT_BYTES:
            self.damaged(f"has a text of {size} bytes in its {what}")
        self.room(size, what)
        self.at += size
        return self.content[self.at - size : self.at].decode("utf-8", "replace")

    def value(self) -> Any:
        number = self.scalar(4, "metadata")
        if number == _STRING:
            return self.text("metadata")
        if number == _ARRAY:
            return self.array()
        if number not in _SCALARS:
            refuse(self.path, f"has metadata of the unknown type {number}; it is damaged, or newer than Shepherd")
        return self.scalar(number, "metadata")

    def array(self) -> Array:
        """Skip an array; its values can be decoded later."""
        number, length = self.scalar(4, "metadata"), self.scalar(10, "metadata")
        if number not in _SCALARS and number != _STRING:
            refuse(self.path, f"has an array of the unknown type {number}; it is damaged, or newer than Shepherd")
        kind, size = ("string", 8) if number == _STRING else (_SCALARS[number][0], _SCALARS[number][1].size)
        if length > MAX_STRINGS and number == _STRING:
            self.damaged(f"has an array of {length} texts")
        self.room(length * size, "metadata")
        array = Array(kind, length, self.path, self.at)
        if number == _STRING:
            self.at = _past_strings(self.content, self.at, length)
            self.room(0, "metadata")
        else:
            self.at += length * size
        return array

    def elements(self, kind: str, length: int) -> Iterator[Any]:
        number = next((number for number, (name, _) in _SCALARS.items() if name == kind), _STRING)
        for _ in range(length):
            yield self.text("metadata") if number == _STRING else self.scalar(number, "metadata")


def _past_strings(content: mmap.mmap, at: int, length: int) -> int:
    """The offset behind an array of strings; beyond the end of `content` if the array is damaged."""
    size_at = _SCALARS[10][1].unpack_from
    try:
        for _ in range(length):
            at += 8 + size_at(content, at)[0]
    except (struct.error, OverflowError):  # the jump before this one left the file
        return max(at, len(content) + 1)
    return at


class FileHeader(NamedTuple):
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    head_bytes: int


def read_file(path: Path) -> FileHeader:
    """The header of one GGUF file. Raises: `ConfigError`, in one sentence."""
    with open_file(path) as cursor:
        _check_magic(cursor)
        cursor.at = 4
        version = cursor.scalar(4, "first bytes")
        if version & 0xFFFF == 0:
            refuse(path, "is a big-endian GGUF file, which this machine cannot use; get the little-endian one")
        if version not in (2, 3):
            refuse(path, f"has version {version} of the GGUF format, but 2 and 3 are supported; get another conversion")
        n_tensors, n_pairs = cursor.scalar(10, "first bytes"), cursor.scalar(10, "first bytes")
        if n_pairs > MAX_PAIRS or n_tensors > MAX_TENSORS:
            cursor.damaged(f"claims {n_tensors} tensors and {n_pairs} metadata keys")
        metadata = _pairs(cursor, n_pairs)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            cursor.damaged(f"has the alignment {alignment!r}, no power of two")
        tensors = _tensors(cursor, n_tensors)
        end = _place(cursor, tensors, alignment)
        needed = -(-cursor.at // alignment) * alignment + end if end else 0
        if needed > len(cursor.content):
            refuse(
                path,
                f"has {len(cursor.content)} bytes, but its tensors need {needed}; the download is not complete: "
                "resume it or start again",
            )
    return FileHeader(metadata, tensors, cursor.at)


def _pairs(cursor: Cursor, n_pairs: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(n_pairs):
        key = cursor.text("metadata")
        if not key or key in metadata:
            what = f"the key {key[:80]!r} twice" if key else "a key without a name"
            cursor.damaged(f"has {what} in its metadata")
        metadata[key] = cursor.value()
    return metadata


def _tensors(cursor: Cursor, n_tensors: int) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for _ in range(n_tensors):
        name = cursor.text("list of tensors")
        if name in tensors:
            cursor.damaged(f"has two tensors called {name[:80]!r}")
        if len(name.encode()) > MAX_NAME_BYTES:
            cursor.damaged(f"has a tensor whose name is longer than {MAX_NAME_BYTES} bytes, {name[:80]!r}")
        tensors[name] = _tensor(cursor, name)
    return tensors


def _tensor(cursor: Cursor, name: str) -> Tensor:
    n_dims = cursor.scalar(4, "list of tensors")
    if n_dims > 4:
        cursor.damaged(f"has a tensor of {n_dims} dimensions")
    dims = tuple(cursor.scalar(10, "list of tensors") for _ in range(n_dims))
    number, offset = cursor.scalar(4, "list of tensors"), cursor.scalar(10, "list of tensors")
    n_values = prod(dims)
    if max((n_values, *dims)) >= 1 << 63:
        cursor.damaged(f"has the dimensions {dims} in the tensor {name[:80]!r}")
    # A type that is newer than this table has a size that only the library knows.
    kind, per_block, size_bytes = _TENSOR_TYPES.get(number, (None, 1, 0))
    row = dims[0] if dims else 1
    if row % per_block:
        cursor.damaged(f"has {row} values in a row of the tensor {name[:80]!r}, no multiple of {per_block}")
    return Tensor(kind, dims, n_values, n_values // per_block * size_bytes, offset)


def _place(cursor: Cursor, tensors: Mapping[str, Tensor], alignment: int) -> int:
    """The offset where the tensors' data ends. Raises: `ConfigError` if the tensors are not contiguous."""
    place: int | None = 0
    end = 0
    for name, tensor in tensors.items():
        if place is not None and tensor.offset != place:
            cursor.damaged(f"has the tensor {name[:80]!r} at offset {tensor.offset}, where {place} is next")
        end = max(end, tensor.offset + tensor.n_bytes)
        place = None if tensor.kind is None else tensor.offset + -(-tensor.n_bytes // alignment) * alignment
    return end


def open_file(path: Path) -> Cursor:
    """Open a model file, which the caller closes by `with`. Raises: `ConfigError`."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else mmap.mmap(-1, 1)
    except FileNotFoundError as error:
        raise ConfigError("this model file does not exist; check the path", file=str(path)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"this model file cannot be read: {reason}", file=str(path)) from error
    if not size:
        content.close()
        refuse(path, "is empty; download it again")
    return Cursor(path, content)


def _check_magic(cursor: Cursor) -> None:
    start = cursor.content[:64]
    if start[:4] == b"GGUF":
        return
    if start[8:10] == b'{"':
        refuse(cursor.path, "is in the safetensors format, not GGUF; get the GGUF version of the model")
    shape = next((says for magic, says in _LOOKS_LIKE if start.lstrip(b" \t\r\n").startswith(magic)), None)
    refuse(cursor.path, shape or "is not a GGUF file; choose a model file whose name ends in .gguf")


def refuse(path: Path, message: str) -> NoReturn:
    raise ConfigError(message, file=str(path))
