"""Every model of the configuration before it is loaded: its header, and the memory that its caches would take.

    Config ─▶ files ─▶ headers ─▶ contexts within the budget ─▶ entries, a card for each

Headers are read once, before anything is loaded: a wrong path fails at once, and clients see models that are not in
memory. Models that are loaded at the start get their memory first, in file order. Each of the others may have all that
those leave, since models that are loaded on demand make room for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from typing import NamedTuple

import psutil

from shepherd.app.model_pool import Residency
from shepherd.backends.local.chat_template import FOR_TOOLS, read_text
from shepherd.config import CacheConfig, Config, ModelConfig, model_name
from shepherd.core import ConfigError, Sampling
from shepherd.core.status import ModelCard
from shepherd.dialects import detect, get, names
from shepherd.models import catalog, gguf, gguf_file, soundness
from shepherd.models.sizing import budget_bytes, cache_bytes, context_size

logger = logging.getLogger(__name__)

ON_DEMAND_S = 300.0
"""How long a model that was loaded on demand stays after its last use, by default."""
_ENCODERS = ("bert", "t5encoder", "gemma-embedding", "llama-embed", "eurobert")
"""Parts of the names of architectures that only embed."""
_FIM = (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))
"""New and old names of the keys, `tokenizer.ggml.*_token_id`."""
_FIM_NAMES = (b"<|fim_middle|>", b"<fim_middle>", b"<fim-middle>", b"<MID>", "<｜fim▁end｜>".encode(), b"[MIDDLE]")
"""The token before the middle, by family: files give no ids where llama.cpp knows the text."""
_TOKEN_BYTES = 64
"""More than the tokens of a vocabulary have on average."""


@dataclass(frozen=True, slots=True)
class CachePlan:
    """A cache of a model, before it is created."""

    cache: CacheConfig
    n_ctx: int
    types: tuple[str, str]
    """Of the cached keys and values."""


class ModelKey(NamedTuple):
    """What the pool knows a model by."""

    name: str
    embeds: bool = False
    """A chat model opened a second time, to make vectors."""

    def __str__(self) -> str:
        return f"{self.name} (vectors)" if self.embeds else self.name


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model that can be loaded."""

    key: ModelKey
    model: ModelConfig
    card: ModelCard
    residency: Residency
    header: gguf.Header | None = None
    """None when the file cannot be used; see `problem`."""
    plans: tuple[CachePlan, ...] = ()
    n_tokens: int | None = None
    """Tokens of a text that its vector is made of, at most; None = as many as the model was trained for."""
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name for requests."""
        return self.key.name

    @property
    def makes_vectors(self) -> bool:
        """It only embeds."""
        return self.card.kind == "embedding"


class ModelRegistry:
    """The entries by name, in the order of the configuration."""

    def __init__(self, config: Config, *, env: Mapping[str, str], budget_bytes: int) -> None:
        """Reads every model's header. Raises: `ConfigError` for a model that is loaded at the start and cannot be."""
        self._config = config
        self._env = env
        self._left = budget_bytes
        """Bytes beside the models that always stay."""
        if config.memory.embedding_model is not None:
            n_bytes = self._header(config.memory.embedding_model).size_bytes
            self._left = max(0, self._left - n_bytes)
        found = {}
        for model in sorted(config.models, key=lambda model: model.load == "demand"):
            found[model.name] = self._read(model)
        self.entries: dict[str, ModelEntry] = {model.name: found[model.name] for model in config.models}
        self.memory = self._find_memory()
        """The name of the entry that makes vectors for the memory, if one is configured."""
        self.embedders: dict[str, ModelEntry] = {}
        """By the name of a chat model, the same model opened to make vectors."""
        for entry in self.entries.values():
            self.embedders |= self._embedder(entry)

    def residencies(self) -> dict[ModelKey, Residency]:
        """Of all entries, embedders included."""
        return {entry.key: entry.residency for entry in (*self.entries.values(), *self.embedders.values())}

    def get(self, key: ModelKey) -> ModelEntry:
        """The entry of a key."""
        return (self.embedders if key.embeds else self.entries)[key.name]

    def reread(self, name: str) -> None:
        """Read a model file again that could not be used before. Raises: `ConfigError`."""
        entry = self._planned(self.entries[name].model)
        # New dictionaries: another thread may be iterating over the old ones.
        self.entries = {**self.entries, name: entry}
        self.embedders = {**self.embedders, **self._embedder(entry)}

    def add(self, spec: str, like: str) -> CacheConfig:
        """The cache of a model that may not be in the configuration: a new one has the settings of the cache `like` and
        of its model, whose place in memory it takes. Raises: `ConfigError`."""
        header = self._header(spec)
        if makes_vectors(header):
            raise ConfigError(f"{header.path.name} makes vectors of texts and cannot chat; choose another model")
        config, left = self._config, self._left
        cache = next(each for each in config.caches if each.name == like)
        old = self.entries[cache.model]
        for entry in (old, *self.entries.values()):
            if entry.plans and entry.header is not None and entry.header.path.samefile(header.path):
                return cache if entry is old else entry.plans[0].cache
        name = _free_name(model_name(spec), self.entries)
        cache = replace(cache, name=_free_name(name, [each.name for each in config.caches]), model=name, description="")
        model = _like(old.model, name, spec if spec == "embedded" else str(header.path))
        self._config = replace(config, models=(*config.models, model), caches=(*config.caches, cache))
        self._left += old.residency.n_bytes if old.residency.stays else 0
        try:
            entry = self._planned(model)
        except ConfigError:
            self._config = config
            raise
        finally:
            self._left = left
        self.entries = {**self.entries, name: entry}
        return cache

    def remove(self, cache: CacheConfig) -> None:
        """Undo `add`."""
        config, model = self._config, self.entries[cache.model].model
        models = tuple(each for each in config.models if each is not model)
        self._config = replace(config, models=models, caches=tuple(each for each in config.caches if each != cache))
        self.entries = {name: entry for name, entry in self.entries.items() if name != cache.model}

    def _find_memory(self) -> str | None:
        if (spec := self._config.memory.embedding_model) is None:
            return None
        header = self._header(spec)
        for name, entry in self.entries.items():
            if entry.makes_vectors and entry.header and entry.header.path == header.path:
                return name
        name = model_name(spec)
        while name in self.entries:
            name += "-memory"
        # One thread: it mostly works in the background.
        self.entries[name] = self._made(ModelConfig(name, path=spec, n_threads=1), header)
        return name

    def _embedder(self, entry: ModelEntry) -> dict[str, ModelEntry]:
        """By the model's name, a chat model opened to make vectors; empty for other models."""
        if entry.header is None or entry.makes_vectors:
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
        if makes_vectors(header) or model.pooling is not None:
            return self._made(model, header)
        room = self._left
        plans: list[CachePlan] = []
        for cache in (each for each in self._config.caches if each.model == model.name):
            type_k, type_v = cache.cache_type_k or model.cache_type_k, cache.cache_type_v or model.cache_type_v
            types = (type_k or "f16", type_v or "f16")
            n_ctx = context_size(
                header, cache=cache.name, asked=cache.n_ctx, types=types, is_loaded=bool(plans), room=room
            )
            room -= gguf.kv_bytes(header, n_ctx, *types) + (0 if plans else header.size_bytes)
            plans.append(CachePlan(cache, n_ctx, types))
        entry = self._made(model, header, tuple(plans))
        if entry.residency.stays:
            self._left = max(0, self._left - entry.residency.n_bytes)
        return entry

    def _made(self, model: ModelConfig, header: gguf.Header, plans: tuple[CachePlan, ...] = ()) -> ModelEntry:
        """The entry; without a cache it is one that embeds."""
        cells = sum(gguf.kv_bytes(header, plan.n_ctx, *plan.types) for plan in plans)
        n_tokens = None
        if not plans:
            n_tokens = next((each.n_ctx for each in self._config.caches if each.model == model.name), 0) or None
        # This is an estimate: where only the rest fits exactly, it does not refuse a model.
        buffers = sum(cache_bytes(header, plan.n_ctx, plan.types) for plan in plans) - cells
        n_bytes = header.size_bytes + cells
        n_bytes += min(buffers, max(0, self._left - n_bytes))
        card = _card(model, header, plans, n_tokens, n_bytes)
        return ModelEntry(ModelKey(model.name), model, card, _residency(model, n_bytes), header, plans, n_tokens)

    def _header(self, spec: str) -> gguf.Header:
        header = gguf.read_header(catalog.find(spec, env=self._env, home=Path.home(), cwd=Path.cwd()))
        soundness.check(header)
        return header


def budget_of(config: Config) -> int:
    """The bytes that all models may take together, in the memory that they use: of the cards, of the machine, or of
    both where some layers stay with the CPU."""
    from shepherd.engine.llamacpp.library import gpu_memory  # noqa: PLC0415 - loads the native library

    layers = {model.gpu_layers for model in config.models}
    cards = gpu_memory() if layers != {0} else None
    machine = psutil.virtual_memory()
    free, total = (cards.free, cards.total) if cards else (0, 0)
    if cards is None or any(count is not None and count >= 0 for count in layers):
        free, total = free + machine.available, total + machine.total
    return budget_bytes(config.memory_budget, free=free, total=total)


def makes_vectors(header: gguf.Header) -> bool:
    """Whether a model only embeds: its architecture can do nothing else, or its file sets a pooling."""
    architecture = header.architecture
    pooling = header.metadata.get(f"{architecture}.pooling_type", 0)
    return any(name in architecture for name in _ENCODERS) or (isinstance(pooling, int) and pooling > 0)


def _like(model: ModelConfig, name: str, path: str) -> ModelConfig:
    """Another model, with the settings of this one that do not depend on its file."""
    sampling, greedy = model.sampling, Sampling(temperature=0)  # the embedded model is too small to sample from
    if model.path == "embedded" and sampling.temperature == 0:
        sampling = replace(sampling, temperature=None)
    return replace(
        model,
        name=name,
        path=path,
        dialect=None,
        chat_template=None,
        pooling=None,
        load="demand",
        keep_alive=-1.0,
        sampling=sampling.over(greedy) if path == "embedded" else sampling,
    )


def _free_name(name: str, taken: Collection[str]) -> str:
    return next(each for n in count(1) if (each := name if n == 1 else f"{name}-{n}") not in taken)


def _residency(model: ModelConfig, n_bytes: int) -> Residency:
    at_start = model.load == "start"
    keep_alive_s = model.keep_alive if model.keep_alive is not None else -1.0 if at_start else ON_DEMAND_S
    keep_alive_s = inf if keep_alive_s < 0 else keep_alive_s
    return Residency(n_bytes, keep_alive_s, stays=at_start and keep_alive_s == inf)


def _card(
    model: ModelConfig, header: gguf.Header, plans: tuple[CachePlan, ...], n_tokens: int | None, n_bytes: int
) -> ModelCard:
    template = header.chat_template or ""
    if model.chat_template:
        template = read_text(Path(model.chat_template), f"models.{model.name}.chat_template")
    parameters = _count(header.n_params)
    is_chat = bool(plans)
    trained = header.n_ctx_train or 512
    return ModelCard(
        model.name,
        plans[0].n_ctx if is_chat else min(n_tokens or trained, trained),
        int(header.path.stat().st_mtime),
        " ".join(filter(None, (header.architecture, parameters, header.file_type))),
        kind="chat" if is_chat else "embedding",
        n_bytes=sum(file.stat().st_size for file in header.files),
        architecture=header.architecture,
        parameters=parameters,
        quantization=header.file_type or "",
        capabilities=tuple(_capabilities(model, header, template)) if is_chat else ("embedding",),
        template=template,
        loaded=False,
        memory_bytes=n_bytes,
    )


def _capabilities(model: ModelConfig, header: gguf.Header, template: str) -> Iterator[str]:
    yield "completion"
    signs = template if model.chat_template else header.chat_templates.get(FOR_TOOLS, template)
    if signs:
        dialect = get(model.dialect) if model.dialect in names() else detect(signs)
        if "tools" in signs:
            yield "tools"
        if dialect.thinks:
            yield "thinking"
    if _fills_in(header):
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
