"""Shapes that every protocol of the OpenAI family shares: errors, usage, models."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from shepherd.core import BudgetExceeded, ContextFull, InvalidRequest, TokenScore, UnknownModel, Usage
from shepherd.wire.base import Json, public_error
from shepherd.wire.speculation import encode_drafts

LEAST_LOGPROB = -9999.0


def encode_error(error: Exception, prompt: str = "messages") -> tuple[int, Json]:
    """HTTP status and body; a full context is about the field `prompt`. Reveals nothing of an unexpected exception."""
    status, message = public_error(error)
    about = {ContextFull: prompt, UnknownModel: "model"}
    field = error.field if isinstance(error, InvalidRequest) else about.get(type(error))
    # Those that clients test for by name; otherwise the status as a string.
    code = error.code if isinstance(error, BudgetExceeded | ContextFull | UnknownModel) else str(status)
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    body: Json = {"message": message, "type": kind, "param": field, "code": code}
    if isinstance(error, ContextFull):
        body |= {"n_prompt_tokens": error.n_prompt, "n_ctx": error.limit}
    return status, {"error": body}


_TYPES = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}


def encode_usage(usage: Usage) -> Json:
    """Token counts; cached and recalled tokens are part of the prompt's, reasoning tokens part of the completion's."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read} | encode_recalled(usage),
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning} | encode_drafts(usage),
    }


def with_own(counts: Json, own: Any) -> Json:
    """The counts, and those that only a provider of the protocol has."""
    if not isinstance(own, dict):
        return counts
    inner = {key: value for key, value in own.items() if isinstance(value, dict) and isinstance(counts.get(key), dict)}
    return own | {key: inner[key] | value if key in inner else value for key, value in counts.items()}


def encode_recalled(usage: Usage) -> Json:
    """A detail that the protocol does not have: quotes from the memory, where there are any."""
    return {"recalled_tokens": usage.recalled} if usage.recalled else {}


def logprob_of(value: float) -> float | None:
    """A logarithm that JSON can hold: null for an unknown one, OpenAI's least one for minus infinity."""
    return None if math.isnan(value) else max(value, LEAST_LOGPROB)


def encode_scores(scores: Iterable[TokenScore]) -> list[Json]:
    """Every token, how likely it was, and what else was likely."""
    return [
        encode_score(score.piece, score.logprob) | {"top_logprobs": [encode_score(*top[1:]) for top in score.top]}
        for score in scores
    ]


def encode_score(piece: bytes, logprob: float) -> Json:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob_of(logprob), "bytes": list(piece)}


def encode_model(id: str, *, created: int, n_ctx: int, n_cells: int, n_bytes: int) -> Json:
    """One model. `created` in Unix seconds; `n_ctx` in tokens, `n_cells` of which are held at a time; 0 = not known."""
    return {
        "id": id,
        "object": "model",
        "created": created,
        "owned_by": "shepherd",
        # The context, where clients of vLLM, of OpenRouter and of llama-server look.
        "max_model_len": n_ctx or None,
        "context_length": n_ctx or None,
        "meta": {"n_ctx": n_ctx, "n_cells": n_cells or n_ctx, "size": n_bytes},
    }
