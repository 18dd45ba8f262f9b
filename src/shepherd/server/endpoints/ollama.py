"""What Ollama's clients ask about models: which are there, which are loaded, what one is; and what cannot be done here.

    GET  /api/tags  /api/ps  /api/version          POST /api/show  /api/pull
    the rest of /api/ (push, create, copy, delete, blobs): refused in words that say what to do instead

Generating (`/api/chat`, `/api/generate`) and vectors (`/api/embed`) are rows of `surfaces`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shepherd.core import EngineDown, InvalidRequest, ShepherdError, UnknownModel
from shepherd.core.status import ModelCard
from shepherd.server.http.body import send_json
from shepherd.server.http.errors import refused, told
from shepherd.server.service import Service
from shepherd.wire.base import Fields, Json
from shepherd.wire.names import model_names
from shepherd.wire.ollama.fields import encode_error

VERSION = "0.13.5"
"""Of Ollama, not of Shepherd: clients compare it with the least that they work with, and hide features below it. What
this version can do, as far as clients see it, is here."""

NEVER = "2300-01-01T00:00:00Z"
"""When a model expires that does not."""


def find_card(service: Service, name: str) -> ModelCard:
    """The model of this name. Raises: `UnknownModel`, `EngineDown` while nothing is known yet."""
    cards = known_cards(service)
    by_name = {card.id.casefold(): card for card in reversed(cards)}
    for meant in model_names(name):
        if (card := by_name.get(meant.casefold())) is not None:
            return card
    raise UnknownModel(name, known=tuple(card.id for card in cards))


def known_cards(service: Service) -> Sequence[ModelCard]:
    """All models. Raises: `EngineDown` while they are being found: an empty list would be believed."""
    cards = service.models()
    if not cards and service.health().status == "loading":
        raise EngineDown("the model is still loading; try again in a moment")
    return cards


# ---- what is there


OLLAMA_ENDPOINTS = ("GET /api/tags", "GET /api/ps", "GET /api/version")


def add_ollama_paths(app: FastAPI, service: Service) -> None:
    """Add them to `app`."""

    async def tags() -> Response:
        """The models that can be named in a request, as Ollama's clients read it."""
        return _told(lambda: {"models": [encode_entry(card) for card in known_cards(service)]})

    async def processes() -> Response:
        """The models that are loaded, as Ollama's clients read it."""
        return _told(lambda: {"models": [encode_loaded(card) for card in known_cards(service) if card.loaded]})

    async def tell_version() -> Response:
        """The version of Ollama that clients may take this for."""
        return _told(lambda: {"version": VERSION})

    for path, handler in (("/api/tags", tags), ("/api/ps", processes), ("/api/version", tell_version)):
        app.add_api_route(path, handler, methods=["GET"])
        app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)

    async def refuse() -> Response:
        return _Refusal()

    for path, methods in _REFUSED.items():
        app.add_api_route(path, refuse, methods=list(methods), include_in_schema=False)


_REFUSED: Mapping[str, Sequence[str]] = {
    "/api/push": ("POST",),
    "/api/create": ("POST",),
    "/api/copy": ("POST",),
    "/api/delete": ("DELETE", "POST"),
    "/api/blobs/{digest:path}": ("HEAD", "POST"),
}


class _Refusal(Response):
    """Says how models come and go here. An ASGI application for one call."""

    background = None

    def __init__(self) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = InvalidRequest(f"{scope['path'][:80]} is not offered: {_HOW}")
        if scope["method"] == "HEAD":  # asks whether a file is there that it would upload otherwise
            error.status = 404
        status, body = encode_error(error)
        await send_json(send, status, body, unread=receive)


_HOW = (
    "models are not made, changed or removed over HTTP; `shepherd models` lists the files that are on this machine, "
    "and the configuration says which of them are served, and under which names"
)


def _told(telling: Callable[[], Json]) -> Response:
    try:
        return told(telling())
    except ShepherdError as error:
        return refused(error, encode_error(error), {})


# ---- what one is


async def answer_show(service: Service, body: Json, path: str) -> Json:
    """What one model is. Raises: `ShepherdError`."""
    return encode_shown(find_card(service, _named_in(body)))


async def answer_pull(service: Service, body: Json, path: str) -> Json:
    """That a model is there, for clients which fetch it first. Raises: `ShepherdError` when it is not."""
    try:
        find_card(service, _named_in(body))
    except UnknownModel as error:
        known = ", ".join(error.known) or "none"
        raise InvalidRequest(
            f"model {error.model!r} is not served here (known: {known}), and none is downloaded over HTTP: "
            "`shepherd models` lists the files that are on this machine; name one in the configuration",
            field="model",
        ) from error
    return {"status": "success"}


def _named_in(body: Json) -> str:
    """The name of a model, under its new key or its old one."""
    fields = Fields(body)
    return fields.get_string("name") if fields.has("name") and not fields.has("model") else fields.get_string("model")


def encode_entry(card: ModelCard) -> Json:
    """One model of a list."""
    return {
        "name": card.id,
        "model": card.id,
        "modified_at": _moment(card.created),
        "size": card.n_bytes,
        "digest": _digest(card),
        "details": encode_details(card),
    }


def encode_loaded(card: ModelCard) -> Json:
    """One model that is loaded."""
    entry = encode_entry(card)
    del entry["modified_at"]
    return entry | {
        "size": card.memory_bytes or card.n_bytes,
        "size_vram": 0,  # where the weights lie is not known here; clients show the rest as the CPU's
        "expires_at": NEVER if card.expires is None else _moment(card.expires),
        "context_length": card.n_ctx,
    }


def encode_details(card: ModelCard) -> Json:
    family = card.architecture
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": card.parameters,
        "quantization_level": card.quantization,
    }


def encode_shown(card: ModelCard) -> Json:
    """All that is known of a model. Clients size their prompts by the context length: it is what a conversation really
    has here, not what the model was trained on."""
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
        "capabilities": list(card.capabilities or (_LEAST[card.kind],)),
        "modified_at": _moment(card.created),
    }


_LEAST = {"chat": "completion", "embedding": "embedding"}


def _digest(card: ModelCard) -> str:
    """Tells models apart, and a file from its successor. Not a sum over the file: that would have to be read whole."""
    told = f"{card.id}\0{card.n_bytes}\0{card.created}\0{card.architecture}\0{card.quantization}"
    return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
