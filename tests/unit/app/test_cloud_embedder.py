"""A provider that makes the vectors of the memory."""

import json
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import httpx2
import numpy as np
import pytest
from tests.own_server import serving
from tests.providers_replay import Answer, ReplayServer
from tests.providers_thread import apart

from shepherd import config as configuration
from shepherd.app.cloud_embedder import CloudEmbedder
from shepherd.backends.cloud.backend import CloudBackend
from shepherd.backends.cloud.budget import Budget, Meter, Spending
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.core import BackendError, ConfigError
from shepherd.core.status import Spent
from shepherd.memory import MemoryStore
from shepherd.memory.records import Entry

KEY = "sk-test-SECRET-4242424242"


class Words(ReplayServer):
    """Makes vectors whose first numbers count words: what is alike has the same ones."""

    WORDS = ("dog", "cat", "tree")
    is_down = False
    n_answers = sys.maxsize
    """Then it is down."""

    def made(self, text: str) -> list[float]:
        return [text.lower().count(word) + 0.01 for word in self.WORDS] + [0.01] * 61

    def _next(self, received):  # type: ignore[no-untyped-def]
        self.n_answers -= 1
        if self.is_down or self.n_answers < 0:
            return Answer(received.path, b'{"error": {"message": "no key"}}', 401), ""
        rows = [{"index": at, "embedding": self.made(text)} for at, text in enumerate(received.json["input"])]
        body = json.dumps({"data": rows, "usage": {"prompt_tokens": 10 * len(rows)}}).encode()
        return Answer(received.path, body, 200, {"content-type": "application/json"}), ""


def counting_words() -> AbstractContextManager[Words]:
    return apart(Words())


def openai(words: Words, meter: Meter | None = None) -> CloudBackend:
    return CloudBackend(provider_of(KINDS["openai"], base_url=words.url, key=KEY), meter=meter)


def test_texts_are_asked_for_once_and_together() -> None:
    with counting_words() as words:
        now = [0.0]
        embedder = CloudEmbedder(openai(words), "text-embedding-3-small", clock=lambda: now[0])
        try:
            assert (embedder.name, embedder.dim) == ("openai/text-embedding-3-small", 64)
            made = embedder.embed(["a dog", "a cat", "a dog"])
            assert made.shape == (3, 64)
            assert np.allclose(np.linalg.norm(made, axis=1), 1)
            assert np.array_equal(made, embedder.embed(["a dog", "a cat", "a dog"]))
            assert [each.json["input"] for each in words.requests] == [["size"], ["a dog", "a cat"]]
            words.is_down = True
            for _ in range(3):
                with pytest.raises(BackendError, match="no key"):
                    embedder.embed(["a tree"])
            assert len(words.requests) == 3  # it rests
            now[0], words.is_down = 31.0, False
            assert embedder.embed(["a tree"]).shape == (1, 64)
        finally:
            embedder.close()


def test_a_provider_that_makes_none_is_an_error_at_once() -> None:
    with counting_words() as words:
        words.is_down = True
        with pytest.raises(BackendError, match="no key"):
            CloudEmbedder(openai(words), "m")


def test_they_are_counted_and_none_are_made_when_the_budget_is_spent(tmp_path: Path) -> None:
    spending = Spending(tmp_path / "spending")
    meter = Meter(spending, "openai", Budget(tokens=20))
    with (
        counting_words() as words,
        closing(CloudEmbedder(openai(words, meter), "m")) as embedder,
        MemoryStore(tmp_path / "memory.db", embedder=embedder) as store,
    ):
        store.archive([Entry("user", "My doggie is called Rex."), Entry("assistant", "Nice.")])
        store.embed()
        assert spending.today("openai") == spending.total("openai") == Spent(20, 0, 0)
        store.archive([Entry("user", "The oak is old.")], session="b")
        with pytest.raises(BackendError, match=r"budget of the provider 'openai' is spent \(20 of 20 tokens\)"):
            store.embed()
        assert len(words.requests) == 2, "nothing is sent"
        assert "oak" in store.search("oak")[0].user_message, "by words"


def test_a_memory_finds_by_them_and_by_words_while_the_provider_is_away(tmp_path: Path) -> None:
    with (
        counting_words() as words,
        closing(CloudEmbedder(openai(words), "m")) as embedder,
        MemoryStore(tmp_path / "memory.db", embedder=embedder) as store,
    ):
        store.archive([Entry("user", "My doggie is called Rex."), Entry("assistant", "Nice.")])
        store.archive([Entry("user", "The oak over there is old."), Entry("assistant", "It is.")], session="b")
        assert store.embed() > 0
        assert "Rex" in store.search("pets: dog")[0].user_message
        words.is_down = True
        assert "Rex" in store.search("Who was Rex?")[0].user_message
        assert store.search("dog") == []


TOML = """
[providers.up]
type = "openai"
api_key = "{key}"
base_url = "{url}"
model = "m"
[memory]
embedding_model = "up/text-embedding-3-small"
database_path = "memory.db"
"""


def test_the_memory_of_a_server_is_searched_with_them(tmp_path: Path) -> None:
    with counting_words() as words, serving(tmp_path, TOML.format(key=KEY, url=words.url)) as url:
        assert [each.json["input"] for each in words.requests] == [["size"]]
        assert httpx2.get(f"{url}/health").json()["status"] == "ok"


def test_vectors_of_clients_and_of_the_memory_are_one_budget_that_everything_shows(tmp_path: Path) -> None:
    with counting_words() as words:
        text = TOML.format(key=KEY, url=words.url).replace("up", "once-in-a-test")
        text = text.replace("model = ", "budget_tokens = 20\nprices = {input = 1.0}\nmodel = ", 1)
        with serving(tmp_path, text) as url:  # which asks for one, of 10 tokens, to learn its size
            asked = {"model": "once-in-a-test/text-embedding-3-small", "input": "a dog"}
            assert httpx2.post(f"{url}/v1/embeddings", json=asked).json()["usage"]["prompt_tokens"] == 10
            answer = httpx2.post(f"{url}/v1/embeddings", json=asked)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "budget_exceeded")
            assert 0 < int(answer.headers["retry-after"]) <= 25 * 3600
            assert len(words.requests) == 2, "nothing is sent"
            spent = {"input": 20, "cached": 0, "output": 0, "money": 20e-6}
            assert httpx2.get(f"{url}/v1/caches").json()["providers"]["once-in-a-test"]["today"] == spent
            metrics = httpx2.get(f"{url}/metrics").text
            assert 'shepherd_provider_tokens_total{kind="input",provider="once-in-a-test"} 20.0' in metrics


def test_a_provider_that_is_down_leaves_the_search_to_words(tmp_path: Path) -> None:
    with counting_words() as words:
        words.is_down = True
        with serving(tmp_path, TOML.format(key=KEY, url=words.url)) as url:
            assert httpx2.get(f"{url}/health").json()["status"] == "ok"


def test_a_route_that_keeps_prompts_here_excludes_a_provider_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(
        f'[providers.openai]\napi_key = "{KEY}"\n[memory]\nembedding_model = "openai/text-embedding-3-small"\n'
        '[models.here]\npath = "embedded"\n[[routes]]\nmatch = "*"\ncache = "main"\nprivacy = "local"\n'
        '[caches.main]\nmodel = "here"\n'
    )
    with pytest.raises(ConfigError, match=r"memory\.embedding_model: a provider elsewhere would read"):
        configuration.load(flags={}, env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
