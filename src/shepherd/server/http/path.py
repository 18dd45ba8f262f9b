"""The path of a request without the slashes that mean nothing: base URLs end in one, and so do paths at times.

    //v1//models/ ─▶ /v1/models

It stands behind authentication: a path is public only as it is written there.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

SLASHES = re.compile(r"(?<!:)/{2,}")
"""Not those of an address in the path, as in `http://`."""


def plain_path(path: str) -> str:
    return SLASHES.sub("/", path).rstrip("/") or "/"


class PlainPathMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = plain_path(scope["path"])
        await self._app(scope, receive, send)
