"""Branches of conversations on real memories that cannot be cut: every answer is that of a cold cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.engine import tiny_gguf
from tests.unit.engine.test_branches import TAIL, Cache, words

from shepherd.engine.kv.pool import LEAST_BASE, Tiers
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model


@pytest.fixture(scope="module", params=["delta", "mamba2", "hybrid", "recurrent", "gemma3"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weights]:
    """Random weights: gated delta nets as in Qwen3.5, Mamba2 beside attention, short convolutions, Mamba, small
    sliding windows."""
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    tiny_gguf.write(tiny_gguf.RECIPES[request.param], path)
    made = Weights.load(path)
    yield made
    made.close()


def real(weights: Weights, *, swa_full: bool = False) -> LlamaRuntime:
    return LlamaRuntime(weights, ContextOptions(n_ctx=4096, n_seq=6, n_threads=1, swa_full=swa_full))


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("name", ["plain", "qwen3", "mrope", "gemma2"])
def test_chats_that_are_saved_without_their_system_prompt_answer_as_a_cold_cache_does(
    name: str, tmp_path: Path
) -> None:
    """They leave the cells while another one has their system prompt, which then leaves, too, and come back."""
    tiny_gguf.write(tiny_gguf.RECIPES[name], tmp_path / "model.gguf")
    weights = Weights.load(tmp_path / "model.gguf")
    cache, cold = Cache(real(weights, swa_full=True)), Cache(real(weights, swa_full=True), Tiers())
    system = words(LEAST_BASE + 44, 1)
    chats = [cache.talk(system, 2, seed=seed) for seed in range(1, 5)]
    for seed in range(3):
        cache.talk(words(900, 60 + seed), 1, seed=seed)  # they need all cells
    n_apart = [each.n_base for each in cache.scheduler.pool.snapshots.outlines().values()].count(len(system))
    n_sent = len(cache.sent)
    for chat in chats:
        assert cache.ask(chat.say(25, 90)) <= 27 + len(TAIL)
    assert n_apart == (3 if name != "gemma2" else 0), "windows lose their beginnings by themselves"
    for job, answer in cache.sent[n_sent:]:
        cold.scheduler.clear()
        assert cold.finish(job) == len(job.tokens)
        assert cold.sent[-1][1] == answer
    for each in (cache, cold):
        each.scheduler.pool.close()
        each.runtime.close()
    weights.close()
