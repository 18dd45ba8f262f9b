"""Adapters on real memories: whatever has been cached, every answer is that of a cold cache with the same set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.engine import tiny_gguf
from tests.unit.engine.adapter_files import adapters_for
from tests.unit.engine.test_branches import Cache, Chat, words

from shepherd.backends.local.adapters import adapter_set
from shepherd.core import EngineError
from shepherd.engine.base import Adapters, Owner
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model


@pytest.fixture(scope="module", params=["plain", "delta", "hybrid-swa", "hybrid"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    """Random weights of several kinds of memory, with two LoRAs and a control vector."""
    folder = tmp_path_factory.mktemp("models")
    tiny_gguf.write(tiny_gguf.RECIPES[request.param], folder / "model.gguf")
    made = Weights.load(folder / "model.gguf")
    for adapter in adapters_for(folder / "model.gguf", folder):
        made.add(adapter)
    yield made
    made.close()


def sets(weights: Weights) -> list[Adapters]:
    first, second, control = weights.adapters
    chosen = (
        (),
        [(first, 1.0)],
        [(first, 0.5)],
        [(first, 1.0), (second, -0.7)],
        [(control, 1.0)],
        [(second, 1.0), (control, 0.5)],
    )
    return [adapter_set(each) for each in chosen]


def real(weights: Weights) -> LlamaRuntime:
    return LlamaRuntime(weights, ContextOptions(n_ctx=4096, n_seq=6, n_threads=1))


def test_every_set_has_an_answer_of_its_own(weights: Weights) -> None:
    """Otherwise the tests below could not fail."""
    cache = Cache(real(weights), Tiers())
    for adapters in sets(weights):
        cache.ask(Chat([words(60, 1), words(30, 2)]), owner=Owner(adapters=adapters))
    answers = [tuple(answer) for _, answer in cache.sent]
    cache.scheduler.pool.close()
    cache.runtime.close()
    assert len(set(answers)) == len(answers)


def test_jobs_of_several_sets_side_by_side_answer_as_alone(weights: Weights) -> None:
    cache, alone = Cache(real(weights), Tiers()), Cache(real(weights), Tiers())
    jobs = [Chat([words(50, 1), words(20, 2)]).job(owner=Owner(adapters=each)) for each in sets(weights)]
    tickets = [cache.begin(job) for job in jobs]
    while not all(ticket.finished for ticket in tickets):
        cache.step()
    for job, ticket in zip(jobs, tickets, strict=True):
        alone.scheduler.clear()
        alone.finish(job)
        assert [step for step in ticket._steps if isinstance(step, int)] == alone.sent[-1][1]
    for each in (cache, alone):
        each.scheduler.pool.close()
        each.runtime.close()


def test_after_a_failure_the_set_of_the_context_is_known(weights: Weights) -> None:
    """A set that cannot be used leaves no part of itself behind."""
    cache = Cache(real(weights), Tiers())
    _, law, *_ = sets(weights)
    chat = Chat([words(60, 1), words(30, 2)])
    cache.finish(chat.job())
    first = cache.sent[-1][1]
    for _ in range(2):  # a set that was believed after the first failure would be computed with other weights
        ticket = cache.begin(chat.job(owner=Owner(adapters=(*law, ("unknown", 1.0)))))
        while not ticket.finished:
            cache.step()
        assert isinstance(ticket._error, EngineError)
    cache.finish(chat.job())
    assert cache.sent[-1][1] == first
    cache.scheduler.pool.close()
    cache.runtime.close()
