"""Whatever is asked of models: which one is meant, loaded if it is not, and asked.

    request ─ Router ─▶ route ─▶ cache ─▶ its model ─ Fleet ─▶ back end ─▶ events

Not here: how a model is loaded (`loading.py`), who may ask, what is remembered.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NoReturn

from shepherd.app.loading import Opened
from shepherd.app.model_pool import Fleet, Standing
from shepherd.app.model_registry import VECTORS, Entry, Roster
from shepherd.backends.local.completion import pieces
from shepherd.backends.router import Route, Router
from shepherd.config import Config
from shepherd.core import (
    ConfigError,
    EngineError,
    Event,
    Finished,
    InvalidRequest,
    Request,
    ShepherdError,
    Started,
    UnknownModel,
)
from shepherd.core.status import Embeddings, ModelCard
from shepherd.wire.names import model_names

if TYPE_CHECKING:
    from shepherd.agent.with_memory import Remembering
    from shepherd.backends.local.backend import LocalBackend
    from shepherd.engine.llamacpp import Weights

logger = logging.getLogger(__name__)


class Desk:
    """All models of a configuration, asked by name or by route. One event loop; what is not awaited, any thread."""

    def __init__(self, config: Config, roster: Roster, fleet: Fleet[Opened], router: Router) -> None:
        """Whoever made the fleet closes it."""
        self.roster = roster
        self.fleet = fleet
        self.router = router
        self._config = config
        self._models = {cache.name: cache.model for cache in config.caches}

    # asked

    async def stream(self, request: Request, *, endpoint: str) -> AsyncGenerator[Event, None]:
        """The answer of whichever cache the routes choose, its model loaded if need be; see `Backend.stream`.

        A request that says nothing at all loads its model, or unloads it if it is to stay for no time.
        """
        if not request.messages and request.completion is None:
            await self._come_or_go(request, endpoint)
            yield Started(request.model)
            yield Finished("end")
            return
        route = self.router.choose(request.model, endpoint)
        async with self._answering(route, request) as backend, aclosing(backend.stream(route.fill(request))) as events:
            async for event in events:
                yield event

    async def ask(self, request: Request) -> AsyncGenerator[Event, None]:
        """The answer of the model of this very name, whatever the routes say. Raises: `UnknownModel`; as `stream`."""
        entry = self._find(request.model)
        if entry is None:
            raise UnknownModel(request.model, known=self.names)
        async with self.use(entry) as opened:
            for backend in opened.answering.values():  # all are of the same model
                async with aclosing(backend.stream(request)) as events:
                    async for event in events:
                        yield event
                return
            self._refuse_to_chat(entry.name)

    async def count(self, request: Request, *, endpoint: str) -> int:
        """How many tokens the prompt of `request` has."""
        route = self.router.choose(request.model, endpoint)
        async with self._answering(route, request) as backend:
            return await backend.count(route.fill(request))

    async def tokenize(self, model: str, text: str, *, special: bool, bos: bool, endpoint: str) -> list[int]:
        """The tokens of plain text. `special`: control tokens are recognised in it; `bos`: with the first token that
        every prompt has."""
        async with self._of_name(model, endpoint) as opened:
            for backend in opened.backends.values():  # all have the same words
                return await asyncio.to_thread(backend.tokenize, text, special=special, bos=bos)
            return await asyncio.to_thread(_tokens, opened.weights, text, special, bos)

    async def detokenize(self, model: str, tokens: Sequence[int], *, endpoint: str) -> list[bytes]:
        """The bytes of each token. Raises: `InvalidRequest` for what is no token of the model."""
        async with self._of_name(model, endpoint) as opened:
            return await asyncio.to_thread(pieces, tokens, opened.weights)

    async def embed(
        self, model: str, inputs: Sequence[str | Sequence[int]], *, dimensions: int | None, truncate: bool
    ) -> Embeddings:
        """A vector for each input, of the model of this name, or else of the first that is made for it."""
        entry = self._vectors_of(model)
        async with self.use(entry) as opened:
            assert opened.embedder is not None
            encode = opened.embedder.encode
            made = await asyncio.to_thread(lambda: encode(list(inputs), truncate=truncate, dimensions=dimensions))
        return Embeddings(entry.card.id, made.vectors.tolist(), made.n_tokens)

    async def unload(self, model: str) -> bool:
        """Free the model of this name as soon as nothing uses it; False when it was not loaded."""
        entry = self._find(model)
        if entry is None:
            raise UnknownModel(model, known=self.names)
        names = [name for name in (entry.name, entry.name + VECTORS) if name in self.roster.entries]
        return any([await self.fleet.unload(name) for name in names])

    # told

    @property
    def names(self) -> tuple[str, ...]:
        """Of all models that can be asked for."""
        return tuple(card.id for _, card in self.roster.cards())

    def models(self) -> tuple[ModelCard, ...]:
        """One card per model that can be asked for, loaded or not, in the order of the configuration; then one for each
        other name that the routes have for one of them."""
        standing, now_s = self.fleet.standing(), time.time()
        own = {card.id: _current(card, standing[name], now_s) for name, card in self.roster.cards()}
        taken = {name.casefold() for name in (*own, *self._models)}
        others = ((name, self._models[cache]) for name, cache in self.router.names().items())
        aliases = (
            replace(own[model], id=name) for name, model in others if model in own and name.casefold() not in taken
        )
        return (*own.values(), *aliases)

    def entry_of(self, cache: str) -> Entry:
        """The model that a cache is of."""
        return self.roster.entries[self._models[cache]]

    def loaded(self) -> list[Opened]:
        """The models that are open now."""
        return list(self.fleet.loaded().values())

    def backends(self) -> dict[str, LocalBackend]:
        """By cache, those that are open now, in the order of the configuration."""
        found = {name: backend for opened in self.loaded() for name, backend in list(opened.backends.items())}
        return {cache: found[cache] for cache in self._models if cache in found}

    # which model

    def _find(self, model: str) -> Entry | None:
        """The entry of a model's own name, however it is written."""
        entries = self.roster.entries
        by_name = {name.casefold(): entry for name, entry in entries.items() if not name.endswith(VECTORS)}
        return next((by_name[name.casefold()] for name in model_names(model) if name.casefold() in by_name), None)

    def _vectors_of(self, model: str) -> Entry:
        """Which entry makes the vectors for whoever asks for `model`. Raises: `InvalidRequest`."""
        entries, memory = self.roster.entries, self.roster.memory
        if (named := self._find(model)) is not None:
            return entries.get(named.name + VECTORS, named)
        if memory is not None:
            return entries[memory]
        for name, entry in entries.items():
            if entry.makes_vectors and not name.endswith(VECTORS):
                return entry
        asked = f"model {model!r} does not exist, and no" if model else "no"
        raise InvalidRequest(
            f"{asked} model that makes vectors is configured; add one, such as [models.embed] with its path, or name "
            f"one of {', '.join(self.names)}",
            field="model", status=404 if model else 400,
        )  # fmt: skip

    @asynccontextmanager
    async def use(self, entry: Entry, keep_alive_s: float | None = None) -> AsyncIterator[Opened]:
        """The model, loaded, for the length of the block."""
        if entry.header is None:
            await asyncio.to_thread(self._read_again, entry.name)
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self.fleet.use(entry.name, keep_alive_s))
            except ShepherdError as error:
                logger.warning("model %r is not loaded: %s", entry.name, error)
                raise
            yield opened

    def _read_again(self, name: str) -> None:
        """Look at a file once more that could not be used. Raises: `EngineError`."""
        try:
            self.roster.again(name)
        except ConfigError as error:
            raise EngineError(f"model {name!r} cannot be loaded: {error}") from error
        for each, entry in self.roster.entries.items():
            self.fleet.add(each, entry.terms)

    @asynccontextmanager
    async def _answering(self, route: Route, request: Request) -> AsyncIterator[Remembering]:
        """The back end that a route leads to, for the length of the block."""
        async with self.use(self._behind(route), _keep_alive(request)) as opened:
            if route.target not in opened.answering:  # a file that was not there at the start, and is no chat model
                self._refuse_to_chat(opened.name)
            yield opened.answering[route.target]

    def _behind(self, route: Route) -> Entry:
        """The model that answers at the end of a route. Raises: `InvalidRequest` for one that only makes vectors."""
        entry = self.entry_of(route.target)
        if entry.makes_vectors:
            self._refuse_to_chat(entry.name)
        return entry

    def _refuse_to_chat(self, name: str) -> NoReturn:
        raise InvalidRequest(
            f"model {name!r} makes vectors of texts and cannot chat; ask for them at /v1/embeddings", field="model"
        )

    def _asked_for(self, model: str, endpoint: str) -> Entry:
        """One that makes vectors by its name, the others as the routes say. Raises: as `_behind`, `UnknownModel`."""
        entry = self._find(model)
        return entry if entry and entry.makes_vectors else self._behind(self.router.choose(model, endpoint))

    @asynccontextmanager
    async def _of_name(self, model: str, endpoint: str) -> AsyncIterator[Opened]:
        async with self.use(self._asked_for(model, endpoint)) as opened:
            yield opened

    async def _come_or_go(self, request: Request, endpoint: str) -> None:
        """Load or unload the model of a request that says nothing."""
        entry, keep_alive_s = self._asked_for(request.model, endpoint), _keep_alive(request)
        if keep_alive_s == 0:
            await self.unload(entry.name)
        else:
            async with self.use(entry, keep_alive_s):
                pass


def _keep_alive(request: Request) -> float | None:
    """How long a request wants its model to stay; None = it does not say."""
    said = request.extra.get("keep_alive")
    return None if said is None else inf if said < 0 else float(said)


def _current(card: ModelCard, standing: Standing, now_s: float) -> ModelCard:
    """The card with how it is with the model now."""
    left_s = standing.expires_in_s
    return replace(card, loaded=standing.is_loaded, expires=None if left_s is None else now_s + max(0.0, left_s))


def _tokens(weights: Weights, text: str, special: bool, bos: bool) -> list[int]:
    tokens = [weights.bos] if bos and weights.bos is not None else []
    control = {each.text: each.id for each in weights.specials if each.text} if special else {}
    markers = "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
    for part in re.split(f"({markers})", text) if control else [text]:
        tokens += [control[part]] if part in control else weights.tokenize(part) if part else []
    return tokens
