"""Scores of what is shown: exactly the tokens of the visible text, whatever is held back, hidden or cut into bytes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_engine import FakeVocabulary

from shepherd.backends.local.answer import Answer
from shepherd.backends.local.completion import Echo, PlainTextParser
from shepherd.backends.local.logprobs import Scores
from shepherd.core import Event, Reply, TextDelta, ToolSpec, Usage, fold
from shepherd.dialects import get
from shepherd.engine.base import Admitted, Done, PromptScores, Scored, Step

VOCABULARY = FakeVocabulary(control=("<|im_start|>", "<|im_end|>", "<think>", "</think>", "euro€", "two words"))
MARKS = {VOCABULARY.ids["<think>"], VOCABULARY.ids["</think>"]}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = (ToolSpec("f"),)


def written(text: str) -> list[int]:
    """Tokens for a text: those of several characters where they stand, bytes elsewhere."""
    for marker, token in VOCABULARY.ids.items():
        before, found, after = text.partition(marker)
        if found:
            return [*written(before), token, *written(after)]
    return list(text.encode())


def scored(tokens: Sequence[int]) -> list[Step]:
    return [Scored(token, -float(at), ((token, -float(at)), (32, -9.0))) for at, token in enumerate(tokens)]


def events_of(text: str, stops: tuple[str, ...] = (), *, dialect: str | None = "hermes") -> list[Event]:
    parser = PlainTextParser() if dialect is None else get(dialect).parser(tools=TOOLS)
    answer = Answer(parser, VOCABULARY, model="m", stops=stops, marks=MARKS)
    return taken(answer, Admitted(0, 1), *scored(written(text)), Done("end", 257))


def taken(answer: Answer, *steps: Step) -> list[Event]:
    events: list[Event] = []
    for step in steps:
        events += answer.take(step)
        if answer.has_ended:
            break
    return events


def reply_to(text: str, stops: tuple[str, ...] = (), *, dialect: str | None = "hermes") -> Reply:
    return fold(events_of(text, stops, dialect=dialect))


def spelled(reply: Reply) -> str:
    return b"".join(score.piece for score in reply.scores).decode("utf-8", "replace")


TEXT = st.text(st.sampled_from("ab <>/{}\n€é👍t"), max_size=12)


@settings(deadline=None)
@given(st.lists(st.one_of(TEXT, st.sampled_from(["<tool", "euro€", "two words", "</tool_call", "stop"])), max_size=8))
def test_the_pieces_spell_the_text(parts: list[str]) -> None:
    reply = reply_to("".join(parts))
    assert spelled(reply) == reply.message.text


@settings(deadline=None)
@given(TEXT.filter(str.strip), TEXT.filter(str.strip), st.booleans())
def test_neither_thoughts_nor_calls_are_told_of(thought: str, text: str, calls: bool) -> None:
    reply = reply_to(f"<think>{thought}</think>{text}" + ("\n" + CALL) * calls)
    assert bool(reply.message.calls) == calls
    assert spelled(reply) == reply.message.text
    assert not MARKS & {score.id for score in reply.scores}


def test_text_behind_a_call_is_not_looked_for_in_the_call() -> None:
    reply = reply_to(f"{CALL}name a")
    first = len(written(CALL))
    assert reply.message.text == "name a"
    assert [score.logprob for score in reply.scores] == [-float(first + at) for at in range(6)]


@settings(deadline=None)
@given(TEXT, TEXT)
def test_what_a_stop_string_cuts_off_is_not_told_of(text: str, behind: str) -> None:
    reply = reply_to(f"{text}STOP{behind}", ("STOP", "OP!"))
    assert (reply.reason, spelled(reply)) == ("stop", reply.message.text)


def test_a_token_that_is_cut_in_the_middle_is_told_of_whole() -> None:
    reply = reply_to("a two words b", (" words",))
    assert reply.message.text == "a two"
    assert spelled(reply) == "a two words"


def test_scores_come_with_the_text_that_they_have_become() -> None:
    deltas = [event for event in events_of("a<too") if isinstance(event, TextDelta)]
    assert [(delta.text, len(delta.scores)) for delta in deltas] == [("a", 1), ("<too", 4)]


def test_what_a_token_could_have_been_is_told_in_bytes() -> None:
    (first, *_) = reply_to("€", dialect=None).scores
    assert (first.id, first.piece, first.top) == (0xE2, b"\xe2", ((0xE2, b"\xe2", -0.0), (32, b" ", -9.0)))


def test_unfinished_characters_are_told_of_with_the_sign_that_stands_for_them() -> None:
    answer = Answer(PlainTextParser(), VOCABULARY, model="m")
    reply = fold(taken(answer, Admitted(0, 1), *scored([0x61, 0xE2, 0x82]), Done("length")))
    assert reply.message.text == "a\ufffd"
    assert [score.id for score in reply.scores] == [0x61, 0xE2, 0x82]


def test_markup_within_what_is_shown_at_once_is_passed_over() -> None:
    scores = Scores(VOCABULARY)
    for step in scored(written("a<x>b")):
        assert isinstance(step, Scored)
        scores.write(step, chr(step.token), is_open=False)
    assert [score.piece for score in scores.show("ab")] == [b"a", b"b"]


@pytest.mark.parametrize("has_scores", [False, True])
def test_the_prompt_is_said_again_before_the_first_word(has_scores: bool) -> None:
    """With BOS and a suffix around it, of which nobody is told."""
    answer = Answer(PlainTextParser(), VOCABULARY, model="m", echo=Echo("Once ", 1, 6))
    said: list[Step] = scored(written("upon")) if has_scores else list(written("upon"))
    read = [PromptScores(tuple(Scored(token, -1.0) for token in [256, *b"Once ", 257]))] if has_scores else []
    reply = fold(taken(answer, Admitted(0, 7), *read, *said, Done("length")))
    assert reply.message.text == "Once upon"
    assert spelled(reply) == ("Once upon" if has_scores else "")


def test_an_answer_of_no_tokens_says_the_prompt_and_nothing_else() -> None:
    answer = Answer(PlainTextParser(), VOCABULARY, model="m", echo=Echo("Once", 0, 4), is_silent=True)
    reply = fold(taken(answer, Admitted(0, 4), 65, Done("length")))
    assert (reply.message.text, reply.reason, reply.usage) == ("Once", "length", Usage(input=4))
