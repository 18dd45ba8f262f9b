"""A program as an MCP server: its three pipes as the SDK's streams, and its end with everything it has started.

The SDK's own stdio client does the same in the good case. Ours, besides: standard error is drained into a bounded log
and never reaches the terminal; lines that are no messages are kept there, too, and harm nothing (`framing.py`); whoever
waits is told how the program ended; and its children are ended with it even if it has left them behind.

    stdin  ◀─ write_messages ◀─ stream of the session
    stdout ─▶ read_messages  ─▶ stream of the session, `on_end` when there will be no more
    stderr ─▶ drain          ─▶ Log
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage

from shepherd.tools.base import ToolError
from shepherd.tools.mcp.framing import Lines, TooLong, decode
from shepherd.tools.sandbox.process_tree import STEP_S, ProcessTree, exit_code_of, start

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage

    from shepherd.tools.sandbox.guardian import Guardian

logger = logging.getLogger(__name__)

CHUNK_BYTES = 2**16
GARBAGE_LINES = 10_000
"""In a row: a program that writes so many lines that are no messages is no server, and would keep us busy for ever."""
BUFFER_BYTES = 2**20
"""Of a pipe, that have arrived and not been read: then its program has to wait."""
STOP_S = 2.0
"""For a server to end by itself after its standard input was closed, as the protocol wants it."""
ORPHAN_S = 0.3
"""For what a server has started to end after the server has."""
TERMINATE_S = 1.0
"""For what is left to end after SIGTERM, before SIGKILL."""
DRAIN_S = 0.2
"""For the last lines on standard error to be read."""
LONG_BYTES = 2**20
"""A message of this length is decoded in a thread: the others go on meanwhile."""
LOG_LINES = 200
LOG_CHARS = 500

PASSED = (
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_PATH", "NVM_DIR",
    "npm_config_registry", "npm_config_cache", "npm_config_prefix", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_PYTHON",
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables that every server gets; our environment has keys of providers that are none of its business."""
PASSED_PREFIXES = ("LC_", "XDG_")


class ServerLog:
    """The last lines of what a server wrote beside the protocol."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.kept: deque[str] = deque(maxlen=LOG_LINES)
        self.last = ""
        """What it said last on standard error, shortened for an error message."""

    def add(self, line: str, *, mark: str = "") -> None:
        """`mark`: where it comes from, if not from standard error."""
        if line.strip() and not mark:
            self.last = line.strip()[:200]
        self.kept.append(f"{mark}{line[:LOG_CHARS]}")
        logger.debug("MCP server %s: %s%s", self.server, mark, line[:LOG_CHARS])


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What is started."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        passed = {name: value for name, value in ours.items() if name in PASSED or name.startswith(PASSED_PREFIXES)}
        return passed | dict(self.env)

    def found(self, path: str | None) -> str:
        """The file that is run. Raises: `ToolError` with what to do."""
        import shutil  # noqa: PLC0415 - at the start of a server only

        folder = Path(self.cwd) if self.cwd else Path.cwd()
        if not folder.is_dir():
            raise ToolError(f"its cwd {self.cwd!r} is not a folder; correct it, or create the folder")
        is_path = any(mark in self.command for mark in ("/", os.sep))
        named = str(folder / Path(self.command).expanduser()) if is_path else self.command
        file = shutil.which(named, path=path)
        if file is None:
            where = "does not exist or may not be run" if is_path else "is not installed, or not on the PATH"
            raise ToolError(f"its command {self.command!r} {where}")
        return file


@dataclass(frozen=True, slots=True)
class ServerPipes:
    """A process that has been started."""

    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    exit_code: Callable[[], int | None]
    """None = it still runs."""
    close: Callable[[], Awaitable[object]]
    """After its end: gives our ends of the pipes back, even if a descendant that got away still holds the others."""


class ServerProcess:
    """A running server. `how_it_ended` tells of its exit once there is one."""

    def __init__(self, pipes: ServerPipes, log: ServerLog) -> None:
        self.pipes = pipes
        self.tree = ProcessTree(pipes.pid)
        self.log = log
        self.n_garbage = 0
        self.is_drained = asyncio.Event()
        self.was_killed = False
        """By us: its exit status says nothing about it."""

    async def how_it_ended(self) -> str:
        """Such as `ended with exit status 3`; waits for that a moment, no longer. By then, `log` has its last words."""
        is_noisy = self.n_garbage > GARBAGE_LINES
        if not is_noisy and not self.was_killed:
            await self.wait_for_drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while self.pipes.exit_code() is None:  # noqa: ASYNC110 - an exit tells nobody
                        await asyncio.sleep(0.01)
        match self.pipes.exit_code():
            case _ if is_noisy:
                return f"wrote {self.n_garbage} lines in a row that are not messages"
            case code if code is None or self.was_killed:
                return "closed its output"
            case code if code < 0:
                name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
                return f"was ended by {name}"
            case code:
                return f"ended with exit status {code}"

    # -- the three pipes --------------------------------------------------------------------------------------------

    async def read_messages(self, sender: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        stdout, lines = self.pipes.stdout, Lines()
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session has gone
            async with sender:
                while piece := await stdout.read(CHUNK_BYTES):
                    for line in lines.feed(piece):
                        for message in await self.messages_of(line):
                            await sender.send(SessionMessage(message))
                    if self.n_garbage > GARBAGE_LINES:
                        return
                    await asyncio.sleep(0)  # reading alone does not let others run while there is more to read
                for message in await self.messages_of(lines.finish()):
                    await sender.send(SessionMessage(message))
        while await stdout.read(CHUNK_BYTES):  # one that waits for its output to be read cannot end
            pass

    async def messages_of(self, line: bytes | TooLong) -> list[JSONRPCMessage]:
        """What a line says; what is no message goes to the log."""
        is_long = isinstance(line, bytes) and len(line) > LONG_BYTES
        try:
            messages = await asyncio.to_thread(decode, line) if is_long else decode(line)
        except ValueError:
            start = line.head if isinstance(line, TooLong) else line[:LOG_CHARS]
            if not self.n_garbage:
                logger.info("MCP server %s writes lines to standard output that are not messages", self.log.server)
            self.n_garbage += 1
            self.log.add(start.decode("utf-8", "replace"), mark="(stdout) ")
            return []
        if messages:
            self.n_garbage = 0
        return messages

    async def write_messages(
        self, receiver: MemoryObjectReceiveStream[SessionMessage], on_end: Callable[[], None]
    ) -> None:
        stdin = self.pipes.stdin
        try:
            async with receiver:
                async for item in receiver:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode("utf-8", "replace") + b"\n")
                    await stdin.drain()
        except OSError:  # it has closed its input: it reads no more, so nobody needs to wait for it
            on_end()

    async def drain(self) -> None:
        stderr, lines = self.pipes.stderr, Lines(limit=2**14)
        while piece := await stderr.read(CHUNK_BYTES):
            await asyncio.sleep(0)
            for line in list(lines.feed(piece))[-LOG_LINES:]:
                self.log.add((line.head if isinstance(line, TooLong) else line).decode("utf-8", "replace").rstrip())
        rest = lines.finish()
        if isinstance(rest, bytes) and rest:
            self.log.add(rest.decode("utf-8", "replace"))
        self.is_drained.set()

    async def wait_for_drain(self) -> None:
        """Wait until `log` has all of standard error; a moment at most, since a process that got away may hold it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self.is_drained.wait()

    # -- its end ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Close its input and wait, then end it and everything it has started, by force if need be."""
        clock = asyncio.get_running_loop().time
        members = self.tree.members()  # while the parents of all of them are alive
        self.pipes.stdin.close()
        deadline = clock() + STOP_S
        while members and clock() < deadline:
            await asyncio.sleep(STEP_S)
            if self.pipes.exit_code() is not None:
                deadline = min(deadline, clock() + ORPHAN_S)
                members = self.tree.members()
        if members:
            self.was_killed = self.was_killed or self.pipes.exit_code() is None
            for pause_s in self.tree.ending(TERMINATE_S):
                await asyncio.sleep(pause_s)
            if self.tree.members():
                logger.warning("MCP server %s (process %d) could not be ended", self.log.server, self.pipes.pid)
        await self.wait_for_drain()


@contextlib.asynccontextmanager
async def run_server(
    program: ServerCommand, log: ServerLog, guardian: Guardian, ours: Mapping[str, str], on_end: Callable[[], None]
) -> AsyncIterator[tuple[ServerProcess, TransportStreams]]:
    """The program, started, with the streams for a session. `on_end`: called when it says no more.

    Raises: `ToolError` if it cannot be started.
    """
    try:
        pipes = await spawn(program, program.environment(ours))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ToolError(f"its command {program.command!r} cannot be started: {why}") from error
    child = ServerProcess(pipes, log)
    guardian.watch(pipes.pid)
    sender, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, receiver = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        try:
            await child.read_messages(sender)
        finally:
            on_end()

    tasks = [
        asyncio.create_task(work, name=f"mcp {log.server}")
        for work in (read(), child.write_messages(receiver, on_end), child.drain())
    ]
    try:
        yield child, (read_stream, write_stream)
    finally:
        for stream in (read_stream, write_stream):
            stream.close()
        try:
            # Whoever cancels us once more while we wait gets `kill` instead.
            await child.stop()
        finally:
            child.tree.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for end in (sender, receiver):
                end.close()
            await pipes.close()
            guardian.release(pipes.pid)


async def spawn(program: ServerCommand, environment: Mapping[str, str]) -> ServerPipes:
    """Start it, in a session of its own: Ctrl-C in the terminal is for us. None of our descriptors but the three pipes
    is passed on. Raises: `ToolError`, `OSError`, `ValueError`.
    """
    command = [program.found(environment.get("PATH")), *program.args]
    pipe = subprocess.PIPE
    if sys.platform == "win32":
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=program.cwd, limit=BUFFER_BYTES
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        made = (process.stdin, process.stdout, process.stderr)
        return ServerPipes(process.pid, *made, lambda: process.returncode, process.wait)
    # Not the loop's own way: uvloop passes on every descriptor that is inheritable, whatever `close_fds` says.
    started = start(command, cwd=program.cwd, env=environment, stdin=pipe)
    assert started.stdin is not None
    assert started.stdout is not None
    assert started.stderr is not None
    loop = asyncio.get_running_loop()
    ours: list[asyncio.BaseTransport | IO[bytes]] = [started.stdin, started.stdout, started.stderr]
    """Who closes each of the three ends: a transport from the moment that there is one, and uvloop aborts if it is
    closed behind its back."""

    async def close() -> None:
        for end in ours:
            if isinstance(end, asyncio.WriteTransport) and end.get_write_buffer_size():
                end.abort()  # what nobody has read would keep it open
            else:
                end.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(timeout=1)  # it has ended, or was killed just now
        await asyncio.sleep(0)  # transports close in the next round of the loop

    async def reading(number: int, end: IO[bytes]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=BUFFER_BYTES)
        ours[number], _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
        return reader

    try:
        # What a protocol for reading knows of pauses in writing is what a writer needs.
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), started.stdin
        )
        ours[0] = transport
        stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        stdout, stderr = await reading(1, started.stdout), await reading(2, started.stderr)
    except BaseException:
        started.kill()
        await close()
        raise
    return ServerPipes(started.pid, stdin, stdout, stderr, lambda: exit_code_of(started), close)
