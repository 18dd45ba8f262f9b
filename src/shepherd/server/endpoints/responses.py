"""`/v1/responses/{id}`: answers that are kept can be read again, and deleted.

Not here: how they are made (`exchange`) and kept (`kept`).
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, Response

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.server.http.errors import refused, told
from shepherd.server.response_store import KeptResponses
from shepherd.server.service import Service
from shepherd.wire.base import Json, shown
from shepherd.wire.openai.responses import codec as responses

MAX_PAGE = 100
"""OpenAI's limit."""


def add_response_paths(app: FastAPI, kept: KeptResponses) -> None:
    """Add them to `app`."""

    async def read(request: HTTPRequest, response_id: str) -> Response:
        """An answer that was made before."""
        if request.query_params.get("stream") in ("true", "1"):
            return _refusal(
                InvalidRequest("an answer that is complete is told whole; leave out stream", field="stream")
            )
        found = kept.find(response_id)
        return _not_found(response_id) if found is None else told(found)

    async def delete(response_id: str) -> Response:
        """Forget an answer and its input."""
        if not kept.forget(response_id):
            return _not_found(response_id)
        return told({"id": response_id, "object": "response", "deleted": True})

    async def read_input(request: HTTPRequest, response_id: str) -> Response:
        """What the model was given for an answer, the newest first; with `limit`, `order` and `after`."""
        try:
            items = kept.find_input(response_id)
            if items is None:
                return _not_found(response_id)
            return told(_page(items, dict(request.query_params)))
        except ShepherdError as error:
            return _refusal(error)

    async def cancel(response_id: str) -> Response:
        """Nothing is made in the background here, so there is never anything to cancel."""
        if kept.find(response_id) is None:
            return _not_found(response_id)
        message = "the answer is complete; one in the making is cancelled by closing the connection that waits for it"
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
            raise InvalidRequest(f"after names {shown(after)}, which is not among the items", field="after")
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
    message = f"there is no response {shown(id)} here: it may be too old, deleted, or made with store: false"
    return _refusal(InvalidRequest(message, field="response_id", status=404))


def _refusal(error: Exception) -> Response:
    return refused(error, responses.encode_error(error), {})
