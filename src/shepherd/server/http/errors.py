"""Answers of paths that only tell something: a JSON body, or a refusal in the words of a protocol."""

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
"""What a client is told to wait for while the engine is loading or being restarted."""


class Stopping(EngineDown):
    """The server is being stopped: not a failure."""

    def __init__(self) -> None:
        super().__init__("the server is stopping; send the request again when it is back")


def told(body: Any, status: int = 200) -> Response:
    return Response(json_bytes(body), status, media_type="application/json")


def refused(error: Exception, encoded: tuple[int, Json], scope: Mapping[str, Any]) -> Response:
    """`encoded`: the error's status and body as the protocol has them. `scope`: of the request, for its id."""
    status, body = encoded
    response = told(with_id(body, scope.get(REQUEST_ID, "-")), status)
    response.raw_headers.extend(retry_headers(error))
    return response


def with_id(body: Json, id: str) -> Json:
    """An error's body with the request's id, in the protocol whose errors have one (Anthropic's)."""
    return {**body, "request_id": id} if body.get("type") == "error" else body


def retry_headers(error: Exception) -> RawHeaders:
    """When to come back, for the errors that pass."""
    match error:
        case RateLimited(retry_after_s=float() | int() as seconds) if math.isfinite(seconds):
            return [(b"retry-after", str(max(0, math.ceil(seconds))).encode())]
        case EngineDown():
            return [(b"retry-after", str(LOADING_RETRY_S).encode())]
        case _:
            return []
