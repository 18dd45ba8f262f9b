"""Anthropic's own client library against a really started server."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from pydantic import BaseModel
from tests.own_server import Listening
from tests.scripted_service import ScriptedService, playing, saying

from shepherd.backends.router import Route, Router
from shepherd.core import (
    BadCall,
    BadReply,
    CallDelta,
    CallEnded,
    CallStarted,
    ContextFull,
    EngineDown,
    EngineError,
    Event,
    Finished,
    Message,
    NotAllowed,
    Progress,
    RateLimited,
    Reasoning,
    ReasoningDelta,
    Refused,
    Request,
    Started,
    Text,
    TextDelta,
    TimedOut,
    ToolCall,
    ToolResult,
    UnknownModel,
    Usage,
)
from shepherd.server.app import Limits

ASK: dict[str, Any] = {"model": "claude-x", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]}
THINK: Any = {"type": "enabled", "budget_tokens": 2048}
TOOLS: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "see")]
PROMPT = Usage(input=7, cache_read=3)
ANSWER: tuple[Event, ...] = (
    Started("m", usage=PROMPT),
    Progress(1, 7),
    ReasoningDelta("Let me "),
    ReasoningDelta("look."),
    TextDelta("I look: "),
    TextDelta("é🐑"),
    CallStarted("c1", "look"),
    CallDelta('{"at": '),
    CallDelta("12345678901234567890}"),
    CallEnded(ToolCall("c1", "look", '{"at": 12345678901234567890}')),
    CallStarted("c2", "see"),
    CallDelta("{}"),
    CallEnded(ToolCall("c2", "see", "{}")),
    Finished("tool_calls", Usage(input=7, cache_read=3, output=5, reasoning=2)),
)
USAGE = {
    "input_tokens": 7,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 3,
    "output_tokens": 5,
    "output_tokens_details": {"thinking_tokens": 2},
}


@asynccontextmanager
async def connecting(
    listening: Listening, service: ScriptedService, *, below: str = "", **options: Any
) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with (
        listening(service, **options) as url,
        anthropic.AsyncAnthropic(base_url=url + below, api_key="any", max_retries=0) as client,
    ):
        yield client


def content_of(message: Any) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_unset=True) for block in message.content]


async def test_anthropic_reads_a_whole_answer(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        answer = await client.messages.create(**ASK, thinking=THINK)
    thought, text, look, see = content_of(answer)
    assert (answer.model, answer.role, answer.type, answer.stop_reason) == (
        "claude-x", "assistant", "message", "tool_use",
    )  # fmt: skip
    assert answer.id.startswith("msg_")
    assert thought["thinking"] == "Let me look."
    assert thought["signature"]
    assert text == {"type": "text", "text": "I look: é🐑"}
    assert look == {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 12345678901234567890}}
    assert see == {"type": "tool_use", "id": "c2", "name": "see", "input": {}}
    assert answer.usage.model_dump(exclude_unset=True) == USAGE


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("below", ["", "/v1"])
async def test_anthropic_puts_a_stream_together(listening: Listening, beta: bool, below: str) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service, below=below) as client:
        messages: Any = client.beta.messages if beta else client.messages
        more = {"betas": ["context-1m-2025-08-07", "of-2031"]} if beta else {}
        async with messages.stream(**ASK, **more, thinking=THINK, tools=TOOLS) as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_message()
        whole = await messages.create(**ASK, **more, thinking=THINK, tools=TOOLS)
    assert without_signatures(content_of(streamed)) == without_signatures(content_of(whole))
    assert streamed.usage.model_dump(exclude_unset=True) == whole.usage.model_dump(exclude_unset=True) == USAGE
    assert (streamed.stop_reason, streamed.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert {"text", "thinking", "signature", "input_json"} <= set(kinds)
    assert events[0].message.usage.cache_read_input_tokens == 3
    assert "".join(event.text for event in events if event.type == "text") == "I look: é🐑"
    assert "".join(event.thinking for event in events if event.type == "thinking") == "Let me look."
    assert [event.snapshot for event in events if event.type == "input_json"] == [{"at": 12345678901234567890}, {}]
    assert service.endpoints == ["/v1/messages"] * 2


def without_signatures(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ours are made of the id of the answer."""
    return [{key: value for key, value in block.items() if key != "signature"} for block in content]


async def test_anthropic_streams_only_the_text_when_asked(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(playing(*ANSWER))) as client:
        async with client.messages.stream(**ASK) as stream:
            assert [text async for text in stream.text_stream] == ["I look: ", "é🐑"]
        async with client.messages.stream(**ASK) as stream:
            assert await stream.get_final_text() == "I look: é🐑"
            assert [block.type for block in stream.current_message_snapshot.content] == ["text", "tool_use", "tool_use"]
        raw = await client.messages.create(**ASK, stream=True)
        assert [event.type async for event in raw][:2] == ["message_start", "content_block_start"]


@pytest.mark.parametrize(
    ("thinking", "thoughts", "level"),
    [
        (None, [], "off"),
        ({"type": "disabled"}, [], "off"),
        (THINK, ["Let me look."], "low"),
        ({"type": "adaptive"}, ["Let me look."], None),
        ({"type": "adaptive", "display": "omitted"}, [""], None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_are_seen_when_asked_for_and_never_as_text(
    listening: Listening, thinking: Any, thoughts: list[str], level: str | None, stream: bool
) -> None:
    service = ScriptedService(playing(*ANSWER))
    more: Any = {} if thinking is None else {"thinking": thinking}
    async with connecting(listening, service) as client:
        if stream:
            async with client.messages.stream(**ASK, **more) as streaming:
                answer: Any = await streaming.get_final_message()
        else:
            answer = await client.messages.create(**ASK, **more)
    told = [block for block in answer.content if block.type == "thinking"]
    assert [block.thinking for block in told] == thoughts
    assert all(block.signature for block in told)
    assert "".join(block.text for block in answer.content if block.type == "text") == "I look: é🐑"
    assert service.requests[0].reasoning == level


async def test_anthropic_can_send_its_own_answer_back_with_the_results(listening: Listening) -> None:
    service = ScriptedService(playing(*ANSWER))
    async with connecting(listening, service) as client:
        answer = await client.messages.create(**ASK, thinking=THINK, tools=TOOLS)
        results: Any = [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "seen"}]},
            {"type": "tool_result", "tool_use_id": "c2", "content": "nothing", "is_error": True},
            {"type": "text", "text": "Go on."},
        ]
        messages: Any = [
            *ASK["messages"],
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": results},
        ]
        await client.messages.create(**{**ASK, "messages": messages}, thinking=THINK, tools=TOOLS)
    thought = answer.content[0]
    assert thought.type == "thinking"
    assert service.requests[1].messages == (
        Message.user("Hello"),
        Message(
            "assistant",
            (
                Reasoning("Let me look."),  # our signature proves nothing
                Text("I look: é🐑"),
                ToolCall("c1", "look", '{"at": 12345678901234567890}'),
                ToolCall("c2", "see", "{}"),
            ),
        ),
        Message("tool", (ToolResult("c1", (Text("seen"),), "look"),)),
        Message("tool", (ToolResult("c2", (Text("nothing"),), "see", is_error=True),)),
        Message.user("Go on."),
    )


async def test_anthropics_tool_runner_runs_both_calls_and_continues(listening: Listening) -> None:
    seen: list[str] = []

    @anthropic.beta_async_tool
    async def look(at: int) -> str:
        """Looks at a number."""
        seen.append(str(at))
        return "a sheep"

    @anthropic.beta_async_tool
    async def see() -> str:
        """Sees."""
        seen.append("see")
        return "two sheep"

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        for event in ANSWER if len(request.messages) == 1 else (Started("m"), TextDelta("Three."), Finished("end")):
            yield event

    service = ScriptedService(script)
    async with connecting(listening, service) as client:
        runner = client.beta.messages.tool_runner(**ASK, tools=[look, see])
        final = await runner.until_done()
    assert sorted(seen) == ["12345678901234567890", "see"]
    assert content_of(final) == [{"type": "text", "text": "Three."}]
    # It believes that the server keeps the conversation, until it is told otherwise.
    assert [message.role for message in service.requests[1].messages] == ["user", "assistant", "tool", "tool"]
    results = [message.parts[0] for message in service.requests[1].messages[2:]]
    assert results == [ToolResult("c1", (Text("a sheep"),), "look"), ToolResult("c2", (Text("two sheep"),), "see")]


async def test_anthropic_reads_a_call_that_did_not_parse(listening: Listening) -> None:
    bad = BadCall('{"at": oops', "the arguments are not valid JSON", "c1", "look")
    script = playing(Started("m"), CallStarted("c1", "look"), CallEnded(bad), Finished("end"))
    async with connecting(listening, ScriptedService(script)) as client:
        async with client.messages.stream(**ASK, tools=TOOLS) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**ASK, tools=TOOLS)
    block = {"type": "tool_use", "id": "c1", "name": "look", "input": {"INVALID_JSON": '{"at": oops'}}
    assert content_of(streamed) == content_of(whole) == [block]
    assert streamed.stop_reason == whole.stop_reason == "tool_use"


class Sheep(BaseModel):
    name: str
    age: int


async def test_anthropic_parses_a_structured_answer(listening: Listening) -> None:
    service = ScriptedService(saying('{"name": "Dolly", ', '"age": 6}'))
    async with connecting(listening, service) as client:
        parsed = await client.messages.parse(**ASK, output_format=Sheep)
        async with client.messages.stream(**ASK, output_format=Sheep) as stream:
            streamed = await stream.get_final_message()
    assert parsed.parsed_output == streamed.parsed_output == Sheep(name="Dolly", age=6)
    for request in service.requests:
        assert request.schema is not None
        assert request.schema["properties"].keys() == {"name", "age"}


@pytest.mark.parametrize(
    ("finished", "reason", "sequence"),
    [
        (Finished("end"), "end_turn", None),
        (Finished("length"), "max_tokens", None),
        (Finished("stop", stop="###"), "stop_sequence", "###"),
        (Finished("filtered"), "refusal", None),
    ],
)
async def test_anthropic_knows_why_an_answer_ended(
    listening: Listening, finished: Finished, reason: str, sequence: str | None
) -> None:
    async with connecting(listening, ScriptedService(playing(Started("m"), finished))) as client:
        whole = await client.messages.create(**ASK)
        async with client.messages.stream(**ASK) as stream:
            streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
        assert content_of(message) == [{"type": "text", "text": ""}]


async def test_anthropic_counts_tokens_without_an_answer(listening: Listening) -> None:
    service = ScriptedService(playing())
    async with connecting(listening, service) as client:
        counted = await client.messages.count_tokens(
            model="claude-x", system="Be brief.", messages=ASK["messages"], tools=TOOLS, thinking=THINK
        )
        more = await client.beta.messages.count_tokens(model="claude-x", messages=ASK["messages"])
    assert (counted.input_tokens, more.input_tokens) == (len("Be brief.Hello"), len("Hello"))
    assert [tool.name for tool in service.requests[0].tools] == ["look", "see"]
    count = "/v1/messages/count_tokens"
    assert service.endpoints == [count] * 2
    routes = Route("other", endpoint="/v1/*s"), Route("counter", endpoint=count), Route("main", endpoint="/v1/messages")
    chosen = [Router(some).choose("m", count).target for some in (routes[1:], routes[2:], routes)]
    assert chosen == ["counter", "main", "other"]  # a route of either path takes a count, and the first one counts


# ---- errors


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_raises_bad_request_on_overflow(listening: Listening, stream: bool) -> None:
    full = ContextFull(needed=9000, limit=4096)
    async with connecting(listening, ScriptedService(playing(full))) as client:
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9000 tokens > 4096 maximum") as caught:
            await client.messages.create(**ASK, stream=stream)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("error", "expected", "kind"),
    [
        (NotAllowed("no", status=403), anthropic.PermissionDeniedError, "permission_error"),
        (UnknownModel("claude-x"), anthropic.NotFoundError, "not_found_error"),
        (RateLimited("slow down", backend="b"), anthropic.RateLimitError, "rate_limit_error"),
        (EngineError("broken"), anthropic.InternalServerError, "api_error"),
        (BadReply("nonsense", backend="b"), anthropic.InternalServerError, "api_error"),
        (EngineDown("gone"), anthropic.InternalServerError, "overloaded_error"),
        (TimedOut("late", backend="b"), anthropic.InternalServerError, "timeout_error"),
        (Refused("busy", backend="b", status=529), anthropic.InternalServerError, "overloaded_error"),
    ],
)
async def test_anthropic_raises_its_own_error_for_each_of_ours(
    listening: Listening, error: Exception, expected: type[anthropic.APIStatusError], kind: str
) -> None:
    async with connecting(listening, ScriptedService(playing(error))) as client:
        with pytest.raises(expected, match=str(error)) as caught:
            await client.messages.create(**ASK)
        assert caught.value.type == kind
        with pytest.raises(expected):
            await client.messages.create(**ASK, stream=True)


async def test_anthropic_raises_in_the_middle_of_a_stream(listening: Listening) -> None:
    script = playing(Started("m"), TextDelta("a"), EngineError("the engine broke"))
    texts: list[str] = []
    async with connecting(listening, ScriptedService(script)) as client:
        with pytest.raises(anthropic.APIStatusError, match="the engine broke") as caught:
            await read(client, texts)
    assert texts == ["a"]
    assert caught.value.type == "api_error"


async def read(client: anthropic.AsyncAnthropic, texts: list[str]) -> None:
    async with client.messages.stream(**ASK) as stream:
        async for text in stream.text_stream:
            texts.append(text)


async def test_anthropic_reads_the_errors_of_a_wrong_field_and_a_missing_key(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("Hi")), api_keys=("sk",)) as client:
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(**ASK)
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.count_tokens(model="m", messages=ASK["messages"])
        client.api_key = "sk"
        with pytest.raises(anthropic.BadRequestError, match="temperature must be"):
            await client.messages.create(**ASK, extra_body={"temperature": -1})
        with pytest.raises(anthropic.BadRequestError, match="messages is empty"):
            await client.messages.count_tokens(model="m", messages=[])


async def test_what_is_no_surface_below_messages_is_refused_in_the_same_shape(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("Hi"))) as client:
        with pytest.raises(anthropic.NotFoundError) as caught:
            await client.messages.batches.list()
        assert caught.value.type == "not_found_error"
    async with listening(ScriptedService(saying("Hi"))) as url, httpx2.AsyncClient(base_url=url) as http:
        refused = await http.get("/v1/messages")
    assert (refused.status_code, refused.json()["error"]["type"]) == (405, "invalid_request_error")


async def test_broken_bodies_are_refused_in_the_shape_of_the_protocol(listening: Listening) -> None:
    async with listening(ScriptedService(saying("Hi"))) as url, httpx2.AsyncClient(base_url=url) as http:
        for body in (b"", b"{", b"[]", b'{"messages": 5}', b'{"messages": [{"role": "robot"}]}'):
            for path in ("/v1/messages?beta=true", "/v1/messages/count_tokens?beta=true"):
                refused = await http.post(path, content=body)
                assert (refused.status_code, refused.json()["type"]) == (400, "error")
                assert refused.json()["error"]["type"] == "invalid_request_error"


async def test_what_claude_code_sends_is_answered(listening: Listening, conformance: Path) -> None:
    files = sorted((conformance / "clients" / "claude-code").glob("*.json"))
    assert files
    service = ScriptedService(playing(*ANSWER))
    async with listening(service) as url, httpx2.AsyncClient(base_url=url) as http:
        for exchange in (json.loads(file.read_text()) for file in files):
            answer = await http.post(exchange["path"], json=exchange["body"], headers=exchange["headers"])
            assert answer.headers["content-type"].startswith("text/event-stream")
            records = [
                json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line[:5] == "data:"
            ]
            assert [records[0]["type"], records[-1]["type"]] == ["message_start", "message_stop"]
            assert records[0]["message"]["model"] == exchange["body"]["model"]
            assert exchange["headers"]["X-Claude-Code-Session-Id"] in (service.requests[-1].session or "")
            asked = {key: exchange["body"][key] for key in ("model", "messages", "system", "tools")}
            counted = await http.post("/v1/messages/count_tokens?beta=true", json=asked)
            assert counted.json()["input_tokens"] > 0


# ---- silence, and the end of a client


async def test_a_silence_is_filled_with_pings_that_the_client_skips(listening: Listening) -> None:
    pinged = asyncio.Event()

    async def script(request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m", usage=PROMPT)
        await pinged.wait()
        yield TextDelta("Hi")
        yield Finished("end")

    service = ScriptedService(script)
    async with listening(service, limits=Limits(ping_s=0.01)) as url, httpx2.AsyncClient(base_url=url) as http:
        raw = ""
        async with http.stream("POST", "/v1/messages", json={**ASK, "stream": True}) as answer:
            async for piece in answer.aiter_text():
                raw += piece
                if "event: ping" in raw:
                    pinged.set()
    names = [line.removeprefix("event: ") for line in raw.splitlines() if line.startswith("event: ")]
    assert names[:2] == ["message_start", "ping"]  # the counts are there before the prefill has ended
    assert [name for name in names if name != "ping"][1:] == [
        "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert raw.count("data: ") == len(names)


async def test_anthropic_cancels_by_leaving_the_loop(listening: Listening) -> None:
    service = ScriptedService(saying(*["word "] * 100_000))
    async with connecting(listening, service) as client:
        async with client.messages.stream(**ASK) as stream:
            async for _ in stream.text_stream:
                break
        await service.ended.wait()
    assert service.requests[0].messages == (Message.user("Hello"),)


# ---- the embedded model
