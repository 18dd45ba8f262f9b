"""What the server needs of the program behind it: the one seam between HTTP and everything else.

The server calls it on the event loop; functions that are not awaited return at once, except `memory`, which runs in a
thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shepherd.core import Event, Request, TextOrTokens
from shepherd.core.pairs import Pairs, Scores
from shepherd.core.request import LoraScale
from shepherd.core.status import AdapterState, Embeddings, Health, ModelCard, ProviderSpending
from shepherd.engine.stats import CacheStats

if TYPE_CHECKING:  # a server without a memory does not load it
    from shepherd.memory import MemoryStore
    from shepherd.memory.archive.forget import Removed
    from shepherd.models.pull.pull import Event as PullEvent


class Service(Protocol):
    """`App` satisfies it."""

    # ---- models

    def models(self) -> Sequence[ModelCard]:
        """Every model that a request can name, loaded or not, in the order of the configuration."""

    async def look_again(self) -> None:
        """See which pulled models have come or gone."""

    async def copy_model(self, source: str, name: str) -> None:
        """Let `name` stand for a model, also after a restart.

        Raises: `NotAllowed` unless the operator allows it; `UnknownModel`; `InvalidRequest` for a name that is taken.
        """

    async def delete_model(self, name: str) -> None:
        """Take away a name that `copy_model` gave, or remove a pulled model and its files.

        Raises: `NotAllowed` unless the operator allows it; `UnknownModel`; `InvalidRequest` for any other model.
        """

    def health(self) -> Health: ...

    async def load_model(self, model: str, keep_alive_s: float | None, *, endpoint: str) -> None:
        """Load the model that the routes choose; with `keep_alive_s` 0 unload it. `keep_alive_s`: how long it stays
        from now on; None = as before, negative = without end. Raises: as `count`."""
        ...

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded.

        Raises: `UnknownModel`.
        """

    def adapters(self, model: str) -> Sequence[AdapterState]:
        """Those of the model of this name, or of the first where it is empty, in order. Raises: `UnknownModel`."""

    def set_adapters(self, model: str, scales: Sequence[LoraScale]) -> None:
        """From now on, requests for the model that choose no adapters get these alone.

        Raises: `UnknownModel`, `InvalidRequest` for an adapter that the model does not have.
        """

    async def pull(self, name: str, show: Callable[[PullEvent], None]) -> None:
        """Get a model that is not on this machine; `show` gets what happens, on the event loop.

        Raises: `NotAllowed` where clients may not; `ShepherdError`, in one sentence.
        """

    # ---- requests; `endpoint` is the canonical path: a route may choose the model by it

    def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        """The events of one answer; closing the generator cancels it. Raises: `ShepherdError`."""

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` would have; exact. May load the model.

        Raises: `UnknownModel`, `InvalidRequest`, `EngineDown`, `EngineError`.
        """

    async def render(self, request: Request, *, endpoint: str) -> str:
        """The prompt of `request` as the chat template writes it. Raises: as `count`."""

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has. Raises: as `count`."""

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: as `count`; `InvalidRequest` for an unknown token."""

    async def embed(
        self, model: str, inputs: Sequence[TextOrTokens], *, dimensions: int | None, truncate: bool,
        endpoint: str,
    ) -> Embeddings:  # fmt: skip
        """A vector for each input, texts or tokens.

        `dimensions`: the first so many of each vector, scaled to length 1 again; None = all. `truncate`: shorten an
        input that is too long instead of refusing it. Raises: as `count`; `InvalidRequest` for a model that makes no
        vectors.
        """

    async def rerank(self, model: str, pairs: Pairs, *, endpoint: str) -> Scores:
        """How relevant each document is to its query. Raises: as `count`; `InvalidRequest` for a model that scores no
        pairs, and for a document that is too long."""

    # ---- caches

    def stats(self) -> Mapping[str, CacheStats]:
        """By name, the figures of every cache that is open."""

    def totals(self) -> Mapping[str, CacheStats]:
        """The same with models that make vectors; totals include what closed caches have counted since the start."""

    async def clear(self, name: str) -> None:
        """Empty a cache of `stats`, saved copies included; running answers continue.

        Raises: `EngineDown`.
        """

    def n_loads(self) -> Mapping[str, int]:
        """By name, how often each model was loaded since the start."""

    def spending(self) -> Mapping[str, ProviderSpending]:
        """By name, what each provider has cost."""

    # ---- the memory

    def n_archived(self) -> int:
        """Messages that were archived since the start."""

    def n_archive_failures(self) -> int:
        """How often messages could not be archived since the start."""

    def n_rerank_failures(self) -> int:
        """How often a search of the memory had to do without its reranker since the start."""

    def memory(self, user: str | None) -> MemoryStore | None:
        """The memory of one user, `LOCAL` = the owner; None: there is none. Runs in a thread; may open a file.

        Raises: `ConfigError`, `MemoryFailure`.
        """

    async def forget(self, user: str, **selection: Any) -> Removed:
        """Delete the selected messages (as `MemoryStore.forget`) from a user's memory; empty the caches that may
        repeat them.

        Raises: `InvalidRequest`, `MemoryFailure`, `EngineDown`.
        """
