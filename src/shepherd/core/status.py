"""The state of the program: its models, how full its caches are, whether it can answer, which model a chat uses."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from shepherd.core.dataclasses import astuple, dataclass, field
from shepherd.core.request import Sampling

ModelKind = Literal["chat", "embedding", "reranker"]


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One model that a request can name. Empty and 0 = not known."""

    id: str
    n_ctx: int
    """Tokens that one conversation can have."""
    created: int
    """Unix time of the model file, in seconds."""
    description: str = ""
    kind: ModelKind = "chat"
    n_bytes: int = 0
    """Size of the file, all of its parts."""
    architecture: str = ""
    """As the GGUF file calls it: `qwen3`, `bert`."""
    parameters: str = ""
    """Their number, for a person: `8.2B`."""
    quantization: str = ""
    """Such as `Q4_K_M`."""
    capabilities: tuple[str, ...] = ()
    """Of `completion`, `tools`, `thinking`, `vision`, `audio`, `insert` (fills in the middle), `embedding`,
    `rerank`."""
    aliases: tuple[str, ...] = ()
    """Its own name, and those of routes and aliases to it."""
    parent: str = ""
    """The model that this one is, with an adapter."""
    stands_for: str = ""
    """Of an alias: the name of what answers."""
    tags: tuple[str, ...] = ()
    """Words of the configuration."""
    template: str = ""
    """The source of its chat template."""
    loaded: bool = True
    expires: float | None = None
    """Unix time at which it will be unloaded unless it is used; None = never, or not loaded."""
    memory_bytes: int = 0
    """Memory while it is loaded: weights and caches."""
    n_cells: int = 0
    """How many of them the context holds at a time; fewer than `n_ctx` in a window."""
    n_slots: int = 0
    """Requests that its caches compute at the same time."""
    sampling: Sampling = field(default_factory=Sampling)
    """For what a request leaves open."""


@dataclass(frozen=True, slots=True)
class AdapterState:
    name: str
    file: str
    """Its name, without the folder."""
    kind: Literal["lora", "control"]
    scale: float
    """For requests that choose no adapters."""


@dataclass(frozen=True, slots=True)
class Embeddings:
    model: str
    """The id of the card."""
    vectors: Sequence[Sequence[float]]
    """One for each input, of length 1 (Euclidean)."""
    n_tokens: tuple[int, ...]
    """Of each input, as the model read it."""
    pooled: bool = True
    """False: `vectors` has one for each token, input after input, of any length."""


@dataclass(frozen=True, slots=True)
class CacheUsage:
    n_ctx: int
    used: int
    model: str = ""


ReplicaState = Literal["ready", "resting", "draining", "drained"]


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One of several servers of a provider."""

    state: ReplicaState
    """`resting`: it has failed, or a look at it has; `draining`: taken out, and answers are still running there."""
    n_open: int
    """Requests that it is answering."""
    rests_s: float = 0.0
    detail: str = ""
    """Why it rests. It may hold an address, which a client without a key must not see."""
    models: tuple[str, ...] = ()
    """Some of those that it lists; empty = not known."""


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
    providers: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each still rests after a failure; 0 = it does not."""
    groups: Mapping[str, Mapping[str, ReplicaStatus]] = field(default_factory=dict)
    """Of each provider with several servers, the servers."""


WAYS = {True: "prompts leave this machine", False: "prompts stay on this machine"}
"""By `ActiveModel.is_away`."""


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
    """Empty for a model that cannot chat; of a provider, its name."""
    is_provider: bool = False
    """A provider answers; `path` is only the name of its model."""
    is_away: bool = False
    """Prompts leave this machine."""


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


@dataclass(frozen=True, slots=True)
class Spent:
    """What answers of a provider have cost."""

    input: int = 0
    """Prompt tokens that were not in the provider's cache."""
    cached: int = 0
    output: int = 0
    money: float = 0.0
    """By the prices of the configuration."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*map(operator.add, astuple(self), astuple(other)))

    @property
    def tokens(self) -> int:
        return self.input + self.cached + self.output


def money_text(money: float) -> str:
    """An amount for a person, without a currency: the configuration has none."""
    return f"{money:,.2f}" if money >= 1 or money == 0 else f"{money:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class ProviderSpending:
    """What one provider has cost, and may cost."""

    today: Spent
    """Since midnight, of all programs of this user."""
    total: Spent
    """Since the start of this program."""
    budget_tokens: int | None = None
    budget_money: float | None = None
    """Limits of a day; None = none."""
