"""What the server needs of the program behind it: the one seam between HTTP and everything else. `App` satisfies it.

    Service ─┬ conversations   answers of models, and their prompts
             ├ dispatcher      tokens, vectors, scores, and what is loaded
             ├ catalogue       the models that a request can name
             ├ chats           the conversations that it keeps
             └ its own state: health, caches, memory

Parts raise `EngineDown` before the models are loaded. The server calls all of it on the event loop; functions that are
not awaited return at once, except `memory`, which runs in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from shepherd.app.live_window import LiveWindow
from shepherd.app.usage import DayOfUse, Totals
from shepherd.core import Event, Request, TextOrTokens
from shepherd.core.pairs import Pairs, Scores
from shepherd.core.status import Embeddings, Health, ModelCard, ReplicaStatus
from shepherd.engine.stats import CacheStats

if TYPE_CHECKING:  # a server without a memory does not load it
    from shepherd.app.chats.chats import Chats
    from shepherd.backends.local.adapters import ModelAdapters
    from shepherd.memory import MemoryStore
    from shepherd.memory.archive.forget import Removed
    from shepherd.models.pull.pull import Event as PullEvent


class Conversations(Protocol):
    """`endpoint`, here and below, is the canonical path: a route may choose the model by it."""

    def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        """The events of one answer; closing the generator cancels it. Raises: `ShepherdError`."""

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` would have; exact. May load the model.

        Raises: `UnknownModel`, `InvalidRequest`, `EngineDown`, `EngineError`.
        """

    async def render(self, request: Request, *, endpoint: str) -> str:
        """The prompt of `request` as the chat template writes it. Raises: as `count`."""


class Dispatcher(Protocol):
    """All of them raise as `Conversations.count`."""

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has."""

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: `InvalidRequest` for an unknown token."""

    async def embed(
        self, model: str, inputs: Sequence[TextOrTokens], *, dimensions: int | None, truncate: bool,
        endpoint: str,
    ) -> Embeddings:  # fmt: skip
        """A vector for each input, texts or tokens.

        `dimensions`: the first so many of each vector, scaled to length 1 again; None = all. `truncate`: shorten an
        input that is too long instead of refusing it. Raises: `InvalidRequest` for a model that makes no vectors.
        """

    async def rerank(self, model: str, pairs: Pairs) -> Scores:
        """How relevant each document is to its query. Raises: `InvalidRequest` for a model that scores no pairs, and
        for a document that is too long."""

    async def load(self, model: str, keep_alive_s: float | None, *, endpoint: str) -> None:
        """Load the model that the routes choose; with `keep_alive_s` 0 unload it. `keep_alive_s`: how long it stays
        from now on; None = as before, negative = without end."""

    def take_out(self, name: str, *, is_out: bool) -> ReplicaStatus:
        """Let a replica get no new requests, or some again; running answers end. Raises: `InvalidRequest`."""


class Catalogue(Protocol):
    """As `app.directory.catalogue.Catalogue`."""

    def models(self) -> Sequence[ModelCard]: ...

    def adapters(self, model: str) -> ModelAdapters: ...

    async def look_again(self) -> None: ...

    async def here(self) -> dict[str, Any]: ...

    async def unload(self, model: str) -> bool: ...

    async def pull(self, name: str, show: Callable[[PullEvent], None]) -> None: ...

    async def copy(self, source: str, name: str) -> None: ...

    async def delete(self, name: str) -> None: ...


class Service(Protocol):
    @property
    def conversations(self) -> Conversations: ...

    @property
    def dispatcher(self) -> Dispatcher: ...

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def chats(self) -> Chats: ...

    @property
    def manages_models(self) -> bool:
        """Clients may pull, copy and delete models. Also before the models are loaded."""

    def health(self) -> Health:
        """Also before the models are loaded; so is all that follows."""

    def stats(self) -> Mapping[str, CacheStats]:
        """By name, the figures of every cache that is open."""

    def totals(self) -> Totals: ...

    def usage(self, n_days: int, user: str | None = None) -> Sequence[DayOfUse]:
        """What models and providers were used for on the last days; or what was answered to the `user` of an API key.
        Runs in a thread."""

    @property
    def window(self) -> LiveWindow:
        """What all caches hold, as it changes. On the event loop."""

    async def clear(self, name: str) -> None:
        """Empty a cache of `stats`, saved copies included; running answers continue. Raises: `EngineDown`."""

    def memory(self, user: str | None) -> MemoryStore | None:
        """The memory of one user, `LOCAL` = the owner; None: there is none. Runs in a thread; may open a file.

        Raises: `ConfigError`, `MemoryFailure`.
        """

    async def forget(self, user: str, **selection: Any) -> Removed:
        """Delete the selected messages (as `MemoryStore.forget`) from a user's memory; empty the caches that may
        repeat them.

        Raises: `InvalidRequest`, `MemoryFailure`, `EngineDown`.
        """
