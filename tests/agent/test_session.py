"""A conversation: its transcript is valid whatever happens to a turn."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest

from shepherd.agent.session import Session
from shepherd.core import (
    CallStarted,
    ContextFull,
    Event,
    Finished,
    Message,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    Usage,
    replay,
)

Script = Callable[[Request], list[Event | Exception]]


class Scripted:
    """A back end that plays a script and remembers what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        try:
            for step in self.script(request):
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.closed += 1


def answering(text: str) -> Script:
    return lambda request: list(replay(Message.assistant(text), model="m"))


def session(script: Script, **fields: object) -> tuple[Session, Scripted]:
    backend = Scripted(script)
    return Session(backend, model="m", n_ctx=100, **fields), backend  # type: ignore[arg-type]  # each test names its own


async def say(to: Session, text: str, stop_after: int | None = None) -> list[Event]:
    seen: list[Event] = []
    async with aclosing(to.chat(text)) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == stop_after:
                break
    return seen


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
    assert backend.closed == 1


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
