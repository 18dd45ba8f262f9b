"""A conversation: its transcript is valid whatever happens to a turn."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agent.scripted import Answers, Doubling, Playing, Script, Scripted, answering, calling, play, results

from shepherd.agent.session import Session
from shepherd.agent.turn import MAX_ROUNDS, TurnEvent
from shepherd.core import (
    CallDelta,
    CallStarted,
    ContextFull,
    EngineError,
    Event,
    Evicted,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    ToolSpec,
    Usage,
)


def session(script: Script, **fields: object) -> tuple[Session, Playing]:
    backend = Playing(script)
    return Session(backend, model="m", n_ctx=100, **fields), backend  # type: ignore[arg-type]  # each test names its own


async def say(to: Session, text: str, stop_after: int | None = None) -> list[TurnEvent]:
    return await play(to.chat(text), stop_after)


async def test_the_whole_history_is_sent_at_every_turn() -> None:
    chat, backend = session(answering("Hi."), system="Be kind.", sampling=Sampling(seed=1), max_tokens=9)
    await say(chat, "Hello")
    await say(chat, "More")
    assert [m.role for m in backend.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert backend.requests[1].sampling.seed == 1
    assert backend.requests[1].max_tokens == 9
    assert [m.text for m in chat.messages] == ["Hello", "Hi.", "More", "Hi."]


async def test_a_stopped_answer_keeps_what_was_said() -> None:
    chat, backend = session(lambda r: [Started("m"), TextDelta("One "), TextDelta("two"), Finished("end")])
    await say(chat, "Count", stop_after=2)
    assert chat.messages == (Message.user("Count"), Message("assistant", (Text("One "),)))
    assert backend.n_closed == 1


async def test_a_turn_in_which_nothing_was_said_is_taken_back() -> None:
    chat, _ = session(lambda r: [Started("m"), CallStarted("1", "f")])
    await say(chat, "Count", stop_after=1)
    assert chat.messages == ()


async def test_a_refused_turn_leaves_the_transcript_as_it_was() -> None:
    chat, _ = session(lambda r: [ContextFull(needed=2, limit=1)])
    with pytest.raises(ContextFull):
        await say(chat, "Hello")
    assert chat.messages == ()


async def test_undo_takes_back_one_exchange_and_gives_its_text() -> None:
    chat, _ = session(answering("Hi."))
    await say(chat, "one")
    await say(chat, "two")
    assert chat.undo() == "two"
    assert [m.text for m in chat.messages] == ["one", "Hi."]
    assert chat.undo() == "one"
    assert chat.undo() is None


async def test_clearing_forgets_the_conversation_and_not_the_system_prompt() -> None:
    chat, backend = session(answering("Hi."), system="Be kind.")
    await say(chat, "one")
    chat.clear()
    await say(chat, "two")
    assert [m.text for m in backend.requests[-1].messages] == ["Be kind.", "two"]


async def test_usage_is_known_from_the_start_of_the_answer() -> None:
    chat, _ = session(
        lambda r: [Started("m", usage=Usage(5, 7)), TextDelta("x"), Finished("end", Usage(5, 7, output=1))]
    )
    await say(chat, "Hello", stop_after=1)
    assert chat.usage == Usage(5, 7)
    await say(chat, "Hello")
    assert chat.usage.total == 13


async def test_usage_of_a_stopped_answer_counts_what_came_of_it() -> None:
    pieces: list[Event] = [
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        TextDelta("a"),
        CallStarted("1", "f"),
        CallDelta("{"),
    ]
    chat, _ = session(lambda r: [Started("m", usage=Usage(5, 7)), *pieces, Finished("end", Usage(5, 7, output=99))])
    await say(chat, "Hello", stop_after=1 + len(pieces))
    assert chat.usage == Usage(5, 7, output=4, reasoning=2)


# -- turns with tools --------------------------------------------------------------------------------------------------


def with_tools(answer: Answers, tools: Doubling) -> tuple[Session, Scripted]:
    backend = Scripted(answer)
    return Session(backend, model="m", n_ctx=100, toolbox=tools), backend


async def test_a_turn_that_is_stopped_while_a_tool_runs_leaves_a_transcript_that_can_go_on() -> None:
    tools = Doubling()
    tools.gate.clear()
    chat, _ = with_tools(lambda request: Message.assistant("Yes.") if results(request) else calling(1, 2), tools)
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
    chat, _ = with_tools(lambda request: EngineError("broken") if results(request) else calling(1), Doubling())
    with pytest.raises(EngineError):
        await say(chat, "Double it.")
    assert [m.role for m in chat.messages] == ["user", "assistant", "tool"]
    assert chat.undo() == "Double it."
    assert chat.messages == ()


async def test_a_model_that_calls_for_ever_gets_one_last_answer_without_tools() -> None:
    chat, backend = with_tools(lambda request: calling(-len(request.messages)), Doubling())
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
    chat, backend = with_tools(lambda request: Message.assistant("Yes."), tools)
    await say(chat, "One.")
    first = tools.session
    chat.clear()
    await say(chat, "Two.")
    assert [request.session for request in backend.requests] == [first, tools.session]
    assert first != tools.session


# -- turns that have left the context ----------------------------------------------------------------------------------

NOTICE = "[NOTICE: 4 messages evicted from context and archived to memory]"


def evicting(*counts: int) -> Script:
    """Answers of which the first ones evict so many messages."""
    left = list(counts)

    def script(request: Request) -> list[Event | Exception]:
        told = [Evicted(left.pop(0), 1)] if left else []
        return [Started("m"), *(event for event in told if event.messages), TextDelta("Hi."), Finished("end")]

    return script


async def test_the_next_message_tells_the_model_what_has_left_and_it_stays_told() -> None:
    chat, backend = session(evicting(4), on_full="evict")
    for text in ("one", "two", "three"):
        await say(chat, text)
    asked = [[message.text for message in request.messages] for request in backend.requests]
    assert asked[1] == ["one", "Hi.", f"{NOTICE}\n\ntwo"]
    assert asked[2] == [*asked[1], "Hi.", "three"]
    assert chat.messages[2].parts == (Text(f"{NOTICE}\n\n", aside=True), Text("two"))
    assert [request.on_full for request in backend.requests] == ["evict"] * 3


async def test_without_an_archive_nothing_is_said_of_one() -> None:
    chat, _ = session(evicting(4), archive=False)
    await say(chat, "one")
    await say(chat, "two")
    assert chat.messages[2].text == "[NOTICE: 4 messages evicted from context]\n\ntwo"


async def test_several_evictions_are_told_together() -> None:
    chat, _ = session(lambda r: [Started("m"), Evicted(1, 1), TextDelta("x"), Evicted(3, 1), Finished("end")])
    await say(chat, "one")
    await say(chat, "two")
    assert chat.messages[2].text.startswith(NOTICE)


async def test_undo_gives_the_users_own_words_back_and_the_notice_comes_again() -> None:
    chat, backend = session(evicting(4))
    await say(chat, "one")
    await say(chat, "two")
    assert chat.undo() == "two"
    await say(chat, "other")
    assert backend.requests[-1].messages[2].text == f"{NOTICE}\n\nother"


async def test_a_refused_turn_does_not_lose_the_notice() -> None:
    chat, backend = session(evicting(4))
    await say(chat, "one")
    answering_again, backend.script = backend.script, lambda r: [ContextFull(needed=2, limit=1)]
    with pytest.raises(ContextFull):
        await say(chat, "two")
    backend.script = answering_again
    await say(chat, "two")
    assert backend.requests[-1].messages[2].text == f"{NOTICE}\n\ntwo"


async def test_a_turn_that_is_stopped_after_an_eviction_is_told_of_too() -> None:
    chat, _ = session(evicting(4))
    await say(chat, "one", stop_after=2)
    assert not chat.messages
    await say(chat, "two")
    assert chat.messages[0].text == f"{NOTICE}\n\ntwo"


async def test_a_new_conversation_is_told_nothing() -> None:
    chat, backend = session(evicting(4))
    await say(chat, "one")
    chat.clear()
    await say(chat, "two")
    assert [message.text for message in backend.requests[-1].messages] == ["two"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["say", "evict", "stop", "refuse", "undo"]), max_size=12))
async def test_whatever_happens_every_evicted_message_is_told_exactly_once(acts: list[str]) -> None:
    chat, backend = session(answering("Hi."))
    evicted = 0
    for number, act in enumerate(acts):
        before = chat.messages
        match act:
            case "say":
                backend.script = evicting()
            case "evict" | "stop":
                backend.script = evicting(number + 1)
                evicted += number + 1
            case "refuse":
                backend.script = lambda r: [ContextFull(needed=2, limit=1)]
        if act == "undo":
            text = chat.undo()
            assert text is None or text == before[-2].parts[-1].text  # type: ignore[union-attr]  # the session's own
        elif act == "refuse":
            with pytest.raises(ContextFull):
                await say(chat, "refused")
            assert chat.messages == before
        else:
            await say(chat, f"message {number}", stop_after=2 if act == "stop" else None)
            assert chat.messages[: len(before)] == before, "every prompt begins like the one before"
    told = [text.partition("[NOTICE: ")[2].partition(" ")[0] for text in (m.text for m in chat.messages)]
    assert sum(int(n) for n in told if n) + chat.to_saved().unreported == evicted
    assert [message.role for message in chat.messages] == ["user", "assistant"] * (len(chat.messages) // 2)
