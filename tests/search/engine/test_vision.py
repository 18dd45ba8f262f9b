"""The tests of `tests/unit/engine/test_vision.py` that take long."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import amount
from tests.unit.engine import kinds
from tests.unit.engine.test_vision import (
    N_CTX,
    Model,
    Talk,
    ask,
    model,  # noqa: F401 - fixtures
)
from tests.unit.engine.tiny_projector import write_seeing

from shepherd.engine.base import Engine
from shepherd.engine.kv.pool import WORTH_SAVING

pytestmark = pytest.mark.model


async def live(model: Model, folder: Path, seed: int) -> list[Talk]:
    """A random life of conversations on one cache; those whose answers follow from their own jobs alone."""
    drawn = random.Random(seed)
    engine, talks = model.engine(folder), list[Talk]()
    for _ in range(22):
        whole = [talk for talk in talks if not talk.n_evicted]
        match drawn.choice(["new", "on", "on", "on", "branch", "restart"]):
            case "branch" if whole:
                parent = drawn.choice(whole)
                begun = parent.messages[: 2 * drawn.randrange(1, len(parent.messages) // 2 + 1)]
                talk = Talk(begun, family=parent.family)
                talks.append(talk)
            case "on" | "branch" if talks:
                talk = drawn.choice(talks)
            case "restart" if talks:
                assert await asyncio.to_thread(engine.close)
                engine, talk = model.engine(folder), drawn.choice(talks)
            case _:
                talk = Talk(family=len(talks))
                talk.say(model, f"you see and say what is there, number {len(talks)}. ")
                talks.append(talk)
        parts: list[str | bytes] = ["look " * drawn.randrange(1, 5)]
        for _ in range(drawn.choice([0, 1, 1, 2])):
            parts += [model.file(drawn.randrange(4), drawn.choice([30, 60])), " and then " * drawn.randrange(3)]
        n_before = len(talk.job().tokens) - len(talk.messages[-1][0]) if talk.asked else 0
        n_left, was_asked = talk.n_evicted, bool(talk.asked)
        talk.say(model, *parts, "\nsay: ")
        admitted, gone = await ask(engine, talk)
        job = talk.asked[-1][0]
        # Windows lose their beginning by themselves, so that what is saved of them may not be cut back far enough.
        if was_asked and not gone and not n_left and not model.projector.needs_one_batch:
            n_new = len(job.tokens) - n_before
            assert admitted.n_new <= n_new + WORTH_SAVING + 8, "only what is new, and too little to save, is computed"
    assert await asyncio.to_thread(engine.close)
    return talks


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_that_of_a_fresh_cache(model: Model, tmp_path: Path, seed: int) -> None:
    async def alone(talk: Talk) -> list[list[int]]:
        engine = model.engine()
        answers = []
        for job, _ in talk.asked:
            ticket = engine.submit(job)
            answers.append([step async for steps in ticket.batches() for step in steps if isinstance(step, int)])
        assert await asyncio.to_thread(engine.close)
        return answers

    talks = asyncio.run(live(model, tmp_path, seed))
    assert any(talk.n_evicted for talk in talks), "nothing was evicted: make the conversations longer"
    assert any(job.media for talk in talks for job, _ in talk.asked)
    for talk in talks:
        kin = [other for other in talks if other.family == talk.family]
        if len(kin) == 1 or not any(other.n_evicted for other in kin):
            assert asyncio.run(alone(talk)) == [answer for _, answer in talk.asked]


async def test_a_model_in_a_child_sees_what_it_sees_here(model: Model) -> None:
    """Only jobs cross: the image is encoded in the child. A second turn computes new tokens only."""
    names = (str(model.weights.path), str(model.projector.path), N_CTX)
    engines: tuple[Engine, ...] = (model.engine(), kinds.child(*names, factory="tests.unit.engine.kinds:seeing"))
    talks = (Talk(), Talk())
    try:
        for turn in range(2):
            results = []
            for engine, talk in zip(engines, talks, strict=True):
                talk.say(model, "you see. " if turn == 0 else "\n", "look: ", model.file(turn), " what is it? ")
                results.append(await ask(engine, talk))
            assert results[0] == results[1]
            assert (results[1][0].n_cached > 0) == (turn == 1)
        assert [answer for _, answer in talks[0].asked] == [answer for _, answer in talks[1].asked]
    finally:
        for each in engines:
            assert await asyncio.to_thread(each.close)


DAMAGE = """
import contextlib, json, random, sys
from pathlib import Path
from tests import recordings
from shepherd.core import InvalidRequest
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.weights import Weights
from shepherd.media import sound
from shepherd.media.image import NotMedia

path, projector, seed, count = json.loads(sys.argv[1])
weights = Weights.load(Path(path))
made = Projector.load(Path(projector), weights, n_threads=1)
drawn = random.Random(seed)
right = [recordings.wav(1, 0.2), recordings.flac(1, 0.2), recordings.mp3(1, 6, promised=6, tag=True)]
right += [recordings.wav_of(3, 32, 2, bytes(8000)), recordings.wav_of(7, 8, 1, bytes(4000), extensible=True)]
n_read = 0
for number in range(count):
    data = bytearray(right[number % len(right)])
    for _ in range(drawn.choice([1, 1, 3, 10])):
        at = drawn.randrange(drawn.choice([60, len(data)]))
        data[at] = drawn.choice([0, 0xFF, drawn.randrange(256), data[at] ^ 1 << drawn.randrange(8)])
    if drawn.randrange(4) == 0:
        del data[drawn.randrange(len(data)) :]
    try:
        with contextlib.suppress(NotMedia):
            if sound.read_header(bytes(data)).seconds > 5:
                continue  # takes as long as it says, and nothing else
        made.read(bytes(data))
        n_read += 1
    except InvalidRequest as error:
        assert "recording" in error.message or "no image" in error.message, error.message
print(n_read)
"""


def test_damaged_recordings_never_end_the_process(tmp_path: Path) -> None:
    n_files = amount(60, 300)
    task = json.dumps([*map(str, write_seeing("speech", tmp_path)), 1, n_files])
    ended = subprocess.run([sys.executable, "-c", DAMAGE, task], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert 0 < int(ended.stdout.split()[-1]) < n_files
