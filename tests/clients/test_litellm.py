"""LiteLLM as a client, in each of the protocols that it knows us by. No network: prices come with the package."""

from __future__ import annotations

import asyncio
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before the import, which would fetch them

from collections.abc import Mapping
from typing import Any

import pytest
from tests.clients.script import Use, performing
from tests.clients.stage import Staging
from tests.scripted_service import playing, saying

from shepherd.core import ContextFull

pytestmark = [
    pytest.mark.clients,
    # Its own, about its own models and connections.
    pytest.mark.filterwarnings("ignore::Warning"),
]

litellm: Any = pytest.importorskip("litellm")

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at something.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
SURFACES: Mapping[str, tuple[str, str, str]] = {
    "openai": ("openai/scripted", "/v1", "/v1/chat/completions"),
    "anthropic": ("anthropic/scripted", "", "/v1/messages"),
    "ollama_chat": ("ollama_chat/scripted", "", "/api/chat"),
    "hosted_vllm": ("hosted_vllm/scripted", "/v1", "/v1/chat/completions"),
}
"""The name that LiteLLM knows the model by, what follows the server's address, and the path that it then uses."""

surfaces = pytest.mark.parametrize("name", SURFACES)


def asked(name: str, url: str) -> dict[str, Any]:
    model, path, _ = SURFACES[name]
    return ASK | {"model": model, "api_base": url + path, "api_key": "any", "timeout": 60, "num_retries": 0}


@surfaces
async def test_it_reads_an_answer(name: str, staging: Staging) -> None:
    with staging(saying("Hello ", "🐑")) as stage:
        answer = await litellm.acompletion(**asked(name, stage.url))
    assert answer.choices[0].message.content == "Hello 🐑"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 5)
    posts = [each for each in stage.seen if each.method == "POST"]
    assert [each.path for each in posts if each.path != "/api/show"] == [SURFACES[name][2]]
    assert stage.refused == []


@surfaces
async def test_it_puts_a_stream_together(name: str, staging: Staging) -> None:
    with staging(saying("Hello ", "🐑")) as stage:
        stream = await litellm.acompletion(
            **asked(name, stage.url), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    whole = litellm.stream_chunk_builder(chunks, messages=ASK["messages"])
    assert whole.choices[0].message.content == "Hello 🐑"
    assert whole.choices[0].finish_reason == "stop"
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (10, 5)
    assert stage.refused == []


@surfaces
@pytest.mark.parametrize("stream", [False, True])
async def test_it_calls_a_tool_and_brings_the_result(name: str, stream: bool, staging: Staging) -> None:
    script = performing(
        lambda request: "It is a sheep." if request.messages[-1].role == "tool" else Use("look", {"at": "größe"})
    )
    with staging(script) as stage:
        ask = asked(name, stage.url) | {"tools": [LOOK]}
        answer = await litellm.acompletion(**ask, stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer], messages=ASK["messages"])
        message = answer.choices[0].message
        (call,) = message.tool_calls
        assert call.function.name == "look"
        assert json.loads(call.function.arguments) == {"at": "größe"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "a sheep"}
        answer = await litellm.acompletion(**ask | {"messages": [*ASK["messages"], message.model_dump(), result]})
    assert answer.choices[0].message.content == "It is a sheep."
    user, *between, tool = stage.service.requests[-1].messages
    assert user.text == "Hello"
    # For Ollama it leaves the calls of earlier turns out.
    assert [call.name for message in between for call in message.calls] == ["look"] * (name != "ollama_chat")
    assert tool.parts[0].parts[0].text == "a sheep"  # type: ignore[union-attr]  # a result's text
    # It asks what the model can do behind the path of the chat, where nobody is.
    assert {each.path for each in stage.refused} <= {"/api/chat/api/show"}


@surfaces
async def test_a_prompt_that_is_too_long_is_its_context_error(name: str, staging: Staging) -> None:
    with staging(playing(ContextFull(needed=9000, limit=4096))) as stage:
        # For Ollama it knows one error only.
        expected = litellm.APIConnectionError if name == "ollama_chat" else litellm.ContextWindowExceededError
        with pytest.raises(expected, match="9000 tokens"):
            await litellm.acompletion(**asked(name, stage.url))


async def test_it_uses_the_other_surfaces(staging: Staging) -> None:
    with staging(saying("Hello")) as stage:
        base = {"api_base": f"{stage.url}/v1", "api_key": "any", "num_retries": 0}
        text = await litellm.atext_completion(model="text-completion-openai/scripted", prompt="Once", **base)
        assert text.choices[0].text == "Hello"
        vectors = await litellm.aembedding(model="openai/scripted", input=["a", "b"], **base)
        assert [len(each["embedding"]) for each in vectors.data] == [4, 4]
        answer = await litellm.aresponses(model="openai/scripted", input="Hello", **base)
        assert answer.output[0].content[0].text == "Hello"
    assert stage.refused == []


async def test_it_works_without_a_loop(staging: Staging) -> None:
    with staging(saying("Hello")) as stage:
        answer = await asyncio.to_thread(litellm.completion, **asked("openai", stage.url))
    assert answer.choices[0].message.content == "Hello"
