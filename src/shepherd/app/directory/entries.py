"""Every model of the configuration before it is loaded: its header, and the memory that its caches would take.

    Config ─▶ files ─▶ headers ─▶ contexts within the budget ─▶ entries, a card for each

A model is a GGUF file for llama.cpp, or a folder for TensorRT-LLM, which takes the memory of the GPUs, not this budget.
Headers are read once, before anything is loaded: a wrong path fails at once, and clients see models that are not in
memory. Models that are loaded at the start get their memory first, in file order. Each of the others may have all that
those leave, since models that are loaded on demand make room for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from shepherd.app import tensorrt
from shepherd.app.model_pool import Residency
from shepherd.backends.local.adapters import ModelAdapters
from shepherd.backends.local.chat_template import ChatFormat, TemplateSources, find_chat_format
from shepherd.config import CacheConfig, Config, KvConfig, ModelConfig, model_name
from shepherd.config.resolve import free_name
from shepherd.core import ConfigError, Sampling, ShepherdError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.status import ModelCard, ModelKind
from shepherd.dialects import derive
from shepherd.dialects.parse.tags import TagDialect
from shepherd.engine.llamacpp import rpc
from shepherd.models import catalog, draft, gguf, gguf_file, soundness
from shepherd.models.adapter import read_adapter
from shepherd.models.checkpoint import Checkpoint, read_checkpoint
from shepherd.models.draft import DraftFile
from shepherd.models.projector import ProjectorFile, find_projector
from shepherd.models.sizing import (
    LARGEST_DEFAULT_CONTEXT,
    Cells,
    budget_bytes,
    context_size,
    fit,
    gib,
    keeps_states,
    staying,
)
from shepherd.process.isolated import WorkFailed, run_isolated

logger = logging.getLogger(__name__)

ON_DEMAND_S = 300.0
"""How long a model that was loaded on demand stays after its last use, by default."""
IDLE_SEQUENCES = 28
"""Idle conversations that a cache can hold, where one more costs nothing."""
IDLE_STATES = 2
"""The same where each one takes the memory of a whole state."""
_ENCODERS = ("bert", "t5encoder", "gemma-embedding", "llama-embed", "eurobert")
"""Parts of the names of architectures that only embed."""
_RANK = 4
"""llama.cpp's number of the pooling of a reranker."""
_CAPABILITY = {"embedding": "embedding", "reranker": "rerank"}
_FIM = (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))
"""New and old names of the keys, `tokenizer.ggml.*_token_id`."""
_FIM_NAMES = (b"<|fim_middle|>", b"<fim_middle>", b"<fim-middle>", b"<MID>", "<｜fim▁end｜>".encode(), b"[MIDDLE]")
"""The token before the middle, by family: files give no ids where llama.cpp knows the text."""
_TOKEN_BYTES = 64
"""More than the tokens of a vocabulary have on average."""
_LONGEST_TEMPLATE = 256 * 1024
"""No chat template of a model is longer."""
DERIVING_S = 10.0
"""Of processor time; most templates take half a second."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """A cache of a model, before it is created."""

    cache: CacheConfig
    cells: Cells
    draft: DraftFile | None = None

    @property
    def n_ctx(self) -> int:
        return self.cells.n_ctx

    @property
    def n_window(self) -> int:
        """Tokens that a conversation may have. Raises: `ConfigError` for a window that is smaller than the context."""
        n, key = self.cache.tokens_of_window(self.n_ctx), f"caches.{self.cache.name}"
        if n < self.n_ctx:
            raise ConfigError(
                f"a window of {n} tokens is smaller than the context of {self.n_ctx}; leave it out, or set a smaller "
                "n_ctx",
                key=f"{key}.window",
            )
        if self.cache.window is not None and self.cache.overflow == "error":
            raise ConfigError("in a window, old turns leave the context; leave overflow out", key=f"{key}.overflow")
        return n


class ModelKey(NamedTuple):
    """What the pool knows a model by."""

    name: str
    embeds: bool = False
    """A chat model opened a second time, to make vectors."""

    def __str__(self) -> str:
        return f"{self.name} (vectors)" if self.embeds else self.name


@dataclass(frozen=True, slots=True)
class ModelEntry:
    key: ModelKey
    model: ModelConfig
    card: ModelCard
    residency: Residency
    header: gguf.Header | Checkpoint | None = None
    """None when the files cannot be used; see `problem`."""
    plans: tuple[CachePlan, ...] = ()
    n_tokens: int | None = None
    """Tokens of a text that its vector is made of, at most; None = as many as the model was trained for."""
    problem: str = ""
    projector: ProjectorFile | None = None
    """What lets it see images."""
    adapters: ModelAdapters | None = None

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def backend(self) -> Literal["llamacpp", "tensorrt"]:
        return "tensorrt" if isinstance(self.header, Checkpoint) else "llamacpp"

    @property
    def title(self) -> str:
        found = self.header
        return found.name if isinstance(found, Checkpoint) else found.path.stem if found else self.name

    @property
    def makes_vectors(self) -> bool:
        return self.card.kind == "embedding"

    @property
    def chats(self) -> bool:
        return self.card.kind == "chat"


def workers_bytes(servers: Sequence[str]) -> int:
    """The memory that these workers report. Raises: as `rpc.probe`."""
    return sum(sum(each.free_bytes) for each in rpc.probe_all(servers))


class Machine(NamedTuple):
    """What decides before the loading how much memory models need and may use."""

    budget_bytes: int
    """Bytes that all models may take together, in the memory that they use."""
    flash_attention: bool = False
    """Whether a model that does not say so is computed with flash attention."""
    elsewhere: Callable[[Sequence[str]], int] = workers_bytes
    """Bytes that these workers lend."""


class ModelRegistry:
    """The entries by name, in the order of the configuration."""

    def __init__(self, config: Config, *, env: Mapping[str, str], machine: Machine) -> None:
        """Reads every model's header. Raises: `ConfigError` for a model that is loaded at the start and cannot be."""
        self._config = config
        self._env = env
        self._machine = machine
        self._left = machine.budget_bytes
        """Bytes beside the models that always stay."""
        if config.memory.embedding_model is not None and config.embedding_provider is None:
            self._reserve(config.memory.embedding_model, "memory.embedding_model")
        if config.memory.reranker is not None and all(model.name != config.memory.reranker for model in config.models):
            self._reserve(config.memory.reranker, "memory.reranker")
        found = {}
        for model in sorted(config.models, key=lambda model: model.load == "demand"):
            found[model.name] = self._read(model)
        self.entries: dict[str, ModelEntry] = {model.name: found[model.name] for model in config.models}
        if config.backend == "tensorrt" and config.models:
            tensorrt.check_chosen(self.entries[config.models[0].name].header)
        self.memory = self._find_memory()
        """The name of the entry that makes vectors for the memory, if one is configured."""
        self.memory_reranker = self._find_reranker()
        """The name of the entry that scores messages for the memory, if one is configured."""
        self.embedders: dict[str, ModelEntry] = {}
        """By the name of a chat model, the same model opened to make vectors."""
        for entry in self.entries.values():
            self.embedders |= self._embedder(entry)

    def residencies(self) -> dict[ModelKey, Residency]:
        """Of all entries, embedders included."""
        return {entry.key: entry.residency for entry in (*self.entries.values(), *self.embedders.values())}

    def get(self, key: ModelKey) -> ModelEntry:
        return (self.embedders if key.embeds else self.entries)[key.name]

    def adapter_names(self) -> dict[str, str]:
        """By the name of a model with one of its adapters, such as `qwen:law`, the model's."""
        entries = self.entries.values()
        return {name: entry.name for entry in entries if entry.adapters is not None for name in entry.adapters.names}

    def reread(self, name: str) -> None:
        """Read a model file again that could not be used before. Raises: `ConfigError`."""
        entry = self._planned(self.entries[name].model)
        # New dictionaries: another thread may be iterating over the old ones.
        self.entries = {**self.entries, name: entry}
        self.embedders = {**self.embedders, **self._embedder(entry)}

    def add(self, spec: str, like: str, *, beside: str = "") -> CacheConfig:
        """The cache of a model that may not be in the configuration: a new one has the settings of the cache `like`,
        and those for the machine of its model, whose place in memory it takes. `beside`: it takes no place, has this
        name, and may make vectors. Raises: `ConfigError`."""
        header = self._header(spec)
        if makes_vectors(header) and not beside:
            does = "scores pairs of texts" if kind_of(header) == "reranker" else "makes vectors of texts"
            raise ConfigError(f"{header.path.name} {does} and cannot chat; choose another model")
        config, left = self._config, self._left
        cache = next(each for each in config.caches if each.name == like)
        old = self.entries[cache.model]
        for entry in (old, *self.entries.values()):
            if entry.plans and entry.header is not None and entry.header.path.samefile(header.path):
                return cache if entry is old else entry.plans[0].cache
        name = free_name(beside or model_name(spec), self.entries)
        cache = replace(
            cache, name=free_name(name, [each.name for each in config.caches]), model=name, draft=None, description=""
        )
        path = spec if spec == "embedded" else str(header.path)
        greedy = Sampling(temperature=0)  # the embedded model is too small to sample from
        model = replace(
            old.model,
            name=name,
            path=path,
            # What its entry says of the other model is not true of this one.
            dialect=None,
            chat_template=None,
            mmproj=None,
            draft=None,
            constrain_calls=True,
            pooling=None,
            adapters=(),
            sampling=config.sampling.over(greedy) if path == "embedded" else config.sampling,
            load="demand",
            keep_alive=None if beside else -1.0,
        )
        self._config = replace(config, models=(*config.models, model), caches=(*config.caches, cache))
        self._left += old.residency.n_bytes if old.residency.stays and not beside else 0
        try:
            entry = self._planned(model)
        except ConfigError:
            self._config = config
            raise
        finally:
            self._left = left
        self.entries = {**self.entries, name: entry}
        self.embedders = {**self.embedders, **self._embedder(entry)}
        return cache

    def remove(self, cache: CacheConfig) -> None:
        """Undo `add`."""
        config, model = self._config, self.entries[cache.model].model
        models = tuple(each for each in config.models if each is not model)
        self._config = replace(config, models=models, caches=tuple(each for each in config.caches if each != cache))
        self.entries = {name: entry for name, entry in self.entries.items() if name != cache.model}
        self.embedders = {name: entry for name, entry in self.embedders.items() if name != cache.model}

    def _find_memory(self) -> str | None:
        if (spec := self._config.memory.embedding_model) is None or self._config.embedding_provider is not None:
            return None
        header = self._gguf_header(spec, "memory.embedding_model")
        for name, entry in self.entries.items():
            is_pooled = entry.makes_vectors and entry.model.pooling != "none"
            if is_pooled and entry.header and entry.header.path == header.path:
                return name
        # One thread: it mostly works in the background.
        return self._add_for_memory(ModelConfig(model_name(spec), path=spec, n_threads=1), header)

    def _find_reranker(self) -> str | None:
        """Raises: `ConfigError` for a model that scores no pairs."""
        if (spec := self._config.memory.reranker) is None:
            return None
        entry = self.entries.get(spec)
        if entry is None:
            header = self._gguf_header(spec, "memory.reranker")
            same = (each for each in self.entries.values() if each.header and each.header.path == header.path)
            entry = next((each for each in same if each.card.kind == "reranker"), None)
        if entry is None:
            entry = self.entries[self._add_for_memory(ModelConfig(model_name(spec), path=spec), header)]
        if entry.problem:
            raise ConfigError(entry.problem, key="memory.reranker")
        if entry.card.kind != "reranker":
            raise ConfigError(
                f"{entry.title} scores no pairs of texts: its file does not say rank pooling; name a reranker, or set "
                'pooling = "rank" in its entry of models',
                key="memory.reranker",
            )
        return entry.name

    def _add_for_memory(self, model: ModelConfig, header: gguf.Header) -> str:
        name = model.name
        while name in self.entries:
            name += "-memory"
        self.entries[name] = self._made(replace(model, name=name), header)
        return name

    def _reserve(self, spec: str, key: str) -> None:
        self._left = max(0, self._left - self._gguf_header(spec, key).size_bytes)

    def _embedder(self, entry: ModelEntry) -> dict[str, ModelEntry]:
        """By the model's name, a chat model opened to make vectors; empty for other models."""
        if not isinstance(entry.header, gguf.Header) or not entry.chats:
            return {}
        made = self._made(replace(entry.model, load="demand"), entry.header)
        return {entry.name: replace(made, key=ModelKey(entry.name, embeds=True))}

    def _read(self, model: ModelConfig) -> ModelEntry:
        try:
            return self._planned(model)
        except ConfigError as error:
            if model.load == "start":
                raise
            logger.warning("model %r cannot be loaded now: %s", model.name, error)
            card = ModelCard(model.name, 0, 0, loaded=False)
            return ModelEntry(ModelKey(model.name), model, card, _residency(model, 0), problem=str(error))

    def _planned(self, model: ModelConfig) -> ModelEntry:
        header = self._header(model.path)
        if model.adapters and (isinstance(header, Checkpoint) or makes_vectors(header) or model.pooling is not None):
            does = "runs with TensorRT-LLM" if isinstance(header, Checkpoint) else "makes vectors"
            raise ConfigError(
                f"{header.path.name} {does}, which Shepherd does without adapters; remove them, or name a GGUF file of "
                "a model that chats",
                key=f"models.{model.name}.adapters",
            )
        if isinstance(header, Checkpoint):
            return self._made(model, header, (self._checkpoint_plan(model, header),))
        if kind_of(header, model.pooling) != "chat":
            if draft.is_named(model.draft):
                raise ConfigError(
                    f"{header.path.name} makes vectors or scores, for which there are no drafts; leave draft out",
                    key=f"models.{model.name}.draft",
                )
            for cache in self._config.caches:
                if cache.model == model.name and cache.window is not None:
                    logger.warning(
                        "caches.%s.window is ignored: %s makes vectors or scores, and has no conversations",
                        cache.name, header.path.name,
                    )  # fmt: skip
            return self._made(model, header)
        projector = self._projector(model, header)
        adapters = tuple(
            read_adapter(
                Path(each.path), header, name=each.name, scale=each.scale, applies=each.apply, layers=each.layers
            )
            for each in model.adapters
        )
        beside = (projector.size_bytes if projector else 0) + sum(each.n_bytes for each in adapters)
        buffers = projector.buffer_bytes if projector else 0
        left = self._left + self._elsewhere(model)
        plans: list[CachePlan] = []
        caches = [each for each in self._config.caches if each.model == model.name]
        drafts = {cache.name: self._draft(model, header, cache) for cache in caches}
        for_drafts, draft_buffers = draft.memory(filter(None, drafts.values()))
        left, buffers = left - for_drafts, buffers + draft_buffers
        for cache in caches:
            cells = cells_of(header, model, cache, self._config.kv, flash_attention=self._machine.flash_attention)
            taken = fit(header, [plan.cells for plan in plans])
            room = left - beside - ((taken.least if cache.n_ctx else taken.needed) if plans else 0)
            room -= 0 if cache.n_ctx else buffers
            n_ctx = context_size(
                header,
                cache=cache.name,
                cells=cells,
                is_loaded=bool(plans),
                room=room,
                tier=self._config.kv.ram_bytes // len(self._config.caches),
            )
            cells = replace(cells, n_ctx=n_ctx)
            plans.append(CachePlan(cache, cells, drafts[cache.name]))
        entry = self._made(model, header, tuple(plans), projector, beside)
        if model.rpc_servers and entry.residency.n_bytes > self._left:
            raise ConfigError(
                f"{header.path.name} needs {gib(entry.residency.n_bytes)} of the memory of this machine beside that of "
                f"its workers, {gib(self._left)} is free; give them more layers, or choose a smaller context size",
                key=f"models.{model.name}.gpu_layers",
            )
        if adapters:
            entry = replace(entry, adapters=ModelAdapters(model.name, adapters))
        if entry.residency.stays:
            self._left = max(0, self._left - entry.residency.n_bytes)
        return entry

    def _elsewhere(self, model: ModelConfig) -> int:
        """Bytes that the workers of a model lend. Raises: `ConfigError` where one does not answer."""
        try:
            return self._machine.elsewhere(model.rpc_servers)
        except ShepherdError as error:
            raise ConfigError(error.message, key=f"models.{model.name}.rpc_servers") from error

    def _projector(self, model: ModelConfig, header: gguf.Header) -> ProjectorFile | None:
        """What lets the model see images, or hear. Raises: `ConfigError` if the configuration names something else."""
        try:
            return find_projector(header.path, model.mmproj)
        except ConfigError as error:
            raise ConfigError(error.message, key=f"models.{model.name}.mmproj") from error

    def _draft(self, model: ModelConfig, header: gguf.Header, cache: CacheConfig) -> DraftFile | None:
        """The draft model of a cache. Raises: `ConfigError` for one that cannot draft for this model."""
        spec, key = (model.draft, f"models.{model.name}.draft") if cache.draft is None else (
            cache.draft, f"caches.{cache.name}.draft"
        )  # fmt: skip
        if not draft.is_named(spec):
            return None
        if cache.repeatable:
            if cache.draft is None:
                return None  # it is for the other caches of the model
            raise ConfigError("a repeatable answer is computed without drafts; leave draft out", key=key)
        try:
            found = self._header(spec)
            if isinstance(found, Checkpoint):
                raise ConfigError(f"{spec} is for TensorRT-LLM, and guesses for no other library; name a GGUF file")
            check_draft(found, header)
        except ConfigError as error:
            raise ConfigError(error.message, key=key) from error
        flash_attention = self._machine.flash_attention if model.flash_attn is None else model.flash_attn
        cells = draft.cells_of(found, cache.n_ctx, cache.sequences, flash_attention=flash_attention)
        return DraftFile(found, cells)

    def _checkpoint_plan(self, model: ModelConfig, header: Checkpoint) -> CachePlan:
        """The one cache that TensorRT-LLM makes of a model. Raises: `ConfigError`, also without the library."""
        tensorrt.check(model, header, model.tensorrt.over(self._config.tensorrt).python)
        tensorrt.split(model, self._config)
        cache, *others = (each for each in self._config.caches if each.model == model.name)
        if others:
            raise ConfigError(
                f"TensorRT-LLM makes one cache of a model, and {cache.name!r} is it; remove this one, or raise its "
                "sequences",
                key=f"caches.{others[0].name}.model",
            )
        for key, spec in ((f"models.{model.name}.draft", model.draft), (f"caches.{cache.name}.draft", cache.draft)):
            if draft.is_named(spec):
                raise ConfigError(
                    "TensorRT-LLM has no draft models here; leave draft out, or run a GGUF file with llama.cpp", key=key
                )
        if cache.repeatable:
            raise ConfigError(
                "TensorRT-LLM gives no repeatable answers; leave it out, or run a GGUF file with llama.cpp",
                key=f"caches.{cache.name}.repeatable",
            )
        most = header.n_ctx_train or cache.n_ctx or 4096
        if cache.n_ctx > most:
            logger.warning(
                "cache %r holds %d of the %d tokens that n_ctx asks for: %s was made for no more",
                cache.name, most, cache.n_ctx, header.name,
            )  # fmt: skip
        return CachePlan(cache, Cells(min(cache.n_ctx or min(most, LARGEST_DEFAULT_CONTEXT), most)))

    def _made(
        self,
        model: ModelConfig,
        header: gguf.Header | Checkpoint,
        plans: tuple[CachePlan, ...] = (),
        projector: ProjectorFile | None = None,
        beside: int = 0,
    ) -> ModelEntry:
        """The entry; without a cache it is one that embeds. `beside`: bytes of projector and adapters."""
        if isinstance(header, Checkpoint):
            card = _card(model, header, plans, None, header.size_bytes)
            residency = replace(_residency(model, 0), is_alone=True)
            return ModelEntry(ModelKey(model.name), model, card, residency, header, plans)
        n_tokens = None
        if not plans:
            n_tokens = next((each.n_ctx for each in self._config.caches if each.model == model.name), 0) or None
        found = fit(header, [plan.cells for plan in plans])
        if model.rpc_servers:
            found = staying(found, header, model.gpu_layers)
        for_drafts, draft_buffers = draft.memory(plan.draft for plan in plans if plan.draft is not None)
        # The buffers are an estimate: where only the rest fits exactly, they do not refuse a model.
        least = found.least + beside + for_drafts
        buffers = found.needed - found.least + (projector.buffer_bytes if projector else 0) + draft_buffers
        n_bytes = least + min(buffers, max(0, self._left - least))
        card = _card(model, header, plans, n_tokens, n_bytes, projector=projector)
        residency = _residency(model, n_bytes)
        return ModelEntry(ModelKey(model.name), model, card, residency, header, plans, n_tokens, projector=projector)

    def _header(self, spec: str) -> gguf.Header | Checkpoint:
        header = read(catalog.find(spec, env=self._env, home=Path.home(), cwd=Path.cwd()))
        if isinstance(header, gguf.Header):
            soundness.check(header)
        return header

    def _gguf_header(self, spec: str, key: str) -> gguf.Header:
        header = self._header(spec)
        if isinstance(header, Checkpoint):
            raise ConfigError(f"{spec} is for TensorRT-LLM, which makes no vectors; name a GGUF file", key=key)
        return header


def read(path: Path) -> gguf.Header | Checkpoint:
    """What the files of a model say. Raises: `ConfigError`."""
    return read_checkpoint(path) if path.is_dir() else gguf.read_header(path)


def machine_of(config: Config) -> Machine:
    """The memory that the models may use: of the cards, of the machine, or of both where some layers stay with the
    CPU."""
    free, total, has_gpu = _memory(config)
    # On a GPU the library chooses flash attention itself.
    return Machine(budget_bytes(config.memory_budget, free=free, total=total), flash_attention=has_gpu)


def capacity_of(config: Config) -> int:
    """Bytes that models may take when no other program needs memory: what a model to be pulled must fit into."""
    _, total, _ = _memory(config)
    return budget_bytes(config.memory_budget, free=total, total=total)


def _memory(config: Config) -> tuple[int, int, bool]:
    """Free and total bytes, and whether there is a GPU."""
    from shepherd.engine.llamacpp.library import gpu_memory  # noqa: PLC0415 - loads the native library

    layers = {model.gpu_layers for model in config.models}
    cards = gpu_memory() if layers != {0} else None
    machine = psutil.virtual_memory()
    free, total = (cards.free, cards.total) if cards else (0, 0)
    if cards is None or any(count is not None and count >= 0 for count in layers):
        free, total = free + machine.available, total + machine.total
    return free, total, cards is not None


def cells_of(
    header: gguf.Header, model: ModelConfig, cache: CacheConfig, kv: KvConfig, *, flash_attention: bool
) -> Cells:
    """The cells of a cache, as many as it says, and the options that decide their memory.

    flash_attention: as in `Machine`.
    """
    type_k, type_v = cache.cache_type_k or model.cache_type_k, cache.cache_type_v or model.cache_type_v
    types = (type_k or "f16", type_v or "f16")
    n_ubatch = model.n_ubatch or 512
    if model.flash_attn is not None:
        flash_attention = model.flash_attn
    return Cells(
        cache.n_ctx,
        types,
        n_seq=n_sequences(cache, is_dear=keeps_states(header) or not kv.swa_full),
        n_outputs=cache.sequences,
        n_ubatch=min(n_ubatch, model.n_batch or n_ubatch),
        flash_attention=flash_attention or types[1].startswith("q"),
        swa_full=kv.swa_full,
    )


def n_sequences(cache: CacheConfig, *, is_dear: bool) -> int:
    """The sequences of a cache, idle ones included. is_dear: each takes the memory of a state, or of a window."""
    if cache.repeatable:
        return 1  # what another one has in the cells would move this one
    return cache.sequences + (IDLE_STATES if is_dear else IDLE_SEQUENCES)


def makes_vectors(header: gguf.Header | Checkpoint) -> bool:
    """Whether a model cannot chat: its architecture only embeds, or its file sets a pooling."""
    return kind_of(header) != "chat"


def kind_of(header: gguf.Header | Checkpoint, pooling: str | None = None) -> ModelKind:
    """What a model is for, by its file. `pooling`: of the configuration, which counts first."""
    if isinstance(header, Checkpoint):
        return "chat"
    number = header.value("pooling_type")
    if pooling == "rank" or (pooling is None and number == _RANK):
        return "reranker"
    is_pooled = pooling is not None or (isinstance(number, int) and number > 0)
    return "embedding" if is_pooled or any(name in header.architecture for name in _ENCODERS) else "chat"


@lru_cache(maxsize=16)
def derived_dialect(template: str, *, deadline_s: float = DERIVING_S) -> TagDialect | None:
    """The dialect of a chat template that no family knows, derived in a process of its own: the template is a foreign
    program. `None` if it prints no calls, or not in a way that can be derived.

    Blocks for about half a second at the first time, for some seconds if the template never ends.
    """
    if "tool_calls" not in template or len(template) > _LONGEST_TEMPLATE:
        return None
    try:
        # The process derives once itself, so what its texts cost here has been spent there, below the deadline.
        printed = run_isolated("shepherd.dialects.derive:provable", template, deadline_s=deadline_s)
    except WorkFailed as error:
        logger.warning("the markup of calls cannot be derived from the model's chat template: %s", error.message)
        return None
    return derive.derived(printed) if printed else None


def chat_format(
    model: ModelConfig,
    header: gguf.Header | Checkpoint,
    bos_text: str = "",
    eos_text: str = "",
    control: Collection[str] = (),
) -> ChatFormat:
    """The chat format of a model, with these of its tokens where they are known.

    Blocks for about half a second at the first time where no family knows its template. Raises: as `find_chat_format`.
    """
    sources = TemplateSources(header.path, header.chat_template, header.chat_templates, bos_text, eos_text, control)
    if isinstance(header, Checkpoint):
        sources = replace(sources, family=header.family, origin=header.template_file)
    return find_chat_format(
        sources,
        template=Path(model.chat_template) if model.chat_template else None,
        dialect=model.dialect,
        key=f"models.{model.name}.chat_template",
        derive=derived_dialect,
    )


def check_draft(found: gguf.Header, header: gguf.Header) -> None:
    """Raises: `ConfigError` where the first model cannot draft for the second one."""
    if kind_of(found) != "chat":
        raise ConfigError(f"{found.path.name} makes vectors or scores, and guesses no text; name a model that chats")
    draft.check(found, header)


def _residency(model: ModelConfig, n_bytes: int) -> Residency:
    at_start = model.load == "start"
    keep_alive_s = model.keep_alive if model.keep_alive is not None else -1.0 if at_start else ON_DEMAND_S
    keep_alive_s = inf if keep_alive_s < 0 else keep_alive_s
    return Residency(n_bytes, keep_alive_s, stays=at_start and keep_alive_s == inf)


def _card(
    model: ModelConfig,
    header: gguf.Header | Checkpoint,
    plans: tuple[CachePlan, ...],
    n_tokens: int | None,
    n_bytes: int,
    *,
    projector: ProjectorFile | None = None,
) -> ModelCard:
    chat = chat_format(model, header) if plans else None
    kind: ModelKind = "chat" if chat else "embedding"
    if not chat and kind_of(header, model.pooling) == "reranker":
        kind = "reranker"
    parameters = _count(header.n_params) if header.n_params else ""
    trained = header.n_ctx_train or 512
    return ModelCard(
        model.name,
        plans[0].n_window if plans else min(n_tokens or trained, trained),
        int(header.path.stat().st_mtime),
        " ".join(filter(None, (header.architecture, parameters, header.file_type))),
        kind=kind,
        n_bytes=sum(file.stat().st_size for file in header.files),
        architecture=header.architecture,
        parameters=parameters,
        quantization=header.file_type or "",
        capabilities=tuple(_capabilities(chat, header, projector)) if chat else (_CAPABILITY[kind],),
        template="" if chat is None or chat.is_ours else chat.template.source,
        loaded=False,
        memory_bytes=n_bytes,
        tags=model.tags,
        n_cells=plans[0].n_ctx if plans else 0,
        n_slots=sum(plan.cache.sequences for plan in plans),
        sampling=model.sampling,
    )


def _capabilities(chat: ChatFormat, header: gguf.Header | Checkpoint, projector: ProjectorFile | None) -> Iterator[str]:
    yield "completion"
    if projector is not None and projector.takes_images:
        yield "vision"
    if projector is not None and projector.takes_audio:
        yield "audio"
    if chat.shows_tools:
        yield "tools"
    if chat.dialect.thinks:
        yield "thinking"
    if isinstance(header, gguf.Header) and _fills_in(header):
        yield "insert"


def _fills_in(header: gguf.Header) -> bool:
    if all(any(f"tokenizer.ggml.{name}_token_id" in header.metadata for name in names) for names in _FIM):
        return True
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, gguf_file.Array):
        return False
    with tokens.path.open("rb") as file:
        file.seek(tokens.offset)
        text = file.read(tokens.length * _TOKEN_BYTES)
    return any(len(name).to_bytes(8, "little") + name in text for name in _FIM_NAMES)


def _count(number: int) -> str:
    for unit, factor in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= factor:
            return f"{number / factor:.1f}{unit}" if number < 100 * factor else f"{number // factor}{unit}"
    return str(number)
