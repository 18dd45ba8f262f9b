"""What a GGUF file says of itself, read without loading the library: metadata, sizes, and the memory it will need.

    file := "GGUF" version n_tensors n_pairs pair* tensor* padding data
    pair := key type value                      value := scalar | string | array of scalars or strings
    tensor := name n_dims dim* type offset      offset counts from the start of data

Nothing but the header is read, and an array (a vocabulary has 150,000 strings) is stepped over: its length is kept, its
values are decoded on demand. A file is never believed: counts and lengths are compared with the size of the file before
anything is allocated, and whatever is wrong becomes one `ConfigError` that names the file. Not here: where files are
(`catalog.py`), whether the library survives what a file says of its model (`soundness.py`, `engine/llamacpp/trial.py`).
"""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from shepherd.core import ConfigError

MAX_PAIRS = MAX_TENSORS = 1 << 16
MAX_STRINGS = 1 << 21
MAX_TEXT_BYTES = 1 << 24
"""Limits far above any model that exists, each of which costs less than a second to step through: a damaged count must
not cost minutes."""
MAX_LAYERS = 512
"""That of the library, which aborts the process at more."""
MAX_NAME_BYTES = 63
"""Of a tensor; the library refuses longer ones."""

SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)

_STRING, _ARRAY = 8, 9
_SCALARS = {
    number: (name, struct.Struct("<" + code))
    for number, (name, code) in {
        0: ("uint8", "B"),
        1: ("int8", "b"),
        2: ("uint16", "H"),
        3: ("int16", "h"),
        4: ("uint32", "I"),
        5: ("int32", "i"),
        6: ("float32", "f"),
        7: ("bool", "?"),
        10: ("uint64", "Q"),
        11: ("int64", "q"),
        12: ("float64", "d"),
    }.items()
}
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
_ROWS = {name: (per_block, size_bytes) for name, per_block, size_bytes in _TENSOR_TYPES.values()}
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0",
    41: "Q2_0",
}  # fmt: skip
_LOOKS_LIKE = (
    (b"", "is empty; download it again"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the model itself; fetch it with 'git lfs pull'"),
    (b"PK\x03\x04", "is a zip archive or a PyTorch checkpoint, not GGUF; unpack it or get the GGUF version"),
    (b"\x1f\x8b", "is a gzip archive, not GGUF; unpack it first"),
    (b"tjgg", "is in an older GGML format; get the GGUF version of the model"),
    (b"fmgg", "is in an older GGML format; get the GGUF version of the model"),
    (b"lmgg", "is in an older GGML format; get the GGUF version of the model"),
    (b"\x80\x02", "is a PyTorch checkpoint, not GGUF; get the GGUF version of the model"),
    (b"<", "is a web page, not GGUF; the download was probably refused: download it again"),
    (b"{", "is JSON, not GGUF; choose the model file itself"),
    (b"\0\0\0\0", "begins with zeros, as an unfinished download does; download it again"),
)


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the metadata that has not been decoded."""

    kind: str
    """Of its elements: `string`, `int32`, ..."""
    length: int
    path: Path = field(repr=False)
    offset: int = field(repr=False)

    def values(self) -> tuple[Any, ...]:
        """Decode it from the file. O(length). Raises: `ConfigError` when the file has changed."""
        return self.first(self.length)

    def first(self, count: int) -> tuple[Any, ...]:
        """At most `count` values from its start."""
        with _open(self.path) as cursor:
            cursor.at = self.offset
            return tuple(cursor.elements(self.kind, min(count, self.length)))

    def texts(self) -> list[bytes]:
        """The texts of an array of texts, not decoded: three times as fast as `values`."""
        with _open(self.path) as cursor:
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
    """What a file says of one tensor."""

    kind: str | None
    """Its number format; None = newer than our table."""
    dims: tuple[int, ...]
    """The length of a row first."""
    n_values: int
    n_bytes: int
    """0 where the format is not known."""
    offset: int
    """From the start of the data."""


@dataclass(frozen=True, slots=True)
class RopeScaling:
    type: str
    factor: float
    n_ctx_original: int | None


@dataclass(frozen=True, slots=True)
class Header:
    """What a model's file, or its first shard, says; sizes are those of all shards together."""

    path: Path
    """What the library is to load: the file, or the first shard."""
    files: tuple[Path, ...]
    version: int
    metadata: Mapping[str, Any] = field(repr=False)
    """Scalars and texts as they are, arrays as `Array`."""
    n_tensors: int
    n_params: int
    size_bytes: int
    """Of the tensors' data."""
    tensors: Mapping[str, Tensor] = field(repr=False)
    """By name, those of all files."""
    head_bytes: tuple[int, ...]
    """Per file, what stands before the tensors' data."""

    def digest(self) -> str:
        """A name for everything but the tensors' data: the sizes of the files and their headers, read again.

        Raises: `ConfigError` when a file has gone.
        """
        sha = hashlib.sha256()
        for file, size in zip(self.files, self.head_bytes, strict=True):
            with _open(file) as cursor:
                sha.update(len(cursor.content).to_bytes(8, "little"))
                sha.update(memoryview(cursor.content)[:size])
        return sha.hexdigest()[:32]

    @property
    def architecture(self) -> str:
        return self._text("general.architecture") or ""

    @property
    def name(self) -> str | None:
        return self._text("general.name")

    @property
    def n_layer(self) -> int:
        return self._whole("block_count")

    @property
    def n_embd(self) -> int:
        return self._whole("embedding_length")

    @property
    def n_head(self) -> int:
        """Of the layer that has most."""
        return max(self._per_layer("attention.head_count", 0), default=0)

    @property
    def n_head_kv(self) -> tuple[int, ...]:
        """Per layer; 0 where a layer keeps no keys."""
        return self._per_layer("attention.head_count_kv", self.n_head)

    @property
    def key_length(self) -> int:
        return self._whole("attention.key_length") or (self.n_embd // self.n_head if self.n_head else 0)

    @property
    def value_length(self) -> int:
        return self._whole("attention.value_length") or (self.n_embd // self.n_head if self.n_head else 0)

    @property
    def n_ctx_train(self) -> int:
        """0 when the file does not say."""
        return self._whole("context_length")

    @property
    def n_vocab(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, Array) else self._whole("vocab_size")

    @property
    def file_type(self) -> str | None:
        """Such as `Q4_K_M`: what most tensors are."""
        number = self.metadata.get("general.file_type")
        # 1024 marks a type that the converter guessed.
        return _FILE_TYPES.get(number & ~1024) if isinstance(number, int) else None

    @property
    def tokenizer(self) -> str | None:
        """Its kind: `gpt2` (byte-level BPE), `llama` (SentencePiece), ..."""
        return self._text("tokenizer.ggml.model")

    @property
    def chat_template(self) -> str | None:
        return self._text("tokenizer.chat_template")

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """The templates for special cases, by name, such as `tool_use`."""
        start = "tokenizer.chat_template."
        return {
            key.removeprefix(start): text
            for key, text in self.metadata.items()
            if key.startswith(start) and isinstance(text, str)
        }

    @property
    def rope_scaling(self) -> RopeScaling | None:
        kind = self._text(f"{self.architecture}.rope.scaling.type")
        if kind in (None, "none"):
            return None
        factor = self.metadata.get(f"{self.architecture}.rope.scaling.factor")
        original = self._whole("rope.scaling.original_context_length")
        return RopeScaling(str(kind), float(factor) if isinstance(factor, (int, float)) else 1.0, original or None)

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _whole(self, key: str) -> int:
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, Array):
            return max(self._per_layer(key, 0), default=0)
        return value if isinstance(value, int) and value > 0 else 0

    def _per_layer(self, key: str, default: int) -> tuple[int, ...]:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        n_layer = min(self.n_layer, MAX_LAYERS) if key != "block_count" else 0
        if isinstance(value, Array):
            # Some converters write arrays longer than the model is deep; a damaged file may write anything.
            return tuple(item if isinstance(item, int) else 0 for item in value.first(n_layer))
        return (value if isinstance(value, int) else 0,) * n_layer


def read_header(path: Path | str) -> Header:
    """The header of a model: a file, any one of its shards, or a folder that holds one model.

    Raises: `ConfigError` in one sentence, whatever is wrong with the file.
    """
    first, *others = shards(Path(path))
    head = _read_one(first)
    n_files = head.metadata.get("split.count", 1)
    if isinstance(n_files, int) and n_files > 1 and not others:
        _refuse(first, f"is one of {n_files} parts, so its name must end in -00001-of-{n_files:05}.gguf; rename it")
    parts = [head, *map(_read_one, others)]
    return Header(
        path=first,
        files=(first, *others),
        version=head.version,
        metadata=head.metadata,
        n_tensors=sum(part.n_tensors for part in parts),
        n_params=sum(part.n_params for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        tensors={name: tensor for part in parts for name, tensor in part.tensors.items()},
        head_bytes=tuple(part.head_bytes for part in parts),
    )


def shards(path: Path) -> tuple[Path, ...]:
    """All files of the model that `path` belongs to, in order. Raises: `ConfigError` when one is missing."""
    path = in_folder(path) if path.is_dir() else path
    match = SHARD.search(path.name)
    n_files = int(match[2]) if match else 1
    if match is None or not 1 <= n_files <= 9999:
        return (path,)
    names = [f"{path.name[: match.start()]}-{index:05}-of-{match[2]}.gguf" for index in range(1, n_files + 1)]
    found = tuple(path.with_name(name) for name in names)
    missing = [file.name for file in found if not file.is_file()]
    if missing and path.is_file():
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        _refuse(path, f"is one of {n_files} parts, and {missing[0]}{more} is not beside it; download the rest")
    return found if not missing else (path,)


def in_folder(folder: Path) -> Path:
    """The model in a folder: its first shard, else the only GGUF. Raises: `ConfigError` for none or several."""
    try:
        found = sorted(file for file in folder.iterdir() if is_model(file))
    except OSError as error:
        raise ConfigError(f"this folder cannot be read: {error.strerror}", file=str(folder)) from error
    firsts = [file for file in found if (match := SHARD.search(file.name)) is None or int(match[1]) == 1]
    if len(firsts) > 1:
        names = ", ".join(file.name for file in firsts[:8])
        _refuse(folder, f"this folder holds several models; name one of them: {names}")
    if not found:
        _refuse(folder, "this folder holds no GGUF file; give the path of a model")
    return firsts[0] if firsts else found[0]


def is_model(file: Path) -> bool:
    """Whether a name is that of a model: not a projector for images, nor what macOS leaves beside files."""
    name = file.name.lower()
    return name.endswith(".gguf") and not name.startswith(("._", "mmproj")) and "-mmproj" not in name


def kv_bytes(header: Header, n_ctx: int, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes of the KV cache of one context of `n_ctx` tokens.

    Exact for plain attention. An upper bound for sliding windows, whose layers keep a window only, and for recurrent
    layers, which keep a state of a fixed size instead.

    Raises: `ConfigError` for a type that no cache can have.
    """
    # Both lengths may need the heads of every layer: asked once, not once for each layer.
    key_length, value_length = header.key_length, header.value_length
    return n_ctx * sum(
        _row_bytes(heads * key_length, type_k) + _row_bytes(heads * value_length, type_v) for heads in header.n_head_kv
    )


def memory_needed(header: Header, n_ctx: int, type_k: str = "f16", type_v: str = "f16", *, n_ubatch: int = 512) -> int:
    """Bytes for weights, one context, and (roughly) the buffers of a computation of `n_ubatch` tokens."""
    buffers = 4 * n_ubatch * (header.n_vocab + 16 * header.n_embd)
    return header.size_bytes + kv_bytes(header, n_ctx, type_k, type_v) + buffers


def _row_bytes(n_values: int, kind: str) -> int:
    if kind not in CACHE_TYPES:
        raise ConfigError(f"no cache can have the type {kind!r}; choose one of {', '.join(CACHE_TYPES)}")
    per_block, size_bytes = _ROWS[kind]
    return -(-n_values // per_block) * size_bytes


# Reading


@dataclass(slots=True)
class _Cursor:
    """Steps through the bytes of one file and never past their end."""

    path: Path
    content: mmap.mmap
    at: int = 0

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.content.close()

    def room(self, n_bytes: int, what: str) -> None:
        if self.at + n_bytes > len(self.content):
            _refuse(
                self.path,
                f"ends in the middle of its {what} ({len(self.content)} bytes); it is truncated or damaged: "
                "download it again",
            )

    def scalar(self, number: int, what: str) -> Any:
        layout = _SCALARS[number][1]
        self.room(layout.size, what)
        (value,) = layout.unpack_from(self.content, self.at)
        self.at += layout.size
        return value

    def text(self, what: str) -> str:
        size = self.scalar(10, what)
        if size > MAX_TEXT_BYTES:
            _refuse(self.path, f"has a text of {size} bytes in its {what}; it is damaged: download it again")
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
            _refuse(self.path, f"has metadata of the unknown type {number}; it is damaged, or newer than Shepherd")
        return self.scalar(number, "metadata")

    def array(self) -> Array:
        """Step over an array."""
        number, length = self.scalar(4, "metadata"), self.scalar(10, "metadata")
        if number not in _SCALARS and number != _STRING:
            _refuse(self.path, f"has an array of the unknown type {number}; it is damaged, or newer than Shepherd")
        kind, size = ("string", 8) if number == _STRING else (_SCALARS[number][0], _SCALARS[number][1].size)
        if length > MAX_STRINGS and number == _STRING:
            _refuse(self.path, f"has an array of {length} texts; it is damaged: download it again")
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
    """Where an array of texts ends; past the end of `content` if it is damaged."""
    size_at = _SCALARS[10][1].unpack_from
    try:
        for _ in range(length):
            at += 8 + size_at(content, at)[0]
    except (struct.error, OverflowError):  # the jump before this one left the file
        return max(at, len(content) + 1)
    return at


@dataclass(frozen=True, slots=True)
class _Part:
    """One file."""

    version: int
    metadata: Mapping[str, Any]
    n_tensors: int
    n_params: int
    size_bytes: int
    tensors: Mapping[str, Tensor]
    head_bytes: int


def _read_one(path: Path) -> _Part:
    with _open(path) as cursor:
        _check_magic(cursor)
        cursor.at = 4
        version = cursor.scalar(4, "first bytes")
        if version & 0xFFFF == 0:
            _refuse(path, "is a big-endian GGUF file, which this machine cannot use; get the little-endian one")
        if version not in (2, 3):
            _refuse(
                path, f"has version {version} of the GGUF format, but 2 and 3 are supported; get another conversion"
            )
        n_tensors, n_pairs = cursor.scalar(10, "first bytes"), cursor.scalar(10, "first bytes")
        if n_pairs > MAX_PAIRS or n_tensors > MAX_TENSORS:
            _refuse(path, f"claims {n_tensors} tensors and {n_pairs} metadata keys; it is damaged: download it again")
        metadata = _pairs(cursor, n_pairs)
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            _refuse(path, f"has the alignment {alignment!r}, no power of two; it is damaged: download it again")
        tensors = _tensors(cursor, n_tensors)
        end = _place(path, tensors, alignment)
        needed = -(-cursor.at // alignment) * alignment + end if end else 0
        if needed > len(cursor.content):
            _refuse(
                path,
                f"has {len(cursor.content)} bytes, but its tensors need {needed}; the download is not complete: "
                "resume it or start again",
            )
    return _Part(
        version,
        metadata,
        n_tensors,
        n_params=sum(tensor.n_values for tensor in tensors.values()),
        size_bytes=sum(tensor.n_bytes for tensor in tensors.values()),
        tensors=tensors,
        head_bytes=cursor.at,
    )


def _pairs(cursor: _Cursor, n_pairs: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(n_pairs):
        key = cursor.text("metadata")
        if not key or key in metadata:
            what = f"the key {key[:80]!r} twice" if key else "a key without a name"
            _refuse(cursor.path, f"has {what} in its metadata; it is damaged: download it again")
        metadata[key] = cursor.value()
    return metadata


def _tensors(cursor: _Cursor, n_tensors: int) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for _ in range(n_tensors):
        name = cursor.text("list of tensors")
        if name in tensors:
            _refuse(cursor.path, f"has two tensors called {name[:80]!r}; it is damaged: download it again")
        if len(name.encode()) > MAX_NAME_BYTES:
            _refuse(
                cursor.path,
                f"has a tensor whose name is longer than {MAX_NAME_BYTES} bytes, {name[:80]!r}; it is damaged",
            )
        tensors[name] = _tensor(cursor, name)
    return tensors


def _tensor(cursor: _Cursor, name: str) -> Tensor:
    """What stands behind the name of a tensor."""
    n_dims = cursor.scalar(4, "list of tensors")
    if n_dims > 4:
        _refuse(cursor.path, f"has a tensor of {n_dims} dimensions; it is damaged: download it again")
    dims = tuple(cursor.scalar(10, "list of tensors") for _ in range(n_dims))
    number, offset = cursor.scalar(4, "list of tensors"), cursor.scalar(10, "list of tensors")
    n_values = prod(dims)
    if max((n_values, *dims)) >= 1 << 63:
        _refuse(cursor.path, f"has the dimensions {dims} in the tensor {name[:80]!r}; it is damaged: download it again")
    # A type that is newer than this table has a size that only the library knows.
    if number not in _TENSOR_TYPES:
        return Tensor(None, dims, n_values, 0, offset)
    kind, per_block, size_bytes = _TENSOR_TYPES[number]
    row = dims[0] if dims else 1
    if row % per_block:
        _refuse(
            cursor.path,
            f"has {row} values in a row of the tensor {name[:80]!r}, no multiple of {per_block}; it is damaged: "
            "download it again",
        )
    return Tensor(kind, dims, n_values, n_values // per_block * size_bytes, offset)


def _place(path: Path, tensors: Mapping[str, Tensor], alignment: int) -> int:
    """Where the data of the last tensor ends. Raises: `ConfigError` where they do not lie one behind the other."""
    place: int | None = 0
    end = 0
    for name, tensor in tensors.items():
        if place is not None and tensor.offset != place:
            _refuse(
                path,
                f"has the tensor {name[:80]!r} at offset {tensor.offset}, where {place} is next; it is damaged: "
                "download it again",
            )
        end = max(end, tensor.offset + tensor.n_bytes)
        place = None if tensor.kind is None else tensor.offset + -(-tensor.n_bytes // alignment) * alignment
    return end


def _open(path: Path) -> _Cursor:
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
        _refuse(path, "is empty; download it again")
    return _Cursor(path, content)


def _check_magic(cursor: _Cursor) -> None:
    start = cursor.content[:64]
    if start[:4] == b"GGUF":
        return
    if start[8:10] == b'{"':
        _refuse(cursor.path, "is in the safetensors format, not GGUF; get the GGUF version of the model")
    shape = next((says for magic, says in _LOOKS_LIKE if magic and start.lstrip(b" \t\r\n").startswith(magic)), None)
    _refuse(cursor.path, shape or "is not a GGUF file; choose a model file whose name ends in .gguf")


def _refuse(path: Path, message: str) -> NoReturn:
    raise ConfigError(message, file=str(path))
