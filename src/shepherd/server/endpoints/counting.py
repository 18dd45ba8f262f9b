"""Counts the tokens of a request without answering it: the same decoding, the same template, no generation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shepherd.server.service import Service
from shepherd.wire.base import Codec, Json


def counting(codec: Codec[Any], endpoint: str) -> Callable[[Service, Json, str], Awaitable[Json]]:
    """Answers a query with `input_tokens`: those of the prompt that `codec` reads in the body.

    `endpoint` is the path that would answer the same body: its routes choose the model here, too.
    """

    async def count(service: Service, body: Json, path: str) -> Json:
        request = (await asyncio.to_thread(codec.decode_request, body)).request
        return {"input_tokens": await service.count(request, endpoint=endpoint)}

    return count
