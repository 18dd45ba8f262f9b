"""LiteLLM, in the protocols that it knows us by. Run by `python_clients.py`."""

# LiteLLM is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import gc
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before the import, which would fetch them

from collections.abc import Iterator
from typing import Any

import litellm
import pytest
from suites.python_cases import (
    ENDLESS,
    KEY,
    LONG,
    LOOK,
    MANY,
    QUESTION,
    SHEEP,
    Cancelled,
    address,
    arguments_of,
    cancel,
    is_sheep,
)  # fmt: skip

SURFACES = {
    "openai": ("openai", "/v1"),
    "vllm": ("hosted_vllm", "/v1"),
    "anthropic": ("anthropic", ""),
    "ollama": ("ollama_chat", ""),
}
"""The provider that LiteLLM takes us for, and what follows the server's address."""
surfaces = pytest.mark.parametrize("surface", SURFACES)
ASK = {"messages": [{"role": "user", "content": QUESTION}]}


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """LiteLLM drops streams without closing them. httpcore's pool takes its lock twice, and hangs, if one is collected
    while the pool works in the same thread: here they are collected between two tests."""
    gc.disable()
    yield
    gc.collect()


def to(surface: str, *, model: str = "lamb", script: bool = False, **more: Any) -> dict[str, Any]:
    provider, path = SURFACES[surface]
    where = {"model": f"{provider}/{model}", "api_base": address(script) + path, "api_key": KEY}
    return {**where, **ASK, "temperature": 0, "max_tokens": 40, "num_retries": 0, "timeout": 50, **more}


def choice(answer: Any) -> Any:
    return answer.choices[0]


@surfaces
def test_chat(surface: str) -> None:
    answer = litellm.completion(**to(surface))
    assert choice(answer).message.content
    assert choice(answer).finish_reason in ("stop", "length")


@surfaces
def test_stream(surface: str) -> None:
    whole = choice(litellm.completion(**to(surface))).message.content
    chunks = list(litellm.completion(**to(surface), stream=True))
    assert len(chunks) > 5
    assert "".join(choice(chunk).delta.content or "" for chunk in chunks) == whole


@surfaces
def test_forced_tool(surface: str) -> None:
    if surface == "ollama":
        pytest.skip("Ollama's requests have no field that forces a tool")
    forced = {"tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "look"}}}
    whole = litellm.completion(**to(surface), **forced)
    chunks = list(litellm.completion(**to(surface), **forced, stream=True))
    for answer in (whole, litellm.stream_chunk_builder(chunks)):
        (call,) = choice(answer).message.tool_calls
        assert call.function.name == "look"
        arguments_of(call.function.arguments)
        assert choice(answer).finish_reason == "tool_calls"


@surfaces
def test_tool_result(surface: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "hill"}'}}
    messages = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "a sheep"},
    ]
    assert choice(litellm.completion(**to(surface, tools=[LOOK], messages=messages))).message is not None


@surfaces
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls(surface: str, stream: bool) -> None:
    answer = litellm.completion(**to(surface, script=True, model="fake", tools=[LOOK]), stream=stream)
    if stream:
        if surface == "ollama":
            pytest.skip("LiteLLM gives the calls of two lines of Ollama's stream one index: it does not read theirs")
        answer = litellm.stream_chunk_builder(list(answer))
    message = choice(answer).message
    places = [json.loads(call.function.arguments)["at"] for call in message.tool_calls]
    assert places == ["größe", "🐑"]
    results = [
        {"role": "tool", "tool_call_id": call.id, "name": "look", "content": "a sheep"} for call in message.tool_calls
    ]
    messages = [*ASK["messages"], message.model_dump(), *results]
    last = litellm.completion(**to(surface, script=True, model="fake", tools=[LOOK], messages=messages))
    assert choice(last).message.content == "Two sheep."


@surfaces
def test_schema(surface: str) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "Sheep", "schema": SHEEP, "strict": True}}
    answer = litellm.completion(**to(surface, response_format=format, max_tokens=300))
    assert is_sheep(json.loads(choice(answer).message.content))


@surfaces
def test_usage(surface: str) -> None:
    usage = litellm.completion(**to(surface, max_tokens=7)).usage
    assert 0 < usage.completion_tokens <= 7
    assert usage.prompt_tokens > 5
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@surfaces
def test_usage_of_a_stream(surface: str) -> None:
    whole = litellm.completion(**to(surface, max_tokens=7)).usage
    chunks = list(litellm.completion(**to(surface, max_tokens=7), stream=True, stream_options={"include_usage": True}))
    usage = litellm.stream_chunk_builder(chunks).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens)


@surfaces
def test_unknown_model(surface: str) -> None:
    expected = litellm.APIConnectionError if surface == "ollama" else litellm.NotFoundError  # it knows one of Ollama's
    with pytest.raises(expected, match="wolf"):
        litellm.completion(**to(surface, model="wolf"))


@surfaces
def test_wrong_key(surface: str) -> None:
    expected = litellm.APIConnectionError if surface == "ollama" else litellm.AuthenticationError
    with pytest.raises(expected, match=r"(?i)key"):
        litellm.completion(**to(surface, api_key="wrong"))


@surfaces
def test_overflow(surface: str) -> None:
    expected = litellm.APIConnectionError if surface == "ollama" else litellm.ContextWindowExceededError
    with pytest.raises(expected, match="1024"):
        litellm.completion(**to(surface, messages=[{"role": "user", "content": LONG}]))


@surfaces
def test_overflow_of_a_stream(surface: str) -> None:
    expected = litellm.APIConnectionError if surface == "ollama" else litellm.ContextWindowExceededError
    with pytest.raises(expected, match="1024"):
        list(litellm.completion(**to(surface, messages=[{"role": "user", "content": LONG}]), stream=True))


@surfaces
def test_embeddings(surface: str) -> None:
    if surface == "anthropic":
        pytest.skip("Anthropic's protocol has no embeddings")
    if surface != "ollama":
        asked = {"model": f"{SURFACES[surface][0]}/lamb", "api_base": f"{address()}/v1", "api_key": KEY}
    else:  # it sends no key with these: the server without one
        asked = {"model": "ollama/fake", "api_base": address(script=True)}
    answer = litellm.embedding(input=["a sheep", "a wolf!"], **asked)
    one, two = (each["embedding"] for each in answer.data)
    assert len(one) == len(two) >= 4
    assert one != two


@surfaces
async def test_async(surface: str) -> None:
    whole = choice(await litellm.acompletion(**to(surface))).message.content
    chunks = [chunk async for chunk in await litellm.acompletion(**to(surface), stream=True)]
    assert "".join(choice(chunk).delta.content or "" for chunk in chunks) == whole


@surfaces
async def test_cancelling(surface: str) -> None:
    if surface != "openai":  # there it reads with OpenAI's SDK
        pytest.skip("LiteLLM's own transport keeps the connection open after the task that reads is cancelled")

    async def read(has_begun: asyncio.Event) -> None:
        stream = await litellm.acompletion(**to(surface, model=ENDLESS, max_tokens=MANY), stream=True)
        try:
            async for chunk in stream:
                if choice(chunk).delta.content:
                    has_begun.set()
                    await asyncio.sleep(0)
        finally:
            await stream.aclose()

    async with Cancelled():
        await cancel(read)


async def test_other_endpoints() -> None:
    where = {"api_base": f"{address()}/v1", "api_key": KEY, "num_retries": 0, "temperature": 0}
    text = await litellm.atext_completion(model="text-completion-openai/lamb", prompt="Once", max_tokens=9, **where)
    assert text.choices[0].text
    answer = await litellm.aresponses(model="openai/lamb", input=QUESTION, max_output_tokens=30, **where)
    assert answer.output[0].content[0].text
