"""Vectors over HTTP, in both protocols: the answers of the rows `/v1/embeddings`, `/api/embed`, `/api/embeddings`.

Numbers are written in a thread: a body of 2,048 vectors has millions of them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import partial

from shepherd.core import Request
from shepherd.core.status import Embeddings
from shepherd.server.service import Service
from shepherd.wire.base import Json
from shepherd.wire.ollama import embed as ollama_embed
from shepherd.wire.openai import embeddings as openai_embeddings


async def answer_openai(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    wanted = await asyncio.to_thread(openai_embeddings.decode_request, body)
    made = await service.embed(
        wanted.model,
        wanted.inputs,
        dimensions=wanted.dimensions,
        truncate=wanted.truncate,
        endpoint=path,
    )
    return await asyncio.to_thread(
        openai_embeddings.encode_answer,
        made.vectors,
        model=wanted.model or made.model,
        n_tokens=sum(made.n_tokens),
        packed=wanted.packed,
    )


async def answer_embed(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    began = time.perf_counter_ns()
    wanted = await asyncio.to_thread(ollama_embed.decode_embed, body)
    made = await _ollama_made(service, wanted, path)
    return await asyncio.to_thread(
        partial(
            ollama_embed.encode_embed,
            made.vectors,
            model=wanted.model or made.model,
            n_tokens=sum(made.n_tokens),
            total_ns=time.perf_counter_ns() - began,
        )
    )


async def answer_embeddings(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    made = await _ollama_made(service, ollama_embed.decode_embeddings(body), path)
    return ollama_embed.encode_embeddings(made.vectors)


async def _ollama_made(service: Service, wanted: ollama_embed.Wanted, path: str) -> Embeddings:
    """The vectors, and then the model stays as long as was asked for. A body without texts only loads it."""
    made = Embeddings(wanted.model, (), ())
    if wanted.texts:
        made = await service.embed(
            wanted.model, wanted.texts, dimensions=wanted.dimensions, truncate=wanted.truncate, endpoint=path
        )
    if wanted.keep_alive_s == 0:
        await service.unload(made.model)
    elif not wanted.texts or wanted.keep_alive_s is not None:
        extra = {} if wanted.keep_alive_s is None else {"keep_alive": wanted.keep_alive_s}
        async with aclosing(service.stream(Request(made.model, extra=extra), endpoint=path)) as events:
            async for _ in events:
                pass  # a request that says nothing loads its model
    return made
