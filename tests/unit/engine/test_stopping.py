"""However small the host memory: when an engine stops, every conversation of its cells is on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeRuntime
from tests.unit.engine.test_branches import N_CTX, TAIL, Cache, Chat, model, words

from shepherd.engine.kv.pool import Tiers

N_TALKS, N_WORDS = 6, 300
MEMORIES = {"plain": PLAIN, "recurrent": RECURRENT}
HOST = {"none": 0, "of one conversation": 60_000, "of two": 200_000, "of all": 64 << 20}


def empty(memory: str) -> FakeRuntime:
    return FakeRuntime(model, n_ctx=N_CTX, n_seq=12, n_batch=512, memory=MEMORIES[memory])


def talks(cache: Cache) -> list[Chat]:
    found = [Chat([words(N_WORDS, number)]).say(40, 100 + number) for number in range(N_TALKS)]
    for chat in found:
        cache.ask(chat)
    return found


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("n_idle", [0, 20], ids="{} saved before the end".format)
@pytest.mark.parametrize("ram", HOST)
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_conversation_of_the_cells_comes_back(memory: str, ram: str, n_idle: int, tmp_path: Path) -> None:
    tiers = Tiers(ram_bytes=HOST[ram], folder=tmp_path, disk_bytes=1 << 30)
    before, steps = Cache(empty(memory), tiers), []
    chats = talks(before)
    held = [chat for chat in chats if holds(before, chat)]
    for _ in range(n_idle):
        before.scheduler.pool.save_one()
    before.scheduler.pool.save_all(lambda: steps.append(1))
    before.scheduler.pool.close()
    assert len(held) > 3
    assert steps or n_idle  # what the disk has written by then is no step
    after = Cache(empty(memory), tiers)
    assert after.scheduler.pool.snapshots.flush(30)
    assert [after.ask(chat.say(30, 999)) <= 40 + len(TAIL) for chat in held] == [True] * len(held)
    after.scheduler.pool.close()


def holds(cache: Cache, chat: Chat) -> bool:
    first = chat.messages[0]
    return any(list(resident.tokens[: len(first)]) == first for resident in cache.scheduler.pool.ledger)
