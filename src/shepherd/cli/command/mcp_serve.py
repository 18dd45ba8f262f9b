"""`shepherd mcp serve`: our tools for the agent that has started us, over standard input and output.

Nothing but the protocol is written to standard output; the log goes to standard error. Not here: what the protocol's
words mean (`server/endpoints/mcp.py`), and what is offered (`App.offer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shepherd.cli import configure, signals

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.tools.toolbox import ConversationToolbox

EVERYTHING = ("*",)
"""Asking the user is for the agent to do."""


def run(options: Mapping[str, Any]) -> int:
    """Serve until the agent closes our input, or Ctrl-C; the exit status."""
    try:
        signals.run(_serve(configure.load_config({**options, "server": True})))
    except KeyboardInterrupt:
        return signals.INTERRUPTED
    return 0


async def _serve(config: Config) -> None:
    from shepherd.app.app import App
    from shepherd.server.endpoints.mcp import serve_stdio

    app = App(config)

    async def open_box(user: str | None) -> ConversationToolbox:
        # An agent asks once which tools there are. Each MCP server of ours has its own `timeout` to start.
        await asyncio.shield(equipping)
        return await app.offer(user, everything=True, allow=EVERYTHING)

    try:
        # What cannot be meant is said before anything is served.
        await app.offer(None, everything=True, allow=EVERYTHING)
        equipping = asyncio.create_task(app.toolbox())
        try:
            # The greeting is answered at once: agents give up on a server after some seconds. A model is loaded when it
            # is called: most agents never chat.
            await serve_stdio(open_box)
        finally:
            equipping.cancel()
    finally:
        await app.aclose()
