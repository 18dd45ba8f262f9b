"""What the memory costs and what it finds: storing turns, importing, searching 10k to 1M messages, pruning, retrieval.

    uv run python -m bench.memory.memory                          # all of it; 1M messages take some minutes and 1 GB
    uv run python -m bench.memory.memory --messages 10000 100000  # other sizes
    uv run python -m bench.memory.memory --only retrieval --file locomo10.json
    uv run python -m bench.memory.memory --quick                        # shows in a minute that everything works

Everything goes the way it goes in the server: through `MemoryStore`, in a file, with every commit on the disk. Beside
it runs what it is compared with, in turn: bare SQLite with the same durability, FTS5 as it comes, mem0 without a model.
Times are by the clock and, where a neighbour would disturb that, of the processor. Texts and questions are made
(`corpus.py`), the same for every run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from bench.memory import corpus, datasets, minilm, plot, retrieval
from bench.rig import machine
from rich.console import Console
from rich.table import Table

from shepherd.core import EngineError
from shepherd.engine.llamacpp.embedding import EmbeddingModel
from shepherd.memory.archive import retention
from shepherd.memory.records import Embedder, Entry, State
from shepherd.memory.store import MemoryStore
from shepherd.memory.transfer.importer import import_file

PARTS = ("archive", "search", "pruning", "retrieval")
ALL = "all, one to one"
SESSION = 40
"""Messages of one conversation of the archive that is made."""
SEED = 11
"""Of the generated questions: none that the ranking was tuned on (1 to 3), none of the test suite (from 20)."""
PATIENCE_S = 120
GOALS = {
    "archive p50, ms": 0.3, "archive p99, ms": 20.0, "search p50, ms": 10.0, "search p95, ms": 25.0, "pause, ms": 100.0,
}  # fmt: skip


def spread(values: Sequence[float]) -> dict[str, float]:
    """Milliseconds of so many seconds."""
    points = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    ms = np.asarray(values) * 1000
    return {name: round(float(np.percentile(ms, point)), 4) for name, point in points.items()} | {"n": len(values)}


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor in all threads."""
    cpu, clock = time.process_time(), time.perf_counter()
    work()
    return time.perf_counter() - clock, time.process_time() - cpu


# -- an archive of any size ----------------------------------------------------------------------------------------


def build(folder: Path, n: int, words: list[str]) -> tuple[Path, dict[str, Any]]:
    """A memory of `n` messages, imported from a file of JSON lines, one conversation each; and what that took."""
    lines, path = folder / f"{n}.jsonl", folder / f"{n}.db"
    texts, n_bytes = corpus.archive_text(n, words), 0
    with lines.open("w") as file:
        while block := list(islice(texts, SESSION)):
            n_bytes += sum(map(len, block))
            said = [{"role": ("user", "assistant")[k % 2], "content": text} for k, text in enumerate(block)]
            file.write(json.dumps({"messages": said}) + "\n")
    with MemoryStore(path) as store:
        clock, cpu = timed(partial(import_file, store, lines))
        parts = store.read(_parts)
        stored = store.stats().messages
    lines.unlink()
    assert stored == n, f"{stored} of {n} messages were stored"
    size = path.stat().st_size
    return path, {
        "import_s": round(clock, 2),
        "messages_per_s": round(n / clock),
        "messages_per_cpu_s": round(n / cpu),
        "file_bytes": size,
        "bytes_per_message": round(size / n, 1),
        "text_bytes_per_message": round(n_bytes / n, 1),
        "parts": parts,
    }


def _parts(connection: Any) -> dict[str, int]:
    """Bytes of each table and index, those of one full-text lane together."""
    parts: dict[str, int] = {}
    for name, size in connection.execute("SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE"):
        whole = next((lane for lane in ("fts_user", "fts_other") if name.startswith(lane)), name)
        parts[whole] = parts.get(whole, 0) + size
    return {name: size for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size > 1 << 16}


# -- storing turns -------------------------------------------------------------------------------------------------


class Floor:
    """Python's own SQLite with the same durability: two rows a turn, with or without a full-text index."""

    def __init__(self, path: Path, *, indexed: bool) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
        kind = "VIRTUAL TABLE said USING fts5(body, tokenize = 'porter unicode61')" if indexed else "TABLE said(body)"
        self._connection.execute(f"CREATE {kind}")

    def turn(self, texts: Sequence[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO said(body) VALUES(?)", [(text,) for text in texts])
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def turns(words: list[str], *, seed: int) -> Iterator[tuple[str, list[Entry]]]:
    """Session and whole history, as a client sends it with every turn: two messages more each time."""
    texts = corpus.archive_text(1_000_000, words, seed=seed)
    for number in range(1_000_000):
        history: list[Entry] = []
        for _ in range(SESSION // 2):
            history = [*history, Entry("user", next(texts)), Entry("assistant", next(texts))]
            yield f"{seed}-{number}", history


def archiving(path: Path, folder: Path, words: list[str], n: int) -> dict[str, Any]:
    """`n` turns one after the other, beside bare SQLite and a bare write to the disk; then eight clients at once."""
    floor, indexed = Floor(folder / "floor.db", indexed=False), Floor(folder / "indexed.db", indexed=True)
    clocks: dict[str, list[float]] = {}
    cpus: list[float] = []
    block = os.urandom(8192)
    with MemoryStore(path) as store, (folder / "block").open("wb", buffering=0) as file:

        def synced() -> None:
            file.write(block)
            os.fdatasync(file.fileno())

        for session, history in islice(turns(words, seed=101), n):
            said = [entry.body for entry in history[-2:]]
            arms: dict[str, Callable[[], Any]] = {
                "shepherd": partial(store.archive, history, session=session),
                "sqlite3": partial(floor.turn, said),
                "sqlite3 with FTS5": partial(indexed.turn, said),
                "8 KiB and fdatasync": synced,
            }
            for arm, work in arms.items():
                clock, cpu = timed(work)
                clocks.setdefault(arm, []).append(clock)
                if arm == "shepherd":
                    cpus.append(cpu)
        at_once = _clients(store, words, max(n // 8, 5))
    floor.close()
    indexed.close()
    for name in ("floor.db", "indexed.db", "block"):
        (folder / name).unlink()
    return {
        "ms": {arm: spread(values) for arm, values in clocks.items()},
        "cpu_ms": spread(cpus),
        "turns_per_s": {arm: round(len(values) / sum(values)) for arm, values in clocks.items()},
        "eight_clients": at_once,
    }


def _clients(store: MemoryStore, words: list[str], n: int) -> dict[str, Any]:
    """Eight threads that each store `n` turns of their own, all at once."""
    work = [list(islice(turns(words, seed=200 + k), n)) for k in range(8)]
    seconds: list[float] = []

    def client(own: list[tuple[str, list[Entry]]]) -> None:
        for session, history in own:
            seconds.append(timed(partial(store.archive, history, session=session))[0])

    threads = [threading.Thread(target=client, args=(own,)) for own in work]
    clock = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock = time.perf_counter() - clock
    return {"turns_per_s": round(len(seconds) / clock), "ms": spread(seconds)}


# -- searching -----------------------------------------------------------------------------------------------------


def searching(path: Path, words: list[str], n: int, *, plain: int) -> dict[str, Any]:
    """`n` questions of every kind, each asked once, in turn; and `plain` of each by FTS5 as it comes, any word."""
    kinds = corpus.queries(words, n)
    clocks: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpus: dict[str, list[float]] = {kind: [] for kind in kinds}
    bare: dict[str, list[float]] = {kind: [] for kind in kinds}
    with MemoryStore(path) as store:
        for query in corpus.queries(words, 3, seed=5).values():  # the file's pages, as in a server that runs
            for text in query:
                store.search(text)
        for number in range(n):
            for kind, queries in kinds.items():
                clock, cpu = timed(partial(store.search, queries[number]))
                clocks[kind].append(clock)
                cpus[kind].append(cpu)
                if number < plain:
                    bare[kind].append(timed(partial(store.read, partial(_any_word, queries[number])))[0])
    return {
        "kinds": {kind: spread(values) for kind, values in {ALL: [*chain(*clocks.values())], **clocks}.items()},
        "kinds_cpu": {kind: spread(values) for kind, values in {ALL: [*chain(*cpus.values())], **cpus}.items()},
        "FTS5, any word": {kind: spread(values) for kind, values in bare.items() if values},
    }


def _any_word(text: str, connection: Any) -> None:
    match = " OR ".join(f'"{word}"' for word in text.split())
    for lane in ("fts_user", "fts_other"):
        connection.execute(f"SELECT rowid FROM {lane}(?) ORDER BY rank LIMIT 10", (match,)).fetchall()


# -- pruning -------------------------------------------------------------------------------------------------------


def pruning(path: Path, folder: Path, words: list[str], n_messages: int, n_turns: int) -> dict[str, Any]:
    """A copy of a memory, all of whose messages have left their contexts, opened with a limit of half its size.

    The same number of turns is stored at the same pace before, without pruning: what of the waits is the disk's own.
    """
    copy = folder / "pruned.db"
    shutil.copy(path, copy)
    arrivals = turns(words, seed=301)
    with MemoryStore(copy) as store:
        for start in range(1, n_messages + 1, 10_000):
            store.mark(range(start, min(start + 10_000, n_messages + 1)), State.EVICTED)
        quiet = [_arrive(store, *turn) for turn in islice(arrivals, n_turns)]
        before = sum(store.read(partial(retention.sizes, path=copy)))
    sizes, meanwhile = [before], []
    with MemoryStore(copy, max_size_bytes=before // 2) as store:
        started = time.monotonic()
        while sizes[-1] > before // 2 and time.monotonic() - started < PATIENCE_S:
            meanwhile.append(_arrive(store, *next(arrivals)))
            sizes.append(sum(store.read(partial(retention.sizes, path=copy))))
        seconds = time.monotonic() - started
        later = []  # a store that is full, and stays so
        for turn in islice(arrivals, n_turns):
            meanwhile.append(_arrive(store, *turn))
            later.append(sum(store.read(partial(retention.sizes, path=copy))))
    copy.unlink()
    return {
        "before_bytes": before,
        "limit_bytes": before // 2,
        "after_bytes": sizes[-1],
        "seconds": round(seconds, 1),
        "largest_afterwards_bytes": max(later),
        "turn_ms": spread(meanwhile),
        "turn_without_pruning_ms": spread(quiet),
    }


def _arrive(store: MemoryStore, session: str, history: list[Entry]) -> float:
    """Seconds that storing a turn takes, a little after the one before."""
    time.sleep(0.02)
    return timed(partial(store.archive, history, session=session))[0]


# -- retrieval -----------------------------------------------------------------------------------------------------


def finding(cases: Sequence[datasets.Case], embedder: Embedder | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Every arm over the same cases; mem0 where it can be installed."""
    results = retrieval.compared(cases, embedder, say)
    if embedder is not None:
        try:
            results["mem0, no LLM"] = found = retrieval.mem0(cases, embedder)
            say(f"{'mem0, no LLM':>36}: " + retrieval.figures(found))
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"mem0 does not run here: {error}")
    n_messages = sum(len(session) for case in cases for session in case.sessions)
    return {"conversations": len(cases), "messages": n_messages, "arms": results}


def _embedder(say: Callable[[str], None]) -> Embedder | None:
    try:
        return retrieval.Once(EmbeddingModel.load(minilm.minilm(), n_threads=1))
    except (EngineError, OSError, subprocess.CalledProcessError) as error:
        say(f"no vectors: {error}")
        return None


# -- all of it -----------------------------------------------------------------------------------------------------


def show(console: Console, result: dict[str, Any]) -> None:
    """Print the tables, with the goals."""
    if archived := result.get("archive"):
        table = Table("messages before", "arm", "p50 ms", "p99 ms", "max ms", "turns/s", title="a turn of two messages")
        for size, found in archived.items():
            for arm, ms in found["ms"].items():
                rate = found["turns_per_s"][arm]
                table.add_row(size, arm, f"{ms['p50']:.3f}", f"{ms['p99']:.2f}", f"{ms['max']:.1f}", f"{rate:,}")
            eight, cpu = found["eight_clients"], found["cpu_ms"]
            table.add_row(size, "shepherd, eight clients", f"{eight['ms']['p50']:.3f}", f"{eight['ms']['p99']:.2f}",
                          f"{eight['ms']['max']:.1f}", f"{eight['turns_per_s']:,}")  # fmt: skip
            table.add_row(
                size, "shepherd, processor", f"{cpu['p50']:.3f}", f"{cpu['p99']:.2f}", f"{cpu['max']:.1f}", ""
            )
            table.add_section()
        console.print(table)
    if searched := result.get("search"):
        table = Table("messages", "question", "p50 ms", "p95", "p99", "CPU p50", "CPU p95", "FTS5 p50", title="search")
        for size, found in searched.items():
            for kind, ms in found["kinds"].items():
                cpu, bare = found["kinds_cpu"][kind], found["FTS5, any word"].get(kind)
                cells = [ms["p50"], ms["p95"], ms["p99"], cpu["p50"], cpu["p95"], *([bare["p50"]] if bare else [])]
                table.add_row(size, kind, *(f"{cell:.1f}" for cell in cells))
            table.add_section()
        console.print(table)
    if built := result.get("size"):
        table = Table("messages", "file MB", "bytes/message", "of them text", "imported/s", "per CPU second")
        for size, found in built.items():
            table.add_row(size, f"{found['file_bytes'] / 1e6:.1f}", f"{found['bytes_per_message']:.0f}",
                          f"{found['text_bytes_per_message']:.0f}", f"{found['messages_per_s']:,}",
                          f"{found['messages_per_cpu_s']:,}")  # fmt: skip
        console.print(table)
    if pruned := result.get("pruning"):
        mb = {name: pruned[f"{name}_bytes"] / 1e6 for name in ("before", "limit", "after", "largest_afterwards")}
        console.print(
            f"pruning {mb['before']:.0f} MB to {mb['after']:.0f} in {pruned['seconds']} s (limit {mb['limit']:.0f}, "
            f"largest afterwards {mb['largest_afterwards']:.0f}); turns meanwhile, ms: {_three(pruned['turn_ms'])}; "
            f"without pruning {_three(pruned['turn_without_pruning_ms'])}"
        )
    for goal, (value, limit) in verdicts(result).items():
        console.print(f"{goal}: {value:.3g} (goal {limit:g}){'' if value <= limit else '  MISSED'}")


def _three(ms: dict[str, float]) -> str:
    return "p50 {p50:.1f}, p99 {p99:.1f}, longest {max:.1f}".format_map(ms)


def verdicts(result: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Goal -> what was measured in the largest archive, and the limit."""
    measured: dict[str, float] = {}
    if archived := result.get("archive"):
        ms = list(archived.values())[-1]["ms"]["shepherd"]
        measured |= {"archive p50, ms": ms["p50"], "archive p99, ms": ms["p99"]}
    if searched := result.get("search"):
        ms = list(searched.values())[-1]["kinds"][ALL]
        measured |= {"search p50, ms": ms["p50"], "search p95, ms": ms["p95"]}
    if pruned := result.get("pruning"):
        measured["pause, ms"] = pruned["turn_ms"]["max"]
    return {goal: (value, GOALS[goal]) for goal, value in measured.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--turns", type=int, default=1000, help="stored one after the other")
    parser.add_argument("--queries", type=int, default=100, help="of each kind")
    parser.add_argument("--cases", type=int, default=5, help="generated users of retrieval")
    parser.add_argument("--file", type=Path, help="LoCoMo, BEAM or LongMemEval in place of generated users")
    parser.add_argument("--no-vectors", action="store_true", help="no MiniLM, and so no hybrid search and no mem0")
    parser.add_argument("--folder", type=Path, help="where the archives are made; a new one by default")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.messages, options.turns, options.queries, options.cases = [2000, 5000], 50, 5, 1
    console = Console()

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    started = time.monotonic()
    result: dict[str, Any] = {"bench": "memory", "goals": GOALS}
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        _measure(Path(scratch), options, result, say)
    if "retrieval" in options.only:
        embedder = None if options.no_vectors else _embedder(say)
        cases = list(datasets.load(options.file)) if options.file else corpus.cases(options.cases, seed=SEED)
        result["retrieval"] = finding(cases, embedder, say)
    show(console, result)
    is_whole = set(options.only) == set(PARTS) and options.file is None and not options.quick
    path = machine.save("memory", result, quick=not is_whole)
    written = " and ".join(str(file) for file in (path, plot.draw(path)) if file)
    say(f"{time.monotonic() - started:.0f} s; written to {written}")


def _measure(scratch: Path, options: argparse.Namespace, result: dict[str, Any], say: Callable[[str], None]) -> None:
    """Everything that needs an archive, at every size."""
    if set(options.only) == {"retrieval"}:
        return
    words = corpus.vocabulary()
    pruned = max(size for size in options.messages if size <= max(20_000, min(options.messages)))
    for size in sorted(options.messages):
        say(f"an archive of {size:,} messages")
        path, result.setdefault("size", {})[f"{size:,}"] = build(scratch, size, words)
        if "search" in options.only:
            plain = 3 if size > 200_000 else 10
            result.setdefault("search", {})[f"{size:,}"] = searching(path, words, options.queries, plain=plain)
        if "pruning" in options.only and size == pruned:
            result["pruning"] = {"messages": size, **pruning(path, scratch, words, size, options.turns)}
        if "archive" in options.only:
            result.setdefault("archive", {})[f"{size:,}"] = archiving(path, scratch, words, options.turns)
        path.unlink()


if __name__ == "__main__":
    main()
