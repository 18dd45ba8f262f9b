"""The tests of `tests/unit/engine/test_branches_model.py` that take long."""

from __future__ import annotations

import pytest
from tests.unit.engine.test_branches import BRANCHES, TAIL, Cache, Chat, words
from tests.unit.engine.test_branches_model import (
    real,
    weights,  # noqa: F401 - fixtures
)

from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model


def test_real_models_answer_in_every_branch_as_a_cold_cache_does(weights: Weights) -> None:
    cache = Cache(real(weights))
    chat = cache.talk(words(500, 1), 8)
    for change, n, _ in BRANCHES.values():
        assert cache.ask(change(Chat(list(chat.messages)))) <= n + len(TAIL)
    assert cache.ask(chat.say(25, 60)) <= 27 + len(TAIL)
    cold = Cache(real(weights), Tiers())
    for job, answer in cache.sent:
        cold.scheduler.clear()
        assert cold.finish(job) == len(job.tokens)
        assert cold.sent[-1][1] == answer
    for each in (cache, cold):
        each.scheduler.pool.close()
        each.runtime.close()
