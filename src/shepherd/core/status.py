"""The state of the program: its models, how full its caches are, whether it can answer, which model a chat uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model that a request can name. Empty and 0 = not known."""

    id: str
    n_ctx: int
    """Tokens that one conversation can hold."""
    created: int
    """Unix time of the model file, in seconds."""
    description: str = ""
    kind: Literal["chat", "embedding"] = "chat"
    n_bytes: int = 0
    """Size of the file, all of its parts."""
    architecture: str = ""
    """As the GGUF file calls it: `qwen3`, `bert`."""
    parameters: str = ""
    """Their number, for a person: `8.2B`."""
    quantization: str = ""
    """Such as `Q4_K_M`."""
    capabilities: tuple[str, ...] = ()
    """Of `completion`, `tools`, `thinking`, `insert` (fills in the middle), `embedding`."""
    template: str = ""
    """The source of its chat template."""
    loaded: bool = True
    expires: float | None = None
    """Unix time at which it will be unloaded unless it is used; None = never, or not loaded."""
    memory_bytes: int = 0
    """Memory while it is loaded: weights and caches."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors for several inputs."""

    model: str
    """The id of the card."""
    vectors: Sequence[Sequence[float]]
    """One for each input, of length 1 (Euclidean)."""
    n_tokens: tuple[int, ...]
    """Of each input, as the model read it."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """How full one cache is."""

    n_ctx: int
    used: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether requests can be answered now."""

    status: Literal["ok", "degraded", "loading", "stopping", "error"]
    """`degraded`: requests are answered, but their messages are not archived."""
    backend: str
    model: str
    """File name of the default model, without its folder."""
    caches: Mapping[str, CacheUsage] = field(default_factory=dict)
    detail: str = ""
    """The fault, or what the back end waits for; one sentence for a person."""


@dataclass(frozen=True, slots=True)
class ActiveModel:
    """A cache and its model, as the banner shows them."""

    backend: str
    """Such as `llama.cpp (CPU)`."""
    model: str
    """The file's stem."""
    path: Path
    n_ctx: int
    embedded: bool
    dialect: str
    cache: str
    """Empty for a model that cannot chat."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model or cache that a conversation can switch to."""

    name: str
    """Of the model; of the cache, where a model has several."""
    cache: str
    kind: Literal["model", "cache", "provider"]
    detail: str
    """One line for a person."""
    current: bool
