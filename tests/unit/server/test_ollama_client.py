"""Ollama's own client library, in both its forms, against a really started server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest
from pydantic import BaseModel
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.core import (
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Completion,
    ContextFull,
    EngineError,
    Event,
    Finished,
    Image,
    Message,
    ReasoningDelta,
    Request,
    Sampling,
    Started,
    Text,
    TextDelta,
    TokenScore,
    ToolCall,
    ToolResult,
    UnknownModel,
    Usage,
)
from shepherd.core.status import Health, ModelCard
from shepherd.server.endpoints.handler import Limits
from shepherd.server.endpoints.ollama import VERSION
from shepherd.server.http.auth import Key

BIG = 12345678901234567890
USAGE = Usage(input=7, cache_read=3, output=5, reasoning=2)
ANSWER: tuple[Event, ...] = (
    Started("m"),
    ReasoningDelta("Let me "),
    ReasoningDelta("look."),
    TextDelta("I look: "),
    TextDelta("é🐑\u2028"),
    CallStarted("c1", "look"),
    CallDelta(f'{{"at": {BIG}}}'),
    CallEnded(ToolCall("c1", "look", f'{{"at": {BIG}}}')),
    CallStarted("c2", "see"),
    CallDelta("{}"),
    CallEnded(ToolCall("c2", "see", "{}")),
    Finished("tool_calls", USAGE),
)
ASK: dict[str, Any] = {"model": "fake:latest", "messages": [{"role": "user", "content": "Hello"}]}
PNG = b"\x89PNG\r\n\x1a\n and so on"


@asynccontextmanager
async def connecting(listening: Listening, service: ScriptedService, **options: Any) -> AsyncIterator[Any]:
    """Its types know less than it does, hence `Any`."""
    async with listening(service, **options) as url, ollama.AsyncClient(url) as client:
        yield client


# -- chat


async def test_ollama_reads_a_whole_answer(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.chat(**ASK)
    assert (answer.model, answer.done, answer.done_reason) == ("fake:latest", True, "stop")
    assert answer.message.content == "I look: é🐑\u2028"
    assert answer.message.thinking == "Let me look."
    assert [(call.function.name, call.function.arguments) for call in answer.message.tool_calls] == [
        ("look", {"at": BIG}),
        ("see", {}),
    ]
    assert (answer.prompt_eval_count, answer.eval_count) == (10, 5)
    durations = (answer.load_duration, answer.prompt_eval_duration, answer.eval_duration)
    assert all(duration >= 0 for duration in durations)
    assert answer.total_duration == sum(durations) > 0
    assert answer.prompt_eval_duration > 0, "the events are timed as they come"
    assert service.endpoints == ["/api/chat"]


async def test_ollama_puts_a_stream_together(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        parts = [part async for part in await client.chat(**ASK, stream=True)]
        whole = await client.chat(**ASK)
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert "".join(part.message.thinking or "" for part in parts) == whole.message.thinking
    assert [call for part in parts for call in part.message.tool_calls or ()] == whole.message.tool_calls
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count == 5
    assert all(part.done_reason is None for part in parts[:-1])


def test_the_client_without_async_reads_the_same(listening: Listening) -> None:
    def ask(url: str) -> tuple[Any, list[Any]]:
        with ollama.Client(url) as client:
            return client.chat(**ASK), list(client.chat(**ASK, stream=True))

    async def serve() -> tuple[Any, list[Any]]:
        async with listening(ScriptedService(saying("a", "b"))) as url:
            return await asyncio.to_thread(ask, url)

    whole, parts = asyncio.run(serve())
    assert whole.message.content == "".join(part.message.content for part in parts) == "ab"


async def test_a_stream_is_what_a_body_gets_that_does_not_say(listening: Listening) -> None:
    async with listening(ScriptedService(saying("a"))) as url, httpx2.AsyncClient(base_url=url) as client:
        answer = await client.post("/api/chat", json=ASK)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["message"]["content"], line["done"]) for line in lines] == [("a", False), ("", True)]


async def test_tools_given_as_functions_are_called_and_answered(listening: Listening) -> None:
    def look(at: int) -> str:
        """Look somewhere.

        Args:
            at (int): the place
        """
        return f"seen {at}"

    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        first = await client.chat(**ASK, tools=[look])
        messages = [*ASK["messages"], first.message]
        messages += [{"role": "tool", "tool_name": "look", "content": look(BIG)}]
        messages += [{"role": "tool", "tool_name": "see", "content": "nothing"}]
        await client.chat("fake", messages, tools=[look])
    (tool,) = service.requests[0].tools
    assert (tool.name, tool.description) == ("look", "Look somewhere.")
    assert tool.parameters["properties"]["at"]["type"] == "integer"
    _, answer, *results = service.requests[1].messages
    assert answer.reasoning == "Let me look."
    assert answer.calls == (ToolCall("call_1", "look", f'{{"at": {BIG}}}'), ToolCall("call_2", "see", "{}"))
    assert [message.parts for message in results] == [
        (ToolResult("call_1", (Text(f"seen {BIG}"),), "look"),),
        (ToolResult("call_2", (Text("nothing"),), "see"),),
    ]


async def test_a_schema_of_pydantic_is_what_the_answer_must_look_like(listening: Listening) -> None:
    class Animal(BaseModel):
        name: str
        legs: int

    service = ScriptedService(saying('{"name": "sheep",', ' "legs": 4}'))
    async with connecting(listening, service) as client:
        answer = await client.chat(**ASK, format=Animal.model_json_schema())
    assert Animal.model_validate_json(answer.message.content) == Animal(name="sheep", legs=4)
    assert service.requests[0].schema == Animal.model_json_schema()


@pytest.mark.parametrize(("think", "level"), [(True, "medium"), (False, "off"), ("high", "high"), (None, None)])
async def test_thinking_is_as_the_client_wants(listening: Listening, think: Any, level: str | None) -> None:
    service = ScriptedService(saying("a"))
    async with connecting(listening, service) as client:
        await client.chat(**ASK, think=think)
    assert service.requests[0].reasoning == level


async def test_options_reach_the_model(listening: Listening, tmp_path: Path) -> None:
    (tmp_path / "sheep.png").write_bytes(PNG)
    service = ScriptedService(saying("a"))
    options = ollama.Options(
        temperature=0.5, top_k=3, seed=7, num_predict=20, stop=["END"], num_ctx=8, repeat_penalty=1.5
    )
    message = {"role": "user", "content": "What is it?", "images": [str(tmp_path / "sheep.png")]}
    async with connecting(listening, service) as client:
        await client.chat("fake", [message], options=options, keep_alive="1m30s")
    (request,) = service.requests
    assert request.sampling == Sampling(temperature=0.5, top_k=3, seed=7, repetition_penalty=1.5)
    assert (request.max_tokens, request.stop, request.extra["keep_alive"]) == (20, ("END",), 90.0)
    assert request.messages == (Message("user", (Image("image/png", PNG), Text("What is it?"))),)


async def test_probabilities_come_with_the_text(listening: Listening) -> None:
    score = TokenScore(5, b"a", -0.25, ((5, b"a", -0.25), (6, b"b", float("-inf"))))
    script = playing(Started("m"), TextDelta("a", (score,)), Finished("end", USAGE))
    service = ScriptedService(script)
    async with connecting(listening, service) as client:
        whole = await client.chat(**ASK, logprobs=True, top_logprobs=2)
        parts = [part async for part in await client.chat(**ASK, logprobs=True, top_logprobs=2, stream=True)]
    assert service.requests[0].logprobs == 2
    assert parts[0].logprobs == whole.logprobs
    (told,) = whole.logprobs
    assert (told.token, told.logprob) == ("a", -0.25)
    assert [(top.token, top.logprob) for top in told.top_logprobs] == [("a", -0.25), ("b", -9999.0)]


# -- generate


async def test_a_prompt_is_answered(listening: Listening) -> None:
    service = ScriptedService(playing(Started("m"), ReasoningDelta("Hm."), TextDelta("Blue."), Finished("end", USAGE)))
    async with connecting(listening, service) as client:
        whole = await client.generate("fake", "Why?", system="Be brief.", images=[PNG])
        parts = [part async for part in await client.generate("fake", "Why?", stream=True)]
    assert (whole.response, whole.thinking, whole.done_reason, whole.eval_count) == ("Blue.", "Hm.", "stop", 5)
    assert "".join(part.response for part in parts) == "Blue."
    assert "".join(part.thinking or "" for part in parts) == "Hm."
    assert service.requests[0].messages == (
        Message.system("Be brief."),
        Message("user", (Image("image/png", PNG), Text("Why?"))),
    )


@pytest.mark.parametrize(
    ("fields", "completion"),
    [
        ({"prompt": "def f(", "suffix": "return 1"}, Completion("def f(", "return 1")),
        ({"prompt": "", "suffix": "return 1"}, Completion("", "return 1")),
        ({"prompt": "Once <|im_end|>", "raw": True}, Completion("Once <|im_end|>")),
    ],
)
async def test_a_bare_prompt_has_no_template(
    listening: Listening, fields: Mapping[str, Any], completion: Completion
) -> None:
    service = ScriptedService(saying("x"))
    async with connecting(listening, service) as client:
        assert (await client.generate("fake", **fields)).response == "x"
    (request,) = service.requests
    assert (request.completion, request.messages) == (completion, ())


# -- coming and going


@pytest.mark.parametrize(("keep_alive", "reason"), [(None, "load"), ("5m", "load"), (-1, "load"), (0, "unload")])
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_to_answer_loads_or_unloads(
    listening: Listening, stream: bool, keep_alive: Any, reason: str
) -> None:
    service = ScriptedService(playing(Started("fake"), Finished("end")))
    async with connecting(listening, service) as client:
        asked = [
            await client.chat("fake", [], keep_alive=keep_alive, stream=stream),
            await client.generate("fake", "", keep_alive=keep_alive, stream=stream),
        ]
        answers = [await drained(answer) for answer in asked]
    assert [[(part.done, part.done_reason) for part in parts] for parts in answers] == [[(True, reason)]] * 2
    assert answers[0][0].message.content == answers[1][0].response == ""
    assert all(request == Request("fake", extra=request.extra) for request in service.requests)
    assert {request.extra.get("keep_alive") for request in service.requests} == {
        {None: None, "5m": 300.0, -1: -1.0, 0: 0.0}[keep_alive]
    }


# -- what is there


CARD = ModelCard(
    "qwen", 8192, 1_700_000_000, "Qwen3 8B", n_bytes=5_000_000_000, architecture="qwen3", parameters="8.2B",
    quantization="Q4_K_M", capabilities=("completion", "tools", "insert", "thinking"), template="{{ messages }}",
    expires=1_800_000_000.5, memory_bytes=6_000_000_000,
)  # fmt: skip
AWAY = ModelCard("bert", 512, 1_600_000_000, kind="embedding", loaded=False)


async def test_models_are_listed_shown_and_distinguished(listening: Listening) -> None:
    service = ScriptedService(saying("a"))
    service.cards = (CARD, AWAY)
    async with connecting(listening, service) as client:
        listed = (await client.list()).models
        running = (await client.ps()).models
        shown = await client.show("qwen:latest")
        small = await client.show("bert")
    assert [(model.model, int(model.size), model.details.family) for model in listed] == [
        ("qwen", 5_000_000_000, "qwen3"),
        ("bert", 0, ""),
    ]
    assert len({model.digest for model in listed}) == 2
    assert listed[0].modified_at.timestamp() == 1_700_000_000
    (loaded,) = running
    assert (loaded.name, int(loaded.size), loaded.context_length) == ("qwen", 6_000_000_000, 8192)
    assert loaded.expires_at.timestamp() == 1_800_000_000.5
    assert shown.capabilities == ["completion", "tools", "insert", "thinking"]
    assert shown.modelinfo["general.architecture"] == "qwen3"
    assert shown.modelinfo["qwen3.context_length"] == 8192
    assert shown.details.parameter_size == "8.2B"
    assert shown.details.quantization_level == "Q4_K_M"
    assert shown.template == "{{ messages }}"
    assert "FROM qwen" in shown.modelfile
    assert small.capabilities == ["embedding"]
    assert small.modelinfo[small.modelinfo["general.architecture"] + ".context_length"] == 512


async def test_the_version_is_one_of_ollamas(listening: Listening) -> None:
    async with listening(ScriptedService(saying("a"))) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/api/version")).json() == {"version": VERSION}
        heads = [await client.head(path) for path in ("/", "/api/tags", "/api/ps", "/api/version")]
    assert [(head.status_code, head.content) for head in heads] == [(200, b"")] * 4


async def test_nothing_is_listed_before_the_models_are_known(listening: Listening) -> None:
    service = ScriptedService(saying("a"), health=Health("loading", "llamacpp", "m"))
    async with connecting(listening, service) as client:
        for method, arguments in (("list", ()), ("ps", ()), ("show", ("fake",))):
            with pytest.raises(ollama.ResponseError, match="still loading") as caught:
                await getattr(client, method)(*arguments)
            assert caught.value.status_code == 503


async def test_a_model_that_is_there_has_been_pulled_already(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("a"))) as client:
        assert (await client.pull("fake:latest")).status == "success"
        assert [part.status async for part in await client.pull("fake", stream=True)] == ["success"]
        for stream in (False, True):
            with pytest.raises(ollama.ResponseError, match="this server pulls no llama3") as caught:
                await drained(await client.pull("llama3", stream=stream))
            assert caught.value.status_code == 403


async def test_what_cannot_be_done_is_refused_in_words(listening: Listening, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" * 100_000)
    async with connecting(listening, ScriptedService(saying("a"))) as client:
        for method, arguments in {
            "push": ("fake",),
            "create": ("mine", "q4_0", "fake"),
            "create_blob": (tmp_path / "model.gguf",),
        }.items():
            with pytest.raises(ollama.ResponseError, match=r"not supported.*`shepherd models list`") as caught:
                await getattr(client, method)(*arguments)
            assert caught.value.status_code == 400


async def test_models_get_names_and_leave_by_the_service(listening: Listening) -> None:
    service = ScriptedService(saying("a"))
    async with connecting(listening, service) as client:
        assert (await client.copy("fake:latest", "mine")).status == "success"
        assert (await client.delete("mine")).status == "success"
        assert (service.copied, service.deleted) == ([("fake:latest", "mine")], ["mine"])
        await client.list()
        await client.show("fake")
    assert service.n_looks == 2


async def test_a_key_of_one_user_changes_no_models(listening: Listening) -> None:
    keys = [Key.of("a", name="ann", user="ann"), Key.of("b", name="bob")]
    service, headers = ScriptedService(saying("a")), {"authorization": "Bearer a"}
    async with listening(service, api_keys=keys) as url, ollama.AsyncClient(url, headers=headers) as client:
        for act in (client.copy("fake", "mine"), client.delete("fake")):
            with pytest.raises(ollama.ResponseError, match="this changes the models of all users") as caught:
                await act
            assert caught.value.status_code == 403
    assert (service.copied, service.deleted) == ([], [])


# -- errors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ContextFull(needed=9000, limit=4096), 400, "prompt is too long: 9000 tokens > 4096 maximum"),
        (UnknownModel("llama3", known=("fake",)), 404, "model 'llama3' not found; known: fake"),
        (EngineError("broken"), 500, "broken"),
        (ZeroDivisionError("a secret"), 500, "its log holds the details"),
    ],
)
async def test_errors_are_words(listening: Listening, stream: bool, error: Exception, status: int, words: str) -> None:
    async with connecting(listening, ScriptedService(playing(error))) as client:
        with pytest.raises(ollama.ResponseError) as caught:
            await drained(await client.chat(**ASK, stream=stream))
    assert caught.value.status_code == status
    assert words in caught.value.error
    assert "secret" not in caught.value.error


async def drained(answer: Any) -> list[Any]:
    """All parts of an answer that may be a stream."""
    return [part async for part in answer] if isinstance(answer, AsyncIterator) else [answer]


async def test_an_error_in_the_middle_of_a_stream_is_raised(listening: Listening) -> None:
    script = playing(Started("m"), TextDelta("a"), EngineError("the engine broke"))
    async with connecting(listening, ScriptedService(script)) as client:
        parts = await client.chat(**ASK, stream=True)
        assert (await anext(parts)).message.content == "a"
        with pytest.raises(ollama.ResponseError, match="the engine broke"):
            await anext(parts)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/chat", {"messages": "hi"}, 'messages must be an array, not "hi"'),
        ("/api/chat", {"messages": [{"role": "user", "content": ["hi"]}]}, "messages[0].content must be a string"),
        ("/api/chat", {"messages": [{"role": "wizard"}]}, 'messages[0].role is "wizard"'),
        ("/api/chat", {"messages": [{"role": "user", "images": ["?"]}]}, "messages[0].images[0] must be an image"),
        ("/api/chat", {"stream": False}, "model is missing: a body without a prompt loads or unloads the model"),
        ("/api/generate", {}, "model is missing: a body without a prompt loads or unloads the model"),
        ("/api/generate", {"prompt": 5}, "prompt must be a string, not 5"),
        ("/api/generate", {"options": {"temperature": "hot"}}, "options.temperature must be a number"),
        ("/api/generate", {"options": {"num_predict": -3}}, "options.num_predict must be an integer"),
        ("/api/generate", {"keep_alive": "soon"}, 'keep_alive must be a number of seconds or a duration such as "5m"'),
        ("/api/generate", {"format": "xml"}, 'format must be "json" or a JSON schema'),
        ("/api/generate", {"think": "hard"}, "think must be true, false or one of low"),
        ("/api/show", {}, "model is missing"),
        ("/api/embed", {"input": 5}, "input must be a string or an array of strings"),
        ("/api/embeddings", {"prompt": []}, "prompt must be a string"),
        ("/api/pull", {"model": ["x"]}, "model must be a string"),
    ],
)
async def test_a_wrong_field_is_named(listening: Listening, path: str, body: Any, words: str) -> None:
    async with listening(ScriptedService(saying("a"))) as url, httpx2.AsyncClient(base_url=url) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert words in answer.json()["error"]


async def test_unknown_paths_and_methods_are_errors_in_the_same_shape(listening: Listening) -> None:
    async with listening(ScriptedService(saying("a"))) as url, httpx2.AsyncClient(base_url=url) as client:
        answers = [await client.get("/api/nothing"), await client.get("/api/chat"), await client.post("/api/chat")]
        digest = await client.head(f"/api/blobs/sha256:{'0' * 64}")
    assert [answer.status_code for answer in answers] == [404, 405, 400]
    assert all(isinstance(answer.json()["error"], str) for answer in answers)
    assert digest.status_code == 404


async def test_a_key_is_asked_for_and_taken(listening: Listening) -> None:
    async with listening(ScriptedService(saying("a")), api_keys=("sk",)) as url:
        async with ollama.AsyncClient(url) as client:
            with pytest.raises(ollama.ResponseError) as caught:
                await client.chat(**ASK)
            assert caught.value.status_code == 401
        async with ollama.AsyncClient(url, headers={"Authorization": "Bearer sk"}) as client:
            assert (await client.chat(**ASK)).done


# -- what the encoder makes of the odd


async def test_an_invalid_call_is_an_error_in_words(listening: Listening) -> None:
    bad = BadCall("{oops", "its arguments do not parse", "c1", "look")
    odd = ToolCall("c2", "see", '{"x": 1e999}')
    script = playing(
        Started("m"), CallStarted("c1", "look"), CallEnded(bad),
        CallStarted("c2", "see"), CallDelta(odd.arguments), CallEnded(odd), Finished("end", USAGE),
    )  # fmt: skip
    async with connecting(listening, ScriptedService(script)) as client:
        answer = await client.chat(**ASK)
    assert answer.message.tool_calls is None
    assert answer.message.content == (
        "[invalid tool call of look: its arguments do not parse]"
        "[invalid tool call of see: its arguments are no JSON object]"
    )


async def test_a_silence_is_filled_with_nothing(listening: Listening) -> None:
    """Before the first event, too: that is when a model is being loaded."""
    loaded, answered = asyncio.Event(), asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        await loaded.wait()
        yield Started("m")
        await answered.wait()
        yield TextDelta("at last")
        yield Finished("end", USAGE)

    told: list[Any] = []
    async with connecting(listening, ScriptedService(script), limits=Limits(ping_s=0.01)) as client:
        async for part in await client.chat(**ASK, stream=True):
            told.append(part)
            (answered if loaded.is_set() else loaded).set()
    assert [part.message.content for part in told[:2]] == ["", ""]
    assert "".join(part.message.content for part in told) == "at last"
    assert [part.done for part in told] == [False] * (len(told) - 1) + [True]


# -- a real model
