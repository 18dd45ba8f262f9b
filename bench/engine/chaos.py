"""Kills of an engine's process, counted: what is lost, doubled, wrong, left behind, slow, or grows?

    uv run python -m bench.engine.chaos [--kills 300] [--restarts 1000] [--seed 1] [--plant FAULT]

    8 conversations ─ 4 protocols, images, memory ─▶ ┌───────────────┐ ─▶ child: a model that sees   ◀─ killed
                                                     │ shepherd serve│
    `rig/pulse.py` ─ /health, a stream without end ─▶└───────────────┘ ─▶ child: another model

First the kills (`kills.py`) under conversations, each of whose requests is sent again until it is answered. Then
what is there is compared: every acknowledged message with the memory, answers with those of a cold server, and what the
server holds with what it held before. Last the restarts: the child is killed and a request waited for, again and again.
SIGINT and SIGTERM end the kills, and then the restarts, early; the results are written all the same. The status is 0
only when every count of `found` is 0. `--plant` puts a fault in (`PLANTS`): the count that is named there must then not
be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
from bench.engine.conversations import KEEPS, RECALLS, Stage, Talker
from bench.engine.kills import STALL_S, Killer, engines
from bench.rig import machine, remains
from bench.rig.remains import Held
from bench.rig.verdict import WIDTH, quantile
from bench.soak.checks import Colds, Findings, Kind
from bench.soak.server import Running, eyes, running
from bench.soak.surfaces import Ask, Turn, ask
from rich.console import Console
from rich.table import Table
from tests.unit.engine.tiny_projector import write_seeing

N_CTX = 2048
PATIENCE_S = 60.0
"""A request without progress for so long hangs, a child that is not answering again as well."""
SETTLED_S = 10.0
"""So long after the last request the server may take to put away what it no longer needs."""
ZOMBIE_S = 5.0
"""A child that has ended must be taken notice of within this."""
ENGINES = SEES, OTHER = "eyes", "other"
"""The models: the one that is killed, and the other."""
COLD_SHARE = 0.2
"""Of the answers under kills, those that a cold server is asked for as well."""

GROWTH: Mapping[str, float] = {
    "rss": 16 * 2**20, "handles": 4, "threads": 3, "memory_files": 0, "shared": 0, "files": 0,
}  # fmt: skip
"""What the server may hold more after all restarts. Of memory: 16 kB for each of a thousand."""

COUNTS: tuple[Kind, ...] = (
    "lost", "doubled", "wrong", "hang", "broken", "refused", "zombie", "child", "shared memory", "file", "slow health",
    "gap", "growth",
)  # fmt: skip

HOLDS = """
import ctypes, threading, time
def hold():
    while True:
        time.sleep(1)
        ctypes.PyDLL(None).usleep(250_000)
threading.Thread(target=hold, daemon=True).start()
"""
"""Holds the interpreter's lock for a quarter of a second, every second."""
HANGS_UP = """
import os, socket, threading, time
def hang_up():
    while True:
        time.sleep(1)
        for name in os.listdir('/proc/self/fd'):
            try:
                with socket.socket(fileno=os.dup(int(name))) as one:
                    if one.family == socket.AF_INET and one.getpeername():
                        one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
threading.Thread(target=hang_up, daemon=True).start()
"""
"""Cuts all connections, every second."""
GROWS = """
import os, threading, time
def grow():
    while True:
        time.sleep(0.1)
        os.dup(2)
threading.Thread(target=grow, daemon=True).start()
"""
PLANTED = "shepherd-planted"
PLANTS: Mapping[str, tuple[Kind, str]] = {
    "a message forgotten": ("lost", ""),
    "a question archived again": ("doubled", ""),
    "an answer changed": ("wrong", ""),
    "a request that is refused": ("refused", ""),
    "little patience": ("hang", ""),
    "cut connections": ("broken", HANGS_UP),
    "a zombie": ("zombie", "import subprocess; kept = subprocess.Popen(['true'])"),
    "a process": ("child", "import subprocess; kept = subprocess.Popen(['sleep', '900'], start_new_session=True)"),
    "shared memory": ("shared memory", f"open('/dev/shm/{PLANTED}', 'w').write('x')"),
    "a folder": ("file", f"import tempfile; tempfile.mkdtemp(prefix='{PLANTED}-')"),
    "a held lock": ("slow health", HOLDS),
    "a held lock in streams": ("gap", HOLDS),
    "handles": ("growth", GROWS),
}
"""By name: the count that must find it, and what the server runs first; without that, it is planted by its name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run."""

    kills: int = 300
    restarts: int = 1000
    conversations: int = 8
    seed: int = 1
    plant: str | None = None

    @property
    def patience_s(self) -> float:
        return 1.0 if self.plant == "little patience" else PATIENCE_S


# -- the servers -------------------------------------------------------------------------------------------------------


def configuration(folder: Path, model: Path, projector: Path) -> str:
    """That of the server whose child is killed."""
    return f"""
{eyes(model, projector)}isolate = true
[models.other]
path = "embedded"
n_threads = 1
isolate = true
[caches.eyes]
model = "eyes"
n_ctx = {N_CTX}
sequences = 8
queue = 32
[caches.other]
model = "other"
n_ctx = {N_CTX}
[kv]
ram_bytes = 33554432
disk = true
disk_bytes = 33554432
stall_s = {STALL_S}
folder = "{folder / "kv"}"
[memory]
database_path = "{folder / "memory.db"}"
[server]
host = "127.0.0.1"
port = 0
responses_file = "{folder / "responses.db"}"
[[routes]]
match = "{KEEPS}"
cache = "eyes"
archive = true
recall = false
[[routes]]
match = "{RECALLS}"
cache = "eyes"
archive = true
recall = true
[[routes]]
match = "{OTHER}"
cache = "other"
[[routes]]
match = "*"
cache = "eyes"
"""


def cold_configuration(folder: Path, model: Path, projector: Path) -> str:
    """That of the one which answers what it is asked without a past."""
    return f"""
{eyes(model, projector)}[caches.eyes]
model = "eyes"
n_ctx = {N_CTX}
[kv]
ram_bytes = 0
folder = "{folder / "cold-kv"}"
[memory]
database_path = "{folder / "cold.db"}"
enable_archival = false
[server]
host = "127.0.0.1"
port = 0
"""


def has_open(process: psutil.Process, file: Path) -> bool:
    """Whether a process has a file mapped."""
    with contextlib.suppress(OSError):
        return str(file) in Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
    return False


# -- what is left ------------------------------------------------------------------------------------------------------


async def _watch_zombies(server: psutil.Process, findings: Findings) -> None:
    """Look for children that have ended and stay, until cancelled."""
    since_s: dict[psutil.Process, float] = {}
    while True:
        now_s = time.monotonic()
        seen = remains.zombies(server)
        since_s = {each: since_s.get(each, now_s) for each in seen}
        for each in [each for each, first_s in since_s.items() if now_s - first_s > ZOMBIE_S]:
            findings.add("zombie", f"process {each.pid} has ended {ZOMBIE_S:g} s ago, and nothing takes notice")
            since_s[each] = float("inf")
        await asyncio.sleep(0.25)


def _check_rest(server: psutil.Process, before: Held, temporary: Path, findings: Findings) -> None:
    """What the server holds at rest, compared with what it held when it had just started."""
    others = [each for each in server.children(recursive=True) if each.pid not in engines(server)]
    if len(engines(server)) != len(ENGINES) or others:
        findings.add("child", f"{len(engines(server))} engines run and {len(ENGINES)} should, beside {others}")
    now = Held.of(server, temporary)
    if (now.memory_files, now.shared) > (before.memory_files, before.shared):
        findings.add("shared memory", f"the server holds {now} and held {before}")
    if now.files > before.files:
        findings.add("file", f"{now.files} temporary files are there, {before.files} were", names=_names(temporary))


def _check_end(server: Running, mark: str, names: set[str], temporary: Path, findings: Findings) -> None:
    """What is left when the server has ended; processes that are, are ended."""
    if server.status:
        findings.add("broken", f"the server ended with status {server.status}", log=server.tail())
    for each in remains.marked(mark):
        findings.add("child", f"process {each.pid} outlives the server: {each.cmdline()}")
        each.kill()
    if left := remains.orphaned(remains.shared_names() - names):
        findings.add("shared memory", f"left in {remains.SHARED}: {sorted(left)}")
    if any(temporary.iterdir()):
        findings.add("file", "temporary files are left", names=_names(temporary))
    (remains.SHARED / PLANTED).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))[:20]


def _check_growth(held: Sequence[Held], findings: Findings) -> dict[str, Any]:
    """What the server held behind the first tenth of the restarts, and behind the last."""
    tenth = max(1, len(held) // 10)
    looked: dict[str, Any] = {"n": len(held)}
    for name, allowed in GROWTH.items() if len(held) > 1 else ():
        levels = [float(getattr(each, name)) for each in held]
        first, last = statistics.median(levels[tenth : 2 * tenth] or levels[:1]), statistics.median(levels[-tenth:])
        looked[name] = {"first": first, "last": last, "more allowed": allowed}
        if last > first + allowed:
            findings.add("growth", f"{name}: {first:,.0f} behind the first restarts, {last:,.0f} behind the last")
    return looked


async def _check_memory(stage: Stage) -> dict[str, Any]:
    """Compare what was acknowledged with what the server says that its memories have."""
    looked = {}
    for user in sorted(stage.said.questions):
        rows = await stage.client.get("/v1/memory/export", headers={"x-shepherd-user": user}, timeout=stage.patience_s)
        stored = [(row["role"], row["body"]) for row in map(json.loads, rows.text.splitlines()) if "role" in row]
        looked[user] = stage.said.check(user, stored, stage.findings)
    return looked


async def _plant(plan: Plan, stage: Stage) -> None:
    """What is planted by its name, in the memory and in what is asked."""
    user, said = next(iter(stage.said.questions.items()))
    mark = next(iter(said))
    headers = {"x-shepherd-user": user}
    match plan.plant:
        case "a message forgotten":
            (await stage.client.post("/v1/memory/forget", json={"matching": mark}, headers=headers)).raise_for_status()
        case "a question archived again":
            again = Ask("chat", KEEPS, (Turn("user", f"Once more, {mark}"),), max_tokens=1, user=user)
            await ask(stage.client, again, stage.patience_s)
        case "a request that is refused":
            wrong = Ask("chat", KEEPS, (Turn("user", "How many 0-0?"),), extra={"max_tokens": "many"})
            await stage.answered(wrong, random.Random(0))


# -- all of it ---------------------------------------------------------------------------------------------------------


async def chaos(plan: Plan, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run it; the result, as it is written to a file."""
    model, projector = write_seeing("llava", folder)
    findings, mark, begun_s = Findings(), secrets.token_hex(8), time.monotonic()
    temporary, names = folder / "tmp", remains.shared_names()
    temporary.mkdir()
    variables = {remains.MARK: mark, "TMPDIR": str(temporary)}
    planted = PLANTS[plan.plant][1] + "\n" if plan.plant else ""
    result: dict[str, Any] = {"bench": "chaos", "plan": asdict(plan)}
    async with contextlib.AsyncExitStack() as stack:
        warm = await stack.enter_async_context(
            running(configuration(folder, model, projector), folder, "warm", variables=variables, before=planted)
        )
        cold = await stack.enter_async_context(running(cold_configuration(folder, model, projector), folder, "cold"))
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=2.0)
        client, asking = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=None, limits=limits))
            for url in (warm.url, cold.url)
        ]
        colds = Colds(asking, findings, share=COLD_SHARE, seed=plan.seed, patience_s=PATIENCE_S, cache=lambda _: SEES)
        stage = Stage(client, colds, findings, seed=plan.seed, patience_s=plan.patience_s)
        for name in ENGINES:
            await stage.answered(Ask("chat", name, (Turn("user", "Hello 0-0?"),), max_tokens=1), random.Random(0))
        spared = next(pid for pid, each in engines(warm.process).items() if not has_open(each, model))
        killer = Killer(stage, warm.process, SEES, spared)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, killer.enough.set)
        before = Held.of(warm.process, temporary)
        watching = asyncio.create_task(_watch_zombies(warm.process, findings))
        async with _pulse(warm, spared, findings, result):
            if await _talk(plan, stage, killer, console):
                await _plant(plan, stage)
                await _compare(plan, stage)
                result["memory"] = await _check_memory(stage)
                (await client.delete(f"/v1/caches/{SEES}")).raise_for_status()
                await asyncio.sleep(SETTLED_S)
                _check_rest(warm.process, before, temporary, findings)
                result["restarts"] = _check_growth(await killer.restarts(plan.restarts, temporary), findings)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    _check_end(warm, mark, names, temporary, findings)
    lasted_s = stage.deaths.lasted_s()
    return result | {
        "ran_s": round(time.monotonic() - begun_s),
        "killed": {"all": killer.done.total(), **dict(sorted(killer.done.items()))},
        "back_s": {f"p{100 * share:g}": round(quantile(lasted_s, share), 2) for share in (0.5, 0.9, 0.99, 1.0)},
        "answers": dict(sorted(stage.counts.items())),
        "compared": {**colds.outcomes, "greatest tie": round(colds.greatest_tie, 4)},
        "told": dict(stage.sentences.most_common(20)),
        "found": {count: findings.counts[count] for count in COUNTS},
        "findings": findings.told,
    }


async def _talk(plan: Plan, stage: Stage, killer: Killer, console: Console | None) -> bool:
    """Let the conversations talk until all kills are done, or something hangs; whether it went well."""
    talkers = [Talker(stage, number) for number in range(plan.conversations)]
    comparing = asyncio.create_task(stage.colds.run())
    showing = asyncio.create_task(_progress(stage, killer, console))
    talking = [asyncio.create_task(each.run()) for each in talkers]
    try:
        await killer.run(plan.kills)
    except TimeoutError:
        stage.findings.add("hang", f"{stage.patience_s:g} s after it was killed, the child does not answer")
        stage.done.set()
    is_well = not stage.done.is_set()
    stage.done.set()
    for ended in await asyncio.gather(*talking, return_exceptions=True):
        if isinstance(ended, BaseException):
            stage.findings.add("broken", f"the bench itself: {ended!r}")
    await stage.colds.drain(PATIENCE_S)
    for task in (comparing, showing):
        task.cancel()
    await asyncio.gather(comparing, showing, return_exceptions=True)
    stage.latest = [asked for each in talkers for asked in each.latest]
    return is_well


async def _progress(stage: Stage, killer: Killer, console: Console | None) -> None:
    while console is not None:
        await asyncio.sleep(15)
        found = sum(stage.findings.counts.values())
        console.print(f"{killer.done.total()} kills, {stage.counts['answered']} answers, {found} found")


async def _compare(plan: Plan, stage: Stage) -> None:
    """Ask the latest conversations once more, request by request, and a cold server as well."""
    for asked in stage.latest:
        answer = await stage.answered(asked, random.Random(0))
        if answer is not None:
            if plan.plant == "an answer changed":
                answer.text = f"x{answer.text}"
            await stage.colds.compare(asked, answer)


@contextlib.asynccontextmanager
async def _pulse(server: Running, child: int, findings: Findings, result: dict[str, Any]) -> AsyncIterator[None]:
    """Watch /health and the other model's stream for the length of the block; what was slow is a finding."""
    command = (sys.executable, "-m", "bench.rig.pulse", server.url, OTHER, str(server.process.pid), str(child))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=machine.ROOT)
    try:
        yield
    finally:
        output, _ = await process.communicate(b"")
    seen = json.loads(output)
    kinds: Mapping[str, Kind] = {"health": "slow health", "gaps": "gap"}
    for name, kind in kinds.items():
        result[name] = seen[name]
        for each in seen[name]["told"][: seen[name]["slow"]]:
            findings.add(kind, f"{each['ms']} ms, of which {each['waited_ms']} for a processor", at_s=each["at_s"])
        findings.counts[kind] = seen[name]["slow"]
    for failure in seen["failures"]:
        findings.add("broken", failure)


def show(result: dict[str, Any], console: Console) -> None:
    """The tables that a person reads."""
    for title in ("killed", "answers", "back_s", "compared", "health", "gaps", "restarts", "found"):
        table = Table(title, "")
        for name, value in result.get(title, {}).items():
            table.add_row(name, f"{value}" if name != "told" else "")
        console.print(table)
    for finding in result["findings"][:20]:
        console.print(f"[bold]{finding['kind']}[/]: {str(finding.get('what', ''))[:400]}")
    wrong = [f"{n} {count}" for count, n in result["found"].items() if n]
    console.print("[bold red]FOUND: " + ", ".join(wrong) if wrong else "[bold green]nothing found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--restarts", type=int, default=1000)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plant", choices=PLANTS, help="a fault that must be found")
    parser.add_argument("--quick", action="store_true", help="the result goes to a temporary folder")
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    plan = Plan(said.kills, said.restarts, said.conversations, said.seed, said.plant)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    console.print(f"seed {plan.seed}")
    with tempfile.TemporaryDirectory(prefix="shepherd-chaos-") as folder:
        result = asyncio.run(chaos(plan, Path(folder), console))
    path = machine.save("chaos", result, quick=said.quick or plan.plant is not None)
    show(result, console)
    console.print(f"written to {path}")
    sys.exit(1 if any(result["found"].values()) else 0)


if __name__ == "__main__":
    main()
