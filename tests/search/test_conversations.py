"""The tests of `tests/unit/test_conversations.py` that take long."""

from __future__ import annotations

import concurrent.futures
import itertools
import random
import threading
import time
from pathlib import Path

import httpx2
import pytest
from tests.cases import amount
from tests.own_server import serving
from tests.unit.test_conversations import (
    CLIENT,
    NAMES,
    SAID,
    Messages,
    _close_the_client,  # noqa: F401 - fixtures
    ask,
    caches,
    said,
)

pytestmark = pytest.mark.model


def test_20_no_conversation_sees_another(tmp_path: Path, two_caches: str) -> None:
    """A soak: eight clients, two caches, cells for a few of them only; every answer is compared with a lonely one's."""
    generator = random.Random(20)
    scripts = {name: [text.format(name) for text in [SAID[1], *generator.sample(SAID, 3), SAID[-1]]] for name in NAMES}

    def talk(address: str, name: str, model: str) -> list[str]:
        history: Messages = [said("system", "You are Lamb.")]
        answers = []
        for text in scripts[name]:
            history.append(said("user", text))
            answers.append(ask(address, history, model=model).text)
            history.append(said("assistant", answers[-1]))
        return answers

    with serving(tmp_path, two_caches.replace("n_ctx = 2048", "n_ctx = 700")) as address:
        alone: dict[str, list[str]] = {}
        for name in NAMES:
            alone[name] = talk(address, name, "lamb")
            CLIENT.delete(f"{address}/v1/caches/main")
        healthy: list[bool] = []
        done = threading.Event()

        def watch() -> None:
            while not done.is_set():
                healthy.append(httpx2.get(f"{address}/health", timeout=10).status_code == 200)
                time.sleep(0.05)

        watcher = threading.Thread(target=watch)
        watcher.start()
        with concurrent.futures.ThreadPoolExecutor(len(NAMES)) as pool:
            models = itertools.cycle(("lamb", "lamb", "lamb", "claude-haiku"))
            for _ in range(amount(1, 3)):
                got = dict(zip(NAMES, pool.map(lambda name: talk(address, name, next(models)), NAMES), strict=True))
                assert {name: answers[-1] for name, answers in got.items() if name not in answers[-1]} == {}
                assert got == alone
        done.set()
        watcher.join()
        main = caches(address)["main"]
        assert main["dropped"] > 0, "there was not room for all of them"
        assert main["restored"] > 0
        assert len(healthy) > 5
        assert all(healthy), "whatever goes on"
