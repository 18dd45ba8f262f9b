"""What llama-server tells about itself, for clients that look there: `/props`, `/slots`, and `/apply-template`.

Not here: completions and tokens, which are rows of `routes`. Nothing can be changed over these paths.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core import InvalidRequest, UnknownModel
from shepherd.server.endpoints.handler import PlainEndpoint, RequestContext, json_response, state_of
from shepherd.server.endpoints.models import known_cards
from shepherd.server.http.caller import caller_of, sees, with_caller
from shepherd.wire.base import Json
from shepherd.wire.openai import chat
from shepherd.wire.openai.chunks import fingerprint


async def props(request: HTTPRequest) -> Response:
    """The context and the chat template of a model: the first, or the one that `?model=` names."""
    service = state_of(request).service
    cards = [card for card in known_cards(service) if card.kind == "chat"]
    wanted = request.query_params.get("model")
    card = next((card for card in cards if wanted in (None, card.id)), None)
    if card is None:
        raise UnknownModel(wanted or "", known=tuple(card.id for card in cards))
    return json_response(
        {
            "default_generation_settings": {"n_ctx": card.n_ctx},
            "total_slots": sum(len(cache.sequences) for cache in service.stats().values()) or 1,
            "model_alias": card.id,
            # Where the file is on the disk concerns no client.
            "model_path": service.health().model if card is cards[0] else card.id,
            "modalities": {"vision": False, "video": False, "audio": False},
            "chat_template": card.template,
            "build_info": fingerprint(),
            "is_sleeping": not card.loaded,
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "version": version("shepherd"),
        }
    )


async def slots(request: HTTPRequest) -> Response:
    """The conversations in the caches, as llama-server's slots, without their texts; a key of one user sees its own."""
    caller, stats = caller_of(request.scope), state_of(request).service.stats()
    held = ((name, cache.n_ctx, each) for name, cache in stats.items() for each in cache.sequences)
    sequences = [row for row in held if sees(caller, row[2].owner)]
    return json_response(
        [
            {
                "id": at,
                "cache": name,
                "n_ctx": n_ctx,
                "speculative": False,
                "is_processing": each.state != "idle",
                "n_prompt_tokens": each.cached + each.new,
                "n_prompt_tokens_cache": each.cached,
                "next_token": {"n_decoded": each.generated, "has_next_token": each.state != "idle"},
            }
            for at, (name, n_ctx, each) in enumerate(sequences)
        ]
    )


async def answer_apply_template(context: RequestContext, body: Json) -> Json:
    """The prompt that the model would get for a body of chat completions. Raises: `ShepherdError`."""
    if body.get("add_generation_prompt") is False:
        raise InvalidRequest(
            "add_generation_prompt must be true: prompts here end where the answer begins; leave it out",
            field="add_generation_prompt",
        )
    decoded = with_caller(await asyncio.to_thread(chat.decode_request, body), context.scope, trace=False)
    return {"prompt": await context.state.service.render(decoded.request, endpoint=context.path)}


LLAMA_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/props", "/v1/props"), props),
    PlainEndpoint(("GET", "HEAD"), ("/slots", "/v1/slots"), slots),
)
