"""What is remembered of conversations: found by what was said, told apart where it must be, and bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.local.compile import Prepared
from shepherd.backends.local.kept_prefix import KeptAnswers, KeptDays, KeptPrompts, KeptTools, weight
from shepherd.backends.local.splice import Earlier, spliced
from shepherd.core import BadCall, Image, Message, Reasoning, Request, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects import TOOLS, Piece, Prompt, Segment, Template, detect, render
from shepherd.dialects.render.replay import OWN, WrittenAnswer

SYSTEM, ASK = Message.system("Be kind."), Message.user("1 + 2?")
CALL = ToolCall("call_unguessable", "add", '{"a": 1, "b": 2}')
ANSWER = Message("assistant", (Reasoning("hm"), CALL))
RESULT = Message("tool", (ToolResult(CALL.id, (Text("3"),)),))


def request(*messages: Message, session: str | None = None) -> Request:
    return Request("m", messages, session=session)


def spoken(message: Message, text: str = "<call>") -> WrittenAnswer:
    return WrittenAnswer(message, "", (Piece(text, OWN),), len(text))


# -- answers ---------------------------------------------------------------------------------------------------------


def test_calls_are_found_by_their_ids_wherever_they_stand() -> None:
    answers = KeptAnswers()
    answers.keep(request(SYSTEM, ASK), spoken(ANSWER))
    without_thought = replace(ANSWER, parts=(replace(CALL, arguments='{"b":2,"a":1}'),))
    for history in ((SYSTEM, ASK, ANSWER, RESULT), (ASK, without_thought), (Message.user("Changed"), ANSWER)):
        assert answers.find(history) == {history.index(next(m for m in history if m.calls)): spoken(ANSWER)}


def test_an_answer_to_one_owner_is_not_found_for_another() -> None:
    answers = KeptAnswers()
    answers.keep(replace(request(SYSTEM, ASK), owner="bob"), spoken(ANSWER))
    found = [answers.find((SYSTEM, ASK, ANSWER), owner) for owner in ("bob", "ada", "")]
    assert found == [{2: spoken(ANSWER)}, {}, {}]


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
    answers = KeptAnswers()
    answers.keep(request(ASK), spoken(ANSWER))
    assert answers.find((ASK, Message("assistant", (other,)))) == {}
    assert answers.find((ASK, Message("assistant", (CALL, other)))) == {}


def test_a_call_that_comes_back_under_another_id_is_found_where_it_was_made() -> None:  # Ollama's protocol has no ids
    answers = KeptAnswers()
    renamed = replace(CALL, id="call_0")
    results = Message("tool", (ToolResult("call_0", (Text("3"),)),))
    answers.keep(request(SYSTEM, ASK), spoken(ANSWER))
    answers.keep(request(SYSTEM, ASK, ANSWER, RESULT), spoken(Message.assistant("Three.")))
    knowing = Message("assistant", (Reasoning(" hm"), renamed))
    assert list(answers.find((SYSTEM, ASK, knowing, results, Message.assistant(" Three.")))) == [2, 4]
    assert answers.find((ASK, knowing, results)) == {}, "elsewhere"
    guessed = Message("assistant", (renamed,))
    assert answers.find((SYSTEM, ASK, guessed, results)) == {}, "a thought comes back to whoever was given it only"
    answers.keep(request(SYSTEM, ASK), spoken(Message("assistant", (CALL,))))
    assert list(answers.find((SYSTEM, ASK, guessed, results))) == [2], "there was none"


def test_an_id_that_the_model_wrote_is_its_conversations_alone() -> None:
    answers = KeptAnswers()
    call = replace(CALL, id="functions.add:0")
    answer = Message("assistant", (Reasoning("A secret of the system prompt."), call))
    answers.keep(request(SYSTEM, ASK), spoken(answer, "<|call|>functions.add:0{}"))
    assert answers.find((SYSTEM, ASK, answer)) == {2: spoken(answer, "<|call|>functions.add:0{}")}
    assert answers.find((Message.system("Be cruel."), ASK, answer)) == {}
    assert answers.find((ASK, answer)) == {}


def test_words_are_found_where_they_were_said() -> None:
    answers = KeptAnswers()
    answers.keep(request(ASK), spoken(Message.assistant("Three.\n")))
    assert list(answers.find((ASK, Message.assistant("Three."), ASK))) == [1], "clients strip"
    assert answers.find((Message.user("4 + 5?"), Message.assistant("Three."))) == {}
    assert answers.find((ASK, Message.assistant("Four."))) == {}


def test_everything_that_is_said_tells_conversations_apart() -> None:
    def found(*messages: Message) -> bool:
        answers = KeptAnswers()
        answers.keep(request(ASK, ANSWER, RESULT), spoken(Message.assistant("Three.")))
        return bool(answers.find((*messages, Message.assistant("Three."))))

    assert found(ASK, ANSWER, RESULT)
    assert found(ASK, Message("assistant", (CALL,)), RESULT), "thoughts may be missing"
    assert not found(ASK, ANSWER, Message("tool", (ToolResult(CALL.id, (Text("4"),)),)))
    assert not found(ASK, Message("assistant", (BadCall("<call>", "why"),)), RESULT)
    assert not found(ASK, ANSWER, replace(RESULT, role="user"))
    assert not found(ASK, ANSWER)


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes_first() -> None:
    size = weight(spoken(Message.assistant("x"), "1234567890").pieces, "1234567890")
    answers = KeptAnswers(limit_bytes=2 * size)
    for name in "abc":
        answers.keep(request(Message.user(name)), spoken(Message.assistant("x"), "1234567890"))
    assert answers.find((Message.user("a"), Message.assistant("x"))) == {}
    assert answers.find((Message.user("b"), Message.assistant("x")))
    answers.keep(request(Message.user("c")), spoken(Message.assistant("x"), "1234567890"))
    answers.keep(request(Message.user("d")), spoken(Message.assistant("x"), "1234567890"))
    assert answers.find((Message.user("b"), Message.assistant("x"))) == {}
    assert answers.find((Message.user("c"), Message.assistant("x"))), "the same again takes no more room"


def continued(prompts: KeptPrompts, asked: Request, prompt: Prompt, day: datetime | None = None) -> Prompt:
    """The prompt of the request, as it continues an earlier one; it is kept."""
    prepared = prompts.find(Prepared(asked, day=day))
    if prepared.earlier is not None and prompt.segments:
        prompt = spliced(prepared.earlier, prompt, prepared.n_earlier) or prompt
    prompts.keep(prepared, prompt)
    return prompt


# -- days ------------------------------------------------------------------------------------------------------------

MONDAY, TUESDAY = datetime(2026, 11, 23, 23, 59), datetime(2026, 11, 24, 0, 1)
THREE = Message.assistant("Three.")
MORE = Message.user("And 4 + 5?")


def test_a_conversation_keeps_its_day_and_a_new_one_has_its_own() -> None:
    days = KeptDays()
    assert days.day_of(request(ASK), MONDAY) == MONDAY
    assert days.day_of(request(ASK, THREE, MORE), TUESDAY) == MONDAY
    assert days.day_of(request(ASK, THREE, MORE, ANSWER, RESULT), TUESDAY) == MONDAY
    assert days.day_of(request(MORE), TUESDAY) == TUESDAY


def test_the_same_words_on_another_day_begin_another_conversation() -> None:
    days = KeptDays()
    days.day_of(request(ASK), MONDAY)
    days.day_of(request(ASK, THREE, MORE), MONDAY)
    assert days.day_of(request(ASK), TUESDAY) == TUESDAY
    assert days.day_of(request(ASK, THREE, MORE, ANSWER, RESULT), TUESDAY) == MONDAY, "the old one goes on"
    assert days.day_of(request(ASK, Message.assistant("3"), MORE), TUESDAY) == TUESDAY


def test_sessions_are_told_apart() -> None:
    days = KeptDays()
    days.day_of(request(ASK, session="a"), MONDAY)
    assert days.day_of(request(ASK, THREE, MORE, session="b"), TUESDAY) == TUESDAY
    assert days.day_of(request(ASK, THREE, MORE, session="a"), TUESDAY) == MONDAY


def test_days_are_bounded() -> None:
    days = KeptDays(limit=2)
    for name in "abc":
        days.day_of(request(Message.user(name)), MONDAY)
    assert days.day_of(request(Message.user("c"), THREE, MORE), TUESDAY) == MONDAY
    assert days.day_of(request(Message.user("a"), THREE, MORE), TUESDAY) == TUESDAY
    assert days.day_of(request(), TUESDAY) == TUESDAY


# -- prompts ---------------------------------------------------------------------------------------------------------

FORGETFUL = """
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>
{{ m.reasoning_content or '' }}
</think>

{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template that shows thoughts, and tags around none, behind the last question only: Qwen's way."""


def prompt_of(asked: Request, source: str = FORGETFUL) -> Prompt:
    return render(Template(source), detect(source), asked.messages, tools=asked.tools, reasoning=asked.reasoning)


def played(
    *conversation: Message, source: str = FORGETFUL, prompts: KeptPrompts | None = None
) -> list[tuple[str, Prompt]]:
    """For each request of a conversation the template's own prompt, and the one that is used."""
    prompts = prompts or KeptPrompts()
    made = []
    for at in range(1, len(conversation) + 1):
        if at == len(conversation) or conversation[at].role == "assistant":
            asked = request(*conversation[:at])
            own = prompt_of(asked, source)
            made.append((own.text, continued(prompts, asked, own)))
    return made


TALK = (SYSTEM, ASK, Message("assistant", (CALL,)), RESULT, THREE, MORE, Message.assistant("Nine."), ASK)


def test_what_a_model_has_read_it_reads_again_when_the_template_would_write_it_anew() -> None:
    made = played(*TALK)
    assert [own == used.text for own, used in made] == [True, True, False, False]
    for (_, first), (_, second) in pairwise(made):
        assert second.text.startswith(first.text.removesuffix("<|im_start|>assistant\n"))
        assert second.text.endswith("<|im_start|>assistant\n")
        assert [second.text[s.start : s.stop] for s in second.segments][: len(first.segments)] == [
            first.text[s.start : s.stop] for s in first.segments
        ]
        assert "".join(second.text[s.start : s.stop] for s in second.segments) == second.text.removesuffix(
            "<|im_start|>assistant\n"
        )
    assert len(made[-1][1].segments) == len(TALK)


def test_the_same_request_again_is_the_same_prompt() -> None:
    prompts = KeptPrompts()
    first = [used for _, used in played(*TALK, prompts=prompts)]
    assert [used for _, used in played(*TALK, prompts=prompts)] == first


def test_a_prompt_of_another_day_is_another() -> None:
    prompts = KeptPrompts()
    first, second = request(*TALK[:4]), request(*TALK[:6])
    continued(prompts, first, prompt_of(first), MONDAY)
    assert continued(prompts, second, prompt_of(second), TUESDAY) == prompt_of(second)
    assert continued(prompts, second, prompt_of(second), MONDAY) != prompt_of(second)


@pytest.mark.parametrize(
    "change",
    [
        {"reasoning": "high"},
        {"session": "another"},
        {"user": "another"},
        {"tools": (ToolSpec("add"),)},
        {"extra": {"chat_template_kwargs": {"a": 1}}},
        {"messages": (SYSTEM, replace(ASK, parts=(Text("1 + 2? "),)), *TALK[2:6])},
        {"messages": (SYSTEM, ASK, TALK[2], replace(RESULT, parts=(ToolResult(CALL.id, (Text("4"),)),)), *TALK[4:6])},
        {"messages": (SYSTEM, replace(ASK, parts=(*ASK.parts, Image("image/png", b"x"))), *TALK[2:6])},
    ],
)
def test_what_says_something_else_goes_on_with_nothing(change: Mapping[str, Any]) -> None:
    prompts = KeptPrompts()
    played(*TALK[:4], prompts=prompts)
    asked = replace(request(*TALK[:6]), **change)
    assert continued(prompts, asked, prompt_of(asked)) == prompt_of(asked)
    unchanged = request(*TALK[:6])
    assert continued(prompts, unchanged, prompt_of(unchanged)) != prompt_of(unchanged)


def test_a_prompt_that_cannot_be_parted_stays_as_the_template_has_it() -> None:
    moving = FORGETFUL.replace(
        "{{ m.content }}", "{% if loop.last %}{{ messages[0].content }}{% endif %}{{ m.content }}"
    )
    assert all(own == used.text for own, used in played(*TALK, source=moving)), "the system prompt moves"
    joining = FORGETFUL.replace(
        "<|im_end|>\n{% endfor %}",
        "{% if loop.last or m.role != 'tool' or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
        "{% endfor %}",
    )
    prompts = KeptPrompts()
    played(*TALK[:4], source=joining, prompts=prompts)
    for further, is_parted in ((RESULT, False), (THREE, True)):
        asked = request(*TALK[:4], further, MORE)
        own = prompt_of(asked, joining)
        assert (continued(prompts, asked, own) != own) == is_parted, "two results in one turn, or one alone"


OLD = Earlier((Piece("<old>", None), Piece("A", 0), Piece("</q>", None)), (Segment(0, 10, 0),))
FIRST, SECOND = (Piece("<new>", None), Piece("A", 0)), Piece("B", 1)
ENDS = Piece("</q><a>", None)


@pytest.mark.parametrize(
    ("pieces", "others", "text"),
    [
        ((*FIRST, ENDS, SECOND), (), "<old>A</q><a>B"),
        ((*FIRST, Piece("</q>", None)), (), "<old>A</q>"),
        ((*FIRST, Piece("</z><a>", None), SECOND), (), None),
        ((*FIRST, SECOND), (), None),
        (FIRST, (), None),
        ((FIRST[0], Piece("A!", 0), ENDS, SECOND), (), None),
        ((*FIRST, ENDS, Piece("{tools}", TOOLS), SECOND), (), None),
        ((*FIRST, ENDS, SECOND, Piece("A", 0), ENDS), (), None),
        ((SECOND, *FIRST, ENDS), (), None),
        ((*FIRST, ENDS, SECOND), (0,), None),
    ],
)
def test_a_beginning_is_put_before_what_parts_from_it_only(
    pieces: tuple[Piece, ...], others: tuple[int, ...], text: str | None
) -> None:
    prompt = Prompt(pieces, "", (), (Segment(0, 10, 0), Segment(10, 14, 1, others)))
    made = spliced(OLD, prompt, 1)
    assert (made and made.text) == text


def test_an_answer_that_is_to_be_gone_on_with_is_no_beginning() -> None:
    prompts = KeptPrompts()
    asked = request(ASK, Message.assistant("Thr"))
    assert continued(prompts, asked, prompt_of(asked)) == prompt_of(asked)
    longer = request(ASK, Message.assistant("Thr"), MORE)
    assert continued(prompts, longer, prompt_of(longer)) == prompt_of(longer)


# -- tools -----------------------------------------------------------------------------------------------------------

ADD, SUB, MUL = (
    ToolSpec(name, "counts", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}})
    for name in ("add", "sub", "mul")
)


def names(asked: Request) -> list[str]:
    return [tool.name for tool in asked.tools]


@pytest.mark.parametrize("session", ["s", None])
def test_tools_keep_their_order_and_new_ones_come_last(session: str | None) -> None:
    tools = KeptTools()

    def settled(*offered: ToolSpec, turns: int = 1) -> list[str]:
        messages = (ASK, *(THREE, MORE) * turns)
        return names(tools.settled(replace(request(*messages, session=session), tools=offered)))

    assert settled(SUB, ADD, turns=0) == ["sub", "add"]
    assert settled(ADD, SUB, turns=0) == ["sub", "add"]
    assert settled(ADD, MUL, SUB) == ["sub", "add", "mul"]
    assert settled(MUL, ADD, turns=2) == ["add", "mul"], "what is not offered is not shown"
    assert settled(ADD, MUL, SUB, turns=3) == ["sub", "add", "mul"]
    other = replace(request(MORE, session=session and "t"), tools=(ADD, MUL, SUB))
    assert names(tools.settled(other)) == ["add", "mul", "sub"], "another conversation has its own"


@given(st.permutations(list(ADD.parameters["properties"])), st.permutations(list(ADD.parameters)))
def test_a_tool_is_spelled_as_it_came_first(inner: list[str], outer: list[str]) -> None:
    tools = KeptTools()
    first = tools.settled(replace(request(ASK), tools=(ADD,)))
    properties = {key: ADD.parameters["properties"][key] for key in inner}
    shuffled = replace(ADD, parameters={key: {**ADD.parameters, "properties": properties}[key] for key in outer})
    again = tools.settled(replace(request(MORE), tools=(shuffled,)))
    assert json.dumps(again.tools[0].parameters) == json.dumps(first.tools[0].parameters)
    other = replace(ADD, parameters={**ADD.parameters, "required": ["a"]})
    assert tools.settled(replace(request(ASK), tools=(other,))).tools == (other,)


def test_two_tools_of_one_name_both_stay() -> None:
    twice = (ADD, replace(ADD, description="counts, too"))
    assert KeptTools().settled(replace(request(ASK), tools=twice)).tools == twice


# -- what changes with every request ---------------------------------------------------------------------------------


def test_how_much_room_is_left_is_not_told_at_the_front_and_stays_where_it_was_told_later() -> None:
    def asked(left: int) -> Request:
        note = f"<total_tokens>{left} tokens left</total_tokens>"
        told = (Message.system(f"Be kind.\n\n{note}"), Message.system(note), ASK, THREE, Message.system(note), MORE)
        return KeptTools().settled(request(*told))

    texts = [message.text for message in asked(17).messages]
    later = "<total_tokens>17 tokens left</total_tokens>"
    assert texts == ["Be kind.", "", "1 + 2?", "Three.", later, "And 4 + 5?"]
    assert asked(17).messages[:4] == asked(16).messages[:4]
    untouched = request(SYSTEM, ASK)
    assert KeptTools().settled(untouched) is untouched
