"""Everything at once, for hours: is every request answered, is every answer right, is nothing lost, does nothing grow?

    uv run python -m bench.soak.soak [--minutes 30] [--clients 6] [--seed 1]

A `shepherd serve` with a small cache, tiers and a memory that overflow, and clients that talk to it over all surfaces
(`traffic.py`). What is checked, while it runs and at its end, is in `checks.py`; what grows, in
`growth.py`. SIGINT and SIGTERM end it early; it writes its results all the same. The status is 0 only when nothing
hung, nothing was wrong or lost, and nothing grows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
from bench.rig import machine
from bench.rig.verdict import WIDTH, quantile
from bench.soak import plot
from bench.soak.checks import Colds, Findings, Said, check_memory
from bench.soak.growth import thinned
from bench.soak.server import MEMORY_BYTES, Switches, cache_of, cold_configuration, configuration, running
from bench.soak.surfaces import SURFACES, Surface
from bench.soak.traffic import LULL_S, USERS, Client, Stage, Stop
from bench.soak.watch import Watch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PATIENCE_S = 60.0
"""A request without progress for so long hangs."""
COLD_SHARE = 0.15
"""Of the answers that a cold server must give as well, those that it is asked for."""
CLIENT_KEEPS_S = 2.0
"""How long a client keeps an idle connection: less than the server, or it might send just when that is closed."""
UNJUDGED_SHARE = 0.01
"""Of the answers that were compared: a larger share that differs, without a measure of how near, counts as wrong."""
STOPPED_S = 20.0
"""What the server may take to stop: its grace of 5 s, and its conversations to write to disk on a busy machine."""
SETTLED_S = 30.0
"""So long after the last request the server may take to close its connections."""
OURS = 3
"""Connections at the end: those that are listened on, and that of the watch."""
MAY_HOLD = {"connections": OURS, "handles": 16, "threads": 6, "children": 0}
"""What the server may hold more at the end than in the middle lull, by name: the files of a user who had not spoken
until then; the reading connections of a memory (at most four, three files each) and the threads of the pool for what
blocks, which are made when requests first need them at the same time. A leak of handles shows in their series."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    seconds: float
    clients: int = 6
    seed: int = 1
    per_second: float = 3.0
    patience_s: float = PATIENCE_S
    cold_share: float = COLD_SHARE
    memory: bool = True
    tiers: bool = True
    pictures: bool = True
    """A model that sees, and conversations about images."""
    shared: bool = True
    """Conversations that begin with the same text."""
    surfaces: tuple[Surface, ...] = SURFACES
    requests: int | None = None
    """End after so many, however long it took."""
    lull_every: int = 150
    """Requests between two lulls."""
    lull_s: tuple[float, float] = LULL_S
    """How long a lull is: at least, at most."""
    variables: tuple[tuple[str, str], ...] = ()
    """Of the warm server's environment."""


async def soak(plan: Plan, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run it; the result, as it is written to a file."""
    findings, said = Findings(), Said()
    switches = Switches(plan.memory, plan.tiers, plan.pictures)
    settled: dict[str, Any] = {}
    begun = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        warm = await stack.enter_async_context(
            running(configuration(folder, switches), folder, "warm", variables=dict(plan.variables))
        )
        cold = await stack.enter_async_context(running(cold_configuration(folder, switches), folder, "cold"))
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=CLIENT_KEEPS_S)
        client, asking, watching = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=None, limits=limits))
            for url in (warm.url, cold.url, warm.url)
        ]
        watch = Watch(warm, folder)
        await watch.look(watching)
        colds = Colds(
            asking, findings, share=plan.cold_share, seed=plan.seed, patience_s=plan.patience_s, cache=cache_of
        )
        stage = Stage(
            client, findings, colds, said, seed=plan.seed, patience_s=plan.patience_s, per_second=plan.per_second,
            shared=plan.shared, pictures=plan.pictures, memory=plan.memory, surfaces=plan.surfaces, limit=plan.requests,
            lull_every=plan.lull_every, lull_s=plan.lull_s, at_rest=lambda: watch.rest(watching),
            is_there=lambda: warm.is_there,
        )  # fmt: skip
        background = [asyncio.create_task(watch.run(watching)), asyncio.create_task(colds.run())]
        ended = await _traffic(plan, stage, watch, console)
        if ended == "stopped":
            findings.told.append({"kind": "state", **await warm.state()})
        else:
            await colds.drain(plan.patience_s)
            await client.aclose()
            settled = await _settle(watch, watching)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
    if warm.status:
        findings.add("broken", f"the server ended with status {warm.status}", log=warm.tail())
    elif warm.stopped_s > STOPPED_S:
        findings.add("hang", f"the server took {warm.stopped_s:.0f} s to stop", log=warm.tail())
    files = {user: memory_file(folder, user) for user in USERS}
    looked = check_memory(said, files, MEMORY_BYTES, findings) if plan.memory else {}
    return {
        "bench": "soak",
        "plan": {**plan_as_json(plan), "ended": ended, "ran_s": round(time.monotonic() - begun)},
        "found": dict(findings.counts),
        "findings": findings.told,
        "answers": dict(sorted(stage.counts.items())),
        "requests": stage.n_asked,
        "tokens": dict(stage.tokens),
        "compared": {**colds.outcomes, "greatest tie": round(colds.greatest_tie, 4)},
        "memory": looked,
        "stopped": {"status": warm.status, "s": round(warm.stopped_s, 1)},
        "settled": settled,
        "verdicts": {name: verdict.as_json() for name, verdict in watch.verdicts().items()},
        "minutes": _latencies(stage),
        "series": _series(watch),
    }


async def _traffic(plan: Plan, stage: Stage, watch: Watch, console: Console | None) -> str:
    """Let the clients talk until the time is over, a signal comes, or something hangs: which of them."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stage.done.set)
    clients = [asyncio.create_task(Client(stage, number, plan.seed).run()) for number in range(plan.clients)]
    waiting = asyncio.create_task(stage.done.wait())
    lulls = asyncio.create_task(stage.lulls())
    ended = "time"
    try:
        async with _progress(plan, stage, watch, console):
            done, _ = await asyncio.wait((*clients, waiting), timeout=plan.seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiting in done or any(task.cancelled() for task in done):
                ended = "requests" if plan.requests and stage.n_asked >= plan.requests else "signal"
            for task in done - {waiting}:
                if task.cancelled():
                    continue
                error = task.exception()
                if _holds(error, Stop):
                    ended = "stopped"
                elif error is not None:
                    ended = "stopped"
                    text = "".join(traceback.format_exception(error))[-3000:]
                    stage.findings.add("broken", f"the soak itself: {error!r}", trace=text)
    finally:
        for task in (*clients, waiting, lulls):
            task.cancel()
        await asyncio.gather(*clients, waiting, lulls, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return ended


def _holds(error: BaseException | None, kind: type[Exception]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds(each, kind) for each in error.exceptions)
    return isinstance(error, kind)


async def _settle(watch: Watch, client: httpx.AsyncClient) -> dict[str, Any]:
    """Wait until the server has let go of the clients' connections; what it held in the middle lull, and holds now."""
    deadline = time.monotonic() + SETTLED_S
    await watch.look(client)
    while watch.last("connections") > OURS and time.monotonic() < deadline:
        await asyncio.sleep(0.5)
        await watch.look(client)
    now = {name: watch.last(name) for name in MAY_HOLD}
    rests = {name: watch.at_rest[name] or [now[name]] for name in MAY_HOLD}
    before = {name: levels[len(levels) // 2] for name, levels in rests.items()}
    return {name: {"in the middle lull": before[name], "at the end": now[name], "more allowed": more}
            for name, more in MAY_HOLD.items()}  # fmt: skip


@contextlib.asynccontextmanager
async def _progress(plan: Plan, stage: Stage, watch: Watch, console: Console | None) -> AsyncIterator[None]:
    """A bar while the block runs, if there is a console."""
    if console is None:
        yield
        return
    columns = (BarColumn(40), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        bar = progress.add_task("", total=plan.seconds)

        async def show() -> None:
            begun = time.monotonic()
            while True:
                passed = time.monotonic() - begun
                found = sum(stage.findings.counts.values())
                text = (
                    f"{stage.n_asked} requests, {stage.counts['evicted']} evicted, "
                    f"{watch.last('rss') / 2**20:.0f} MB, {found} found"
                )
                progress.update(bar, completed=passed, description=text)
                await asyncio.sleep(1)

        showing = asyncio.create_task(show())
        try:
            yield
        finally:
            showing.cancel()


def memory_file(folder: Path, user: str) -> Path:
    """Where the server keeps a user's messages."""
    from shepherd.memory.users import UserStores

    return UserStores(folder / "memory.db").path_of(user)


def plan_as_json(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__slots__}


def _latencies(stage: Stage) -> list[dict[str, float]]:
    return [
        {
            "minute": minute,
            "answers": len(seen.total_s),
            "first_ms_p50": round(1000 * quantile(seen.first_s, 0.5), 1),
            "first_ms_p95": round(1000 * quantile(seen.first_s, 0.95), 1),
            "total_ms_p50": round(1000 * quantile(seen.total_s, 0.5), 1),
            "total_ms_p95": round(1000 * quantile(seen.total_s, 0.95), 1),
        }
        for minute, seen in sorted(stage.minutes.items())
    ]


def _series(watch: Watch) -> dict[str, list[float]]:
    """All series, thinned to what a plot can show."""
    found: dict[str, list[float]] = {}
    for name, levels in watch.series.items():
        times, thin = thinned(watch.times_s, levels)
        found["time_s"] = [round(time_s) for time_s in times]
        found[name] = [round(level, 1) for level in thin]
    return found


def failures(result: dict[str, Any]) -> list[str]:
    """Why a run has failed; empty when it has not."""
    found = [f"{count} {kind}" for kind, count in result["found"].items() if count]
    if result["compared"].get("unjudged", 0) > max(2, UNJUDGED_SHARE * result["compared"].get("same", 0)):
        found.append(f"{result['compared']['unjudged']} unjudged")
    grown = [name for name, verdict in result["verdicts"].items() if verdict["word"] == "grows"]
    held = [
        name
        for name, seen in result["settled"].items()
        if seen["at the end"] > seen["in the middle lull"] + seen["more allowed"]
    ]
    return found + [f"{name} grows" for name in grown] + [f"{name} not let go" for name in held]


def show(result: dict[str, Any], console: Console) -> None:
    """The tables that a person reads."""
    answers = Table("what", "how many", title="requests")
    for name, count in {"all": result["requests"], **result["answers"], **result["tokens"]}.items():
        answers.add_row(name, f"{count:,}")
    console.print(answers)
    compared = Table("compared with a cold server", "how many")
    for name, count in result["compared"].items():
        compared.add_row(name, f"{count}")
    console.print(compared)
    if result["memory"]:
        memory = Table("memory of", "acknowledged", "in the file", "bytes", "at its limit")
        for user, seen in result["memory"].items():
            memory.add_row(user, *(f"{value}" for value in list(seen.values())))
        console.print(memory)
    if result["settled"]:
        settled = Table("held", "in the middle lull", "at the end", "more allowed")
        for name, seen in result["settled"].items():
            settled.add_row(name, *(f"{value:.0f}" for value in seen.values()))
        console.print(settled)
    series = Table("series", "verdict", "first", "last", "gain in the last third", "at 95 %", "allowed", title="growth")
    for name, verdict in result["verdicts"].items():
        numbers = [f"{verdict[key]:,.0f}" for key in ("first", "last", "gain")]
        interval = f"{verdict['low']:,.0f} to {verdict['high']:,.0f}"
        series.add_row(name, verdict["word"], *numbers, interval, f"{verdict['allowed']:,.0f}")
    console.print(series)
    for finding in result["findings"][:10]:
        console.print(f"[bold]{finding['kind']}[/]: {str(finding.get('what', ''))[:400]}")
    wrong = failures(result)
    console.print(
        "[bold red]FAILED: " + ", ".join(wrong) if wrong else "[bold green]nothing hung, wrong, lost or growing"
    )


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=6, help="4 to 8 are useful")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=3.0, help="requests per second at most, of all clients together")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds without progress that are a hang")
    parser.add_argument(
        "--cold-share", type=float, default=COLD_SHARE, help="of the answers, compared with a cold server"
    )
    parser.add_argument("--requests", type=int, help="end after so many")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-tiers", action="store_true")
    parser.add_argument("--no-pictures", action="store_true", help="without the model that sees")
    parser.add_argument("--no-shared", action="store_true", help="without conversations that begin with the same text")
    parser.add_argument("--surface", choices=SURFACES, action="append", help="only this one; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="in the server's environment")
    parser.add_argument("--quick", action="store_true", help="the result goes to a temporary folder")
    return parser.parse_args(arguments)


def main() -> None:
    said = options()
    plan = Plan(
        60 * said.minutes,
        clients=said.clients,
        seed=said.seed,
        per_second=said.rate,
        patience_s=said.patience,
        cold_share=said.cold_share,
        memory=not said.no_memory,
        tiers=not said.no_tiers,
        pictures=not said.no_pictures,
        shared=not said.no_shared,
        surfaces=tuple(said.surface or SURFACES),
        requests=said.requests,
        variables=tuple(tuple(pair.split("=", 1)) for pair in said.set),
    )
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    with tempfile.TemporaryDirectory(prefix="shepherd-soak-") as folder:
        result = asyncio.run(soak(plan, Path(folder), console))
    path = machine.save(f"soak-{said.minutes:g}m", result, quick=said.quick)
    show(result, console)
    console.print(f"written to {path} and {plot.draw(path)}")
    sys.exit(1 if failures(result) else 0)


if __name__ == "__main__":
    main()
