"""A turn with tools: calls are carried out, and whatever happens every call has its result."""

import asyncio
from contextlib import aclosing

import pytest
from tests.unit.agent.scripted import Answers, Doubling, Scripted, calling, results

from shepherd.agent.session import Session
from shepherd.agent.turn import MAX_ROUNDS, CallReturned, TurnEvent
from shepherd.core import BadCall, EngineError, Message, TextDelta, ToolSpec


async def say(to: Session, text: str) -> list[TurnEvent]:
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
    assert [e.result.call_id for e in events if isinstance(e, CallReturned)] == ["c1", "c5", "c3"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I count.Done."
    assert backend.requests[0].tools == tuple(tools.specs)


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
    chat, backend = session(lambda request: calling(-len(request.messages)), Doubling())
    await say(chat, "Double it.")
    assert len(backend.requests) == MAX_ROUNDS + 1
    assert [request.tool_choice for request in backend.requests] == ["auto"] * MAX_ROUNDS + ["none"]


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
