"""Who may ask: keys, and the two checks that protect an open server on one's own machine from the web.

* With keys configured, every path but the health check needs one. An empty list of keys refuses everybody: a mistake in
  a key file must not open the server (O1).
* Without keys, a web page in the user's browser must not reach us: its `Origin` has to be local, and on a loopback
  address the `Host` has to be, too. DNS rebinding needs a public name that resolves to 127.0.0.1, that is a name with a
  dot; so IP addresses, single labels, `.localhost` and `.internal` (reserved, used by Docker) pass, other names do not.

Decisions use `scope["path"]`, what the router sees, never the raw target.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from shepherd.core import NotAllowed
from shepherd.server.body import send_json
from shepherd.server.surfaces import encode_error

PUBLIC_PATHS = frozenset({"/health", "/v1/health"})

LOCAL_ORIGIN = (
    r"https?://(localhost|[\w.-]+\.localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?"
    r"|(app|file|tauri|capacitor|ionic|vscode-webview|vscode-file|(chrome|moz|safari-web)-extension)://.*"
)
"""Pages that are served from this machine, desktop programs, and browser extensions, which the user has installed."""


class Guard:
    """ASGI middleware that refuses who may not ask, in the error shape of the path's protocol."""

    def __init__(
        self, app: ASGIApp, *, api_keys: Collection[str] | None, host: str, origins: Collection[str] = ()
    ) -> None:
        """`api_keys`: `None` = open. `host`: the address that we are bound to. `origins`: allowed besides."""
        self._app = app
        self._keys = None if api_keys is None else tuple(key.encode() for key in api_keys)
        self._host = host.strip("[]").lower()
        self._checks_host = is_loopback(host)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC_PATHS:
            try:
                self._check(scope["headers"])
            except NotAllowed as error:
                status, body = encode_error(scope["path"], error)
                challenge = [(b"www-authenticate", b"Bearer")] if status == 401 else []
                await send_json(send, status, body, challenge)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises: `NotAllowed`."""
        found = dict(headers)
        if self._keys is not None:
            self._check_key(found)
            return
        host = found.get(b"host", b"").decode("latin-1")
        if self._checks_host and not self._is_local(host):
            raise NotAllowed(
                f"the host {host[:80]!r} is not a local name (a guard against DNS rebinding); use localhost or an IP "
                "address, or configure an API key",
                status=403,
            )
        origin = found.get(b"origin", b"").decode("latin-1")
        if origin and not self._is_allowed_origin(origin, host):
            raise NotAllowed(
                f"web pages from {origin[:80]!r} may not use this server; configure an API key or allow the origin",
                status=403,
            )

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" and token.strip() else headers.get(b"x-api-key", b"")
        # Every key is compared, in constant time: neither their number nor their place can be measured.
        matches = [hmac.compare_digest(given, key) for key in self._keys or ()]
        if any(matches):
            return
        if not self._keys:
            raise NotAllowed("this server is configured with an empty list of API keys and refuses every request")
        what = "this API key is not valid" if given else "an API key is needed"
        raise NotAllowed(f'{what}; send it as "Authorization: Bearer KEY" or "x-api-key: KEY"')

    def _is_local(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname or "") if _HOST.fullmatch(host) else host
        name = name.rstrip(".").lower()
        return (
            ("." not in name and ":" not in name)
            or name == self._host
            or name.endswith((".localhost", ".internal"))
            or _is_address(name)
        )  # fmt: skip

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        # The second: our own /docs, under whatever name the browser found us.
        return (
            origin in self._origins
            or origin.partition("://")[2] == host
            or re.fullmatch(LOCAL_ORIGIN, origin) is not None
        )


_HOST = re.compile(r"[\w.-]+(:\d+)?|\[[0-9a-fA-F:.%\w]+\](:\d+)?")


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`."""
    name = host.strip("[]").lower()
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
