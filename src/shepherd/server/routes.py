"""The table of endpoints, one row each: its paths, its protocol, its documentation. Adding an endpoint is adding a row.

Rows of `GENERATE_ENDPOINTS` generate an answer, rows of `QUERY_ENDPOINTS` compute one, `MEMORY_ENDPOINTS` are the
memory's. Paths that only report (`/v1/models`, `/health`) are in `endpoints` and `app`; this file holds no handler.
"""

from __future__ import annotations

from collections.abc import Mapping

from shepherd.server.endpoints.counting import counting
from shepherd.server.endpoints.embeddings import answer_embed, answer_embeddings, answer_openai
from shepherd.server.endpoints.generate import GenerateEndpoint
from shepherd.server.endpoints.handler import Endpoint
from shepherd.server.endpoints.memory import MEMORY_ENDPOINTS
from shepherd.server.endpoints.ollama import answer_pull, answer_show
from shepherd.server.endpoints.query import EncodeError, QueryEndpoint
from shepherd.server.endpoints.responses import count_input
from shepherd.server.endpoints.tokens import answer_detokenize, answer_tokenize
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.base import Json
from shepherd.wire.llama import infill, tokens
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.ollama import embed as ollama_embed
from shepherd.wire.ollama import fields as ollama
from shepherd.wire.ollama import generate as ollama_generate
from shepherd.wire.openai import chat as openai_chat
from shepherd.wire.openai import completions as openai_completions
from shepherd.wire.openai import embeddings as openai_embeddings
from shepherd.wire.openai.responses import codec as responses

GENERATE_ENDPOINTS: tuple[GenerateEndpoint, ...] = (
    GenerateEndpoint(
        name="openai-chat",
        paths=("/v1/chat/completions", "/chat/completions"),
        codec=openai_chat,
        id_prefix="chatcmpl-",
        summary="Answer a conversation (OpenAI chat completions), whole or streamed",
        body=openai_chat.BODY,
    ),
    GenerateEndpoint(
        name="openai-completions",
        paths=("/v1/completions", "/completions"),
        codec=openai_completions,
        id_prefix="cmpl-",
        summary="Go on with a text, or fill a gap in it (OpenAI completions), whole or streamed",
        body=openai_completions.BODY,
    ),
    GenerateEndpoint(
        name="llama-infill",
        paths=("/infill", "/v1/infill"),
        codec=infill,
        id_prefix="infill-",
        summary="Fill the gap at the cursor of an editor (llama-server's infill), whole or streamed",
        body=infill.BODY,
    ),
    GenerateEndpoint(
        name="openai-responses",
        paths=("/v1/responses", "/responses"),
        codec=responses,
        id_prefix="resp_",
        summary="Answer a conversation (OpenAI responses), whole or streamed",
        body=responses.BODY,
        stored_responses=True,
    ),
    GenerateEndpoint(
        name="anthropic-messages",
        paths=("/v1/messages", "/messages", "/v1/v1/messages"),  # base URLs that end in /v1 are common
        codec=anthropic,
        id_prefix="msg_",
        summary="Answer a conversation (Anthropic messages), whole or streamed",
        body=anthropic.BODY,
    ),
    GenerateEndpoint(
        name="ollama-chat",
        paths=("/api/chat",),
        codec=ollama_chat,
        id_prefix="ollama-",
        summary="Answer a conversation (Ollama), streamed unless told otherwise",
        body=ollama_chat.BODY,
    ),
    GenerateEndpoint(
        name="ollama-generate",
        paths=("/api/generate",),
        codec=ollama_generate,
        id_prefix="ollama-",
        summary="Answer a prompt, continue it, or fill a gap in it (Ollama), streamed unless told otherwise",
        body=ollama_generate.BODY,
    ),
)

QUERY_ENDPOINTS: tuple[QueryEndpoint, ...] = (
    QueryEndpoint(
        name="tokenize",
        paths=("/tokenize", "/v1/tokenize"),
        answer=answer_tokenize,
        encode_error=openai_chat.encode_error,
        summary="The tokens of a text, as llama-server and vLLM tell them",
        body=tokens.TOKENIZE_BODY,
    ),
    QueryEndpoint(
        name="detokenize",
        paths=("/detokenize", "/v1/detokenize"),
        answer=answer_detokenize,
        encode_error=openai_chat.encode_error,
        summary="The text of tokens",
        body=tokens.DETOKENIZE_BODY,
    ),
    QueryEndpoint(
        name="openai-input-tokens",
        paths=("/v1/responses/input_tokens", "/responses/input_tokens"),
        answer=count_input,
        encode_error=responses.encode_error,
        summary="How many tokens the input of an answer has (OpenAI responses), exactly",
        body=responses.COUNT_BODY,
        stored_responses=True,
    ),
    QueryEndpoint(
        name="anthropic-count",
        paths=("/v1/messages/count_tokens", "/messages/count_tokens", "/v1/v1/messages/count_tokens"),
        answer=counting(anthropic, "/v1/messages"),
        encode_error=anthropic.encode_error,
        summary="How many tokens the prompt of a conversation has (Anthropic), exactly",
        body=anthropic.COUNT_BODY,
    ),
    QueryEndpoint(
        name="openai-embeddings",
        paths=("/v1/embeddings", "/embeddings"),
        answer=answer_openai,
        encode_error=openai_embeddings.encode_error,
        summary="Vectors of texts (OpenAI)",
        body=openai_embeddings.BODY,
    ),
    QueryEndpoint(
        name="ollama-embed",
        paths=("/api/embed",),
        answer=answer_embed,
        encode_error=ollama.encode_error,
        summary="Vectors of texts (Ollama)",
        body=ollama_embed.EMBED_BODY,
    ),
    QueryEndpoint(
        name="ollama-embeddings",
        paths=("/api/embeddings",),
        answer=answer_embeddings,
        encode_error=ollama.encode_error,
        summary="The vector of one text (Ollama, older)",
        body=ollama_embed.EMBEDDINGS_BODY,
    ),
    QueryEndpoint(
        name="ollama-show",
        paths=("/api/show",),
        answer=answer_show,
        encode_error=ollama.encode_error,
        summary="What one model is (Ollama)",
        body=ollama.NAME_BODY,
    ),
    QueryEndpoint(
        name="ollama-pull",
        paths=("/api/pull",),
        answer=answer_pull,
        encode_error=ollama.encode_error,
        summary="That a model is there (Ollama); none is downloaded",
        body=ollama.NAME_BODY,
    ),
)

ENDPOINTS: tuple[Endpoint, ...] = (*GENERATE_ENDPOINTS, *QUERY_ENDPOINTS, *MEMORY_ENDPOINTS)

_ERRORS: Mapping[str, EncodeError] = {path: endpoint.encode_error for endpoint in ENDPOINTS for path in endpoint.paths}
_ERRORS_BELOW: tuple[tuple[str, EncodeError], ...] = (
    ("/api/", ollama.encode_error),
    ("/v1/responses/", responses.encode_error),
    ("/responses/", responses.encode_error),
    ("/v1/messages/", anthropic.encode_error),
    ("/messages/", anthropic.encode_error),
    ("/v1/v1/messages/", anthropic.encode_error),
)
"""By the beginning of a path, the protocol of paths that are not rows."""


def encode_error(path: str, error: Exception) -> tuple[int, Json]:
    """Status and body of an error in the protocol of `path`: OpenAI's unless a row has another."""
    if (encode := _ERRORS.get(path)) is None:
        below = (encode for beginning, encode in _ERRORS_BELOW if path.startswith(beginning))
        encode = next(below, openai_chat.encode_error)
    return encode(error)
