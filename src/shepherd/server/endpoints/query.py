"""An endpoint that computes one whole answer without generating: a count of tokens, vectors, the card of a model.

body ─ answer(context, body) ─▶ JSON
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import RequestContext
from shepherd.server.http.body import json_bytes
from shepherd.server.http.caller import caller_of
from shepherd.wire.base import Json, decode_json

Answer = Callable[[RequestContext, Json], Coroutine[Any, Any, Json]]
"""From the request and its body to the body of the answer. Raises: `ShepherdError`."""


def query(
    answer: Callable[[RequestContext, Json], Coroutine[Any, Any, Json | list[Json]]], *, stored_responses: bool = False
) -> Callable[[RequestContext], Awaitable[None]]:
    """Answers a JSON object with one. `stored_responses`: bodies may refer to stored answers."""

    async def respond(context: RequestContext) -> None:
        body = await context.decode(await context.read_body(), decode_json)
        if stored_responses:
            body = context.state.responses.resolve(body, owner=caller_of(context.scope).owner)
        context.record.model = model if isinstance(model := body.get("model"), str) else ""
        found = await context.while_connected(answer(context, body))
        content = await in_pool("bodies", json_bytes, found)  # thousands of vectors take a second
        context.record.reason = "answered"
        await context.answer(content)

    return respond
