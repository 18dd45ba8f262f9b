"""A provider in a thread of its own, for commands that run in the test's thread (`tests/command_line.py`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tests.own_server import in_thread
from tests.providers_replay import Answer, ReplayServer

Server = TypeVar("Server", bound=ReplayServer)


def replaying_apart(
    *answers: Answer, library: Mapping[str, list[Answer]] | None = None
) -> contextlib.AbstractContextManager[ReplayServer]:
    """As `replaying`."""
    return apart(ReplayServer(answers, library=library))


@contextlib.contextmanager
def apart(server: Server) -> Iterator[Server]:
    """The server, listening."""

    async def run(on_ready: Callable[[int], None]) -> None:
        listening = await server.serve()
        try:
            on_ready(server.port)
            await asyncio.Event().wait()
        finally:
            listening.close()
            await server.aclose()

    with in_thread(run):
        yield server
