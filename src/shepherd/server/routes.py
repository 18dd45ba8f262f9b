"""The table of endpoints, one row each: its paths, its protocol, its documentation. Adding an endpoint is adding a row.

Rows of `GENERATE_ENDPOINTS` generate an answer, rows of `QUERY_ENDPOINTS` compute one; the rows of the memory and those
that only report something are in the files of `endpoints`. This file holds no handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shepherd.server.endpoints import pull
from shepherd.server.endpoints.chats import CHAT_ENDPOINTS
from shepherd.server.endpoints.docs_page import DOCS_ENDPOINTS
from shepherd.server.endpoints.embeddings import answer_embed, answer_embeddings, answer_openai
from shepherd.server.endpoints.generate import Generate
from shepherd.server.endpoints.handler import Endpoint, PlainEndpoint, RequestContext
from shepherd.server.endpoints.llama import LLAMA_ENDPOINTS, answer_apply_template, set_lora_adapters
from shepherd.server.endpoints.memory import MEMORY_ENDPOINTS
from shepherd.server.endpoints.models import MODEL_ENDPOINTS
from shepherd.server.endpoints.ollama import OLLAMA_ENDPOINTS, answer_copy, answer_delete, answer_show
from shepherd.server.endpoints.query import query
from shepherd.server.endpoints.replicas import REPLICA_ENDPOINTS
from shepherd.server.endpoints.rerank import answer_cohere, answer_rerank, answer_score
from shepherd.server.endpoints.responses import RESPONSE_ENDPOINTS
from shepherd.server.endpoints.status import STATUS_ENDPOINTS
from shepherd.server.endpoints.tokens import (
    answer_detokenize,
    answer_tokenize,
    count_messages,
    count_responses,
    counting,
)
from shepherd.server.endpoints.web_page import WEB_ENDPOINTS
from shepherd.server.endpoints.window import WINDOW_ENDPOINTS
from shepherd.server.http.caller import Deed
from shepherd.wire import rerank
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.llama import completion as llama_completion
from shepherd.wire.llama import infill, tokens
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.ollama import embed as ollama_embed
from shepherd.wire.ollama import fields as ollama
from shepherd.wire.ollama import generate as ollama_generate
from shepherd.wire.openai import chat as openai_chat
from shepherd.wire.openai import completions as openai_completions
from shepherd.wire.openai import embeddings as openai_embeddings
from shepherd.wire.openai.responses import codec as responses
from shepherd.wire.openai.responses import compact
from shepherd.wire.sampling import LORA_SCHEMA


def _row(
    name: str,
    paths: tuple[str, ...],
    respond: Callable[[RequestContext], Awaitable[None]],
    body: Mapping[str, Any],
    summary: str,
    *,
    methods: tuple[str, ...] = ("POST",),
    deed: Deed | None = None,
) -> Endpoint:
    """`body`: the JSON Schema of a request, for `/docs` only: the codec decides what is accepted."""
    content = {"application/json": {"schema": body}}
    openapi = {"summary": summary, "requestBody": {"required": True, "content": content}}
    return Endpoint(name, paths, respond, openapi, methods, deed=deed)


GENERATE_ENDPOINTS: tuple[Endpoint, ...] = (
    _row(
        "openai-chat", ("/v1/chat/completions", "/chat/completions"), Generate(openai_chat, "chatcmpl-").respond,
        openai_chat.BODY, "Answer a conversation (OpenAI chat completions), whole or streamed",
    ),
    _row(
        "openai-completions", ("/v1/completions",), Generate(openai_completions, "cmpl-").respond,
        openai_completions.BODY, "Continue a text, or fill a gap in it (OpenAI completions), whole or streamed",
    ),
    _row(  # without /v1 as llama-server has them
        "llama-completion", ("/completion", "/completions"), Generate(llama_completion, "cmpl-").respond,
        llama_completion.BODY, "Continue a text (llama-server's completion), whole or streamed",
    ),
    _row(
        "llama-infill", ("/infill", "/v1/infill"), Generate(infill, "infill-").respond,
        infill.BODY, "Fill the gap at the cursor of an editor (llama-server's infill), whole or streamed",
    ),
    _row(
        "openai-responses", ("/v1/responses", "/responses"),
        Generate(responses, "resp_", stored_responses=True).respond,
        responses.BODY, "Answer a conversation (OpenAI responses), whole or streamed",
    ),
    _row(
        "openai-responses-compact", ("/v1/responses/compact", "/responses/compact"),
        Generate(compact, "resp_", stored_responses=True).respond,
        compact.BODY, "Make the window of a conversation smaller: an item stands for what leaves (OpenAI responses)",
    ),
    _row(  # base URLs that end in /v1 are common
        "anthropic-messages", ("/v1/messages", "/messages", "/v1/v1/messages"), Generate(anthropic, "msg_").respond,
        anthropic.BODY, "Answer a conversation (Anthropic messages), whole or streamed",
    ),
    _row(
        "ollama-chat", ("/api/chat",), Generate(ollama_chat, "ollama-").respond,
        ollama_chat.BODY, "Answer a conversation (Ollama), streamed unless stream is false",
    ),
    _row(
        "ollama-generate", ("/api/generate",), Generate(ollama_generate, "ollama-").respond,
        ollama_generate.BODY,
        "Answer a prompt, continue it, or fill a gap in it (Ollama), streamed unless stream is false",
    ),
)  # fmt: skip

QUERY_ENDPOINTS: tuple[Endpoint, ...] = (
    _row(
        "apply-template", ("/apply-template", "/v1/apply-template"), query(answer_apply_template),
        openai_chat.BODY, "The prompt of a conversation as text (llama-server)",
    ),
    _row(
        "openai-chat-count", ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"),
        query(counting(openai_chat)),
        openai_chat.BODY, "How many tokens the prompt of a conversation has (llama-server), exactly",
    ),
    _row(
        "lora-adapters", ("/lora-adapters", "/v1/lora-adapters"), set_lora_adapters, LORA_SCHEMA,
        "Set the scales of a model's adapters for requests that choose none (llama-server)", deed="adapters",
    ),
    _row(
        "tokenize", ("/tokenize", "/v1/tokenize"), query(answer_tokenize),
        tokens.TOKENIZE_BODY, "The tokens of a text (llama-server, vLLM)",
    ),
    _row(
        "detokenize", ("/detokenize", "/v1/detokenize"), query(answer_detokenize),
        tokens.DETOKENIZE_BODY, "The text of tokens",
    ),
    _row(
        "openai-input-tokens", ("/v1/responses/input_tokens", "/responses/input_tokens"),
        query(count_responses, stored_responses=True),
        responses.COUNT_BODY, "How many tokens the input of an answer has (OpenAI responses), exactly",
    ),
    _row(
        "anthropic-count", ("/v1/messages/count_tokens", "/messages/count_tokens", "/v1/v1/messages/count_tokens"),
        query(count_messages),
        anthropic.COUNT_BODY, "How many tokens the prompt of a conversation has (Anthropic), exactly",
    ),
    _row(
        "openai-embeddings", ("/v1/embeddings", "/embeddings"), query(answer_openai),
        openai_embeddings.BODY, "Vectors of texts (OpenAI)",
    ),
    _row("ollama-embed", ("/api/embed",), query(answer_embed), ollama_embed.EMBED_BODY, "Vectors of texts (Ollama)"),
    _row(
        "ollama-embeddings", ("/api/embeddings",), query(answer_embeddings),
        ollama_embed.EMBEDDINGS_BODY, "The vector of one text (Ollama, older)",
    ),
    _row(
        "rerank", ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"), query(answer_rerank),
        rerank.RERANK_BODY, "Documents by their relevance to a query (Jina, llama-server; with texts: TEI)",
    ),
    _row("cohere-rerank", ("/v2/rerank",), query(answer_cohere), rerank.COHERE_BODY,
         "Documents by their relevance to a query (Cohere)"),
    _row("score", ("/v1/score", "/score"), query(answer_score), rerank.SCORE_BODY,
         "How relevant texts are to each other, pair by pair (vLLM)"),
    _row("ollama-show", ("/api/show",), query(answer_show), ollama.NAME_BODY, "The details of one model (Ollama)"),
    _row(
        "ollama-copy", ("/api/copy",), query(answer_copy),
        ollama.COPY_BODY, "Give a model another name (Ollama), where the operator allows it", deed="models",
    ),
    _row(
        "ollama-delete", ("/api/delete",), query(answer_delete),
        ollama.NAME_BODY, "Delete a pulled model, or a name of /api/copy (Ollama), where the operator allows it",
        methods=("DELETE",), deed="models",
    ),
    _row(
        "ollama-pull", ("/api/pull",), pull.respond,
        ollama.PULL_BODY, "Get a model that the server does not have (Ollama), where the operator allows it",
    ),
)  # fmt: skip

ENDPOINTS: tuple[Endpoint | PlainEndpoint, ...] = (
    *GENERATE_ENDPOINTS, *QUERY_ENDPOINTS, *(row.endpoint for row in MEMORY_ENDPOINTS),
    *STATUS_ENDPOINTS, *LLAMA_ENDPOINTS, *MODEL_ENDPOINTS, *OLLAMA_ENDPOINTS, *RESPONSE_ENDPOINTS,
    *REPLICA_ENDPOINTS, *CHAT_ENDPOINTS, *WINDOW_ENDPOINTS, *DOCS_ENDPOINTS,
    *WEB_ENDPOINTS,
)  # fmt: skip
