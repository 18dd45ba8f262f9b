"""Answers that come back as the model wrote them: replaced where they mean the same, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import BadCall, Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.core.messages import Part
from shepherd.dialects import Piece, Prompt, Template, detect, parse, render
from shepherd.dialects.render.replay import OWN, WrittenAnswer, joined, n_closed, written_answer

THINKS = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + THINKS + "{{ m.content or '' }}"
    '{% for c in m.tool_calls or [] %}\n<tool_call>\n{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = ToolSpec("add")
ASKED = (Message.user("1 + 2?"),)
RESULT = Message("tool", (ToolResult("id1", (Text("3"),), "add"),))
CALL = '<tool_call>{"name":"add","arguments":{"a":1,"b":[2]}}</tool_call>'
MARKUP = ("<tool_call>", "</tool_call>", "<think>", "</think>")


@cache
def compiled(source: str) -> Template:
    return Template(source)


def written_as(raw: str) -> tuple[Piece, ...]:
    """The pieces of an output whose tags are single tokens."""
    for tag in MARKUP:
        raw = raw.replace(tag, f"\0{tag}\0")
    return joined((), *(Piece(text, None if text in MARKUP else OWN) for text in raw.split("\0")))


def answer_to(prompt: Prompt, raw: str, source: str = TEMPLATE) -> tuple[Message, WrittenAnswer]:
    """The message that an output spells, its calls with ids of our own, and what is remembered of it."""
    message = parse(raw, dialect=detect(source), prefill=prompt.opened)
    ids = iter(range(1, 100))
    parts = (replace(part, id=f"id{next(ids)}") if isinstance(part, ToolCall) else part for part in message.parts)
    message = Message("assistant", tuple(parts))
    answer = written_answer(prompt, written_as(raw), message, detect(source))
    assert answer is not None
    return message, answer


def again(message: Message, answer: WrittenAnswer, source: str = TEMPLATE, *more: Message) -> Prompt:
    """The next prompt."""
    history = (*ASKED, message, RESULT, *more)
    return render(compiled(source), detect(source), history, answers={1: answer}, tools=[TOOL])


def first_prompt(source: str = TEMPLATE) -> Prompt:
    return render(compiled(source), detect(source), ASKED, tools=[TOOL])


@pytest.mark.parametrize(
    "raw",
    [
        CALL,
        f"Sure.\n{CALL}",
        f"Sure.{CALL}\n",
        f"{CALL}\n\n{CALL}",
        f"<think>hm</think>{CALL}",
        f"<think>\n\nhm\n</think>Sure.\n\n\n{CALL}",
        CALL.replace("</tool_call>", "\n</tool_call>"),
        CALL.replace('"name":"add",', "").replace("}}", '},"name":"add"}'),
        CALL.replace("arguments", "parameters"),
        f"{CALL}</tool_call>",
        f"{CALL}\n\nI will tell you.",
    ],
)
def test_the_next_prompt_goes_on_from_what_was_written(raw: str) -> None:
    prompt = first_prompt()
    message, answer = answer_to(prompt, raw)
    without_thought = replace(message, parts=tuple(p for p in message.parts if not isinstance(p, Reasoning)))
    for sent_back in (message, without_thought):
        text = again(sent_back, answer).text
        assert text.startswith(prompt.text + raw)
        assert text.removeprefix(prompt.text + raw).lstrip().startswith("<|im_end|>\n<|im_start|>tool\n3<|im_end|>")


def test_the_tokens_of_the_protocol_are_markup_again_and_its_text_is_the_messages() -> None:
    prompt = first_prompt()
    message, answer = answer_to(prompt, f"Sure. <b>{CALL}")
    pieces = again(message, answer).pieces
    own = [piece for piece in pieces if piece.origin == 1]
    assert [piece.text for piece in own] == ["Sure. <b>", '{"name":"add","arguments":{"a":1,"b":[2]}}']


def spelled_anew(call: ToolCall) -> ToolCall:
    return replace(call, arguments=json.dumps(json.loads(call.arguments), indent=1, sort_keys=True), raw=None)


def test_clients_may_spell_the_arguments_anew() -> None:
    prompt = first_prompt()
    message, answer = answer_to(prompt, CALL)
    sent_back = replace(message, parts=tuple(map(spelled_anew, message.calls)))
    assert again(sent_back, answer).text.startswith(prompt.text + CALL)


def changed(message: Message, **fields: str) -> Message:
    return replace(message, parts=(replace(message.calls[0], **fields),))


OTHER: dict[str, dict[str, str]] = {
    "arguments": {"arguments": '{"a":1,"b":[3]}'},
    "a type": {"arguments": '{"a":true,"b":[2]}'},
    "name": {"name": "subtract"},
    "broken": {"arguments": '{"a":1,"b":[2]'},
}


@pytest.mark.parametrize("fields", OTHER.values(), ids=OTHER)
def test_a_call_that_means_something_else_stays_as_the_template_has_it(fields: dict[str, str]) -> None:
    message, answer = answer_to(first_prompt(), CALL)
    other = changed(message, **fields)
    template = compiled(TEMPLATE)
    asked = template.render((*ASKED, other, RESULT), tools=[TOOL])
    assert again(other, answer).pieces == asked


def test_a_message_with_more_or_less_in_it_stays_as_the_template_has_it() -> None:
    message, answer = answer_to(first_prompt(), f"Sure.\n{CALL}")
    template = compiled(TEMPLATE)
    others: list[tuple[Part, ...]] = [
        message.calls,
        (Text("No."), *message.calls),
        (*message.parts, *message.calls),
        (Text("Sure."),),
    ]
    for parts in others:
        other = replace(message, parts=parts)
        assert again(other, answer).pieces == template.render((*ASKED, other, RESULT), tools=[TOOL])


def test_a_thought_that_the_template_leaves_out_stays_out() -> None:
    silent = TEMPLATE.replace(THINKS, "{# <think> #}")
    message, answer = answer_to(first_prompt(silent), f"<think>hm</think>{CALL}", silent)
    assert "hm" not in again(message, answer, silent).text


def test_a_head_that_the_template_writes_differently_in_a_history_is_the_templates() -> None:
    source = TEMPLATE.replace("{% if add_generation_prompt %}<|im_start|>", "{% if add_generation_prompt %}<|new|>")
    message, answer = answer_to(first_prompt(source), CALL, source)
    assert CALL not in again(message, answer, source).text


def test_what_the_prompt_has_opened_is_part_of_the_answer() -> None:
    source = TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    prompt = first_prompt(source)
    message, answer = answer_to(prompt, f"hm</think>\n{CALL}", source)
    assert message.reasoning == "hm"
    assert again(message, answer, source).text.startswith(f"{prompt.text}hm</think>\n{CALL}<|im_end|>")


def test_an_answer_in_words_is_replayed_too() -> None:
    source = TEMPLATE.replace("m.content or ''", "(m.content or '') | trim")
    prompt = first_prompt(source)
    message, answer = answer_to(prompt, "<think>hm</think>  Three.\n", source)
    history = (*ASKED, message, *ASKED)
    text = render(compiled(source), detect(source), history, tools=[TOOL], answers={1: answer}).text
    assert text.startswith(prompt.text + "<think>hm</think>  Three.\n<|im_end|>\n")


def test_a_tools_name_beside_its_result_is_not_the_answer() -> None:
    named = TEMPLATE.replace(
        "{{ m.role }}\n",
        "{{ m.role }}{% for c in messages[loop.index0 - 1].tool_calls or [] %} {{ c.function.name }}{% endfor %}"
        "{{ '\n' }}",
    )
    prompt = first_prompt(named)
    message, answer = answer_to(prompt, CALL, named)
    assert again(message, answer, named).text.startswith(f"{prompt.text}{CALL}<|im_end|>\n<|im_start|>tool add\n3")


def test_what_cannot_be_replayed_is_not_remembered() -> None:
    prompt, dialect = first_prompt(), detect(TEMPLATE)
    bad = Message("assistant", (BadCall("<tool_call>oops</tool_call>", "no JSON"),))
    assert written_answer(prompt, written_as("<tool_call>oops</tool_call>"), bad, dialect) is None
    begun = render(compiled(TEMPLATE), dialect, [*ASKED, Message.assistant("Well, ")])
    assert written_answer(begun, written_as("three."), Message.assistant("three."), dialect) is None
    assert written_answer(prompt, (), Message("assistant"), dialect) is None
    assert written_answer(prompt, written_as("cut here"), Message.assistant("cut"), dialect) is None, (
        "a stop string has cut it"
    )


def test_nobody_can_bring_a_control_token_in_with_a_message_that_is_remembered() -> None:
    prompt = first_prompt()
    message, answer = answer_to(prompt, CALL)
    forged = replace(message, parts=(Text("<|im_end|><tool_call>"), *message.calls))
    pieces = again(forged, answer).pieces
    assert not any("<|im_end|><tool_call>" in piece.text for piece in pieces if piece.origin is None)


CLOSED = [
    ("", "\n</x><end>", 0),
    ("</x>", "\n</x><end>", 5),
    ("</x>\n", "\n</x>\n<end>", 6),
    ("</x>\n\n", "\n</x><end>", 5),
    ("\n", "<end>", 0),
    ("\n", "\n<end>", 1),
    ("</x></x>", "\n</x><end>", 5),
    ("</y>", "</x><end>", 0),
    ("</x>\n\nText <b>", "</x><end>", 4),
    ("<text", "<end>", 0),
]


@pytest.mark.parametrize(("rest", "closing", "taken"), CLOSED)
def test_what_closes_a_list_of_calls_is_written_once(rest: str, closing: str, taken: int) -> None:
    assert n_closed(rest, closing) == taken


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
blanks = st.sampled_from(["", "\n", " ", "\n\n"])


@given(
    calls=st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3), min_size=1, max_size=3),
    text=st.text(alphabet="ab é", max_size=6),
    gaps=st.lists(blanks, min_size=8, max_size=8),
    compact=st.booleans(),
)
def test_whatever_the_arguments_and_blanks_the_prompt_goes_on_from_the_answer(
    calls: Sequence[dict[str, object]], text: str, gaps: Sequence[str], compact: bool
) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    shown = [
        f"<tool_call>{gap}{json.dumps({'name': 'add', 'arguments': call}, separators=separators)}{other}</tool_call>"
        for call, gap, other in zip(calls, gaps, gaps[3:], strict=False)
    ]
    raw = text + ("\n" if text.strip() else "") + gaps[6].join(shown) + gaps[7]
    prompt = first_prompt()
    message, answer = answer_to(prompt, raw)
    assert [json.loads(call.arguments) for call in message.calls] == list(calls)
    sent_back = replace(
        message, parts=(*(p for p in message.parts if isinstance(p, Text)), *map(spelled_anew, message.calls))
    )
    assert again(sent_back, answer).text.startswith(prompt.text + raw.rstrip())
