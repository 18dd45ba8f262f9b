"""What a router costs in front of a provider: `shepherd serve` and LiteLLM's proxy against a direct connection.

    uv run python -m bench.cloud.providers [--rounds 8] [--quick] [--only fixed|llama-server|shepherd] [--no-litellm]
                                     [--before FOLDER]

The provider is a program that streams fixed records (`upstream.py`), then llama-server and another Shepherd on the
embedded model. Every server runs all the time; requests take turns, so that a neighbour of this machine disturbs all
alike. *First token*: the time to the first byte of text over a kept connection, one request after the other, each
routed one with a direct one beside it. *Tokens/s*: 1 and 8 streams at once, at 100 and 1,000 tokens a second each, and
as fast as they are taken. *Processor*: time of the router's processes per request and per token; up to the first token:
`first_token.py`. Goals: less than 1 ms, less than 5 % at 8 streams. LiteLLM has an environment of its own, made on
first use.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from bench.rig import machine
from bench.rig.dialogue import DRAWN
from bench.rig.llama_tools import folder
from bench.rig.machine import EMBEDDED
from bench.rig.paired import Estimate, median
from bench.rig.sides import SIDES, Setup, Side, running
from rich.console import Console
from rich.table import Table

LITELLM = "litellm[proxy]==1.106.2"
"""1.82.7 and 1.82.8 stole credentials; the proxy up to 1.83.6 had two holes that were used."""
ASKS = 25
"""Requests for the first token, of each way in each round."""
TOKENS = {100: 150, 1_000: 800, 0: 4_000}
"""Of one stream, by its rate; 0 = as fast as it is taken."""
STREAMS = (1, 8)
READY_S = 240.0
KEY = f"sk-{secrets.token_hex(32)}"
"""LiteLLM's proxy does not start without one."""
_TEXT = re.compile(rb'"(?:content|text)": ?"[^"]')
_GENERATED = re.compile(rb'"(?:completion_tokens|output_tokens)": ?(\d+)')

Wire = Literal["chat", "messages"]
PATHS: Mapping[Wire, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the provider."""

    name: str
    port: int
    pid: int = 0
    """Of the router; 0 = there is none."""

    def cpu_s(self) -> float:
        """Processor time of the router and its children, since they began."""
        if not self.pid:
            return 0.0
        process = psutil.Process(self.pid)
        times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
        return sum(each.user + each.system for each in times)


@dataclass(slots=True)
class Answer:
    first_s: float
    whole_s: float
    n_tokens: int


class Lines:
    """Kept connections to one server; a request on each at once."""

    def __init__(self, port: int, n: int) -> None:
        self._port = port
        self._lines = [self._opened() for _ in range(n)]

    def _opened(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def close(self) -> None:
        for each in self._lines:
            each.close()

    def ask(self, path: str, body: Mapping[str, Any]) -> list[Answer]:
        """The answers to the same request on every connection. Raises: `RuntimeError`, `TimeoutError`."""
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"anthropic-version: 2023-06-01\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(content)}\r\n\r\n"
        ).encode()
        flights = [_Flight() for _ in self._lines]
        with selectors.DefaultSelector() as selector:
            for at in range(len(self._lines)):
                self._send(at, head + content, flights[at], selector)
            while not all(flight.last_s for flight in flights):
                ready = selector.select(60)
                if not ready:
                    raise TimeoutError(f"{path} on {self._port}: nothing comes")
                for key, _ in ready:
                    at = int(key.data)
                    line, flight = self._lines[at], flights[at]
                    piece = _received(line)
                    if not piece and not flight.raw and not flight.is_again:  # closed after the answer before
                        selector.unregister(line)
                        line.close()
                        self._lines[at], flight.is_again = self._opened(), True
                        self._send(at, head + content, flight, selector)
                    elif not piece:
                        raise RuntimeError(f"{path} on {self._port}: {bytes(flight.raw[:600])!r}")
                    elif flight.take(piece):
                        selector.unregister(line)
        return [flight.answer(f"{path} on {self._port}") for flight in flights]

    def _send(self, at: int, request: bytes, flight: _Flight, selector: selectors.BaseSelector) -> None:
        selector.register(self._lines[at], selectors.EVENT_READ, at)
        flight.begun_s = time.perf_counter()
        with contextlib.suppress(ConnectionError):  # shows when it is read
            self._lines[at].sendall(request)


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(1 << 18)
    except ConnectionError:
        return b""


def first_text(raw: bytearray) -> bool:
    """Whether there is text in an answer."""
    return _TEXT.search(raw) is not None


@dataclass(slots=True)
class _Flight:
    """One answer on its way."""

    begun_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    raw: bytearray = field(default_factory=bytearray)
    is_again: bool = False

    def take(self, piece: bytes) -> bool:
        """Whether it is over."""
        self.raw += piece
        if not self.first_s and first_text(self.raw):
            self.first_s = time.perf_counter()
        if self.raw.endswith(b"\r\n0\r\n\r\n"):
            self.last_s = time.perf_counter()
        return bool(self.last_s)

    def answer(self, where: str) -> Answer:
        counts = _GENERATED.findall(self.raw)
        if not self.first_s or not counts:
            raise RuntimeError(f"{where}: no text in {bytes(self.raw[:600])!r}")
        return Answer(self.first_s - self.begun_s, self.last_s - self.begun_s, int(counts[-1]))


@dataclass(slots=True)
class Measured:
    """Numbers by what was measured and by way: one per request or per round, in the same order for every way."""

    rows: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    units: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, unit: str, way: Way, value: float) -> None:
        self.units[what] = unit
        self.rows[what][way.name].append(value)

    def results(self) -> list[dict[str, Any]]:
        """Medians, and what each router adds: a difference for times, a share for tokens/s, with 95 % intervals."""
        made = []
        for what, by_way in self.rows.items():
            unit = self.units[what]
            row: dict[str, Any] = {"measured": what, "unit": unit}
            for name, values in by_way.items():
                row[name] = _plain(median(np.array(values)))
                direct = np.array(by_way.get(beside(name)) or by_way.get("direct") or ())
                if not name.startswith("direct") and len(direct) == len(values):
                    ours = np.array(values)
                    cost = ours - direct if unit == "ms" else 100 * (1 - ours / direct)
                    row[f"cost of {name}"] = {"unit": "ms" if unit == "ms" else "%", **_plain(median(cost))}
            made.append(row)
        return made

    def show(self, console: Console, title: str) -> None:
        names = list(dict.fromkeys(name for by_way in self.rows.values() for name in by_way))
        costs = [f"cost of {name}" for name in names if not name.startswith("direct")]
        table = Table("measured", "unit", *names, *costs, title=title)
        for row in self.results():
            cells = [_shown(row.get(name)) for name in (*names, *costs)]
            table.add_row(row["measured"], row["unit"], *cells)
        console.print(table)


def _plain(found: Estimate) -> dict[str, Any]:
    low, high = (float(f"{each:.4g}") for each in (found.low, found.high))
    return {"value": float(f"{found.value:.4g}"), "interval": [low, high]}


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    low, high = found["interval"]
    return f"{found['value']:.4g} ({low:.3g} to {high:.3g}){' %' if found.get('unit') == '%' else ''}"


def turns(ways: Sequence[Way], at: int) -> Iterator[Way]:
    """All ways; who goes first changes."""
    n = at % len(ways)
    return iter((*ways[n:], *ways[:n]))


# -- what is measured


def settle(ways: Sequence[Way]) -> None:
    """Wait for what routers still do behind their answers: it would disturb the others."""
    for _ in range(40):
        before = sum(way.cpu_s() for way in ways)
        time.sleep(0.25)
        if sum(way.cpu_s() for way in ways) - before < 0.02:
            return


def first_tokens(ways: Sequence[Way], measured: Measured, case: Case, n_asks: int) -> None:
    direct, *routers = ways
    others = [each for each in routers if each.name == "litellm"]
    for streams in STREAMS:
        # LiteLLM still works behind its answer: the request of another router must not be the next one.
        for some in filter(None, ([each for each in routers if each not in others], others)):
            settle(ways)
            turned = [replace(direct, name=beside(each.name)) for each in some[:1]] + some
            what, n = f"{case.what}: first token, {_streams(streams)}", n_asks if streams == 1 else max(1, n_asks // 3)
            used = dict.fromkeys(turned, 0.0)
            with contextlib.ExitStack() as stack:
                lines = {way: stack.enter_context(contextlib.closing(Lines(way.port, streams))) for way in turned}
                for way in turned:
                    lines[way].ask(case.path, case.body(2, 500))  # connections are opened
                    used[way] -= way.cpu_s()
                for at in range(n):
                    for way in turns(turned, at):
                        answers = lines[way].ask(case.path, case.body(2, 500))
                        median_s = statistics.median(each.first_s for each in answers)
                        measured.add(what, "ms", way, median_s * 1e3)
            for way in some:
                name = f"{case.what}: processor per request, {_streams(streams)}"
                measured.add(name, "ms per request", way, (used[way] + way.cpu_s()) / (n * streams) * 1e3)


def beside(router: str) -> str:
    """What the direct requests are called that take turns with those through a router."""
    return f"direct beside {router}" if router == "litellm" else "direct"


def throughput(ways: Sequence[Way], measured: Measured, case: Case, sizes: Mapping[int, int], round_: int) -> None:
    for streams in STREAMS:
        for rate, n_tokens in sizes.items():
            for way in turns(ways, round_):
                settle(ways)
                n = n_tokens // 8 if way.name == "litellm" and not rate else n_tokens
                with contextlib.closing(Lines(way.port, streams)) as lines:
                    lines.ask(case.path, case.body(2, 500))
                    cpu, begun = way.cpu_s(), time.perf_counter()
                    answers = lines.ask(case.path, case.body(n, rate))
                    seconds = time.perf_counter() - begun
                n_all = sum(each.n_tokens for each in answers)
                pace = f" at {rate:,} tokens/s each" if rate else ", as fast as possible" if case.is_fixed else ""
                measured.add(f"{case.what}: {_streams(streams)}{pace}", "tokens/s", way, n_all / seconds)
                if way.pid and not rate:
                    name = f"{case.what}: processor per token, {_streams(streams)}"
                    measured.add(name, "us", way, (way.cpu_s() - cpu) / n_all * 1e6)


@dataclass(frozen=True, slots=True)
class Case:
    """One provider, asked in one protocol."""

    what: str
    path: str
    body: Callable[[int, int], dict[str, Any]]
    """A request for so many tokens, so many a second."""
    is_fixed: bool = True


def _streams(n: int) -> str:
    return f"{n} stream{'s' if n > 1 else ''}"


def fixed(wire: Wire) -> Case:
    prefix = "" if wire == "chat" else "a/"

    def body(n_tokens: int, rate: int) -> dict[str, Any]:
        named = {"model": f"{prefix}fixed-{n_tokens}-{rate}", "max_tokens": 8_000}
        made = {**named, **_asked(f"{n_tokens} words, please.")}
        return made if wire == "messages" else {**made, "stream_options": {"include_usage": True}}

    return Case(f"fixed, {wire}", PATHS[wire], body)


def sevens(n_tokens: int, rate: int) -> dict[str, Any]:
    """For a server with a model; its pace is its own."""
    options = {"stream_options": {"include_usage": True}, "max_tokens": n_tokens}
    return {"model": "bench", **_asked("Count."), **DRAWN, **options}


def _asked(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "stream": True}


# -- servers


@contextlib.contextmanager
def upstream() -> Iterator[int]:
    """The port of a provider that streams fixed records."""
    program = [sys.executable, "-m", "bench.cloud.upstream"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextlib.contextmanager
def started(name: str, command: Sequence[str], port: int, ready: str, env: Mapping[str, str]) -> Iterator[Way]:
    """A router in its own process, for the length of the block."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **env})
        try:
            deadline = time.monotonic() + READY_S
            while not _answers(port, ready):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{name} does not start")
                time.sleep(0.2)
            yield Way(name, port, process.pid)
        except BaseException:
            log.seek(0)
            print(f"--- the end of the log of {name} ---", log.read().decode(errors="replace")[-3000:], sep="\n")
            raise
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int, path: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        return one.recv(64).startswith(b"HTTP/1.1 200")
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
[providers.up]
type = "{type}"
base_url = "http://127.0.0.1:{to}"
[providers.up-messages]
type = "anthropic"
base_url = "http://127.0.0.1:{to}"
api_key = "sk-bench"
[[routes]]
match = "a/*"
provider = "up-messages"
[[routes]]
match = "*"
provider = "up"
"""


@contextlib.contextmanager
def shepherd(to: int, type: str = "openai_compat", tree: Path | None = None) -> Iterator[Way]:
    """`shepherd serve` in front of a port. `tree`: the `src` of another checkout, which is called "before"."""
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as home:
        port = free_port()
        file = Path(home) / "shepherd.toml"
        file.write_text(CONFIG.format(port=port, to=to, type=type))
        command = [sys.executable, "-m", "shepherd", "serve", "--config", str(file)]
        env = {"HOME": home, "XDG_CONFIG_HOME": home} | ({} if tree is None else {"PYTHONPATH": str(tree)})
        with started("before" if tree else "shepherd", command, port, "/health", env) as way:
            yield way


@contextlib.contextmanager
def litellm(to: int) -> Iterator[Way]:
    """LiteLLM's proxy in front of a port, without a database, a key and telemetry."""
    python = _litellm_python()
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as home:
        port = free_port()
        rows = (
            ("a/*", "anthropic/*", f"http://127.0.0.1:{to}"),
            ("fixed-*", "openai/fixed-*", f"http://127.0.0.1:{to}/v1"),
        )
        models = [
            {"model_name": name, "litellm_params": {"model": model, "api_base": base, "api_key": "sk-bench"}}
            for name, model, base in rows
        ]
        settings = {"telemetry": False, "num_retries": 0}
        file = Path(home) / "config.yaml"
        file.write_text(json.dumps({"model_list": models, "litellm_settings": settings}))
        env = {"HOME": home, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        env |= {"LITELLM_MASTER_KEY": KEY}
        options = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
        command = [str(python.parent / "litellm"), *options]
        with started("litellm", command, port, "/health/liveliness", env) as way:
            yield way


def _litellm_python() -> Path:
    python = folder() / "litellm-venv" / "bin" / "python"
    if not python.exists():
        if shutil.which("uv") is None:
            raise SystemExit("uv is needed to install LiteLLM; --no-litellm leaves it out")
        subprocess.run(["uv", "venv", "-q", "-p", sys.executable, python.parent.parent], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "-p", python, LITELLM], check=True)
    return python


# -- runs


def against_fixed(
    rounds: int, measured: Measured, console: Console, *, quick: bool, with_litellm: bool, before: Path | None
) -> None:
    with contextlib.ExitStack() as stack:
        to = stack.enter_context(upstream())
        ways = [Way("direct", to), stack.enter_context(shepherd(to))]
        if before is not None:
            ways.append(stack.enter_context(shepherd(to, tree=before)))
        if with_litellm:
            ways.append(stack.enter_context(litellm(to)))
        sizes = {rate: max(20, n // 20) for rate, n in TOKENS.items()} if quick else TOKENS
        for round_ in range(rounds):
            console.print(f"fixed records: round {round_ + 1} of {rounds}")
            for wire in PATHS:
                case = fixed(wire)
                first_tokens(ways, measured, case, 3 if quick else ASKS)
                throughput(ways, measured, case, sizes if wire == "chat" else {0: sizes[0]}, round_)


def against_model(server: Side, rounds: int, measured: Measured, console: Console, *, quick: bool) -> None:
    setup = Setup(EMBEDDED, 4_096, 1, sequences=8)
    case = Case(server, PATHS["chat"], sevens, is_fixed=False)
    with running(server, setup) as model, shepherd(model.port, server) as router:
        ways = [Way("direct", model.port), router]
        for round_ in range(rounds):
            console.print(f"{server}: round {round_ + 1} of {rounds}")
            first_tokens(ways, measured, case, 3 if quick else ASKS)
            throughput(ways, measured, case, {0: 20 if quick else 200}, round_)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", choices=("fixed", "llama-server", "shepherd"), action="append")
    parser.add_argument("--no-litellm", action="store_true")
    parser.add_argument("--before", type=Path, help="the src of another checkout, measured beside this one")
    parser.add_argument("--quick", action="store_true", help="one small round: shows that it works, no more")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=190)
    measured = Measured()
    rounds = 1 if options.quick else options.rounds
    wanted = options.only or ("fixed", "llama-server", "shepherd")
    if "fixed" in wanted:
        against_fixed(
            rounds, measured, console, quick=options.quick, with_litellm=not options.no_litellm, before=options.before
        )
    for server in SIDES:
        if server in wanted:
            against_model(server, rounds, measured, console, quick=options.quick)
    measured.show(console, "a provider, directly and through a router")
    versions = {} if options.no_litellm else {"litellm": LITELLM.partition("==")[2]}
    path = machine.save("providers", {"rounds": rounds, **versions, "results": measured.results()}, quick=options.quick)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
