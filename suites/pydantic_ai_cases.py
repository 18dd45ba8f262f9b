"""Pydantic AI, over OpenAI's chat, OpenAI's responses and Anthropic's messages. Run by `python_clients.py`."""

# Pydantic AI is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, Embedder, NativeOutput, ToolOutput
from pydantic_ai.direct import model_request, model_request_stream, model_request_sync
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
)
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from suites.python_cases import ENDLESS, KEY, LONG, MANY, PLACES, QUESTION, Cancelled, address, cancel

surfaces = pytest.mark.parametrize("surface", ["openai", "responses", "anthropic"])
LOOK = ModelRequestParameters(
    function_tools=[ToolDefinition(name="look", parameters_json_schema=PLACES, description="Look at a place.")]
)
ASK = [ModelRequest([UserPromptPart(QUESTION)])]


class Sheep(BaseModel):
    age: int = Field(ge=1, le=9)
    colour: Literal["white", "black"]
    is_tame: bool


def model(surface: str, *, name: str = "lamb", key: str = KEY, script: bool = False) -> Any:
    if surface == "anthropic":
        return AnthropicModel(name, provider=AnthropicProvider(api_key=key, base_url=address(script)))
    kind = OpenAIResponsesModel if surface == "responses" else OpenAIChatModel
    return kind(name, provider=OpenAIProvider(api_key=key, base_url=f"{address(script)}/v1"))


def settings(**more: Any) -> Any:
    return {"temperature": 0, "max_tokens": 40, **more}


@surfaces
def test_chat(surface: str) -> None:
    assert Agent(model(surface), model_settings=settings()).run_sync(QUESTION).output


@surfaces
async def test_stream(surface: str) -> None:
    agent = Agent(model(surface), model_settings=settings())
    async with agent.run_stream(QUESTION) as answer:
        pieces = [piece async for piece in answer.stream_text(delta=True, debounce_by=None)]
    assert len(pieces) > 3
    assert "".join(pieces) == (await agent.run(QUESTION)).output


@surfaces
async def test_forced_tool(surface: str) -> None:
    """An output by a tool, which the library forces and whose arguments it validates."""
    agent = Agent(model(surface), output_type=ToolOutput(Sheep), model_settings=settings(max_tokens=300), retries=0)
    assert isinstance((await agent.run(QUESTION)).output, Sheep)
    async with agent.run_stream(QUESTION) as answer:
        assert isinstance(await answer.get_output(), Sheep)
    answer = await model_request(
        model(surface), ASK, model_request_parameters=LOOK, model_settings=settings(tool_choice="required")
    )
    (call,) = answer.tool_calls
    assert call.tool_name == "look"
    assert call.args_as_dict()["at"] in ("hill", "barn")


@surfaces
async def test_tool_result(surface: str) -> None:
    history = [
        *ASK,
        ModelResponse([ToolCallPart("look", {"at": "hill"}, "call_1")]),
        ModelRequest([ToolReturnPart("look", "a sheep", "call_1")]),
    ]
    answer = await model_request(model(surface), history, model_request_parameters=LOOK, model_settings=settings())
    assert answer.parts


@surfaces
@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_calls(surface: str, stream: bool) -> None:
    """A whole run of an agent: two calls at once, their results, the last words."""
    agent = Agent(model(surface, name="fake", script=True))
    seen = []

    @agent.tool_plain
    def look(at: str) -> str:
        seen.append(at)
        return "a sheep"

    if stream:
        async with agent.run_stream(QUESTION) as answer:
            output = await answer.get_output()
    else:
        output = (await agent.run(QUESTION)).output
    assert sorted(seen) == ["größe", "🐑"]
    assert output == "Two sheep."


@surfaces
async def test_schema(surface: str) -> None:
    if surface == "anthropic":
        pytest.skip("Pydantic AI asks for a schema of Claude models only, by their names")
    agent = Agent(model(surface), output_type=NativeOutput(Sheep), model_settings=settings(max_tokens=300), retries=0)
    assert isinstance((await agent.run(QUESTION)).output, Sheep)


@surfaces
def test_usage(surface: str) -> None:
    usage = model_request_sync(model(surface), ASK, model_settings=settings(max_tokens=7)).usage
    assert 0 < usage.output_tokens <= 7
    assert usage.input_tokens > 3
    assert usage.cache_read_tokens <= usage.input_tokens


@surfaces
async def test_usage_of_a_stream(surface: str) -> None:
    whole = (await model_request(model(surface), ASK, model_settings=settings(max_tokens=7))).usage
    async with model_request_stream(model(surface), ASK, model_settings=settings(max_tokens=7)) as stream:
        async for _ in stream:
            pass
    usage = stream.get().usage
    assert (usage.input_tokens, usage.output_tokens) == (whole.input_tokens, whole.output_tokens)


@surfaces
def test_unknown_model(surface: str) -> None:
    with pytest.raises(ModelNotFoundError, match="wolf") as caught:
        model_request_sync(model(surface, name="wolf"), ASK, model_settings=settings())
    assert isinstance(caught.value, ModelHTTPError)
    assert caught.value.status_code == 404


@surfaces
def test_wrong_key(surface: str) -> None:
    with pytest.raises(ModelAuthenticationError, match=r"(?i)key"):
        model_request_sync(model(surface, key="wrong"), ASK, model_settings=settings())


@surfaces
def test_overflow(surface: str) -> None:
    with pytest.raises(ModelContextWindowExceededError, match="1024"):
        model_request_sync(model(surface), [ModelRequest([UserPromptPart(LONG)])], model_settings=settings())


@surfaces
async def test_overflow_of_a_stream(surface: str) -> None:
    asked = model_request_stream(model(surface), [ModelRequest([UserPromptPart(LONG)])])
    with pytest.raises(ModelContextWindowExceededError, match="1024"):
        async with asked as stream:
            await anext(aiter(stream))


def test_embeddings() -> None:
    provider = OpenAIProvider(api_key=KEY, base_url=f"{address()}/v1")
    answer = Embedder(OpenAIEmbeddingModel("lamb", provider=provider)).embed_documents_sync(["a sheep", "a wolf"])
    one, two = answer.embeddings
    assert len(one) == len(two) > 16
    assert one != two
    assert answer.usage.input_tokens > 1


@surfaces
async def test_async(surface: str) -> None:
    agent = Agent(model(surface), model_settings=settings())
    one, two = await asyncio.gather(agent.run(QUESTION), agent.run(QUESTION))
    assert one.output == two.output


@surfaces
async def test_cancelling(surface: str) -> None:
    """An agent's run that leaves the stream, and one that is cancelled as a task."""
    agent = Agent(model(surface, name=ENDLESS), model_settings=settings(max_tokens=MANY))

    async def read(has_begun: asyncio.Event) -> None:
        async with agent.run_stream(QUESTION) as answer:
            async for _ in answer.stream_text(delta=True, debounce_by=None):
                has_begun.set()
                await asyncio.sleep(0)

    async with Cancelled():
        await cancel(read)
    async with Cancelled(), agent.run_stream(QUESTION) as answer:
        await anext(aiter(answer.stream_text(delta=True, debounce_by=None)))
