"""A back end of another package in the place of a provider: its events are checked, its errors are translated.

Request ─▶ Backend of the package ─ Assembler ─▶ events in the grammar, or one `BackendError`
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from shepherd.backends.cloud import fit, models
from shepherd.backends.cloud.backend import TokenCount
from shepherd.backends.cloud.budget import Meter
from shepherd.backends.cloud.provider import Provider
from shepherd.backends.registered import BackendSettings
from shepherd.core import (
    Assembler,
    BackendError,
    BadReply,
    Event,
    Finished,
    InvalidRequest,
    Request,
    Sampling,
    ShepherdError,
    Started,
    Usage,
)
from shepherd.core.events import GrammarError
from shepherd.core.status import Embeddings, ModelCard

logger = logging.getLogger(__name__)


class PackagedBackend:
    """Has the methods of `CloudBackend` that others call. One event loop."""

    def __init__(self, provider: Provider, *, meter: Meter, sampling: Sampling = Sampling()) -> None:
        """`meter`, `sampling`: as `CloudBackend`. Raises: `BackendError` where the package refuses its settings."""
        self.provider = provider
        self._meter, self._sampling = meter, sampling
        settings = BackendSettings(
            provider.name, provider.model, provider.n_ctx, provider.root or None, provider.key, provider.options
        )
        make = provider.kind.make
        assert make is not None
        try:
            self._backend = make(settings)
        except ShepherdError:
            raise
        except Exception as error:
            raise BackendError(
                f"{provider.name}: the back end {provider.kind.name!r} cannot be made: {self._shown(error)}",
                backend=provider.name,
            ) from error

    async def aclose(self) -> None:
        close = getattr(self._backend, "aclose", None)
        if close is not None:
            try:
                await close()
            except Exception:
                logger.exception("the back end %r has failed to close", self.provider.name)

    def model_of(self, request: Request) -> str:
        return self.provider.model or request.model

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self._meter.check()
        model = self.model_of(request)
        asked = replace(request, model=model, sampling=request.sampling.over(self._sampling))
        assembler, unpaid = Assembler(), Usage()
        try:
            async with aclosing(self._backend.stream(asked)) as events:
                async for event in events:
                    assembler.feed(event)
                    if isinstance(event, Started):
                        unpaid = event.usage
                        event = replace(event, cache=self.provider.name, origin=f"{self.provider.name}:{model}")
                    elif isinstance(event, Finished):
                        unpaid = event.usage
                    yield event
            assembler.reply()
        except ShepherdError:
            raise
        except GrammarError as error:
            raise BadReply(f"{self.provider.name}: {error}", backend=self.provider.name) from error
        except Exception as error:
            raise BackendError(
                f"{self.provider.name} has failed: {self._shown(error)}", backend=self.provider.name
            ) from error
        finally:
            self._meter.note(unpaid)

    def _shown(self, error: Exception) -> str:
        return self.provider.hide(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    async def count(self, request: Request) -> TokenCount:
        """By the back end's own `count(request)`, if it has one; or else an estimate."""
        if (count := getattr(self._backend, "count", None)) is not None:
            found = count(replace(request, model=self.model_of(request)))
            return TokenCount(int(await found if inspect.isawaitable(found) else found), is_exact=True)
        return TokenCount(fit.Estimate().tokens(fit.weight_of(request)), is_exact=False)

    def window(self, model: str) -> int | None:
        return self.provider.n_ctx

    async def n_ctx(self, model: str) -> int | None:
        return self.provider.n_ctx

    def card(self, model: str) -> ModelCard:
        return models.card(model, models.Facts(n_ctx=self.provider.n_ctx))

    async def models(self) -> list[ModelCard]:
        return [self.card(self.provider.model)] if self.provider.model else []

    async def embed(
        self, model: str, inputs: Sequence[str], dimensions: int | None = None, *, truncate: bool = True
    ) -> Embeddings:
        raise InvalidRequest(f"{self.provider.kind.title} has no embeddings; name another provider", field="model")
