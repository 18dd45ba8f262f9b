"""What llama-server tells about itself, for clients that look there: `/props`, `/slots`, and `/apply-template`; and
`/lora-adapters`, which can be changed.
"""

from __future__ import annotations

from importlib.metadata import version
from urllib.parse import parse_qs

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core import UnknownModel
from shepherd.engine.sampling import DEFAULTS
from shepherd.engine.stats import SequenceStats
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import PlainEndpoint, RequestContext, json_response, state_of
from shepherd.server.http.body import json_bytes
from shepherd.server.http.caller import caller_of, sees, with_caller
from shepherd.wire.base import Fields, Json, decode_array
from shepherd.wire.openai import chat
from shepherd.wire.openai.chunks import fingerprint
from shepherd.wire.read import encode_sampling
from shepherd.wire.sampling import decode_lora


async def props(request: HTTPRequest) -> Response:
    """The context and the chat template of a model: the first, or the one that `?model=` names."""
    service = state_of(request).service
    cards = [card for card in service.catalogue.models() if card.kind == "chat"]
    wanted = request.query_params.get("model")
    card = next((card for card in cards if wanted in (None, card.id)), None)
    if card is None:
        raise UnknownModel(wanted or "", known=tuple(card.id for card in cards))
    defaults = encode_sampling(card.sampling.over(DEFAULTS))
    return json_response(
        {
            "default_generation_settings": {"n_ctx": card.n_ctx, "params": defaults},
            "total_slots": card.n_slots,
            "model_alias": card.id,
            # Where the file is on the disk concerns no client.
            "model_path": service.health().model if card is cards[0] else card.id,
            "modalities": {
                "vision": "vision" in card.capabilities,
                "video": False,
                "audio": "audio" in card.capabilities,
            },
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
    """The conversations in the caches, as llama-server's slots, without their texts; a key of one user sees its own.

    Slots without one are there too, so that the list is as long as llama-server's.
    """
    service, caller = state_of(request).service, caller_of(request.scope)
    stats = service.stats()
    held = ((name, cache.n_ctx, each) for name, cache in stats.items() for each in cache.sequences)
    rows = [(name, n_ctx, each) for name, n_ctx, each in held if sees(caller, each.owner)]
    free = SequenceStats(0, "idle", None, 0, 0, 0, 0, 0, 0.0, 0.0)
    cards = [card for card in service.catalogue.models() if card.kind == "chat" and card.loaded]
    if cards:
        rows += [("", cards[0].n_ctx, free)] * (sum(card.n_slots for card in cards) - len(rows))
    return json_response(
        [
            {
                "id": at,
                "cache": name,
                "n_ctx": n_ctx,
                "speculative": each.drafted > 0,
                "is_processing": each.state != "idle",
                "n_prompt_tokens": each.cached + each.new,
                "n_prompt_tokens_cache": each.cached,
                "next_token": [_next_token(each)],
            }
            for at, (name, n_ctx, each) in enumerate(rows)
        ]
    )


def _next_token(sequence: SequenceStats) -> Json:
    is_idle = sequence.state == "idle"
    return {"has_next_token": not is_idle, "n_remain": -1, "n_decoded": 0 if is_idle else sequence.generated}


async def answer_apply_template(context: RequestContext, body: Json) -> Json:
    decoded = with_caller(await in_pool("bodies", chat.decode_request, body), context.scope, trace=False)
    return {"prompt": await context.state.service.conversations.render(decoded.request, endpoint=context.path)}


async def lora_adapters(request: HTTPRequest) -> Response:
    """The adapters of a model, the first or the one that `?model=` names, with the scales of requests that choose
    none."""
    found = state_of(request).service.catalogue.adapters(request.query_params.get("model", "")).states()
    return json_response(
        [
            {
                "id": at,
                "path": each.file,  # where it is on the disk concerns no client
                "scale": each.scale,
                "task_name": "",
                "prompt_prefix": "",
                "name": each.name,
                "kind": each.kind,
            }
            for at, each in enumerate(found)
        ]
    )


async def set_lora_adapters(context: RequestContext) -> None:
    """Answers once the scales hold for requests that choose no adapters; those that are left out are off."""
    rows = await context.decode(await context.read_body(), decode_array)
    model = parse_qs(context.scope["query_string"].decode("utf-8", "replace")).get("model", [""])[0]
    context.record.model = model
    context.state.service.catalogue.adapters(model).set_scales(decode_lora(Fields({"lora": rows}), "lora"))
    context.record.reason = "answered"
    await context.answer(json_bytes({"success": True}))


LLAMA_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/lora-adapters", "/v1/lora-adapters"), lora_adapters),
    PlainEndpoint(("GET", "HEAD"), ("/props", "/v1/props"), props),
    PlainEndpoint(("GET", "HEAD"), ("/slots", "/v1/slots"), slots),
)
