"""The Starlette application: its paths, the order of its middleware, and the errors that no endpoint answers.

request id ─ CORS ─ authentication ─ admission ─ plain path ─ router ─▶ a row of `routes`, 404, 405
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.server.endpoints.handler import (
    ActiveRequests,
    Endpoint,
    Limits,
    PlainEndpoint,
    ServerState,
    handle,
)
from shepherd.server.endpoints.mcp import Open, add_mcp_path, make_server
from shepherd.server.http.admission import Admission, AdmissionMiddleware
from shepherd.server.http.auth import LOCAL_ORIGIN, AuthMiddleware, Key, keys_for
from shepherd.server.http.body import with_headers
from shepherd.server.http.caller import Deed, check_deed
from shepherd.server.http.errors import encode_error
from shepherd.server.http.listen import loop_factory, serve
from shepherd.server.http.path import PlainPathMiddleware
from shepherd.server.observe.metrics import Metrics
from shepherd.server.observe.observer import ObserverFactory
from shepherd.server.observe.record import REQUEST_ID
from shepherd.server.response_store import ResponseStore
from shepherd.server.routes import ENDPOINTS
from shepherd.server.service import Service

__all__ = ["Limits", "Service", "create_app", "run_server", "serve"]


def run_server(
    service: Service, host: str = "127.0.0.1", port: int = 8000, *, api_keys: Collection[str | Key] | None = None
) -> None:
    """Serve `service`, a loaded `App` for example, until SIGINT, SIGTERM or SIGHUP: `shepherd serve` for programs.

    Blocks; call it on the main thread, outside of any event loop. `api_keys` as for `create_app`; if there are none and
    other machines can reach `host`, it makes a key and writes it to standard error.

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
    disabled: Collection[str] = (),
    admission: Admission | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    observe: Sequence[ObserverFactory] = (),
    responses: ResponseStore | None = None,
    tools: Open | None = None,
    verbose: bool = False,
    page: bool = True,
) -> Starlette:
    """The application.

    `api_keys`: `None` = open, empty = refuse every request; `host`: the address on which it will listen. `origins`: web
    pages that may use it, besides those of this machine; `allow_hosts`: host names for which an open server answers,
    besides local ones. `admission`: how many requests run at the same time. `observe`: makes the observers of each
    request. `responses`: where answers are stored that later requests refer to, closed by the caller; None = in memory,
    as long as the application exists. `tools`: what other agents get over MCP; None = there is no `/mcp`.
    `disabled`: paths that answer 501; with one path of an endpoint all of its
    paths. `verbose`: whole answers of chat say how the prompt was read (`__verbose`). `page`: browsers get the page
    at `/`.
    """
    rows = [row if set(disabled).isdisjoint(row.paths) else _disabled(row) for row in ENDPOINTS]
    admission = admission or Admission()
    metrics = Metrics(
        service.totals,
        n_active=lambda: admission.n_active,
        resting=lambda: service.health().providers,
        groups=lambda: service.health().groups,
    )
    state = ServerState(
        service, limits, ActiveRequests(), metrics, responses or ResponseStore(),
        [row for row in rows if row.documented], observe, is_open=api_keys is None, verbose=verbose, page=page,
        origins=origins,
    )  # fmt: skip
    app = Starlette(routes=[_path_of(row, state, path) for row in rows for path in row.paths])
    app.router.redirect_slashes = False
    app.state.server = state
    if tools is not None:
        add_mcp_path(app, partial(make_server, tools), limits)
    app.add_exception_handler(ShepherdError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_bug)
    # The last one added is the outermost.
    app.add_middleware(PlainPathMiddleware)
    app.add_middleware(AdmissionMiddleware, admission=admission, refused=metrics.refuse)
    app.add_middleware(
        AuthMiddleware, api_keys=api_keys, host=host, origins=origins, allow_hosts=allow_hosts,
        refused=metrics.refuse, page=page,
    )  # fmt: skip
    app.add_middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_origin_regex=LOCAL_ORIGIN,
        # A page that the operator names may send what its browser keeps for this server; pages of all origins may not.
        allow_credentials=bool(origins) and "*" not in origins,
        allow_methods=("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"),
        # Clients add headers of their own with each version; which pages may send any is decided by their origin.
        allow_headers="*",
        # Chrome asks before a page of the internet reaches an address of this network.
        allow_private_network=True,
        expose_headers=_EXPOSED,
    )
    app.add_middleware(RequestIdMiddleware)
    return app


def _path_of(row: Endpoint | PlainEndpoint, state: ServerState, path: str) -> Route:
    handler = row.handler if isinstance(row, PlainEndpoint) else _Recorded(row, state)
    if isinstance(row, PlainEndpoint) and row.deed is not None:
        handler = _checked(row, row.deed, state)
    route = Route(path, handler)
    route.methods = {*row.methods}  # not in the line above, which adds HEAD to GET
    return route


def _checked(row: PlainEndpoint, deed: Deed, state: ServerState) -> Callable[[HTTPRequest], Awaitable[Response]]:
    async def answer(request: HTTPRequest) -> Response:
        check_deed(request.scope, deed, manages_models=state.service.manages_models)
        found: Response = await row.handler(request)  # type: ignore[call-arg, arg-type, assignment]  # no ASGI application
        return found

    return answer


class _Recorded:
    """A row with a record, as an ASGI application: Starlette takes a function, or what stands for one, for a handler
    that returns a response."""

    def __init__(self, row: Endpoint, state: ServerState) -> None:
        self._answer = partial(handle, row, state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


def _disabled(row: Endpoint | PlainEndpoint) -> PlainEndpoint:
    return PlainEndpoint(row.methods, row.paths, _refuse_disabled, documented=False)


async def _refuse_disabled(request: HTTPRequest) -> Response:
    path = request.scope["path"][:80]
    raise InvalidRequest(f"{path} is switched off on this server; take it out of [server] disabled", status=501)


async def _answer_error(request: HTTPRequest, error: Exception) -> Response:
    """Answers an error of an endpoint without a record."""
    status, content, headers = encode_error(request.scope, error)
    response = Response(content, status, media_type="application/json")
    response.raw_headers.extend(headers)
    return response


async def _answer_http_error(request: HTTPRequest, error: Exception) -> Response:
    """Answers a request to an unknown path, or with an unknown method."""
    assert isinstance(error, HTTPException)
    method, path, allow = request.method, request.scope["path"], ""
    if error.status_code == 404:
        hint = "; the base URL already ends in /v1" if "/v1/v1/" in path else ""
        message = f"this server has no path {path[:80]}{hint}; GET / lists the endpoints"
    elif error.status_code == 405:
        matching = (each for each in request.app.routes if each.matches(request.scope)[0] != Match.NONE)
        allow = ", ".join(sorted({method for route in matching for method in getattr(route, "methods", None) or ()}))
        message = f"{path[:80]} does not accept the method {method}, but {allow}; GET / lists the endpoints"
    else:
        message = str(error.detail)
    response = await _answer_error(request, InvalidRequest(message, status=error.status_code))
    response.headers.update(error.headers or {})
    if allow:
        response.headers["allow"] = allow
    return response


async def _answer_bug(request: HTTPRequest, error: Exception) -> Response:
    """Answers an exception that no handler has caught; the traceback goes to the log only."""
    response = await _answer_error(request, error)
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
        # The second is Anthropic's name for it; by the third an open page sees that the server is another one now.
        names = [(b"x-request-id", id), (b"request-id", id), (b"x-shepherd-version", _VERSION)]
        await self._app(scope, receive, with_headers(send, names))


_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
_VERSION = version("shepherd").encode()

_EXPOSED = (
    "retry-after", "request-id", "x-request-id", "x-shepherd-archived", "x-shepherd-backend", "x-shepherd-cleared",
    "x-shepherd-evicted", "x-shepherd-instead-of", "x-shepherd-left-out", "x-shepherd-model", "x-shepherd-recalled",
    "x-shepherd-system-changes", "x-shepherd-version", "mcp-session-id",
)  # fmt: skip
