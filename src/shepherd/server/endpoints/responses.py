"""`/v1/responses/{id}`: stored answers, to read and to delete.

Not here: how an answer is generated (`generate`) and stored (`response_store`).
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.server.http.errors import error_response, json_response
from shepherd.server.response_store import ResponseStore
from shepherd.server.service import Service
from shepherd.wire.base import Json, shown
from shepherd.wire.openai.responses import codec as responses

MAX_PAGE = 100
"""OpenAI's limit."""


def add_response_paths(app: FastAPI, store: ResponseStore) -> None:
    """Add them to `app`."""

    async def read(request: HTTPRequest, response_id: str) -> Response:
        """A stored answer."""
        if request.query_params.get("stream") in ("true", "1"):
            return _refusal(InvalidRequest("a stored answer is sent whole; leave out stream", field="stream"))
        found = store.find(response_id)
        return _not_found(response_id) if found is None else json_response(found)

    async def delete(response_id: str) -> Response:
        """Delete an answer and its input."""
        if not store.forget(response_id):
            return _not_found(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def read_input(request: HTTPRequest, response_id: str) -> Response:
        """The input of an answer, the newest item first; with `limit`, `order` and `after`."""
        try:
            items = store.find_input(response_id)
            if items is None:
                return _not_found(response_id)
            return json_response(_page(items, dict(request.query_params)))
        except ShepherdError as error:
            return _refusal(error)

    async def cancel(response_id: str) -> Response:
        """This server generates no answer in the background, so there is never one to cancel."""
        if store.find(response_id) is None:
            return _not_found(response_id)
        message = "the answer is complete; to cancel a running one, close the connection that waits for it"
        return _refusal(InvalidRequest(message))

    for prefix in ("/v1/responses", "/responses"):
        documented = prefix.startswith("/v1")
        for path, handler, method in (
            ("/{response_id}", read, "GET"),
            ("/{response_id}", delete, "DELETE"),
            ("/{response_id}/input_items", read_input, "GET"),
            ("/{response_id}/cancel", cancel, "POST"),
        ):
            app.add_api_route(
                prefix + path,
                handler,
                methods=[method],
                response_class=JSONResponse,
                include_in_schema=documented,
            )


async def count_input(service: Service, body: Json, path: str) -> Json:
    """How many tokens the input of a body would have. Raises: `ShepherdError`."""
    if body.get("input") is None and body.get("previous_response_id") is None:
        body = {**body, "input": []}
    request = (await asyncio.to_thread(responses.decode_request, body)).request
    return {"object": "response.input_tokens", "input_tokens": await service.count(request, endpoint="/v1/responses")}


def _page(items: list[Json], said: dict[str, str]) -> Json:
    """Some of the items. Raises: `InvalidRequest`."""
    limit, order, after = said.get("limit", "20"), said.get("order", "desc"), said.get("after")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= MAX_PAGE:
        raise InvalidRequest(f"limit must be an integer from 1 to {MAX_PAGE}, not {shown(limit)}", field="limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f'order must be "asc" or "desc", not {shown(order)}', field="order")
    if order == "desc":
        items = items[::-1]
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise InvalidRequest(f"after is {shown(after)}, which is not the id of an item", field="after")
        items = items[ids.index(after) + 1 :]
    page = items[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > len(page),
    }


def _not_found(id: str) -> Response:
    message = f"there is no stored response {shown(id)}: it is too old, deleted, or was made with store: false"
    return _refusal(InvalidRequest(message, field="response_id", status=404))


def _refusal(error: Exception) -> Response:
    return error_response(error, responses.encode_error(error), {})
