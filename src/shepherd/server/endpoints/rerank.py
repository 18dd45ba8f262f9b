"""Relevance over HTTP: the answers of the rows `/v1/rerank`, `/v2/rerank` and `/v1/score`.

Bodies are read and written in threads: one may hold 10,000 documents.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import RequestContext
from shepherd.server.http.errors import ERRORS
from shepherd.wire import rerank
from shepherd.wire.base import Json


async def answer_rerank(context: RequestContext, body: Json) -> Json | list[Json]:
    """Raises: `ShepherdError`, from then on in the shape of the body."""
    if rerank.is_tei(body):
        context.scope[ERRORS] = rerank.encode_tei_error
    return await _answer(context, body, rerank.decode_rerank, rerank.encode_rerank)


async def answer_cohere(context: RequestContext, body: Json) -> Json | list[Json]:
    return await _answer(context, body, rerank.decode_cohere, rerank.encode_cohere)


async def answer_score(context: RequestContext, body: Json) -> Json | list[Json]:
    return await _answer(context, body, rerank.decode_score, partial(rerank.encode_score, created=int(time.time())))


async def _answer(
    context: RequestContext,
    body: Json,
    decode: Callable[[Json], rerank.RerankRequest],
    encode: Callable[..., Json | list[Json]],
) -> Json | list[Json]:
    wanted = await in_pool("bodies", decode, body)
    made = await context.state.service.dispatcher.rerank(wanted.model, wanted.pairs)
    return await in_pool("bodies", encode, wanted, made, id=f"rerank-{context.record.id}")
