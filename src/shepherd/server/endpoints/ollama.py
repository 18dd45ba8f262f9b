"""Ollama's endpoints about models: the list, the loaded ones, one model, loading and unloading.

GET  /api/tags  /api/ps  /api/version          POST /api/show  /api/copy    DELETE /api/delete
the rest of /api/ (push, create, blobs): refused with a message that names the way to do it
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.core import Event, Finished, InvalidRequest, Request, Started
from shepherd.core.status import ModelCard
from shepherd.server.endpoints.handler import PlainEndpoint, RequestContext, json_response, state_of
from shepherd.server.endpoints.models import abilities, named_card
from shepherd.server.http.body import send_json
from shepherd.server.http.caller import caller_of
from shepherd.server.http.errors import encode_error
from shepherd.server.service import Service
from shepherd.wire.base import Fields, Json

VERSION = "0.13.5"
"""Of Ollama, not of Shepherd: clients compare it with the oldest version that they support, and hide newer features.
This server has what clients use of this version."""

NEVER = "2300-01-01T00:00:00Z"
"""The expiry time of a model that does not expire."""


def find_card(service: Service, name: str) -> ModelCard:
    """The model of this name. Raises: `UnknownModel`; `EngineDown` before the models are known."""
    return named_card(service.catalogue.models(), name)


async def stream_load(service: Service, request: Request, endpoint: str) -> AsyncGenerator[Event, None]:
    """Ollama's convention for a request without a prompt: load the model; with `keep_alive` 0 unload it."""
    await service.dispatcher.load(request.model, request.extra.get("keep_alive"), endpoint=endpoint)
    yield Started(request.model)
    yield Finished("end")


async def load_or_unload(context: RequestContext, model: str, keep_alive_s: float | None) -> None:
    """The same for a model that makes vectors, which is unloaded by its own name. A key of one user beside other keys
    does not decide how long it stays."""
    service = context.state.service
    if keep_alive_s == 0:
        context.check_deed("stay")
        await service.catalogue.unload(model)
    else:
        stay_s = None if caller_of(context.scope).is_one_of_many else keep_alive_s
        await service.dispatcher.load(model, stay_s, endpoint=context.path)


# ---- lists


async def tags(request: HTTPRequest) -> Response:
    """The models that a request can name, as Ollama's clients read them."""
    service = state_of(request).service
    await service.catalogue.look_again()
    return json_response({"models": [encode_entry(card) for card in service.catalogue.models()]})


async def processes(request: HTTPRequest) -> Response:
    """The loaded models, as Ollama's clients read them."""
    cards = state_of(request).service.catalogue.models()
    return json_response({"models": [encode_loaded(card) for card in cards if card.loaded]})


async def report_version(request: HTTPRequest) -> Response:
    """The version of Ollama with which this server is compatible."""
    return json_response({"version": VERSION})


class _Refuse:
    """An ASGI application: a client sends whole models, so that the rest of the body must be read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = InvalidRequest(
            f"{scope['path'][:80]} is not supported: this server does not create or change models over HTTP; "
            "`shepherd models list` shows the files on this machine, and the configuration names those that are served"
        )
        if scope["method"] == "HEAD":  # a client asks if a file exists before it uploads it
            error.status = 404
        await send_json(send, *encode_error(scope, error), unread=receive)


OLLAMA_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/api/tags",), tags),
    PlainEndpoint(("GET", "HEAD"), ("/api/ps",), processes),
    PlainEndpoint(("GET", "HEAD"), ("/api/version",), report_version),
    PlainEndpoint(("POST",), ("/api/push", "/api/create"), _Refuse(), documented=False),
    PlainEndpoint(("HEAD", "POST"), ("/api/blobs/{digest:path}",), _Refuse(), documented=False),
)


# ---- one model


async def answer_show(context: RequestContext, body: Json) -> Json:
    await context.state.service.catalogue.look_again()
    return encode_shown(find_card(context.state.service, named_in(body)))


async def answer_copy(context: RequestContext, body: Json) -> Json:
    fields = Fields(body)
    await context.state.service.catalogue.copy(fields.get_string("source"), fields.get_string("destination"))
    return {"status": "success"}


async def answer_delete(context: RequestContext, body: Json) -> Json:
    await context.state.service.catalogue.delete(named_in(body))
    return {"status": "success"}


def named_in(body: Json) -> str:
    """The name of a model, under its new key or its old one."""
    fields = Fields(body)
    return fields.get_string("name") if fields.has("name") and not fields.has("model") else fields.get_string("model")


def encode_entry(card: ModelCard) -> Json:
    return {
        "name": card.id,
        "model": card.id,
        "modified_at": _moment(card.created),
        "size": card.n_bytes,
        "digest": _digest(card),
        "details": encode_details(card),
    }


def encode_loaded(card: ModelCard) -> Json:
    entry = encode_entry(card)
    del entry["modified_at"]
    return entry | {
        "size": card.memory_bytes or card.n_bytes,
        "size_vram": 0,  # not known here; clients display the rest as CPU memory
        "expires_at": NEVER if card.expires is None else _moment(card.expires),
        "context_length": card.n_ctx,
    }


def encode_details(card: ModelCard) -> Json:
    family = card.architecture
    return {
        "parent_model": card.stands_for,
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": card.parameters,
        "quantization_level": card.quantization,
    }


def encode_shown(card: ModelCard) -> Json:
    """Everything about a model. The context length is that of a conversation on this server, not that of the training:
    clients size their prompts by it."""
    architecture = card.architecture or "unknown"
    lines = [f"# {card.description}"] if card.description else []
    lines += [f"FROM {card.id}"]
    lines += [f'TEMPLATE """{card.template}"""'] if card.template else []
    lines += [f"PARAMETER num_ctx {card.n_ctx}"]
    return {
        "modelfile": "\n".join(lines) + "\n",
        "parameters": f"num_ctx {card.n_ctx}",
        "template": card.template,
        "details": encode_details(card),
        "model_info": {
            "general.architecture": architecture,
            "general.basename": card.id,
            f"{architecture}.context_length": card.n_ctx,
        },
        "capabilities": list(abilities(card)),
        "modified_at": _moment(card.created),
    }


def _digest(card: ModelCard) -> str:
    """A digest of the model's facts, different for a changed file. The file itself would take too long to read."""
    facts = f"{card.id}\0{card.n_bytes}\0{card.created}\0{card.architecture}\0{card.quantization}"
    return hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
