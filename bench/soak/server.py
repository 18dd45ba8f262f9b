"""The servers of a soak: their configuration, their processes, and what one reports when it hangs.

The warm server has everything switched on, drafts too, and room for little: caches of a few conversations, tiers and a
memory that overflow within minutes. The cold one has the same models and contexts and nothing else; a cache is emptied
before each request. Both are children of the soak, on free ports, with all their files in a temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import psutil
from bench.rig.machine import ROOT

N_CTX = 2048
SEQUENCES = 4
QUEUE = 12
"""Bursts pass it, so that 429 is seen as well."""
RAM_BYTES = 8 * 2**20
DISK_BYTES = 32 * 2**20
"""Of conversations in the tiers: a token of the embedded model has 6 kB."""
RESPONSES_BYTES = 2**20
"""Of answers that can be gone on with: full within a quarter of an hour."""
MEMORY_BYTES = 2**19
"""Of each user: one that talks much reaches it within a quarter of an hour. An empty file has 130 kB."""

START_S = 120.0
STOP_S = 40.0

START = """
import faulthandler, os, signal, sys
faulthandler.register(signal.SIGUSR1, all_threads=True)
if "SOAK_HEAP" in os.environ:
    sys.path.append(os.environ["SOAK_ROOT"])
    from bench.soak import heap
    heap.watch(os.environ["SOAK_HEAP"])
from shepherd.cli.main import main
sys.argv[0] = "shepherd"
main()
"""
"""`shepherd`; SIGUSR1 writes the stacks of all threads to its log, and a thread writes what is allocated to a file."""

PLAIN, PLAIN_EVICT, KEPT, KEPT_EVICT, SIDE, SEES = (
    "soak-plain",
    "soak-plain-evict",
    "soak-kept",
    "soak-kept-evict",
    "soak-side",
    "soak-sees",
)
"""Models by route: without and with a memory, refusing what does not fit and letting old turns leave; side tasks; one
that sees, with a memory."""
OWNER = "local"


@dataclass(frozen=True, slots=True)
class Switches:
    """What of the server is on."""

    memory: bool = True
    tiers: bool = True
    pictures: bool = True


def cache_of(model: str) -> str:
    """The cache that answers for a model."""
    return "eyes" if model == SEES else "main"


def eyes(model: Path, projector: Path) -> str:
    """The table of a model that sees; further keys may follow."""
    return f"""[models.eyes]
path = "{model}"
mmproj = "{projector}"
n_threads = 1
"""


def _models(folder: Path, *, sees: bool, speculate: bool) -> str:
    """The models and caches of both servers; the one that sees has random weights, and its files are made here."""
    cache = f"""n_ctx = {N_CTX}
sequences = {SEQUENCES}
queue = {QUEUE}
speculate = {str(speculate).lower()}
"""
    made = f"""
[models.lamb]
path = "embedded"
n_threads = 1
[caches.main]
model = "lamb"
{cache}"""
    if not sees:
        return made
    from tests.unit.engine.tiny_projector import write_seeing

    model, projector = write_seeing("llava", folder)
    return f"""{made}
{eyes(model, projector)}[caches.eyes]
model = "eyes"
{cache}"""


def configuration(folder: Path, switches: Switches) -> str:
    """The file of the warm server, in TOML."""
    memory = "archive = true\nrecall = true\n" if switches.memory else ""
    routes = "".join(
        f'[[routes]]\nmatch = "{match}"\ncache = "{cache_of(match)}"\n{more}\n'
        for match, more in (
            (PLAIN, 'overflow = "error"'),
            (PLAIN_EVICT, 'overflow = "evict"'),
            (KEPT, f'overflow = "error"\n{memory}'),
            (KEPT_EVICT, f'overflow = "evict"\n{memory}'),
            (SIDE, "background = true"),
            *([(SEES, f'overflow = "error"\n{memory}')] if switches.pictures else ()),
            ("*", ""),
        )
    )
    ram, disk = (RAM_BYTES, "true") if switches.tiers else (0, "false")
    return f"""{_models(folder, sees=switches.pictures, speculate=True)}
[kv]
ram_bytes = {ram}
disk = {disk}
disk_bytes = {DISK_BYTES}
folder = "{folder / "kv"}"
[memory]
database_path = "{folder / "memory.db"}"
max_size_bytes = {MEMORY_BYTES}
recall = {str(switches.memory).lower()}
enable_archival = {str(switches.memory).lower()}
[server]
host = "127.0.0.1"
port = 0
responses_file = "{folder / "responses.db"}"
responses_bytes = {RESPONSES_BYTES}
{routes}"""


def cold_configuration(folder: Path, switches: Switches) -> str:
    """That of the cold one."""
    routes = f'[[routes]]\nmatch = "{SEES}"\ncache = "eyes"\n' if switches.pictures else ""
    return f"""{_models(folder, sees=switches.pictures, speculate=False)}
[kv]
ram_bytes = 0
folder = "{folder / "cold-kv"}"
[memory]
database_path = "{folder / "cold.db"}"
recall = false
enable_archival = false
[server]
host = "127.0.0.1"
port = 0
{routes}[[routes]]
match = "*"
cache = "main"
"""


@dataclass(slots=True)
class Running:
    """A server that can answer."""

    url: str
    process: psutil.Process
    log: Path
    status: int | None = None
    """How it ended."""
    stopped_s: float = 0.0
    """How long it took to end."""

    @property
    def is_there(self) -> bool:
        try:
            return self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-20_000:]

    async def state(self) -> dict[str, str]:
        """What it reports, and what the system reports of it; nothing here raises."""
        found = {}
        async with httpx.AsyncClient(base_url=self.url, timeout=10.0) as client:
            for path in ("/health", "/v1/caches", "/metrics"):
                try:
                    found[path] = (await client.get(path)).text[-20_000:]
                except httpx.HTTPError as error:
                    found[path] = repr(error)
        with contextlib.suppress(psutil.Error):
            found["threads"] = "\n".join(
                f"{thread.id}: {thread.user_time:.1f} s user, {thread.system_time:.1f} s system"
                for thread in self.process.threads()
            )
            self.process.send_signal(signal.SIGUSR1)
            await asyncio.sleep(1.0)
        found["log"] = self.tail()
        return found


@contextlib.asynccontextmanager
async def running(
    config: str, folder: Path, name: str, *options: str, variables: dict[str, str] | None = None, before: str = ""
) -> AsyncIterator[Running]:
    """A server for the length of the block, ended by SIGTERM. `before`: Python that it runs first.

    Raises: `RuntimeError` when it does not start.
    """
    file, log = folder / f"{name}.toml", folder / f"{name}.log"
    file.write_text(config)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RAG_", "SHEPHERD_"))}
    environment |= {"XDG_DATA_HOME": str(folder / "data"), "XDG_CACHE_HOME": str(folder / "cache")} | (variables or {})
    environment |= {"SOAK_HEAP": str(folder / f"{name}.heap"), "SOAK_ROOT": str(ROOT)}
    command = (sys.executable, "-c", before + START, "serve", "--config", str(file), *options)
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=sink, env=environment, cwd=folder, start_new_session=True
        )
    assert process.stdout is not None
    listening: asyncio.Task[str] = asyncio.create_task(_address(process.stdout))
    reading, server = None, None
    try:
        try:
            url = await asyncio.wait_for(listening, START_S)
        except (TimeoutError, EOFError) as error:
            raise RuntimeError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}") from error
        reading = asyncio.create_task(_drained(process.stdout))
        server = Running(url, psutil.Process(process.pid), log)
        yield server
    finally:
        listening.cancel()
        begun = time.monotonic()
        if process.returncode is None:
            process.terminate()
        try:
            status = await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            status = await process.wait()
        if reading is not None:
            reading.cancel()
        if server is not None:
            server.status, server.stopped_s = status, time.monotonic() - begun


async def _address(stdout: asyncio.StreamReader) -> str:
    async for line in stdout:
        if line.startswith(b"Listening on: "):
            return line.decode().removeprefix("Listening on: ").strip()
    raise EOFError


async def _drained(stdout: asyncio.StreamReader) -> None:
    while await stdout.read(1 << 16):
        pass
