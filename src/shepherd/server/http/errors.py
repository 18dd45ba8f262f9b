"""Errors as HTTP has them: in the shape of the protocol that a path speaks, with the time when to try again.

What a provider has against us, a wrong key for example, is never a 401 here (`wire.base.public_error`); whether to try
again is in a header for the vendors' clients, which would try every 502 again.

Not here: errors in a stream that has begun, which its encoder writes (`wire`).
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from functools import partial

from starlette.types import Scope, Send

from shepherd.core import BackendError, EngineDown, Refused, ShepherdError
from shepherd.server.http.body import RawHeaders, json_bytes, send_json
from shepherd.server.http.content_encoding import ACCEPTED, UnknownEncoding
from shepherd.server.http.path import plain_path
from shepherd.server.observe.record import CALLER, REQUEST_ID, Caller, format_name
from shepherd.wire import rerank
from shepherd.wire.anthropic import shapes as anthropic
from shepherd.wire.base import Json
from shepherd.wire.llama import answer as llama
from shepherd.wire.ollama import fields as ollama
from shepherd.wire.openai import completions, shapes
from shepherd.wire.openai.responses import codec as responses

logger = logging.getLogger("shepherd.server")

ERRORS = "shepherd.errors"
"""In a scope: what encodes errors of a request whose body decides the protocol, not its path."""
LOADING_RETRY_S = 5
"""After how long a client should try again while the engine loads or restarts."""


class Stopping(EngineDown):
    """The server is stopping: not a failure."""

    def __init__(self) -> None:
        super().__init__("the server is stopping; send the request again after it has restarted")


def encode_error(scope: Scope, error: Exception) -> tuple[int, bytes, RawHeaders]:
    """Status, body and headers of the answer that reports `error` to a request."""
    path = plain_path(scope["path"])
    is_anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
    default = scope.get(ERRORS) or (anthropic.encode_error if is_anthropic else shapes.encode_error)
    encode = next((encode for paths, encode in _PROTOCOLS if paths.match(path)), default)
    status, body = encode(error)
    if body.get("type") == "error":  # Anthropic's errors contain the request's id
        body = {**body, "request_id": scope.get(REQUEST_ID, "-")}
    return status, json_bytes(body), _headers_for(error)


_PROTOCOLS: tuple[tuple[re.Pattern[str], Callable[[Exception], tuple[int, Json]]], ...] = (
    (re.compile(r"/api/"), ollama.encode_error),
    (re.compile(r"(/v1){0,2}/messages(/|\Z)"), anthropic.encode_error),
    (re.compile(r"(/v1)?/responses(/|\Z)"), responses.encode_error),
    (re.compile(r"/v1/completions\Z"), completions.encode_error),
    (re.compile(r"/v2/rerank\Z"), rerank.encode_cohere_error),
    (re.compile(r"/completions?\Z|(/v1)?/infill\Z"), llama.encode_error),
    (re.compile(r"/chat/completions\Z"), partial(llama.encode_error, prompt="messages")),
)
"""By the beginning of a path; all other paths report errors as OpenAI's chat completions do, to Anthropic's clients
as Anthropic does."""


def _headers_for(error: Exception) -> RawHeaders:
    """When to try again, for temporary errors; what to send instead."""
    match error:
        case BackendError(retry_after_s=float() | int() as seconds) if math.isfinite(seconds):
            return [(b"retry-after", str(max(0, math.ceil(seconds))).encode())]
        case Refused():
            return [(b"x-should-retry", b"false")]
        case UnknownEncoding():
            return [(b"accept-encoding", ACCEPTED.encode())]
        case EngineDown():
            return [(b"retry-after", str(LOADING_RETRY_S).encode())]
        case _:
            return []


async def refuse(
    scope: Scope,
    send: Send,
    error: ShepherdError,
    reason: str,
    *,
    count: Callable[[str], None],
    headers: RawHeaders | tuple[()] = (),
) -> None:
    """Answer, log and `count` a request that is refused before it reaches its endpoint; `reason` in one word."""
    caller: Caller = scope[CALLER]
    status, content, retry = encode_error(scope, error)
    logger.info("%s refused status=%d reason=%s key=%s path=%s", scope.get(REQUEST_ID, "-"), status, reason,
                format_name(caller.key), format_name(scope["path"]))  # fmt: skip
    count(reason)
    await send_json(send, status, content, [*retry, *headers])
