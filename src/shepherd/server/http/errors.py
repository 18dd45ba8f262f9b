"""Errors as HTTP has them: when to try again, the request's id in the body; and answers of paths without a record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from shepherd.core import EngineDown, RateLimited
from shepherd.server.http.body import RawHeaders, json_bytes
from shepherd.server.observe.record import REQUEST_ID
from shepherd.wire.base import Json

LOADING_RETRY_S = 5
"""After how long a client should try again while the engine loads or restarts."""


class Stopping(EngineDown):
    """The server is stopping: not a failure."""

    def __init__(self) -> None:
        super().__init__("the server is stopping; send the request again after it has restarted")


def json_response(body: Any, status: int = 200) -> Response:
    return Response(json_bytes(body), status, media_type="application/json")


def error_response(error: Exception, encoded: tuple[int, Json], scope: Mapping[str, Any]) -> Response:
    """`encoded`: the error's status and body as the protocol has them. `scope`: of the request, for its id."""
    status, body = encoded
    response = json_response(with_id(body, scope.get(REQUEST_ID, "-")), status)
    response.raw_headers.extend(retry_headers(error))
    return response


def with_id(body: Json, id: str) -> Json:
    """An error's body with the request's id, in the protocol whose errors have one (Anthropic's)."""
    return {**body, "request_id": id} if body.get("type") == "error" else body


def retry_headers(error: Exception) -> RawHeaders:
    """When to try again, for temporary errors."""
    match error:
        case RateLimited(retry_after_s=float() | int() as seconds) if math.isfinite(seconds):
            return [(b"retry-after", str(max(0, math.ceil(seconds))).encode())]
        case EngineDown():
            return [(b"retry-after", str(LOADING_RETRY_S).encode())]
        case _:
            return []
