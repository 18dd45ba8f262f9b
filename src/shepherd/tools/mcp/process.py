"""A program as an MCP server: its three pipes as the SDK's streams, and its end with everything it has started.

Unlike the SDK's own stdio client (2.3), ours drains standard error into a bounded log, logs lines that are no messages
(`framing.py`), reports how the program ended, and ends all its children with it. There one wrong byte ends the session,
the time of a message is quadratic in its length, and a line without an end is kept whole.

    stdin  ◀─ write_messages ◀─ stream of the session
    stdout ─▶ read_messages  ─▶ stream of the session; `on_end` at the end
    stderr ─▶ drain          ─▶ ServerLog
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage

from shepherd.core.dataclasses import dataclass
from shepherd.process.child import signal_name
from shepherd.process.tree import STEP_S, ProcessTree, exit_code_of, start
from shepherd.tools.base import ToolError
from shepherd.tools.mcp.framing import Lines, TooLong, decode
from shepherd.tools.mcp.values import LOG_CHARS, LOG_LINES, ServerLog, ServerOptions

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp_types import JSONRPCMessage

    from shepherd.process.guardian import Guardian

logger = logging.getLogger(__name__)

CHUNK_BYTES = 2**16
GARBAGE_LINES = 10_000
"""Lines in a row that are no messages: a program that writes more is no server."""
BUFFER_BYTES = 2**20
"""Unread bytes of a pipe; with more, its program waits."""
STOP_S = 2.0
"""For a server to end by itself after its standard input was closed, as the protocol asks for."""
ORPHAN_S = 0.3
"""For the children of a server to end after it."""
TERMINATE_S = 1.0
"""From SIGTERM to SIGKILL."""
DRAIN_S = 0.2
"""For the last lines on standard error to be read."""
LONG_BYTES = 2**20
"""A message of this length is decoded in a thread."""

PASSED = (
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_PATH", "NVM_DIR",
    "npm_config_registry", "npm_config_cache", "npm_config_prefix", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_PYTHON",
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA",
    "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR",
)  # fmt: skip
"""Variables that every server gets; the others of our environment may be keys."""
PASSED_PREFIXES = ("LC_", "XDG_")


def find_program(command: str, cwd: str | None, path: str | None) -> str:
    """The file that is run. Raises: `ToolError` with what to do."""
    folder = Path(cwd) if cwd else Path.cwd()
    if not folder.is_dir():
        raise ToolError(f"its cwd {cwd!r} is not a folder; correct it, or create the folder")
    is_path = any(mark in command for mark in ("/", os.sep))
    named = str(folder / Path(command).expanduser()) if is_path else command
    file = shutil.which(named, path=path)
    if file is None:
        where = "does not exist or may not be run" if is_path else "is not installed, or not on the PATH"
        raise ToolError(f"its command {command!r} {where}")
    return file


@dataclass(frozen=True, slots=True)
class ServerPipes:
    pid: int
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    exit_code: Callable[[], int | None]
    """None = it still runs."""
    close: Callable[[], Awaitable[object]]
    """After its end: closes our ends of the pipes, even if an escaped descendant holds the others."""


class ServerProcess:
    def __init__(self, pipes: ServerPipes, log: ServerLog) -> None:
        self.pipes = pipes
        self.tree = ProcessTree(pipes.pid)
        self.log = log
        self.n_garbage = 0
        self.is_drained = asyncio.Event()
        self.was_killed = False
        """By us: its exit status is ours."""

    async def how_it_ended(self) -> str:
        """Such as `ended with exit status 3`; waits a moment for it. Then `log` has its last lines."""
        is_noisy = self.n_garbage > GARBAGE_LINES
        if not is_noisy and not self.was_killed:
            await self.wait_for_drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while self.pipes.exit_code() is None:  # noqa: ASYNC110 - no event reports the exit
                        await asyncio.sleep(0.01)
        match self.pipes.exit_code():
            case _ if is_noisy:
                return f"wrote {self.n_garbage} lines in a row that are not messages"
            case code if code is None or self.was_killed:
                return "closed its output"
            case code if code < 0:
                return f"was ended by {signal_name(-code)}"
            case code:
                return f"ended with exit status {code}"

    # -- the three pipes --------------------------------------------------------------------------------------------

    async def read_messages(self, sender: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        stdout, lines = self.pipes.stdout, Lines()
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is closed
            async with sender:
                while piece := await stdout.read(CHUNK_BYTES):
                    for line in lines.feed(piece):
                        for message in await self.messages_of(line):
                            await sender.send(SessionMessage(message))
                    if self.n_garbage > GARBAGE_LINES:
                        return
                    await asyncio.sleep(0)  # a read does not yield to other tasks while there is more
                for message in await self.messages_of(lines.finish()):
                    await sender.send(SessionMessage(message))
        while await stdout.read(CHUNK_BYTES):  # a process that cannot write cannot end
            pass

    async def messages_of(self, line: bytes | TooLong) -> list[JSONRPCMessage]:
        """The messages of a line; anything else is logged."""
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
        except OSError:  # it has closed its input
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
        """Wait until `log` has all of standard error; a moment at most, since an escaped process may hold it open."""
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
    options: ServerOptions, log: ServerLog, guardian: Guardian, ours: Mapping[str, str], on_end: Callable[[], None]
) -> AsyncIterator[tuple[ServerProcess, TransportStreams]]:
    """The program of a server, started, with the streams for a session. `on_end`: called at its end. Raises:
    `ToolError` if it cannot be started.
    """
    assert options.command is not None
    env = {name: value for name, value in ours.items() if name in PASSED or name.startswith(PASSED_PREFIXES)}
    env |= options.env
    try:
        program = find_program(options.command, options.cwd, env.get("PATH"))
        pipes = await spawn([program, *options.args], options.cwd, env)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ToolError(f"its command {options.command!r} cannot be started: {why}") from error
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
            # A second cancellation during this wait leads to `kill`.
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


async def spawn(command: Sequence[str], cwd: str | None, env: Mapping[str, str]) -> ServerPipes:
    """Start it, in a session of its own: Ctrl-C does not reach it. It inherits only the three pipes. Raises: `OSError`,
    `ValueError`.
    """
    pipe = subprocess.PIPE
    if sys.platform == "win32":
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=cwd, limit=BUFFER_BYTES
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        made = (process.stdin, process.stdout, process.stderr)
        return ServerPipes(process.pid, *made, lambda: process.returncode, process.wait)
    # Not by the loop: uvloop passes on every inheritable descriptor, even with `close_fds`.
    started = start(command, cwd=cwd, env=env, stdin=pipe)
    assert started.stdin is not None
    assert started.stdout is not None
    assert started.stderr is not None
    loop = asyncio.get_running_loop()
    ours: list[asyncio.BaseTransport | IO[bytes]] = [started.stdin, started.stdout, started.stderr]
    """The owner of each of the three ends, a transport as soon as there is one: uvloop aborts if another closes it."""

    async def close() -> None:
        for end in ours:
            if isinstance(end, asyncio.WriteTransport) and end.get_write_buffer_size():
                end.abort()  # unread data would keep it open
            else:
                end.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(timeout=1)  # it has ended, or was killed just now
        await asyncio.sleep(0)  # for the transports to close

    async def reading(number: int, end: IO[bytes]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=BUFFER_BYTES)
        ours[number], _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
        return reader

    try:
        # A protocol for reading also handles the pauses in writing.
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
