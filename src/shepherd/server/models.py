"""`/v1/models`: what can be named in a request, as OpenAI's clients, Anthropic's and Codex read it."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from shepherd.backends.base import ModelCard
from shepherd.core import EngineDown, UnknownModel
from shepherd.server.body import json_bytes
from shepherd.server.exchange import retry_headers
from shepherd.server.service import Service
from shepherd.server.surfaces import encode_error
from shepherd.wire.base import Json
from shepherd.wire.openai_shapes import encode_model, encode_models


def add_model_paths(app: FastAPI, service: Service) -> None:
    """Add them to `app`."""

    async def models(request: HTTPRequest) -> Response:
        """The models that can be named in a request."""
        cards = service.models()
        if not cards and service.health().status == "loading":
            # An empty list would be believed and remembered.
            return _refusal(request, still_loading())
        return _told(encode_models([_model_body(card) for card in cards]))

    async def model(request: HTTPRequest, model_id: str) -> Response:
        """One model."""
        cards = service.models()
        for card in cards:
            if card.id == model_id:
                return _told(_model_body(card))
        if not cards and service.health().status == "loading":
            return _refusal(request, still_loading())
        return _refusal(request, UnknownModel(model_id, known=tuple(card.id for card in cards)))

    for path, handler in (("/v1/models", models), ("/v1/models/{model_id:path}", model)):
        app.add_api_route(path, handler, methods=["GET"], response_class=JSONResponse)
        app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/models", models, methods=["GET", "HEAD"], include_in_schema=False)


def still_loading() -> EngineDown:
    return EngineDown("the model is still loading; try again in a moment")


def _model_body(card: ModelCard) -> Json:
    return encode_model(card.id, created=card.created, n_ctx=card.n_ctx)


def _told(body: Json) -> Response:
    return Response(json_bytes(body), media_type="application/json")


def _refusal(request: HTTPRequest, error: Exception) -> Response:
    status, body = encode_error(request.scope["path"], error)
    response = Response(json_bytes(body), status, media_type="application/json")
    response.raw_headers.extend(retry_headers(error))
    return response
