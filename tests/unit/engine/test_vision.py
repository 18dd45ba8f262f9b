"""Conversations with images and recordings on real memories: forks, evictions, snapshots and restarts change no
answer."""

from __future__ import annotations

import asyncio
import struct
import threading
from array import array
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests import recordings
from tests.in_time import PATIENCE_S
from tests.unit.engine.tiny_projector import PROJECTORS, TILED, png, write_projector, write_seeing

from shepherd.core import EngineError, Evicted, InvalidRequest, Sampling
from shepherd.engine.base import Admitted, Chunk, Copy, Done, Engine, Job, Media, Remove, Span, Step, Ticket
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.library import libmtmd
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.media import tokens_of
from shepherd.engine.scheduler import EngineOptions

pytestmark = pytest.mark.model

N_CTX = 384
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


@dataclass(frozen=True)
class Model:
    weights: Weights
    projector: Projector
    is_tiled: bool
    """An image is several spans."""

    def file(self, seed: int, width: int = 48) -> bytes:
        """An image, or a recording for a model that hears: one that does both gets them in turn."""
        if self.projector.takes_audio and (not self.projector.takes_images or seed % 2):
            return recordings.wav(seed, width / 60)
        return png(seed, width, 40)

    def runtime(self, n_batch: int | None = None) -> LlamaRuntime:
        options = ContextOptions(N_CTX, n_seq=5, n_threads=1, n_batch=n_batch, n_ubatch=n_batch)
        return LlamaRuntime(self.weights, options, self.projector)

    def engine(self, folder: Path | None = None) -> InProcessEngine:
        tiers = Tiers(2_000_000, folder, 50_000_000 if folder else 0)
        engine = InProcessEngine(self.runtime(), options=EngineOptions(sequences=2, tiers=tiers))
        engine.wait_for_disk()
        return engine


@pytest.fixture(scope="module", params=[*PROJECTORS, "speech", "both"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path, projector = write_seeing(request.param, tmp_path_factory.mktemp("models"))
    weights = Weights.load(path)
    made = Model(weights, Projector.load(projector, weights, n_threads=1), request.param in TILED)
    yield made
    made.projector.close()
    weights.close()


@dataclass
class Talk:
    """One conversation: messages as tokens, and what was asked so far."""

    messages: list[tuple[array[int], dict[int, Media]]] = field(default_factory=list)
    asked: list[tuple[Job, list[int]]] = field(default_factory=list)
    n_evicted: int = 0
    family: int = 0
    """Conversations that began alike: one may continue the cells of another, with the holes that are there."""

    def say(self, model: Model, *parts: str | bytes) -> None:
        tokens, media = array("i"), dict[int, Media]()
        for part in parts:
            for each in (
                [array("i", model.weights.tokenize(part))] if isinstance(part, str) else model.projector.read(part)
            ):
                if isinstance(each, Media):
                    media[len(tokens)] = each
                tokens.extend(tokens_of(each) if isinstance(each, Media) else each)
        self.messages.append((tokens, media))

    def job(self, n: int = 6) -> Job:
        tokens, spans, media = array("i"), list[Span](), dict[int, Media]()
        for at, (own, images) in enumerate(self.messages):
            media |= {start + len(tokens): each for start, each in images.items()}
            keep = at == 0 or at == len(self.messages) - 1
            spans.append(Span(len(tokens), len(tokens) + len(own), at, (at + 1) // 2, keep))
            tokens.extend(own)
        return Job(tokens, n, GREEDY, tuple(spans), "evict", reserve=n, media=media)


def one_span(model: Model, seed: int = 1) -> Media:
    """The first span of an image or a recording."""
    return next(each for each in model.projector.read(model.file(seed)) if isinstance(each, Media))


async def ask(engine: Engine, talk: Talk) -> tuple[Admitted, int]:
    """Ask for an answer, which becomes a message; what was cached, and how many tokens left."""
    job, answer, admitted, gone = talk.job(), [], None, 0
    async with aclosing(engine.submit(job).batches()) as batches:
        async for steps in batches:
            answer += [step for step in steps if isinstance(step, int)]
            admitted = next((step for step in steps if isinstance(step, Admitted)), admitted)
            gone += sum(step.tokens for step in steps if isinstance(step, Evicted))
    assert admitted is not None
    assert len(answer) == job.max_tokens
    talk.asked.append((job, answer))
    talk.n_evicted += gone
    talk.messages.append((array("i", answer), {}))
    return admitted, gone


@pytest.mark.grid(0.2)
def test_an_evicted_image_does_not_come_back_by_itself(model: Model) -> None:
    async def run() -> None:
        engine, talk = model.engine(), Talk()
        talk.say(model, "you see. ")
        talk.say(model, "first: ", model.file(1), " what is it? ")
        await ask(engine, talk)
        for number in range(60):
            talk.say(model, f"and number {number}, which is not an image, what is that? ")
            await ask(engine, talk)
            if talk.n_evicted:
                break
        assert talk.n_evicted > 16
        resident = next(iter(engine._scheduler.pool.ledger))
        media = talk.asked[-1][0].media
        first, stop = min(media), max(at + each.n_tokens for at, each in media.items())
        assert len(media) > 1 or not model.is_tiled
        assert resident.n_resident_in(first, stop) == 0, "with what stands between its tiles"
        talk.say(model, "what was the first? ")
        admitted, _ = await ask(engine, talk)
        assert admitted.n_new < 60
        assert resident.n_resident_in(first, stop) == 0
        assert await asyncio.to_thread(engine.close)

    asyncio.run(run())


@pytest.mark.grid(0.1)
def test_an_image_is_encoded_beside_the_answers_of_others(model: Model) -> None:
    """While one is encoded, the engine thread computes; the job starts when it is ready."""

    async def run() -> None:
        engine, talk, other = model.engine(), Talk(), Talk()
        other.say(model, "hello")
        talk.say(model, "see ", model.file(901), "?")
        results = await asyncio.gather(ask(engine, talk), ask(engine, other))
        assert [admitted.n_cached for admitted, _ in results] == [0, 0]
        assert await asyncio.to_thread(engine.close)

    asyncio.run(run())


def test_no_operation_cuts_an_image(model: Model) -> None:
    runtime = model.runtime()
    media = one_span(model)
    assert runtime.decode([Chunk(0, array("i", [1, 2, 3]), 0, False)]) == "ok"
    assert runtime.decode([Chunk(0, tokens_of(media), 3, False, media=media)]) == "ok"
    assert runtime.held(0) == (0, 2 + media.n_tokens)
    assert runtime.decode([Chunk(0, array("i", [4, 5]), 3 + media.n_tokens, True)]) == "ok"
    assert runtime.held(0) == (0, 4 + media.n_tokens)
    if model.projector.compresses:
        assert not runtime.apply(Remove(0, 4, 5))
        assert not runtime.apply(Copy(0, 1, 0, 5))
    state = runtime.save(0)
    assert runtime.load(2, state)
    assert runtime.held(2)[1] == 4 + media.n_tokens
    assert runtime.apply(Remove(0, 3, 3 + media.n_tokens)), "the whole image leaves a hole"
    assert runtime.held(0) == (0, 4 + media.n_tokens)
    assert runtime.apply(Remove(2, 3))
    assert runtime.held(2)[1] == 2
    runtime.close()


def test_an_image_that_must_be_computed_at_once_needs_room_for_it(model: Model) -> None:
    media = one_span(model)
    runtime = model.runtime(n_batch=8)
    if model.projector.needs_one_batch:
        with pytest.raises(EngineError, match=f"n_ubatch = {media.n_tokens} or more"):
            runtime.prepare([media], lambda: None)
    else:
        runtime.prepare([media], lambda: None)
        assert runtime.decode([_chunk(media)]) == "ok"
        assert runtime.held(0)[1] == media.n_tokens - 1
    runtime.close()


def _chunk(media: Media) -> Chunk:
    return Chunk(0, tokens_of(media), 0, False, media=media)


def test_a_prompt_that_ends_with_an_image_is_refused(model: Model) -> None:
    async def run() -> None:
        engine, talk = model.engine(), Talk()
        talk.say(model, "see")
        media = one_span(model)
        job = talk.job()
        job = replace(job, tokens=job.tokens + tokens_of(media), media={len(job.tokens): media})
        with pytest.raises(InvalidRequest, match="ends with an image"):
            engine.submit(job)
        assert await asyncio.to_thread(engine.close)

    asyncio.run(run())


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("model", ["llava"], indirect=True)  # each case takes a process, which knows no projector
@pytest.mark.parametrize(
    ("data", "words"),
    [(b"", "no image"), (b"<svg></svg>", "no image"), (png(1)[:200], "damaged"), (b"GIF89a", "no image")],
)
def test_a_damaged_image_is_refused(model: Model, data: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        model.projector.read(data)


@pytest.mark.grid(0.1)
def test_an_image_that_was_never_read_fails_its_job_alone(model: Model) -> None:
    async def run() -> None:
        engine, talk = model.engine(), Talk()
        talk.say(model, "see ", model.file(950), "?")
        job = talk.job()
        unread = {at: replace(each, data=b"<html>") for at, each in job.media.items()}
        with pytest.raises(EngineError, match="no image"):
            async for _ in engine.submit(replace(job, media=unread)).batches():
                pass
        await ask(engine, talk)
        assert await asyncio.to_thread(engine.close)

    asyncio.run(run())


def test_a_projector_of_another_model_is_refused(model: Model, tmp_path: Path) -> None:
    write_projector("llava", tmp_path / "mmproj-other.gguf", n_embd=96)
    with pytest.raises(EngineError, match="mmproj-other.gguf cannot be used as the projector of".replace(".", "[.]")):
        Projector.load(tmp_path / "mmproj-other.gguf", model.weights, n_threads=1)
    (tmp_path / "mmproj-none.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="mmproj-none"):
        Projector.load(tmp_path / "mmproj-none.gguf", model.weights, n_threads=1)


def test_what_is_taken_back_behind_a_hole_takes_the_image_in_it_along(model: Model) -> None:
    runtime = model.runtime()
    media = one_span(model)
    n = media.n_tokens
    assert runtime.decode([Chunk(0, array("i", [1, 2, 3]), 0, False)]) == "ok"
    assert runtime.decode([Chunk(0, tokens_of(media), 3, False, media=media)]) == "ok"
    assert runtime.decode([Chunk(0, array("i", [4, 5]), 3 + n, False)]) == "ok"
    assert runtime.apply(Remove(0, 3, 3 + n))
    assert runtime.apply(Remove(0, 3 + n))
    assert runtime.held(0) == (0, 2)
    for position in (3, 6):
        assert runtime.decode([Chunk(0, array("i", [6, 7, 8]), position, True)]) == "ok"
    logits = runtime.logits(0)
    assert runtime.held(0) == (0, 8)
    for start, tokens in ((0, [1, 2, 3]), (3, [6, 7, 8]), (6, [6, 7, 8])):
        assert runtime.decode([Chunk(1, array("i", tokens), start, True)]) == "ok"
    assert max(abs(a - b) for a, b in zip(logits, runtime.logits(0), strict=True)) < 1e-3
    runtime.close()


@pytest.mark.grid(0.2)
def test_turns_leave_on_request_though_the_prompt_ends_with_an_image(model: Model) -> None:
    """The last token of a prompt is always computed, and the whole image with it."""

    async def run() -> None:
        engine, talk = model.engine(), Talk()
        talk.say(model, "you see. ")
        talk.say(model, "first: ", model.file(1), " what is it? ")
        await ask(engine, talk)
        pixels = [each for each in model.projector.read(model.file(2)) if isinstance(each, Media)]
        talk.messages.append((tokens_of(pixels[0]), {0: pixels[0]}))
        left = await engine.evict(talk.job(), 1)
        assert left.tokens > 16
        await engine.evict(talk.job(), 1)  # from the cells, which hold the image already
        ends = [each.tokens[-pixels[0].n_tokens :] for each in engine._scheduler.pool.ledger]
        assert tokens_of(pixels[0]) in ends
        assert await asyncio.to_thread(engine.close)

    asyncio.run(run())


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("sample", [float("nan"), float("inf"), -1e30])
def test_samples_without_a_value_reach_no_cell(tmp_path: Path, sample: float) -> None:
    path, projector = write_seeing("speech", tmp_path)
    weights = Weights.load(path)
    made = Projector.load(projector, weights, n_threads=1)
    content = struct.pack("<4000f", *[0.25] * 3999, sample)
    try:
        with pytest.raises(InvalidRequest, match="a recording has samples far out of range"):
            made.read(recordings.wav_of(3, 32, 1, content))
        assert made.read(recordings.wav_of(3, 32, 1, content[:-4] + content[:4]))
    finally:
        made.close()
        weights.close()


def test_half_a_minute_each_is_encoded_once_and_alone_where_it_was_dropped(tmp_path: Path) -> None:
    path, projector = write_seeing("speech", tmp_path)
    weights = Weights.load(path)
    made = Projector.load(projector, weights, n_threads=1)
    try:
        parts = [each for each in made.read(recordings.wav(1, 31, 8000)) if isinstance(each, Media)]
        assert [each.part for each in parts] == [0, 1]
        assert len({tokens_of(each).tobytes() for each in parts}) == 2
        whole = [bytes(made._encode(each).embeddings) for each in parts]
        alone = [bytes(made._encode(each, alone=True).embeddings) for each in parts]
        assert alone == whole
        assert len(set(whole)) == 2
    finally:
        made.close()
        weights.close()


async def test_an_image_whose_client_has_left_is_encoded_to_its_end_and_those_that_wait_behind_it_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their job stays known for as long: if the library never returns, it is to blame."""
    path, projector = write_seeing("llava", tmp_path)
    mtmd, encoded, begun, free = libmtmd(), list[int](), threading.Event(), threading.Event()
    real = mtmd.mtmd_encode_chunk

    def encode(handle: object, chunk: object) -> int:
        begun.set()
        free.wait()
        encoded.append(code := real(handle, chunk))
        return int(code)

    monkeypatch.setattr(mtmd, "mtmd_encode_chunk", encode)
    weights = Weights.load(path)
    model = Model(weights, Projector.load(projector, weights, n_threads=1), is_tiled=False)
    engine = model.engine()
    try:
        tickets = []
        for n in range(3):
            talk = Talk()
            talk.say(model, f"see {n}", png(n), "and", png(n + 7), "?")
            tickets.append(engine.submit(talk.job()))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        for ticket in tickets[:2]:
            engine.cancel(ticket)
        async with asyncio.timeout(PATIENCE_S):
            assert await taken(tickets[1]) == [Done("cancelled")]
        assert not tickets[0].finished
        free.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await taken(tickets[0]) == [Done("cancelled")]
            assert type((await taken(tickets[2]))[-1]) is Done
        assert encoded == [0, 0, 0], "the one that was begun, and the two of the client that has stayed"
    finally:
        free.set()
        assert await asyncio.to_thread(engine.close)
        assert model.projector.close()
        weights.close()


async def taken(ticket: Ticket) -> list[Step]:
    return [step async for steps in ticket.batches() for step in steps]
