"""A model that looks at what a search has found once more: its order, its time, its failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.in_time import PATIENCE_S

from shepherd.core import EngineError
from shepherd.memory import Entry, MemoryStore
from shepherd.memory.search.reranking import MOST, REST_S, TEXT_CHARS, Reranking, blended

TEXTS = ["a", "bbb", "cc"]


def by_length(question: str, texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def made(score: object = by_length, **options: object) -> Reranking:
    return Reranking(score, "rank", **{"budget_s": PATIENCE_S, **options})  # type: ignore[arg-type]


def test_texts_are_put_in_the_order_of_their_places_and_scores() -> None:
    reranking = made()
    assert reranking.order("q", TEXTS) == [1, 0, 2]
    assert reranking.order("q", ["a"]) == [0]
    assert reranking.order("q", []) == []
    reranking.close()


def test_the_best_are_read_from_their_beginnings_and_the_rest_follows_as_it_was() -> None:
    read: list[str] = []

    def score(question: str, texts: Sequence[str]) -> list[float]:
        read.extend(texts)
        return by_length(question, texts)

    texts = [*("a" * n for n in range(1, MOST)), "b" * 2 * TEXT_CHARS, "c", "dd"]
    reranking = made(score)
    assert reranking.order("q", texts) == [*blended([*range(1, MOST), TEXT_CHARS]), MOST, MOST + 1]
    assert (len(read), max(map(len, read))) == (MOST, TEXT_CHARS)
    reranking.close()


def test_one_that_stands_out_is_first_and_scores_without_a_say_change_nothing() -> None:
    for n in range(1, 4):  # from among the best four
        assert blended([float(at == n) for at in range(MOST)])[0] == n
        assert blended([float(at == n) for at in range(MOST)]) == blended([1e6 * (at == n) - 3 for at in range(MOST)])
    assert blended([0.5] * MOST) == list(range(MOST))
    assert blended([]) == []
    noise = [(at * 7 % MOST) / MOST for at in range(MOST)]
    assert blended(noise)[0] == 0, "an even spread does not move the first place of the search"
    assert blended([-1e300, 1e300]) == [1, 0]
    assert blended([1.0, 1.0 + 1e-16]) == [0, 1]


def test_when_time_is_up_those_that_have_scores_are_ordered() -> None:
    now = 0.0

    def score(question: str, texts: Sequence[str]) -> list[float]:
        nonlocal now
        now += 0.4
        return by_length(question, texts)

    reranking = Reranking(score, "rank", budget_s=1.0, clock=lambda: now)
    assert reranking.order("q", ["a", "bb", "ccc", "dddd", "eeeee"]) == [2, 1, 0, 3, 4]
    assert reranking.n_failures == 0
    reranking.close()


def test_a_search_does_not_wait_for_a_model_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    free, n_asked = threading.Event(), 0

    def score(question: str, texts: Sequence[str]) -> list[float]:
        nonlocal n_asked
        n_asked += 1
        free.wait(PATIENCE_S)
        return by_length(question, texts)

    now = 0.0
    reranking = Reranking(score, "rank", budget_s=0.02, clock=lambda: now)
    with caplog.at_level(logging.WARNING):
        assert reranking.order("q", TEXTS) == [0, 1, 2]
    assert "without its reranker rank for 30 s: it has no score after 0.02 s" in caplog.text
    assert reranking.order("q", TEXTS) == [0, 1, 2]
    assert (reranking.n_failures, n_asked) == (1, 1), "it rests"
    free.set()
    reranking.close()


def test_a_model_that_fails_is_left_alone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now, fails = 0.0, True

    def score(question: str, texts: Sequence[str]) -> list[float]:
        if fails:
            raise EngineError("rank.gguf could not compute")
        return by_length(question, texts)

    reranking = made(score, clock=lambda: now)
    with caplog.at_level(logging.WARNING):
        assert reranking.order("q", TEXTS) == [0, 1, 2]
    assert "rank.gguf could not compute" in caplog.text
    fails = False
    assert reranking.order("q", TEXTS) == [0, 1, 2]
    assert reranking.n_failures == 1
    now = REST_S
    assert reranking.order("q", TEXTS) == [1, 0, 2]
    reranking.close()
    assert reranking.order("q", TEXTS) == [0, 1, 2], "closed"


# -- in the memory -----------------------------------------------------------------------------------------------------

SHEEP = ["My sheep is called Lamb, a sheep that eats.", "The other sheep sleeps.", "We sold a sheep called Wool."]


@pytest.fixture
def reranking() -> Iterator[Reranking]:
    reranking = made(lambda question, texts: [float("Wool" in text) for text in texts])
    yield reranking
    reranking.close()


def test_search_and_rank_are_in_the_models_order(tmp_path: Path, reranking: Reranking) -> None:
    with MemoryStore(tmp_path / "m.db", reranking=reranking) as store, MemoryStore(tmp_path / "m.db") as plain:
        for text in SHEEP:
            plain.archive([Entry("user", text), Entry("assistant", "Noted.")])
        question = "What is my sheep called, the sheep that eats?"
        assert plain.search(question)[0].user_message == SHEEP[0]
        hits = store.search(question)
        assert hits[0].user_message == SHEEP[2]
        assert {hit.user_message for hit in hits} == {hit.user_message for hit in plain.search(question)}
        scores = [each.score for each in store.rank(question, limit=9)]
        assert scores == sorted(scores, reverse=True)
        assert store.search("")[0].user_message == plain.search("")[0].user_message, "the newest"


def test_messages_that_are_not_looked_at_are_found_all_the_same(tmp_path: Path, reranking: Reranking) -> None:
    with MemoryStore(tmp_path / "m.db", reranking=reranking) as store, MemoryStore(tmp_path / "m.db") as plain:
        for n in range(MOST + 5):
            plain.archive([Entry("user", f"The sheep number {n} sleeps.")])
        ids = [each.id for each in store.rank("sheep", limit=50)]
        assert len(ids) == MOST + 5
        assert ids[MOST:] == [each.id for each in plain.rank("sheep", limit=50)][MOST:]
