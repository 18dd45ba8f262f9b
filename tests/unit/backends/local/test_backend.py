"""The local back end on the fake runtime: from messages to events, with every answer known beforehand."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.fake_engine import BYTES, PLAIN, RECURRENT, FakeRuntime, FakeVocabulary, Faults
from tests.in_time import becomes_true
from tests.unit.backends.local.serving import CHATML, Make, events, reply, seen

from shepherd.backends.base import Backend
from shepherd.backends.local.backend import LocalOptions
from shepherd.backends.local.media import ImageLimits, MediaLimits
from shepherd.core import (
    AnswerStart,
    ContextFull,
    ContextTooSmall,
    EngineError,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    OnFull,
    Part,
    Progress,
    Reasoning,
    ReasoningLevel,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    ToolResult,
    ToolSpec,
    fold,
)
from shepherd.dialects import Template
from shepherd.engine.base import Memory


def ask(text: str = "Hello", *history: Message, **fields: Any) -> Request:
    return Request("fake", (*history, Message.user(text)), **fields)


def said_behind(header: str, text: str, then: int) -> Callable[[Sequence[int]], int]:
    """A model that says the text behind the last header, and this token for ever after."""

    def next_token(tokens: Sequence[int]) -> int:
        data = bytes(token if token < BYTES else 0 for token in tokens)
        n = len(data) - data.rindex(header.encode()) - len(header)
        return text.encode()[n] if n < len(text) else then

    return next_token


def held(runtime: FakeRuntime) -> str:
    """What the sequence that was computed last holds now, control tokens included."""
    vocabulary = FakeVocabulary(user_defined=TAGS)
    return b"".join(map(vocabulary.piece, runtime.tokens(runtime.batches[-1][-1].seq))).decode()


async def test_an_answer_follows_the_grammar_and_counts_its_tokens(make: Make) -> None:
    backend, _ = make("Hi there.")
    proof: Backend = backend
    got = await events(proof, ask())
    assert isinstance(got[0], Started)
    answer = fold(got)
    assert answer.message == Message("assistant", (Text("Hi there."),), "local:fake")
    assert answer.reason == "end"
    assert answer.usage.output == len("Hi there.") + 1
    assert answer.usage.prompt == len("user\nHello\nassistant\n") + 3  # three control tokens, one byte each otherwise


async def test_the_second_turn_computes_its_new_tokens_only(make: Make) -> None:
    backend, runtime = make("Hi.", "Fine.")
    first = await reply(backend, ask("Hello"))
    runtime.batches.clear()
    history = (Message.user("Hello"), first.message)
    second = await reply(backend, ask("How are you?", *history))
    new = len("\nuser\nHow are you?\nassistant\n") + 3  # the closing tag is cached, its newline is not
    assert second.usage.input == new
    assert second.usage.cache_read == first.usage.total
    assert sum(len(chunk.tokens) for batch in runtime.batches for chunk in batch) == new + len("Fine.") + 1


async def test_started_tells_the_exact_cached_count_before_the_prefill(make: Make) -> None:
    backend, _ = make("Hi.", "Fine.")
    first = await reply(backend, ask())
    got = await events(backend, ask("More", Message.user("Hello"), first.message))
    assert isinstance(got[0], Started)
    assert isinstance(got[-1], Finished)
    assert got[0].usage.cache_read == got[-1].usage.cache_read > 0


async def test_a_long_prompt_reports_its_progress(make: Make) -> None:
    backend, _ = make("Hi.")
    got = await events(backend, ask("x" * 100))
    done = [event.done for event in got if isinstance(event, Progress)]
    assert done == sorted(done)
    assert len(done) > 3


CALL = '<tool_call>\n{"name": "add", "arguments": {"a":12345678901234567890}}\n</tool_call>'
ADD = ToolSpec("add", "Adds.", {"type": "object"})


async def test_a_call_is_a_call_and_its_history_extends_the_cache(make: Make) -> None:
    backend, _ = make("Sure.\n" + CALL, "It is 3.")
    first = await reply(backend, ask("1+2?", tools=(ADD,)))
    assert first.reason == "tool_calls"
    assert first.message.text == "Sure."
    (call,) = first.message.calls
    assert (call.name, call.arguments) == ("add", '{"a":12345678901234567890}')
    result = Message("tool", (ToolResult(call.id, (Text("3"),), "add"),))
    history = (Message.user("1+2?"), first.message, result)
    second = await reply(backend, Request("fake", history, tools=(ADD,)))
    assert second.message.text == "It is 3."
    assert second.usage.cache_read == first.usage.total, "the call was rendered as the model wrote it (K7)"


@pytest.mark.parametrize("said", [CALL, "<tool_call>\nadd(1, 2)\n</tool_call>", '<tool_call>\n{"name": "add", "argu'])
async def test_a_call_is_text_where_the_request_has_brought_no_tools(make: Make, said: str) -> None:
    backend, _ = make(said, "It is 3.")
    first = await reply(backend, ask("1+2?", logprobs=0))
    assert first.message.parts == (Text(said),)
    assert first.reason == "end"
    assert b"".join(score.piece for score in first.scores) == said.encode()
    second = await reply(backend, ask("And?", Message.user("1+2?"), Message.assistant(said)))
    assert second.usage.cache_read == first.usage.total, "the text came back as the model wrote it (K7)"


async def test_a_stop_string_ends_an_answer_in_a_call_that_is_text(make: Make) -> None:
    backend, _ = make("<think>\nadd\n</think>\n\n" + CALL)
    answer = await reply(backend, ask(stop=('"add"',)))
    assert (answer.message.text, answer.reason) == ('<tool_call>\n{"name": ', "stop")


@pytest.mark.parametrize("repeatable", [True, False])
async def test_where_answers_are_repeatable_a_prompt_does_not_depend_on_earlier_requests(
    make: Make, repeatable: bool
) -> None:
    (backend, _), (unasked, _) = (
        make("Sure.\n" + CALL.replace(": ", ":"), "It is 3.", options=LocalOptions(repeatable=repeatable))
        for _ in range(2)
    )
    first = await reply(backend, ask("1+2?", tools=(ADD,)))
    calls = [replace(call, raw=None) for call in first.message.calls]
    result = Message("tool", (ToolResult(calls[0].id, (Text("3"),), "add"),))
    history = (Message.user("1+2?"), Message("assistant", (Text("Sure."), *calls)), result)
    prompts = [await each.compile(Request("fake", history, tools=(ADD,))) for each in (backend, unasked)]
    assert (prompts[0].encoded.tokens == prompts[1].encoded.tokens) == repeatable, "as the model has written it"


THOUGHT = "{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"
THINKING = CHATML.replace("+ m.content }}", "}}" + THOUGHT + "{{ m.content }}", 1)
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


@pytest.mark.parametrize("tags", [(), TAGS], ids=["text", "tokens"])
async def test_a_tool_loop_computes_results_only_however_the_model_spells_its_calls(
    make: Make, tags: tuple[str, ...]
) -> None:
    said = (
        '<tool_call>{"name":"add","arguments":{"a":1, "b":2}}</tool_call>',
        '<think>Once more.</think>Wait.\n\n<tool_call> {"arguments": {"b":3,"a":3}, "name": "add"}\n</tool_call>\n',
        "<think>\n\nTwo at once\n</think><tool_call>{'name': 'add', 'arguments': {'a': 1}}</tool_call>\n"
        '<tool_call>\n{"name":"add","parameters":{"a":12345678901234567890}}\n</tool_call>',
        "It is six.",
    )
    backend, runtime = make(*said, template=THINKING, user_defined=tags)
    history: list[Message] = [Message.user("1 + 2 + 3?")]
    cached = 0
    for n in range(len(said)):
        answer = await reply(backend, Request("fake", tuple(history), tools=(ADD,)))
        assert answer.usage.cache_read == cached, f"before answer {n}"
        cached = answer.usage.total
        # What OpenAI's clients send back: no thought, arguments as they spell them.
        calls = [
            replace(call, raw=None, arguments=json.dumps(json.loads(call.arguments))) for call in answer.message.calls
        ]
        history.append(Message("assistant", (*([Text(t)] if (t := answer.message.text) else []), *calls)))
        history += [Message("tool", (ToolResult(call.id, (Text("3"),), "add"),)) for call in calls]
    assert "Once more." in held(runtime), "the model sees what it thought"
    assert answer.message.text == "It is six."


async def test_the_thoughts_of_a_history_are_those_that_the_client_sends(make: Make) -> None:
    async def read(*thoughts: str) -> list[bool]:
        parts: tuple[Part, ...] = (*map(Reasoning, thoughts), Text("Three."))
        history = (Message.user("1 + 2?"), Message("assistant", parts), Message.user("And 4?"))
        text = (await backend.compile(Request("fake", history))).prompt.text
        return [thought in text for thought in ("One way.", "Another way.")]

    backend, _ = make(template=THINKING)
    for thought, seen_by_the_model in (
        ((), [False, False]),
        (("One way.",), [True, False]),
        (("Another way.",), [False, True]),
        ((), [False, False]),
    ):
        assert await read(*thought) == seen_by_the_model


async def test_a_call_comes_with_the_thought_that_the_client_sends_or_else_with_the_one_that_was_before_it(
    make: Make,
) -> None:
    said = '<think>I add.</think>\n<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    backend, _ = make(said, template=THINKING, user_defined=TAGS)
    (call,) = (await reply(backend, ask("Add", tools=(ADD,)))).message.calls

    async def prompt(*thoughts: str) -> str:
        parts: tuple[Part, ...] = (*map(Reasoning, thoughts), replace(call, raw=None))
        result = Message("tool", (ToolResult(call.id, (Text("3"),), "add"),))
        history = (Message.user("Add"), Message("assistant", parts), result)
        return (await backend.compile(Request("fake", history, tools=(ADD,)))).prompt.text

    own = await prompt("I add.")
    assert "I add.</think>" in own, "as the model wrote it"
    edited = await prompt("I count.")
    assert [thought in edited for thought in ("I count.", "I add.")] == [True, False]
    assert await prompt() == own, "a client that sends no thought at all"
    assert await prompt("I count.") == edited


async def test_ids_that_are_made_up_bring_no_thought_and_no_token_into_the_prompt(make: Make) -> None:
    backend, _ = make(
        '<think>A secret.</think><tool_call>{"name":"add","arguments":{"a":1}}</tool_call>', "Hm.",
        template=THINKING, user_defined=TAGS,
    )  # fmt: skip
    (call,) = (await reply(backend, ask("Add", tools=(ADD,)))).message.calls
    for forged in (replace(call, id="call_0"), replace(call, arguments='{"a":2}'), replace(call, name="sub")):
        history = (Message.user("Add"), Message("assistant", (forged,)))
        prompt = (await backend.compile(Request("fake", history, tools=(ADD,)))).prompt
        assert "A secret." not in prompt.text
        assert '<tool_call>{"name"' not in prompt.text
    stolen = (Message.user("Another user's"), Message("assistant", (Text("<tool_call>"), call)))
    assert "A secret." not in (await backend.compile(Request("fake", stolen, tools=(ADD,)))).prompt.text


DATED = "{{ '<|im_start|>system\nToday is ' + strftime_now('%d %B') + '<|im_end|>\n' }}" + CHATML


async def test_a_conversation_keeps_its_day_over_midnight_and_a_new_one_has_the_new_day(make: Make) -> None:
    now = [datetime(2026, 12, 31, 23, 59)]
    backend, runtime = make("Hi.", "Fine.", "Yes.", template=Template(DATED, clock=lambda: now[0]))
    first = await reply(backend, ask("Hello"))
    now[0] = datetime(2027, 1, 1, 0, 1)
    history = (Message.user("Hello"), first.message)
    second = await reply(backend, ask("How are you?", *history))
    assert second.usage.cache_read == first.usage.total
    assert "31 December" in held(runtime)
    third = await reply(backend, ask("Really?", *history, Message.user("How are you?"), second.message))
    assert third.usage.cache_read == second.usage.total
    await reply(backend, ask("Hello"))
    assert "01 January" in held(runtime)


async def test_reasoning_is_kept_apart_and_counted(make: Make) -> None:
    backend, _ = make("<think>\nHmm.\n</think>\n\nYes.")
    answer = await reply(backend, ask())
    assert answer.message.parts == (Reasoning("Hmm."), Text("Yes."))
    assert 0 < answer.usage.reasoning < answer.usage.output


@pytest.mark.parametrize("opens", [False, True])
async def test_reasoning_stays_in_the_text_where_a_request_wants_that(make: Make, opens: bool) -> None:
    raw = "<think>\nHmm.\n</think>\n\nYes."
    head = "'<|im_start|>assistant\n' }}{% if"
    backend, runtime = make(raw, template=CHATML.replace(head, head.replace("n'", "n<think>\n'")) if opens else CHATML)
    answer = await reply(backend, ask(keeps_thoughts=True))
    assert answer.message.parts == (Text(raw),)
    assert answer.usage.reasoning == 0
    runtime.batches.clear()
    second = await reply(backend, ask("Go on.", Message.user("Hello"), answer.message, keeps_thoughts=True))
    assert second.usage.cache_read == answer.usage.total, "the thought in the text is the one in the cache"


async def test_a_wrong_image_is_a_note_for_a_model_that_sees(make: Make) -> None:
    backend, runtime = make("Hm.", n_ctx=512, options=LocalOptions(media=MediaLimits(ImageLimits())))
    await reply(backend, Request("lamb", (Message("user", (Image("image/png", b"<html>"), Text("?"))),)))
    assert seen(runtime).count(b"[image: image/png, 6 bytes; it is an HTML page; not shown]") == 1


async def test_thinking_can_be_switched_off_for_a_whole_cache(make: Make) -> None:
    backend, runtime = make("Yes.", options=LocalOptions(thinking="off"))
    answer = await reply(backend, ask())
    assert seen(runtime).count(b"<think>") == 1
    assert answer.message.reasoning == ""


SWITCHED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\n<think>\n' }}{% if not enable_thinking %}{{ '</think>' }}{% endif %}"
)
GRANITE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if thinking %}{{ 'Think first. ' }}{% endif %}{{ '<|im_start|>assistant\n' }}{# <think> #}"
)


@pytest.mark.parametrize(
    ("template", "thinking", "level", "shown"),
    [
        (SWITCHED, None, None, True),
        (SWITCHED, "off", None, False),
        (SWITCHED, "off", "on", True),
        (SWITCHED, "on", "off", False),
        (GRANITE, None, None, False),
        (GRANITE, "on", None, True),
        (GRANITE, "on", "off", False),
        (GRANITE, None, "on", True),
    ],
)
async def test_a_cache_can_think_or_not_where_the_request_leaves_it_open(
    make: Make, template: str, thinking: ReasoningLevel | None, level: ReasoningLevel | None, shown: bool
) -> None:
    backend, runtime = make("Yes.", template=template, options=LocalOptions(thinking=thinking))
    await reply(backend, ask(reasoning=level))
    text = seen(runtime).decode()
    assert ("Think first." in text if template is GRANITE else "</think>" not in text) == shown, text


STOPS = [("One, two, three", (", t",), "One", ", t"), ("abcabd", ("abd",), "abc", "abd"), ("abc", ("x",), "abc", None)]


@pytest.mark.parametrize(("said", "stops", "shown", "found"), STOPS)
async def test_stop_strings_end_the_visible_text(
    make: Make, said: str, stops: tuple[str, ...], shown: str, found: str | None
) -> None:
    backend, _ = make(said)
    answer = await reply(backend, ask(stop=stops))
    assert (answer.message.text, answer.stop) == (shown, found)
    assert answer.reason == ("stop" if found else "end")


async def test_stop_strings_do_not_look_into_calls_and_reasoning(make: Make) -> None:
    backend, _ = make("<think>\nadd\n</think>\n\n" + CALL)
    answer = await reply(backend, ask(tools=(ADD,), stop=("add",)))
    assert answer.reason == "tool_calls"


async def test_a_fake_user_turn_ends_the_answer(make: Make) -> None:
    backend, _ = make("Fine.<|im_start|>user\nAnd you?")
    answer = await reply(backend, ask())
    assert answer.message.text == "Fine."


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["attention", "recurrent"])
@pytest.mark.parametrize("stop", ["two", ", t", "e, two, three, f"])
async def test_what_was_written_beyond_a_stop_string_is_not_in_the_way_of_the_next_turn(
    make: Make, stop: str, memory: Memory
) -> None:
    backend, runtime = make("One, two, three, four, five, six, seven.", "Fine.", memory=memory)
    first = await reply(backend, ask("Count", stop=(stop,)))
    assert (first.reason, first.stop) == ("stop", stop)
    computed = runtime.tokens(runtime.batches[-1][-1].seq)
    asked = ask("More", Message.user("Count"), first.message)
    prompt = (await backend.compile(asked)).encoded.tokens
    second = await reply(backend, asked)
    n_shared = next(n for n, (one, other) in enumerate(zip(prompt, computed, strict=False)) if one != other)
    if memory is PLAIN:
        assert second.usage.cache_read == n_shared
    assert second.usage.cache_read <= n_shared, "a state that has read more cannot unread it"
    assert second.usage.prompt == len(prompt)
    assert second.message.text == "Fine."
    assert stop not in held(runtime), "nothing of it is left"


@pytest.mark.parametrize("is_token", [True, False])
async def test_the_tag_that_the_template_has_behind_an_answer_ends_it_if_the_file_does_not_say_so(
    make: Make, is_token: bool
) -> None:
    source = CHATML if is_token else CHATML.replace("<|im_end|>", "</turn>").replace("<|im_start|>", "<turn>")
    text = "Fine." if is_token else "Fine.</turn> And more."
    backend, runtime = make(text, template=source, end_tokens=frozenset())
    runtime.next_token = said_behind("assistant\n", text + ("" if is_token else "</turn> and so on" * 100), 257)
    answer = await reply(backend, ask(max_tokens=500))
    assert (answer.message.text, answer.reason) == ("Fine.", "end")
    again = await reply(backend, ask("More", Message.user("Hello"), answer.message, max_tokens=500))
    assert again.usage.cache_read >= answer.usage.total - 1


async def test_the_token_limit_is_a_length_stop(make: Make) -> None:
    backend, _ = make("Hello there")
    answer = await reply(backend, ask(max_tokens=5))
    assert (answer.message.text, answer.reason, answer.usage.output) == ("Hello", "length", 5)


async def test_a_cut_off_call_is_neither_text_nor_a_call(make: Make) -> None:
    backend, _ = make('<tool_call>\n{"name": "add", "arguments": {"a": 1')
    answer = await reply(backend, ask(tools=(ADD,), max_tokens=45))
    assert answer.reason == "length"
    assert answer.message.text == ""
    assert answer.message.calls == ()


async def test_a_character_cut_by_the_limit_is_replaced_and_not_lost_from_the_cache(make: Make) -> None:
    backend, runtime = make("😀")
    answer = await reply(backend, ask(max_tokens=2))
    assert answer.message.text == "\ufffd"
    assert answer.usage.output == 2
    assert seen(runtime).endswith("😀".encode()[:1])


async def test_a_prompt_that_does_not_fit_names_both_counts(make: Make) -> None:
    backend, _ = make("Hi.", n_ctx=64)
    with pytest.raises(ContextFull) as caught:
        await reply(backend, ask("x" * 100))
    assert (caught.value.limit, caught.value.needed > 100) == (64, True)
    assert (await reply(backend, ask())).message.text == "Hi.", "and the next request works"


@pytest.mark.parametrize(
    ("system", "tools", "question", "what"),
    [
        (300, 0, "Hi?", "the system prompt alone has 3"),
        (0, 400, "Hi?", "the tools alone have 5"),
        (100, 200, "Hi?", "the system prompt and the tools alone have 4"),
        (200, 0, "x" * 60, "the system prompt alone has 2"),
    ],
)
async def test_what_no_shorter_conversation_can_help_is_another_error(
    make: Make, system: int, tools: int, question: str, what: str
) -> None:
    backend, _ = make("Hi.", n_ctx=256)
    messages = [Message.system("s" * system)] if system else []
    messages += [Message.user("Before."), Message.assistant("Yes."), Message.user(question)]
    offered = (ToolSpec("f", "t" * tools),) if tools else ()
    with pytest.raises(ContextTooSmall, match=f"^{what}") as caught:
        await reply(backend, Request("m", tuple(messages), offered))
    assert "has 256, of which 16 are kept for an answer. All of this stands in every request" in str(caught.value)
    assert ("and the newest question" in str(caught.value)) == (len(question) > 3), "where they fit without it"


async def test_the_size_that_a_refusal_names_has_room_for_the_answer_too(make: Make) -> None:
    backend, _ = make("Hi.", n_ctx=2048, options=LocalOptions(reserve=1024))
    with pytest.raises(ContextTooSmall, match=r"start with --context-size 4k$"):
        await reply(backend, Request("m", (Message.system("s" * 1200), Message.user("Hi?"))))


async def test_a_question_that_is_too_long_by_itself_is_named(make: Make) -> None:
    backend, _ = make("Hi.", n_ctx=256, options=LocalOptions(n_window=1000, on_full="evict"))
    messages = (Message.system("Be brief."), Message.user("Before. " * 12), Message.assistant("Yes."))
    with pytest.raises(ContextFull, match=r"tokens > 256 maximum; .* has 1000, 256 of them .* alone has 299: s"):
        await reply(backend, Request("m", (*messages, Message.user("x" * 300))))
    small, _ = make("Hi.", n_ctx=256, options=LocalOptions(trained=256))
    with pytest.raises(ContextFull, match=r"shorten it, or take a model .* \(this one was trained for 256 tokens\)"):
        await reply(small, Request("m", (*messages, Message.user("x" * 300))))
    with pytest.raises(ContextFull, match="shorten the conversation"):
        await reply(backend, Request("m", (*messages, Message.user("x" * 150)), on_full="error", recall=False))


async def test_a_huge_limit_is_cut_to_the_room_that_is_left(make: Make) -> None:
    backend, _ = make("x" * 500, n_ctx=128)
    answer = await reply(backend, ask(max_tokens=64_000))
    assert answer.reason == "length"
    assert answer.usage.total == 128


async def test_a_strict_limit_is_refused_instead(make: Make) -> None:
    backend, _ = make("Hi.", n_ctx=128, options=LocalOptions(strict_max_tokens=True))
    with pytest.raises(ContextFull):
        await reply(backend, ask(max_tokens=64_000))


@pytest.mark.parametrize(("reserve", "fits"), [(40, True), (41, False)])
async def test_the_reserve_is_room_for_the_answer(make: Make, reserve: int, fits: bool) -> None:
    backend, _ = make("Hi.", n_ctx=64, options=LocalOptions(reserve=reserve))
    request = ask("")
    room = 64 - await backend.count(request)
    request = ask("x" * (room - 40))
    if fits:
        await reply(backend, request)
    else:
        with pytest.raises(ContextFull):
            await reply(backend, request)


async def test_sampling_of_the_request_wins_over_the_models_and_lasts_for_it_only(make: Make) -> None:
    backend, runtime = make("Hi.", options=LocalOptions(sampling=Sampling(temperature=0.5, top_k=7)))
    await reply(backend, ask(sampling=Sampling(temperature=0.0)))
    await reply(backend, ask())
    assert runtime.samplings == [Sampling(temperature=0.0, top_k=7), Sampling(temperature=0.5, top_k=7)]


async def test_a_choice_of_none_keeps_the_prompt_and_its_tools(make: Make) -> None:
    backend, runtime = make("Hi.", "Hi.", "Hi.")
    await reply(backend, ask(tools=(ADD,)))
    shown = seen(runtime)
    again = await reply(backend, ask(tools=(ADD,), tool_choice="none"))
    assert b"Adds." in shown
    assert again.usage.input == 1, "the last token is always computed, and nothing else is"
    hidden, runtime = make("Hi.")
    await reply(hidden, ask(tools=(ADD,), tool_choice="none", shows_tools=False))
    assert b"Adds." not in seen(runtime)


async def test_a_call_that_may_not_come_is_text_and_nothing_of_it_is_lost(make: Make) -> None:
    written = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    for choice in ("auto", "none"):
        backend, _ = make(written)
        answer = await reply(backend, ask(tools=(ADD,), tool_choice=choice))
        assert [bool(answer.message.calls), answer.message.text] == (
            [True, ""] if choice == "auto" else [False, written]
        )


async def test_what_is_not_available_is_refused_by_name(make: Make) -> None:
    backend, _ = make("Hi.")
    with pytest.raises(InvalidRequest) as caught:
        await reply(backend, ask(sampling=Sampling(logit_bias=((10**6, 1.0),))))
    assert caught.value.field == "logit_bias"


@pytest.mark.parametrize("fields", [{"tool_choice": "required", "tools": (ADD,)}, {"schema": {"type": "object"}}])
async def test_a_cache_that_cannot_constrain_says_so(make: Make, fields: dict[str, Any]) -> None:
    backend, _ = make("Hi.")
    with pytest.raises(InvalidRequest, match="constrain"):
        await reply(backend, ask(**fields))


async def test_template_variables_of_the_client_reach_the_template(make: Make) -> None:
    backend, runtime = make("Yes.")
    await reply(backend, ask(extra={"chat_template_kwargs": {"enable_thinking": False}}))
    assert b"<think>" in seen(runtime)


async def test_an_answer_continues_the_last_message_or_begins_a_turn_of_its_own(make: Make) -> None:
    history = (Message.user("Hello"), Message.assistant("It is"))
    head = "<|im_start|>assistant\n"
    starts: dict[AnswerStart | None, str] = {
        None: f"{head}It is",
        "text": f"{head}It is",
        "turn": f"{head}It is<|im_end|>\n{head}",
        "nothing": f"{head}It is<|im_end|>\n",
    }
    backend, _ = make()
    for start, end in starts.items():
        text = (await backend.compile(Request("fake", history, start=start))).prompt.text
        assert text.endswith("Hello<|im_end|>\n" + end)


SYSTEM = Message.system("Be kind to all the sheep, and to the shepherd as well.")
TALK = (Message.user("One sheep?"), Message.assistant("Baa."), Message.user("Two?"), Message.assistant("Baa."))
ANOTHER = Message.user("A goat?")


@pytest.mark.parametrize("memory", [PLAIN, RECURRENT], ids=["plain", "recurrent"])
@pytest.mark.parametrize(
    ("before", "messages", "session", "at"),
    [
        ((), (ANOTHER, *TALK[1:], ANOTHER), None, 0),
        ((SYSTEM,), (SYSTEM, ANOTHER, *TALK[1:], ANOTHER), None, 1),
        ((SYSTEM,), (SYSTEM, *TALK[:2], ANOTHER), None, 3),
        ((SYSTEM,), (SYSTEM, ANOTHER), "s", 1),
        ((SYSTEM,), (SYSTEM, ANOTHER), None, None),
        ((), (ANOTHER,), None, None),
        ((SYSTEM,), (SYSTEM, *TALK, ANOTHER), None, None),
        ((SYSTEM,), (SYSTEM, *TALK, ANOTHER), "s", None),
    ],
)
async def test_an_edited_history_is_logged_with_the_message_where_it_differs(
    *,
    make: Make,
    caplog: pytest.LogCaptureFixture,
    memory: Memory,
    before: tuple[Message, ...],
    messages: tuple[Message, ...],
    session: str | None,
    at: int | None,
) -> None:
    backend, _ = make("Baa.", "Baa.", "Meh.", memory=memory)
    for end in (1, 3):
        await reply(backend, Request("fake", (*before, *TALK[:end]), session=session))
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="shepherd.engine"):
        await reply(backend, Request("fake", messages, session=session))
    said = [record.message for record in caplog.records if "diverged" in record.message]
    assert f"Conversation diverged at message {at}" in said if at is not None else not said
    if memory is RECURRENT and not before and at is not None:
        assert "Conversation diverged - clearing cache" in said


async def test_the_servers_own_template_variables_are_not_the_clients_to_set(make: Make) -> None:
    backend, _ = make("Yes.")
    with pytest.raises(InvalidRequest) as caught:
        await reply(backend, ask(extra={"chat_template_kwargs": {"messages": []}}))
    assert caught.value.field == "chat_template_kwargs.messages"


async def test_tools_that_the_template_cannot_show_are_told_of_once(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = make("Hi.", template=CHATML.replace("tools", "nothing"))
    await reply(backend, ask(tools=(ADD,)))
    await reply(backend, ask(tools=(ADD,)))
    assert caplog.text.count("knows no tools") == 1


async def test_leaving_the_stream_stops_the_engine_and_keeps_the_prefix(make: Make) -> None:
    gate = threading.Semaphore(10)
    backend, runtime = make("x" * 1000, faults=Faults(gate=gate))
    async with aclosing(backend.stream(ask())) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):  # not before: of a slow machine there may be other events
                break
    computed = len(seen(runtime))
    gate.release(1000)
    again = await reply(backend, ask(max_tokens=1))
    assert computed < 40
    assert again.usage.cache_read == again.usage.prompt - 1


async def test_other_tasks_have_a_turn_between_the_last_text_and_the_end(make: Make) -> None:
    backend, _ = make("Hi there.")
    sent: list[Event] = []
    async with aclosing(backend.stream(ask())) as stream:
        assert isinstance(await anext(stream), Started)
        assert becomes_true(lambda: (backend.engine.stats().jobs, backend.engine.stats().live) == (1, 0))
        async for event in stream:  # all are there
            if isinstance(event, Finished):
                break
            asyncio.get_running_loop().call_soon(sent.append, event)
    assert fold([Started("fake"), *sent, event]).message.text == "Hi there."


async def test_an_engine_failure_reaches_the_reader(make: Make) -> None:
    backend, _ = make("Hi there", faults=Faults(decode_error_at=30))
    with pytest.raises(EngineError):
        await reply(backend, ask("Hello you"))


async def test_answers_of_parallel_requests_do_not_mix(make: Make) -> None:
    def echo(tokens: Sequence[int]) -> int:
        data = bytes(t if t < 256 else 0 for t in tokens)
        asked = data.split(b"user\n")[1].split(b"\0")[0]
        said = data.split(b"assistant\n")[1]
        return asked[len(said)] if len(said) < len(asked) else 257

    backend, runtime = make("")
    runtime.next_token = echo
    words = [f"nonce-{n}" for n in range(8)]
    answers = await asyncio.gather(*(reply(backend, ask(word)) for word in words))
    assert [answer.message.text for answer in answers] == words


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.tuples(st.text(max_size=5), st.text(alphabet="ab <>|é\n{", min_size=1, max_size=12)), max_size=4)
)
async def test_the_cache_always_holds_a_prefix_of_the_next_prompt(make: Make, turns: list[tuple[str, str]]) -> None:
    backend, _ = make(*(said for _, said in turns))
    history: list[Message] = []
    for asked, _ in turns:
        answer = await reply(backend, ask(asked, *history))
        if history and history[-1].text == history[-1].text.strip():
            assert answer.usage.input <= len(f"\nuser\n{asked}\nassistant\n".encode()) + 3
        history += [Message.user(asked), answer.message]


# -- when the context is full ------------------------------------------------------------------------------------------

EVICTS = LocalOptions(on_full="evict", reserve=20)
KIND = Message.system("Be kind.")


async def test_a_conversation_goes_on_when_the_context_is_full(make: Make) -> None:
    backend, runtime = make("Fine.", n_ctx=300, options=EVICTS)
    history = [KIND]
    evicted = 0
    for n in range(30):
        history.append(Message.user(f"Question {n}?"))
        answer = await reply(backend, Request("fake", tuple(history)))
        history.append(answer.message)
        evicted += answer.evicted
        new = len(f"\nuser\nQuestion {n}?\nassistant\n") + 3
        assert answer.usage.input == (new if n else new + len("system\nBe kind.") + 2)
        assert answer.usage.total <= 300
        text = held(runtime)
        first = int(text.partition("Question ")[2].partition("?")[0])
        turns = (f"user\nQuestion {k}?<|im_end|>\n<|im_start|>assistant\nFine." for k in range(first, n + 1))
        wanted = "<|im_end|>\n<|im_start|>".join(["<|im_start|>system\nBe kind.", *turns])
        assert text == wanted + "<|im_end|>", "whole turns have left, the oldest ones"
        assert evicted == 2 * first
    assert evicted > 30


async def test_a_long_answer_makes_its_own_room(make: Make) -> None:
    backend, runtime = make("x" * 150, n_ctx=300, options=EVICTS)
    history = [KIND]
    for n in range(6):
        history += [Message.user(f"Old question {n}"), Message.assistant("Old answer")]
    got = await events(backend, Request("fake", (*history, Message.user("Now?")), max_tokens=200))
    answer = fold(got)
    assert answer.message.text == "x" * 150
    kinds = [type(event) for event in got]
    assert Evicted in kinds[kinds.index(TextDelta) :], "turns left while it was written"
    assert held(runtime).startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n")
    assert held(runtime).endswith("Now?<|im_end|>\n<|im_start|>assistant\n" + "x" * 150 + "<|im_end|>")


async def test_an_agent_goes_on_in_one_turn_and_no_call_is_without_its_result(make: Make) -> None:
    backend, runtime = make(CALL, n_ctx=900, options=EVICTS)
    history = [KIND, Message.user("Add it all up.")]
    evicted = 0
    for n in range(20):
        answer = await reply(backend, Request("fake", tuple(history), tools=(ADD,)))
        assert answer.reason == "tool_calls"
        evicted += answer.evicted
        text = held(runtime)
        assert text.count("Add it all up.") == text.count("Be kind.") == text.count("Adds.") == 1
        assert text.count("<tool_call>") == text.count("<|im_start|>tool") + 1
        assert n == 0 or f"Result {n - 1}." in text
        result = ToolResult(answer.message.calls[0].id, (Text(f"Result {n}."),), "add")
        history += [answer.message, Message("tool", (result,))]
    assert evicted > 10


async def test_what_must_stay_and_does_not_fit_is_refused(make: Make) -> None:
    backend, _ = make("Fine.", n_ctx=100, options=EVICTS)
    history = (Message.system("x" * 40), Message.user("Old"), Message.assistant("Older"))
    kept = len("system\n\nuser\n\nassistant\n") + 6 + 40 - 1  # tokens; the question's own come on top
    fits = Message.user("?" * (100 - kept - 20))
    assert (await reply(backend, Request("fake", (*history, fits)))).evicted == 2
    with pytest.raises(
        ContextTooSmall, match=r"has 70 tokens and the newest question 11; .* has 100, of which 20 are kept"
    ):
        await reply(backend, Request("fake", (*history, Message.user(fits.text + "?"))))


@pytest.mark.parametrize(
    ("said", "default", "goes_on"),
    [("evict", "error", True), (None, "evict", True), ("error", "evict", False), (None, "error", False)],
)
async def test_the_request_says_what_happens_and_the_cache_where_it_does_not(
    make: Make, said: OnFull | None, default: OnFull, goes_on: bool
) -> None:
    backend, _ = make("Fine.", n_ctx=100, options=LocalOptions(on_full=default))
    request = ask("Now?", Message.user("x" * 90), Message.assistant("y"), on_full=said)
    if goes_on:
        assert (await reply(backend, request)).evicted == 2
    else:
        with pytest.raises(ContextFull):
            await reply(backend, request)


async def test_an_answer_that_evicts_is_bounded(make: Make) -> None:
    backend, runtime = make("x" * 1000, n_ctx=100, options=EVICTS)
    assert (await reply(backend, ask())).usage.output == 50
    assert (await reply(backend, ask(max_tokens=64_000))).usage.total == 99
    assert (await reply(backend, ask(max_tokens=3))).usage.output == 3
    assert len(runtime.samplings) == 3


async def test_the_longest_answer_of_the_configuration_is_for_requests_that_name_none(make: Make) -> None:
    backend, _ = make("x" * 1000, options=LocalOptions(max_tokens=5))
    lengths = [(await reply(backend, ask(max_tokens=asked))).usage.output for asked in (None, 3, 20)]
    assert lengths == [5, 3, 20]


# -- log lines ---------------------------------------------------------------------------------------------------------


async def test_the_log_says_what_is_asked_and_how_long_the_answer_may_be(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = make("Fine.", options=LocalOptions(reserve=200))
    with caplog.at_level(logging.DEBUG, "shepherd.backends"):
        await reply(backend, ask("Hello", KIND, max_tokens=150))
    system, user = len("system\nBe kind.\n") + 2, len("user\nHello\n") + 2
    assert [record.getMessage() for record in caplog.records] == [
        "LlamaCpp generate_from_session called with 2 messages",
        f"Generation limits: 150 max tokens (protected: system={system} + user={user} + buffer=150)",
    ]


async def test_a_change_of_the_system_prompt_is_told_once_and_never_the_first_time(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = make("Fine.")
    other = Message.system("Be brief.")
    asked: list[tuple[Request, int]] = [
        (ask("One", KIND), 0),
        (ask("Two", KIND), 0),
        (ask("Three", KIND, Message.user("One"), Message.assistant("Fine.")), 0),
        (ask("One", other), 1),
        (ask("One", other), 0),
        (ask("One", KIND), 1),
        (ask("One", KIND, tools=(ADD,)), 1),
        (ask("Two", KIND, tools=(ADD,)), 0),
        (ask("One"), 1),
    ]
    for request, wanted in asked:
        caplog.clear()
        await reply(backend, request)
        told = [record for record in caplog.records if "are not those of the last request" in record.getMessage()]
        assert len(told) == wanted
        assert all(record.levelno == logging.WARNING and "'main'" in record.getMessage() for record in told)
        assert "Be " not in caplog.text
