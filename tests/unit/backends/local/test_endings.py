"""Answers end where the model ends its turn, in every family, even where nothing of that is a token of its own."""

from __future__ import annotations

import pytest
from tests.fake_engine import FakeVocabulary
from tests.unit.dialects.conformance import each_template
from tests.unit.dialects.test_render import model

from shepherd.backends.local.answer import Answer
from shepherd.core import Event, Message, fold
from shepherd.dialects import render
from shepherd.dialects.render.prompt import end_of_answer
from shepherd.engine.base import Admitted, Done, Step

WORDS_ONLY = {
    "llama-cpp-rwkv-world.jinja": "its turns begin with words, and end with a blank line",
}


@each_template(0.15)
@pytest.mark.parametrize("ending", ["end", "header"])
def test_a_turn_that_the_model_makes_up_is_never_shown(name: str, ending: str) -> None:
    """Spelt in ordinary tokens, as vocabularies do that lack the tags (TPL-15, TPL-16)."""
    template, dialect = model(name)
    prompt = render(template, dialect, [Message.user("Hello")], reasoning="off" if dialect.thinks else None)
    end = end_of_answer(template, dialect)
    if name in WORDS_ONLY or (ending == "end" and not end):
        return
    made_up = (template.frame.trailers.get("assistant", "") if ending == "end" else "") + template.frame.header
    stops = (*prompt.stops, *([end] if end else []))
    answer = Answer(dialect.parser(opened=prompt.opened), FakeVocabulary((), ()), model="m", role_stops=stops)
    if ending == "header" and not any(stop in made_up for stop in stops):
        assert template.frame.header.strip() in ("human:", "<user>"), "nothing but words, or a tag that texts hold"
        return
    steps: tuple[Step, ...] = (Admitted(0, 1), *f"Fine. {made_up}And you?".encode(), Done("length"))
    events: list[Event] = []
    for step in steps:
        events += answer.take(step)
        if answer.has_ended:
            break
    reply = fold(events)
    assert (reply.message.text.strip(), reply.reason) == ("Fine.", "end")
