"""The tests of `tests/unit/test_scenarios.py` that start programs."""

import concurrent.futures
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from tests.cases import amount
from tests.in_time import becomes_true
from tests.unit.test_scenarios import CHAT, HELLO, post, shepherd

pytestmark = pytest.mark.model


@pytest.fixture
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_1_without_a_model_the_embedded_one_starts_and_says_so(tmp_path: Path) -> None:
    done = shepherd(stdin="Hello!\n", XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == 0
    assert "Model: lamb" in done.stdout
    assert "shepherd MODEL.gguf" in done.stdout
    assert "Traceback" not in done.stderr


def test_5_health_and_models(server: str) -> None:
    health = httpx2.get(f"{server}/health")
    assert health.status_code == 200
    told = health.json()
    assert (told["status"], told["backend_connected"], told["backend"]) == ("ok", True, "llamacpp")
    assert told["model"] == "lamb.gguf"
    models = httpx2.get(f"{server}/v1/models").json()
    assert models["object"] == "list"
    (model,) = models["data"]
    assert (model["object"], model["owned_by"], model["max_model_len"]) == ("model", "shepherd", 4096)
    assert httpx2.get(f"{server}/v1/models/{model['id']}").json() == model


@pytest.mark.parametrize("path", ["/v1/models/nope", "/v1/nothing"])
def test_5_what_does_not_exist_is_a_404_in_error_shape(server: str, path: str) -> None:
    answer = httpx2.get(server + path)
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_6_a_completion_has_the_shape_and_its_usage_sums(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="gpt-4", messages=HELLO)
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.model == "gpt-4", "any name is answered and echoed"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == "Hello! How can I help you?"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens + answer.usage.completion_tokens == answer.usage.total_tokens


TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather for a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def test_6_tools_are_the_clients_and_their_results_continue_the_conversation(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = client.chat.completions.create(model="lamb", messages=messages, tools=TOOLS, temperature=0)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21, "sky": "sunny"}'},
    ]
    again = client.chat.completions.create(model="lamb", messages=messages, tools=TOOLS, temperature=0)
    assert again.choices[0].message.content
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert answer.usage is not None
    assert again.usage.prompt_tokens_details.cached_tokens == answer.usage.total_tokens, "the call is in the cache"


def test_6_each_sampling_field_does_something_for_its_request_only(client: openai.OpenAI) -> None:
    def say(**fields: Any) -> str:
        extra = {name: fields.pop(name) for name in ("top_k", "min_p", "repetition_penalty") if name in fields}
        answer = client.chat.completions.create(
            model="lamb", messages=HELLO, seed=7, max_completion_tokens=24, extra_body=extra, **fields
        )
        return answer.choices[0].message.content or ""

    plain = say(temperature=0)
    wild: dict[str, Any] = {"temperature": 4, "top_k": 0, "top_p": 1, "min_p": 0}
    assert say(**wild) != plain
    assert say(**wild | {"top_k": 1}) == plain
    assert say(**wild | {"top_p": 0.0001}) == plain
    assert say(**wild | {"min_p": 1.0}) == plain
    assert say(temperature=0, repetition_penalty=5.0) != plain
    assert say(temperature=0, stop=["How"]) == "Hello! "
    assert say(temperature=0) == plain
    assert say(temperature=2, top_p=1) == say(temperature=2, top_p=1), "a seed repeats a draw"


def collect(stream: openai.Stream[ChatCompletionChunk]) -> list[ChatCompletionChunk]:
    with stream:
        return list(stream)


@pytest.mark.parametrize("usage", [True, False])
def test_7_a_stream_has_one_id_a_role_first_and_one_end(client: openai.OpenAI, usage: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = collect(
        client.chat.completions.create(model="lamb", messages=HELLO, stream=True, temperature=0, **options)
    )
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    told = [chunk for chunk in chunks if chunk.usage is not None]
    assert len(told) == usage
    assert [chunk.choices for chunk in told] == [[]] * usage
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    assert choices[-1].delta.content is None
    whole = client.chat.completions.create(model="lamb", messages=HELLO, temperature=0).choices[0].message.content
    assert "".join(choice.delta.content or "" for choice in choices) == whole


def test_7_text_arrives_while_the_answer_is_computed(client: openai.OpenAI, server: str) -> None:
    with client.chat.completions.create(
        model="lamb", messages=HELLO, stream=True, max_completion_tokens=4000, extra_body={"ignore_eos": True}
    ) as stream:
        next(chunk for chunk in stream if chunk.choices and chunk.choices[0].delta.content)
        assert becomes_true(lambda: any(slot["is_processing"] for slot in httpx2.get(f"{server}/slots").json()))


def test_7_the_stream_ends_with_done(server: str) -> None:
    lines = post(server, {"model": "lamb", "messages": HELLO, "stream": True}).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: ") for line in lines)


def test_7_reasoning_and_calls_stream_too(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    chunks = collect(
        client.chat.completions.create(model="lamb", messages=messages, tools=TOOLS, temperature=0, stream=True)
    )
    calls = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    assert {call.index for call in calls} == {0}
    assert calls[0].id
    first = calls[0].function
    assert first is not None
    assert first.name == "get_weather"
    spelled = "".join(call.function.arguments or "" for call in calls if call.function)
    assert json.loads(spelled) == {"city": "Paris"}


@pytest.mark.parametrize("stream", [True, False])
def test_16_too_long_a_prompt_is_a_real_400_with_both_counts(client: openai.OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "... " * 10_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="lamb", messages=messages, stream=stream)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (400, "context_length_exceeded", "invalid_request_error")
    numbers = map(int, re.findall(r"\d+", error.message.split("too long")[1]))
    needed, limit, n_prompt, reserve, n_ctx, n_question, *_ = numbers
    assert needed == n_prompt + reserve > limit == n_ctx == 4096
    assert limit < n_question < n_prompt
    body: Any = error.body
    assert (body["n_prompt_tokens"], body["n_ctx"]) == (n_prompt, 4096)
    after = client.chat.completions.create(model="lamb", messages=HELLO, temperature=0)
    assert after.choices[0].message.content == "Hello! How can I help you?"


def test_16_a_huge_max_tokens_is_cut_and_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="lamb", messages=HELLO, max_tokens=64_000)
    assert answer.choices[0].finish_reason == "stop"


def test_16_the_token_limit_is_said(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="lamb", messages=HELLO, max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


NULLS = dict.fromkeys(
    ["temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "stop", "seed", "stream", "tools",
     "tool_choice", "stream_options", "frequency_penalty", "presence_penalty", "repetition_penalty", "n", "user",
     "logit_bias", "response_format", "reasoning_effort", "metadata", "logprobs"]
)  # fmt: skip


BROKEN: dict[str, tuple[bytes | dict[str, Any], str | None]] = {
    "empty": (b"", None),
    "invalid JSON": (b'{"messages": [', None),
    "not an object": (b"[]", None),
    "invalid UTF-8": (b'{"messages": [{"role": "user", "content": "\xff"}]}', None),
    "deeply nested": (b'{"messages": ' + b"[" * 100_000, None),
    "no messages": ({"model": "lamb"}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "messages of another type": ({"messages": "Hello"}, "messages"),
    "an unknown role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "content of another type": ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "temperature as text": ({"messages": HELLO, "temperature": "hot"}, "temperature"),
    "temperature as a boolean": ({"messages": HELLO, "temperature": True}, "temperature"),
    "a negative temperature": ({"messages": HELLO, "temperature": -1}, "temperature"),
    "top_p above one": ({"messages": HELLO, "top_p": 1.5}, "top_p"),
    "no tokens at all": ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
    "an empty stop string": ({"messages": HELLO, "stop": [""]}, "stop"),
    "a hundred answers": ({"messages": HELLO, "n": 100}, "n"),
    "a tool without a name": ({"messages": HELLO, "tools": [{"type": "function", "function": {}}]}, "tools[0]"),
    "a bias beyond the vocabulary": ({"messages": HELLO, "logit_bias": {"99999": 1}}, "logit_bias"),
    "a format unheard of": ({"messages": HELLO, "response_format": {"type": "xml"}}, "response_format"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_17_bad_input_is_a_400_that_names_the_field(server: str, case: str) -> None:
    body, field = BROKEN[case]
    answer = post(server, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert "Traceback" not in answer.text
    if field is not None:
        assert str(error["param"]).startswith(field)
    assert post(server, {"messages": HELLO, "model": "lamb"}).status_code == 200, "and the server goes on"


def test_17_nulls_and_unknown_fields_are_a_normal_answer(server: str) -> None:
    answer = post(server, {"model": "lamb", "messages": HELLO, **NULLS, "something_new": {"a": 1}})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("body", [r'{"model":"m","messages":[{"role":"user","content":"half \ud83d an emoji"}]}'])
def test_17_half_an_emoji_is_a_normal_answer(server: str, body: str) -> None:
    assert post(server, body).status_code == 200


def test_17_megabytes_are_refused_with_counts_and_the_server_goes_on(server: str) -> None:
    """Twenty of them in a thorough run."""
    body = json.dumps({"messages": [{"role": "user", "content": "word " * amount(400_000, 4_000_000)}]}).encode()
    done = threading.Event()
    slow: list[float] = []

    def watch() -> None:
        while not done.is_set():
            started = time.perf_counter()
            assert httpx2.get(f"{server}/health", timeout=30).status_code == 200
            slow.append(time.perf_counter() - started)

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer = post(server, body)
    done.set()
    watcher.join()
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert slow


def test_17_a_history_with_malformed_arguments_is_answered(server: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"broken'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
    ]
    assert post(server, {"model": "lamb", "messages": messages}).status_code == 200


def test_20_answers_of_parallel_clients_do_not_mix(client: openai.OpenAI) -> None:
    names = ["Ada", "Bob", "Carl", "Dora", "Emma", "Finn"]

    def ask(name: str) -> str:
        messages: list[Any] = [
            {"role": "user", "content": f"My name is {name}."},
            {"role": "assistant", "content": f"Got it. Your name is {name}."},
            {"role": "user", "content": "What is my name?"},
        ]
        answer = client.chat.completions.create(model="lamb", messages=messages, temperature=0)
        return answer.choices[0].message.content or ""

    alone = {name: ask(name) for name in names}
    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        together = dict(zip(names, pool.map(ask, names), strict=True))
    assert together == alone
    assert all(name in answer for name, answer in alone.items())


def state(server: str, session: str) -> str | None:
    """What the conversation of `session` does: prefill, generate or idle; None if the cache does not hold it."""
    cache = httpx2.get(f"{server}/v1/caches").json()["caches"]["main"]
    return next((each["state"] for each in cache["sequences"] if each["session"] == session), None)


def leave(server: str, body: dict[str, Any], session: str, *, after_lines: int) -> None:
    """Send a request and close the connection after so many lines of the answer; without any, when it is computed."""
    address = urlsplit(server)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json", "x-session-id": session})
    if after_lines:
        answer = connection.getresponse()
        for _ in range(after_lines):
            answer.readline()
    else:
        assert becomes_true(lambda: state(server, session) is not None)
    assert connection.sock is not None
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()


LONG = {"model": "lamb", "messages": HELLO, "max_tokens": 3500, "ignore_eos": True, "temperature": 1.0}


@pytest.mark.parametrize("where", ["in the text", "before the first byte", "when nothing is streamed"])
def test_21_a_client_that_leaves_frees_the_model_at_once(server: str, where: str) -> None:
    body = {**LONG, "stream": where != "when nothing is streamed"}
    leave(server, body, where, after_lines=20 if where == "in the text" else 0)
    # A client that has gone sends what one sends that only has no more to say: the server finds out by writing.
    assert becomes_true(lambda: state(server, where) == "idle")
    assert httpx2.get(f"{server}/v1/caches").json()["caches"]["main"]["used"] < 3000
    answer = post(server, {"model": "lamb", "messages": HELLO, "temperature": 0}).json()
    assert answer["choices"][0]["message"]["content"] == "Hello! How can I help you?"
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["usage"]["prompt_tokens"] - 1


def test_21_leaving_inside_a_prefill_stops_it(server: str) -> None:
    body = {"model": "lamb", "messages": [{"role": "user", "content": "word " * 1800}], "max_tokens": 8, "stream": True}
    leave(server, body, "prefill", after_lines=0)
    started = time.perf_counter()
    answer = post(server, {"model": "lamb", "messages": HELLO, "temperature": 0, "max_tokens": 4})
    assert answer.status_code == 200
    assert time.perf_counter() - started < 30
