"""A call of the library that does not return ends what waits for vectors and scores; one that is slow ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import PATIENCE_S, becomes_true
from tests.unit.engine.test_embedding import lettered, write_llama
from tests.unit.engine.tiny_bert import write_bert

from shepherd.core import EngineDown
from shepherd.core.pairs import Pairs
from shepherd.engine.llamacpp.embedding import EmbeddingModel
from shepherd.engine.llamacpp.reranking import RerankModel
from shepherd.engine.watchdog import FIRST_DECODE, SLACK

pytestmark = pytest.mark.model

STALL_S = 0.2
Model = EmbeddingModel | RerankModel


class Gated:
    """The library's function, as a model calls it: each call waits until it is free."""

    def __init__(self, model: Model, *, free: bool = False) -> None:
        self.entered, self.free = threading.Event(), threading.Event()
        self.beats: list[int] = []
        self.allowed_s: list[float] = []
        """What the watchdog allows to each call, if a stall is a second."""
        self._heartbeat, self._compute = model._thread.heartbeat, model._context._compute
        model._context._compute = self
        if free:
            self.free.set()

    def __call__(self, *arguments: Any) -> int:
        self.beats.append(self._heartbeat.n_beats)
        self.allowed_s.append(self._heartbeat.allowed_s(1.0))
        self.entered.set()
        self.free.wait()
        code: int = self._compute(*arguments)
        return code


def loaded(kind: type[Model], folder: Path, **options: Any) -> Model:
    path = folder / f"{kind.__name__}.gguf"
    write_bert(path, n_labels=1) if kind is RerankModel else write_bert(path)
    return kind.load(path, n_threads=1, **options)


def ask(model: Model, texts: Sequence[str]) -> list[Any]:
    if isinstance(model, RerankModel):
        return list(model.score(Pairs(tuple(("a b", text) for text in texts))).values)
    made: list[Any] = model.embed(texts).tolist()
    return made


@pytest.mark.parametrize("n_texts", [1, 200])
@pytest.mark.parametrize("kind", [EmbeddingModel, RerankModel])
def test_all_that_wait_get_an_error_and_new_ones_too_until_the_call_returns(
    kind: type[Model], n_texts: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loaded(kind, tmp_path) as other:
        expected = ask(other, ["c d"])
    with ThreadPoolExecutor(2) as callers, loaded(kind, tmp_path, stall_s=STALL_S / FIRST_DECODE) as model:
        library = Gated(model)
        try:
            waiting = [callers.submit(ask, model, ["p m n"] * n_texts)]
            assert library.entered.wait(PATIENCE_S)
            waiting.append(callers.submit(ask, model, ["c d"]))
            for each in waiting:
                with pytest.raises(
                    EngineDown, match=r"made no progress for \d+ s \(computing \d+ tokens of \d+ texts\)"
                ):
                    each.result(PATIENCE_S)
            with pytest.raises(EngineDown, match="no progress"):
                ask(model, ["c d"])
            assert "no progress" in (model.down or "")
            assert model.stats().stalls == 1
            assert "_computed > " in caplog.text, "where the thread is"
            assert "p m n" not in caplog.text
        finally:
            library.free.set()
        found: list[Any] = []

        def answers() -> bool:
            """A machine that is busy enough may stall once more."""
            try:
                found[:] = ask(model, ["c d"])
            except EngineDown:
                return False
            return True

        assert becomes_true(answers)
    assert found == pytest.approx(expected) if kind is RerankModel else found == expected


def test_what_a_call_may_take_follows_its_tokens_and_what_tokens_took_before(tmp_path: Path) -> None:
    with loaded(EmbeddingModel, tmp_path) as model:
        library = Gated(model, free=True)
        ask(model, ["a b c"])
        speed = model._thread.speed
        assert speed.token_s > 0, "a short text says something too"
        speed.token_s = 100.0
        ask(model, ["a b c"])
        speed.token_s = 100.0
        ask(model, ["a b c"] * 4)
    assert library.allowed_s == [FIRST_DECODE, 5 * 100 * SLACK, 4 * 5 * 100 * SLACK]


def test_each_piece_of_a_long_text_is_progress(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "llama.gguf").path
    with EmbeddingModel.load(path, n_tokens=None, n_threads=1) as model:
        ask(model, [lettered(600)])  # it allocates a larger context
        library = Gated(model, free=True)
        ask(model, [lettered(1024)])
    first, *others = library.beats
    assert others == [first + 1]


def test_a_model_that_is_stuck_can_be_closed_and_nothing_is_freed_that_the_library_may_use(tmp_path: Path) -> None:
    model = loaded(EmbeddingModel, tmp_path)
    library = Gated(model)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(ask, model, ["a"])
        assert library.entered.wait(PATIENCE_S)
        model._thread.heartbeat.begin("computing", 0.0)  # not the first time, which is allowed to take long
        assert not model.close()
        assert model.weights.handle
        with pytest.raises(EngineDown, match="has been closed"):
            waiting.result(PATIENCE_S)
    library.free.set()
    assert becomes_true(model.close)
    assert not model.weights.handle
