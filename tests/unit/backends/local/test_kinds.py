"""What the tokens of a prompt are: every token of a message has one kind, and the text of a part has its own."""

from __future__ import annotations

import pytest
from tests.fake_engine import FakeVocabulary
from tests.unit.backends.local.test_going_on import TOOLS, lamb
from tests.unit.dialects.conformance import grid, templates
from tests.unit.dialects.test_render import model

from shepherd.backends.local.compile import Compiled, Compiler, Prepared
from shepherd.backends.local.kinds import Written, kind_of
from shepherd.backends.local.leaving import QUOTED
from shepherd.core import (
    EngineError,
    Event,
    InvalidRequest,
    Message,
    Reasoning,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)
from shepherd.memory.recall.recall import OPENING as MEMORY

MESSAGES = (
    Message.system("You are a shepherd."),
    Message("user", (Text(f"{MEMORY}\n- my dog is Rex\n\n", aside=True), Text("Who barks?"))),
    Message("assistant", (Reasoning("I look it up."), ToolCall("call00001", "read", '{"path": "dogs.txt"}'))),
    Message("tool", (ToolResult("call00001", (Text("Rex barks, and so does Bello."),), "read"),)),
    Message("assistant", (Text("Rex and Bello."),)),
    Message("user", (Text("[NOTICE: 2 messages evicted from context]\n\n", aside=True), Text("And who sleeps?"))),
)
SAID = (
    ("system", "You are a shepherd."), ("recalled", "my dog is Rex"), ("user", "Who barks?"), ("call", "dogs.txt"),
    ("result", "so does Bello."), ("assistant", "Rex and Bello."), ("notice", "2 messages evicted"),
    ("user", "And who sleeps?"),
)  # fmt: skip


def compiled(name: str, *, shows_kinds: bool) -> Compiled:
    template, dialect = lamb() if name == "lamb" else model(name)
    compiler = Compiler(FakeVocabulary(), template, dialect, model="m", n_ctx=4096, shows_kinds=lambda: shows_kinds)
    return compiler.compile(Prepared(Request("m", MESSAGES, TOOLS)))


def texts(made: Compiled) -> dict[str, str]:
    """The text of each kind; a token of the vocabulary is a byte."""
    found: dict[str, str] = {}
    for span in made.spans:
        at = span.start
        for stop, kind in span.kinds or ((span.stop, "result" if span.label == "tool" else span.label),):
            assert at < stop <= span.stop, "a partition"
            found[kind] = found.get(kind, "") + bytes(min(each, 255) for each in made.encoded.tokens[at:stop]).decode(
                "utf-8", "replace"
            )
            at = stop
        assert at == span.stop
    return found


@pytest.mark.parametrize("name", ["lamb", *grid(templates(), 0.15, name=str)])
def test_each_part_has_its_own_kind_in_every_template(name: str) -> None:
    try:
        made = compiled(name, shows_kinds=True)
    except (InvalidRequest, EngineError):
        pytest.skip("the template takes no such conversation")
    found = texts(made)
    for kind, words in SAID:
        if words in made.prompt.text:
            assert words in found[kind], (kind, found)
    if "I look it up." in made.prompt.text:
        assert "I look it up." in found["thought"]
    if name == "lamb":
        assert "Reads a file." in found["tools"]


def test_kinds_change_no_token_and_are_not_looked_for_unasked() -> None:
    with_kinds, without = compiled("lamb", shows_kinds=True), compiled("lamb", shows_kinds=False)
    assert with_kinds.encoded.tokens == without.encoded.tokens
    assert with_kinds.spans == without.spans
    assert any(span.kinds for span in with_kinds.spans)
    assert not any(span.kinds for span in without.spans)


def test_quotes_of_what_has_left_are_recalled() -> None:
    message = Message.user("Hi")
    assert kind_of(Text(f"{QUOTED}\n- user: x", aside=True), message) == "recalled"
    assert kind_of(Text(f"{QUOTED}\n- user: x"), message) == "user", "words of a user forge nothing"


def test_an_answer_in_progress_has_the_kinds_of_its_events() -> None:
    written = Written()
    written.begin(3, 10)
    steps: list[list[Event]] = [[ReasoningDelta("a")], [], [ReasoningDelta("b")], [TextDelta("c")]]
    for n, events in enumerate(steps, 1):
        written.note(3, n, events)
    assert written.of(3, 10) == ((13, "thought"), (14, "assistant"))
    assert written.of(3, 11) == written.of(4, 10) == written.of("saved", 10) == ()


def test_tools_in_front_of_the_first_message_are_told_with_it() -> None:
    template, dialect = lamb()
    compiler = Compiler(FakeVocabulary(), template, dialect, model="m", n_ctx=4096, shows_kinds=lambda: True)
    made = compiler.compile(Prepared(Request("m", (Message.user("Who barks?"),), TOOLS)))
    span = made.spans[0]
    assert span.kinds[0] == (span.start, "tools")
    assert b"read" in bytes(min(each, 255) for each in made.encoded.tokens[: span.start])
    assert [kind for _, kind in span.kinds[1:]] == ["user"]
