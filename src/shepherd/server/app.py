"""The FastAPI application: its paths, the order of its middleware, and the answers that only report something.

    request id ─ CORS ─ authentication ─ admission ─ router ─▶ RequestHandler (a row of `routes`) | models | ...

Not here: how a row is answered (`endpoints/handler.py`), how a port is opened (`http/listen.py`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HTTPRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.server.endpoints.caches import encode_caches
from shepherd.server.endpoints.handler import ActiveRequests, Endpoint, Limits, RequestHandler, ServerState
from shepherd.server.endpoints.mcp import Open, add_mcp_path
from shepherd.server.endpoints.memory import MEMORY_ENDPOINTS
from shepherd.server.endpoints.models import add_model_paths, still_loading
from shepherd.server.endpoints.ollama import OLLAMA_ENDPOINTS, add_ollama_paths
from shepherd.server.endpoints.responses import add_response_paths
from shepherd.server.http.admission import Admission, AdmissionMiddleware
from shepherd.server.http.auth import LOCAL_ORIGIN, AuthMiddleware, Key, keys_for
from shepherd.server.http.caller import USER
from shepherd.server.http.errors import error_response, json_response
from shepherd.server.http.listen import loop_factory, serve
from shepherd.server.observe.metrics import CONTENT_TYPE, Metrics
from shepherd.server.observe.observer import ObserverFactory
from shepherd.server.observe.record import REQUEST_ID
from shepherd.server.response_store import ResponseStore
from shepherd.server.routes import ENDPOINTS, GENERATE_ENDPOINTS, QUERY_ENDPOINTS, encode_error
from shepherd.server.service import Service

__all__ = ["Limits", "Service", "create_app", "run_server", "serve"]


def run_server(
    service: Service, host: str = "127.0.0.1", port: int = 8000, *, api_keys: Collection[str | Key] | None = None
) -> None:
    """Serve `service`, a loaded `App` for example, until SIGINT or SIGTERM: `shepherd serve` for programs.

    Blocks; call it on the main thread, outside of any event loop. `api_keys` as for `create_app`; without any, if other
    machines can reach `host`, it makes a key and writes it to standard error.

    Raises: `ConfigError` when the address cannot be used.
    """
    api_keys, new_key = keys_for(host, api_keys)
    if new_key:
        sys.stderr.write(f"API key: {new_key}\n")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(create_app(service, api_keys=api_keys, host=host), host=host, port=port))


def create_app(
    service: Service,
    *,
    api_keys: Collection[str | Key] | None = None,
    host: str = "127.0.0.1",
    origins: Collection[str] = (),
    allow_hosts: Collection[str] = (),
    admission: Admission | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    observe: Sequence[ObserverFactory] = (),
    responses: ResponseStore | None = None,
    tools: Open | None = None,
) -> FastAPI:
    """The application.

    `api_keys`: `None` = open, empty = refuse every request; `host`: the address on which it will listen. `origins`: web
    pages that may use it, besides those of this machine; `allow_hosts`: host names for which an open server answers,
    besides local ones. `admission`: how many requests run at the same time. `observe`: makes the observers of each
    request. `responses`: where answers are stored that later requests refer to, closed by the caller; None = in memory,
    as long as the application exists. `tools`: the tools for other agents over MCP; None = there is no `/mcp`.
    """
    app = FastAPI(
        title="Shepherd",
        version=version("shepherd"),
        description="Language models on your own machine.",
        redoc_url=None,
        redirect_slashes=False,
    )
    active = app.state.active = ActiveRequests()
    is_open = app.state.is_open = api_keys is None
    admission = admission or Admission()
    metrics = Metrics(service.stats, service.n_archived, n_active=lambda: admission.n_active, loads=service.n_loads)
    responses = responses or ResponseStore()
    state = ServerState(service, limits, active, metrics, responses, observe, is_open)
    for endpoint in ENDPOINTS:
        _add_endpoint(app, endpoint, state)
    _add_status_paths(app, service, active)
    add_model_paths(app, service)
    add_ollama_paths(app, service)
    add_response_paths(app, responses)
    _add_cache_paths(app, service, metrics)
    if tools is not None:
        add_mcp_path(app, tools, limits)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_bug)
    # The last one added is the outermost.
    app.add_middleware(AdmissionMiddleware, admission=admission, encode_error=encode_error, refused=metrics.refuse)
    app.add_middleware(
        AuthMiddleware,
        api_keys=api_keys,
        host=host,
        origins=origins,
        allow_hosts=allow_hosts,
        encode_error=encode_error,
        refused=metrics.refuse,
    )
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_origin_regex=LOCAL_ORIGIN,
        allow_methods=("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"),
        allow_headers=_CORS_HEADERS,
        expose_headers=_EXPOSED,
    )
    app.add_middleware(RequestIdMiddleware)
    return app


def _add_endpoint(app: FastAPI, endpoint: Endpoint, state: ServerState) -> None:
    async def answer() -> Response:
        return RequestHandler(endpoint, state)

    method, *others = endpoint.methods
    for path in endpoint.paths:
        app.add_api_route(
            path,
            answer,
            methods=[method],
            name=endpoint.name,
            summary=endpoint.summary,
            include_in_schema=path == endpoint.paths[0],
            response_class=Response,
            **endpoint.route_options(),
        )
        if others:
            app.add_api_route(path, answer, methods=others, include_in_schema=False)


def _add_status_paths(app: FastAPI, service: Service, active: ActiveRequests) -> None:
    async def report_health() -> Response:
        """Whether requests can be answered: 200 when they can, else 503 with the reason."""
        health = service.health()
        if active.stopping:
            health = replace(health, status="stopping", detail="the server is stopping")
        caches = {
            name: {"n_ctx": cache.n_ctx, "used": cache.used, "model": cache.model}
            for name, cache in health.caches.items()
        }
        body: dict[str, Any] = {
            "status": health.status,
            "backend_connected": health.status == "ok",
            "backend": health.backend,
            "model": health.model,
            "caches": caches,
        }
        if health.detail:
            body["detail"] = health.detail
        return json_response(body, 200 if health.status == "ok" else 503)

    async def root() -> Response:
        """The endpoints of this server."""
        rows: tuple[Endpoint, ...] = (*GENERATE_ENDPOINTS, *QUERY_ENDPOINTS)
        endpoints = [f"POST {row.paths[0]}" for row in rows]
        endpoints += ["GET /v1/models", "GET /v1/models/{id}", "GET /v1/caches", "DELETE /v1/caches/{name}"]
        endpoints += ["GET /v1/responses/{id}", "DELETE /v1/responses/{id}", "GET /v1/responses/{id}/input_items"]
        endpoints += OLLAMA_ENDPOINTS
        endpoints += [f"{row.method} {row.path.replace(':path', '')}" for row in MEMORY_ENDPOINTS]
        endpoints += ["GET /health", "GET /metrics", "GET /docs"]
        return json_response({"name": "shepherd", "version": app.version, "endpoints": endpoints})

    _add_get(app, "/health", report_health)
    _add_get(app, "/", root)
    for path, handler in (
        ("/v1/health", report_health),
        ("/v1", root),
    ):  # some clients probe their base URL, which ends in /v1
        app.add_api_route(path, handler, methods=["GET", "HEAD"], include_in_schema=False)


def _add_cache_paths(app: FastAPI, service: Service, metrics: Metrics) -> None:
    async def caches(request: HTTPRequest) -> Response:
        """What every cache holds, and its counters since the start."""
        stats = service.stats()
        if not stats and service.health().status == "loading":
            return _error_response(request, still_loading())
        models = {name: cache.model for name, cache in service.health().caches.items()}
        return json_response(encode_caches(stats, models, metrics.totals()))

    async def clear(request: HTTPRequest, name: str) -> Response:
        """Empty a cache; answers that are being generated go on."""
        known = service.stats()
        if not known and service.health().status == "loading":
            return _error_response(request, still_loading())
        if name not in known:
            message = f"there is no cache {name[:80]!r}; the caches are: {', '.join(known) or 'none'}"
            return _error_response(request, InvalidRequest(message, status=404))
        try:
            await service.clear(name)
        except ShepherdError as error:
            return _error_response(request, error)
        return json_response({"cache": name, "cleared": True})

    async def measure() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    _add_get(app, "/v1/caches", caches)
    app.add_api_route("/v1/caches/{name:path}", clear, methods=["DELETE"])
    _add_get(app, "/metrics", measure, PlainTextResponse)


def _add_get(
    app: FastAPI, path: str, handler: Callable[..., Awaitable[Response]], kind: type[Response] = JSONResponse
) -> None:
    """`kind` is the response class in `/docs`."""
    app.add_api_route(path, handler, methods=["GET"], response_class=kind)
    app.add_api_route(path, handler, methods=["HEAD"], include_in_schema=False)


def _error_response(request: HTTPRequest, error: Exception) -> Response:
    return error_response(error, encode_error(request.scope["path"], error), request.scope)


async def _answer_http_error(request: HTTPRequest, error: Exception) -> Response:
    """Answers a request to an unknown path, or with an unknown method."""
    assert isinstance(error, HTTPException)
    method, path = request.method, request.scope["path"]
    if error.status_code == 404:
        hint = "; the base URL already ends in /v1" if "/v1/v1/" in path else ""
        message = f"this server has no path {path[:80]}{hint}; GET / lists the endpoints"
    elif error.status_code == 405:
        message = f"{path[:80]} does not accept the method {method}; GET / lists the endpoints"
    else:
        message = str(error.detail)
    response = _error_response(request, InvalidRequest(message, status=error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _answer_bug(request: HTTPRequest, error: Exception) -> Response:
    """Answers an exception that no handler has caught; the traceback goes to the log only."""
    response = _error_response(request, error)
    response.headers["x-request-id"] = request.scope.get(REQUEST_ID, "-")  # this answer bypasses `RequestIdMiddleware`
    return response


class RequestIdMiddleware:
    """ASGI middleware that gives every request and its answer an id: the client's own, if it has a valid one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        id = given if _REQUEST_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}".encode()
        scope[REQUEST_ID] = id.decode()
        await self._app(scope, receive, _with_id(send, id))


def _with_id(send: Send, id: bytes) -> Callable[[Message], Awaitable[None]]:
    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            # The second is Anthropic's name for it.
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", id), (b"request-id", id)]}
        await send(message)

    return send_with_id


_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")

_EXPOSED = (
    "retry-after", "request-id", "x-request-id", "x-shepherd-backend", "x-shepherd-evicted", "mcp-session-id",
)  # fmt: skip

_STAINLESS = (
    "arch", "async", "custom-poll-interval", "helper-method", "lang", "os", "package-version", "poll-helper",
    "raw-response", "read-timeout", "retry-count", "runtime", "runtime-version", "stream-helper", "timeout",
)  # fmt: skip

_CORS_HEADERS = (
    "accept", "authorization", "content-type", "user-agent", "x-api-key", "x-request-id", "x-requested-with",
    "traceparent", "x-claude-code-session-id", "x-session-id",
    "mcp-protocol-version", "mcp-session-id", "last-event-id",
    USER.decode(),
    "openai-beta", "openai-organization", "openai-project",
    "anthropic-beta", "anthropic-dangerous-direct-browser-access", "anthropic-version",
    *(f"x-stainless-{name}" for name in _STAINLESS),
)  # fmt: skip
"""What the vendors' JavaScript clients send, the same list as Ollama's, and the header that names a user."""
