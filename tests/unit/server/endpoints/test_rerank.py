"""Reranking over HTTP: every path, in the shape of its protocol, errors included."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from tests.in_time import PATIENCE_S
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.core import InvalidRequest, UnknownModel
from shepherd.core.pairs import Pairs, Scores


class Ranking(ScriptedService):
    """Refuses one document."""

    def __init__(self) -> None:
        super().__init__(saying("a"))
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def rerank(self, model: str, pairs: Pairs) -> Scores:
        if model == "gone":
            raise UnknownModel(model, known=("rank",))
        for at, (_, document) in enumerate(pairs.texts):
            if document == "long" and not pairs.truncate:
                place = pairs.place.format(at)
                raise InvalidRequest(f"{place} has 600 tokens; rank.gguf reads at most 512", field=place)
            if document == "endless":
                self.begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
        return await super().rerank(model, pairs)


@pytest.fixture
def service() -> Ranking:
    return Ranking()


RAIN = ["It rains .", "the lamb sleeps", "lamb"]
ORDER = [(1, 1.0), (2, 0.0), (0, -1.0)]


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking"])
async def test_jinas_shape_is_answered_at_all_paths(listening: Listening, service: Ranking, path: str) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = (await client.post(path, json={"model": "rank", "query": "the lamb", "documents": RAIN})).json()
        tei = (await client.post(path, json={"query": "the lamb", "texts": RAIN, "raw_scores": True})).json()
    assert [(each["index"], each["relevance_score"]) for each in answer["results"]] == ORDER
    assert answer["usage"]["total_tokens"] == sum(len(f"the lamb{text}") for text in RAIN)
    assert (answer["model"], answer["id"][:7]) == ("rank", "rerank-")
    assert tei == [{"index": at, "score": score} for at, score in ORDER]


async def test_coheres_and_vllms_shapes(listening: Listening, service: Ranking) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        body = {"model": "rank", "query": "the lamb", "documents": [*RAIN, "long"], "top_n": 2}
        cohere = (await client.post("/v2/rerank", json=body)).json()
        scores = [
            (await client.post(path, json={"text_1": "the lamb", "text_2": RAIN, "use_activation": False})).json()
            for path in ("/v1/score", "/score")
        ]
    assert [each["index"] for each in cohere["results"]] == [1, 2]
    assert all(0 < each["relevance_score"] < 1 for each in cohere["results"])
    for found in scores:
        assert [(each["index"], each["score"]) for each in found["data"]] == sorted(ORDER)
        assert found["model"] == "fake-rank"


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("/v1/rerank", {"query": "q", "documents": ["a", 5]}, 400, {"param": "documents[1]"}),
        ("/v1/rerank", {"query": "q", "documents": ["a", "long"]}, 400, {"param": "documents[1]"}),
        ("/v1/rerank", {"model": "gone", "query": "q", "documents": ["a"]}, 404, {"code": "model_not_found"}),
        ("/v1/score", {"text_1": "q", "text_2": "long"}, 400, {"param": "text_2"}),
    ],
)
async def test_openais_shape_of_errors(
    listening: Listening, path: str, body: dict[str, Any], status: int, expected: dict[str, str]
) -> None:
    async with listening(Ranking()) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"].items() >= expected.items()


async def test_tei_and_cohere_have_errors_of_their_own(listening: Listening, service: Ranking) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        tei = await client.post("/rerank", json={"query": "q", "texts": ["a", "long"]})
        read = await client.post("/rerank", json={"query": "q", "texts": ["a", "long"], "truncate": True})
        cohere = await client.post("/v2/rerank", json={"query": "q", "documents": []})
        gone = await client.post("/v2/rerank", json={"model": "gone", "query": "q", "documents": ["a"]})
    assert (tei.status_code, tei.json()) == (
        400, {"error": "texts[1] has 600 tokens; rank.gguf reads at most 512", "error_type": "Validation"}
    )  # fmt: skip
    assert read.status_code == 200
    assert "documents is an empty array" in cohere.json()["message"]
    assert gone.status_code == 404


async def test_a_client_that_goes_away_ends_the_work(listening: Listening, service: Ranking) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        asking = asyncio.create_task(client.post("/v1/rerank", json={"query": "q", "documents": ["endless"]}))
        await asyncio.wait_for(service.begun.wait(), PATIENCE_S)
        asking.cancel()
        await asyncio.wait_for(service.cancelled.wait(), PATIENCE_S)
