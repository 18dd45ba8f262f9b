"""What the server reports about itself: its health, its paths, its caches and metrics; and how a cache is emptied."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.app.usage import KEPT_DAYS
from shepherd.core import InvalidRequest
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.caches import encode_caches, seen_by
from shepherd.server.endpoints.handler import PlainEndpoint, json_response, state_of
from shepherd.server.endpoints.models import refuse_while_loading
from shepherd.server.endpoints.openapi import OK, documented_path
from shepherd.server.endpoints.replicas import encode_replicas
from shepherd.server.endpoints.web_page import send_page, wants_page
from shepherd.server.http.caller import caller_of
from shepherd.server.observe.metrics import CONTENT_TYPE
from shepherd.wire.base import wrong

USUAL_DAYS = 30


async def report_health(request: HTTPRequest) -> Response:
    """Whether requests can be answered: 200 when they can, else 503 with the reason. `degraded`: without the memory."""
    state = state_of(request)
    health = state.service.health()
    if state.active.stopping:
        health = replace(health, status="stopping", detail="the server is stopping")
    is_ok = health.status in ("ok", "degraded")
    body = {
        "status": health.status,
        "backend_connected": is_ok,
        "backend": health.backend,
        "model": health.model,
        "caches": {name: asdict(cache) for name, cache in health.caches.items()},
    }
    if health.providers:
        body["providers"] = {
            name: {"rests_s": round(rests_s, 1)} if rests_s else {} for name, rests_s in health.providers.items()
        }
    if health.groups:
        body["replicas"] = encode_replicas(health.groups, brief=True)
    if health.detail:
        body["detail"] = health.detail
    return json_response(body, 200 if is_ok else 503)


async def root(request: HTTPRequest) -> Response:
    """The endpoints of this server; a browser gets the page."""
    if wants_page(request):
        return await send_page(request)
    endpoints = [f"{row.methods[0]} {documented_path(row)}" for row in state_of(request).documented]
    return json_response({"name": "shepherd", "version": version("shepherd"), "endpoints": [*endpoints, "GET /docs"]})


async def caches(request: HTTPRequest) -> Response:
    """What every cache holds, and its counters since the start; a key of one user sees no conversations of others."""
    state = state_of(request)
    if not (stats := state.service.stats()):
        refuse_while_loading(state.service)
    caller = caller_of(request.scope)
    models = {name: cache.model for name, cache in state.service.health().caches.items()}
    body = encode_caches(seen_by(caller, stats), models, state.metrics.totals(), state.service.totals().spending)
    outcomes = state.metrics.outcomes()
    return json_response({**body, "outcomes": outcomes} if outcomes else body)


async def usage(request: HTTPRequest) -> Response:
    """What models and providers were used for, day by day, and the budgets of today; `?days=`, at most 62. A key of one
    user sees what was answered to that user."""
    text = request.query_params.get("days", str(USUAL_DAYS))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= KEPT_DAYS):
        raise wrong("days", f"a whole number from 1 to {KEPT_DAYS}, the days that are kept", text)
    service = state_of(request).service
    caller = caller_of(request.scope)
    user = caller.user if caller.is_one_of_many else None
    days = await in_pool("files", service.usage, int(text), user)
    spending = service.totals().spending if user is None else {}
    budgets = {name: asdict(each) for name, each in spending.items()}
    today = datetime.now().astimezone().date().isoformat()
    return json_response({"today": today, "days": [asdict(each) for each in days], "providers": budgets})


async def clear(request: HTTPRequest) -> Response:
    """Empty a cache; running answers continue."""
    name = request.path_params["name"]
    service = state_of(request).service
    if not (known := service.stats()):
        refuse_while_loading(service)
    if name not in known:
        message = f"there is no cache {name[:80]!r}; the caches are: {', '.join(known) or 'none'}"
        raise InvalidRequest(message, status=404)
    await service.clear(name)
    return json_response({"cache": name, "cleared": True})


async def measure(request: HTTPRequest) -> Response:
    """Metrics for Prometheus."""
    metrics = state_of(request).metrics
    response = Response(metrics.render(), media_type=CONTENT_TYPE)
    # With llama-server's capitals: a client that keeps headers in a dictionary looks for these.
    response.raw_headers.append((_AsWritten(b"Process-Start-Time-Unix"), b"%d" % metrics.began_s))
    return response


async def drop_events(request: HTTPRequest) -> Response:
    """Events of Claude Code about itself: dropped unread, so that it does not send them again."""
    return json_response({})


class _AsWritten(bytes):
    """The name of a header that keeps its capitals: uvicorn writes all others in small letters."""

    def lower(self) -> _AsWritten:
        return self


_NOT_READY = {"503": {"description": "No request can be answered now: the same fields, and why in `detail`."}}
_TEXT = {"200": {**OK, "content": {"text/plain": {"schema": {"type": "string"}}}}}

_DAYS = {
    "name": "days", "in": "query", "required": False, "description": "today is the last of them",
    "schema": {"type": "integer", "minimum": 1, "maximum": KEPT_DAYS, "default": USUAL_DAYS},
}  # fmt: skip

STATUS_ENDPOINTS = (
    # Some clients probe their base URL, which ends in /v1.
    PlainEndpoint(("GET", "HEAD"), ("/health", "/v1/health"), report_health, {"responses": _NOT_READY}),
    PlainEndpoint(("GET", "HEAD"), ("/", "/v1"), root),
    PlainEndpoint(("GET", "HEAD"), ("/v1/caches",), caches),
    PlainEndpoint(("GET", "HEAD"), ("/v1/usage",), usage, {"parameters": [_DAYS]}),
    PlainEndpoint(("DELETE",), ("/v1/caches/{name:path}",), clear, deed="caches"),
    PlainEndpoint(("GET", "HEAD"), ("/metrics",), measure, {"responses": _TEXT}),
    PlainEndpoint(("POST",), ("/api/event_logging/batch",), drop_events, documented=False),
)
