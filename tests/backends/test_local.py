"""The local back end on the fake runtime: from messages to events, with every answer known beforehand."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shepherd.backends.base import Backend
from shepherd.backends.local import LocalBackend, LocalOptions
from shepherd.core import (
    ContextFull,
    EngineError,
    Event,
    Finished,
    InvalidRequest,
    Message,
    Progress,
    Reasoning,
    Reply,
    Request,
    Sampling,
    Started,
    Text,
    ToolResult,
    ToolSpec,
    fold,
)
from shepherd.dialects import Template, detect
from shepherd.engine.engine import Engine
from shepherd.engine.fake import FakeRuntime, FakeVocabulary, Faults, say

CHATML = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    '{% for c in m.tool_calls or [] %}{{ \'\n<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)

Make = Callable[..., tuple[LocalBackend, FakeRuntime]]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    engines: list[Engine] = []

    def make_one(
        *answers: str,
        n_ctx: int = 4096,
        options: LocalOptions | None = None,
        faults: Faults | None = None,
        template: str = CHATML,
    ) -> tuple[LocalBackend, FakeRuntime]:
        vocabulary = FakeVocabulary()
        runtime = FakeRuntime(
            say(vocabulary, *answers), frozenset({vocabulary.ids["<|im_end|>"]}), n_ctx=n_ctx, faults=faults or Faults()
        )
        engine = Engine(runtime, show=vocabulary.piece)
        engines.append(engine)
        backend = LocalBackend(
            engine, vocabulary, template=Template(template), dialect=detect(template), model="fake", options=options
        )
        return backend, runtime

    yield make_one
    for engine in engines:
        await asyncio.to_thread(engine.close)


def ask(text: str = "Hello", *history: Message, **fields: Any) -> Request:
    return Request("fake", (*history, Message.user(text)), **fields)


async def events(backend: Backend, request: Request) -> list[Event]:
    async with aclosing(backend.stream(request)) as stream:
        return [event async for event in stream]


async def reply(backend: Backend, request: Request) -> Reply:
    return fold(await events(backend, request))


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
    runtime.decoded.clear()
    history = (Message.user("Hello"), first.message)
    second = await reply(backend, ask("How are you?", *history))
    new = len("\nuser\nHow are you?\nassistant\n") + 3  # the closing tag is cached, its newline is not
    assert second.usage.input == new
    assert second.usage.cache_read == first.usage.total
    assert sum(n for _, n in runtime.decoded) == new + len("Fine.") + 1


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


async def test_reasoning_is_kept_apart_and_counted(make: Make) -> None:
    backend, _ = make("<think>\nHmm.\n</think>\n\nYes.")
    answer = await reply(backend, ask())
    assert answer.message.parts == (Reasoning("Hmm."), Text("Yes."))
    assert 0 < answer.usage.reasoning < answer.usage.output


async def test_thinking_can_be_switched_off_for_a_whole_cache(make: Make) -> None:
    backend, runtime = make("Yes.", options=LocalOptions(thinking=False))
    answer = await reply(backend, ask())
    assert bytes(t for t in runtime.tokens if t < 256).count(b"<think>") == 1
    assert answer.message.reasoning == ""


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
    assert bytes(t for t in runtime.tokens if t < 256).endswith("😀".encode()[:1])


async def test_a_prompt_that_does_not_fit_names_both_counts(make: Make) -> None:
    backend, _ = make("Hi.", n_ctx=64)
    with pytest.raises(ContextFull) as caught:
        await reply(backend, ask("x" * 100))
    assert (caught.value.limit, caught.value.needed > 100) == (64, True)
    assert (await reply(backend, ask())).message.text == "Hi.", "and the next request works"


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


async def test_tools_are_not_shown_when_the_choice_is_none(make: Make) -> None:
    backend, runtime = make("Hi.")
    await reply(backend, ask(tools=(ADD,), tool_choice="none"))
    assert b"Adds." not in bytes(t for t in runtime.tokens if t < 256)


REFUSED: dict[str, dict[str, Any]] = {
    "tool_choice": {"tool_choice": "required", "tools": (ADD,)},
    "response_format": {"schema": {"type": "object"}},
    "logit_bias": {"sampling": Sampling(logit_bias=((10**6, 1.0),))},
}


@pytest.mark.parametrize(("field", "fields"), REFUSED.items())
async def test_what_is_not_available_is_refused_by_name(make: Make, field: str, fields: dict[str, Any]) -> None:
    backend, _ = make("Hi.")
    with pytest.raises(InvalidRequest) as caught:
        await reply(backend, ask(**fields))
    assert caught.value.field == field


async def test_template_variables_of_the_client_reach_the_template(make: Make) -> None:
    backend, runtime = make("Yes.")
    await reply(backend, ask(extra={"chat_template_kwargs": {"enable_thinking": False}}))
    assert b"<think>" in bytes(t for t in runtime.tokens if t < 256)


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
            if not isinstance(event, Started):
                break
    held = len(runtime.tokens)
    gate.release(1000)
    again = await reply(backend, ask(max_tokens=1))
    assert held < 40
    assert again.usage.cache_read == again.usage.prompt - 1


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


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
