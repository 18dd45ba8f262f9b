"""Turns and spans: what leaves together, what stays, and that what is left is a conversation like any other."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.dialects.conformance import each_template, templates

from shepherd.backends.local.prompt import Encoder
from shepherd.backends.local.turns import Placement, cuts, placements, spans
from shepherd.core import Message, Reasoning, Text, ToolCall, ToolResult, ToolSpec
from shepherd.dialects import Prompt, Segment, Template, detect, render
from shepherd.engine.base import Span

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

TOOL = ToolSpec("f", "d", {"type": "object", "properties": {"k": {"type": "string", "description": "kk"}}})


def system(n: int) -> Message:
    return Message.system(f"S{n}")


def user(n: int) -> Message:
    return Message.user(f"U{n}")


def said(n: int) -> Message:
    return Message.assistant(f"A{n}")


def call(*numbers: int, text: str = "") -> Message:
    calls = [ToolCall(f"call_{n}", TOOL.name, f'{{"k": "ARGS{n}"}}') for n in numbers]
    return Message("assistant", (*((Text(text),) if text else ()), *calls))


def result(n: int, role: str = "tool") -> Message:
    return Message(role, (ToolResult(f"call_{n}", (Text(f"RES{n}"),), TOOL.name),))  # type: ignore[arg-type]


# -- which turn, and what stays --------------------------------------------------------------------------------------


def shown(messages: Sequence[Message], anchored: Sequence[int] = ()) -> str:
    """One word per message: its turn, with a `!` if it stays."""
    return " ".join(f"{place.turn}{'!' * place.keep}" for place in placements(messages, anchored=anchored))


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([system(0), user(1), said(2), user(3)], "0! 1 1 3!"),
        ([user(0), said(1), user(2), said(3), user(4)], "0 0 2 2 4!"),
        ([system(0), system(1), user(2)], "0! 0! 2!"),
        ([system(0)], "0!"),
        ([], ""),
        # calls and results go with their turn, and in the current one by themselves, but for the newest
        ([user(0), call(1), result(1), said(3), user(4)], "0 0 0 0 4!"),
        ([user(0), call(1), result(1), call(2), result(2), call(3), result(3)], "0! 1 1 3 3 5! 5!"),
        ([user(0), call(1, 2), result(1), result(2), call(3), result(3)], "0! 1 1 1 4! 4!"),
        ([user(0), call(1), result(1, "user"), call(2), result(2, "user")], "0! 1 1 3! 3!"),
        # the beginning of an answer does not make the exchange before it old
        ([user(0), call(1), result(1), call(2), result(2), said(5)], "0! 1 1 3! 3! 5!"),
        ([user(0), said(1)], "0! 1!"),
        # several of the user's messages in a row are one turn, with the system's beside them
        ([user(0), said(1), system(2), user(3), user(4)], "0 0 2! 2! 2!"),
        ([user(0), system(1), said(2), user(3)], "0 0 0 3!"),
        ([user(0), said(1), system(2), said(3), user(4)], "0 0 0 0 4!"),
        # a call and its result are never parted, wherever the result comes
        ([user(0), call(1), user(2), result(1), said(4), user(5)], "0 0 0 0 0 5!"),
        ([user(0), call(1), call(2), result(1), result(2), call(5), result(5)], "0! 1 1 1 1 5! 5!"),
        # ids that come again belong to the latest call
        ([user(0), call(1), result(1), said(3), user(4), call(1), result(1), said(7), user(8)], "0 0 0 0 4 4 4 4 8!"),
        ([said(0), user(1), said(2), user(3)], "0 1 1 3!"),
        ([result(1), user(1), said(2), user(3)], "0 1 1 3!"),
    ],
)
def test_what_leaves_together_and_what_stays(messages: list[Message], wanted: str) -> None:
    assert shown(messages) == wanted


def test_a_turn_that_holds_more_than_its_own_text_keeps_its_head_and_its_answer() -> None:
    messages = [user(0), call(1), result(1), call(2), result(2), said(5), user(6), said(7), user(8)]
    assert shown(messages, anchored=[0]) == "0! 1 1 3 3 5! 6 6 8!"


messages_of_any_kind = st.lists(
    st.sampled_from([system(0), user(0), said(0), call(1), call(1, 2), result(1), result(2), result(1, "user")]),
    max_size=14,
)


@given(messages_of_any_kind)
def test_every_message_has_a_place_and_no_pair_is_parted(messages: list[Message]) -> None:
    found = placements(messages)
    assert len(found) == len(messages)
    assert [place.turn for place in found] == sorted(place.turn for place in found)
    asked: dict[str, Placement] = {}
    for message, place in zip(messages, found, strict=True):
        asked |= {part.id: place for part in message.parts if isinstance(part, ToolCall)}
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in asked:
                assert asked[part.call_id] == place
    inputs = [at for at, message in enumerate(messages) if message in (user(0),)]
    if inputs:
        assert found[inputs[-1]].keep or any(m.role in ("assistant", "tool") for m in messages[inputs[-1] :])


# -- spans -------------------------------------------------------------------------------------------------------------


def in_text(messages: Sequence[Message], prompt: Prompt, n_ctx: int = 80) -> tuple[Span, ...]:
    """The spans of a prompt in which every character is a token."""
    return spans(messages, prompt.segments, cuts(prompt.segments), n_ctx=n_ctx)


def without(
    messages: Sequence[Message], segments: Sequence[Segment], found: Sequence[Span], turns: Collection[int]
) -> list[Message]:
    """The conversation without what can leave of these turns."""
    out = {
        at
        for segment, span in zip(segments, found, strict=True)
        if span.turn in turns and not span.keep
        for at in (segment.message, *segment.others)
    }
    shows = {at for segment in segments for at in (segment.message, *segment.others)}
    out |= {at for at, place in enumerate(placements(messages)) if at not in shows and place.turn in turns}
    return [message for at, message in enumerate(messages) if at not in out]


def n_leading(messages: Sequence[Message]) -> int:
    return next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))


def test_the_text_of_a_prompt_is_cut_between_its_messages() -> None:
    template = Template(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    messages = [system(0), user(1), said(2), user(3)]
    prompt = render(template, detect(template.source), messages)
    found = in_text(messages, prompt)
    assert [prompt.text[span.start : span.stop] for span in found] == [
        "<|im_start|>system\nS0<|im_end|>\n",
        "<|im_start|>user\nU1<|im_end|>\n",
        "<|im_start|>assistant\nA2<|im_end|>\n",
        "<|im_start|>user\nU3<|im_end|>\n",
    ]
    assert [(span.message, span.turn, span.keep, span.label) for span in found] == [
        (0, 0, True, "system"),
        (1, 1, False, "user"),
        (2, 1, False, "assistant"),
        (3, 3, True, "user"),
    ]


def test_later_system_messages_stay_while_they_are_few_and_then_the_newest_do() -> None:
    messages = [user(0), *(message for n in range(1, 6) for message in (said(n), Message.system("12345678"), user(n)))]
    segments = [Segment(at * 10, at * 10 + 10, at) for at in range(len(messages))]

    def kept(n_ctx: int) -> list[int]:
        found = spans(messages, segments, cuts(segments), n_ctx=n_ctx)
        return [span.message for span in found if span.keep and span.label == "system"]

    assert kept(10_000) == [2, 5, 8, 11, 14]
    assert kept(160) == [8, 11, 14]  # the last one stays with the question that it stands before
    assert kept(8) == [14]


def test_a_stretch_that_several_messages_share_stays_if_one_of_them_must() -> None:
    messages = [system(0), user(1), said(2), user(3), said(4), user(5)]
    segments = [Segment(0, 10, 1, others=(0,)), *(Segment(at * 10, at * 10 + 10, at) for at in range(2, 6))]
    found = spans(messages, segments, cuts(segments), n_ctx=1000)
    assert [(span.message, span.keep) for span in found] == [(1, True), (2, True), (3, False), (4, False), (5, True)]


def test_a_question_stays_with_the_old_call_that_cannot_be_told_from_it() -> None:
    messages = [user(0), said(1), user(2), call(1), result(1), call(2), result(2)]
    segments = [Segment(0, 10, 0), Segment(10, 20, 1), Segment(20, 40, 3, others=(2,))]
    segments += [Segment(at * 10, at * 10 + 10, at) for at in range(4, 7)]
    found = spans(messages, segments, cuts(segments), n_ctx=1000)
    assert [(span.message, span.keep) for span in found][2] == (3, True)


def test_later_system_messages_that_are_written_first_stay_and_disturb_no_turn() -> None:
    messages = [system(0), user(1), said(2), user(3), system(4), said(5), user(6)]
    order = [0, 4, 1, 2, 3, 5, 6]
    segments = [Segment(n * 10, n * 10 + 10, at) for n, at in enumerate(order)]
    found = spans(messages, segments, cuts(segments), n_ctx=8)
    assert [(span.turn, span.keep) for span in found] == [
        *[(0, True), (0, True), (1, False), (1, False), (3, False), (3, False), (6, True)]
    ]


TALKS: dict[str, tuple[list[Message], tuple[ToolSpec, ...]]] = {
    "plain": ([system(0), user(1), said(1), user(2), said(2), user(3), said(3), user(4)], ()),
    "no system": ([user(1), said(1), user(2), said(2), user(3)], ()),
    "thoughts": (
        [system(0), user(1), Message("assistant", (Reasoning("Hm"), Text("A1"))), user(2), said(2), user(3)],
        (),
    ),
    "silence": ([system(0), user(1), Message.assistant(""), user(2), said(2), user(3)], ()),
    "later": ([system(0), user(1), said(1), user(2), system(2), said(2), user(3)], ()),
    "calls": (
        [
            *(system(0), user(1), call(1), result(1), said(1), user(2), said(2)),
            *(user(3), call(3, text="Hm"), result(3), said(3), user(4)),
        ],
        (TOOL,),
    ),
    "first call": ([user(1), call(1), result(1), said(1), user(2), said(2), user(3)], (TOOL,)),
    "open call": (
        [system(0), user(1), said(1), user(2), call(1), result(1), call(2), result(2), call(3), result(3)],
        (TOOL,),
    ),
}
NUMBERS_CALLS = ("Cohere2MoE", "CohereForAI-c4ai-command-r7b", "Kimi-K2-Instruct", "Kimi-K2-Thinking")
R1 = ("deepseek-ai-DeepSeek-R1-Distill", "llama-cpp-deepseek-r1")
OTHERWISE: dict[str, tuple[str, ...]] = {
    "thoughts": ("Kimi-K2-Thinking",),  # shows a thought according to what comes later
    "silence": ("mistralai-Ministral-3-14B",),  # refuses it
    "calls": (*NUMBERS_CALLS, *R1),  # write something else around the first call of all
    "open call": (*NUMBERS_CALLS, *R1, "Bielik"),
}
"""Real templates that write what is left differently when something is missing, with the reason."""


@functools.cache
def real_template(name: str) -> Template:
    return Template(templates()[name], bos_token="<BOS>", eos_token="<EOS>", clock=lambda: datetime(2026, 1, 2))


@each_template(0.15)
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.grid(0.06)
def test_without_whole_turns_real_templates_would_have_written_what_is_left(name: str, talk: str) -> None:
    if name.startswith(OTHERWISE.get(talk, ())):
        pytest.skip("this template looks at what is missing")
    template = real_template(name)
    dialect = detect(template.source)
    messages, tools = TALKS[talk]
    prompt = render(template, dialect, messages, tools=tools)
    found = in_text(messages, prompt)
    edges = [edge for span in found for edge in (span.start, span.stop)]
    assert edges == sorted(edges)
    for piece, start in zip(
        prompt.pieces, itertools.accumulate((len(p.text) for p in prompt.pieces), initial=0), strict=False
    ):
        if piece.origin is not None and piece.origin >= 0:
            (owner,) = [s for s in prompt.segments if s.start <= start < s.stop]
            assert piece.origin in (owner.message, *owner.others)
    turns = sorted({span.turn for span in found if not span.keep})
    assert turns, "something can leave"
    for n in {1, len(turns)}:
        for chosen in itertools.combinations(turns, n):
            gone = [span for span in found if span.turn in chosen and not span.keep]
            left = prompt.text
            for span in reversed(gone):
                left = left[: span.start] + left[span.stop :]
            rest = without(messages, prompt.segments, found, chosen)
            if not template.caps.later_systems and n_leading(rest) > n_leading(messages):
                continue  # a later system message would be rendered as a leading one; what is left has it where it was
            assert left == render(template, dialect, rest, tools=tools).text


# -- on the embedded model's template ----------------------------------------------------------------------------------

words = st.text(alphabet="ab <>|é\n{", max_size=6)
spoken = words.filter(bool)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """System prompts, turns with calls whose results come in several ways, later instructions, and a current turn."""
    numbers = itertools.count()
    messages = [Message.system(text) for text in draw(st.lists(spoken, max_size=2))]
    has_system = bool(messages)

    def exchange() -> list[Message]:
        ids = [f"call_{next(numbers)}" for _ in range(draw(st.integers(1, 2)))]
        calls = [ToolCall(each, "f", '{"k": 1}') for each in ids]
        results = [ToolResult(each, (Text(draw(spoken)),), "f") for each in ids]
        text = draw(words)
        asked = Message("assistant", (*((Text(text),) if text else ()), *calls))
        match draw(st.integers(0, 2)):
            case 0:
                return [asked, *(Message("tool", (each,)) for each in results)]
            case 1:
                return [asked, Message("user", tuple(results))]
            case _:
                return [asked, Message("user", (*results, Text(draw(spoken))))]

    n_turns = draw(st.integers(1, 4))
    for n in range(n_turns):
        if has_system and draw(st.booleans()):
            messages.append(Message.system(draw(spoken)))
        inputs = [draw(words) for _ in range(draw(st.sampled_from([1, 1, 1, 2])))]
        # The start of an empty message cannot be found where no other user message is before it.
        is_first = not any(message.role == "user" for message in messages)
        messages += [Message.user(text or "a" if is_first else text) for text in inputs]
        for _ in range(draw(st.integers(0, 2))):
            messages += exchange()
        if n < n_turns - 1 or draw(st.integers(0, 3)) == 0:
            messages.append(Message.assistant(draw(spoken)))
    return messages


@pytest.mark.model
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), messages=conversations(), has_tools=st.booleans(), n_ctx=st.sampled_from([64, 10_000]))
def test_the_tokens_without_whole_turns_are_those_of_the_conversation_without_them(
    weights: Weights, data: st.DataObject, messages: list[Message], has_tools: bool, n_ctx: int
) -> None:
    source = weights.chat_template or ""
    template, dialect, encoder = Template(source), detect(source), Encoder(weights, source)
    tools = (TOOL,) if has_tools else ()
    prompt = render(template, dialect, messages, tools=tools)
    encoded = encoder.encode(prompt.pieces, cuts(prompt.segments))
    found = spans(messages, prompt.segments, encoded.edges, n_ctx=n_ctx)
    at = 0
    for span in found:
        assert at <= span.start <= span.stop <= len(encoded.tokens)
        at = span.stop
        spelled = b"".join(map(weights.piece, encoded.tokens[span.start : span.stop])).decode("utf-8", "replace")
        assert messages[span.message].text in spelled
        assert spelled.startswith("<|im_start|>")
    turns = sorted({span.turn for span in found if not span.keep})
    chosen = data.draw(st.sets(st.sampled_from(turns)) if turns else st.just(set()))
    gone = [span for span in found if span.turn in chosen and not span.keep]
    left = encoded.tokens[:]
    for span in reversed(gone):
        del left[span.start : span.stop]
    again = render(template, dialect, without(messages, prompt.segments, found, chosen), tools=tools)
    assert left == encoder.encode(again.pieces).tokens
