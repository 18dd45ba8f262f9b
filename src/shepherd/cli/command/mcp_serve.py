"""`shepherd mcp serve`: offers the tools to the agent that started this program, over standard input and output.

Standard output carries the protocol only; the log goes to standard error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from shepherd.cli import configure, signals

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.server.endpoints.mcp import Wire
    from shepherd.tools.offer import Offer


def run(options: Mapping[str, Any]) -> None:
    """Serve until the agent closes standard input, or Ctrl-C."""
    from shepherd.server.endpoints.mcp import standard_streams_taken

    with standard_streams_taken() as wire:
        signals.run(_serve(configure.load_config({**options, "server": True}), wire))


async def _serve(config: Config, wire: Wire) -> None:
    from shepherd.app.app import App
    from shepherd.server.endpoints.mcp import serve_stdio

    app = App(config)
    offer = partial(app.offer, everything=True, allow=("*",))  # the agent asks its own user

    async def open_offer(user: str | None) -> Offer:
        # An agent asks for the tools once, so wait for all MCP servers. Each has its own `timeout` to start.
        await asyncio.shield(equipping)
        return await offer(user)

    try:
        # A wrong configuration fails before anything is served.
        await offer(None)
        equipping = asyncio.create_task(app.toolbox())
        try:
            # The greeting is answered at once: agents drop a server after some seconds. A model is loaded at its first
            # call: most agents never chat.
            await serve_stdio(open_offer, wire)
        finally:
            equipping.cancel()
    finally:
        await app.aclose()
