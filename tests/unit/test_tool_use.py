"""`--use-tools`: HTTP callers without tools of their own get ours, carried out here.

Official clients against a server on a real port; the model is a script, the tools are real.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from tests.scripted_service import ScriptedService

from shepherd import config as configuration
from shepherd.agent.with_tools import ToolBackend
from shepherd.app.toolset import Advisors, Toolset
from shepherd.core import Event, Finished, Message, Request, Text, ToolCall, ToolResult, Usage, replay
from shepherd.server.app import create_app, serve
from shepherd.server.endpoints.handler import Limits

ASKED: list[Any] = [{"role": "user", "content": "What is in the notes?"}]
THEIRS: list[Any] = [
    {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
]


class Model:
    """Calls a tool when it is asked, then says what came of it. Each answer costs 10 tokens read and 3 said."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name = name
        self.arguments = json.dumps(arguments)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        last = request.messages[-1]
        if last.role == "tool":
            result = last.parts[0]
            assert isinstance(result, ToolResult)
            said = "".join(part.text for part in result.parts if isinstance(part, Text))
            told = Message("assistant", (Text(f"It says: {said}"),))
        else:
            told = Message("assistant", (Text("I look."), ToolCall("c1", self.name, self.arguments)))
        for event in replay(told, model=request.model):
            yield replace(event, usage=Usage(input=10, output=3)) if isinstance(event, Finished) else event


@asynccontextmanager
async def serving(
    folder: Path, model: Model, *, limits: Limits = Limits(), **flags: Any,  # noqa: B008 - frozen
) -> AsyncIterator[tuple[str, ScriptedService]]:  # fmt: skip
    """The address of a server whose model is `model`, with the tools of a configuration that says `flags`."""
    config = configuration.load(flags={"roots": (str(folder),), **flags}, env={}, cwd=folder, user_dir=folder / "none")

    async def no_model(request: Request) -> AsyncGenerator[Event, None]:
        for _ in ():
            yield Finished("end", Usage())

    outfit = Toolset(config, env={}, models=Advisors([("fake", True)], no_model))
    service = ScriptedService(ToolBackend(model, outfit.box(n_ctx=8192)).stream)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    app = create_app(service, limits=limits)
    task = asyncio.create_task(serve(app, host="127.0.0.1", port=0, on_ready=ready.set_result))
    try:
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        yield f"http://127.0.0.1:{ready.result()}", service
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await outfit.aclose()


@asynccontextmanager
async def openai_client(address: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", http_client=http, max_retries=0)


@asynccontextmanager
async def anthropic_client(address: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with httpx2.AsyncClient(trust_env=False) as http:
        yield anthropic.AsyncAnthropic(base_url=address, api_key="none", http_client=http, max_retries=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the tools may touch."""
    (tmp_path / "notes.txt").write_text("the key is under the mat\n")
    return tmp_path


READING = Model("read_file", path="notes.txt")
SAID = "I look.\n\nIt says: the key is under the mat"


async def test_an_openai_client_sees_one_answer_and_the_cost_of_all(folder: Path) -> None:
    async with serving(folder, READING) as (address, _), openai_client(address) as client:
        answer = await client.chat.completions.create(model="fake", messages=ASKED, n=2)
        for choice in answer.choices:
            assert (choice.message.content or "").strip() == SAID
            assert choice.message.tool_calls is None
            assert choice.finish_reason == "stop"
        assert len(answer.choices) == 2
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2 * (3 + 3)
        options: Any = {"include_usage": True}
        stream = await client.chat.completions.create(model="fake", messages=ASKED, stream=True, stream_options=options)
        chunks = [chunk async for chunk in stream]
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        assert "".join(delta.content or "" for delta in deltas).strip() == SAID
        assert not any(delta.tool_calls for delta in deltas)
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        assert reasons == ["stop"]
        assert chunks[-1].usage is not None
        assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (20, 6)


async def test_an_anthropic_client_sees_one_answer_too(folder: Path) -> None:
    async with serving(folder, READING) as (address, _), anthropic_client(address) as client:
        answer = await client.messages.create(model="fake", max_tokens=50, messages=ASKED)
        async with client.messages.stream(model="fake", max_tokens=50, messages=ASKED) as stream:
            streamed = await stream.get_final_message()
        for each in (answer, streamed):
            assert [part.type for part in each.content] == ["text"]
            assert each.content[0].type == "text"
            assert each.content[0].text.strip() == SAID
            assert (each.stop_reason, each.usage.output_tokens) == ("end_turn", 6)


async def test_tools_of_the_client_and_a_choice_of_none_are_left_alone(folder: Path) -> None:
    async with serving(folder, READING) as (address, service), openai_client(address) as client:
        theirs = await client.chat.completions.create(model="fake", messages=ASKED, tools=THEIRS)
        assert theirs.choices[0].finish_reason == "tool_calls"
        calls = theirs.choices[0].message.tool_calls
        assert calls is not None
        call = calls[0]
        assert call.type == "function"
        assert json.loads(call.function.arguments) == {"path": "notes.txt"}
        none = await client.chat.completions.create(model="fake", messages=ASKED, tool_choice="none")
        assert "under the mat" not in (none.choices[0].message.content or "")
        assert service.n_running == 0


async def test_what_needs_consent_is_refused_unless_the_operator_gave_it(folder: Path) -> None:
    writing = Model("write_file", path="new.txt", content="x")
    for flags, is_written in (({}, False), ({"allow_tools": ("write_file",), "read_only": True}, False),
                              ({"allow_tools": ("write_file",)}, True)):  # fmt: skip
        async with serving(folder, writing, **flags) as (address, _), openai_client(address) as client:
            answer = await client.chat.completions.create(model="fake", messages=ASKED)
            assert ("Error: " in (answer.choices[0].message.content or "")) is not is_written
            assert (folder / "new.txt").exists() is is_written
