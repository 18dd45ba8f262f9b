"""An endpoint that computes one whole answer without generating: a count of tokens, vectors, the card of a model.

    body ─ row.answer(service, body, path) ─▶ JSON

A row of `routes.QUERY_ENDPOINTS` is an async function from the service and the body's JSON to the answer's JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shepherd.server.endpoints.handler import RequestContext
from shepherd.server.http.body import json_bytes
from shepherd.server.service import Service
from shepherd.wire.base import Json, decode_json

EncodeError = Callable[[Exception], tuple[int, Json]]


@dataclass(frozen=True, slots=True)
class QueryEndpoint:
    """One path that takes a JSON object and answers with one."""

    name: str
    paths: tuple[str, ...]
    answer: Callable[[Service, Json, str], Awaitable[Json]]
    """From the service, the body and the canonical path. Raises: `ShepherdError`."""
    encode_error: EncodeError
    summary: str
    body: Mapping[str, Any]
    """JSON Schema of the request, for `/docs` only."""
    stored_responses: bool = False
    """Bodies may refer to stored answers."""

    @property
    def methods(self) -> tuple[str, ...]:
        return ("POST",)

    def route_options(self) -> Mapping[str, Any]:
        return body_schema(self.body)

    async def respond(self, context: RequestContext) -> None:
        asked = await context.decode(await context.read_body(), decode_json)
        if self.stored_responses:
            asked = context.state.responses.resolve(asked)
        context.record.model = model if isinstance(model := asked.get("model"), str) else ""
        answer = await context.while_connected(self._answer(context.state.service, asked))
        content = await asyncio.to_thread(json_bytes, answer)  # thousands of vectors take a second
        context.record.reason = "answered"
        await context.answer(content)

    async def _answer(self, service: Service, asked: Json) -> Json:
        return await self.answer(service, asked, self.paths[0])


def body_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments for `add_api_route` that describe a required JSON body."""
    return {"openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}}
