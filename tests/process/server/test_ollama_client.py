"""The tests of `tests/unit/server/test_ollama_client.py` that start programs."""

from __future__ import annotations

import httpx2
import ollama
import pytest


@pytest.mark.model
def test_the_embedded_model_answers_in_this_protocol(server: str) -> None:
    hello = [{"role": "user", "content": "Hello"}]
    options = {"temperature": 0, "num_predict": 8, "num_ctx": 10**6}
    with ollama.Client(server) as client:
        name = client.list().models[0].model
        assert name is not None
        whole = client.chat(f"{name}:latest", hello, options=options)
        parts = list(client.chat(name, hello, options=options, stream=True))
        bare = client.generate(name, "Once upon a time", raw=True, options=options)
        shown = client.show(f"{name}:latest")
        running = client.ps().models
        loaded = client.chat(name, [])
        vectors = client.embed(name, ["one", "two"]).embeddings
        with pytest.raises(ollama.ResponseError, match="prompt is too long") as caught:
            client.chat(name, [{"role": "user", "content": "word " * 20_000}], options=options)
    assert caught.value.status_code == 400
    assert whole.message.content
    assert whole.message.content == "".join(part.message.content or "" for part in parts)
    assert (whole.done_reason, whole.eval_count, parts[-1].eval_count) == ("length", 8, 8)
    assert whole.prompt_eval_count == parts[-1].prompt_eval_count
    assert bare.response
    assert bare.response != whole.message.content
    assert shown.capabilities is not None
    assert "completion" in shown.capabilities
    assert shown.modelinfo is not None
    n_ctx = shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"]
    assert [(model.name, model.context_length) for model in running] == [(name, n_ctx)]
    assert loaded.done_reason == "load"
    assert len(vectors) == 2
    assert vectors[0] != vectors[1]


@pytest.mark.model
async def test_a_model_of_ours_calls_a_tool_where_it_must(server: str) -> None:
    parameters = {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"]}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("look", "turn")]
    asked = {"messages": [{"role": "user", "content": "Go."}], "tools": tools, "stream": False, "options": {"seed": 1}}
    async with httpx2.AsyncClient(base_url=server, timeout=60) as client:
        for choice in ("required", {"type": "function", "function": {"name": "turn"}}):
            answer = (await client.post("/api/chat", json={**asked, "tool_choice": choice})).json()
            call = answer["message"]["tool_calls"][0]["function"]
            assert call["name"] in (("look", "turn") if choice == "required" else ("turn",))
            assert call["arguments"]["side"] in ("left", "right")
