"""One run: how its time is shared out between the engine, the dialogue and the archive, and what each may do.

    probe ─▶ depth ─▶ engine, in child processes ─▶ dialogue, in process and through HTTP ─▶ archive ─▶ Measured
                   └▶ the same requests to two servers, in turn                                       ─▶ Measured, twice

Only one model is loaded at a time. Everything stops at a cancellation; what was measured until then stays.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from shepherd.app.app import App
from shepherd.backends.cloud.transport import Deadlines
from shepherd.config import CacheConfig, Config, MemoryConfig, ModelConfig, RouteConfig
from shepherd.config.schema import ToolsConfig
from shepherd.core import EngineError, InvalidRequest, Message, Sampling
from shepherd.core.dataclasses import asdict, dataclass, replace
from shepherd.engine.llamacpp import selftest
from shepherd.measure import archive, http, trial
from shepherd.measure.dialogue import (
    IN_PROCESS,
    WORDS,
    Overflow,
    Prompts,
    ServerCost,
    Side,
    ask_through,
    check_streams,
    first_tokens,
    timed,
)
from shepherd.measure.metrics import Measured
from shepherd.measure.space import OF_CACHES
from shepherd.measure.subject import Subject
from shepherd.measure.trial import Run, Workload

T = TypeVar("T")
Served = Callable[[App], AbstractAsyncContextManager[tuple[str, str]]]
"""A server for an app: its address and its key."""
ServerFactory = Callable[[int], AbstractAsyncContextManager[tuple[str, str]]]
"""The model over so many cells behind a server in another process: its address and its key."""

DEPTHS = (512, 128)
"""Tokens of a long prompt: the first that leaves time for `LEAST_ROUNDS` rounds."""
N_GENERATE = 32
LEAST_ROUNDS = 3
PROBE = Workload(depth=128, n_generate=8)
CHILDREN = 2
"""Processes that measure the engine: one may have been lucky with its memory."""
SLOWEST, LEAST_S = 5, 60.0
"""A child may take `SLOWEST` times as long as the probe suggests, and `LEAST_S` in any case."""
ENGINE, ARCHIVE = 0.4, 0.12
"""Their parts of the budget; the dialogue has the rest."""
_CACHE = "bench"


@dataclass(frozen=True, slots=True)
class Other:
    url: str
    """Without `/v1`."""
    model: str | None = None
    key: str | None = None
    deadlines: Deadlines = http.DEADLINES


class Session:
    """One run, on one event loop. `found` and `other` hold the samples so far at any time."""

    def __init__(
        self, config: Config, subject: Subject, *, budget_s: float, folder: Path, cache_folder: Path, served: Served
    ) -> None:
        """`folder`: for the archive, on the disk that is measured."""
        self._config, self.subject = config, subject
        self.on_step: Callable[[], None] = lambda: None
        """Called after each measurement."""
        self._ends_s = time.monotonic() + budget_s
        self._budget_s = budget_s
        self._folder, self._cache_folder, self._served = folder, cache_folder, served
        self.found, self.other = Measured(), Measured()
        self.phase = "engine"
        self.other_name = self.other_model = ""

    async def run(self) -> None:
        """All standard metrics. Raises: `EngineError`, `MemoryFailure`."""
        self.found.workload |= {"through": "engine", "n_generate": N_GENERATE}
        await self._measure_engine(await self._probe())
        self._enter("dialogue")
        depth = int(self.found.workload["depth"])
        self.found.workload["n_ctx"] = n_ctx = 2 * depth
        async with (
            self._loaded(n_ctx) as (app, side, prompts),
            self._served(app) as served,
            self._through_http(*served) as through_http,
        ):
            overflow = Overflow(
                side, prompts, functools.partial(app.conversations.count, endpoint=""), lambda: app.stats()[_CACHE]
            )
            cost = ServerCost(side, through_http, prompts)
            steps = (
                Step(functools.partial(first_tokens, side, self.found, prompts, depth), 2.0),
                Step(functools.partial(overflow.turn, self.found), 2.0),
                Step(functools.partial(cost.pair, self.found), 2.0),
            )
            await in_turn(steps, until_s=self._ends_s - ARCHIVE * self._budget_s, on_step=self.on_step)
        for name in ("eviction", "computed_again"):
            if name not in self.found.samples:
                self.found.missing.setdefault(name, "no turn has left in the time; give more with --budget")
        self._enter("memory")
        await self._in_thread(
            lambda is_wanted: archive.measure(
                self._folder, self.found, budget_s=max(1.0, self._ends_s - time.monotonic()), is_wanted=is_wanted
            )
        )
        self._enter("done")

    async def run_against(self, other: Other, server_factory: ServerFactory, *, env: Mapping[str, str]) -> None:
        """The metrics of `THROUGH_HTTP`, of this model in another process and of another server, in turn.

        Raises: `EngineError`; as `http.opened`.
        """
        self._enter("the other server")
        async with http.opened(
            other.url, model=other.model, key=other.key, env=env, deadlines=other.deadlines
        ) as theirs:
            self.other_name, self.other_model = theirs.name, theirs.model
            theirs = await _tried(theirs)
            for each in (self.found, self.other):
                each.workload |= {"through": "http", "n_generate": N_GENERATE}
            probe = await self._probe()
            depth = self.found.workload["depth"] = self.other.workload["depth"] = self._depth(probe, self._left_s() / 2)
            self._enter(f"Shepherd and {theirs.name}, in turn")
            n_ctx = min(4 * depth, self.subject.facts.n_ctx)
            async with server_factory(n_ctx) as served, self._through_http(*served) as ours:
                prompts = await _fitting_prompts(ours)
                ours = replace(ours, ignores_end=theirs.ignores_end)
                pairs = [(ours, self.found), (theirs, self.other)]

                async def both() -> None:
                    await ask_through(pairs, prompts, depth, N_GENERATE)
                    pairs.reverse()

                await both()  # wakes pages and clocks
                for each in (self.found, self.other):
                    each.samples.clear()
                await in_turn((Step(both),), until_s=self._ends_s, on_step=self.on_step)
        self._enter("done")

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.on_step()

    def _left_s(self) -> float:
        return self._ends_s - time.monotonic()

    # -- the engine

    async def _probe(self) -> Run:
        """A short run, from which the length of the others follows. Raises: `EngineError` for a model that cannot be
        measured."""
        self._enter("engine")
        (probe,) = await self._runs(PROBE, 0.0, max(LEAST_S, self._budget_s))
        if probe.problem:
            raise EngineError(
                f"{self.subject.name} cannot be measured with its settings: {probe.problem}; 'shepherd doctor' checks "
                "this machine, and --budget gives it more time"
            )
        return probe

    def _depth(self, probe: Run, seconds: float) -> int:
        most = self.subject.facts.n_ctx // 2 or DEPTHS[-1]
        fitting = (each for each in DEPTHS if each <= most and LEAST_ROUNDS * _round_s(probe, each) <= seconds)
        return next(fitting, DEPTHS[-1])

    async def _measure_engine(self, probe: Run) -> None:
        share_s = ENGINE * self._budget_s - probe.took_s
        load_s = max(0.0, probe.took_s - _round_s(probe, PROBE.depth, PROBE.n_generate))
        repeat_s = max(0.0, share_s / CHILDREN - load_s)
        depth = self.found.workload["depth"] = self._depth(probe, repeat_s)
        most_s = max(LEAST_S, SLOWEST * (load_s + repeat_s + _round_s(probe, depth)))
        for _ in range(CHILDREN):
            runs = await self._runs(Workload(depth, N_GENERATE), repeat_s, most_s)
            for run in runs[1:] or runs:  # the first one has woken pages and clocks
                if run.problem:
                    raise EngineError(f"{self.subject.name} cannot be measured: {run.problem}")
                self.found.add(prompt=run.prompt, generation=run.empty, generation_deep=run.deep)
            self.on_step()

    async def _runs(self, workload: Workload, repeat_s: float, timeout_s: float) -> list[Run]:
        verdict = await asyncio.to_thread(selftest.verdict, self._cache_folder)
        return await self._in_thread(
            lambda is_wanted: trial.measure(
                self.subject.path,
                self.subject.start,
                workload,
                repeat_s=repeat_s,
                timeout_s=timeout_s,
                is_wanted=is_wanted,
                use_extra_bufts=verdict.use_extra_bufts,
            )
        )

    async def _in_thread(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """`work` gets a function that returns False after a cancellation, and has to end soon then."""
        stopped = threading.Event()
        working = asyncio.ensure_future(asyncio.to_thread(work, lambda: not stopped.is_set()))
        try:
            return await asyncio.shield(working)
        finally:
            stopped.set()
            await asyncio.wait((working,))

    # -- the model, in this process

    @asynccontextmanager
    async def _loaded(self, n_ctx: int) -> AsyncIterator[tuple[App, Side, Prompts]]:
        """The model over a context of its own, without tools, memory or files. Raises: `EngineError`."""
        config = single_user(self._config, self.subject, n_ctx=n_ctx, folder=self._folder)
        app = App(config, env={}, cache_folder=self._cache_folder, counts_use=False)
        try:
            await app.load(lambda loading: None)
            name = self.subject.name
            side = Side(IN_PROCESS, name, functools.partial(app.conversations.stream, endpoint=""))
            n_tokens = len(await app.dispatcher.tokenize(name, WORDS))
            yield app, side, Prompts(n_tokens / len(WORDS.split()))
        finally:
            await app.aclose()

    @asynccontextmanager
    async def _through_http(self, url: str, key: str) -> AsyncIterator[Side]:
        """The same model behind a server of ours."""
        opened = http.opened(url, model=self.subject.name, key=key, env={}, deadlines=Deadlines())
        async with opened as through_http:
            yield replace(through_http, name="Shepherd")


def single_user(config: Config, subject: Subject, *, n_ctx: int, folder: Path) -> Config:
    """The configuration of one model with settled settings, and of nothing that writes or asks elsewhere."""
    chosen = next(each for each in config.models if each.name == subject.name)
    values = asdict(subject.start).items()
    settled = {name: value for name, value in values if value is not None and name not in OF_CACHES}
    model: ModelConfig = replace(chosen, **settled, load="start", keep_alive=None, sampling=Sampling())
    return replace(
        config,
        backend="llamacpp",
        models=(model,),
        caches=(CacheConfig(_CACHE, model=model.name, n_ctx=n_ctx),),
        routes=(RouteConfig(match="*", cache=_CACHE),),
        providers=(),
        mcp_servers=(),
        memory=MemoryConfig(database_path=str(folder / "unused.db"), enable_archival=False),
        kv=replace(config.kv, disk=False),
        tools=ToolsConfig(enabled=()),
        system="",
        max_tokens=None,
    )


async def _fitting_prompts(side: Side) -> Prompts:
    """Prompts for the tokenizer of a side that counts: of a long and a short text, the template has the same tokens."""
    short, long = [
        (await timed(side, side.request(Message.user(" ".join([WORDS] * n)), max_tokens=1))).usage.prompt
        for n in (1, 3)
    ]
    return Prompts((long - short) / (2 * len(WORDS.split())))


async def _tried(side: Side) -> Side:
    """The side, as far as it understands `ignore_eos`. Raises: as `check_streams`."""
    question = Message.user("Count from 1 to 20.")
    try:
        await check_streams(side, question)
    except InvalidRequest:  # OpenAI's own servers refuse fields that they do not know
        side = replace(side, ignores_end=False)
        await check_streams(side, question)
    return side


def _round_s(probe: Run, depth: int, n_generate: int = N_GENERATE) -> float:
    return depth / probe.prompt + n_generate / probe.empty + n_generate / probe.deep


# -- in turn ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    run: Callable[[], Awaitable[None]]
    weight: float = 1.0
    """Its part of the time, beside the others."""
    spent_s: float = 0.0
    n: int = 0


async def in_turn(
    steps: Sequence[Step],
    *,
    until_s: float,
    on_step: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do each step at least once; then the one that is furthest behind its share, while it fits into the time."""
    while True:
        step = min(steps, key=lambda each: (each.n > 0, each.spent_s / each.weight))
        began = clock()
        if step.n and began + step.spent_s / step.n > until_s:
            return
        await step.run()
        step.n, step.spent_s = step.n + 1, step.spent_s + clock() - began
        on_step()
