"""A server with OpenAI's chat protocol as a side: the client that providers are asked with, once, with a time limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.provider import KINDS, ProviderKind, provider_of
from shepherd.backends.cloud.transport import Deadlines, Transport
from shepherd.core import BadReply, Event, NotAllowed, Refused, Request, TimedOut
from shepherd.measure.dialogue import Side

DEADLINES = Deadlines(connect=5.0, idle=60.0, record=60.0, whole=20.0)
"""A server that sends no byte for so long has stalled; a long prompt on a slow machine takes some of it."""
_SHOWN = 5
"""Models that an error names."""


@asynccontextmanager
async def opened(
    url: str, *, model: str | None, key: str | None, env: Mapping[str, str], deadlines: Deadlines = DEADLINES
) -> AsyncIterator[Side]:
    """The server at `url` (without `/v1`) for the length of the block. `model`: None = the only one that it lists.
    `key`: None = the variable that providers at this address have.

    Raises, within the block as well: `Unreachable`, `NotAllowed`, `TimedOut`, `BadReply`, `Refused`.
    """
    name, kind = urlsplit(url).netloc, _kind_at(url)
    provider = provider_of(
        kind, name=name, env=env, base_url=url, key=key, protocol="openai.chat", quirks=frozenset({"samplers"})
    )
    backend = CloudBackend(provider, transport=Transport(provider, deadlines=deadlines), timeouts=Timeouts(attempts=1))

    async def stream(request: Request) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(backend.stream(request)) as events:
                async for event in events:
                    yield event
        except Refused as error:
            raise _explained(error, url, kind, request.model) from error
        except TimedOut as error:
            raise TimedOut(
                f"{error.message}: it has stalled, or needs a longer limit (idle_s of [network])", backend=name
            ) from error

    try:
        yield Side(name, model or await _only_model(backend, url, kind), stream)
    finally:
        await backend.aclose()


def _kind_at(url: str) -> ProviderKind:
    """Of providers at this address: their variables for keys, and how they depart from the protocol."""
    at = [kind for kind in KINDS.values() if kind.base_url and urlsplit(kind.base_url).netloc == urlsplit(url).netloc]
    kind = at[0] if len(at) == 1 else KINDS["openai_compat"]
    keys = tuple(dict.fromkeys(key for each in at for key in each.keys))
    return replace(kind, protocols=("openai.chat",), keys=keys, urls=(), needs_key=False)


async def _only_model(backend: CloudBackend, url: str, kind: ProviderKind) -> str:
    try:
        names = [card.id for card in await backend.models()]
    except Refused as error:
        if error.status == 404:
            raise BadReply(
                f"{url} lists no models (/v1/models is not there); name one with --against-model", backend=url
            ) from error
        raise _explained(error, url, kind, "") from error
    if len(names) != 1:
        some = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        listed = f"{len(names)} models ({some})" if names else "no model"
        raise BadReply(f"{url} lists {listed}; name one with --against-model", backend=url)
    return names[0]


def _explained(error: Refused, url: str, kind: ProviderKind, model: str) -> Exception:
    if error.status in (401, 403):
        variable = f", or in {' or '.join(kind.keys)}" if kind.keys else ""
        return NotAllowed(f"{url} refuses access; give its key with --api-key KEY{variable}", status=error.status)
    if error.status == 404 and model:
        return BadReply(
            f"{url} does not answer for model {model!r} ({error.message}); name another with --against-model",
            backend=url,
        )
    return error
