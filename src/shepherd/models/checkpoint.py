"""A model as its directory describes it, read without loading a library: for TensorRT-LLM, which runs no GGUF files.

Two kinds: an *engine* that `trtllm-build` made (`rankN.engine`, one file per GPU), and a Hugging Face *checkpoint*
(`*.safetensors`). Nothing in a file is trusted: each fault is one `ConfigError` that names the file, the field and the
cure.
"""

from __future__ import annotations

import errno
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field
from shepherd.models import gguf

CONFIG, TOKENIZER, TEMPLATE = "config.json", "tokenizer.json", "chat_template.jinja"
MAX_JSON_BYTES = 64 << 20
"""Of one JSON file; the largest real one lists the tensors of a model of a trillion parameters, in 15 MB."""
MAX_TEMPLATE_BYTES = 4 << 20
MAX_RANKS = 1024
"""Of one model; the largest real ones use a few dozen."""
MAX_TOKENS = 1 << 24
"""Of a vocabulary or a context."""
WRITES = re.compile(r"ForCausalLM$|ForConditionalGeneration$|LMHeadModel$")
"""The ends of the names of architectures that write text."""
POINTER = b"version https://git-lfs"
RANK = re.compile(r"rank(\d{1,5})\.engine")
AGAIN = "download it again"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a directory states about its model. It has the names of `gguf.Header` where it states the same."""

    path: Path
    kind: Literal["engine", "checkpoint"]
    architecture: str
    """Such as `Qwen3ForCausalLM`."""
    family: str
    """Its `model_type`, such as `qwen3`."""
    n_ctx_train: int
    """Tokens: what an engine was built for, or a checkpoint was trained for; 0 if it does not say."""
    n_vocab: int
    """At least so many tokens; 0 if it does not say."""
    files: tuple[Path, ...]
    size_bytes: int
    """Of the weights."""
    file_type: str | None
    """The number format of the weights, such as `FP8`, or `bfloat16`."""
    mapping: tuple[int, int, int] = (1, 1, 1)
    """Tensor, pipeline and context parallelism of an engine; their product is its number of GPUs."""
    bos_text: str = ""
    eos_text: str = ""
    adds_bos: bool = False
    """Every prompt begins with BOS."""
    end_tokens: tuple[int, ...] = ()
    chat_template: str | None = field(default=None, repr=False)
    chat_templates: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further templates by name, such as `tool_use`."""
    template_file: str = ""
    n_params: int = 0
    """Not stated."""

    block_size: int = 32
    """Tokens of a block of the cache."""
    version: str | None = None
    """Of the library that built the engine."""

    @property
    def name(self) -> str:
        """The folder's; in the cache of Hugging Face, where a folder is named by a hash, the repository's."""
        is_snapshot = self.path.parent.name == "snapshots"
        return self.path.parent.parent.name.rpartition("--")[2] if is_snapshot else self.path.name

    @property
    def n_ranks(self) -> int:
        """Processes, and GPUs, that the engine was built for; a checkpoint is not bound to a number."""
        tensor, pipeline, context = self.mapping
        return tensor * pipeline * context


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is for TensorRT-LLM: a `config.json` or its weights, and no GGUF file, which llama.cpp runs."""
    try:
        files = list(folder.iterdir())
    except OSError:
        return False
    is_one = any(file.name == CONFIG or RANK.fullmatch(file.name) or file.suffix == ".safetensors" for file in files)
    return is_one and not any(gguf.is_model(file) for file in files)


def writes_text(folder: Path) -> bool:
    """Whether a folder is a checkpoint or an engine of a model that writes text; of others there are many in caches."""
    try:
        found = read_checkpoint(folder) if is_checkpoint(folder) else None
    except ConfigError:
        return False
    return found is not None and (found.kind == "engine" or bool(WRITES.search(found.architecture)))


def read_checkpoint(folder: Path) -> Checkpoint:
    """The model in a folder. Raises: `ConfigError`, in one sentence, for every fault of its files."""
    if not os.path.lexists(folder / CONFIG):
        _refuse(folder, f"this folder has no {CONFIG}; copy it from where the model comes from, or {AGAIN}")
    config = read_json(folder / CONFIG)
    assert config is not None
    built = config.table("pretrained_config")
    ranks = sorted(int(match[1]) for name in _names(folder) if (match := RANK.fullmatch(name)))
    tokenizer = read_json(folder / "tokenizer_config.json") or Fields(folder / "tokenizer_config.json", {})
    generation = read_json(folder / "generation_config.json")
    template, templates, place = _templates(folder, tokenizer)
    if not os.path.lexists(folder / TOKENIZER):
        _refuse(
            folder,
            f"this folder has no {TOKENIZER}; copy it, tokenizer_config.json and {TEMPLATE} from the Hugging Face "
            "repository of the model",
        )
    ends = (generation and generation.ids("eos_token_id")) or config.ids("eos_token_id")
    about = _engine(folder, config, built, ranks) if built.values or ranks else _checkpoint(folder, config)
    return Checkpoint(
        folder,
        bos_text=tokenizer.token("bos_token"),
        eos_text=tokenizer.token("eos_token"),
        adds_bos=tokenizer.flag("add_bos_token"),
        end_tokens=ends,
        chat_template=template,
        chat_templates=templates,
        template_file=place,
        **about,
    )


def _engine(folder: Path, config: Fields, built: Fields, ranks: list[int]) -> dict[str, Any]:
    """The fields of a `Checkpoint` that differ by kind, of an engine."""
    if not built.values:
        config.refuse("pretrained_config", "is missing", "build the engine again: trtllm-build writes it")
    sizes = built.table("mapping")
    mapping = tuple(sizes.whole(f"{name}_size", 1, MAX_RANKS) or 1 for name in ("tp", "pp", "cp"))
    n_ranks = mapping[0] * mapping[1] * mapping[2]
    how = f"tp_size {mapping[0]} x pp_size {mapping[1]} x cp_size {mapping[2]} = {n_ranks}"
    if n_ranks > MAX_RANKS:
        sizes.refuse("", f"asks for {how} ranks, more than {MAX_RANKS}", f"it is damaged: {AGAIN}")
    world = sizes.whole("world_size", 1, MAX_RANKS)
    if world is not None and world != n_ranks:
        sizes.refuse("world_size", f"is {world}, but {how}", "one of them is wrong: build the engine again")
    missing = [rank for rank in range(n_ranks) if rank not in ranks]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        _refuse(
            folder,
            f"rank{missing[0]}.engine{more} is missing: the engine was built for {n_ranks} GPUs ({how}); copy all "
            "rank files, or build it again",
        )
    if len(ranks) > n_ranks:
        _refuse(
            folder,
            f"there are {len(ranks)} rank files, but {CONFIG} says {how}; they are from another build: build it again",
        )
    n_ctx = config.table("build_config").whole("max_seq_len", 1, MAX_TOKENS)
    if n_ctx is None:
        config.refuse("build_config.max_seq_len", "is missing", "build the engine again: trtllm-build writes it")
    files = tuple(folder / f"rank{rank}.engine" for rank in range(n_ranks))
    return {
        "kind": "engine",
        "architecture": built.text("architecture") or "",
        "family": built.text("model_type") or built.text("qwen_type") or _family_of(built.text("architecture") or ""),
        "n_ctx_train": n_ctx,
        "n_vocab": built.whole("vocab_size", 0, MAX_TOKENS) or 0,
        "files": files,
        "size_bytes": sum(_weights(file) for file in files),
        "file_type": built.table("quantization").text("quant_algo") or built.text("dtype"),
        "mapping": mapping,
        "block_size": config.table("build_config").table("plugin_config").whole("tokens_per_block", 1, 4096) or 32,
        "version": config.text("version"),
    }


def _checkpoint(folder: Path, config: Fields) -> dict[str, Any]:
    """The same of a Hugging Face checkpoint."""
    inner = config.table("text_config")  # of a model that reads images, too
    architectures = config.texts("architectures")
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    lengths = (each.whole(name, 1, MAX_TOKENS) for each in (config, inner) for name in names)
    optimized = read_json(folder / "hf_quant_config.json")
    own = config.table("quantization_config")
    quantized = (optimized and optimized.table("quantization").text("quant_algo")) or (
        own.text("quant_algo") or own.text("quant_method")
    )
    files = tuple(folder / name for name in sorted(_shards(folder)))
    return {
        "kind": "checkpoint",
        "architecture": next(iter(architectures), ""),
        "family": config.text("model_type") or "",
        "n_ctx_train": next((length for length in lengths if length), 0),
        "n_vocab": config.whole("vocab_size", 0, MAX_TOKENS) or inner.whole("vocab_size", 0, MAX_TOKENS) or 0,
        "files": files,
        "size_bytes": sum(_weights(file) for file in files),
        "file_type": quantized or config.text("dtype") or config.text("torch_dtype") or inner.text("dtype"),
    }


def _shards(folder: Path) -> set[str]:
    """The names of the files of weights. Raises: `ConfigError` where there are none, or one is missing."""
    index = read_json(folder / "model.safetensors.index.json")
    there = {name for name in _names(folder) if name.endswith(".safetensors")}
    if index is None:
        if not there:
            _refuse(
                folder,
                "this folder has neither rankN.engine nor *.safetensors files; give the folder of an engine, or of a "
                "Hugging Face checkpoint with its weights",
            )
        return there
    named = index.table("weight_map").values
    files = {file for file in named.values() if isinstance(file, str) and file == os.path.basename(file) and file}
    if len(named) == 0 or not all(isinstance(file, str) and file in files for file in named.values()):
        index.refuse("weight_map", "does not name the file of each tensor", f"it is damaged: {AGAIN}")
    if missing := sorted(files - there):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        _refuse(folder, f"{missing[0]}{more} is missing, which {index.file.name} names; download the rest")
    return files


def _templates(folder: Path, tokenizer: Fields) -> tuple[str | None, dict[str, str], str]:
    """The chat template, those by name, and the file that they stand in."""
    named = {file.stem: _read_text(file) for file in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if os.path.lexists(folder / TEMPLATE):
        return _read_text(folder / TEMPLATE), named, TEMPLATE
    held = tokenizer.values.get("chat_template")
    place = tokenizer.file.name if held else ""
    if held is None or isinstance(held, str):
        return held or None, named, place
    cure = f"it must be a text, or a list of {{name, template}}: {AGAIN}"
    if not isinstance(held, list):
        tokenizer.refuse("chat_template", f"is {_shown(held)}", cure)
    for each in held:
        name, source = (each.get("name"), each.get("template")) if isinstance(each, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(source, str):
            tokenizer.refuse("chat_template", f"holds {_shown(each)}", cure)
        named[name] = source
    return named.get("default", next(iter(named.values()), None)), named, place


def _family_of(architecture: str) -> str:
    """Such as `llama` of `LlamaForCausalLM`."""
    return re.split(r"For[A-Z]", architecture)[0].lower()


# Files


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object of a file. Every method raises `ConfigError` for a value of another type; None = there is none."""

    file: Path
    values: Mapping[str, Any]
    at: str = ""
    """Its own name in the file."""

    def table(self, name: str) -> Fields:
        """An object in it; an empty one where there is none."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            self._wrong(name, value, "an object")
        return Fields(self.file, value or {}, f"{self.at}.{name}" if self.at else name)

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return value if value is None or isinstance(value, str) else self._wrong(name, value, "a text")

    def texts(self, name: str) -> list[str]:
        value = self.values.get(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            self._wrong(name, value, "a list of texts")
        return value or []

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        return bool(value) if value is None or isinstance(value, bool) else self._wrong(name, value, "true or false")

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self.values.get(name)
        if value is not None and not _is_whole(value, low, high):
            self._wrong(name, value, f"a whole number from {low} to {high}")
        return value

    def ids(self, name: str) -> tuple[int, ...]:
        """Tokens: one, a list of them, or none."""
        value = self.values.get(name)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if not all(_is_whole(each, 0, MAX_TOKENS) for each in found):
            self._wrong(name, value, "a token id, or a list of them")
        return tuple(dict.fromkeys(found))

    def token(self, name: str) -> str:
        """A token's text, or an object with `content`; empty where there is none."""
        value = self.values.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None and not isinstance(text, str):
            self._wrong(name, value, "a text, or an object with a text as content")
        return text or ""

    def refuse(self, name: str, fault: str, cure: str) -> NoReturn:
        """Raises: `ConfigError`."""
        key = ".".join(filter(None, (self.at, name)))
        raise ConfigError(f"{fault}; {cure}", key=key, file=str(self.file))

    def _wrong(self, name: str, value: Any, expected: str) -> NoReturn:
        self.refuse(name, f"is {_shown(value)}, expected {expected}", f"the file is damaged: {AGAIN}")


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _shown(value: Any) -> str:
    return reprlib.repr(value)


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except OSError as error:
        raise ConfigError(f"this folder cannot be read: {error.strerror}", file=str(folder)) from error


def read_json(file: Path, most: int = MAX_JSON_BYTES) -> Fields | None:
    """The object of a JSON file of at most `most` bytes; None where there is no file. Raises: `ConfigError`."""
    if not os.path.lexists(file):
        return None
    try:
        found = json.loads(_read(file, most))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]
        raise ConfigError(f"is not JSON ({why}); it is damaged: {AGAIN}", file=str(file)) from error
    if not isinstance(found, dict):
        _refuse(file, f"holds {_shown(found)}, expected an object; it is damaged: {AGAIN}")
    return Fields(file, found)


def _read_text(file: Path) -> str:
    try:
        return _read(file, MAX_TEMPLATE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not a text in UTF-8; it is damaged: {AGAIN}", file=str(file)) from error


def _read(file: Path, most: int) -> bytes:
    size = _size(file)
    if size > most:
        _refuse(file, f"has {size} bytes, more than {most}; it is no such file: {AGAIN}")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
    if content.startswith(POINTER):
        _refuse(file, "is a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'")
    return content


def _size(file: Path) -> int:
    """Bytes of a regular file. Raises: `ConfigError`."""
    try:
        status = file.stat()
    except OSError as error:
        links = "it is a link to nowhere" if error.errno == errno.ENOENT else error.strerror
        links = "its links lead in a circle" if error.errno == errno.ELOOP else links
        raise ConfigError(f"cannot be read: {links}; {AGAIN}", file=str(file)) from error
    if not stat.S_ISREG(status.st_mode):
        _refuse(file, "is no file; remove it, and download the model again")
    return status.st_size


def _weights(file: Path) -> int:
    """Bytes of a file of weights. Raises: `ConfigError`, also where it holds none."""
    size = _size(file)
    if size < 1024:  # a pointer has about 130
        _read(file, 1024)
    if size == 0:
        _refuse(file, f"is empty; {AGAIN}")
    return size


def _refuse(file: Path, message: str) -> NoReturn:
    raise ConfigError(message, file=str(file))
