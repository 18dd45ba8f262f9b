"""The list of models, as three kinds of clients read it."""

from collections.abc import AsyncIterator

import anthropic
import httpx2
import openai
import pytest
from tests.in_process import client_of
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, saying

from shepherd.core.status import Health, ModelCard

CARDS = (
    ModelCard("qwen3", 40_960, 1_700_000_000, "8B", capabilities=("completion", "tools", "thinking")),
    ModelCard("Claude-like", 8192, 1_700_000_001),
    ModelCard("bge", 512, 1_700_000_002, kind="embedding"),
)
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.fixture
def service() -> ScriptedService:
    made = ScriptedService(saying("Hi"))
    made.cards = CARDS
    return made


@pytest.fixture
async def client(service: ScriptedService) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(service) as made:
        yield made


async def test_openais_clients_see_every_model_with_its_context(client: httpx2.AsyncClient) -> None:
    found = (await client.get("/v1/models")).json()
    assert found["object"] == "list"
    assert [model["id"] for model in found["data"]] == ["qwen3", "Claude-like", "bge"]
    assert found["data"][0] == {
        "id": "qwen3",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "shepherd",
        "max_model_len": 40_960,
        "context_length": 40_960,
        "meta": {"n_ctx": 40_960, "n_cells": 40_960, "size": 0},
        "aliases": ["qwen3"],
        "tags": [],
        "capabilities": ["completion", "tools", "thinking"],
    }
    assert [model["capabilities"] for model in found["data"][1:]] == [["completion"], ["embedding"]]
    assert (await client.get("/v1/models/qwen3")).json() == found["data"][0]
    assert (await client.get("/v1/models/nope")).status_code == 404


async def test_openais_sdk_reads_the_list_and_skips_what_is_codexs(
    listening: Listening, service: ScriptedService
) -> None:
    async with listening(service) as url, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as sdk:
        assert [model.id async for model in sdk.models.list()] == ["qwen3", "Claude-like", "bge"]
        assert (await sdk.models.retrieve("qwen3")).owned_by == "shepherd"


# What the struct that Codex reads a model into has no default for, in any of its versions of this year.
CODEX_NEEDS = {
    "slug": str,
    "display_name": str,
    "supported_reasoning_levels": list,
    "shell_type": str,
    "visibility": str,
    "supported_in_api": bool,
    "priority": int,
    "base_instructions": str,
    "supports_reasoning_summaries": bool,
    "support_verbosity": bool,
    "truncation_policy": dict,
    "supports_parallel_tool_calls": bool,
    "experimental_supported_tools": list,
    "context_window": int,
    "input_modalities": list,
}


async def test_codex_finds_all_that_it_needs_of_the_models_that_chat(client: httpx2.AsyncClient) -> None:
    found = (await client.get("/v1/models?client_version=0.169.0")).json()["models"]
    assert [model["slug"] for model in found] == ["qwen3", "Claude-like"]
    for model in found:
        assert {key: type(model[key]) for key in CODEX_NEEDS} == CODEX_NEEDS
        assert model["truncation_policy"].keys() == {"mode", "limit"}
        assert model["base_instructions"]
    thinking, plain = found
    assert thinking["capabilities"] == ["completion", "tools", "thinking"]
    assert thinking["context_window"] == 40_960
    assert [level["effort"] for level in thinking["supported_reasoning_levels"]] == ["low", "medium", "high"]
    assert (plain["supported_reasoning_levels"], plain["supports_reasoning_summaries"]) == ([], False)
    assert plain["truncation_policy"]["limit"] < thinking["truncation_policy"]["limit"] <= 10_000


async def test_claude_code_sees_names_that_it_does_not_drop(client: httpx2.AsyncClient) -> None:
    found = (await client.get("/v1/models?limit=1000", headers=VERSION)).json()
    assert found == {
        "data": [
            {
                "type": "model",
                "id": "claude-local-qwen3",
                "display_name": "qwen3",
                "created_at": "2023-11-14T22:13:20Z",
                "lifecycle": "active",
                "max_input_tokens": 40_960,
                "max_tokens": 40_960,
            },
            {
                "type": "model",
                "id": "Claude-like",
                "display_name": "Claude-like",
                "created_at": "2023-11-14T22:13:21Z",
                "lifecycle": "active",
                "max_input_tokens": 8192,
                "max_tokens": 8192,
            },
        ],
        "has_more": False,
        "first_id": "claude-local-qwen3",
        "last_id": "Claude-like",
    }
    for name in ("qwen3", "claude-local-qwen3"):
        assert (await client.get(f"/v1/models/{name}", headers=VERSION)).json() == found["data"][0]
    missing = await client.get("/v1/models/nope", headers=VERSION)
    assert (missing.status_code, missing.json()["type"], missing.json()["error"]["type"]) == (
        404, "error", "not_found_error",
    )  # fmt: skip


async def test_anthropics_sdk_pages_through_the_list(listening: Listening, service: ScriptedService) -> None:
    service.cards = tuple(ModelCard(f"m{number}", 4096, 1_700_000_000) for number in range(7))
    names = [f"claude-local-m{number}" for number in range(7)]
    async with listening(service) as url, anthropic.AsyncAnthropic(base_url=url, api_key="any") as sdk:
        assert [model.id async for model in sdk.models.list(limit=3)] == names
        page = await sdk.models.list(limit=2, after_id=names[1])
        assert ([model.id for model in page.data], page.has_more) == (names[2:4], True)
        page = await sdk.models.list(limit=2, before_id=names[4])
        assert ([model.id for model in page.data], page.has_more) == (names[2:4], True)
        assert (await sdk.models.retrieve(names[3])).display_name == "m3"
        with pytest.raises(anthropic.BadRequestError, match="limit"):
            await sdk.models.list(limit=0)
        with pytest.raises(anthropic.BadRequestError, match="after_id"):
            await sdk.models.list(after_id="nobody")


@pytest.mark.parametrize("headers", [{}, VERSION])
async def test_a_list_that_is_not_known_yet_is_not_reported_as_empty(headers: dict[str, str]) -> None:
    loading = ScriptedService(saying("Hi"), health=Health("loading", "llamacpp", "m.gguf"))
    async with client_of(loading) as client:
        for path in ("/v1/models", "/v1/models/m", "/models"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 503
            assert "loading" in answer.json()["error"]["message"]
            assert answer.headers["retry-after"] == "5"
