"""`shepherd mcp serve`: our tools for the agent that has started us, over standard input and output.

Nothing but the protocol is written to standard output; the log goes to standard error. Not here: what the protocol's
words mean (`server/mcp.py`), and what is offered (`App.offer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from types import FrameType
from typing import TYPE_CHECKING

from shepherd.cli.signals import INTERRUPTED, handling
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.app import App
    from shepherd.config import Config
    from shepherd.tools.box import Box

logger = logging.getLogger(__name__)

PATIENCE_S = 3.0
"""What the MCP servers that we use ourselves have to start: an agent asks once which tools there are."""


def run(config: Config) -> int:
    """Serve until the agent closes our input, or Ctrl-C; the exit status."""
    try:
        # Who ends us by a signal finds everything ended that we have started, too.
        with handling(signal.SIGTERM, _leave), handling(getattr(signal, "SIGHUP", signal.SIGTERM), _leave):
            asyncio.run(_serve(config))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


async def _serve(config: Config) -> None:
    from shepherd.app import App
    from shepherd.memory.scope import LOCAL
    from shepherd.server.mcp import serve_stdio

    app = App(config)

    async def open_box(_user: str | None) -> Box:
        return await app.offer(LOCAL, everything=True, allow=("*",))

    # An agent waits a few seconds for a server, and a model may take a minute: only `chat` needs one.
    loading = asyncio.create_task(_load(app))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await app.toolbox()
        await serve_stdio(open_box)
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await loading
        await app.aclose()


async def _load(app: App) -> None:
    try:
        await app.load(lazy=True)
    except ShepherdError as error:
        logger.warning("there is no model to chat with: %s", error.message)
