"""Vectors over HTTP, in both protocols: the answers of the rows `/v1/embeddings`, `/api/embed`, `/api/embeddings`.

Numbers are written in a thread: a body of 2,048 vectors has millions of them.
"""

from __future__ import annotations

import time

from shepherd.core import InvalidRequest
from shepherd.core.status import Embeddings
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import RequestContext
from shepherd.server.endpoints.ollama import load_or_unload
from shepherd.server.http.caller import caller_of
from shepherd.wire.base import Json
from shepherd.wire.ollama import embed as ollama_embed
from shepherd.wire.openai import embeddings as openai_embeddings

STATES = "/embeddings"
"""The path that has a form for vectors of tokens."""


async def answer_openai(context: RequestContext, body: Json) -> Json | list[Json]:
    """Of a model that does not pool, `/embeddings` has llama-server's form: OpenAI's has one vector for a text.

    Raises: `ShepherdError`.
    """
    wanted = await in_pool("bodies", openai_embeddings.decode_request, body)
    made = await context.state.service.dispatcher.embed(
        wanted.model, wanted.inputs, dimensions=wanted.dimensions, truncate=wanted.truncate, endpoint=context.path
    )
    if not made.pooled and context.scope["path"] == STATES:
        return await in_pool("bodies", openai_embeddings.encode_states, made.vectors, made.n_tokens)
    _check_pooled(made)
    return await in_pool(
        "bodies",
        openai_embeddings.encode_answer,
        made.vectors,
        model=wanted.model or made.model,
        n_tokens=sum(made.n_tokens),
        packed=wanted.packed,
    )


async def answer_embed(context: RequestContext, body: Json) -> Json:
    began = time.perf_counter_ns()
    wanted = await in_pool("bodies", ollama_embed.decode_embed, body)
    made = await _embed_for_ollama(context, wanted)
    return await in_pool(
        "bodies",
        ollama_embed.encode_embed,
        made.vectors,
        model=wanted.model or made.model,
        n_tokens=sum(made.n_tokens),
        total_ns=time.perf_counter_ns() - began,
    )


async def answer_embeddings(context: RequestContext, body: Json) -> Json:
    made = await _embed_for_ollama(context, ollama_embed.decode_embeddings(body))
    return ollama_embed.encode_embeddings(made.vectors)


def _check_pooled(made: Embeddings) -> None:
    if not made.pooled:
        raise InvalidRequest(
            f"the model {made.model!r} makes a vector of each token (pooling none), for which this path has no form; "
            f"ask at {STATES}, or configure pooling mean, cls or last",
            field="model",
        )


async def _embed_for_ollama(context: RequestContext, wanted: ollama_embed.EmbedRequest) -> Embeddings:
    """The vectors; afterwards the model stays loaded as long as the body asks."""
    service, path = context.state.service, context.path
    if not wanted.texts:
        await load_or_unload(context, wanted.model, wanted.keep_alive_s)
        return Embeddings(wanted.model, (), ())
    made = await service.dispatcher.embed(
        wanted.model, wanted.texts, dimensions=wanted.dimensions, truncate=wanted.truncate, endpoint=path
    )
    _check_pooled(made)
    if wanted.keep_alive_s is not None and not caller_of(context.scope).is_one_of_many:
        await load_or_unload(context, made.model, wanted.keep_alive_s)
    return made
