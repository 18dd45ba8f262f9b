"""Shapes of Anthropic's protocol that stand alone: errors and usage.

Nothing here decides what is an error; it only says it the way Anthropic's clients read it.
"""

from __future__ import annotations

from shepherd.core import InvalidRequest, ShepherdError, Usage
from shepherd.wire.base import Json

UNEXPECTED = "the server made an error while answering; its log holds the details"

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
    """The request goes on with a conversation that a server should have kept, and this one keeps none.

    Anthropic's own client sends the whole of it again when it is told so in these words.
    """

    def __init__(self) -> None:
        super().__init__(
            "thread.previous_message_id names an answer that is not kept here; send the whole conversation",
            field="thread.previous_message_id",
            status=404,
        )


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Of an exception that nobody foresaw, nothing is told.

    A full context keeps its own words: clients look for them and read both numbers to plan what they leave out (C10).
    """
    if not isinstance(error, ShepherdError):
        return 500, _error_body(500, UNEXPECTED)
    # A provider's odd status (a redirect, say) must not become ours.
    status = error.status if 400 <= error.status <= 599 else 502
    body = _error_body(status, error.message)
    if isinstance(error, UnknownThread):
        body["error"]["details"] = {"error_code": "thread_not_found"}
    return status, body


def _error_body(status: int, message: str) -> Json:
    kind = _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


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
