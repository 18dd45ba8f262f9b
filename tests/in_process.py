"""A client of an application in this process, without a port."""

from __future__ import annotations

from typing import Any

import httpx2
from starlette.applications import Starlette

from shepherd.server.app import Service, create_app


def client_of(
    app: Service | Starlette, key: str = "", *, peer: str = "127.0.0.1", **options: Any
) -> httpx2.AsyncClient:
    """Of an application, or of the one that `create_app` makes of a service. `peer`: the address of the client."""
    if not isinstance(app, Starlette):
        app = create_app(app, **options)
    transport = httpx2.ASGITransport(app, client=(peer, 1))
    headers = {"x-api-key": key} if key else {}
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)
