"""Answers of paths that only tell something: a JSON body, or a refusal in the words of a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from shepherd.server.endpoints.generate import retry_headers, with_id
from shepherd.server.http.body import json_bytes
from shepherd.server.observe.record import REQUEST_ID
from shepherd.wire.base import Json


def told(body: Any, status: int = 200) -> Response:
    return Response(json_bytes(body), status, media_type="application/json")


def refused(error: Exception, encoded: tuple[int, Json], scope: Mapping[str, Any]) -> Response:
    """`encoded`: the error's status and body as the protocol has them. `scope`: of the request, for its id."""
    status, body = encoded
    response = told(with_id(body, scope.get(REQUEST_ID, "-")), status)
    response.raw_headers.extend(retry_headers(error))
    return response
