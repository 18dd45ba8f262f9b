"""Whole prompts from real templates: what llama.cpp renders from the same, and what must hold for all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from tests.places import CONFORMANCE
from tests.unit.dialects.conformance import Json, cases, each_template, shared_cases, templates
from tests.unit.dialects.test_conformance import tools_of

from shepherd.core import (
    AnswerStart,
    BadCall,
    CallEnded,
    EngineError,
    Finished,
    InvalidRequest,
    Message,
    Reasoning,
    ReasoningDelta,
    ReasoningLevel,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    fold,
)
from shepherd.core.messages import Part
from shepherd.dialects import Prompt, TagDialect, Template, detect, parse, render


@cache
def model(name: str) -> tuple[Template, TagDialect]:
    source = templates()[name]
    return Template(source, clock=lambda: datetime(2026, 11, 21)), detect(source)


@cache
def described() -> Mapping[str, Json]:
    """What llama.cpp has read from each template."""
    found: dict[str, Json] = json.loads((CONFORMANCE / "templates.json").read_text(encoding="utf-8"))
    return found


def message_of(given: Json) -> Message:
    """A message of a case."""
    parts: list[Any] = []
    if given.get("reasoning_content"):
        parts.append(Reasoning(given["reasoning_content"]))
    content = given.get("content") or []
    parts += [Text(content)] if isinstance(content, str) else [Text(part["text"]) for part in content]
    for call in given.get("tool_calls") or ():
        function = call.get("function", call)
        parts.append(ToolCall(call.get("id") or "call_1", function["name"], function["arguments"]))
    return Message(given["role"], tuple(parts))


def prompt_of(name: str, case: Json) -> Prompt:
    template, dialect = model(name)
    level: ReasoningLevel = "medium" if case["options"]["enable_thinking"] else "off"
    return render(template, dialect, [*map(message_of, case["messages"])], tools=tools_of(case), reasoning=level)


# --- what llama.cpp renders -----------------------------------------------------------------------------------------

OWN_STYLE = "no history of this template shows a thought; the prefill goes on as the generation prompt opens one"
DIFFERENT = {
    "tencent-Hy3.jinja": "it thinks only with an effort, and llama.cpp passes none",
    "StepFun3.5-Flash.jinja": "the prefill is spelt as the template itself spells an answer, not as llama.cpp does",
    "Qwen-QwQ-32B.jinja": OWN_STYLE,
    "NVIDIA-Nemotron-Nano-v2.jinja": OWN_STYLE,
    "llama-cpp-deepseek-r1.jinja": OWN_STYLE,
    "unsloth-Apriel-1.5.jinja": "llama.cpp drops the thought of a prefill for this model, which does think",
    "LFM2-8B-A1B.jinja": "llama.cpp writes a thought for a model that knows none; here it is dropped, as in a history",
}
"""Templates for which a generation prompt is another one than llama.cpp's, and why that is right."""


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in shared_cases("render_cases")])
def test_a_prompt_is_what_llama_cpp_renders(case: Json) -> None:
    rendered = case["render"]
    mode = "think" if case["options"]["enable_thinking"] else "nothink"
    # The cases do not name their template; what was read from it does.
    possible = [
        name
        for name, read in described().items()
        if read["message_delimiters"] == rendered["message_delimiters"]
        and all(read[mode].get(key) == rendered[key] for key in ("format", "preserved_tokens", "thinking_end_tags"))
    ]
    prompts = {name: prompt_of(name, case).text for name in possible}
    if rendered["prompt"] not in prompts.values():
        assert prompts.keys() & DIFFERENT.keys()
        return
    assert rendered["prompt"].endswith(case["expected_generation_prompt"])


CASES = [case for name in ("chat_cases", "chat_cases_roundtrip") for case in cases(name)]


@each_template(0.1)
def test_generation_prompts_are_those_of_the_real_outputs(name: str) -> None:
    wrong = [
        case["id"]
        for case in CASES
        if case["template"] == name and not prompt_of(name, case).text.endswith(case["options"]["generation_prompt"])
    ]
    assert not wrong or (name in DIFFERENT and len(wrong) < 8)


@each_template(0.1)
def test_what_a_prompt_opens_goes_on_in_the_answer(name: str) -> None:  # SCN-21, SCN-22
    """A parser that knows what the prompt has opened reads the output as one that has read all of it."""
    _, dialect = model(name)
    for case in CASES:
        if case["template"] != name or case["options"]["continue_final_message"] != "none":
            continue
        prompt, tools = prompt_of(name, case), tools_of(case)
        if not prompt.text.endswith(case["options"]["generation_prompt"]):
            continue
        parser = dialect.parser(tools=tools, opened=prompt.opened)
        events = [Started("test"), *parser.feed(case["raw"]), *parser.close(), Finished("end")]
        whole = parse(case["raw"], dialect=dialect, tools=tools, prefill=case["options"]["generation_prompt"])
        assert parts_of(fold(events).message, prompt) == parts_of(whole, prompt), case["id"]


@each_template(0.15)
def test_a_begun_thought_goes_on_as_a_thought_and_a_begun_text_as_text(name: str) -> None:
    """Also where the template drops the thought, writes it without its tag, or writes a text into an open thought."""
    template, dialect = model(name)
    thought, text = Reasoning("Well, I"), Text("Hello, ")
    begun: list[tuple[tuple[Part, ...], AnswerStart | None]] = [((text,), None)]
    if dialect.thinks:
        begun += [((thought,), None), ((thought,), "text"), ((thought, text), None)]
    for parts, start in begun:
        messages = [Message.user("Hi."), Message("assistant", parts)]
        prompt = render(template, dialect, messages, reasoning="medium", start=start)
        assert prompt.text.endswith(prompt.opened)
        parser = dialect.parser(opened=prompt.opened)
        events = [Started("test"), *parser.feed("know"), *parser.close(), Finished("end")]
        is_thought = parts == (thought,) and start is None
        kind = Reasoning if is_thought else Text
        assert fold(events).message.parts == (kind("know"),), (parts, start, prompt.opened)
        whole = parse("know", dialect=dialect, prefill=prompt.opened)
        reasoning = (thought.text if thought in parts else "") + ("know" if is_thought else "")
        # Some models begin a thought with words of their own.
        assert whole.reasoning.strip().endswith(reasoning), (parts, start, prompt.opened)
        assert whole.text.strip() == ("" if is_thought else (text.text if text in parts else "") + "know")


@each_template(0.1)
@pytest.mark.parametrize(
    "parts",
    [(Reasoning("Hm"),), (Reasoning("Hm"), Text("Hm")), (Reasoning(" \n"), Text("Hm")), (Text("Hm"),)],
    ids=["thought", "both", "blank thought", "text"],
)
def test_an_answer_that_is_begun_without_a_question_is_refused_at_worst(name: str, parts: tuple[Part, ...]) -> None:
    template, dialect = model(name)
    starts: tuple[AnswerStart | None, ...] = (None, "text")
    for start in starts:
        try:
            prompt = render(template, dialect, [Message("assistant", parts)], start=start)
        except (InvalidRequest, EngineError):
            continue
        assert prompt.text.endswith(prompt.opened)


def parts_of(message: Message, prompt: Prompt) -> list[Part]:
    """The parts of a message without their ids, and without words of a thought that the prompt has begun itself."""
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolCall() | BadCall():
                parts.append(replace(part, id=""))
            case Reasoning(text=text):
                parts.append(Reasoning(text.removeprefix(prompt.opened)))
            case _:
                parts.append(part)
    return parts


SPECIAL = ToolSpec(
    "special_function",
    "I'm special",
    {"type": "object", "properties": {"arg1": {"type": "integer", "description": "The arg."}}, "required": ["arg1"]},
)


@each_template(0.1, shared=True)
@pytest.mark.parametrize("mode", ["think", "think+tools", "nothink", "nothink+tools"])
def test_every_template_asks_for_an_answer_as_llama_cpp_does(name: str, mode: str) -> None:
    template, dialect = model(name)
    read = described()[name][mode]
    if "error" in read:
        pytest.skip("llama.cpp cannot render this one")
    tools = [SPECIAL] if mode.endswith("tools") else []
    level: ReasoningLevel = "off" if mode.startswith("no") else "medium"
    prompt = render(template, dialect, [Message.user("Hey there!")], tools=tools, reasoning=level)
    wanted = read["generation_prompt"]
    if prompt.text.endswith(wanted) or name in DIFFERENT:
        return
    # No thinking: either the template has a word for it that llama.cpp does not say, or an empty thought stands there.
    assert level == "off"
    assert wanted == described()[name][mode.removeprefix("no")]["generation_prompt"], "llama.cpp has not switched it"
    assert template.caps.switch or prompt.text.partition(wanted)[1] or not wanted


@each_template(0.1)
@pytest.mark.parametrize("tools", [(), (SPECIAL,)], ids=["no tools", "tools"])
def test_with_thinking_off_the_answer_is_visible_from_its_first_character(
    name: str, tools: tuple[ToolSpec, ...]
) -> None:
    template, dialect = model(name)
    prompt = render(template, dialect, [Message.user("Hey there!")], tools=tools, reasoning="off")
    parser = dialect.parser(tools=tools, opened=prompt.opened)
    events = [*parser.feed("Hello."), *parser.close()]
    assert [event for event in events if isinstance(event, ReasoningDelta)] == []
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello."
    for opener, closer in dialect.thoughts:
        assert prompt.opened.count(closer) <= 1, f"{opener} was closed twice (T7)"


# --- what must hold for every template ------------------------------------------------------------------------------

ALPHA = ToolSpec(
    "toolalpha",
    "describealpha",
    {"type": "object", "properties": {"keyalpha": {"type": "string", "description": "paramalpha"}}},
)
BETA = ToolSpec("toolbeta", "describebeta", {"type": "object", "properties": {"keybeta": {"type": "object"}}})
BOTH = (ALPHA, BETA)
SHOWN = ("toolalpha", "describealpha", "keyalpha", "paramalpha", "toolbeta", "describebeta", "keybeta")


def call(number: int, tool: ToolSpec, key: str, value: object) -> ToolCall:
    return ToolCall(f"call_000{number}", tool.name, json.dumps({key: value}))


def result(number: int, tool: ToolSpec, text: str) -> ToolResult:
    return ToolResult(f"call_000{number}", (Text(text),), tool.name)


def assistant(*parts: Text | Reasoning | ToolCall) -> Message:
    return Message("assistant", parts)


def answered(*results: ToolResult) -> Message:
    return Message("tool", results)


FIRST, SECOND = call(1, ALPHA, "keyalpha", "wordarg"), call(2, BETA, "keybeta", {"key": 4242})
SYSTEM, ONE, TWO, THREE = (
    Message.system("wordsys"),
    Message.user("word1"),
    assistant(Text("word2")),
    Message.user("word3"),
)
TALKS: dict[str, tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = {
    "talk": ((ONE, TWO, THREE), ()),
    "system": ((SYSTEM, ONE, TWO, THREE), ()),
    "systems": ((SYSTEM, Message.system("wordmore"), ONE, TWO, Message.system("wordlater"), THREE), ()),
    "system alone": ((SYSTEM,), ()),
    "an answer first": ((TWO, THREE), ()),
    "neighbours": ((ONE, Message.user("wordagain"), TWO, assistant(Text("wordfour")), THREE), ()),
    "an empty answer": ((ONE, assistant(), Message.user("")), ()),
    "tools": ((SYSTEM, ONE, TWO, THREE), BOTH),
    "tools without a system message": ((ONE,), BOTH),
    "a call": ((SYSTEM, ONE, assistant(FIRST), answered(result(1, ALPHA, "wordresult"))), BOTH),
    "a call of old": (
        (SYSTEM, ONE, assistant(FIRST), answered(result(1, ALPHA, "wordresult")), assistant(Text("wordthen")), THREE),
        BOTH,
    ),
    "two calls": (
        (
            ONE,
            assistant(FIRST, SECOND),
            answered(result(1, ALPHA, "wordresult")),
            answered(result(2, BETA, "wordother")),
        ),
        BOTH,
    ),
    "two results in one message": (
        (
            ONE,
            assistant(FIRST, SECOND),
            answered(result(1, ALPHA, "wordresult"), result(2, BETA, "wordother")),
            TWO,
            THREE,
        ),
        BOTH,
    ),
    "a call after a call": (
        (
            ONE,
            assistant(FIRST),
            answered(result(1, ALPHA, "wordres")),
            assistant(SECOND),
            answered(result(2, BETA, "wordother")),
        ),
        BOTH,
    ),
    "a result and a word": (
        (ONE, assistant(FIRST), Message("user", (result(1, ALPHA, "wordresult"), Text("wordmore")))),
        BOTH,
    ),
    "calls, and no tools any more": ((ONE, assistant(FIRST), answered(result(1, ALPHA, "wordresult")), TWO, THREE), ()),
    "a text and a call": ((ONE, assistant(Text("wordtext"), FIRST), answered(result(1, ALPHA, "wordresult"))), BOTH),
    "a thought and a call": (
        (ONE, assistant(Reasoning("wordthought"), FIRST), answered(result(1, ALPHA, "wordres"))),
        BOTH,
    ),
}
NEMO = "mistralai-Mistral-Nemo-Instruct-2407.jinja"
ONLY_CALLS = frozenset({
    "Cohere2MoE.jinja", "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "MiniMax-M1.jinja",
    "Mistral-Small-3.2-24B-Instruct-2506.jinja", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja",
    "meta-llama-Llama-3.2-3B-Instruct.jinja", "meta-llama-Llama-3.3-70B-Instruct.jinja", NEMO, "muse-glimmer.jinja",
    "upstage-Solar-Open-100B.jinja",
})  # fmt: skip
"""These leave out a text beside a call."""
REORDERED: dict[str, frozenset[str]] = {
    NEMO: frozenset({"system", "systems", "tools", "a call of old"}),  # the system message goes with the last user's
    **dict.fromkeys(
        [  # each call with its own result
            "GigaChat3-10B-A1.8B.jinja", "GigaChat3.1-10B-A1.8B.jinja", "openai-gpt-oss-120b.jinja",
            "meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.2-3B-Instruct.jinja",
            "meta-llama-Llama-3.3-70B-Instruct.jinja",
        ],
        frozenset({"two calls", "two results in one message"}),
    ),
    "google-gemma-4-31B-it-interleaved.jinja": frozenset({"a text and a call"}),
    "google-gemma-4-31B-it.jinja": frozenset({"a text and a call"}),  # the text behind the result
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja": frozenset({"a text and a call"}),  # ... or behind the call
}  # fmt: skip


def words_of(messages: Sequence[Message]) -> list[str]:
    """What must be seen of a conversation, in order; arguments may lose their JSON, thoughts may be left out."""
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text):
                    found += re.findall(r"wor\w+", text)
                case ToolCall(arguments=arguments):
                    found += re.findall(r"wor\w+|4242", arguments)
                case ToolResult(parts=parts):
                    found += [inner.text for inner in parts if isinstance(inner, Text)]
    return found


@each_template(0.1)
def test_every_message_shows_once_and_in_order(name: str) -> None:
    template, dialect = model(name)
    for talk, (messages, tools) in TALKS.items():
        text = render(template, dialect, messages, tools=tools).text
        words = words_of(messages)
        if talk == "a text and a call" and name in ONLY_CALLS:
            assert "wordtext" not in text
            words.remove("wordtext")
        assert [word for word in words if text.count(word) != 1] == [], talk
        places = [text.find(word) for word in words]
        assert places == sorted(places) or talk in REORDERED.get(name, ()), talk


@each_template(0.1)
def test_tools_show_if_and_only_if_they_are_given(name: str) -> None:
    template, dialect = model(name)
    for talk, (messages, tools) in TALKS.items():
        text = render(template, dialect, messages, tools=tools).text
        if tools:
            assert [word for word in SHOWN if word not in text] == [], talk
        else:
            assert [word for word in SHOWN if word.startswith(("describe", "param")) and word in text] == [], talk


@each_template(0.1)
def test_nothing_undefined_is_printed_and_the_same_conversation_is_the_same_prompt(name: str) -> None:
    template, dialect = model(name)
    for talk, (messages, tools) in TALKS.items():
        prompt = render(template, dialect, messages, tools=tools)
        for word in ("None", "undefined", "Undefined", "<generator", "namespace("):
            assert word not in prompt.text or word in template.source, talk
        assert prompt == render(template, dialect, messages, tools=tools)


@each_template(0.1)
def test_each_message_has_one_place_and_the_places_are_in_order(name: str) -> None:
    template, dialect = model(name)
    for talk, (messages, tools) in TALKS.items():
        prompt = render(template, dialect, messages, tools=tools)
        edges = [at for segment in prompt.segments for at in (segment.start, segment.stop)]
        assert edges == sorted(edges), talk
        held = [index for segment in prompt.segments for index in (segment.message, *segment.others)]
        assert len(held) == len(set(held)), talk
        shown = {piece.origin for piece in prompt.pieces if piece.origin is not None and piece.origin >= 0}
        assert shown <= set(held), talk


@each_template(0.1)
def test_thoughts_before_a_call_show_where_the_template_has_a_place_for_them(name: str) -> None:
    template, dialect = model(name)
    messages, tools = TALKS["a thought and a call"]
    text = render(template, dialect, messages, tools=tools, reasoning="high").text
    named = ("message.reasoning", "message['reasoning", 'message["reasoning', "message.thinking", "'thinking'", "rc =")
    if not any(word in template.source for word in named) or name in {
        "Apriel-1.6-15b-Thinker-fixed.jinja",  # the last answer's alone
        "unsloth-mistral-Devstral-Small-2507.jinja",  # mentioned, never printed
    }:
        return
    assert text.count("wordthought") == 1


@each_template(0.1)
def test_tools_that_are_told_in_words_come_with_a_call_that_the_model_can_copy(name: str) -> None:
    template, dialect = model(name)
    if template.caps.shows_tools:
        return
    prompt = render(template, dialect, [ONE], tools=BOTH)
    _, _, example = prompt.text.partition("its result will be told to you:\n\n")
    parser = dialect.parser(tools=BOTH)
    events = [*parser.feed(example), *parser.close()]
    calls = [event.call for event in events if isinstance(event, CallEnded)]
    assert [call.name for call in calls if isinstance(call, ToolCall)] == ["toolalpha"]
