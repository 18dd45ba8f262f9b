"""What a model accepts: the provider's own list wins over the table, and a name alone proves nothing."""

from __future__ import annotations

import json

from tests.providers_replay import recordings

from shepherd.backends.cloud import models
from shepherd.backends.cloud.models import Facts
from shepherd.backends.cloud.provider import KINDS, Provider, provider_of
from shepherd.core import Request

LISTS = [each for each in recordings() if each["kind"] == "models"]


def provider(kind: str, **more: str) -> Provider:
    return provider_of(KINDS[kind], key="k-0123", base_url=more.get("base_url"))


def test_recorded_lists() -> None:
    for recording in LISTS:
        found = dict(models.listed(recording["response"]["body"]))
        expected = recording["expect"]
        assert [*found] == [name.removeprefix("models/") for name in expected["model_ids"]]
        for name, n_ctx in expected["context"].items():
            window = n_ctx.get("input") if isinstance(n_ctx, dict) else n_ctx
            assert window is None or found[name.removeprefix("models/")].n_ctx == window


ENTRIES = {
    "vLLM": ({"id": "m", "max_model_len": 4096}, Facts(4096)),
    "llama-server": ({"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 40960}}, Facts(8192)),
    "Anthropic": (
        {
            "id": "m",
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
            "capabilities": {
                "image_input": {"supported": True},
                "pdf_input": {"supported": False},
                "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
                "effort": {"supported": True, "low": {"supported": True}, "max": {"supported": True}},
            },
        },
        Facts(1_000_000, 128_000, "adaptive", ("low", "max"), sees_images=True, reads_documents=False),
    ),
    "OpenRouter": (
        {
            "id": "m",
            "context_length": 200,
            "top_provider": {"max_completion_tokens": 9},
            "architecture": {"input_modalities": ["text", "image"]},
            "supported_parameters": ["reasoning", "tools"],
        },
        Facts(200, 9, "effort", ("low", "medium", "high"), sees_images=True, hears=False),
    ),
    "Groq": ({"id": "m", "context_window": 131_072, "max_completion_tokens": 65_536}, Facts(131_072, 65_536)),
    "Gemini": (
        {
            "name": "models/m",
            "inputTokenLimit": 9,
            "outputTokenLimit": 8,
            "supportedGenerationMethods": ["embedContent"],
        },
        Facts(9, 8, embeds=True, title="models/m"),
    ),
    "garbage": ({"id": "m", "max_model_len": "many", "meta": 5, "capabilities": [1], "created": None}, Facts()),
}


def test_lists_of_others() -> None:
    for entry, facts in ENTRIES.values():
        assert list(models.listed({"data": [entry, 7, {"id": 5}]})) == [("m", facts)]
    assert [*models.listed({})] == [*models.listed({"data": None})] == []


def test_ollama_shows_one_model() -> None:
    body = {"model_info": {"qwen3.context_length": 40960}, "capabilities": ["completion", "tools", "thinking"]}
    assert models.decode_show(body) == Facts(
        40960, thinks_by="switch", sees_images=False, hears=False, calls_tools=True, embeds=False
    )
    assert models.decode_show({"capabilities": ["completion", "audio"]}).capabilities == ("completion", "audio")
    assert models.decode_show({"model_info": None}) == Facts()
    table = models.known(provider("ollama"), "gpt-oss:20b")
    assert models.decode_show(body).over(table).thinks_by == "effort"


def test_what_is_reported_wins_over_the_table() -> None:
    table = models.known(provider("anthropic"), "claude-sonnet-4-5-20250929")
    assert (table.n_ctx, table.thinks_by) == (200_000, "budget")
    assert Facts(1_000_000).over(table).n_ctx == 1_000_000
    assert Facts(1_000_000).over(table).max_output == 64_000


def test_a_name_alone_proves_nothing() -> None:
    assert models.known(provider("openai_compat", base_url="http://h"), "gpt-5") == Facts()
    assert models.known(provider("openai"), "gpt-99") == Facts()


def test_fields_that_a_model_refuses() -> None:
    def refused(kind: str, model: str, level: str | None = None) -> frozenset[str]:
        it = provider(kind)
        request = Request(model, reasoning=level)  # type: ignore[arg-type]  # words of the table below
        return models.endpoint(it, model, models.known(it, model), request).refuses

    assert "temperature" in refused("openai", "o3")
    assert "temperature" in refused("openai", "gpt-5.6")
    assert "temperature" not in refused("openai", "gpt-5.6", "off")
    assert "temperature" not in refused("openai", "gpt-5.1")
    assert "temperature" in refused("openai", "gpt-5.1", "high")
    assert "temperature" not in refused("openai", "gpt-4.1-mini")
    assert "temperature" in refused("anthropic", "claude-opus-4-7")
    assert not refused("anthropic", "claude-sonnet-4-5")
    assert "stop" in refused("grok", "grok-4.3")


def test_every_row_is_reached() -> None:
    for kind, rows in models.TABLE.items():
        for at, (glob, facts) in enumerate(rows):
            example = glob.replace("[0-9]", "1").replace("[56]", "5").replace("[34]", "3").replace("[7-9]", "7")
            example = example.replace("[3-9]", "3").replace("[5-9]", "5").replace("*", "")
            it = provider(kind if kind != "*" else "vllm")
            assert models.known(it, example) == facts, (kind, at, glob)


def test_pages() -> None:
    assert models.next_page({"nextPageToken": "t"}) == "pageToken=t"
    assert models.next_page({"has_more": True, "last_id": "m"}) == "after_id=m"
    assert models.next_page(json.loads('{"has_more": false, "last_id": "m"}')) == ""
