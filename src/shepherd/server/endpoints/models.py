"""`/v1/models`: the models that a request can name, as OpenAI's clients, Anthropic's and Codex read them.

    data[]     OpenAI's: every client
    models[]   Codex's, in the same body: the size of the context, and what a model can do
    data[]     Anthropic's, for clients that send its version header

and `/v1/models/here`: what is on this machine, served or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core import EngineDown, NotAllowed, UnknownModel
from shepherd.core.status import ModelCard
from shepherd.server.endpoints.handler import PlainEndpoint, json_response, state_of
from shepherd.server.endpoints.page import encode_page
from shepherd.server.http.caller import caller_of, check_deed
from shepherd.server.service import Service
from shepherd.wire.base import Json
from shepherd.wire.names import ALIAS, find_name
from shepherd.wire.openai.shapes import encode_model

MAX_PAGE = 1000
"""Of Anthropic's list."""


async def models(request: HTTPRequest) -> Response:
    """The models that a request can name."""
    service = state_of(request).service
    await service.catalogue.look_again()
    cards = service.catalogue.models()
    chat = [card for card in cards if card.kind == "chat"]
    if "anthropic-version" not in request.headers:
        codex = [_for_codex(card, priority) for priority, card in enumerate(chat)]
        return json_response({"object": "list", "data": list(map(_model_body, cards)), "models": codex})
    entries = [_for_anthropic(card) for card in chat]
    page = encode_page(
        entries, request.query_params, what="a model", max_limit=MAX_PAGE, after="after_id", before="before_id"
    )
    return json_response(page)


async def model(request: HTTPRequest) -> Response:
    """One model."""
    service = state_of(request).service
    await service.catalogue.look_again()
    card = named_card(service.catalogue.models(), request.path_params["model_id"])
    return json_response((_for_anthropic if "anthropic-version" in request.headers else _model_body)(card))


async def models_here(request: HTTPRequest) -> Response:
    """The models on this machine, served or not, what fits, and good ones to pull."""
    service = state_of(request).service
    found = await service.catalogue.here()
    refusal = ""
    try:
        check_deed(request.scope, "models", manages_models=service.manages_models)
    except NotAllowed as error:
        refusal = error.message
    if caller_of(request.scope).is_one_of_many:
        found = {**found, "models": [{**row, "path": None} for row in found["models"]]}
    return json_response({**found, "manages": not refusal, "refusal": refusal})


MODEL_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/v1/models/here",), models_here),
    # Clients have base URLs that lack their `/v1`, or have it twice.
    PlainEndpoint(("GET", "HEAD"), ("/v1/models", "/models", "/v1/v1/models"), models),
    PlainEndpoint(("GET", "HEAD"), ("/v1/models/{model_id:path}",), model),
)


def named_card(cards: Sequence[ModelCard], name: str) -> ModelCard:
    """The card that a requested name means. Raises: `UnknownModel`."""
    by_name = {alias: card for card in reversed(cards) for alias in card.aliases} | {card.id: card for card in cards}
    if (known := find_name(name, by_name)) is None:
        raise UnknownModel(name, known=tuple(card.id for card in cards))
    return by_name[known]


def refuse_while_loading(service: Service) -> None:
    """Raises: `EngineDown` while the first model is loading."""
    if service.health().status == "loading":
        raise EngineDown("the model is still loading; try again in a moment")


def _model_body(card: ModelCard) -> Json:
    sizes = {"n_ctx": card.n_ctx, "n_cells": card.n_cells, "n_bytes": card.n_bytes}
    names = list(dict.fromkeys((card.id, *card.aliases)))
    # The last two are llama-server's.
    body = encode_model(card.id, created=card.created, **sizes) | {"aliases": names, "tags": list(card.tags)}
    body |= {"capabilities": list(abilities(card))}  # in Ollama's words
    body |= {"root": card.parent, "parent": card.parent} if card.parent else {}  # vLLM's
    return body | {"stands_for": card.stands_for} if card.stands_for else body


_LEAST = {"chat": "completion", "embedding": "embedding", "reranker": "rerank"}


def abilities(card: ModelCard) -> tuple[str, ...]:
    """What the model can do, in the words of Ollama; never empty."""
    return card.capabilities or (_LEAST[card.kind],)


# ---- Anthropic's


def claude_name(id: str) -> str:
    """The name in Anthropic's list: Claude Code drops every one that begins neither with claude nor with anthropic.

    Requests may name a model either way.
    """
    return id if id.lower().startswith(("claude", "anthropic")) else ALIAS + id


def _for_anthropic(card: ModelCard) -> Json:
    return {
        "type": "model",
        "id": claude_name(card.id),
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": card.n_ctx or None,
        "max_tokens": card.n_ctx or None,
    }


# ---- Codex's

_INPUTS = {"vision": "image", "audio": "audio"}
"""What a model takes besides text, by its capability."""
_INSTRUCTIONS = """\
You are a coding agent. You and the user share one workspace: the files of the current folder, reached by your tools.

- Do what the user asks, wholly, before you end your turn; ask only when you cannot find out yourself.
- Look before you change: read the files that matter, search with `rg` if it is there, and follow the style, the tools \
and the instructions (AGENTS.md) that you find.
- Make small changes that go to the cause. Touch nothing that has nothing to do with the task; never undo changes that \
are not yours; do not commit unless you are asked to.
- Call a tool whenever it tells you more than you know. Never invent what a file or a command would say.
- Check your work by running it, or its tests, where that can be done.
- Answer briefly and plainly: what you have done, in which files, and what is left.
"""
"""Instructions that Codex gives to the model instead of its own, which are twenty times as long."""

_EFFORTS = {
    "low": "Thinks little before it answers",
    "medium": "Thinks as far as the task needs it",
    "high": "Thinks for long about difficult tasks",
}


def _for_codex(card: ModelCard, priority: int) -> Json:
    """One model. Codex refuses the whole list if a field is missing that any of its versions needs (its `ModelInfo`);
    it ignores fields that it does not know."""
    thinks = "thinking" in card.capabilities
    efforts = [{"effort": effort, "description": text} for effort, text in _EFFORTS.items()] if thinks else []
    return {
        "slug": card.id,
        "capabilities": list(abilities(card)),  # llama-server's, whose list has the same name
        "display_name": card.id,
        "description": card.description or None,
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "context_window": card.n_ctx or None,
        "max_context_window": card.n_ctx or None,
        "effective_context_window_percent": 95,
        "auto_compact_token_limit": None,
        # Of the output of a tool: one file would fill much of a small context.
        "truncation_policy": {
            "mode": "tokens",
            "limit": max(1000, min(10_000, (card.n_cells or card.n_ctx or 80_000) // 8)),
        },
        "input_modalities": [
            "text",
            *(word for able, word in _INPUTS.items() if able in card.capabilities),
        ],
        "base_instructions": _INSTRUCTIONS,
        "shell_type": "shell_command",
        "apply_patch_tool_type": None,
        "web_search_tool_type": "text",
        "experimental_supported_tools": [],
        "supports_parallel_tool_calls": True,
        "supports_image_detail_original": False,
        "supports_search_tool": False,
        "supports_reasoning_summaries": thinks,
        "default_reasoning_summary": "auto",
        "default_reasoning_level": "medium" if thinks else None,
        "supported_reasoning_levels": efforts,
        "reasoning_summary_format": "none",
        "support_verbosity": False,
        "default_verbosity": None,
        "minimal_client_version": [0, 1, 0],
        "availability_nux": None,
        "upgrade": None,
    }
