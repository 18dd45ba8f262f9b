"""The Responses protocol in front of the embedded model."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest


@pytest.fixture
async def client(server: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as made:
        yield made


async def test_a_chain_reads_again_only_what_is_new(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model="lamb", input="My name is Ann.", max_output_tokens=40)
    async with client.responses.stream(
        model="lamb", input="And yours?", previous_response_id=first.id, max_output_tokens=40
    ) as stream:
        events = [event async for event in stream]
    last: Any = events[-1]
    assert first.usage is not None
    assert last.response.usage.input_tokens > first.usage.total_tokens
    assert last.response.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1


@pytest.mark.parametrize("asked", [[], ""])
async def test_a_probe_that_says_nothing_is_answered(client: openai.AsyncOpenAI, asked: Any) -> None:
    answer = await client.responses.create(model="lamb", input=asked, max_output_tokens=1, store=False)
    assert answer.usage is not None
    assert answer.usage.output_tokens == 1


async def test_tools_that_are_no_functions_are_called_in_the_clients_own_words(client: openai.AsyncOpenAI) -> None:
    add = {
        "type": "function",
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
    tools: Any = [
        {"type": "namespace", "name": "calc", "description": "Sums.", "tools": [add]},
        {"type": "custom", "name": "write", "description": "Writes a text."},
    ]
    for choice, kind in (("add", "function"), ("write", "custom")):
        answer = await client.responses.create(
            model="lamb", input="Go.", tools=tools, tool_choice={"type": kind, "name": choice}, max_output_tokens=400
        )  # type: ignore[call-overload]
        if answer.status == "incomplete":
            continue  # a tiny model may write a text without end
        call = answer.output[-1]
        assert call.name == choice
        assert getattr(call, "namespace", None) == ("calc" if choice == "add" else None)
        assert call.type == ("function_call" if kind == "function" else "custom_tool_call")


async def test_the_tokens_of_an_answer_have_scores_when_asked_for(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.create(
        model="lamb", input="Hi", max_output_tokens=4, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    message: Any = answer.output[-1]
    scores = message.content[0].logprobs
    assert "".join(bytes(score.bytes).decode() for score in scores) == message.content[0].text
    assert all(len(score.top_logprobs) == 2 for score in scores)
