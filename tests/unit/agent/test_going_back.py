"""A conversation is taken back, asked again, gone on with, moved and kept: its transcript is never spoilt by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.agent.scripted import Doubling, Playing, Scripted, calling, play, results
from tests.unit.agent.test_turn import valid

from shepherd.agent.session import Session
from shepherd.agent.storage import SavedConversation
from shepherd.agent.turn import NOT_DONE
from shepherd.backends.local.window import Window
from shepherd.core import (
    ContextFull,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    Reasoning,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)

Steps = list[Event | Exception]


class Telling(Playing):
    """Plays a list of events, which a test may set."""

    def __init__(self, *steps: Event | Exception) -> None:
        super().__init__(lambda request: self.steps)
        self.steps: Steps = list(steps)

    def say(self, *texts: str, reason: str = "end", before: Steps | None = None) -> None:
        deltas = [TextDelta(text) for text in texts]
        self.steps = [Started("m"), *(before or []), *deltas, Finished(reason)]  # type: ignore[arg-type]  # a reason


def made(*steps: Event | Exception, **fields: object) -> tuple[Session, Telling]:
    backend = Telling(*steps)
    return Session(backend, model="m", n_ctx=100, **fields), backend  # type: ignore[arg-type]  # each test names its own


def texts(chat: Session) -> list[str]:
    return [message.text for message in chat.messages]


FULL = ContextFull(needed=2, limit=1)


async def test_another_answer_takes_the_place_of_the_last_one() -> None:
    chat, backend = made()
    backend.say("One.")
    await play(chat.chat("Count"))
    backend.say("Uno.")
    await play(chat.retry())
    assert texts(chat) == ["Count", "Uno."]
    assert backend.requests[0].messages == backend.requests[1].messages


async def test_another_answer_to_a_turn_with_calls_begins_at_the_question() -> None:
    backend = Scripted(lambda request: Message.assistant("Two.") if results(request) else calling(1))
    chat = Session(backend, model="m", n_ctx=100, toolbox=Doubling())
    await play(chat.chat("Double it"))
    await play(chat.retry())
    assert [m.role for m in chat.messages] == ["user", "assistant", "tool", "assistant"]
    assert len(backend.requests) == 4


@pytest.mark.parametrize("how", ["retry", "edit", "resume"])
@pytest.mark.parametrize("steps", [[FULL], [Started("m"), Evicted(2, 9), FULL], [Started("m"), TextDelta("x")]])
async def test_where_nothing_is_said_everything_stays_as_it_was(how: str, steps: Steps) -> None:
    chat, backend = made()
    backend.say("On", "e", reason="length", before=[Evicted(3, 9)])
    await play(chat.chat("Count"))
    before = chat.to_saved()
    backend.steps = steps
    happenings = {"retry": chat.retry, "edit": lambda: chat.edit("Count more"), "resume": chat.resume}[how]()
    if any(isinstance(step, Exception) for step in steps):
        with pytest.raises(ContextFull):
            await play(happenings)
    else:
        await play(happenings, stop_after=1)
    assert chat.messages == before.messages
    assert chat.can_resume
    assert chat.to_saved().unreported == 3 + 2 * any(isinstance(step, Evicted) for step in steps), "that is to be told"


async def test_a_question_is_changed_and_asked_again() -> None:
    chat, backend = made()
    backend.say("Hi.")
    for text in ("one", "two"):
        await play(chat.chat(text))
    await play(chat.edit([Text("three"), Image("image/png", b"x")]))
    assert texts(chat) == ["one", "Hi.", "three", "Hi."]
    assert chat.messages[2].parts == (Text("three"), Image("image/png", b"x"))


async def test_an_answer_that_was_cut_is_gone_on_with_and_stays_one_message() -> None:
    chat, backend = made()
    backend.say("One, ", "two", reason="length")
    await play(chat.chat("Count"))
    assert chat.can_resume
    backend.say(", three.")
    await play(chat.resume())
    assert backend.requests[1].messages[-1] == Message.assistant("One, two")
    assert texts(chat) == ["Count", "One, two, three."]
    assert not chat.can_resume


async def test_an_answer_that_was_stopped_within_a_thought_is_gone_on_with() -> None:
    chat, _ = made()
    restored = SavedConversation("s", (Message.user("Why?"), Message("assistant", (Reasoning("Hm, "),))), is_cut=True)
    chat.restore(restored)
    chat._backend = Scripted(lambda request: Message("assistant", (Reasoning("well."), Text("So."))))
    await play(chat.resume())
    assert chat.messages[1].parts == (Reasoning("Hm, well."), Text("So."))


async def test_a_turn_that_was_stopped_behind_its_calls_is_gone_on_with() -> None:
    backend = Scripted(lambda request: Message.assistant("Two.") if results(request) else calling(1))
    chat = Session(backend, model="m", n_ctx=100, toolbox=Doubling())
    await play(chat.chat("Double it"), stop_after=6)
    assert chat.messages[-1].role == "tool"
    await play(chat.resume())
    assert texts(chat)[-1] == "Two."


@pytest.mark.parametrize("how", ["retry", "edit", "resume"])
async def test_there_must_be_something_to_go_back_to(how: str) -> None:
    chat, backend = made()
    happenings = {"retry": chat.retry, "edit": lambda: chat.edit("x"), "resume": chat.resume}
    with pytest.raises(InvalidRequest, match="there is no message yet"):
        await play(happenings[how]())
    backend.say("Hi.")
    await play(chat.chat("Hello"))
    with pytest.raises(InvalidRequest, match="the last answer is complete"):
        await play(chat.resume())


async def test_a_message_of_nothing_is_refused() -> None:
    chat, _ = made()
    with pytest.raises(InvalidRequest, match="a text, an image or a recording"):
        await play(chat.chat([]))


async def test_a_conversation_moves_to_another_model_and_back() -> None:
    chat, first = made(Started("m"), Evicted(2, 9), TextDelta("Hi."), Finished("end"))
    await play(chat.chat("one"))
    second, tools = Telling(), Doubling()
    second.say("Ho.")
    chat.move(second, model="n", n_ctx=50, toolbox=tools)
    await play(chat.chat("two"))
    assert (chat.model, chat.n_ctx, tools.session) == ("n", 50, chat.id)
    assert [request.model for request in (*first.requests, *second.requests)] == ["m", "n"]
    assert texts(chat) == ["one", "Hi.", "two", "Ho."], "nothing has left the new one"
    assert [spec.name for spec in second.requests[0].tools] == ["double"]


async def test_a_conversation_goes_on_where_it_was_saved() -> None:
    chat, backend = made(system="Be kind.")
    backend.say("On", reason="length", before=[Evicted(2, 9)])
    await play(chat.chat("one"))
    chat.title = " A  title\n"
    saved = chat.to_saved()
    again = Session(backend, model="m", n_ctx=100, toolbox=(tools := Doubling()))
    again.restore(saved)
    assert again.to_saved() == saved
    assert (again.id, again.title, again.system, tools.session) == (chat.id, "A title", "Be kind.", chat.id)
    backend.say("Hi.")
    await play(again.chat("two"))
    assert backend.requests[-1].session == chat.id
    assert backend.requests[-1].messages[:3] == (*backend.requests[0].messages, Message.assistant("On"))
    assert texts(again)[2].startswith("[NOTICE: 2 messages evicted")


async def test_a_conversation_that_is_saved_within_a_turn_has_no_open_calls() -> None:
    chat = Session(Scripted(lambda request: calling(1)), model="m", n_ctx=100, toolbox=Doubling())
    async with aclosing(chat.chat("Double it")) as happenings:
        async for happening in happenings:
            assert valid(chat.to_saved().messages)
            if isinstance(happening, Finished):
                (result,) = chat.to_saved().messages[-1].parts
                assert isinstance(result, ToolResult)
                assert NOT_DONE in str(result)
                break


async def test_calls_that_a_file_has_left_open_are_answered() -> None:
    chat = Session(Scripted(lambda request: Message.assistant("Yes.")), model="m", n_ctx=100, toolbox=Doubling())
    chat.restore(SavedConversation("s", (Message.user("Double it"), calling(1, 2))))
    assert valid(chat.messages)
    assert chat.can_resume
    await play(chat.resume())
    assert texts(chat)[-1] == "Yes."


async def test_a_conversation_that_is_stopped_while_it_is_recognised_is_as_it_was() -> None:
    class Slow(Telling):
        def __init__(self) -> None:
            super().__init__()
            self.asked = asyncio.Event()
            self.gate = asyncio.Event()

        async def window(self, request: Request) -> Window:
            return Window(9, 0)

        async def evict(self, request: Request, n_turns: int) -> Evicted:
            return Evicted(0, 0)

        async def recognise(self, request: Request, began: datetime | None = None) -> None:
            self.requests.append(request)
            self.asked.set()
            await self.gate.wait()

    backend = Slow()
    chat = Session(backend, model="m", n_ctx=100)
    saved = SavedConversation("s", (Message.user("one"), Message.assistant("Hi.")))
    chat.restore(saved)
    task = asyncio.create_task(play(chat.chat("two")))
    await backend.asked.wait()
    task.cancel()
    await asyncio.wait([task])
    assert chat.messages == saved.messages
    backend.gate.set()
    backend.say("Ho.")
    await play(chat.chat("two"))
    await play(chat.chat("three"))
    asked = [len(request.messages) for request in backend.requests]
    assert asked == [3, 3, 3, 5], "it is told until it knows, and then no more"


async def test_a_cleared_conversation_is_another_one() -> None:
    chat, backend = made(system="Be kind.")
    backend.say("Hi.")
    await play(chat.chat("one"))
    old = chat.id
    chat.clear()
    assert chat.id != old
    assert (chat.messages, chat.system, chat.title) == ((), "Be kind.", "")


async def test_a_back_end_that_runs_somewhere_else_does_not_say_what_it_holds() -> None:
    chat, _ = made()
    assert await chat.evict(1) == Evicted(0, 0)
    chat.restore(SavedConversation("s", (Message.user("one"),)))
    for asked in (chat.window, lambda: chat.evict(1)):
        with pytest.raises(InvalidRequest, match="does not run in this process"):
            await asked()
    with pytest.raises(InvalidRequest, match="at least 1"):
        await chat.evict(0)


# -- whatever happens ------------------------------------------------------------------------------------------------

ACTS = ["chat", "retry", "edit", "resume", "undo", "save", "move"]


def answers(draw: Callable[[], int]) -> Scripted:
    def answer(request: Request) -> Message | Exception:
        match draw():
            case 0:
                return FULL
            case 1:
                return calling(1, 2)
            case _:
                return Message.assistant("Hi.")

    return Scripted(answer)


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
async def test_whatever_is_done_the_transcript_stays_valid(data: st.DataObject) -> None:
    tools = Doubling()
    backend = answers(lambda: data.draw(st.integers(0, 3)))
    chat = Session(backend, model="m", n_ctx=100, toolbox=tools, max_rounds=2)
    for act in data.draw(st.lists(st.sampled_from(ACTS), max_size=8)):
        before = chat.messages
        stop = data.draw(st.none() | st.integers(1, 12))
        try:
            match act:
                case "chat":
                    await play(chat.chat("x"), stop)
                case "retry":
                    await play(chat.retry(), stop)
                case "edit":
                    await play(chat.edit("y"), stop)
                case "undo":
                    chat.undo()
                case "save":
                    saved = chat.to_saved()
                    chat = Session(backend, model="m", n_ctx=100, toolbox=tools)
                    chat.restore(saved)
                case "move":
                    chat.move(backend, model="n", n_ctx=100, toolbox=tools)
                case _:
                    await play(chat.resume(), stop)
        except InvalidRequest:
            assert chat.messages == before
        except ContextFull:
            pass
        assert valid(chat.messages)
        assert not chat.messages or chat.messages[0].role == "user"
        assert chat.messages[-1:] != (Message.user("x"),), "a question without an answer is taken back"
    assert all(isinstance(part, ToolCall | Text | ToolResult) for m in chat.messages for part in m.parts)
