"""The next prompt of a tool loop goes on from the very tokens of this one and its answer: real templates, real outputs.

What comes back is what OpenAI's clients send back: the calls, without the thought before them.
"""

from __future__ import annotations

import re
from functools import cache
from operator import itemgetter
from typing import Any

import pytest
from tests.fake_engine import FakeVocabulary
from tests.unit.dialects.conformance import Json, cases, grid, templates
from tests.unit.dialects.test_conformance import tools_of
from tests.unit.dialects.test_forgery import special_texts
from tests.unit.dialects.test_render import message_of, model

from shepherd.backends.local.answer import Answer
from shepherd.backends.local.kept_prefix import KeptAnswers
from shepherd.backends.local.prompt import Encoder
from shepherd.core import Message, Reasoning, ReasoningLevel, Request, Text, ToolResult
from shepherd.dialects import render
from shepherd.dialects.render.replay import written_answer
from shepherd.engine.base import Admitted, Done, Step

DROPPED: dict[str, str] = {
    "Apriel-1.6-15b-Thinker-fixed.jinja": "leaves out thoughts, and the words that open them",
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja": "writes an instruction behind the newest message only",
    "NVIDIA-Nemotron-Nano-v2.jinja": "leaves out thoughts, and the tag that opens them",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja": "leaves out a text beside a call",
    "MiniMax-M1.jinja": "leaves out a text beside a call",
    "meta-llama-Llama-3.2-3B-Instruct.jinja": "leaves out a text beside a call",
    "deepseek-ai-DeepSeek-V3.1.jinja": "leaves out thoughts",
    "google-gemma-4-31B-it.jinja": "has a text beside a call behind its result",
    "google-gemma-4-31B-it-interleaved.jinja": "has a text beside a call behind it, in a turn of its own",
}
"""Templates that leave something out, or put it elsewhere: what they do to it is theirs to decide."""


@cache
def vocabulary(name: str) -> FakeVocabulary:
    return FakeVocabulary(control=sorted(special_texts(name, templates()[name]), key=len, reverse=True))


def generated(vocabulary: FakeVocabulary, raw: str) -> list[int]:
    """An output in tokens, its protocol in tokens of its own."""
    tokens: list[int] = []
    specials = "|".join(re.escape(special.text) for special in vocabulary.specials)
    for part in re.split(f"({specials})", raw):
        tokens += [vocabulary.ids[part]] if part in vocabulary.ids else vocabulary.tokenize(part)
    return tokens


def both_prompts(case: Json, *, with_thought: bool = False) -> tuple[list[int], list[int], bool] | None:
    """The tokens of a prompt and its answer, those of the next prompt, and whether the answer held a thought or a text
    beside its calls; None when it held no call."""
    name = case["template"]
    template, dialect = model(name)
    vocab = vocabulary(name)
    encoder = Encoder(vocab, template.source)
    level: ReasoningLevel = "medium" if case["options"]["enable_thinking"] else "off"
    request = Request("m", tuple(map(message_of, case["messages"])), tuple(tools_of(case)))
    how: dict[str, Any] = {"tools": request.tools, "reasoning": level}

    prompt = render(template, dialect, request.messages, **how)
    encoded = encoder.encode(prompt.pieces)
    answer = Answer(dialect.parser(tools=request.tools, opened=prompt.opened), vocab, model="m")
    written = generated(vocab, case["raw"])
    steps: tuple[Step, ...] = (Admitted(0, 1), *written, Done("end"))
    for step in steps:
        list(answer.take(step))
    message = answer.message
    assert message is not None
    if not message.calls:
        return None

    encoder.remember(encoded, answer.tokens)
    spelled = encoder.spell(answer.tokens)
    assert spelled is not None
    answers = KeptAnswers()
    if (told := written_answer(prompt, spelled, message, dialect, request.tools)) is not None:
        answers.keep(request, told)

    kept = tuple(part for part in message.parts if with_thought or not isinstance(part, Reasoning))
    results = (Message("tool", (ToolResult(call.id, (Text("Sunny."),), call.name),)) for call in message.calls)
    history = (*request.messages, Message("assistant", kept), *results)
    again = render(template, dialect, history, **how, answers=answers.find(history))
    is_bare = all(not isinstance(part, Reasoning | Text) for part in message.parts)
    return [*encoded.tokens, *written], list(encoder.encode(again.pieces).tokens), not is_bare


def calling(*files: str) -> list[Any]:
    chosen = [
        case
        for file in files
        for case in cases(file)
        if case["expected"].get("tool_calls")
        and not case["is_partial"]
        and case["options"]["continue_final_message"] == "none"
    ]
    return grid(chosen, 0.08, name=itemgetter("id"), family=itemgetter("family"))


@pytest.mark.parametrize("case", calling("chat_cases", "chat_cases_roundtrip", "chat_cases_robust"))
@pytest.mark.grid(0.05)
def test_the_next_prompt_of_a_tool_loop_extends_this_one_and_its_answer(case: Json) -> None:
    for with_thought in (False, True):
        both = both_prompts(case, with_thought=with_thought)
        if both is None:
            assert case["id"].startswith(("mut", "hard", "wild")), "only what llama.cpp mishandles may be no call"
            return
        held, asked, has_more = both
        if asked[: len(held)] != held:
            assert case["template"] in DROPPED
            assert has_more or "open" in DROPPED[case["template"]] or "newest" in DROPPED[case["template"]]
