"""What a user meets, in order, on the embedded model and a really started server: the acceptance scenarios.

The number in a test's name is the scenario's in the project's requirements. The terminal itself is in tests/unit/cli.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
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
from tests import command_line
from tests.cases import amount
from tests.in_time import becomes_true
from tests.own_server import serving

pytestmark = pytest.mark.model

HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
CHAT = "/v1/chat/completions"


@pytest.fixture
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as made:
        yield made


def shepherd(
    *arguments: str, stdin: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return command_line.run("--threads", "1", *arguments, stdin=stdin, cwd=cwd, env={**os.environ, **variables})


def post(server: str, body: bytes | str | dict[str, Any], **headers: str) -> httpx2.Response:
    data = json.dumps(body) if isinstance(body, dict) else body
    return httpx2.post(
        server + CHAT, content=data, headers={"content-type": "application/json", **headers}, timeout=120
    )


# 1. Install and start without anything optional


FLAGS = [
    "--server", "--host", "--port", "--backend", "--model", "--config", "--context-size", "--enable-eviction",
    "--gpu-layers", "--verbose", "--log-level", "--enable-tools", "--disable-tools", "--list-tools", "--notools",
    "--nothink", "--system", "--prompt", "--json", "--version",
]  # fmt: skip


def test_1_help_lists_every_flag() -> None:
    done = shepherd("--help")
    assert done.returncode == 0
    assert [flag for flag in FLAGS if not re.search(rf"{flag}\b", done.stdout)] == []


def test_1_tools_can_be_listed() -> None:
    done = shepherd("--list-tools")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert re.search(r"\d\d tools available", done.stdout)
    assert {"read_file", "search_memory", "http_get", "json_path", "execute_command"} <= set(done.stdout.split())


def test_1_without_a_model_the_embedded_one_starts_and_says_so(tmp_path: Path) -> None:
    done = shepherd(stdin="Hello!\n", XDG_CONFIG_HOME=str(tmp_path))
    assert done.returncode == 0
    assert "Model: lamb" in done.stdout
    assert "shepherd MODEL.gguf" in done.stdout
    assert "Traceback" not in done.stderr


# 2. First chat in the terminal


def test_2_the_banner_has_its_five_lines_and_the_end_of_input_leaves_with_status_0(lamb: Path) -> None:
    done = shepherd(str(lamb), stdin="Hello\n")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"Shepherd LLM System v\d+\.\d+(\.\d+)?", lines[0])
    assert re.fullmatch(r"Backend: llama\.cpp \(.+\)", lines[1])
    assert lines[2:4] == ["Model: lamb", "Context: 4096 tokens"]
    assert re.fullmatch(r"Tools: [1-9]\d* available", lines[4])
    assert any(line.startswith("> ") for line in lines)
    assert "Hello! How can I help you?" in done.stdout


# 3. The agent uses a tool; 4. dangerous tools stay off; 27. switching at run time


def test_3_the_embedded_model_looks_into_the_folder_and_reads_a_file(tmp_path: Path) -> None:
    for name in ("main.cpp", "README.md", "CMakeLists.txt"):
        (tmp_path / name).write_text("Hello, world.\n")
    asked = "List the files in .\nRead the file README.md\n"
    done = shepherd("--max-tokens", "200", "--temperature", "0", stdin=asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    calls = [line.removeprefix("> ") for line in lines if "[Tool Call: " in line]
    assert calls[0].startswith("[Tool Call: list_directory(")
    assert calls.count(calls[0]) == 1, "the same call is not repeated"
    assert "[Tool Result: CMakeLists.txt, main.cpp, README.md]" in lines
    assert '[Tool Call: read_file(path="README.md")]' in calls
    assert "[Tool Result: Hello, world.]" in lines
    assert "The file README.md says: Hello, world." in lines, "the answer is made of the result"


MINE = """
from shepherd.tools import Tool, tool

@tool
def ring(times: int) -> str:
    \"\"\"Ring the bell.\"\"\"
    return "ding " * times

class Shout(Tool):
    name, description = "shout", "Say it louder."
    parameters = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
    def execute(self, args):
        return {"said": args["text"].upper()}
"""


def test_3_tools_of_the_users_own_work_with_good_and_bad_arguments(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "shepherd.toml").write_text('[tools]\nfiles = ["mine.py"]\n')

    def run(name: str, arguments: str) -> tuple[int, str]:
        done = shepherd("tools", "run", name, arguments, cwd=tmp_path)
        return done.returncode, (done.stdout + done.stderr).strip()

    assert run("ring", '{"times": "2"}') == (0, "ding ding")
    assert run("shout", '{"text": "lamb"}') == (0, '{"said": "LAMB"}')
    status, said = run("ring", '{"times": "many"}')
    assert status == 1
    assert "'times'" in said
    assert "Traceback" not in said


def test_4_what_is_disabled_is_neither_listed_nor_carried_out(tmp_path: Path) -> None:
    text = '{"tools": {"enabled": ["filesystem", "http", "memory", "command"], "disabled": ["command_execution"]}}'
    (tmp_path / "shepherd.json").write_text(text)
    listed = shepherd("--list-tools", cwd=tmp_path).stdout
    on, _, off = listed.partition("tools off:")
    assert "read_file" in on
    assert "execute_command" not in on
    assert re.search(r"execute_command +disabled", off)
    done = shepherd("tools", "run", "execute_command", '{"command": "touch done"}', cwd=tmp_path)
    assert done.returncode == 1
    assert "disabled" in done.stdout + done.stderr
    chat = shepherd("--max-tokens", "120", stdin="Run the command touch done\n", cwd=tmp_path)
    assert chat.returncode == 0
    assert not (tmp_path / "done").exists()


def test_27_the_conversation_goes_on_with_another_model(tmp_path: Path) -> None:
    (tmp_path / "shepherd.toml").write_text(
        '[models.ann]\npath = "embedded"\n[models.bob]\npath = "embedded"\nload = "demand"\n'
    )
    lines = ["My name is Carl.", "/provider nope", "/provider next", "What is my name?", "/provider ann", "/model"]
    done = shepherd(stdin="\n".join(lines), cwd=tmp_path)
    assert done.stderr.count("Loading provider: bob") == 1
    assert done.stderr.count("Loading provider: ann") == 1
    assert "nope" in done.stdout + done.stderr
    assert "ann, bob" in done.stdout + done.stderr, "those that there are"
    assert re.search(r"> .*Carl", done.stdout.partition("What is my name")[2] or done.stdout)


# 5. Server starts and can be checked


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


CONFIGURED = {
    "toml": ("shepherd.toml", 'model = "{model}"\n[server]\nport = {port}\n', {}),
    "json": ("shepherd.json", '{{"model_path": "{model}", "server_mode": {{"enabled": true, "port": {port}}}}}', {}),
    "environment": (None, "", {"MODEL_PATH": "{model}", "SHEPHERD_PORT": "{port}"}),
}


@pytest.mark.parametrize("way", CONFIGURED)
def test_5_the_server_is_configured_by_files_and_environment(way: str, lamb: Path, tmp_path: Path) -> None:
    file, text, variables = CONFIGURED[way]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    facts = {"model": str(lamb), "port": port}
    if file is not None:
        (tmp_path / file).write_text(text.format(**facts))
    banner: list[str] = []
    environment = {**os.environ, **{name: value.format(**facts) for name, value in variables.items()}}
    command = ("--threads", "1", *([] if way == "json" else ["serve"]))
    done = command_line.serve(*command, visit=banner.extend, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert banner[-1] == f"Listening on: http://127.0.0.1:{port}", "loopback, and the configured port"


def test_5_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("context_size = 1024\n")
    show = ["config", "show", "--config", str(tmp_path / "c.toml")]
    assert "n_ctx = 1024" in shepherd(*show).stdout
    assert "n_ctx = 2048" in shepherd(*show, SHEPHERD_CONTEXT_SIZE="2048").stdout
    assert "n_ctx = 3072" in shepherd(*show, "--context-size", "3072", SHEPHERD_CONTEXT_SIZE="2048").stdout


# 6. The README's calls are run in tests/unit/test_docs.py


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
    wild: dict[str, Any] = {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0}
    assert say(**wild) != plain
    assert say(**wild | {"top_k": 1}) == plain
    assert say(**wild | {"top_p": 0.0001}) == plain
    assert say(**wild | {"min_p": 1.0}) == plain
    assert say(temperature=0, repetition_penalty=5.0) != plain
    assert say(temperature=0, stop=["How"]) == "Hello! "
    assert say(temperature=0) == plain
    assert say(temperature=2, top_p=1) == say(temperature=2, top_p=1), "a seed repeats a draw"


# 7. Streaming with the stock OpenAI client


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


def test_7_text_arrives_long_before_the_generation_ends(client: openai.OpenAI) -> None:
    started = time.perf_counter()
    with client.chat.completions.create(
        model="lamb", messages=HELLO, stream=True, max_completion_tokens=400, extra_body={"ignore_eos": True}
    ) as stream:
        times = [time.perf_counter() - started for chunk in stream if chunk.choices and chunk.choices[0].delta.content]
    assert times[0] < times[-1] / 2


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


# 16. Too long prompt


@pytest.mark.parametrize("stream", [True, False])
def test_16_too_long_a_prompt_is_a_real_400_with_both_counts(client: openai.OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "... " * 10_000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="lamb", messages=messages, stream=stream)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (400, "context_length_exceeded", "exceed_context_size_error")
    counts = [int(number) for number in re.findall(r"\d+", error.message.split("too long")[1])]
    assert counts[0] > 4096 == counts[1]
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


# 17. Broken requests


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


# 19 (in part). Background requests do not disturb


def test_19_background_requests_have_a_cache_of_their_own(tmp_path: Path, two_caches: str) -> None:
    with serving(tmp_path, two_caches) as address:

        def cached(model: str, text: str) -> int:
            body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4}
            answer = post(address, body).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        def main() -> dict[str, int]:
            seen: dict[str, int] = httpx2.get(f"{address}/v1/caches").json()["caches"]["main"]
            return seen

        cached("claude-sonnet", "A long conversation.")
        assert becomes_true(lambda: (seen := main())["used"] > 0 and not seen["live"])  # the figures follow the answer
        held = main()["used"]
        cached("Claude-3-5-HAIKU", "Name this conversation.")
        assert main()["used"] == held
        assert cached("claude-sonnet", "A long conversation.") > 10, "the main cache is as it was"
        refused = post(address, {"model": "gpt-4", "messages": HELLO})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert len(httpx2.get(f"{address}/v1/models").json()["data"]) == 1, "the weights are loaded once"


# 20 (in part). Parallel clients


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


# 21. Client goes away


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


# Keys (C33, O1), on a server of its own


def test_a_configured_key_is_required_and_health_is_public() -> None:
    def visit(banner: list[str]) -> None:
        address = banner[-1].removeprefix("Listening on: ")
        body = {"model": "lamb", "messages": HELLO}
        assert httpx2.get(f"{address}/health").status_code == 200
        refused = post(address, body)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert post(address, body, authorization="Bearer secret").status_code == 200
        assert post(address, body, **{"x-api-key": "secret"}).status_code == 200

    environment = {**os.environ, "SHEPHERD_API_KEY": "secret"}
    assert command_line.serve("serve", "--port", "0", "--threads", "1", visit=visit, env=environment).returncode == 0
