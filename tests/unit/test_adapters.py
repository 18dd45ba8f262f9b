"""Adapters over HTTP, with the embedded model: which a request gets, what is refused, and llama-server's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.own_server import serving
from tests.unit.engine.adapter_files import write_control, write_lora

from shepherd.models.catalog import embedded
from shepherd.models.gguf import read_header

pytestmark = pytest.mark.model

PROMPTS = ("Once upon a time", "The little dog saw", "Once upon a day there was a girl", "Tom and Lily")
Json = dict[str, Any]
GREEDY: Json = {"n_predict": 12, "temperature": 0, "return_tokens": True, "ignore_eos": True, "cache_prompt": False}
"""llama-server computes all of each prompt: what it has cached may be of other adapters."""


@dataclass(frozen=True)
class Files:
    """Two LoRAs and a control vector for the embedded model."""

    law: Path
    med: Path
    calm: Path

    @property
    def config(self) -> str:
        return f"""
            [models.lamb]
            path = "embedded"
            [[models.lamb.adapters]]
            path = "{self.law}"
            [[models.lamb.adapters]]
            path = "{self.med}"
            scale = 0.5
            apply = false
            [[models.lamb.adapters]]
            path = "{self.calm}"
            apply = false
            layers = [2, 3]
            [caches.main]
            model = "lamb"
            n_ctx = 1024
            [aliases]
            doctor = "lamb:med"
            """


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, model = tmp_path_factory.mktemp("adapters"), read_header(embedded())
    return Files(
        write_lora(folder / "law.gguf", model, seed=1),
        write_lora(folder / "med.gguf", model, seed=2),
        write_control(folder / "calm.gguf", model, seed=3, strength=5.0),
    )


@dataclass(frozen=True)
class Client:
    """Asks one server."""

    http: httpx2.Client

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def tokens(self, prompt: str, lora: tuple[tuple[int, float], ...] | None, model: str = "lamb") -> list[int]:
        """The greedy answer in tokens."""
        body: Json = {"model": model, "prompt": prompt, **GREEDY}
        if lora is not None:
            body["lora"] = [{"id": at, "scale": scale} for at, scale in lora]
        found: list[int] = self.post("/completion", body)["tokens"]
        return found


@pytest.fixture(scope="module")
def ours(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        serving(tmp_path_factory.mktemp("home"), files.config) as url,
        httpx2.Client(base_url=url, timeout=120) as http,
    ):
        yield Client(http)


# ---- the same tokens


# ---- which adapters a request gets


def test_a_request_chooses_by_lora_by_its_models_name_or_not_at_all(ours: Client) -> None:
    prompt = PROMPTS[1]
    by_default, base = ours.tokens(prompt, None), ours.tokens(prompt, ((0, 0.0),))
    law, med, calm = (ours.tokens(prompt, lora) for lora in (((0, 1.0),), ((1, 0.5),), ((2, 1.0),)))
    assert by_default == law, "an adapter applies unless its entry says that it does not"
    assert len({tuple(tokens) for tokens in (base, law, med, calm)}) == 4
    for name, expected in (
        ("lamb:law", law), ("LAMB:Med", med), ("lamb:calm", calm), ("claude-local-lamb:med", med),
        ("doctor", med), ("other", law),
    ):  # fmt: skip
        assert ours.tokens(prompt, None, model=name) == expected, name
    assert ours.tokens(prompt, ((0, 0.0),), model="lamb:med") == base, "lora is the stronger word"
    by_name = {"prompt": prompt, **GREEDY}
    assert ours.post("/completion", by_name | {"lora": [{"name": "med", "scale": 0.5}]})["tokens"] == med
    assert ours.post("/completion", by_name | {"lora": []})["tokens"] == law


def test_every_surface_of_openai_takes_lora(ours: Client) -> None:
    def said(lora: list[Json]) -> tuple[str, ...]:
        settings: Json = {"model": "lamb", "temperature": 0, "lora": lora}
        chat = {"messages": [{"role": "user", "content": "Tell me"}], "max_tokens": 8}
        texts = (
            ours.post("/v1/chat/completions", settings | chat)["choices"][0]["message"]["content"],
            ours.post("/v1/completions", settings | {"prompt": "Once", "max_tokens": 8})["choices"][0]["text"],
            ours.post("/v1/responses", settings | {"input": "Tell me", "max_output_tokens": 8})["output"][0]["content"],
        )
        return tuple(map(str, texts))

    base, med = said([{"id": 0, "scale": 0}]), said([{"id": 1, "scale": 1.0}])
    assert all(one != other for one, other in zip(base, med, strict=True))


def test_anthropics_and_ollamas_clients_choose_by_the_name_of_the_model(ours: Client) -> None:
    messages = [{"role": "user", "content": "Tell me"}]

    def said(model: str) -> tuple[str, str]:
        body: Json = {"model": model, "messages": messages}
        anthropic = ours.post("/v1/messages", body | {"max_tokens": 8, "temperature": 0})
        ollama = ours.post("/api/chat", body | {"stream": False, "options": {"temperature": 0, "num_predict": 8}})
        return str(anthropic["content"]), str(ollama["message"]["content"])

    assert all(one != other for one, other in zip(said("lamb:law"), said("lamb:med"), strict=True))


def test_a_second_turn_finds_its_own_cells(ours: Client) -> None:
    def n_cached(lora: list[Json], turns: int) -> int:
        said = [{"role": role, "content": "A story about a dog and a cat."} for role in ("user", "assistant") * turns]
        body: Json = {"model": "lamb", "messages": [*said, {"role": "user", "content": "Go on"}], "max_tokens": 4}
        usage = ours.post("/v1/chat/completions", body | {"temperature": 0, "lora": lora})["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    one, other = [{"id": 0, "scale": 0.25}], [{"id": 0, "scale": 0.75}]
    assert n_cached(one, 1) == 0
    assert n_cached(one, 2) > 20
    assert n_cached(other, 2) == 0
    assert n_cached(one, 3) > 40


def test_models_with_an_adapter_are_listed_with_their_parent(ours: Client) -> None:
    rows = {row["id"]: row for row in ours.http.get("/v1/models").json()["data"]}
    assert rows["lamb:law"]["parent"] == rows["lamb:calm"]["root"] == "lamb"
    assert "parent" not in rows["lamb"]
    assert ours.http.get("/v1/models/lamb:med").json()["parent"] == "lamb"
    assert "lamb:law" in [row["name"] for row in ours.http.get("/api/tags").json()["models"]]


def test_the_scales_of_requests_that_choose_nothing_can_be_read_and_set(ours: Client) -> None:
    def listed() -> list[tuple[int, str, float, str]]:
        return [(row["id"], row["name"], row["scale"], row["kind"]) for row in ours.http.get("/lora-adapters").json()]

    before = listed()
    assert before == [(0, "law", 1.0, "lora"), (1, "med", 0.0, "lora"), (2, "calm", 0.0, "control")]
    try:
        assert ours.post("/lora-adapters?model=lamb", [{"id": 1, "scale": 0.5}]) == {"success": True}
        assert [scale for _, _, scale, _ in listed()] == [0.0, 0.5, 0.0]
        assert ours.tokens(PROMPTS[0], None) == ours.tokens(PROMPTS[0], ((1, 0.5),))
        assert ours.tokens(PROMPTS[0], None, model="lamb:law") == ours.tokens(PROMPTS[0], ((0, 1.0),))
        ours.post("/lora-adapters", [])
        assert ours.tokens(PROMPTS[0], None) == ours.tokens(PROMPTS[0], ((0, 0.0),))
    finally:
        ours.post("/lora-adapters", [{"id": 0, "scale": 1.0}])
    assert listed() == before


# ---- what is refused


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        ([{"id": 7, "scale": 1}], ["lora[0]", "7", "0 (law), 1 (med), 2 (calm)"]),
        ([{"id": 0, "scale": 1}, {"name": "tax", "scale": 1}], ["lora[1]", "'tax'", "0 (law)"]),
        ([{"id": -1, "scale": 1}], ["lora[0].id"]),
        ([{"id": True, "scale": 1}], ["lora[0].id", "true"]),
        ([{"id": 0}], ["lora[0].scale", "missing"]),
        ([{"id": 0, "scale": "much"}], ["lora[0].scale", '"much"']),
        ([{"id": 0, "scale": 1e30}], ["lora[0].scale", "1000"]),
        ([{"scale": 1}], ["lora[0].name", "missing", "id"]),
        ({"id": 0, "scale": 1}, ["lora", "array"]),
        (["law"], ["lora[0]", "object"]),
        ([{"id": 0, "scale": 1}] * 300, ["lora", "300"]),
    ],
)
def test_a_wrong_lora_is_one_sentence_with_its_field(ours: Client, lora: Any, words: list[str]) -> None:
    error = ours.post("/v1/completions", {"prompt": "x", "lora": lora}, status=400)["error"]
    assert all(word in error["message"] for word in words), error
    assert error["param"].startswith("lora")
    assert ours.post("/completion", {"prompt": "x", "lora": lora}, status=400)
    if isinstance(lora, list):
        assert ours.post("/lora-adapters", lora, status=400)


@pytest.mark.parametrize(
    "body", [b'{"prompt": "x", "lora": [{"id": 0, "scale": NaN}]}', b'[{"id": 0, "scale": Infinity}]']
)
def test_a_scale_that_is_no_number_is_refused(ours: Client, body: bytes) -> None:
    path = "/lora-adapters" if body.startswith(b"[") else "/completion"
    assert ours.http.post(path, content=body).status_code == 400


@pytest.mark.parametrize("body", [b"", b"{}", b"3", b"[", b"[1]", b"\xff"])
def test_a_body_that_is_no_list_of_scales_is_refused(ours: Client, body: bytes) -> None:
    answer = ours.http.post("/lora-adapters", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_an_unknown_model_has_no_adapters(ours: Client) -> None:
    assert ours.http.get("/lora-adapters?model=nobody").status_code == 404
    ours.post("/lora-adapters?model=nobody", [], status=404)


def test_a_model_without_adapters_refuses_lora(tmp_path: Path) -> None:
    with serving(tmp_path, "") as url, httpx2.Client(base_url=url, timeout=120) as http:
        client = Client(http)
        assert http.get("/lora-adapters").json() == []
        assert client.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "lora": []})["choices"]
        error = client.post("/v1/completions", {"prompt": "x", "lora": [{"id": 0, "scale": 1}]}, status=400)["error"]
        assert error["param"] == "lora"
        assert "has no adapters" in error["message"]


def test_vectors_are_made_without_adapters_and_say_so(ours: Client) -> None:
    assert ours.post("/v1/embeddings", {"model": "lamb", "input": "x"})["data"]
    for name in ("lamb:law", "doctor"):
        error = ours.post("/v1/embeddings", {"model": name, "input": "x"}, status=400)["error"]
        assert error["param"] == "model"
        assert "computed without adapters; name 'lamb'" in error["message"]
    error = ours.post("/api/embed", {"model": "lamb", "input": "x", "lora": [{"id": 0, "scale": 1}]}, status=400)
    assert "leave lora out" in error["error"]


def test_an_unknown_model_is_answered_with_the_nearest_names(ours: Client) -> None:
    for name, near in (("lamb:lwa", "lamb:law"), ("docter", "doctor"), ("lambb", "lamb")):
        assert f"{near!r}" in ours.http.get(f"/v1/models/{name}").json()["error"]["message"], name
