"""The tests of `tests/unit/engine/test_adapters_model.py` that take long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.unit.engine.test_adapters_model import (
    real,
    sets,
    weights,  # noqa: F401 - fixtures
)
from tests.unit.engine.test_branches import Cache, Chat, words

from shepherd.engine.base import Owner
from shepherd.engine.kv.pool import Tiers
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model


@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_that_of_a_cold_cache_with_the_same_set(weights: Weights, tmp_path: Path, seed: int) -> None:
    """Chats of several sets begin alike, change their sets, leave for the tiers and come back after a restart."""
    random = Random(seed)
    tiers = Tiers(8 << 20, tmp_path / "kv", 64 << 20) if seed else Tiers(8 << 20)
    cache, cold = Cache(real(weights), tiers), Cache(real(weights), Tiers())
    system, choice = words(300, 1), sets(weights)
    chats = [Chat([system]) for _ in range(4)]
    sent = []
    for at in range(24):
        chat = random.choice(chats)
        if random.random() < 0.2:
            chat = chats[chats.index(chat)] = Chat(list(random.choice(chats).messages))  # a branch
        owner = Owner(random.choice(("", "ada")), 300, random.choice(choice))
        cache.ask(chat.say(random.randint(5, 60), at), owner=owner)
        sent.append(cache.sent[-1])
        chat.messages.extend([words(random.randint(5, 60), at), [*cache.sent[-1][1], 127]])
        if random.random() < 0.2:
            for resident in cache.scheduler.pool.ledger.idle():
                cache.scheduler.pool.drop(resident)
        if seed and at == 12:
            while cache.scheduler.pool.save_one():
                pass
            cache.scheduler.pool.close()
            cache.runtime.close()
            cache = Cache(real(weights), tiers)
            assert cache.scheduler.pool.snapshots.flush(30)
    for job, answer in sent:
        cold.scheduler.clear()
        assert cold.finish(replace(job, owner=Owner(adapters=job.owner.adapters))) == len(job.tokens)
        assert cold.sent[-1][1] == answer
    for each in (cache, cold):
        each.scheduler.pool.close()
        each.runtime.close()
