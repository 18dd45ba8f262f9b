"""A user who starts real clients, and what a server sees of them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.scripted_service import ScriptedService


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended, and what it said."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that reached the server."""

    method: str
    path: str
    status: int


class Watch:
    """ASGI middleware that notes every request with the status of its answer."""

    def __init__(self, app: ASGIApp, seen: list[Seen]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._seen.append(Seen(scope["method"], scope["path"], message["status"]))
            await send(message)

        await self._app(scope, receive, noting)


@dataclass
class User:
    """Somebody with an empty home and an empty project, who has the clients installed."""

    home: Path
    project: Path
    path: str

    async def run(self, *command: str, timeout_s: float = 170) -> Ran:
        kept = {"LANG", "LC_ALL", "TMPDIR"}
        env = {name: value for name, value in os.environ.items() if name in kept}
        # IS_SANDBOX: Claude Code lets root do without questions only where it is told that nothing can go wrong.
        env |= {"HOME": str(self.home), "PATH": self.path, "TERM": "xterm", "IS_SANDBOX": "1"}
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.project,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            process.terminate()
            out, err = await process.communicate()
            pytest.fail(f"{command[:6]} did not end by itself; it said {out[-2000:]!r} and {err[-2000:]!r}")
        assert process.returncode is not None
        return Ran(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


@dataclass
class Stage:
    """A server, and a user who starts programs that talk to it."""

    url: str
    service: ScriptedService
    user: User
    seen: list[Seen] = field(default_factory=list)

    @property
    def refused(self) -> list[Seen]:
        return [each for each in self.seen if each.status >= 400]

    async def launch(self, client: str, *words: str) -> Ran:
        """`shepherd launch` of a client, on this server."""
        return await self.user.run(sys.executable, "-m", "shepherd", "launch", client, "--url", self.url, "--", *words)


Staging = Callable[..., AbstractContextManager[Stage]]
