"""What the server needs of the program behind it: the one seam between HTTP and everything else.

Called on the event loop; what is not awaited returns at once, but for `memory`, which is called in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shepherd.core import Request
from shepherd.core.status import Embeddings, Health, ModelCard
from shepherd.engine.stats import CacheStats
from shepherd.server.endpoints.generate import Answers
from shepherd.server.endpoints.memory_request import Remembers


class Service(Answers, Remembers, Protocol):
    """Satisfied by `App`."""

    def models(self) -> Sequence[ModelCard]:
        """Every model that can be asked for, loaded or not, in the order of the configuration."""
        ...

    def health(self) -> Health: ...

    def stats(self) -> Mapping[str, CacheStats]:
        """By name, the figures of every cache that is open."""
        ...

    def n_archived(self) -> int:
        """Messages that were archived since the start."""
        ...

    def n_loads(self) -> Mapping[str, int]:
        """By name, how often each model was loaded since the start."""
        ...

    async def clear(self, name: str) -> None:
        """Forget what a cache of `stats` holds, kept copies included; answers in the making go on.

        Raises: `EngineDown`.
        """
        ...

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` would have; exact. May load the model.

        Raises: `UnknownModel`, `InvalidRequest`, `EngineDown`, `EngineError`.
        """
        ...

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has. Raises: as `count`."""
        ...

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: as `count`; `InvalidRequest` for what is no token of the model."""
        ...

    async def embed(
        self, model: str, inputs: Sequence[str | Sequence[int]], *, dimensions: int | None, truncate: bool,
        endpoint: str,
    ) -> Embeddings:  # fmt: skip
        """A vector for each input, texts or tokens.

        `dimensions`: the first so many of each vector, made one long again; None = all. `truncate`: shorten what is too
        long in place of refusing it. Raises: as `count`; `InvalidRequest` for a model that makes no vectors.
        """
        ...

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded.

        Raises: `UnknownModel`.
        """
        ...
