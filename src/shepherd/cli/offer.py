"""`shepherd mcp serve`: our tools for the agent that has started us, over standard input and output.

Nothing but the protocol is written to standard output; the log goes to standard error. Not here: what the protocol's
words mean (`server/mcp.py`), and what is offered (`App.offer`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from shepherd.cli import signals

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.tools.box import Box

PATIENCE_S = 8.0
"""What the MCP servers that we use ourselves have to start: an agent asks once which tools there are, and Codex gives
up on a server after ten seconds. One that fails is not waited for."""


def run(config: Config) -> int:
    """Serve until the agent closes our input, or Ctrl-C; the exit status."""
    try:
        signals.run(_serve(config))
    except KeyboardInterrupt:
        return signals.INTERRUPTED
    return 0


async def _serve(config: Config) -> None:
    from shepherd.app import App
    from shepherd.server.mcp import serve_stdio

    app = App(config)

    async def open_box(user: str | None) -> Box:
        return await app.offer(user, everything=True, allow=("*",))

    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await app.toolbox()
        # Agents wait for a server for some seconds only, and most never chat: that loads a model when it is called.
        await serve_stdio(open_box)
    finally:
        await app.aclose()
