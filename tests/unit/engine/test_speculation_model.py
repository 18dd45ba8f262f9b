"""Drafts on the embedded model: what is drawn is what would have been drawn without them, whatever draws it."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.cases import amount
from tests.fake_engine import SilentLoop, SteadyCost, SteadySpeed, Ticking, scheduler_on

from shepherd.core import Sampling
from shepherd.engine.base import Done, Job, Scored, Ticket
from shepherd.engine.draft_model import DraftModel
from shepherd.engine.grammar.mask import Constrainer
from shepherd.engine.llamacpp.library import C, quantize
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.engine.speculation import Speculator

pytestmark = pytest.mark.model

HOT = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"


class Drawing:
    """A scheduler on the embedded model, on which drafts cost nothing, and those of a draft model a tenth."""

    def __init__(self, weights: Weights, drafting: Weights | None = None) -> None:
        self.weights = weights
        self.runtime = LlamaRuntime(weights, ContextOptions(1024, 8, n_outputs=24, n_threads=1, **_F32))
        self.draft_model = None
        if drafting is not None:
            small = LlamaRuntime(drafting, ContextOptions(512, 4, n_threads=1, **_F32))
            self.draft_model = DraftModel(
                small, weights.n_vocab, speed=SteadySpeed(0.001, 0.0001), clock=Ticking(0.001)
            )
        speculator = Speculator(SteadyCost(0.0))
        self.scheduler = scheduler_on(self.runtime, draft_model=self.draft_model, drafting={"speculator": speculator})
        constrainer = Constrainer(weights, weights.end_tokens)
        self.scheduler._decode = replace(self.scheduler._decode, constrainer=constrainer)
        self.prompt = array("i", weights.tokenize(PROMPT))

    def draw(self, sampling: Sampling, expected: Sequence[Sequence[int]] = (), **job: Any) -> tuple[list[Any], Done]:
        """The steps of one answer that are tokens, and its end; with drafts of what is expected behind the prompt."""
        texts = tuple(array("i", [*self.prompt[-3:], *text]) for text in expected)
        n, most = job.pop("max_tokens", 12), job.pop("speculate", 16 * bool(texts))
        wanted = Job(self.prompt, n, sampling, speculate=most, predicted=texts, **job)
        ticket = Ticket(wanted, cast(Any, SilentLoop()))
        self.scheduler.queue.add(ticket)
        self.scheduler.admit()
        while self.scheduler.running:
            self.scheduler.step()
            for resident in self.scheduler.pool.ledger:
                self.scheduler.pool.ledger.check(resident, self.runtime.held(resident.id))
        assert ticket._error is None
        (done,) = [step for step in ticket._steps if isinstance(step, Done)]
        return [step for step in ticket._steps if isinstance(step, int | Scored)], done


@pytest.fixture(scope="module")
def exact(lamb: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    """The embedded model in single precision: there a batch is rounded like its tokens one by one, nearly."""
    path = tmp_path_factory.mktemp("exact") / "lamb.gguf"
    params = C.llama_model_quantize_default_params()
    params.ftype, params.nthread, params.allow_requantize = 0, 1, True
    assert C.llama_model_quantize(os.fsencode(lamb), os.fsencode(path), ctypes.byref(params)) == 0
    made = Weights.load(path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def drawing(exact: Weights) -> Iterator[Drawing]:
    made = Drawing(exact)
    yield made
    made.runtime.close()


@pytest.mark.parametrize("kind", ["itself", "Q4_0"])
def test_what_a_draft_model_guesses_changes_no_answer(exact: Weights, tmp_path: Path, kind: str) -> None:
    """It guesses all where it is the same model, and most where it is rounded to four bits."""
    drafting = exact
    if kind != "itself":
        quantize(exact.path, tmp_path / "small.gguf", "Q4_0")
        drafting = Weights.load(tmp_path / "small.gguf")
    one = Drawing(exact, drafting)
    n_drafted = n_accepted = 0
    for seed, sampling in enumerate((Sampling(temperature=0), Sampling(temperature=0), HOT, Sampling(mirostat=2))):
        wanted = replace(sampling, seed=seed)
        grammar = LETTERS if seed == 1 else None
        plain, _ = one.draw(wanted, max_tokens=40, grammar=grammar, speculate=0)
        drafted, done = one.draw(wanted, max_tokens=40, grammar=grammar, speculate=16)
        assert drafted == plain
        n_drafted += done.drafted
        n_accepted += done.accepted
        if kind == "itself" and seed == 0:
            assert done.accepted == done.drafted > 0
    assert 10 < n_accepted <= n_drafted
    assert kind == "itself" or n_accepted < n_drafted
    assert one.draft_model is not None
    assert any(len(line.held) for line in one.draft_model._lines.values()), "it was the draft model"
    one.draft_model.close()
    one.runtime.close()
    if drafting is not exact:
        drafting.close()


SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "hot": HOT,
    "defaults": Sampling(),
    "penalties": replace(HOT, repetition_penalty=1.4, frequency_penalty=0.5, dry_multiplier=0.8, repeat_last_n=16),
    "mirostat": Sampling(mirostat=2),
    "bias": replace(HOT, logit_bias=((65, 3.0), (66, -100.0))),
}
_F32: dict[str, Any] = {"cache_type_k": "f32", "cache_type_v": "f32"}
LETTERS = r"start: /[a-z ,.]{4,60}/"


@pytest.mark.parametrize("grammar", [None, LETTERS], ids=["free", "grammar"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_each_seed_draws_the_same_with_drafts(drawing: Drawing, name: str, grammar: str | None) -> None:
    """Half of the drafts hold: those of the answer without them, of which one token is changed."""
    n_accepted = n_refused = 0
    for seed in range(amount(1, 2)):
        sampling = replace(SAMPLINGS[name], seed=seed)
        plain, _ = drawing.draw(sampling, grammar=grammar)
        wrong = [*plain[:5], (plain[5] + 1) % 200, *plain[6:]] if len(plain) > 6 else plain
        for expected in (plain, wrong):
            drafted, done = drawing.draw(sampling, [expected], grammar=grammar)
            assert drafted == plain
            n_accepted += done.accepted
            n_refused += done.drafted - done.accepted
    assert n_accepted > 5
    assert n_refused > 0 or grammar, "the grammar may refuse it before"


@pytest.mark.parametrize("drawn", [False, True])
def test_scores_are_those_of_the_same_place(drawing: Drawing, drawn: bool) -> None:
    sampling = replace(HOT, seed=3)
    plain, _ = drawing.draw(sampling, scores=2, scores_drawn=drawn)
    tokens = [score.token for score in plain]
    drafted, done = drawing.draw(sampling, [tokens], scores=2, scores_drawn=drawn)
    assert done.accepted > 5
    for mine, other in zip(drafted, plain, strict=True):
        assert mine.token == other.token
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-2)
        assert mine.top[0][0] == other.top[0][0]
