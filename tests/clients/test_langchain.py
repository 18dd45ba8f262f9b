"""langchain-openai as a client: chat completions and Responses, whole, streamed, with tools, schemas and vectors."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from tests.clients.script import Use, performing
from tests.clients.stage import Stage, Staging
from tests.scripted_service import playing, saying

from shepherd.core import ContextFull, ReasoningDelta, Started, TextDelta
from shepherd.core.events import Finished, Usage

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::Warning")]

langchain: Any = pytest.importorskip("langchain_openai")

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at something.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}

surfaces = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


def model(stage: Stage, *, responses: bool) -> Any:
    return langchain.ChatOpenAI(
        model="scripted",
        base_url=f"{stage.url}/v1",
        api_key="any",
        max_retries=0,
        use_responses_api=responses,
        stream_usage=True,
    )


def text(message: Any) -> str:
    return message.content if isinstance(message.content, str) else "".join(part["text"] for part in message.content)


@surfaces
async def test_it_reads_an_answer_whole_and_streamed(responses: bool, staging: Staging) -> None:
    with staging(saying("Hello ", "🐑")) as stage:
        llm = model(stage, responses=responses)
        for answer in (await llm.ainvoke("Hi"), await asyncio.to_thread(llm.invoke, "Hi")):
            assert text(answer) == "Hello 🐑"
            assert answer.usage_metadata["total_tokens"] == 15
            assert answer.usage_metadata["input_token_details"]["cache_read"] == 3
        chunks = [chunk async for chunk in llm.astream("Hi")]
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        assert text(whole) == "Hello 🐑"
        assert whole.usage_metadata["total_tokens"] == 15
    assert stage.refused == []
    assert {each.path for each in stage.seen} == {"/v1/responses" if responses else "/v1/chat/completions"}


@surfaces
async def test_it_calls_a_tool_and_brings_the_result(responses: bool, staging: Staging) -> None:
    script = performing(
        lambda request: (
            "It is a sheep."
            if request.messages[-1].role == "tool"
            else Use("look", {"at": "größe"}, "I look.", "Let me think.")
        )
    )
    with staging(script) as stage:
        llm = model(stage, responses=responses).bind_tools([LOOK])
        answer = await llm.ainvoke("Look")
        (call,) = answer.tool_calls
        assert (call["name"], call["args"]) == ("look", {"at": "größe"})
        result = {"role": "tool", "tool_call_id": call["id"], "content": "a sheep"}
        last = await llm.ainvoke([{"role": "user", "content": "Look"}, answer, result])
    assert text(last) == "It is a sheep."
    asked = stage.service.requests[-1].messages
    assert [call.name for message in asked for call in message.calls] == ["look"]
    assert stage.refused == []


@surfaces
async def test_it_asks_for_an_object(responses: bool, staging: Staging) -> None:
    schema = {
        "title": "Sheep",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    with staging(saying(json.dumps({"name": "Lamb", "age": 1}))) as stage:
        llm = model(stage, responses=responses).with_structured_output(schema, method="json_schema", strict=True)
        assert await llm.ainvoke("Which?") == {"name": "Lamb", "age": 1}
    wanted = stage.service.requests[-1].schema
    assert wanted is not None
    assert wanted["properties"] == schema["properties"]


async def test_reasoning_of_a_response_is_kept_apart(staging: Staging) -> None:
    script = playing(Started("m"), ReasoningDelta("Let me think."), TextDelta("Done."), Finished("end", Usage(input=1)))
    with staging(script) as stage:
        answer = await model(stage, responses=True).ainvoke("Hi")
    assert answer.text == "Done."
    assert "Let me think." not in answer.text


async def read(llm: Any, *, stream: bool) -> None:
    if stream:
        _ = [chunk async for chunk in llm.astream("Hi")]
    else:
        await llm.ainvoke("Hi")


@surfaces
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_is_a_bad_request(responses: bool, stream: bool, staging: Staging) -> None:
    with staging(playing(ContextFull(needed=9000, limit=4096))) as stage:
        llm = model(stage, responses=responses)
        with pytest.raises(openai.BadRequestError, match="9000 tokens > 4096") as caught:
            await read(llm, stream=stream)
    assert caught.value.code == "context_length_exceeded"


async def test_it_makes_vectors_of_texts_and_of_tokens(staging: Staging) -> None:
    with staging(saying("Hi")) as stage:
        embeddings = langchain.OpenAIEmbeddings(
            model="scripted",
            base_url=f"{stage.url}/v1",
            api_key="any",
            check_embedding_ctx_length=False,
        )
        vectors = await embeddings.aembed_documents(["one", "two"])
        assert [len(vector) for vector in vectors] == [4, 4]
        assert await embeddings.aembed_query("one") == vectors[0]
    assert stage.refused == []
