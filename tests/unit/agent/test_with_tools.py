"""Tools of ours behind one answer: what a client sees of a turn that was carried out for it."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from shepherd.agent.with_tools import ToolBackend
from shepherd.core import (
    Completion,
    EngineError,
    Event,
    Finished,
    Message,
    Reply,
    Request,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    fold,
    replay,
)
from shepherd.tools.base import CallOutcome


class Scripted:
    """A back end that says one message after the other, each of the same usage."""

    def __init__(self, *answers: Message | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        told = self.answers.pop(0)
        if isinstance(told, Exception):
            raise told
        for event in replay(told, model="m"):
            yield replace(event, usage=Usage(10, 2, 0, 3, 1)) if isinstance(event, Finished) else event


class Echo:
    """A toolbox with one tool, which says its arguments."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.called: list[str] = []

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return (ToolSpec("echo"),)

    async def run(self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = print) -> CallOutcome:
        self.called.append(call.arguments)
        return CallOutcome(ToolResult(call.id, (Text(call.arguments),), call.name))


def calling(text: str, *arguments: str) -> Message:
    calls = (ToolCall(f"c{n}", "echo", each) for n, each in enumerate(arguments))
    return Message("assistant", (*((Text(text),) if text else ()), *calls))


ASKED = Request("m", (Message.user("Go."),))


async def answer(backend: Scripted, request: Request = ASKED, *, max_rounds: int = 8) -> tuple[Reply, Echo]:
    tools = Echo()
    async with aclosing(ToolBackend(backend, tools, max_rounds=max_rounds).stream(request)) as events:
        return fold([event async for event in events]), tools


async def test_a_turn_with_calls_comes_out_as_one_answer_without_them() -> None:
    backend = Scripted(calling("I look.", '{"a": 1}', '{"a": 2}'), Message.assistant("It is so."))
    reply, tools = await answer(backend)
    assert reply.message.parts == (Text("I look.\n\nIt is so."),)
    assert reply.reason == "end"
    assert tools.called == ['{"a": 1}', '{"a": 2}']
    assert reply.usage == Usage(20, 4, 0, 6, 2), "all that was computed"
    assert [spec.name for spec in backend.requests[0].tools] == ["echo"]
    assert [message.role for message in backend.requests[1].messages] == ["user", "assistant", "tool", "tool"]


async def test_an_answer_that_says_nothing_before_its_call_begins_with_what_it_says_behind_it() -> None:
    reply, _ = await answer(Scripted(calling("", "{}"), Message.assistant("Here.")))
    assert reply.message.text == "Here."


async def test_a_model_that_only_calls_ends_without_a_call_for_the_client() -> None:
    reply, tools = await answer(Scripted(calling("", '{"n": 1}'), calling("", '{"n": 2}')), max_rounds=1)
    assert tools.called == ['{"n": 1}']
    assert (reply.message.parts, reply.reason) == ((), "end")


@pytest.mark.parametrize(
    "request_",
    [
        replace(ASKED, tools=(ToolSpec("theirs"),)),
        replace(ASKED, tool_choice="none"),
        replace(ASKED, background=True),
        replace(ASKED, messages=(), completion=Completion("Once")),
    ],
)
async def test_what_is_no_plain_conversation_passes_untouched(request_: Request) -> None:
    backend = Scripted(calling("Yours.", "{}"))
    reply, tools = await answer(backend, request_)
    assert backend.requests == [request_]
    assert reply.message == replace(calling("Yours.", "{}"), origin=reply.message.origin)
    assert tools.called == []


async def test_all_answers_together_keep_to_the_limit_of_the_one_that_was_asked_for() -> None:
    backend = Scripted(calling("I look.", "{}"), calling("", '{"n":1}'), Message("assistant", (Text("Done."),)))
    reply, _ = await answer(backend, replace(ASKED, max_tokens=7))
    assert [request.max_tokens for request in backend.requests] == [7, 4, 1]
    backend = Scripted(calling("I look.", "{}"), calling("", '{"n":1}'), Message("assistant", (Text("Done."),)))
    reply, tools = await answer(backend, replace(ASKED, max_tokens=6))
    assert [request.max_tokens for request in backend.requests] == [6, 3]
    assert (reply.message.text, reply.reason, reply.usage.output) == ("I look.", "length", 6)
    assert len(tools.called) == 2


async def test_a_failure_behind_a_call_is_a_failure_of_the_answer() -> None:
    with pytest.raises(EngineError):
        await answer(Scripted(calling("", "{}"), EngineError("broken")))
