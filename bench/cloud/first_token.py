"""What the first token of a provider costs `shepherd serve`: processor time, which other programs disturb little.

    uv run python -m bench.cloud.first_token [--requests 1000] [--tree FOLDER]

`providers.py` measures how long a client waits, which a busy neighbour makes longer. Here the provider (`upstream.py`),
the server and the client run in one thread, and what counts is the processor time of this thread, from the write of a
request to the first byte of text, less that of a direct request: everything that the server does, its system calls and
turns of the event loop included, and nothing of the time that waking another process takes. The provider sends its
second token a millisecond after the first, so that the end of an answer is no part of it. `--tree`: the `src` of
another checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvloop
from bench.cloud import upstream
from bench.cloud.providers import CONFIG, KEY, PATHS, Case, first_text, fixed
from bench.rig import machine
from bench.rig.paired import median
from rich.console import Console
from rich.table import Table

WARM = 100
"""Requests before those that count."""


class Client(asyncio.Protocol):
    """One kept connection."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._first_s = 0.0
        self._end: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, piece: bytes) -> None:
        self._raw += piece
        if not self._first_s and first_text(self._raw):
            self._first_s = time.thread_time()
        if self._end is not None and not self._end.done() and self._raw.endswith(b"\r\n0\r\n\r\n"):
            self._end.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_exception(RuntimeError(repr(bytes(self._raw[:600]))))

    async def ask(self, request: bytes) -> tuple[float, float]:
        """Processor time up to the first text, and for the whole request."""
        self._raw, self._first_s = bytearray(), 0.0
        self._end = asyncio.get_running_loop().create_future()
        begun = time.thread_time()
        self._transport.write(request)
        await self._end
        await asyncio.sleep(0.001)  # what the server does behind its answer
        return self._first_s - begun, time.thread_time() - begun


def request_of(case: Case, port: int) -> bytes:
    content = json.dumps(case.body(2, 1_000)).encode()
    head = (
        f"POST {case.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def asked(case: Case, port: int, n: int) -> tuple[Any, Any]:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    times = [await client.ask(request_of(case, port)) for _ in range(WARM + n)][WARM:]
    first, whole = np.array(times).T * 1e3
    return first, whole


async def measured(home: Path, n: int) -> list[dict[str, Any]]:
    from shepherd import config
    from shepherd.app.app import App
    from shepherd.server.app import create_app, serve

    loop = asyncio.get_running_loop()
    provider = await loop.create_server(upstream._Connection, "127.0.0.1", 0)
    to = provider.sockets[0].getsockname()[1]
    file = home / "shepherd.toml"
    file.write_text(CONFIG.format(port=8000, to=to, type="openai_compat"))
    app = App(config.load(file=file, env={}, cwd=home, user_dir=home, read_files=False), env={})
    await app.load(lazy=True)
    ready = loop.create_future()
    server = asyncio.create_task(serve(create_app(app), host="127.0.0.1", port=0, on_ready=ready.set_result))
    port = await ready
    rows = []
    for wire in PATHS:
        direct, routed = await asked(fixed(wire), to, n), await asked(fixed(wire), port, n)
        for what, plain, ours in zip(("to the first token", "whole request"), direct, routed, strict=True):
            base = float(np.median(plain))
            cost = median(ours - base)
            tenth = float(np.quantile(ours - base, 0.1))
            values = {"value": round(cost.value, 3), "interval": [round(cost.low, 3), round(cost.high, 3)]}
            rows.append({"measured": f"{wire}: {what}", "unit": "ms of processor time", "direct": round(base, 3),
                         "cost of shepherd": values, "lowest tenth": round(tenth, 3)})  # fmt: skip
    server.cancel()
    await asyncio.wait((server,))
    await app.aclose()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--tree", type=Path)
    options = parser.parse_args()
    if options.tree is not None:
        sys.path.insert(0, str(options.tree))
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as home, open(os.devnull, "w") as log:
        os.environ |= {"HOME": home, "XDG_STATE_HOME": home}
        logging.basicConfig(level=logging.INFO, stream=log)  # the line of each request is written, as `serve` does
        rows = uvloop.run(measured(Path(home), options.requests))
    table = Table("measured", "direct, ms", "cost of shepherd, ms", "lowest tenth")
    for row in rows:
        cost = row["cost of shepherd"]
        shown = f"{cost['value']} ({cost['interval'][0]} to {cost['interval'][1]})"
        table.add_row(row["measured"], str(row["direct"]), shown, str(row["lowest tenth"]))
    Console().print(table)
    if options.tree is None:
        path = machine.save("first-token", {"requests": options.requests, "results": rows})
        print(f"written to {path}")


if __name__ == "__main__":
    main()
