"""What the server costs beside the engine, on every surface, against llama-server and against the engine in process.

    uv run python -m bench.server.surfaces [--rounds 3] [--quick]

Three parts, all on the embedded model with one engine thread. *Overhead*: one-token answers over one connection (a
new one where a server has closed it), streamed, small and with a body of 100 kB: the time from the request to the
first byte of the answer's body (which may come before the prompt is read) and to its last, and the floor: all of the
same through `App.stream` in this process.
*Clients*: 1, 4 and 16 read streams at once; tokens/s of all together. *Idle connections*: resident memory per
connection that has asked once and stays open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from bench.rig import machine
from bench.rig.dialogue import DRAWN, text
from bench.rig.machine import EMBEDDED
from bench.rig.sides import Setup, Side, in_turn, running
from bench.rig.traffic import Traffic
from bench.rig.verdict import Verdict, spread
from rich.console import Console

from shepherd import config
from shepherd.app.app import App
from shepherd.core import Message, Request, Sampling

N_CTX = 16_384
SEQUENCES = 16
CLIENTS = (1, 4, 16)
SMALL = "Say one word."
LARGE = " ".join(random.Random(0).choices(("time", "year", "people", "way", "day", "man", "thing", "river"), k=1_500))
PADDING = "x" * 92_000
"""With it a large body has 100 kB, in a field that is not read: 100 kB of text are 40,000 tokens of this model, ten
times what it was trained on, and the time to look at those in the cache would hide all else."""
ASKS, WARM_UP = 40, 5
ANSWER_TOKENS = 128
IDLE = 400


def bodies(content: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """By surface, path and body of a one-token answer."""
    messages = [{"role": "user", "content": content}]
    common: dict[str, Any] = {"model": "bench", "stream": True, "temperature": 0}
    if content is LARGE:
        common["metadata"] = {"note": PADDING}
    options = {"num_predict": 1, "temperature": 0}
    return {
        "chat": ("/v1/chat/completions", {**common, "messages": messages, "max_tokens": 1}),
        "messages": ("/v1/messages", {**common, "messages": messages, "max_tokens": 1}),
        "responses": ("/v1/responses", {**common, "input": content, "max_output_tokens": 1, "store": False}),
        "completions": ("/v1/completions", {**common, "prompt": content, "max_tokens": 1}),
        "ollama": ("/api/chat", {**common, "messages": messages, "options": options}),
    }


RIVAL_LACKS = {"ollama"}


class Line:
    """One kept connection; every request is answered to its end before the next."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = self._opened()

    def _opened(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def ask(self, path: str, body: Mapping[str, Any]) -> tuple[float, float]:
        """Seconds until the first byte of the answer's body, and until its last.

        Raises: `RuntimeError` for another status than 200.
        """
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        for _ in range(2):
            begun = time.perf_counter()
            with contextlib.suppress(ConnectionError):
                self._socket.sendall(head.encode() + content)
                raw, first = b"", 0.0
                while piece := self._socket.recv(1 << 18):
                    raw += piece
                    if not first and raw.partition(b"\r\n\r\n")[2]:
                        first = time.perf_counter() - begun
                    if raw.endswith(b"\r\n0\r\n\r\n"):
                        return first, time.perf_counter() - begun
                if raw:
                    raise RuntimeError(f"{path}: {raw[:300]!r}")
            self.close()  # closed by the server after the answer before
            self._socket = self._opened()
        raise RuntimeError(f"{path}: the server closes every connection")

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def line_to(port: int) -> Iterator[Line]:
    line = Line(port)
    try:
        yield line
    finally:
        line.close()


def overhead(side: Side, port: int, verdict: Verdict, n_asks: int) -> None:
    for size, content in (("small", SMALL), ("100 kB", LARGE)):
        for surface, (path, body) in bodies(content).items():
            if side == "llama-server" and surface in RIVAL_LACKS:
                continue
            with line_to(port) as line:
                times = [line.ask(path, body) for _ in range(n_asks)][WARM_UP:]
            for what, seconds in zip(("first byte", "all of it"), zip(*times, strict=True), strict=True):
                verdict.add(f"{what}: {surface}, {size}", side, statistics.median(seconds) * 1e3)


def clients(side: Side, port: int, verdict: Verdict, n_tokens: int, counts: tuple[int, ...]) -> None:
    for n in counts:
        rnd = random.Random(n)
        asked = [
            {"messages": [{"role": "user", "content": text(rnd, 60)}], "max_tokens": n_tokens, "seed": at, **DRAWN}
            for at in range(n)
        ]
        with Traffic(port) as traffic:
            begun = time.perf_counter()
            flights = [traffic.send(body) for body in asked]
            traffic.until(lambda flights=flights: all(flight.landed for flight in flights))  # type: ignore[misc]
            seconds = time.perf_counter() - begun
        replies = [flight.reply() for flight in flights]
        assert all(reply.n_generated == n_tokens for reply in replies), [reply.error for reply in replies]
        verdict.add(f"{n} clients: all tokens", side, n * n_tokens / seconds, unit="tokens/s", better="more")


def idle(side: Side, pid: int, port: int, verdict: Verdict, n: int) -> None:
    process = psutil.Process(pid)
    path, body = bodies(SMALL)["chat"]
    lines: list[Line] = []
    try:
        with line_to(port) as line:
            line.ask(path, body)
        before = process.memory_info().rss
        for _ in range(n):
            lines.append(Line(port))
            lines[-1].ask(path, body)
        time.sleep(0.5)
        after = process.memory_info().rss
    finally:
        for line in lines:
            line.close()
    verdict.add("memory per idle connection", side, max(0.0, after - before) / n / 1024, unit="KiB")


async def in_process(n_asks: int) -> dict[str, float]:
    """Milliseconds for all of a one-token answer, without a server: small, and with 100 kB."""
    said = {"model": "embedded", "context_size": N_CTX, "threads": 1}
    app = App(config.load(flags=said, env={}, cwd=Path.cwd(), user_dir=Path.cwd(), read_files=False))
    await app.load()
    found = {}
    try:
        for size, content in (("small", SMALL), ("100 kB", LARGE)):
            request = Request("bench", (Message.user(content),), max_tokens=1, sampling=Sampling(temperature=0))
            times = []
            for _ in range(n_asks):
                begun = time.perf_counter()
                async for _ in app.conversations.stream(request):
                    pass
                times.append(time.perf_counter() - begun)
            found[size] = statistics.median(times[WARM_UP:]) * 1e3
    finally:
        await app.aclose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small round: shows that it works, no more")
    options = parser.parse_args()
    rounds, n_asks, n_tokens, n_idle = (1, 12, 16, 40) if options.quick else (options.rounds, ASKS, ANSWER_TOKENS, IDLE)
    console = Console()
    verdict = Verdict()
    setup = Setup(EMBEDDED, N_CTX, 1, sequences=SEQUENCES)
    floors: list[dict[str, float]] = []
    for round_ in range(rounds):
        floors.append(asyncio.run(in_process(n_asks)))
        for side in in_turn(round_):
            console.print(f"round {round_ + 1} of {rounds}: {side}")
            with running(side, setup) as server:
                overhead(side, server.port, verdict, n_asks)
                clients(side, server.port, verdict, n_tokens, CLIENTS)
                idle(side, server.pid, server.port, verdict, n_idle)
    verdict.show(console, "surfaces, embedded model, one engine thread")
    for size in ("small", "100 kB"):
        console.print(f"in process, {size}: {spread(floor[size] for floor in floors)} ms")
    if not options.quick:
        path = machine.save("surfaces-1t", {"in_process_ms": floors, "results": verdict.results()})
        console.print(f"written to {path}")


if __name__ == "__main__":
    main()
