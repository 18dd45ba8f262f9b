"""Tokens: text to tokens and back, and how many a request has, by the decoding and the template of an answer."""

from __future__ import annotations

import asyncio
from typing import Any

from shepherd.server.endpoints.query import Answer
from shepherd.server.service import Service
from shepherd.wire.base import Codec, Json
from shepherd.wire.llama import tokens
from shepherd.wire.openai.responses import codec as responses


async def answer_tokenize(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    wanted = tokens.decode_tokenize(body)
    found = await service.tokenize(wanted.model, wanted.text, special=wanted.special, bos=wanted.bos, endpoint=path)
    wants_text = wanted.pieces or wanted.strings
    pieces = await service.detokenize(wanted.model, found, endpoint=path) if wants_text else []
    cards = [card for card in service.models() if card.kind == "chat"]
    n_ctx = next((card.n_ctx for card in cards if card.id == wanted.model), cards[0].n_ctx if cards else 0)
    return await asyncio.to_thread(tokens.encode_tokens, wanted, found, pieces, n_ctx=n_ctx)


async def answer_detokenize(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    model, found = await asyncio.to_thread(tokens.decode_detokenize, body)
    pieces = await service.detokenize(model, found, endpoint=path)
    return await asyncio.to_thread(tokens.encode_text, pieces)


def counting(codec: Codec[Any]) -> Answer:
    """Answers with `input_tokens`, those of the prompt of a body that `codec` decodes.

    The first route that takes this path, or the path that would answer the same body, chooses the model.
    """

    async def count(service: Service, body: Json, path: str) -> Json:
        request = (await asyncio.to_thread(codec.decode_request, body)).request
        return {"input_tokens": await service.count(request, endpoint=path)}

    return count


async def count_responses(service: Service, body: Json, path: str) -> Json:
    """The count of OpenAI's responses, whose bodies may have no input. Raises: `ShepherdError`."""
    if body.get("input") is None and body.get("previous_response_id") is None:
        body = {**body, "input": []}
    return {"object": "response.input_tokens", **await counting(responses)(service, body, path)}
