"""A `ChildEngine` over real ranks: our own program under `mpirun`, and its end in all the ways there are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from array import array
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from tests import cases
from tests.process.engine.trtllm.group import MARK, environment, eventually, kill, left, needs_mpi

from shepherd.core import EngineDown, EngineError
from shepherd.engine.base import Done, Job
from shepherd.engine.trtllm.launch import FOLDERS, RANK, RANKS, Wish, plan, without_complaints
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts

pytestmark = needs_mpi

N_RANKS = cases.amount([2], [2, 3, 4] * 3 + [2])
every_size = pytest.mark.parametrize("n_ranks", N_RANKS, ids=[f"{n}-{at}" for at, n in enumerate(N_RANKS)])
TIMEOUTS = Timeouts(connect_s=60, build_s=60)


class Model:
    """Starts engines; `left` are all their processes."""

    def __init__(self, folder: Path) -> None:
        self.environ = environment(folder)

    def start(self, n_ranks: int, wish: Wish = "mpirun", *, fault: str = "", **variables: str) -> ChildEngine:
        planned = plan((1, n_ranks, 1), wish, environ=self.environ | variables)
        program = Program(
            planned.command, "tests.process.engine.trtllm.child_factory:make", (n_ranks, fault),
            planned.environment, TIMEOUTS, FOLDERS, without_complaints,
        )  # fmt: skip
        return ChildEngine(ModelProcess(program, title="cache 'main'"))

    def left(self) -> list[psutil.Process]:
        return left(self.environ[MARK])

    def files_left(self) -> list[Path]:
        """What the ranks leave of their shared memory and their folders."""
        return list(Path(self.environ["TMPDIR"]).iterdir())

    def ranks(self) -> dict[int, psutil.Process]:
        return {int(each.environ()[RANK]): each for each in self.left() if RANK in each.environ()}


@pytest.fixture
def model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Model]:
    made = Model(tmp_path)
    yield made
    remaining = made.left()
    kill(made.environ[MARK])
    assert remaining == []
    assert capfd.readouterr().out == ""


@contextlib.asynccontextmanager
async def started(model: Model, n_ranks: int, wish: Wish = "mpirun") -> AsyncIterator[ChildEngine]:
    engine = await asyncio.to_thread(model.start, n_ranks, wish)
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.close)


async def answer(engine: ChildEngine, max_tokens: int = 5) -> list[int]:
    async with asyncio.timeout(60):
        ticket = engine.submit(Job(array("i", [*b"prompt"]), max_tokens))
        steps = [step async for batch in ticket.batches() for step in batch]
    assert isinstance(steps[-1], Done)
    return [step for step in steps if isinstance(step, int)]


@pytest.mark.parametrize("wish", ["mpirun", "spawn"])
@every_size
async def test_a_model_on_several_ranks_answers_and_ends_with_all_of_them(
    n_ranks: int, wish: Wish, model: Model
) -> None:
    async with started(model, n_ranks, wish) as engine:
        assert await answer(engine) == [6, 7, 8, 9, 10]
        assert len(model.ranks()) == n_ranks
        before = time.monotonic()
        assert await asyncio.to_thread(engine.close)
        assert time.monotonic() - before < 15
        assert model.left() == []
        assert model.files_left() == []


@every_size
async def test_one_model_after_another(n_ranks: int, model: Model) -> None:
    for wanted in (n_ranks, n_ranks + 1):
        async with started(model, wanted) as engine:
            assert await answer(engine) == [6, 7, 8, 9, 10]
        assert model.left() == []


@pytest.mark.parametrize("rank", [0, 1])
@every_size
async def test_a_rank_that_is_killed_is_an_error_of_the_requests(n_ranks: int, rank: int, model: Model) -> None:
    async with started(model, n_ranks) as engine:
        waiting = asyncio.create_task(answer(engine, 4000))
        assert await answer(engine) == [6, 7, 8, 9, 10]
        model.ranks()[rank].kill()
        with pytest.raises(EngineDown, match="ended with exit status 137"):
            await waiting
        assert await asyncio.to_thread(eventually, lambda: model.left() == [] == model.files_left())


@every_size
async def test_sigterm_to_rank_0_closes_the_engine(n_ranks: int, model: Model) -> None:
    async with started(model, n_ranks) as engine:
        assert await answer(engine) == [6, 7, 8, 9, 10]
        model.ranks()[0].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(eventually, lambda: engine.down is not None)
        assert "ended with exit status 0" in str(engine.down)
        assert "the runtime is closed" in str(engine.down)


@pytest.mark.parametrize("launcher_too", [False, True])
@every_size
def test_a_frozen_rank_does_not_keep_the_group(n_ranks: int, launcher_too: bool, model: Model) -> None:
    engine = model.start(n_ranks)
    model.ranks()[1].suspend()
    if launcher_too:
        psutil.Process(engine.process.pid).suspend()
    engine.close(2.0)
    assert model.left() == []


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({RANKS: "7"}, "shepherd: mpirun started 2 ranks, but this engine needs 7; remove other settings of mpirun"),
        ({"STANDIN_LACKS_CUDA": "1"}, "shepherd: tensorrt_llm cannot be imported: libcudart.so.13: cannot open shared"),
    ],
)
def test_ranks_that_cannot_start_say_why(variables: dict[str, str], sentence: str, model: Model) -> None:
    planned = plan((1, 2, 1), environ=model.environ)
    program = Program(
        planned.command, "nothing:nothing", (), {**planned.environment, **variables}, TIMEOUTS, FOLDERS,
        without_complaints,
    )  # fmt: skip
    with pytest.raises(EngineError) as error:
        ModelProcess(program, title="cache 'main'")
    assert sentence in error.value.message
    assert "Primary job" not in error.value.message
    assert eventually(lambda: model.left() == [])


@pytest.mark.parametrize(
    ("fault", "sentence"), [("the GPU is too small", "the GPU is too small"), ("session", "ZeroDivisionError")]
)
@every_size
def test_a_factory_that_fails_ends_all_ranks(n_ranks: int, fault: str, sentence: str, model: Model) -> None:
    with pytest.raises(EngineError, match=sentence):
        model.start(n_ranks, fault=fault)
    assert model.left() == []
    assert model.files_left() == []
