"""`shepherd serve`: listens at once, loads behind it, says when requests can be answered, and stops in order.

Not here: the endpoints (`server/app.py`) and what answers them (`app.py`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from shepherd.cli import render
from shepherd.cli.chat import load

if TYPE_CHECKING:
    from shepherd.app import App
    from shepherd.config import Config


def run(config: Config) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises: `ShepherdError` when the port cannot be had or the model cannot be loaded.
    """
    from shepherd.server.listen import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config))


async def _serve(config: Config) -> None:
    from shepherd.app import App
    from shepherd.server.app import Limits, create_app, serve

    host, port, keys = config.server.host, config.server.port, config.server.api_keys
    app = App(config)
    limits = Limits(max_body_bytes=config.server.max_body_bytes)
    asgi = create_app(app, api_keys=keys, host=host, limits=limits)
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if keys is None and not is_loopback(host):
        render.show_warning(
            f"WARNING: everybody who can reach {host} can use this server, because no API key is asked for; "
            "set --api-key, or --host 127.0.0.1"
        )
    server = asyncio.create_task(serve(asgi, host=host, port=port, on_ready=bound.set_result))
    try:
        starting: list[asyncio.Future[Any]] = [server, bound]
        await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        if bound.done() and await _load_while(server, app):
            for line in _banner(app, url(host, bound.result())):
                render.write(line + "\n")
        await server
    finally:
        if not server.done():
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)
        await app.aclose()


async def _load_while(server: asyncio.Task[None], app: App) -> bool:
    """Load the models; False when the server was stopped meanwhile. Raises: as `App.load`."""
    view = render.PipeView()
    loading = asyncio.create_task(load(app, view))
    await asyncio.wait([server, loading], return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        # The native library cannot be stopped while it reads weights; nothing else needs an orderly end yet.
        sys.stdout.flush()
        os._exit(0)
    await loading
    return not server.done()


def _banner(app: App, address: str) -> list[str]:
    import shepherd
    from shepherd.server.surfaces import SURFACES

    paths = [path for surface in SURFACES for path in surface.paths[:1]]
    return [
        *render.banner(app.facts(), shepherd.__version__),
        "Endpoints:",
        *(f"  POST {address}{path}" for path in paths),
        *(f"  GET  {address}{path}" for path in ("/v1/models", "/v1/caches", "/health", "/metrics", "/docs")),
        f"Listening on: {address}",
    ]


def url(host: str, port: int) -> str:
    """The address that a client on this machine can use."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
