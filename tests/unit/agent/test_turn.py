"""A turn over plain messages: every call gets its result, whatever ends it, and no model can go round for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.agent.scripted import Answers, Doubling, Scripted, calling, play, results

from shepherd.agent.turn import (
    MAX_PARALLEL_CALLS,
    MAX_REPEATS,
    MAX_STUCK,
    CallProgress,
    CallReturned,
    RepeatDetector,
    TurnEvent,
    run_turn,
)
from shepherd.core import (
    BadCall,
    ContextFull,
    EngineError,
    Image,
    Message,
    Reasoning,
    Request,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from shepherd.tools.base import CallOutcome

ASKED = Request("m", (Message.user("Count."),))


async def run(
    backend: Scripted, tools: Doubling, said: list[Message], request: Request = ASKED, **options: int
) -> list[TurnEvent]:
    return await play(run_turn(backend, request, tools, transcript=said, **options))


async def take(
    backend: Scripted, request: Request = ASKED, tools: Doubling | None = None, **options: int
) -> tuple[list[TurnEvent], list[Message]]:
    """All that happens in a turn, and what it has put behind the messages of the request."""
    said: list[Message] = []
    return await run(backend, tools or Doubling(), said, request, **options), said


def valid(messages: Sequence[Message]) -> bool:
    """Whether every call is followed by exactly one result, in order, and every result by whatever it likes."""
    open_calls: list[str] = []
    for message in messages:
        if message.role == "tool":
            (result,) = message.parts
            assert isinstance(result, ToolResult)
            if not open_calls or result.call_id != open_calls.pop(0):
                return False
        elif open_calls:
            return False
        else:
            open_calls = [part.id for part in message.parts if isinstance(part, ToolCall | BadCall)]
    return not open_calls


def once(*numbers: int) -> Answers:
    return lambda request: Message.assistant("Done.") if results(request) else calling(*numbers)


# -- what a turn is ----------------------------------------------------------------------------------------------------


async def test_a_turn_needs_no_session_and_puts_what_was_said_behind_the_messages_of_the_request() -> None:
    backend, tools = Scripted(once(1, 5)), Doubling()
    happenings, said = await take(backend, tools=tools)
    assert [message.role for message in said] == ["assistant", "tool", "tool", "assistant"]
    assert results(backend.requests[1]) == ["c1=2", "c5=10"]
    assert [h.summary for h in happenings if isinstance(h, CallReturned)] == ["1 doubled", "5 doubled"]
    assert tools.shares == [2, 2], "the results of a round share the room"


async def test_a_tool_tells_how_far_it_is_until_it_has_returned() -> None:
    tools = Doubling()
    happenings, _ = await take(Scripted(once(1, 5)), tools=tools)
    told = [(h.call.id, getattr(h, "line", "")) for h in happenings if isinstance(h, CallProgress | CallReturned)]
    assert told == [("c1", "doubling 1"), ("c5", "doubling 5"), ("c1", ""), ("c5", "")]


async def test_whoever_wants_one_call_at_a_time_gets_them_one_after_the_other() -> None:
    tools = Doubling()
    await take(Scripted(once(1, 5, 3)), Request("m", ASKED.messages, parallel_calls=False), tools)
    assert (tools.most_running, tools.ran) == (1, [1, 5, 3])


async def test_an_answer_of_very_many_calls_does_not_start_them_all_at_once() -> None:
    tools = Doubling()
    await take(Scripted(once(*range(3 * MAX_PARALLEL_CALLS))), tools=tools)
    assert tools.most_running == MAX_PARALLEL_CALLS
    assert sorted(tools.ran) == [*range(3 * MAX_PARALLEL_CALLS)]


async def test_what_is_offered_may_change_between_two_answers() -> None:
    tools = Doubling()

    def answer(request: Request) -> Message:
        tools.specs = [ToolSpec("double"), ToolSpec("halve")]
        return once(1)(request)  # type: ignore[return-value]  # it never fails

    backend = Scripted(answer)
    await take(backend, tools=tools)
    assert [[spec.name for spec in request.tools] for request in backend.requests] == [["double"], ["double", "halve"]]


async def test_the_callers_own_tools_are_offered_and_end_the_turn_when_they_are_called() -> None:
    both = Message("assistant", (*calling(1).parts, ToolCall("x", "ask_user", "{}")))
    backend, tools = Scripted(lambda request: both), Doubling("double", "ask_user")
    request = Request("m", ASKED.messages, tools=(ToolSpec("ask_user", "the caller's"),))
    _, said = await take(backend, request, tools)
    assert [spec.description for spec in backend.requests[0].tools] == ["the caller's", ""]
    assert len(backend.requests) == 1
    assert [message.role for message in said] == ["assistant", "tool"], "its own call is the caller's to answer"


async def test_a_call_that_must_come_must_come_only_once() -> None:
    backend = Scripted(once(1))
    await take(backend, Request("m", ASKED.messages, tool_choice="required", start="turn"), Doubling())
    assert [request.tool_choice for request in backend.requests] == ["required", "auto"]
    assert [request.start for request in backend.requests] == ["turn", None]


async def test_images_in_results_go_back_to_the_model() -> None:
    class Camera(Doubling):
        async def run(self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = print) -> CallOutcome:
            return CallOutcome(ToolResult(call.id, (Text("seen"), Image("image/png", b"png")), call.name))

    backend = Scripted(once(1))
    await take(backend, tools=Camera())
    (result,) = backend.requests[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.parts == (Text("seen"), Image("image/png", b"png"))


async def test_an_answer_that_was_begun_grows_by_what_is_added_to_it() -> None:
    backend = Scripted(lambda request: Message("assistant", (Text("and two"), *calling(1, text="").parts)))
    said = [Message("assistant", (Reasoning("Hm."), Text("One ")))]
    assert await run(backend, Doubling(), said, max_rounds=0)
    assert said[0].parts[:2] == (Reasoning("Hm."), Text("One and two"))
    assert valid(said)


# -- calls that are not carried out ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason", "told"),
    [
        (BadCall("{", "The JSON ends too early.", "c1", "double"), "end", "The JSON ends too early."),
        (BadCall("{", "The JSON ends too early.", "c1"), "length", "limit of tokens"),
    ],
)
async def test_a_call_that_cannot_be_read_is_answered_with_what_is_wrong(
    bad: BadCall, reason: StopReason, told: str
) -> None:
    backend = Scripted(
        lambda request: Message.assistant("Sorry.") if results(request) else (Message("assistant", (bad,)), reason)
    )
    happenings, said = await take(backend, tools=Doubling())
    assert told in results(backend.requests[1])[0]
    assert [h.result.is_error for h in happenings if isinstance(h, CallReturned)] == [True]
    assert valid(said)


async def test_the_same_call_again_and_again_is_refused_and_then_the_model_must_answer() -> None:
    backend, tools = Scripted(lambda request: calling(1)), Doubling()
    _, said = await take(backend, tools=tools)
    n_run = MAX_REPEATS - 1
    assert tools.ran == [1] * n_run
    assert [("before" in each) for each in results(backend.requests[-1])] == [False] * n_run + [True] * MAX_STUCK
    assert [request.tool_choice for request in backend.requests] == ["auto"] * (n_run + MAX_STUCK) + ["none"]
    assert valid(said), "what it calls even then is answered, too"


async def test_different_calls_for_ever_end_at_the_bound_with_an_answer_without_tools() -> None:
    backend, tools = Scripted(lambda request: calling(len(request.messages))), Doubling()
    _, said = await take(backend, tools=tools, max_rounds=4)
    assert [request.tool_choice for request in backend.requests] == ["auto"] * 4 + ["none"]
    assert len(tools.ran) == 4
    assert valid(said)


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall("c", name, arguments)


def refused(limit: int, *calls: ToolCall | BadCall) -> list[bool]:
    repeats = RepeatDetector(limit)
    return [repeats.has(each) for each in calls]


def test_the_same_call_with_its_arguments_in_another_order_is_the_same_call() -> None:
    one, other = call("f", '{"a": 1, "b": [2]}'), call("f", '{"b":[2],"a":1}')
    assert refused(2, one, other) == [False, True]
    assert refused(2, one, call("f", '{"a": 1}')) == [False, False]
    assert refused(2, call("f"), call("g")) == [False, False]
    assert refused(2, BadCall("{", "x"), BadCall("{", "y")) == [False, True]


def test_going_round_between_two_calls_is_noticed() -> None:
    assert refused(3, *[call("f"), call("g")] * 3) == [False] * 5 + [True]


def test_running_the_tests_again_behind_every_change_is_no_repetition() -> None:
    work = [each for n in range(9) for each in (call("edit", f'{{"n": {n}}}'), call("run"))]
    assert refused(3, *work) == [False] * 18


@given(st.lists(st.sampled_from(["f", "g", "h"]), max_size=40), st.integers(2, 4))
def test_no_more_than_the_bound_of_each_call_is_carried_out_once_nothing_new_comes(
    names: list[str], limit: int
) -> None:
    carried_out = Counter(
        name for name, is_repeat in zip(names, refused(limit, *map(call, names)), strict=True) if not is_repeat
    )
    assert all(n <= (limit - 1) * 3 for n in carried_out.values()), "each new call starts the count again"


# -- whatever ends it --------------------------------------------------------------------------------------------------

SCRIPT = [
    Message("assistant", (Reasoning("Hm."), Text("Let me see."), *calling(1, 4, text="").parts)),
    Message("assistant", (BadCall("<x", "It has no end.", "b1"), *calling(2, text="").parts)),
    calling(7),
    Message.assistant("Done."),
]


def playing(script: Sequence[Message]) -> Scripted:
    at = iter(script)
    return Scripted(lambda request: next(at))


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(0, 40), st.booleans())
async def test_a_turn_may_be_left_behind_any_event_and_its_transcript_can_be_gone_on_with(n: int, alone: bool) -> None:
    backend, tools, said = playing(SCRIPT), Doubling(), list[Message]()
    request = Request("m", ASKED.messages, parallel_calls=not alone)
    await play(run_turn(backend, request, tools, transcript=said), stop_after=n + 1)
    assert valid(said)
    assert (backend.n_open, tools.running) == (0, 0), "nothing goes on behind its back"
    told = [each.partition("=")[2] for each in results(Request("m", tuple(said)))]
    assert sum(text.isdigit() for text in told) == len(tools.ran), "what was done is told, and nothing else is"


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(1, 120), st.booleans())
async def test_a_turn_may_be_cancelled_at_any_moment(n: int, twice: bool) -> None:
    backend, tools, said = playing(SCRIPT), Doubling(), list[Message]()
    task = asyncio.create_task(run(backend, tools, said))
    for _ in range(n):
        await asyncio.sleep(0)
    for _ in range(1 + twice):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert valid(said)
    assert (backend.n_open, tools.running) == (0, 0)


async def test_what_a_call_has_done_is_told_even_if_nobody_waited_for_it() -> None:
    tools = Doubling()
    said: list[Message] = []
    async with aclosing(run_turn(Scripted(once(9, 1)), ASKED, tools, transcript=said)) as happenings:
        async for happening in happenings:
            if isinstance(happening, CallReturned):
                break  # c9; c1 is still at it
    done, broken_off = results(Request("m", tuple(said)))
    assert done == "c9=18"
    assert "a part of it may have been done" in broken_off


async def test_an_answer_that_fails_leaves_everything_before_it() -> None:
    backend = Scripted(lambda request: EngineError("broken") if results(request) else calling(1))
    said: list[Message] = []
    with pytest.raises(EngineError):
        await run(backend, Doubling(), said)
    assert results(Request("m", tuple(said))) == ["c1=2"]


async def test_results_that_do_not_fit_are_taken_out_and_the_model_is_told_by_how_much() -> None:
    def answer(request: Request) -> Message | Exception:
        told = results(request)
        if "c9=18" in told:
            return ContextFull(needed=130, limit=100)
        return [calling(1), calling(8, 9), Message.assistant("Too much.")][min(len(told), 2)]

    backend = Scripted(answer)
    _, said = await take(backend)
    kept, *gone = results(backend.requests[-1])
    assert kept == "c1=2", "what had been read before stays"
    assert all("by 30 tokens. Ask for less" in each for each in gone)
    assert len(gone) == 2
    assert said[-1].text == "Too much."
    assert valid(said)


async def test_a_context_that_is_full_even_so_is_the_callers_to_deal_with() -> None:
    backend = Scripted(lambda request: ContextFull(needed=9, limit=8) if results(request) else calling(1))
    said: list[Message] = []
    with pytest.raises(ContextFull):
        await run(backend, Doubling(), said)
    assert len(backend.requests) == 3
    assert valid(said)


async def test_a_call_that_cancels_itself_is_a_failed_call_and_not_the_end_of_the_turn() -> None:
    class Leaving(Doubling):
        async def run(self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = print) -> CallOutcome:
            raise asyncio.CancelledError

    backend = Scripted(once(1))
    _, said = await take(backend, tools=Leaving())
    assert "was stopped while" in results(backend.requests[1])[0]
    assert valid(said)


async def test_a_toolbox_that_breaks_leaves_a_valid_transcript() -> None:
    class Broken(Doubling):
        async def run(self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = print) -> CallOutcome:
            if call.id == "c1":
                raise RuntimeError("a bug")
            return await super().run(call, share=share, tell=tell)

    said: list[Message] = []
    with pytest.raises(RuntimeError):
        await run(Scripted(once(5, 1)), Broken(), said)
    assert valid(said)


async def test_text_of_several_answers_comes_in_order() -> None:
    happenings, said = await take(playing(SCRIPT), tools=Doubling())
    assert "".join(h.text for h in happenings if isinstance(h, TextDelta)) == "Let me see.I count.Done."
    assert valid(said)
