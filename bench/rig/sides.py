"""The two servers that are compared: how each is started with its best settings, and stopped again.

Shepherd runs from the Python that runs the benchmark, llama-server is built from the same library source
(`llama_tools.py`). Both get the same model file, context, threads and flash attention, and log to a file that is shown
when something goes wrong.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil
from bench.rig.llama_tools import tool
from bench.rig.machine import EMBEDDED

Side = Literal["shepherd", "llama-server"]
SIDES: tuple[Side, ...] = ("shepherd", "llama-server")
MODELS = ("0.5B", "embedded")

START_S = 120.0
STOP_S = 60.0
ANSWER_S = 900.0
"""A busy machine may take minutes for a long prompt."""


def model_path(name: str) -> Path:
    """The file of a model of `MODELS`, or of a path; the random 0.5B one is made when it is missing."""
    if name == "embedded":
        return EMBEDDED
    if name == "0.5B":
        from bench.rig.random_gguf import random_model

        return random_model()
    return Path(name)


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of both servers."""

    model: Path
    n_ctx: int
    """Cells, all sequences together."""
    threads: int = 1
    sequences: int = 1
    """Conversations that can be computed at once: llama-server's slots."""
    evict: bool = False
    """Let old turns leave: Shepherd's `overflow = "evict"`; llama-server's `--context-shift` with `--cache-reuse`."""
    flash_attn: bool = False
    kv_folder: Path | None = None
    """Where Shepherd's disk tier and llama-server's saved slots go; None = no disk."""
    llama: tuple[str, ...] = ()
    """More options for llama-server."""
    ours: Mapping[str, object] = field(default_factory=dict)
    """More keys of the model for Shepherd."""
    repeatable: bool = False
    """Shepherd's cache computes one conversation at a time, and repeatably."""
    source: Path | None = None
    """Another `src` folder that Shepherd runs from: one of an earlier commit."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs."""

    side: Side
    port: int
    ready_s: float
    """From the start of the process until it could answer."""
    pid: int = 0

    def spent_ns(self) -> dict[int, int]:
        """The processor time of each thread of its processes, exact to the nanosecond: a model may compute in a child.
        That of threads that have ended is missing."""
        spent: dict[int, int] = {}
        root = psutil.Process(self.pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        spent[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        return spent

    @property
    def processor_s(self) -> float:
        """That of all of them."""
        return sum(self.spent_ns().values()) / 1e9

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that a plain request is answered with. Raises: `RuntimeError` for a status other than 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self.side}: POST {path} gave {response.status}: {text[:300]!r}")
        return json.loads(text)


def in_turn(round_: int) -> tuple[Side, ...]:
    """Both sides; who goes first changes from round to round."""
    return SIDES if round_ % 2 == 0 else SIDES[::-1]


@contextlib.contextmanager
def running(side: Side, setup: Setup) -> Iterator[Server]:
    """A server for the length of the block; ended by SIGTERM, as a person would."""
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        probe.close()
        command = _ours(setup, port, Path(folder)) if side == "shepherd" else _theirs(setup, port)
        log = Path(folder) / "log"
        started = time.monotonic()
        with log.open("wb") as sink:
            process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=environment(setup.source))
        try:
            _wait(process, port)
            yield Server(side, port, time.monotonic() - started, process.pid)
        except BaseException:
            print(f"--- the end of what {side} said ---", *log.read_text(errors="replace").splitlines()[-25:], sep="\n")
            raise
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def environment(source: Path | None) -> dict[str, str]:
    """Of a child that imports Shepherd from this `src` folder; None = the one that the benchmark imports."""
    return {**os.environ, "PYTHONPATH": str(source)} if source else dict(os.environ)


def _ours(setup: Setup, port: int, folder: Path) -> list[str]:
    """The command; its configuration file is written into `folder`."""

    def table(name: str, values: Mapping[str, object]) -> str:
        return f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())

    cache: dict[str, object] = {"model": "bench", "n_ctx": setup.n_ctx}
    cache |= {"repeatable": True} if setup.repeatable else {"sequences": setup.sequences}
    tables = [
        table("server", {"host": "127.0.0.1", "port": port}),
        table(
            "models.bench",
            {"path": str(setup.model.resolve()), "n_threads": setup.threads, "flash_attn": setup.flash_attn}
            | dict(setup.ours),
        ),
        table("caches.bench", cache | {"overflow": "evict" if setup.evict else "error"}),
    ]
    if setup.kv_folder is not None:
        tables.append(table("kv", {"disk": True, "folder": str(setup.kv_folder)}))
    config = folder / "shepherd.toml"
    config.write_text("\n".join(tables))
    return [sys.executable, "-m", "shepherd", "serve", "--config", str(config)]


def _toml(value: object) -> str:
    """A value as TOML writes it: as JSON, but for tables."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
    return json.dumps(value)


def _theirs(setup: Setup, port: int) -> list[str]:
    """Slots over one pool, idle ones kept in host memory."""
    options: dict[str, object] = {
        "-m": setup.model,
        "--host": "127.0.0.1",
        "--port": port,
        "-c": setup.n_ctx,
        "-np": setup.sequences,
        "-t": setup.threads,
        "-fa": "on" if setup.flash_attn else "off",
        "--cache-ram": 8192,
    }
    if setup.evict:
        options["--cache-reuse"] = 16
    if setup.kv_folder is not None:
        options["--slot-save-path"] = setup.kv_folder
    flags = ["--jinja", "-kvu", "--no-webui", *(["--context-shift"] if setup.evict else []), *setup.llama]
    return [str(tool("llama-server")), *(str(part) for pair in options.items() for part in pair), *flags]


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with status {process.returncode}")
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                if connection.getresponse().status == http.client.OK:
                    return
        time.sleep(0.05)
    raise SystemExit("the server did not start in time")
