"""Shapes of Anthropic's protocol that stand alone: errors and usage."""

from __future__ import annotations

from shepherd.core import InvalidRequest, Usage
from shepherd.wire.base import Json, public_error

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""By status; what is not here is `api_error` from 500 on and `invalid_request_error` below."""


class UnknownThread(InvalidRequest):
    """The request continues a stored conversation, and this server stores none.

    Anthropic's own client then sends the whole conversation again.
    """

    def __init__(self) -> None:
        super().__init__(
            "thread.previous_message_id names an answer that is not kept here; send the whole conversation",
            field="thread.previous_message_id",
            status=404,
        )


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Reveals nothing of an unexpected exception.

    A full context keeps its own words: clients look for them and read both numbers to plan what they leave out (C10).
    """
    status, message = public_error(error)
    kind = _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    details = {"details": {"error_code": "thread_not_found"}} if isinstance(error, UnknownThread) else {}
    return status, {"type": "error", "error": {"type": kind, "message": message, **details}}


COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def encode_usage(usage: Usage) -> Json:
    """Token counts so far. The three of the prompt are disjoint: their sum is the prompt."""
    counts: Json = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return counts
