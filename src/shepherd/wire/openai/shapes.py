"""Shapes that every protocol of the OpenAI family shares: errors, usage, models."""

from __future__ import annotations

import math
from collections.abc import Iterable

from shepherd.core import ContextFull, InvalidRequest, TokenScore, UnknownModel, Usage
from shepherd.wire.base import Json, public_error

LEAST_LOGPROB = -9999.0


def encode_error(error: Exception, prompt: str = "messages") -> tuple[int, Json]:
    """HTTP status and body; a full context is about the field `prompt`. Reveals nothing of an unexpected exception."""
    status, message = public_error(error)
    field = error.field if isinstance(error, InvalidRequest) else prompt if isinstance(error, ContextFull) else None
    # The two that clients test for by name; otherwise the status as a string.
    code = error.code if isinstance(error, ContextFull | UnknownModel) else str(status)
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return status, {"error": {"message": message, "type": kind, "param": field, "code": code}}


_TYPES = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}


def encode_usage(usage: Usage) -> Json:
    """Token counts; cached and recalled tokens are part of the prompt's, reasoning tokens part of the completion's."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read} | encode_recalled(usage),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def encode_recalled(usage: Usage) -> Json:
    """A detail that the protocol does not have: quotes from the memory, where there are any."""
    return {"recalled_tokens": usage.recalled} if usage.recalled else {}


def logprob_of(value: float) -> float | None:
    """A logarithm that JSON can hold: null for an unknown one, OpenAI's least one for minus infinity."""
    return None if math.isnan(value) else max(value, LEAST_LOGPROB)


def encode_scores(scores: Iterable[TokenScore]) -> list[Json]:
    """Every token, how likely it was, and what else was likely."""
    return [
        _encode_score(score.piece, score.logprob) | {"top_logprobs": [_encode_score(*top[1:]) for top in score.top]}
        for score in scores
    ]


def _encode_score(piece: bytes, logprob: float) -> Json:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob_of(logprob), "bytes": list(piece)}


def encode_model(id: str, *, created: int, n_ctx: int, n_bytes: int) -> Json:
    """One model. `created` in Unix seconds, `n_ctx` in tokens."""
    return {
        "id": id,
        "object": "model",
        "created": created,
        "owned_by": "shepherd",
        # The context, where clients of vLLM, of OpenRouter and of llama-server look.
        "max_model_len": n_ctx,
        "context_length": n_ctx,
        "meta": {"n_ctx": n_ctx, "size": n_bytes},
    }


def encode_models(models: list[Json]) -> Json:
    return {"object": "list", "data": models}
