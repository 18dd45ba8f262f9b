"""The tests of `tests/unit/engine/test_vision.py` that start programs, and those of a library that hangs."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests import recordings
from tests.in_time import PATIENCE_S, becomes_true, until
from tests.process.engine.factories import FACTORIES, STALL_S, WIDE, hang_in
from tests.process.engine.test_contract import steps
from tests.process.engine.test_worker import nothing_is_left
from tests.unit.engine import kinds
from tests.unit.engine.tiny_projector import png, write_seeing

from shepherd.app.loading import LoadedModel
from shepherd.core import EngineDown, InvalidRequest
from shepherd.engine.base import Admitted, Engine, Job, Media, MediaReader, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.llamacpp.library import libmtmd
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.remote import RemoteFacts, RemoteReader
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.media import tokens_of
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program, Timeouts

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(sys.platform == "win32", reason="sessions and sockets in folders are of POSIX"),
    pytest.mark.usefixtures(nothing_is_left.__name__),
]
USUAL, LARGE, SPOKEN = png(1), png(2, width=WIDE + 20, height=WIDE + 20), recordings.wav()
READING, ENCODING = "mtmd_tokenize", "mtmd_encode_chunk"


async def test_images_cross_into_a_child() -> None:
    """Its runtime checks that the tokens of each image are those of its key."""
    media = Media(b"an image", 5, b"its file")
    tokens = array("i", [1, 2, *tokens_of(media), 3])
    engine = kinds.child(kinds.Setup())
    try:
        job = Job(tokens, 3, media={2: media})
        answers = [[step async for steps in engine.submit(job).batches() for step in steps] for _ in range(2)]
    finally:
        assert await asyncio.to_thread(engine.close)
    assert [answer[0] for answer in answers] == [Admitted(0, 8), Admitted(7, 1)]
    assert len([step for step in answers[0] if isinstance(step, int)]) == 3


async def test_a_job_may_wait_for_its_images_as_long_as_their_projector_works(tmp_path: Path) -> None:
    """Many images take long; each of them is watched where it is encoded."""
    free = threading.Event()

    class Slow(kinds.GatedRuntime):
        def prepare(self, media: Sequence[Media], on_ready: Callable[[], None]) -> bool:
            return free.is_set()

    engine = InProcessEngine(Slow(kinds.Setup()))
    with closing(engine):
        media = Media(b"an image", 5, b"its file")
        ticket = engine.submit(Job(array("i", [1, *tokens_of(media), 2]), 3, media={1: media}))
        heartbeat = engine._scheduler.heartbeat
        await until(lambda: heartbeat.allowed_s(1.0) == math.inf)
        await until(lambda: not engine._has_idle_work)  # nor does it count as idle work
        await until(lambda: heartbeat.allowed_s(1.0) == math.inf)
        free.set()
        await engine.clear()  # mail, as when images are ready
        assert len([step for step in await steps(ticket) if isinstance(step, int)]) == 3


async def asked(reader: MediaReader, engine: Engine, file: bytes) -> Ticket:
    """A question about an image or a recording, as a server asks it. Raises: as `look`."""
    gives_up = time.monotonic() + PATIENCE_S
    parts = await asyncio.to_thread(reader.read, file, lambda: time.monotonic() < gives_up)
    tokens, media = array("i", [1]), dict[int, Media]()
    for part in parts:
        if isinstance(part, Media):
            media[len(tokens)] = part
        tokens.extend(tokens_of(part) if isinstance(part, Media) else part)
    return engine.submit(Job(array("i", [*tokens, 2]), 3, media=media))


async def look(reader: MediaReader, engine: Engine, file: bytes) -> None:
    """Raises: `EngineDown`; `InvalidRequest`; `TimeoutError`."""
    ticket = await asked(reader, engine, file)
    async with asyncio.timeout(PATIENCE_S):
        await steps(ticket)


async def leave(reader: MediaReader, engine: Engine, file: bytes) -> None:
    """Ask, and go while it is encoded; wait until it is known that this hangs."""
    ticket = await asked(reader, engine, file)
    await steps(engine.submit(Job(array("i", [1, 2]), 3)))  # the other one waits for the projector by then
    engine.cancel(ticket)
    await until(lambda: engine.down is not None)


@pytest.mark.parametrize(("where", "deadly"), [(READING, LARGE), (ENCODING, SPOKEN)], ids=["an image", "a recording"])
async def test_what_the_library_hangs_in_ends_its_child_and_is_refused_after_two_though_its_client_left(
    where: str, deadly: bytes, tmp_path: Path
) -> None:
    """Before its child is killed, all that is asked of it ends, and its figures say why."""
    files = tuple(map(str, write_seeing("both", tmp_path)))
    timeouts = Timeouts(connect_s=60.0, frozen_s=PATIENCE_S, hung_s=1.0, term_s=0.0, pause_s=0.01)
    program = Program(kinds.COMMAND, f"{FACTORIES}:looking", (*files, where), kinds.environment(), timeouts)
    process = ModelProcess(program, title="cache 'main'")
    with closing(process):
        facts = process.facts
        assert isinstance(facts, RemoteFacts)
        assert facts.reader is not None
        reader, engine = RemoteReader(process, facts.reader), ChildEngine(process)
        for n in range(2):
            await look(reader, engine, USUAL)
            if n == 0 or where == READING:
                with pytest.raises(EngineDown, match="has made no progress"):
                    await look(reader, engine, deadly)
            else:
                await leave(reader, engine, deadly)
            assert "the engine of mmproj-both.gguf has made no progress" in (engine.down or "")
            with pytest.raises(EngineDown, match="has made no progress"):
                engine.submit(Job(array("i", [1, 2]), 3))
            await until(lambda: process.n_restarts == n + 1 and engine.down is None)  # noqa: B023
            assert engine.stats().stalls == n + 1
        with pytest.raises(InvalidRequest, match="has ended the process of the engine of cache 'main' 2 times"):
            await look(reader, engine, deadly)
        await look(reader, engine, USUAL)


@pytest.mark.parametrize(("where", "deadly"), [(READING, SPOKEN), (ENCODING, LARGE)], ids=["a recording", "an image"])
async def test_in_this_process_images_are_refused_until_the_library_returns_and_texts_are_answered(
    where: str, deadly: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, projector = write_seeing("both", tmp_path)
    monkeypatch.setattr(libmtmd(), where, getattr(libmtmd(), where))  # it is put back
    hang_in(where, free := threading.Event())
    weights = Weights.load(model)
    reader = Projector.load(projector, weights, n_threads=1, stall_s=STALL_S)
    engine = InProcessEngine(LlamaRuntime(weights, ContextOptions(384, n_seq=5, n_threads=1), reader))
    freed: list[bool] = []
    opened = LoadedModel("qwen", weights, lambda: freed.append(True), reader=reader)
    try:
        await look(reader, engine, USUAL)
        for _ in range(2):
            with pytest.raises(EngineDown, match=r"the engine of mmproj-both\.gguf has made no progress"):
                await look(reader, engine, deadly)
        assert reader.down
        assert (engine.stats().stalls, engine.stats().quiet_s > 0) == (1, True)
        assert engine.down is None
        await steps(engine.submit(Job(array("i", [1, 2]), 3)))
        for thread in (reader._reader, reader._encoder):
            thread.heartbeat.begin("at work", 0.0)  # not the first time, which is allowed to take long
        assert not reader.close()
        opened.close()
        assert not freed, "a stuck thread may use the weights"
        free.set()
    finally:
        free.set()
        assert await asyncio.to_thread(engine.close)
        assert becomes_true(reader.close)
        opened.close()
        assert freed
        weights.close()
