"""`/v1/responses/{id}`: stored answers, for their owner to read and to delete."""

from __future__ import annotations

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core import InvalidRequest
from shepherd.server.endpoints.handler import PlainEndpoint, json_response, state_of
from shepherd.server.endpoints.page import encode_page
from shepherd.server.http.caller import caller_of
from shepherd.wire.base import Json, shown

MAX_PAGE = 100
"""OpenAI's limit."""


async def read(request: HTTPRequest) -> Response:
    """A stored answer."""
    if request.query_params.get("stream") in ("true", "1"):
        raise InvalidRequest("a stored answer is sent whole; leave out stream", field="stream")
    return json_response(_find(request))


async def delete(request: HTTPRequest) -> Response:
    """Delete an answer and its input."""
    response_id = request.path_params["response_id"]
    if not state_of(request).responses.forget(response_id, owner=_owner(request)):
        raise _not_found(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


async def read_input(request: HTTPRequest) -> Response:
    """The input of an answer, the newest item first; with `limit`, `order` and `after`."""
    response_id = request.path_params["response_id"]
    items = state_of(request).responses.find_input(response_id, owner=_owner(request))
    if items is None:
        raise _not_found(response_id)
    query = request.query_params
    if (order := query.get("order", "desc")) not in ("asc", "desc"):
        raise InvalidRequest(f'order must be "asc" or "desc", not {shown(order)}', field="order")
    items = items[::-1] if order == "desc" else items
    return json_response(
        {"object": "list", **encode_page(items, query, what="an item", max_limit=MAX_PAGE, after="after")}
    )


async def cancel(request: HTTPRequest) -> Response:
    """This server generates no answer in the background: there is none to cancel."""
    _find(request)
    raise InvalidRequest("the answer is complete; to cancel a running one, close the connection that waits for it")


def _find(request: HTTPRequest) -> Json:
    response_id = request.path_params["response_id"]
    if (found := state_of(request).responses.find(response_id, owner=_owner(request))) is None:
        raise _not_found(response_id)
    return found


def _owner(request: HTTPRequest) -> str:
    return caller_of(request.scope).owner


def _not_found(id: str) -> InvalidRequest:
    why = "it is too old, deleted, was made with store: false, or by another API key"
    message = f"there is no stored response {shown(id)}: {why}"
    return InvalidRequest(message, field="response_id", status=404)


RESPONSE_ENDPOINTS = tuple(
    PlainEndpoint((method,), (f"/v1/responses/{{response_id}}{below}", f"/responses/{{response_id}}{below}"), handler)
    for method, below, handler in (
        ("GET", "", read),
        ("DELETE", "", delete),
        ("GET", "/input_items", read_input),
        ("POST", "/cancel", cancel),
    )
)
