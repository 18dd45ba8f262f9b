"""A model as its GGUF files describe it, read without loading the library: metadata, shapes, shards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field
from shepherd.models.gguf_file import Array, Tensor, open_file, read_file, refuse

MAX_LAYERS = 512
"""The library's own limit; it aborts the process above it."""
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)

FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0",
    41: "Q2_0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a model's file or first shard. Sizes are those of all shards together."""

    path: Path
    """The file to load: the model, or its first shard."""
    files: tuple[Path, ...]
    metadata: Mapping[str, Any] = field(repr=False)
    """Scalars and strings as they are, arrays as `Array`."""
    n_params: int
    size_bytes: int
    """Size of the tensors' data."""
    tensors: Mapping[str, Tensor] = field(repr=False)
    head_bytes: tuple[int, ...]
    """Per file, the offset of the tensors' data."""

    def digest(self) -> str:
        """A hash over the sizes and headers of all files, without the tensors' data. Raises: `ConfigError`."""
        sha = hashlib.sha256()
        for file, size in zip(self.files, self.head_bytes, strict=True):
            with open_file(file) as cursor:
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
        """Heads of the layer that has the most."""
        return max(self._per_layer("attention.head_count"), default=0)

    @property
    def n_head_kv(self) -> tuple[int, ...]:
        """Per layer; 0 for a layer that keeps no keys."""
        return self._per_layer("attention.head_count_kv", self.n_head)

    @property
    def key_length(self) -> int:
        return self._whole("attention.key_length") or (self.n_embd // self.n_head if self.n_head else 0)

    @property
    def value_length(self) -> int:
        return self._whole("attention.value_length") or (self.n_embd // self.n_head if self.n_head else 0)

    @property
    def n_ctx_train(self) -> int:
        """Tokens; 0 if the file does not say."""
        return self._whole("context_length")

    @property
    def n_vocab(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.length if isinstance(tokens, Array) else self._whole("vocab_size")

    @property
    def file_type(self) -> str | None:
        """The number format of most tensors, such as `Q4_K_M`."""
        number = self.metadata.get("general.file_type")
        # 1024 marks a type that the converter guessed.
        return FILE_TYPES.get(number & ~1024) if isinstance(number, int) else None

    @property
    def tokenizer(self) -> str | None:
        """The kind of tokenizer: `gpt2` (byte-level BPE), `llama` (SentencePiece), ..."""
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

    def value(self, key: str) -> Any:
        """A value of this architecture's metadata, or None."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def each(self, key: str, n: int, default: int = 0) -> tuple[int, ...]:
        """`n` numbers: a value repeated, or the beginning of an array. A damaged file may hold anything else: 0."""
        value = self.value(key)
        if isinstance(value, Array):  # some converters write arrays longer than the number of layers
            return tuple(item if isinstance(item, int) else 0 for item in value.first(n))
        value = default if value is None else value
        return (value if isinstance(value, int) else 0,) * n

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _whole(self, key: str) -> int:
        value = self.value(key)
        if isinstance(value, Array):
            return max(self._per_layer(key) if key != "block_count" else (), default=0)
        return value if isinstance(value, int) and value > 0 else 0

    def _per_layer(self, key: str, default: int = 0) -> tuple[int, ...]:
        return self.each(key, min(self.n_layer, MAX_LAYERS), default)


def read_header(path: Path | str) -> Header:
    """The header of a model: a file, any one of its shards, or a folder that holds one model.

    Raises: `ConfigError`, in one sentence, for every fault of the file.
    """
    first, *others = shards(Path(path))
    head = read_file(first)
    n_files = head.metadata.get("split.count", 1)
    if isinstance(n_files, int) and n_files > 1 and not others:
        refuse(first, f"is one of {n_files} parts, so its name must end in -00001-of-{n_files:05}.gguf; rename it")
    parts = [head, *map(read_file, others)]
    tensors = [pair for part in parts for pair in part.tensors.items()]
    return Header(
        path=first,
        files=(first, *others),
        metadata=head.metadata,
        n_params=sum(tensor.n_values for _, tensor in tensors),
        size_bytes=sum(tensor.n_bytes for _, tensor in tensors),
        tensors=dict(tensors),
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
        refuse(path, f"is one of {n_files} parts, and {missing[0]}{more} is not beside it; download the rest")
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
        refuse(folder, f"this folder holds several models; name one of them: {names}")
    if not found:
        refuse(folder, "this folder holds no GGUF file and no config.json; give the path of a model")
    return firsts[0] if firsts else found[0]


def is_model(file: PurePath) -> bool:
    """Whether a file name is that of a model: no image projector, no resource file of macOS."""
    name = file.name.lower()
    return name.endswith(".gguf") and not name.startswith(("._", "mmproj")) and "-mmproj" not in name


def stem(file: PurePath) -> str:
    """The name without its ending and the number of its shard: `Qwen3-8B-Q4_K_M`."""
    return re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", file.name, flags=re.IGNORECASE)


def quant(file: PurePath) -> str | None:
    """The number format in a file's name, such as `Q4_K_M`."""
    match = re.search(r"(?i)(?<![a-z0-9])((?:UD-)?(?:I?Q\d\w*|MXFP4\w*|BF16|F16|F32|TQ\d\w*))$", stem(file))
    return match[1].upper() if match else None


def labels(file: PurePath) -> tuple[str, ...]:
    """The labels, in lower case, by which a user can choose this file of a repository."""
    kind = (quant(file) or "").lower()
    return (stem(file).lower(), file.name.lower(), kind, kind.removeprefix("ud-"), file.parent.name.lower())
