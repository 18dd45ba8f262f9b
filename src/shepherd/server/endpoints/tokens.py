"""Text to tokens and back: the answers of the rows `/tokenize` and `/detokenize`."""

from __future__ import annotations

import asyncio

from shepherd.server.service import Service
from shepherd.wire.base import Json
from shepherd.wire.llama import tokens


async def answer_tokenize(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    asked = tokens.decode_tokenize(body)
    found = await service.tokenize(asked.model, asked.text, special=asked.special, bos=asked.bos, endpoint=path)
    wants_text = asked.pieces or asked.strings
    pieces = await service.detokenize(asked.model, found, endpoint=path) if wants_text else []
    cards = [card for card in service.models() if card.kind == "chat"]
    n_ctx = next((card.n_ctx for card in cards if card.id == asked.model), cards[0].n_ctx if cards else 0)
    return await asyncio.to_thread(tokens.encode_tokens, asked, found, pieces, n_ctx=n_ctx)


async def answer_detokenize(service: Service, body: Json, path: str) -> Json:
    """Raises: `ShepherdError`."""
    model, found = await asyncio.to_thread(tokens.decode_detokenize, body)
    pieces = await service.detokenize(model, found, endpoint=path)
    return await asyncio.to_thread(tokens.encode_text, pieces)
