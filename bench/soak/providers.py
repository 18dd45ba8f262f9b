"""Providers with faults, for a long time: is nothing lost or doubled, does nothing hang or grow, is no key shown?

    uv run python -m bench.soak.providers [--minutes 20] [--clients 6] [--seed 1]

    clients ─ 4 surfaces ─▶ `shepherd serve` ─▶ routes, fallbacks, replicas, a budget ─▶ 6 providers, 1 local model

The providers (`tests/providers_scripted.py`) cut, drip, hang, send 429 and 500, garbage, and records of 10 MB. Each
question names the text of its answer, so that what a client reads is known: the whole of it, or its beginning and an
error. The server is a process of its own (`server.py`), watched from outside (`watch.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
from bench.rig import machine
from bench.rig.verdict import WIDTH
from bench.soak.checks import Findings
from bench.soak.growth import Allowance, Verdict, judge
from bench.soak.server import RAM_BYTES, Running, running
from bench.soak.surfaces import PROTOCOLS, TALKING, Answer, Ask, Surface, Turn
from bench.soak.watch import ALLOWED, FILLED_AFTER, FILLING, Watch
from rich.console import Console
from rich.table import Table
from tests.providers_replay import Answer as Raw
from tests.providers_replay import Way
from tests.providers_scripted import Heard, Said, ScriptedProvider

PATIENCE_S = 90.0
"""A request that takes longer hangs: the longest wait of a retry is 30 s."""
SETTLED_S = 30.0
BUDGET = 60_000
BIG = 10 * 2**20
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
SERIES = ("rss", "private", "rss of children", "in use", "blocks", "handles", "threads", "tasks", "metric lines")

FAULTS: tuple[tuple[str, float], ...] = (
    ("", 70),
    ("500", 4),
    ("429", 4),
    ("page", 3),
    ("garbage", 3),
    ("nothing", 3),
    ("no connection", 3),
    ("cut before", 3),
    ("cut behind", 4),
    ("drip", 4),
)
"""What a provider does, and how often of a hundred."""
ENDED = {429, 502, 503, 504}
"""Statuses of a request that all its providers have failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    clients: int = 6
    seed: int = 1
    requests: int | None = None
    """End after so many, however long it took."""
    pause_s: float = 0.3
    """Between two requests of a client, on average."""
    has_local: bool = True
    """Some routes go to the local model, or fall back to it."""

    @property
    def routes(self) -> tuple[str, ...]:
        return tuple(name for name, route in ROUTES.items() if self.has_local or "main" not in (route[0], *route[1]))


# -- the providers -----------------------------------------------------------------------------------------------------


NAMES = {
    "first": ("anthropic", "anthropic"),
    "second": ("openai", "openai.responses"),
    "third-a": ("vllm", "openai.chat"),
    "third-b": ("vllm", "openai.chat"),
    "fourth": ("gemini", "gemini"),
    "fifth": ("ollama", "ollama"),
}
ROUTES = {
    "steady": ("first", ("second", "main")),
    "spread": ("third", ("second",)),
    "poor": ("fourth", ("main",)),
    "far": ("fifth", ("first",)),
    "near": ("main", ()),
}
"""By the model that is asked for: the provider, or the local cache, and what answers in its place."""


def key_of(name: str) -> str:
    return f"sk-{name}-SECRET-0123456789abcdef"


def text_for(token: str) -> str:
    """The only right answer to a question that has this token."""
    rnd = random.Random(token)
    words = " ".join(
        rnd.choice(("red", "blau", "größer", "日本", "\U0001f40f", "a,b")) for _ in range(rnd.randint(3, 40))
    )
    return f"<{token}> {'x' * BIG if 'big' in token else words} </{token}>"


@dataclass
class Stage:
    """What the providers and the clients share."""

    findings: Findings = field(default_factory=Findings)
    counts: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    """How often each answer was given without a fault."""
    backends: dict[str, Counter[str]] = field(default_factory=dict)
    """By route, who answered."""
    n_asked: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class FaultyProvider(ScriptedProvider):
    """A strict provider that fails now and then."""

    def __init__(self, name: str, stage: Stage, seed: int) -> None:
        super().__init__(NAMES[name][1], self._say, name=name.replace("-", ""))  # type: ignore[arg-type]  # a protocol
        self._stage = stage
        self._random = random.Random(f"{name} {seed}")

    def _say(self, heard: Heard) -> Said | Raw:
        token = re.findall(r"\bt\d+[a-z]*-\d+\b", heard.last)[-1]
        kinds, weights = zip(*FAULTS, strict=True)
        fault = self._random.choices(kinds, weights)[0]
        self._stage.counts[f"fault: {fault or 'none'}"] += 1
        text, page = text_for(token), {"content-type": "text/html"}
        # What was heard is not kept: a soak has many requests.
        self.heard.clear()
        self.requests[:-1] = []
        match fault:
            case "500":
                return Raw("", b'{"error": {"message": "it broke", "type": "server_error"}}', 500, JSON)
            case "429":
                body = b'{"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}'
                return Raw("", body, 429, {**JSON, "retry-after": self._random.choice(("0", "1", "40"))})
            case "page":
                return Raw("", b"<html><h1>Bad gateway</h1></html>", 502, page)
            case "garbage":
                return Raw("", self._random.randbytes(300) + b"\n\n", 200, {"content-type": "text/event-stream"})
            case "nothing":
                return Raw("", b"", 200, {"content-type": "text/event-stream"})
            case "no connection":
                return Raw("", b"x", way=Way(break_at=0))
            case "cut before":
                return replace(Said(text, "Hm."), way=Way(break_at=1))
            case "cut behind":
                return Said(text, breaks_behind=f"<{token}>")
        self._stage.told[token] += 1
        if "leave" in token:
            return Said(text, "Hm.", hangs_behind=f"<{token}>")
        if "tool" in token and "look" in heard.tools and not heard.results:
            self._stage.told[token] -= 1  # the answer comes behind the result
            return Said("", "A tool.", (("look", {"at": token}),))
        way = Way(self._random.randint(0, 999), 60, 0.002) if fault == "drip" and "big" not in token else Way()
        return Said(text, "Hm." if self._random.random() < 0.5 else "", way=way)


JSON = {"content-type": "application/json"}


@contextlib.asynccontextmanager
async def providers(stage: Stage, seed: int) -> AsyncIterator[dict[str, FaultyProvider]]:
    made = {name: FaultyProvider(name, stage, seed) for name in NAMES}
    servers = [await each.serve() for each in made.values()]
    try:
        yield made
    finally:
        for server in servers:
            server.close()
        for each in made.values():
            await each.aclose()


def configuration(folder: Path, made: dict[str, FaultyProvider]) -> str:
    rows = "".join(
        f'[providers.{name}]\ntype = "{kind}"\nprotocol = "{protocol}"\nbase_url = "{made[name].url}"\n'
        f'api_key = "{key_of(name)}"\nmodel = "{"gemini-3-flash" if name == "fourth" else f"m-{name}"}"\n'
        + ("weight = 2\n" if name == "third-b" else "")
        + (f"budget_tokens = {BUDGET}\n" if name == "fourth" else "")
        for name, (kind, protocol) in NAMES.items()
    )
    rows += '[providers.third]\ntype = "vllm"\nreplicas = ["third-a", "third-b"]\n'
    routes = "".join(
        f'[[routes]]\nmatch = "{match}*"\n{"cache" if target == "main" else "provider"} = "{target}"\n'
        + (f"fallback = {json.dumps(fallback)}\n" if fallback else 'privacy = "local"\n')
        for match, (target, fallback) in ROUTES.items()
    )
    return f"""
[models.lamb]
path = "embedded"
n_threads = 1
[caches.main]
model = "lamb"
n_ctx = 2048
sequences = 4
[kv]
ram_bytes = {RAM_BYTES}
[memory]
database_path = "{folder / "memory.db"}"
[server]
host = "127.0.0.1"
port = 0
debug = true
debug_dir = "{folder / "debug"}"
responses_file = "{folder / "responses.db"}"
responses_bytes = 1048576
{rows}{routes}"""


# -- the clients -------------------------------------------------------------------------------------------------------


class Client:
    """Plays conversations, one request at a time."""

    def __init__(self, number: int, stage: Stage, http: httpx.AsyncClient, plan: Plan, tail: Callable[[], str]) -> None:
        """`tail`: the end of the server's log."""
        self._number = number
        self._tail = tail
        self._stage = stage
        self._http = http
        self._plan = plan
        self._random = random.Random(f"client {number} {plan.seed}")
        self._n = 0

    async def run(self) -> None:
        while not self._stage.done.is_set():
            rnd = self._random
            surface, route = rnd.choice(TALKING), rnd.choice(self._plan.routes)
            turns: list[Turn] = []
            for _ in range(rnd.randint(1, 5)):
                kind = rnd.choices(("", "leave", "tool", "big"), (80, 10, 10, 0.3))[0]
                if kind == "tool" and surface != "chat":
                    kind = ""
                self._n += 1
                token = f"t{self._number}{kind}-{self._n}"
                turns.append(Turn("user", f"Conversation {self._number}: say {token}."))
                model = f"{route}-{rnd.randint(0, 3)}"
                asked = Ask(surface, model, tuple(turns), max_tokens=24, stream=rnd.random() < 0.7)
                answer = await self._ask(asked, token, route)
                await asyncio.sleep(rnd.expovariate(1 / self._plan.pause_s) if self._plan.pause_s else 0)
                if self._stage.done.is_set() or answer is None or len(answer.text) > 10_000:
                    break
                turns.append(Turn("assistant", answer.text))

    async def _ask(self, asked: Ask, token: str, route: str) -> Answer | None:
        """The whole answer; None for one that did not come. What is wrong becomes a finding."""
        stage = self._stage
        stage.n_asked += 1
        if stage.n_asked >= (self._plan.requests or sys.maxsize):
            stage.done.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                if "leave" in token:
                    await self._leaving(asked)
                    return None
                answer, by = await self._answer(asked, tool="tool" in token and asked.surface == "chat")
        except TimeoutError:
            stage.findings.add("hang", f"{asked.surface} {asked.model}: no end within {PATIENCE_S:g} s", token=token)
            stage.done.set()
            return None
        except (httpx.HTTPError, ValueError, KeyError, TypeError, IndexError) as error:
            stage.findings.add("broken", f"{asked.surface} {asked.model}: {error!r}", token=token, log=self._tail())
            return None
        return self._checked(asked, token, route, answer, by)

    def _checked(self, asked: Ask, token: str, route: str, answer: Answer, by: str) -> Answer | None:
        stage, where = self._stage, f"{asked.surface} {asked.model}"
        stage.backends.setdefault(route, Counter())[by or "none"] += 1
        whole = text_for(token)
        if answer.status != 200:
            stage.counts[f"status {answer.status}"] += 1
            if answer.status not in ENDED or route == "near":
                stage.findings.add("refused", f"{where}: {answer.status} {answer.error[:300]}", token=token)
            return None
        # A head that went out before the first event does not know who answers.
        is_known = by in NAMES or (by == "-" and (answer.text.startswith(f"<{token}") or not answer.text))
        if not is_known:  # the local model
            stage.counts["answered here"] += 1
            if route not in ("near", "steady", "poor"):
                stage.findings.add("wrong", f"{where}: the local model has answered", token=token)
            return answer if answer.text and not answer.error else None
        if route == "near":
            stage.findings.add("wrong", f"{where}: {by} has answered a private prompt", token=token)
        if answer.error:
            stage.counts["error behind text"] += 1
            if not whole.startswith(answer.text):
                stage.findings.add("wrong", f"{where}: {answer.text[:200]!r} is no beginning", token=token)
            return None
        stage.counts["answered"] += 1
        if answer.text != whole:
            at = next((n for n, pair in enumerate(zip(answer.text, whole, strict=False)) if pair[0] != pair[1]), -1)
            stage.findings.add("wrong", f"{where} by {by}: {answer.text[:200]!r}", at=at, length=len(answer.text))
        if answer.finish is None:
            stage.findings.add("broken", f"{where}: the answer does not say why it ended", token=token)
        return answer

    async def _leaving(self, asked: Ask) -> None:
        """Leave in the middle."""
        asked = replace(asked, stream=True)
        reading = asyncio.create_task(self._answer(asked, leave=True))
        done, _ = await asyncio.wait([reading], timeout=self._random.uniform(0.05, 3.0))
        self._stage.counts["left" if reading not in done or not reading.exception() else "left: failed before"] += 1
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async def _answer(self, asked: Ask, *, tool: bool = False, leave: bool = False) -> tuple[Answer, str]:
        """The answer, and the name of the provider that gave it. `tool`: a call is answered, and followed."""
        protocol = PROTOCOLS[asked.surface]
        body = {**protocol.body(asked), "stream": asked.stream}
        if tool:
            body["tools"] = [{"type": "function", "function": TOOL}]
        answer, by = await self._posted(protocol.path, body, asked.surface, leave=leave)
        if tool and answer.calls and not answer.error:
            self._stage.counts["calls"] += 1
            calls = [{"id": f"call_{at}", "type": "function", "function": call} for at, call in enumerate(answer.calls)]
            results = [{"role": "tool", "tool_call_id": each["id"], "content": "a tree"} for each in calls]
            body["messages"] += [{"role": "assistant", "content": answer.text or None, "tool_calls": calls}, *results]
            answer, by = await self._posted(protocol.path, body, asked.surface, leave=leave)
        return answer, by

    async def _posted(self, path: str, body: Any, surface: Surface, *, leave: bool) -> tuple[Answer, str]:
        protocol, answer = PROTOCOLS[surface], Answer(0)
        async with self._http.stream("POST", path, json=body) as response:
            answer.status = response.status_code
            by = response.headers.get("x-shepherd-backend", "").partition(":")[0]
            self._look_for_keys(str(response.headers))
            if response.status_code != 200 or not body["stream"]:
                text = (await response.aread()).decode()
                if response.status_code != 200:
                    self._look_for_keys(text)
                    answer.error = text
                else:
                    protocol.take(answer, json.loads(text))
                return answer, by
            has_ended = False
            async for line in response.aiter_lines():
                record = line.removeprefix("data:").strip()
                if not record.startswith("{"):
                    continue
                piece = json.loads(record)
                if piece.get("error") or piece.get("type") in ("error", "response.failed"):
                    self._look_for_keys(record)
                    answer.error = record
                    return answer, by
                protocol.take(answer, piece)
                has_ended = has_ended or protocol.ends(piece) or answer.finish is not None
                if leave and answer.text:
                    return answer, by
            if not has_ended and not leave:
                raise ValueError(f"the stream has no end behind {answer.text[-100:]!r}")
        return answer, by

    def _look_for_keys(self, text: str) -> None:
        if "SECRET" in text:
            self._stage.findings.add("wrong", f"a key is shown: {text[:300]}")


# -- all of it ---------------------------------------------------------------------------------------------------------


async def soak(plan: Plan, folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Run it; the result, as it is written to a file."""
    stage = Stage()
    begun = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(providers(stage, plan.seed))
        variables = {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}
        config = configuration(folder, made)
        server = await stack.enter_async_context(
            running(config, folder, "warm", "--log-level", "debug", variables=variables)
        )
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16, keepalive_expiry=2.0)
        http, watching = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, timeout=None, limits=limits))
            for _ in range(2)
        ]
        watch = Watch(server, folder)
        await watch.look(watching)
        background = asyncio.create_task(watch.run(watching))
        clients = [asyncio.create_task(Client(at, stage, http, plan, server.tail).run()) for at in range(plan.clients)]
        waiting = asyncio.create_task(stage.done.wait())
        until_s = begun + plan.seconds
        while not stage.done.is_set() and (left_s := until_s - time.monotonic()) > 0:
            done, _ = await asyncio.wait(
                (waiting, *clients), timeout=min(30.0, left_s), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done - {waiting}:
                if (error := task.exception()) is not None:  # those that end without one have seen that it is over
                    stage.findings.add("broken", f"the soak itself: {error!r}")
                    stage.done.set()
            if console is not None:
                found = sum(stage.findings.counts.values())
                rss = watch.last("rss") / 2**20
                console.print(
                    f"{time.monotonic() - begun:.0f} s, {stage.n_asked} requests, {rss:.0f} MB, {found} found"
                )
        stage.done.set()
        waiting.cancel()
        hanging = (await asyncio.wait(clients, timeout=PATIENCE_S + 10))[1]
        for task in hanging:
            stage.findings.add("hang", "a client does not end")
            task.cancel()
        await http.aclose()
        settled = await settle(stage, watch, watching, made)
        background.cancel()
        spending = (await watching.get("/v1/caches")).json()["providers"]
    if server.status:
        stage.findings.add("broken", f"the server ended with status {server.status}", log=server.tail())
    check_the_end(stage, server, folder, made, spending)
    return {
        "bench": "soak_providers",
        "plan": {name: getattr(plan, name) for name in plan.__slots__} | {"ran_s": round(time.monotonic() - begun)},
        "requests": stage.n_asked,
        "found": dict(stage.findings.counts),
        "findings": stage.findings.told,
        "counts": dict(sorted(stage.counts.items())),
        "answered by": {route: dict(found) for route, found in sorted(stage.backends.items())},
        "spent of the budget": [spending["fourth"]["today"], BUDGET],
        "settled": settled,
        "stopped_s": round(server.stopped_s, 1),
        "verdicts": {name: verdict.as_json() for name, verdict in verdicts(plan, watch).items()},
    }


def verdicts(plan: Plan, watch: Watch) -> dict[str, Verdict]:
    """What the series do. What the local model remembers of prompts has to be full before its size shows anything."""
    # A line for each pair of surface and back end that has met; the last pairs meet late.
    allowed = {**ALLOWED, "metric lines": Allowance(least=200)}
    found = {name: judge(watch.times_s, watch.series[name], allowed[name]) for name in SERIES}
    n_jobs = watch.series["jobs"][len(watch.times_s) * 2 // 3]
    if plan.has_local and n_jobs < FILLED_AFTER:
        found |= {name: replace(found[name], word="too short") for name in FILLING}
    return found


async def settle(
    stage: Stage, watch: Watch, http: httpx.AsyncClient, made: dict[str, FaultyProvider]
) -> dict[str, float]:
    """Wait until nothing is under way any more; what is left then."""

    def under_way() -> int:
        return sum(not each.has_left.is_set() for provider in made.values() for each in provider.requests)

    deadline = time.monotonic() + SETTLED_S
    while True:
        caches = (await http.get("/v1/caches")).json()["caches"]
        live = sum(each["live"] + each["waiting"] for each in caches.values())
        await watch.look(http)
        if (not live and not under_way()) or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    if live or under_way():
        stage.findings.add("hang", f"{live} jobs, {under_way()} requests to providers are left behind all clients")
    await asyncio.sleep(1.5)  # the heap's own sample
    await watch.look(http)
    return {name: watch.last(name) for name in ("connections", "handles", "threads", "tasks", "rss")} | {
        "jobs": live, "requests to providers": under_way(),
    }  # fmt: skip


def check_the_end(stage: Stage, server: Running, folder: Path, made: dict[str, FaultyProvider], spending: Any) -> None:
    """What only the whole run shows."""
    for token, n in stage.told.items():
        if n > 1:
            stage.findings.add("wrong", f"the answer to {token} was given {n} times")
    for name, provider in made.items():
        if provider.faults:
            stage.findings.add("refused", f"{name} was sent what the real one refuses: {provider.faults[:3]}")
    keys = [key_of(name).encode() for name in NAMES]
    for file in (server.log, *folder.rglob("*")):
        if file.is_file() and file.suffix != ".toml" and any(key in file.read_bytes() for key in keys):
            stage.findings.add("wrong", f"{file.name} holds a key")
    today = spending["fourth"]["today"]
    spent = sum(value for name, value in today.items() if name in ("input", "cached", "output"))
    if spent > 2 * BUDGET:
        stage.findings.add("wrong", f"{spent} tokens were spent of a budget of {BUDGET}")


def failures(result: dict[str, Any]) -> list[str]:
    """Why a run has failed; empty when it has not."""
    grown = [f"{name} grows" for name, verdict in result["verdicts"].items() if verdict["word"] == "grows"]
    return [f"{count} {kind}" for kind, count in result["found"].items()] + grown


def show(result: dict[str, Any], console: Console) -> None:
    counts = Table("what", "how many", title="requests")
    for name, count in {"all": result["requests"], **result["counts"]}.items():
        counts.add_row(name, f"{count:,}")
    console.print(counts)
    for route, found in result["answered by"].items():
        console.print(f"{route}: {found}")
    console.print(f"budget: {result['spent of the budget']}, left: {result['settled']}")
    series = Table("series", "verdict", "first", "last", "gain in the last third", "allowed", title="growth")
    for name, verdict in result["verdicts"].items():
        series.add_row(name, verdict["word"], *(f"{verdict[key]:,.0f}" for key in ("first", "last", "gain", "allowed")))
    console.print(series)
    for finding in result["findings"][:10]:
        console.print(f"[bold]{finding['kind']}[/]: {str(finding['what'])[:400]}")
    wrong = failures(result)
    console.print(
        f"[bold red]FAILED: {', '.join(wrong)}" if wrong else "[bold green]nothing hung, wrong, lost or growing"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, help="end after so many")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two requests of a client, on average")
    parser.add_argument("--quick", action="store_true", help="the result goes to a temporary folder")
    parser.add_argument("--no-local", action="store_true", help="without the routes that may reach the local model")
    given = parser.parse_args(arguments)
    plan = Plan(60 * given.minutes, given.clients, given.seed, given.requests, given.pause, not given.no_local)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    with tempfile.TemporaryDirectory(prefix="shepherd-soak-") as folder:
        result = asyncio.run(soak(plan, Path(folder), console))
    path = machine.save(f"soak-providers-{given.minutes:g}m", result, quick=given.quick)
    show(result, console)
    console.print(f"written to {path}")
    sys.exit(1 if failures(result) else 0)


if __name__ == "__main__":
    main()
