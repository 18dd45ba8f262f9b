"""What is seen of a server from outside while a soak runs: its process, its files, its own figures, every few seconds.

    /proc, folder, /metrics ─ look ─▶ series ─▶ JSON, plot, verdicts

Not here: what a series means (`growth.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import psutil
from bench.soak.growth import Allowance, Verdict, judge
from bench.soak.heap import read as read_heap
from bench.soak.server import DISK_BYTES, MEMORY_BYTES, RAM_BYTES, RESPONSES_BYTES, Running

EVERY_S = 2.0
MB = 2**20

ALLOWED: Mapping[str, Allowance] = {
    "rss": Allowance(share=0.02, least=16 * MB),
    "private": Allowance(share=0.02, least=16 * MB),
    "rss of children": Allowance(share=0.02, least=16 * MB),
    "in use": Allowance(share=0.02, least=4 * MB),
    "blocks": Allowance(share=0.02, least=20_000),
    "handles": Allowance(least=3),
    "threads": Allowance(least=2),
    "children": Allowance(least=1),
    "tasks": Allowance(least=20),
    "memory files": Allowance(least=MEMORY_BYTES),
    "disk tier": Allowance(least=DISK_BYTES / 10),
    "RAM tier": Allowance(least=RAM_BYTES / 10),
    "responses file": Allowance(least=RESPONSES_BYTES / 10),
    "metric lines": Allowance(least=10),
}
"""The series that must not grow, and what each may gain in the last third of a run. A process' memory wavers by a
percent with what is being answered; a file grows by whole pages and is cut off now and then.

What is allocated decides about leaks: `in use` (bytes that malloc has given out) and `blocks` (Python's objects). `rss`
and `private` may step further, since a heap keeps freed blocks between small ones that live (bench/engine/heap.py): 5
to 12 MB in the last third of two hours while `in use` falls. They are watched for what malloc does not see, mapped
files."""

FILLING = ("rss", "private", "rss of children", "in use", "blocks")
FILLED_AFTER = 3_500
"""With so many requests of the soak's the server has filled its 8 MB for what it remembers of prompts; before,
these series rise by some kB with each, and say nothing of leaks."""

COUNTED = {
    "prefilled": 'shepherd_prompt_tokens_total{source="prefilled"}',
    "cached": 'shepherd_prompt_tokens_total{source="cached"}',
    "generated": "shepherd_generated_tokens_total",
    "jobs": 'shepherd_jobs_total{cache="main"}',
    "evictions": "shepherd_evictions_total",
    "archived": "shepherd_archived_messages_total",
    "rebases": 'shepherd_rebases_total{cache="main"}',
    "dropped": 'shepherd_sequences_dropped_total{cache="main"}',
    "saved": 'shepherd_sequences_saved_total{cache="main"}',
    "restored": 'shepherd_sequences_restored_total{cache="main"}',
    "preemptions": 'shepherd_preemptions_total{cache="main"}',
}
"""Counters of /metrics that are kept as series."""
LEVELS = {"RAM tier": 'shepherd_snapshot_bytes{cache="main",tier="ram"}'}

LINE = re.compile(r"^(\w+(?:\{[^}]*\})?) ([^ \n]+)$", re.MULTILINE)


class Watch:
    """The series of one run."""

    def __init__(self, server: Running, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self.times_s: list[float] = []
        self.series: defaultdict[str, list[float]] = defaultdict(list)
        self.at_rest: defaultdict[str, list[float]] = defaultdict(list)
        """The samples of lulls only."""
        self._begun = time.monotonic()

    async def run(self, client: httpx.AsyncClient) -> None:
        """Look again and again, until cancelled."""
        while True:
            with contextlib.suppress(httpx.HTTPError, psutil.Error):
                await self.look(client)
            await asyncio.sleep(EVERY_S)

    async def rest(self, client: httpx.AsyncClient) -> None:
        """Take a sample of a lull."""
        with contextlib.suppress(httpx.HTTPError, psutil.Error):
            await self.look(client)
            for name, levels in self.series.items():
                self.at_rest[name].append(levels[-1])

    async def look(self, client: httpx.AsyncClient) -> None:
        """Take one sample of everything."""
        figures = read_metrics((await client.get("/metrics")).text)
        process = self._server.process
        heap = read_heap(self._server.log.with_suffix(".heap"))
        memory = process.memory_full_info()
        children = process.children(recursive=True)
        n_connections = len(process.net_connections("tcp"))
        seen: dict[str, float] = {
            "rss": memory.rss,
            "private": memory.uss,
            **{name: heap.get(name, 0.0) for name in ("in use", "blocks", "tasks")},
            "handles": process.num_fds() - n_connections,
            "connections": n_connections,
            "threads": process.num_threads(),
            "children": len(children),
            "rss of children": sum(rss_of(each) for each in children),
            "memory files": size_of((self._folder / "memory.db", self._folder / "memory-users")),
            "disk tier": size_of((self._folder / "kv",)),
            "responses file": size_of((self._folder / "responses.db",)),
            "metric lines": len(figures),
            "processor s": sum(process.cpu_times()[:2]),
            **{name: figures.get(line, 0.0) for name, line in (COUNTED | LEVELS).items()},
        }
        self.times_s.append(time.monotonic() - self._begun)
        for name, level in seen.items():
            self.series[name].append(level)

    def verdicts(self) -> dict[str, Verdict]:
        """What each series does."""
        found = {name: judge(self.times_s, self.series[name], allowed) for name, allowed in ALLOWED.items()}
        if self.series["jobs"] and self.series["jobs"][len(self.times_s) * 2 // 3] < FILLED_AFTER:
            found |= {name: replace(found[name], word="too short") for name in FILLING}
        return found

    def last(self, name: str) -> float:
        return self.series[name][-1] if self.series[name] else 0.0


def rss_of(process: psutil.Process) -> int:
    """What a process has in memory; 0 when it has ended."""
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def read_metrics(text: str) -> dict[str, float]:
    """The figures of Prometheus' text format, by name and labels."""
    return {name: float(value) for name, value in LINE.findall(text)}


def size_of(paths: Iterable[Path]) -> float:
    """Bytes of files, each with what SQLite keeps beside it, and of all in folders."""
    total = 0
    for path in paths:
        files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
        for file in files:
            with contextlib.suppress(OSError):  # gone meanwhile
                total += file.stat().st_size if file.is_file() else 0
    return total
