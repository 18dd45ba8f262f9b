"""Tokens: text to tokens and back, and how many a request has, by the decoding and the template of an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import RequestContext
from shepherd.server.endpoints.query import Answer
from shepherd.server.http.caller import with_caller
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.base import Codec, Json
from shepherd.wire.llama import tokens
from shepherd.wire.openai.responses import codec as responses


async def answer_tokenize(context: RequestContext, body: Json) -> Json:
    service, path = context.state.service, context.path
    dispatcher, wanted = service.dispatcher, tokens.decode_tokenize(body)
    found = await dispatcher.tokenize(wanted.model, wanted.text, special=wanted.special, bos=wanted.bos, endpoint=path)
    wants_text = wanted.pieces or wanted.strings
    pieces = await dispatcher.detokenize(wanted.model, found, endpoint=path) if wants_text else []
    cards = [card for card in service.catalogue.models() if card.kind == "chat"]
    n_ctx = next((card.n_ctx for card in cards if card.id == wanted.model), cards[0].n_ctx if cards else 0)
    return await in_pool("bodies", tokens.encode_tokens, wanted, found, pieces, n_ctx=n_ctx)


async def answer_detokenize(context: RequestContext, body: Json) -> Json:
    model, found = await in_pool("bodies", tokens.decode_detokenize, body)
    pieces = await context.state.service.dispatcher.detokenize(model, found, endpoint=context.path)
    return await in_pool("bodies", tokens.encode_text, pieces)


def counting(codec: Codec[Any]) -> Answer:
    """Answers with `input_tokens`, those of the prompt of a body that `codec` decodes.

    The first route that takes this path, or the path that would answer the same body, chooses the model.
    """

    async def count(context: RequestContext, body: Json) -> Json:
        decoded = with_caller(await in_pool("bodies", codec.decode_request, body), context.scope, trace=False)
        return {"input_tokens": await context.state.service.conversations.count(decoded.request, endpoint=context.path)}

    return count


async def count_messages(context: RequestContext, body: Json) -> Json:
    """The count of Anthropic's messages, behind their edits. Raises: `ShepherdError`."""
    decoded = with_caller(await in_pool("bodies", anthropic.decode_request, body), context.scope, trace=False)
    request, conversations = decoded.request, context.state.service.conversations
    counted: Json = {"input_tokens": await conversations.count(request, endpoint=context.path)}
    if request.edits:
        original = await conversations.count(replace(request, edits=()), endpoint=context.path)
        counted["context_management"] = {"original_input_tokens": original}
    return counted


async def count_responses(context: RequestContext, body: Json) -> Json:
    """The count of OpenAI's responses, whose bodies may have no input. Raises: `ShepherdError`."""
    if body.get("input") is None and body.get("previous_response_id") is None:
        body = {**body, "input": []}
    return {"object": "response.input_tokens", **await counting(responses)(context, body)}
