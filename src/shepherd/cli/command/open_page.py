"""`shepherd open`: shows the page of the configured server in the browser; starts the server if none runs."""

from __future__ import annotations

import os
import platform
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx2

from shepherd.cli import configure, render
from shepherd.cli.command import serve, server_client
from shepherd.core import ConfigError, EngineDown
from shepherd.models.pull.network import distrust

BROWSER_S = 10.0
"""How long the command waits for the program that opens the browser."""


def run(options: Mapping[str, Any], *, url: str | None) -> None:
    config = configure.load_config({**options, "server": True})
    address = server_client.find_address(config, url, options.get("api_keys") or ())
    if config.server.port != 0 or url is not None:
        if _is_running(address):
            show(address.url).join(BROWSER_S)
            return
        if url is not None:
            raise server_client.no_server(address.url)
    if not config.server.page:
        raise ConfigError("the page is switched off; set [server] page = true")

    def listening(found: str) -> None:
        show(server_client.local(found))

    serve.serve(config, listening)


def show(address: str) -> threading.Thread:
    """Open the browser, or say the address where there is none; the thread that does it, as some browsers return only
    when they are closed."""
    page = f"{address}/"
    has_browser = _has_browser()
    render.show_note(f"the page is at {page}" if has_browser else f"there is no browser here; open {page} in one")

    def open_browser() -> None:
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(page)

    opening = threading.Thread(target=open_browser if has_browser else lambda: None, daemon=True)
    opening.start()
    return opening


def _has_browser() -> bool:
    """A browser with a window: one that takes this terminal would get the server's."""
    if platform.system() in {"Darwin", "Windows"} or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _is_running(address: server_client.Address) -> bool:
    """Whether a server with a page answers. Raises: `BadReply` when it has none, or is no server of Shepherd."""
    with server_client.connect(address) as client:
        try:
            server_client.health_of(client, address.url)
            answer = client.get("/", headers={"accept": "text/html"})
        except httpx2.TransportError as error:
            if isinstance(error, httpx2.ConnectError) and distrust(error) is None:
                return False
            raise server_client.transport_error(error, address.url, client.timeout.read or 0.0) from error
    if not answer.headers.get("content-type", "").startswith("text/html"):
        raise EngineDown(f"{address.url} has no page: it is switched off there ([server] page), or the server is old")
    return True
