"""A small MCP server behind a small authorization server, over real HTTP: a fake of the seam to both.

It follows RFC 9728, 8414, 7591 and 6749 as far as a client needs them. A browser is `Browser`: it visits the page that
a person would, and follows it back. What the servers do wrong is set by `Faults`.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx2
from tests.unit.tools.mcp.test_http import RESULTS, served

from shepherd.tools.mcp.values import LoginOptions, ServerOptions

SCOPES = ("read",)


@dataclass
class World:
    """Both servers on one address, and what they have seen."""

    url: str = ""
    expires_in: int | None = 3600
    refuses_person: bool = False
    refuses_refresh: bool = False
    refuses_code: bool = False
    breaks_token: bool = False
    """Sends all of it but the token itself."""
    on_refresh: Callable[[], None] = lambda: None
    before_token: Callable[[], Awaitable[None]] | None = None
    wrong_state: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    """Instead of those that are right."""
    is_open: bool = False
    """Only calls need a token."""
    tokens: dict[str, set[str]] = field(default_factory=dict)
    """The valid ones -> their scopes."""
    refreshes: set[str] = field(default_factory=set)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    clients: dict[str, list[str]] = field(default_factory=dict)
    needed: set[str] = field(default_factory=lambda: set(SCOPES))
    """Scopes of a call."""
    seen: list[str] = field(default_factory=list)
    """`METHOD path` of each request, and the grants of those for a token."""
    secrets: list[str] = field(default_factory=list)
    """Everything that must not be shown."""

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    def secret(self, mark: str) -> str:
        made = f"{mark}-{secrets.token_hex(12)}"
        self.secrets.append(made)
        return made

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path, query = scope["path"], parse_qs(scope["query_string"].decode())
        self.seen.append(f"{scope['method']} {path}")
        if path == "/token" and self.before_token is not None:
            await self.before_token()
        status, extra, answer = self.answer(scope["method"], path, query, headers, body)
        content = json.dumps(answer).encode() if answer is not None else b""
        sent = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in extra.items())]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": content})

    def answer(
        self, method: str, path: str, query: Mapping[str, list[str]], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], Any]:
        match method, path:
            case "POST", "/mcp":
                return self.mcp(json.loads(body), headers.get("authorization", ""))
            case "GET", "/.well-known/oauth-protected-resource/mcp":
                known = {"resource": self.url, "authorization_servers": [self.origin], "scopes_supported": SCOPES}
                return 200, {}, {**known, **self.metadata.get("resource", {})}
            case "GET", "/.well-known/oauth-authorization-server":
                known = {
                    "issuer": self.origin,
                    "authorization_endpoint": f"{self.origin}/authorize",
                    "token_endpoint": f"{self.origin}/token",
                    "registration_endpoint": f"{self.origin}/register",
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "private_key_jwt"],
                }
                return 200, {}, {**known, **self.metadata.get("authorization", {})}
            case "POST", "/register":
                wanted = json.loads(body)
                client = f"client-{len(self.clients)}"
                self.clients[client] = wanted["redirect_uris"]
                return 201, {}, {**wanted, "client_id": client, "token_endpoint_auth_method": "none"}
            case "GET", "/authorize":
                return self.authorize({name: values[0] for name, values in query.items()})
            case "POST", "/token":
                return self.token({name: values[0] for name, values in parse_qs(body.decode()).items()})
        return 404, {}, None

    def mcp(self, message: Mapping[str, Any], signed: str) -> tuple[int, dict[str, str], Any]:
        method = message.get("method", "")
        where = f'resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
        has = self.tokens.get(signed.removeprefix("Bearer "))
        if has is None and not (self.is_open and method != "tools/call"):
            return 401, {"WWW-Authenticate": f'Bearer error="invalid_token", scope="read", {where}'}, None
        if method == "tools/call" and has is not None and (lacking := self.needed - has):
            scope = " ".join(sorted(lacking))
            return 403, {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope}", {where}'}, None
        if method.startswith("notifications/"):
            return 202, {}, None
        result = {"content": [{"type": "text", "text": "done"}]} if method == "tools/call" else RESULTS.get(method)
        if result is None:
            return 200, {}, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}}
        return 200, {}, {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def authorize(self, asked: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
        known = self.clients.get(asked["client_id"], [])
        address = httpx2.URL(asked["redirect_uri"])
        is_known = str(address) in known or str(address.copy_with(port=None)) in known  # any port (RFC 8252)
        if not is_known or asked["code_challenge_method"] != "S256":
            return 400, {}, {"error": "invalid_request"}
        back = {"state": "another" if self.wrong_state else asked["state"]}
        if self.refuses_person:
            back |= {"error": "access_denied", "error_description": "the user\x1b[31m said no"}
        else:
            back["code"] = self.secret("code")
            self.codes[back["code"]] = dict(asked)
        return 302, {"Location": f"{asked['redirect_uri']}?{urlencode(back)}"}, None

    def token(self, asked: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
        grant = asked["grant_type"]
        self.seen.append(f"grant {grant}")
        refused: tuple[int, dict[str, str], Any] = (
            400,
            {},
            {"error": "invalid_grant", "error_description": "not (any more) valid"},
        )
        if grant == "refresh_token":
            self.on_refresh()
            if self.refuses_refresh or asked["refresh_token"] not in self.refreshes:
                return refused
            self.refreshes.remove(asked["refresh_token"])  # each is used once
            return self.issue("read")
        if grant == "client_credentials":
            is_known = asked.get("client_secret") == "robot-secret" or "client_assertion" in asked
            return self.issue("read", refreshes=False) if is_known else refused
        given = self.codes.pop(asked["code"], None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest()).decode()
        if given is None or given["code_challenge"] != digest.rstrip("=") or self.refuses_code:
            return refused
        return self.issue(given.get("scope", ""))

    def issue(self, scope: str, *, refreshes: bool = True) -> tuple[int, dict[str, str], Any]:
        token = self.secret("token")
        self.tokens[token] = set(scope.split())
        answer: dict[str, Any] = {
            "access_token": token,
            "token_type": "Bearer",
            "scope": scope,
            "expires_in": self.expires_in,
        }
        if refreshes:
            answer["refresh_token"] = self.secret("refresh")
            self.refreshes.add(answer["refresh_token"])
        if self.breaks_token:
            del answer["access_token"]
        return 200, {"Cache-Control": "no-store"}, answer


@asynccontextmanager
async def world(**faults: Any) -> AsyncIterator[World]:
    made = World(**faults)

    async def app(scope: Any, receive: Any, send: Any) -> None:  # uvicorn takes a method for another interface
        await made.app(scope, receive, send)

    async with served(app) as made.url:
        yield made


async def browse(address: str) -> None:
    """A browser in which the person says yes."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


def options_of(made: World, **changes: Any) -> ServerOptions:
    return replace(ServerOptions("web", url=made.url, timeout=60), **changes)


def person(folder: Path, open_page: Callable[[str], Awaitable[None]] = browse, **changes: Any) -> LoginOptions:
    return LoginOptions(folder, open_page, **changes)
