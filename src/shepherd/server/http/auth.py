"""Authentication: API keys, and the checks that protect an open server on the user's own machine from web pages.

* With keys, every path except the health check needs one. An empty list of keys refuses every request: a mistake in a
  key file must not open the server. A server at an address that other machines can reach always has keys.
* Without keys, a web page in the user's browser must not reach the server: its `Origin` and the `Host` must be local.
  DNS rebinding needs a public name that resolves to 127.0.0.1, that is a name with a dot; so IP addresses, single
  labels, `.localhost` and `.internal` (reserved, used by Docker) pass, other names do not.

Decisions use `scope["path"]`, what the router sees, never the raw target.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.core import InvalidRequest, NotAllowed
from shepherd.core.dataclasses import dataclass
from shepherd.server.http.body import RawHeaders
from shepherd.server.http.caller import USER, is_address, is_loopback, names_in, other_user, wants_html
from shepherd.server.http.errors import refuse
from shepherd.server.observe.record import CALLER, Caller

PUBLIC_PATHS = frozenset({"/health", "/v1/health"})

LOCAL_ORIGIN = (
    r"https?://(localhost|[\w.-]+\.localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?"
    r"|(app|file|tauri|capacitor|ionic|vscode-webview|vscode-file|(chrome|moz|safari-web)-extension)://.*"
)
"""Pages that are served from this machine, desktop programs, and browser extensions, which the user has installed."""

KEY_PREFIX = "sk-shepherd-"
"""The beginning of generated keys, by which people and scanners for leaked keys recognise them."""


@dataclass(frozen=True, slots=True)
class Key:
    """One API key, by name, and its limits. Only the hash of the key is stored."""

    name: str
    """In the log."""
    digest: bytes
    """SHA-256 of the key."""
    requests_per_minute: int | None = None
    """None = no limit."""
    concurrent: int | None = None
    """Requests at the same time; None = the server's limit per client."""
    user: str | None = None
    """The only user as which it acts; None = as any user that a request names."""

    @property
    def owner(self) -> str:
        """The owner of what its requests store: its user, else this key; its name and its place do not count."""
        if self.user is not None:
            return f"user {self.user}"
        return f"key {sha256(self.digest).hexdigest()}"  # the configuration's own hash need not stand in a file

    @classmethod
    def of(cls, secret: str, *, name: str, user: str | None = None, **limits: int | None) -> Key:
        return cls(name, sha256(secret.encode("utf-8", "surrogateescape")).digest(), user=user, **limits)

    @classmethod
    def of_digest(cls, text: str, *, name: str, user: str | None = None, **limits: int | None) -> Key:
        """The key with this hash, written as `sha256:` and 64 hexadecimal digits. Raises: `ValueError`."""
        if not (match := re.fullmatch(r"sha256:([0-9a-fA-F]{64})", text.strip())):
            raise ValueError("a hashed key is written sha256: and 64 hexadecimal digits, as sha256sum prints them")
        return cls(name, bytes.fromhex(match[1]), user=user, **limits)


def generate_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def keys_for(host: str, keys: Collection[str | Key] | None) -> tuple[Collection[str | Key] | None, str | None]:
    """The keys of a server at `host`, and a new key if there were none and other machines can reach the server.

    The caller shows the new key to the user, once: it is not stored.
    """
    if keys is not None or is_loopback(host):
        return keys, None
    made = generate_key()
    return (Key.of(made, name="generated"),), made


class AuthMiddleware:
    """ASGI middleware that refuses requests without a valid key, or from a foreign web page, in the path's protocol.

    It puts the `Caller` of a request into the scope, under `CALLER`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_keys: Collection[str | Key] | None,
        host: str,
        origins: Collection[str] = (),
        allow_hosts: Collection[str] = (),
        refused: Callable[[str], None] = lambda reason: None,
        page: bool = False,
    ) -> None:
        """`api_keys`: `None` = open. `host`: the address of the server. `origins`, `allow_hosts`: web pages and host
        names that an open server also accepts. `refused` is called with `key`, `user`, `host` or `origin`. `page`:
        browsers get the page without a key."""
        self._app = app
        self._keys: list[Key] | None = None
        if api_keys is not None:
            named = ((f"key-{number}", key) for number, key in enumerate(api_keys, 1))
            self._keys = [key if isinstance(key, Key) else Key.of(key, name=name) for name, key in named]
        self._hosts = frozenset(name.strip("[]").lower().rstrip(".") for name in (*names_in(host), *allow_hosts))
        self._checks_host = is_loopback(host)
        self._origins = frozenset(origin.rstrip("/") for origin in origins)
        self._refused = refused
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = (scope.get("client") or ("",))[0]
            scope[CALLER] = Caller("", address, is_alone=self._keys is None and is_loopback(address))
            if (n := _n_hosts(scope["headers"])) > 1 or (n == 0 and scope["http_version"] == "1.1"):
                message = f"the request has {n} Host headers; HTTP/1.1 asks for exactly one"
                error, close = InvalidRequest(message, field="Host"), [(b"connection", b"close")]
                await refuse(scope, send, error, "host", count=self._refused, headers=close)
                return
            if not self._is_public(scope):
                try:
                    key = self._check(scope["headers"])
                except _Refusal as refusal:
                    challenge = [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
                    await refuse(scope, send, refusal, refusal.reason, count=self._refused, headers=challenge)
                    return
                if key is not None:
                    is_alone = len(self._keys or ()) == 1
                    scope[CALLER] = Caller(
                        key.name, address, is_alone, key.requests_per_minute, key.concurrent, key.owner, key.user
                    )
        await self._app(scope, receive, send)

    def _is_public(self, scope: Scope) -> bool:
        """No key is asked for. The page and its files are the same for everybody; what it shows asks for a key."""
        path, method = scope["path"], scope["method"]
        if path in PUBLIC_PATHS:
            return True
        if path == "/":
            # Claude Code sends `HEAD /` without its key, to see if a server runs. The answer reveals nothing else.
            return method == "HEAD" or (self._page and method == "GET" and wants_html(scope))
        return self._page and method in ("GET", "HEAD") and path.startswith("/web/")

    def _check(self, headers: RawHeaders) -> Key | None:
        """The key of the request; None on an open server. Raises: `_Refusal`."""
        if self._keys is not None:
            return self._check_key(headers)
        found = dict(headers)
        host = found.get(b"host", b"").decode("latin-1")
        if self._checks_host and not self._is_local(host):
            raise _Refusal(
                "host",
                f"the host {host[:80]!r} is not a local name (a guard against DNS rebinding); use localhost or an IP "
                "address, configure an API key, or allow the name (server.allow_hosts)",
            )
        origin = found.get(b"origin", b"").decode("latin-1")
        if origin and not self._is_allowed_origin(origin, host):
            raise _Refusal(
                "origin",
                f"web pages from {origin[:80]!r} may not use this server; configure an API key, or allow the origin "
                "(server.origins)",
            )
        return None

    def _check_key(self, headers: RawHeaders) -> Key:
        given = [sha256(key).digest() for key in _given_keys(headers)]
        # Every key is compared, in constant time: neither their number nor their place can be measured.
        matches = [key for key in self._keys or () if sum(hmac.compare_digest(one, key.digest) for one in given)]
        if matches:
            _check_user(matches[0], headers)
            return matches[0]
        if not self._keys:
            raise _Refusal("key", "this server is configured with an empty list of API keys and refuses every request")
        what = "this API key is not valid" if given else "an API key is needed"
        raise _Refusal("key", f'{what}; send it as "Authorization: Bearer KEY" or "x-api-key: KEY"')

    def _is_local(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname or "") if _HOST.fullmatch(host) else host
        name = name.rstrip(".").lower()
        return (
            ("." not in name and ":" not in name)
            or name in self._hosts
            or name.endswith((".localhost", ".internal"))
            or is_address(name)
        )  # fmt: skip

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        # The second: our own /docs, under any name that the browser used for this server.
        return (
            not self._origins.isdisjoint((origin, "*"))
            or origin.partition("://")[2] == host
            or re.fullmatch(LOCAL_ORIGIN, origin) is not None
        )


class _Refusal(NotAllowed):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, status=401 if reason == "key" else 403)
        self.reason = reason


def _check_user(key: Key, headers: RawHeaders) -> None:
    """Raises: `_Refusal` when the header names another user than the key's."""
    for name, value in headers if key.user is not None else ():
        if name == USER and (named := value.decode("utf-8", "replace").strip()) not in ("", key.user):
            raise _Refusal("user", other_user(f"the header {USER.decode()}", named, key.user))


def _n_hosts(headers: RawHeaders) -> int:
    return sum(name == b"host" for name, _ in headers)


def _given_keys(headers: RawHeaders) -> Iterator[bytes]:
    """All keys of the request: Claude Code may send one in each header, and one valid key is enough."""
    for name, value in headers:
        if name == b"x-api-key" and value.strip():
            yield value.strip()
        elif name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                yield token.strip()


_HOST = re.compile(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:.%\w]+\](:\d+)?")
