"""LangChain, as far as its standard tests (`langchain.py`) leave a check out. Run by `python_clients.py`."""

# LangChain is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import langchain_core.exceptions as errors
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from suites.python_cases import ENDLESS, KEY, LONG, LOOK, MANY, QUESTION, THINK, Cancelled, address, cancel

surfaces = pytest.mark.parametrize("surface", ["openai", "responses", "anthropic", "ollama"])


def model(surface: str, *, name: str = "lamb", key: str = KEY, script: bool = False, n: int = 40) -> Any:
    url, same = address(script), {"model": name, "temperature": 0}
    if surface == "ollama":
        return ChatOllama(base_url=url, num_predict=n, client_kwargs=_key(key), **same)
    if surface == "anthropic":
        return ChatAnthropic(base_url=url, api_key=key, max_retries=0, max_tokens=n, **same)
    responses = surface == "responses"
    return ChatOpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=0, max_tokens=n, use_responses_api=responses, **same
    )


def _key(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


@surfaces
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls(surface: str, stream: bool) -> None:
    asked = model(surface, name="fake", script=True).bind_tools([LOOK])
    answer = asked.invoke(QUESTION)
    if stream:
        first, *rest = asked.stream(QUESTION)
        answer = sum(rest, first)
    assert [(call["name"], call["args"]) for call in answer.tool_calls] == [
        ("look", {"at": "größe"}),
        ("look", {"at": "🐑"}),
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "a sheep"} for call in answer.tool_calls]
    assert asked.invoke([{"role": "user", "content": QUESTION}, answer, *results]).text == "Two sheep."


@surfaces
def test_reasoning(surface: str) -> None:
    answer = model(surface, name="fake", script=True).invoke(THINK)
    assert answer.text == "Two sheep."


@surfaces
def test_unknown_model(surface: str) -> None:
    expected = (
        Exception if surface == "ollama" else errors.ModelNotFoundError
    )  # ChatOllama lets its SDK's errors through
    with pytest.raises(expected, match="wolf") as caught:
        model(surface, name="wolf").invoke(QUESTION)
    assert caught.value.status_code == 404


@surfaces
def test_wrong_key(surface: str) -> None:
    expected = Exception if surface == "ollama" else errors.ModelAuthenticationError
    with pytest.raises(expected, match=r"(?i)key") as caught:
        model(surface, key="wrong").invoke(QUESTION)
    assert caught.value.status_code == 401


@surfaces
@pytest.mark.parametrize("stream", [False, True])
def test_overflow(surface: str, stream: bool) -> None:
    expected = Exception if surface == "ollama" else errors.ContextOverflowError
    asked = model(surface)
    with pytest.raises(expected, match="1024") as caught:
        _ = list(asked.stream(LONG)) if stream else asked.invoke(LONG)
    assert caught.value.status_code == 400


@pytest.mark.parametrize("surface", ["openai", "ollama"])
async def test_embeddings(surface: str) -> None:
    if surface == "ollama":
        asked = OllamaEmbeddings(model="lamb", base_url=address(), client_kwargs=_key(KEY))
    else:  # by default it counts with OpenAI's vocabulary, and sends tokens
        asked = OpenAIEmbeddings(
            model="lamb", base_url=f"{address()}/v1", api_key=KEY, check_embedding_ctx_length=False
        )
    one, two = await asked.aembed_documents(["a sheep", "a wolf"])
    assert len(one) == len(two) > 16
    assert one != two
    assert asked.embed_query("a sheep") == pytest.approx(one, abs=1e-4)


@surfaces
async def test_cancelling(surface: str) -> None:
    async def read(has_begun: asyncio.Event) -> None:
        async with aclosing(model(surface, name=ENDLESS, n=MANY).astream(QUESTION)) as stream:
            async for chunk in stream:
                if chunk.text:
                    has_begun.set()
                    await asyncio.sleep(0)

    async with Cancelled():
        await cancel(read)
