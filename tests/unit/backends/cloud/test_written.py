"""Calls and thoughts that a provider leaves in the text are read as those of a model on this machine, however cut."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.unit.backends.cloud.providing import chunk, spoken, sse, staged

from shepherd.backends.cloud.written import read
from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    Started,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
    fold,
)
from shepherd.core.events import StopReason, TokenScore
from shepherd.dialects import get, parse

LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "the <b>barn</b>"}}\n</tool_call>'
ASKED = Request("m", (Message.user("Look."),), tools=(LOOK,))
CASES = {
    "text": ("hermes", "a < b, and <b> is bold"),
    "a call": ("hermes", f"I look. {CALL}"),
    "two calls": ("hermes", f"{CALL}\n{CALL}"),
    "a thought and a call": ("hermes", f"<think>\nWhere?\n</think>\n\n{CALL}"),
    "a call of Mistral's": ("mistral", '[TOOL_CALLS][{"name": "look", "arguments": {"at": "x"}}]'),
    "a call of Llama's": ("llama-3", '{"name": "look", "parameters": {"at": "x"}}'),
    "a broken call": ("hermes", '<tool_call>\n{"name": "look", "arguments": {"at": \n</tool_call>'),
}


async def played(events: Iterable[Event]) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event


async def read_all(
    middle: Sequence[Event], dialect: str = "hermes", request: Request = ASKED, reason: StopReason = "end"
) -> Reply:
    events = [Started("m"), *middle, Finished(reason, Usage(7, output=3))]
    async with aclosing(played(events)) as whole:
        return fold([event async for event in read(whole, get(dialect), request)])


@pytest.mark.parametrize("name", CASES)
async def test_a_text_cut_anywhere_is_read_as_a_whole_output_of_a_model_here(name: str) -> None:
    dialect, text = CASES[name]
    expected = parse(text, dialect=dialect, tools=(LOOK,))

    def without_ids(message: Message) -> list[object]:
        return [(each.name, each.arguments) if isinstance(each, ToolCall) else each for each in message.parts]

    for cut in range(len(text) + 1):
        pieces = [TextDelta(each) for each in (text[:cut], text[cut:]) if each]
        reply = await read_all(pieces, dialect)
        if not any(isinstance(part, BadCall) for part in expected.parts):  # its id is drawn
            assert without_ids(reply.message) == without_ids(expected), cut
        assert reply.reason == ("tool_calls" if reply.message.calls else "end")
        assert reply.usage == Usage(7, output=3)


async def test_a_call_is_text_where_there_is_nothing_to_call() -> None:
    forbidden = replace(ASKED, tool_choice="none", shows_tools=True)
    for request in (replace(ASKED, tools=()), forbidden):
        reply = await read_all([TextDelta("I look."), TextDelta(CALL)], request=request)
        assert (reply.message.text, reply.message.calls, reply.reason) == (f"I look.{CALL}", (), "end")


async def test_thoughts_stay_in_the_text_of_those_who_want_them_there() -> None:
    request = replace(ASKED, keeps_thoughts=True)
    assert (await read_all([TextDelta("<think>a</think>b")], request=request)).message.text == "<think>a</think>b"
    reply = await read_all([TextDelta("<think>a</think>b")])
    assert (reply.message.reasoning, reply.message.text) == ("a", "b")


async def test_what_the_provider_reports_itself_is_left_as_it_is_and_ends_the_text_before_it() -> None:
    own = (
        CallStarted("1", "look"),
        CallDelta('{"at":'),
        CallDelta('"a"}'),
        CallEnded(ToolCall("1", "look", '{"at":"a"}')),
    )
    reply = await read_all([ReasoningDelta("Hm."), TextDelta("a <tool_"), *own, TextDelta(CALL)], reason="tool_calls")
    assert reply.message.reasoning == "Hm."
    assert reply.message.text == "a <tool_"
    assert [json.loads(each.arguments)["at"] for each in reply.message.calls] == ["a", "the <b>barn</b>"]


async def test_an_answer_that_a_limit_cut_in_a_call_says_so() -> None:
    reply = await read_all([TextDelta(CALL[:40])], reason="length")
    assert reply.reason == "length"
    assert reply.message.calls == ()
    assert any(isinstance(part, BadCall) for part in reply.message.parts)


async def test_log_probabilities_are_those_of_the_text_that_is_shown() -> None:
    def scored(text: str) -> TextDelta:
        return TextDelta(text, (TokenScore(1, text.encode(), -0.5),))

    pieces = ["a ", "<", " b", "<tool_call>", CALL.removeprefix("<tool_call>"), " end"]
    async with aclosing(played([Started("m"), *map(scored, pieces), Finished("end", Usage())])) as whole:
        shown = [event async for event in read(whole, get("hermes"), ASKED) if isinstance(event, TextDelta)]
    assert "".join(event.text for event in shown).strip() == "a < b end"
    assert [score.piece.decode() for event in shown for score in event.scores] == ["a ", "<", " b", " end"]


async def test_a_provider_with_a_dialect_calls() -> None:
    body = sse(*(chunk({"content": each}) for each in (CALL[:9], CALL[9:])), chunk({}, "stop"))
    async with staged(spoken(body=body), dialect=get("hermes")) as stage:
        assert await stage.ask(ASKED) is None
        reply = fold(stage.events)
        assert [each.name for each in reply.message.calls] == ["look"]
        assert reply.reason == "tool_calls"
