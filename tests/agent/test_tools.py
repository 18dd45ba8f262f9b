"""A turn with tools: calls are carried out, and whatever happens every call has its result."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from shepherd.agent.session import MOST_ROUNDS, Returned, Session
from shepherd.core import (
    BadCall,
    EngineError,
    Event,
    Message,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    replay,
)

Answers = Callable[[Request], Message | Exception]


class Scripted:
    """A back end that answers by a function of the request."""

    def __init__(self, answer: Answers) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        told = self.answer(request)
        if isinstance(told, Exception):
            raise told
        for event in replay(told, model="m"):
            yield event


class Doubling:
    """A toolbox with one tool, which doubles a number once `gate` is open; the slower the smaller the number."""

    specs = (ToolSpec("double"),)

    def __init__(self) -> None:
        self.session: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.running = 0
        self.most_running = 0
        self.called = asyncio.Event()

    async def run(self, call: ToolCall) -> ToolResult:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.called.set()
        try:
            n = json.loads(call.arguments)["n"]
            for _ in range(10 - n):
                await asyncio.sleep(0)
            await self.gate.wait()
            return ToolResult(call.id, (Text(str(2 * n)),), call.name)
        finally:
            self.running -= 1


def calling(*numbers: int) -> Message:
    calls = (ToolCall(f"c{n}", "double", json.dumps({"n": n})) for n in numbers)
    return Message("assistant", (Text("I count."), *calls))


def results(request: Request) -> list[str]:
    parts = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    return [f"{part.call_id}={part.parts[0].text}" for part in parts if isinstance(part.parts[0], Text)]


async def say(to: Session, text: str) -> list[Event | Returned]:
    async with aclosing(to.chat(text)) as events:
        return [event async for event in events]


def session(answer: Answers, tools: Doubling) -> tuple[Session, Scripted]:
    backend = Scripted(answer)
    return Session(backend, model="m", n_ctx=100, toolbox=tools), backend


async def test_calls_run_side_by_side_and_all_results_go_back_in_order_before_the_next_answer() -> None:
    tools = Doubling()
    chat, backend = session(lambda request: Message.assistant("Done.") if results(request) else calling(1, 5, 3), tools)
    events = await say(chat, "Double them.")
    assert tools.most_running == 3
    assert results(backend.requests[1]) == ["c1=2", "c5=10", "c3=6"]
    assert [m.role for m in chat.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert [e.result.call_id for e in events if isinstance(e, Returned)] == ["c1", "c5", "c3"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I count.Done."
    assert backend.requests[0].tools == tools.specs


async def test_a_call_that_cannot_be_read_is_answered_with_what_is_wrong() -> None:
    bad = Message("assistant", (BadCall('{"name": ', "the JSON ends too early.", "c1", "double"),))
    chat, backend = session(lambda request: Message.assistant("Sorry.") if results(request) else bad, Doubling())
    await say(chat, "Double it.")
    assert results(backend.requests[1]) == ["c1=Error: the JSON ends too early. Call it again"]


async def test_a_turn_that_is_stopped_while_a_tool_runs_leaves_a_transcript_that_can_go_on() -> None:
    tools = Doubling()
    tools.gate.clear()
    chat, _ = session(lambda request: Message.assistant("Yes.") if results(request) else calling(1, 2), tools)
    task = asyncio.create_task(say(chat, "Double them."))
    await tools.called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [m.role for m in chat.messages] == ["user", "assistant", "tool", "tool"]
    assert tools.running == 0
    tools.gate.set()
    await say(chat, "Go on.")
    assert chat.messages[-1].text == "Yes."


async def test_an_answer_that_fails_behind_the_results_takes_nothing_back() -> None:
    chat, _ = session(lambda request: EngineError("broken") if results(request) else calling(1), Doubling())
    with pytest.raises(EngineError):
        await say(chat, "Double it.")
    assert [m.role for m in chat.messages] == ["user", "assistant", "tool"]
    assert chat.undo() == "Double it."
    assert chat.messages == ()


async def test_a_model_that_calls_for_ever_gets_one_last_answer_without_tools() -> None:
    chat, backend = session(lambda request: calling(1), Doubling())
    await say(chat, "Double it.")
    assert len(backend.requests) == MOST_ROUNDS + 1
    assert [request.tool_choice for request in backend.requests] == ["auto"] * MOST_ROUNDS + ["none"]


async def test_calls_without_a_toolbox_are_the_callers() -> None:
    backend = Scripted(lambda request: calling(1))
    chat = Session(backend, model="m", n_ctx=100, tools=[ToolSpec("double")])
    await say(chat, "Double it.")
    assert len(backend.requests) == 1
    assert [m.role for m in chat.messages] == ["user", "assistant"]


async def test_the_tools_know_the_conversation_that_calls_them() -> None:
    tools = Doubling()
    chat, backend = session(lambda request: Message.assistant("Yes."), tools)
    await say(chat, "One.")
    first = tools.session
    chat.clear()
    await say(chat, "Two.")
    assert [request.session for request in backend.requests] == [first, tools.session]
    assert first != tools.session
