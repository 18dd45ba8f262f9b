"""What is remembered of conversations: found by what was said, told apart where it must be, and bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from shepherd.backends.history import Answers, Days
from shepherd.core import BadCall, Message, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.dialects import Piece
from shepherd.dialects.replay import OWN, Said

SYSTEM, ASK = Message.system("Be kind."), Message.user("1 + 2?")
CALL = ToolCall("call_unguessable", "add", '{"a": 1, "b": 2}')
ANSWER = Message("assistant", (Reasoning("hm"), CALL))
RESULT = Message("tool", (ToolResult(CALL.id, (Text("3"),)),))


def request(*messages: Message, session: str | None = None) -> Request:
    return Request("m", messages, session=session)


def spoken(message: Message, text: str = "<call>") -> Said:
    return Said(message, "", (Piece(text, OWN),), len(text))


# -- answers ---------------------------------------------------------------------------------------------------------


def test_calls_are_found_by_their_ids_wherever_they_stand() -> None:
    answers = Answers()
    answers.remember(request(SYSTEM, ASK), spoken(ANSWER))
    without_thought = replace(ANSWER, parts=(replace(CALL, arguments='{"b":2,"a":1}'),))
    for history in ((SYSTEM, ASK, ANSWER, RESULT), (ASK, without_thought), (Message.user("Changed"), ANSWER)):
        assert answers.find(history) == {history.index(next(m for m in history if m.calls)): spoken(ANSWER)}


@pytest.mark.parametrize(
    "other",
    [
        replace(CALL, id="call_another"),
        replace(CALL, name="subtract"),
        replace(CALL, arguments='{"a": 1, "b": 3}'),
        replace(CALL, arguments='{"a": 1, "b": 2'),
    ],
)
def test_another_call_is_not_found(other: ToolCall) -> None:
    answers = Answers()
    answers.remember(request(ASK), spoken(ANSWER))
    assert answers.find((ASK, Message("assistant", (other,)))) == {}
    assert answers.find((ASK, Message("assistant", (CALL, other)))) == {}


def test_an_id_that_the_model_wrote_is_its_conversations_alone() -> None:
    answers = Answers()
    call = replace(CALL, id="functions.add:0")
    answer = Message("assistant", (Reasoning("A secret of the system prompt."), call))
    answers.remember(request(SYSTEM, ASK), spoken(answer, "<|call|>functions.add:0{}"))
    assert answers.find((SYSTEM, ASK, answer)) == {2: spoken(answer, "<|call|>functions.add:0{}")}
    assert answers.find((Message.system("Be cruel."), ASK, answer)) == {}
    assert answers.find((ASK, answer)) == {}


def test_words_are_found_where_they_were_said() -> None:
    answers = Answers()
    answers.remember(request(ASK), spoken(Message.assistant("Three.\n")))
    assert list(answers.find((ASK, Message.assistant("Three."), ASK))) == [1], "clients strip"
    assert answers.find((Message.user("4 + 5?"), Message.assistant("Three."))) == {}
    assert answers.find((ASK, Message.assistant("Four."))) == {}


def test_everything_that_is_said_tells_conversations_apart() -> None:
    def found(*messages: Message) -> bool:
        answers = Answers()
        answers.remember(request(ASK, ANSWER, RESULT), spoken(Message.assistant("Three.")))
        return bool(answers.find((*messages, Message.assistant("Three."))))

    assert found(ASK, ANSWER, RESULT)
    assert found(ASK, Message("assistant", (CALL,)), RESULT), "thoughts may be missing"
    assert not found(ASK, ANSWER, Message("tool", (ToolResult(CALL.id, (Text("4"),)),)))
    assert not found(ASK, Message("assistant", (BadCall("<call>", "why"),)), RESULT)
    assert not found(ASK, ANSWER, replace(RESULT, role="user"))
    assert not found(ASK, ANSWER)


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes_first() -> None:
    answers = Answers(limit_chars=25)
    for name in "abc":
        answers.remember(request(Message.user(name)), spoken(Message.assistant("x"), "1234567890"))
    assert answers.find((Message.user("a"), Message.assistant("x"))) == {}
    assert answers.find((Message.user("b"), Message.assistant("x")))
    answers.remember(request(Message.user("c")), spoken(Message.assistant("x"), "1234567890"))
    answers.remember(request(Message.user("d")), spoken(Message.assistant("x"), "1234567890"))
    assert answers.find((Message.user("b"), Message.assistant("x"))) == {}
    assert answers.find((Message.user("c"), Message.assistant("x"))), "the same again takes no more room"


# -- days ------------------------------------------------------------------------------------------------------------

MONDAY, TUESDAY = datetime(2026, 11, 23, 23, 59), datetime(2026, 11, 24, 0, 1)
THREE = Message.assistant("Three.")
MORE = Message.user("And 4 + 5?")


def test_a_conversation_keeps_its_day_and_a_new_one_has_its_own() -> None:
    days = Days()
    assert days.day_of(request(ASK), MONDAY) == MONDAY
    assert days.day_of(request(ASK, THREE, MORE), TUESDAY) == MONDAY
    assert days.day_of(request(ASK, THREE, MORE, ANSWER, RESULT), TUESDAY) == MONDAY
    assert days.day_of(request(MORE), TUESDAY) == TUESDAY


def test_the_same_words_on_another_day_begin_another_conversation() -> None:
    days = Days()
    days.day_of(request(ASK), MONDAY)
    days.day_of(request(ASK, THREE, MORE), MONDAY)
    assert days.day_of(request(ASK), TUESDAY) == TUESDAY
    assert days.day_of(request(ASK, THREE, MORE, ANSWER, RESULT), TUESDAY) == MONDAY, "the old one goes on"
    assert days.day_of(request(ASK, Message.assistant("3"), MORE), TUESDAY) == TUESDAY


def test_sessions_are_told_apart() -> None:
    days = Days()
    days.day_of(request(ASK, session="a"), MONDAY)
    assert days.day_of(request(ASK, THREE, MORE, session="b"), TUESDAY) == TUESDAY
    assert days.day_of(request(ASK, THREE, MORE, session="a"), TUESDAY) == MONDAY


def test_days_are_bounded() -> None:
    days = Days(limit=2)
    for name in "abc":
        days.day_of(request(Message.user(name)), MONDAY)
    assert days.day_of(request(Message.user("c"), THREE, MORE), TUESDAY) == MONDAY
    assert days.day_of(request(Message.user("a"), THREE, MORE), TUESDAY) == TUESDAY
    assert days.day_of(request(), TUESDAY) == TUESDAY
