"""Vectors over HTTP: the vendors' clients against a really started server."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import httpx2
import numpy as np
import ollama
import openai
import pytest
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.core import InvalidRequest, Request, TextOrTokens, UnknownModel
from shepherd.core.status import Embeddings, ModelCard

Asked = tuple[str, Sequence[TextOrTokens], int | None, bool, str]


class Vectors(ScriptedService):
    """Remembers what it was asked, and refuses one text."""

    def __init__(self) -> None:
        super().__init__(saying("a"))
        self.cards = (ModelCard("bert", 512, 1, kind="embedding"),)
        self.asked: list[Asked] = []

    async def embed(
        self, model: str, inputs: Sequence[TextOrTokens], *, dimensions: int | None, truncate: bool,
        endpoint: str,
    ) -> Embeddings:  # fmt: skip
        self.asked.append((model, inputs, dimensions, truncate, endpoint))
        if model == "gone":
            raise UnknownModel(model, known=("bert",))
        if "long" in inputs and not truncate:
            raise InvalidRequest("input[1] has 600 tokens; bert.gguf reads at most 512", field="input[1]")
        return await super().embed(model, inputs, dimensions=dimensions, truncate=truncate, endpoint=endpoint)


@pytest.fixture
def service() -> Vectors:
    return Vectors()


async def test_openai_gets_vectors_of_texts_and_of_tokens(listening: Listening, service: Vectors) -> None:
    async with listening(service) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
        packed = await client.embeddings.create(model="bert", input=["a", "bb"])  # base64, and unpacked by the client
        plain = await client.embeddings.create(model="bert", input=["a", "bb"], encoding_format="float")
        tokens = await client.embeddings.create(model="bert", input=[[97], [98, 98]])
        short = await client.embeddings.create(model="bert", input="a", dimensions=2, user="anna")
    assert [one.embedding for one in packed.data] == [one.embedding for one in tokens.data]
    assert np.allclose([one.embedding for one in packed.data], [one.embedding for one in plain.data], atol=1e-7)
    assert [one.index for one in packed.data] == [0, 1]
    assert (packed.model, packed.object) == ("bert", "list")
    assert packed.usage.model_dump() == {"prompt_tokens": 3, "total_tokens": 3}
    assert math.isclose(math.hypot(*short.data[0].embedding), 1, abs_tol=1e-6)
    assert len(short.data[0].embedding) == 2
    assert service.asked[2] == ("bert", ((97,), (98, 98)), None, False, "/v1/embeddings")


async def test_openai_reads_what_is_wrong(listening: Listening, service: Vectors) -> None:
    async with listening(service) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
        with pytest.raises(openai.BadRequestError, match="600 tokens") as caught:
            await client.embeddings.create(model="bert", input=["a", "long"])
        assert caught.value.param == "input[1]"
        with pytest.raises(openai.NotFoundError, match="'gone' does not exist; known: bert"):
            await client.embeddings.create(model="gone", input="a")
        with pytest.raises(openai.BadRequestError, match="dimensions must be an integer"):
            await client.embeddings.create(model="bert", input="a", dimensions=-1)


async def test_every_number_survives_either_way(listening: Listening, service: Vectors) -> None:
    async with listening(service) as url, httpx2.AsyncClient(base_url=url) as client:
        body = {"model": "bert:latest", "input": "abcdefg"}
        plain = (await client.post("/v1/embeddings", json=body)).json()
        packed = (await client.post("/embeddings", json=body | {"encoding_format": "base64"})).json()
    there = np.array(plain["data"][0]["embedding"], np.float32)
    assert np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4").tolist() == there.tolist()
    assert plain["model"] == packed["model"] == "bert:latest"
    assert [asked[0] for asked in service.asked] == ["bert:latest", "bert:latest"]


async def test_ollama_gets_vectors(listening: Listening, service: Vectors) -> None:
    async with listening(service) as url, ollama.AsyncClient(url) as client:
        many = await client.embed("bert:latest", ["a", "long"], dimensions=3, keep_alive="5m")
        one = await client.embed("bert", "a", truncate=False)
        old = await client.embeddings("bert", "a")
        with pytest.raises(ollama.ResponseError, match="600 tokens") as caught:
            await client.embed("bert", ["a", "long"], truncate=False)
    assert caught.value.status_code == 400
    assert [len(vector) for vector in many.embeddings] == [3, 3]
    assert list(one.embeddings[0]) == list(old.embedding)
    assert (many.model, many.prompt_eval_count) == ("bert:latest", 5)
    assert many.total_duration is not None
    assert many.total_duration > 0
    assert service.asked[0] == ("bert:latest", ("a", "long"), 3, True, "/api/embed")
    assert [asked[3:] for asked in service.asked[1:3]] == [(False, "/api/embed"), (True, "/api/embeddings")]
    assert service.unloaded == []


@pytest.mark.parametrize("text", ["", "a"])
async def test_ollama_says_how_long_a_model_stays_that_only_embeds(
    listening: Listening, service: Vectors, text: str
) -> None:
    async with listening(service) as url, ollama.AsyncClient(url) as client:
        answers = [await client.embed("bert", text, keep_alive=keep_alive) for keep_alive in (None, "5m", 0)]
        old: Any = await client.embeddings("bert", text, keep_alive=0)
    n = len(text)
    assert [len(answer.embeddings) for answer in answers] == [n] * 3
    assert len(old.embedding) == 4 * n
    assert len(service.asked) == 4 * n
    name = "fake-embedding" if text else "bert"  # as whoever made the vectors is called
    loads = [Request(name, extra={"keep_alive": 300.0})]
    assert service.requests == (loads if text else [Request(name), *loads])
    assert service.unloaded == [name, name], "what is to go need not come first"
