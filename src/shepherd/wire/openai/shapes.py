"""Shapes that every protocol of the OpenAI family shares: errors, usage, models.

Nothing here decides what is an error; it only says it the way OpenAI's clients read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shepherd.core import ContextFull, InvalidRequest, ReasoningLevel, ShepherdError, UnknownModel, Usage
from shepherd.wire.base import Json

LEAST_LOGPROB = -9999.0
EFFORTS: dict[str, ReasoningLevel] = {
    "none": "off",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""How much is to be thought, in OpenAI's words."""

UNEXPECTED = "the server made an error while answering; its log holds the details"


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Of an exception that nobody foresaw, nothing is told."""
    if not isinstance(error, ShepherdError):
        return 500, _error_body(500, UNEXPECTED, None, "500")
    # A provider's odd status (a redirect, say) must not become ours.
    status = error.status if 400 <= error.status <= 599 else 502
    field = error.field if isinstance(error, InvalidRequest) else "messages" if isinstance(error, ContextFull) else None
    return status, _error_body(status, error.message, field, _code(error, status))


def _code(error: ShepherdError, status: int) -> str:
    # The two that clients test for by name; otherwise the seeds' rule, the status as a string.
    return error.code if isinstance(error, ContextFull | UnknownModel) else str(status)


def _error_body(status: int, message: str, field: str | None, code: str) -> Json:
    return {"error": {"message": message, "type": _TYPES.get(status) or _type(status), "param": field, "code": code}}


_TYPES = {401: "authentication_error", 403: "authentication_error", 429: "rate_limit_error"}


def _type(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def encode_usage(usage: Usage) -> Json:
    """Token counts; cached tokens are part of the prompt's, reasoning tokens part of the completion's."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def sum_usage(usages: Sequence[Usage], n: int) -> Usage:
    """Of all choices together, `n` to each prompt, one after the other: a prompt counts once."""
    prompts = usages[::n]
    return Usage(
        input=sum(usage.input for usage in prompts),
        cache_read=sum(usage.cache_read for usage in prompts),
        cache_write=sum(usage.cache_write for usage in prompts),
        output=sum(usage.output for usage in usages),
        reasoning=sum(usage.reasoning for usage in usages),
    )


def logprob_of(value: float) -> float | None:
    """A logarithm that JSON can hold: no number where nothing is known, OpenAI's least one for what cannot be."""
    return None if math.isnan(value) else max(value, LEAST_LOGPROB)


def encode_model(id: str, *, created: int, n_ctx: int) -> Json:
    """One model. `created` in Unix seconds, `n_ctx` in tokens."""
    return {"id": id, "object": "model", "created": created, "owned_by": "shepherd", "max_model_len": n_ctx}


def encode_models(models: list[Json]) -> Json:
    return {"object": "list", "data": models}
