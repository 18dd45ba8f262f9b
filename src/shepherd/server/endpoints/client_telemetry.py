"""The telemetry that clients send to their vendor, and so to us: accepted, not read, not kept, not passed on."""

from __future__ import annotations

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.server.endpoints.handler import PlainEndpoint, json_response


async def drop_events(request: HTTPRequest) -> Response:
    """Events of Claude Code about itself: dropped unread, so that it does not send them again."""
    return json_response({})


TELEMETRY_ENDPOINT = PlainEndpoint(("POST",), ("/api/event_logging/batch",), drop_events, documented=False)
