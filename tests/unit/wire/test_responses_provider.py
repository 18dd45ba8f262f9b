"""The client half of Responses, and what our server passes on between a client and a provider of this protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import response_create_params
from pydantic import TypeAdapter
from tests.cases import examples
from tests.unit.wire.recordings import replayed
from tests.unit.wire.test_openai_client import answers

from shepherd.core import (
    BadCall,
    Document,
    Event,
    Finished,
    Grammar,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    OpaqueBlock,
    Part,
    Reasoning,
    ReasoningDelta,
    Reply,
    Request,
    Sampling,
    Started,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    fold,
    replay,
)
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint, Failure
from shepherd.wire.openai import shared_fields
from shepherd.wire.openai.responses import client, codec
from shepherd.wire.openai.responses.parts import annotated, phase_of
from shepherd.wire.openai.responses.stream import ResponsesOptions
from shepherd.wire.values import BrokenAnswer

ENDPOINT = Endpoint("gpt-x", "openai:gpt-x", efforts=("low", "high"), thinks_by="effort", reads_documents=True)
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "integer"}}})
ASK = Request("m", (Message.user("Hello."),))
THOUGHT: Json = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "gAAA",
}
SEARCH: Json = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}


def compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


FOUND = {"type": "output_text", "text": "foundA"}
SIGNED = Reasoning("Hm.", f"openai.responses:{compact(THOUGHT)}")
SEARCHED = Opaque("openai.responses", compact(SEARCH))


def body_of(request: Request, **endpoint: Any) -> Json:
    return client.encode_request(request, replace(ENDPOINT, **endpoint))


def items_of(*messages: Message, **endpoint: Any) -> list[Json]:
    found: list[Json] = body_of(Request("m", messages), **endpoint)["input"]
    return found


# ---- the body


def test_a_whole_conversation_is_encoded() -> None:
    request = Request(
        "m",
        (
            Message.system("Be brief."),
            Message(
                "user", (Text("Look."), Image(url="http://x/a.png"), Document("a.pdf", "application/pdf", b"%PDF"))
            ),
            Message("assistant", (SIGNED, ToolCall("a", "look", '{"at": 1}'), phase_of("commentary"), Text("I do."))),
            Message("tool", (ToolResult("a", (Text("one"), Image("image/png", b"png"))),)),
            Message.user("And?"),
        ),
        tools=(TOOL,),
        tool_choice=("named", "look"),
        sampling=Sampling(temperature=0.5, top_k=40, seed=1),
        max_tokens=5,
        reasoning="max",
        parallel_calls=False,
        session="thread",
        logprobs=2,
        schema={"type": "object"},
    )
    assert body_of(request) == {
        "model": "gpt-x",
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look."},
                    {"type": "input_image", "image_url": "http://x/a.png", "detail": "auto"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                ],
            },
            THOUGHT,
            {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"at": 1}'},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I do."}],
                "phase": "commentary",
            },
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [
                    {"type": "input_text", "text": "one"},
                    {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"},
                ],
            },
            {"type": "message", "role": "user", "content": "And?"},
        ],
        "tools": [
            {"type": "function", "name": "look", "description": "Look.", "parameters": TOOL.parameters, "strict": False}
        ],
        "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False,
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_object"}},
        "max_output_tokens": 16,
        "temperature": 0.5,
        "top_logprobs": 2,
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "prompt_cache_key": shared_fields.hashed("thread", 64),
        "store": False,
        "stream": True,
    }


def test_thoughts_go_back_as_they_came_and_only_in_front_of_what_they_led_to() -> None:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    tail = {"type": "message", "role": "user", "content": "b"}
    cases: list[tuple[tuple[Part, ...], str | None, list[Json]]] = [
        ((SIGNED, Text("A")), "openai:gpt-x", [THOUGHT, said]),
        ((SIGNED, SIGNED, SEARCHED, Text("A")), None, [THOUGHT, THOUGHT, SEARCH, said]),
        ((Text("A"), SIGNED), None, [said]),
        ((SIGNED,), None, []),
        ((SIGNED, Text("A")), "openai:another", [said]),
        ((Reasoning("Hm."), Reasoning("", "openai.responses:no JSON"), Text("A")), None, [said]),
        ((Reasoning("Hm.", "anthropic:x"), Text("A")), None, [said]),
        ((Opaque("anthropic", "{}", (Text("found"),)), Text("A")), None, [{**said, "content": [FOUND]}]),
    ]
    for parts, origin, items in cases:
        assert items_of(Message("assistant", parts, origin), Message.user("b")) == [*items, tail]


def test_every_quirk_changes_what_the_table_says() -> None:
    system = Message.system("S")
    image = Message("tool", (ToolResult("a", (Image("image/png", b"png"),), "look"),))
    asked = Message("assistant", (ToolCall("a", "look", "{}"),))
    assert items_of(system, quirks=frozenset({"developer"}))[0]["role"] == "developer"
    body = body_of(ASK, quirks=frozenset({"summaries"}))
    assert body["reasoning"] == {"summary": "auto"}
    for quirks, include in ((frozenset({"encrypted_reasoning"}), ["reasoning.encrypted_content"]), (frozenset(), None)):
        assert body_of(ASK, quirks=quirks, efforts=(), thinks_by="").get("include") == include
    result, behind = items_of(asked, image, quirks=frozenset({"text_outputs"}))[1:]
    assert (result["output"], behind["role"], len(behind["content"])) == ("", "user", 2)
    assert "prompt_cache_key" not in body_of(replace(ASK, session="s"), quirks=frozenset({"no_cache_key"}))
    tested = {"developer", "summaries", "encrypted_reasoning", "text_outputs", "no_cache_key"}
    assert tested == set(client.QUIRKS)


def test_what_only_the_protocol_knows_passes_through_our_server() -> None:
    patch = {
        "type": "custom",
        "name": "patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
    }
    sent: Json = {
        "model": "m",
        "input": [
            {"role": "user", "content": "a"},
            THOUGHT,
            SEARCH,
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "+x"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
            {"type": "computer_call_output", "call_id": "d", "output": {}},
        ],
        "tools": [{"type": "web_search"}, {"type": "function", "name": "look"}, patch],
        "tool_choice": {"type": "custom", "name": "patch"},
        "include": ["web_search_call.action.sources"],
        "reasoning": {"effort": "high", "summary": "detailed"},
        "text": {"verbosity": "low"},
        "service_tier": "flex",
        "metadata": {"a": "b"},
        "store": True,
        "previous_response_id": "resp_1",
        codec.N_STORED: 0,
        "prompt_cache_key": "k",
    }
    body = body_of(codec.decode_request(sent).request)
    assert body["input"][1:] == [THOUGHT, SEARCH, *sent["input"][3:]]
    assert [tool["type"] for tool in body["tools"]] == ["function", "custom", "web_search"]
    assert body["tools"][1] == patch
    assert body["tool_choice"] == sent["tool_choice"]
    assert body["include"] == ["web_search_call.action.sources", "reasoning.encrypted_content"]
    assert body["reasoning"] == {"effort": "high", "summary": "detailed"}
    assert body["text"] == {"verbosity": "low"}
    assert (body["service_tier"], body["metadata"], body["store"]) == ("flex", {"a": "b"}, False)
    assert body.keys() & {"previous_response_id", codec.N_STORED, "instructions", "user"} == set()


def test_what_the_protocol_cannot_say_is_refused_and_what_a_model_refuses_is_not_sent() -> None:
    for request, field in (
        (replace(ASK, stop=("x",)), "stop"),
        (replace(ASK, grammar=Grammar("gbnf", 'root ::= "a"')), "grammar"),
    ):
        with pytest.raises(InvalidRequest) as raised:
            body_of(request)
        assert raised.value.field == field
    body = body_of(replace(ASK, sampling=Sampling(temperature=1)), refuses=frozenset({"temperature", "store"}))
    assert body.keys() & {"temperature", "store", "tools", "max_output_tokens"} == set()
    assert None not in body.values()


def test_the_beginning_of_a_prompt_stays_the_same_bytes() -> None:
    asked = Message("assistant", (SIGNED, ToolCall("a", "look", "{}")))
    longer = (
        ASK.messages[0],
        asked,
        Message("tool", (ToolResult("a", (Text("1"),)),)),
        Message.assistant("Two."),
        ASK.messages[0],
    )
    for n in (1, 3, 5):
        short = json.dumps(items_of(*longer[:n]))
        assert json.dumps(items_of(*longer)).startswith(short[:-1])


def test_a_prompt_is_counted_with_what_belongs_to_it() -> None:
    body = client.encode_count(replace(ASK, tools=(TOOL,), max_tokens=99, sampling=Sampling(temperature=1)), ENDPOINT)
    assert body.keys() == {"model", "input", "tools"}
    assert client.decode_count({"input_tokens": 18, "object": "response.input_tokens"}) == 18
    with pytest.raises(BrokenAnswer):
        client.decode_count({"input_tokens": None})


def test_the_vendors_types_accept_our_bodies() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(response_create_params.ResponseCreateParamsStreaming)
    asked = Message("assistant", (SIGNED, ToolCall("a", "look", "{}")))
    result = Message("tool", (ToolResult("a", (Text("1"), Image("image/png", b"x"))),))
    request = Request(
        "m", (Message.system("S"), ASK.messages[0], asked, result), tools=(TOOL,), reasoning="low", session="s"
    )
    body = body_of(request)
    assert adapter.validate_python(body).keys() == body.keys()


# ---- the answer


def sse(*records: Json | str) -> bytes:
    lines = [f"event: {each['type']}\ndata: {json.dumps(each)}" if isinstance(each, dict) else each for each in records]
    return "".join(f"{line}\n\n" for line in lines).encode()


def at(index: int, kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def end(*output: Json, kind: str = "completed", **fields: Any) -> Json:
    return {"type": f"response.{kind}", "response": {"model": "m", "status": kind, "output": list(output), **fields}}


def message(text: str, id: str = "msg_1", **fields: Any) -> Json:
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
        **fields,
    }


def function(arguments: Any = "{}", id: str = "a", **fields: Any) -> Json:
    return {"id": f"fc_{id}", "type": "function_call", "call_id": id, "name": "look", "arguments": arguments, **fields}


def read(data: bytes, cuts: Iterable[int] = ()) -> Reply:
    return fold(replayed(client.decoder(ASK, ENDPOINT), data, cuts))


CREATED: Json = {"type": "response.created", "response": {"model": "m-1", "status": "in_progress", "output": []}}
A = ToolCall("a", "look", "{}")
SHAPES: list[tuple[str, list[Json | str], tuple[Part, ...], StopReason]] = [
    ("only an end", [end(message("A"))], (Text("A"),), "end"),
    (
        "deltas, and an end without items",
        [at(0, "output_item.added", item=message("") | {"content": []}), at(0, "output_text.delta", delta="A"), end()],
        (Text("A"),),
        "end",
    ),
    (
        "a thought with its proof",
        [
            at(0, "output_item.added", item={"id": "rs_1", "type": "reasoning", "summary": []}),
            at(0, "reasoning_summary_text.delta", summary_index=0, delta="Hm"),
            at(0, "reasoning_summary_text.delta", summary_index=0, delta="."),
            at(0, "output_item.done", item=THOUGHT | {"status": None}),
            at(1, "output_item.done", item=message("A")),
            end(THOUGHT, message("A")),
        ],
        (SIGNED, Text("A")),
        "end",
    ),
    (
        "a hidden thought",
        [end(THOUGHT | {"summary": []}, function())],
        (Reasoning("", f"openai.responses:{compact(THOUGHT | {'summary': []})}", redacted=True), A),
        "tool_calls",
    ),
    (
        "two parts of a summary",
        [
            at(0, "output_item.added", item={"type": "reasoning"}),
            at(0, "reasoning_summary_text.delta", summary_index=0, delta="a"),
            at(0, "reasoning_summary_text.delta", summary_index=1, delta="b"),
            at(0, "reasoning_text.delta", content_index=0, delta="the same in full"),
            end({"type": "reasoning", "summary": [{"text": "a"}, {"text": "b"}]}, message("A")),
        ],
        (Reasoning("a\n\nb"), Text("A")),
        "end",
    ),
    (
        "a call in pieces, the end of which only its item has",
        [
            at(0, "output_item.added", item=function("")),
            at(0, "function_call_arguments.delta", delta='{"a'),
            at(0, "output_item.done", item=function('{"a": 1}')),
            end(),
        ],
        (replace(A, arguments='{"a": 1}'),),
        "tool_calls",
    ),
    (
        "a text that comes into the middle of a call",
        [
            at(0, "output_item.added", item=function("")),
            at(1, "output_item.added", item=message("") | {"content": []}),
            at(1, "output_text.delta", delta="A"),
            at(0, "function_call_arguments.delta", delta="{}"),
            at(0, "output_item.done", item=function()),
            end(),
        ],
        (A, Text("A")),
        "tool_calls",
    ),
    (
        "a text that nothing announces",
        [at(0, "reasoning_text.delta", delta="Hm."), at(1, "output_text.delta", delta="A"), end()],
        (Reasoning("Hm."), Text("A")),
        "end",
    ),
    (
        "an open call, and a text in front of it that only the end has",
        [at(1, "output_item.added", item=function("")), end(message("A"), function())],
        (A, Text("A")),
        "tool_calls",
    ),
    (
        "items by their ids alone",
        [
            {"type": "response.output_item.added", "item": function("")},
            {"type": "response.function_call_arguments.delta", "item_id": "fc_a", "delta": "{}"},
            {"type": "response.output_item.done", "item": function()},
            end(function()),
        ],
        (A,),
        "tool_calls",
    ),
    (
        "one id for two items",
        [end(THOUGHT, SEARCH, THOUGHT, message("A"))],
        (SIGNED, SEARCHED, SIGNED, Text("A")),
        "end",
    ),
    ("arguments as an object", [end(function({"a": 1}))], (replace(A, arguments='{"a":1}'),), "tool_calls"),
    ("no arguments", [end(function(""))], (A,), "tool_calls"),
    (
        "any text for a tool",
        [end({"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "+x"})],
        (ToolCall("a", "patch", '{"input": "+x"}'),),
        "tool_calls",
    ),
    (
        "an answer that is cut off in a call",
        [end(function('{"a'), kind="incomplete", incomplete_details={"reason": "max_output_tokens"})],
        (BadCall('{"a', "the arguments are not valid JSON: it ends before its end.", "a", "look"),),
        "length",
    ),
    (
        "a filter",
        [end(message("A"), kind="incomplete", incomplete_details={"reason": "content_filter"})],
        (Text("A"),),
        "filtered",
    ),
    (
        "a refusal",
        [
            at(0, "output_item.added", item=message("")),
            at(0, "refusal.delta", delta="No."),
            end(message("") | {"content": [{"type": "refusal", "refusal": "No."}]}),
        ],
        (Text("No."),),
        "filtered",
    ),
    (
        "phases",
        [end(message("a", "m1", phase="commentary"), message("b", "m2", phase="final_answer"))],
        (phase_of("commentary"), Text("a"), phase_of("final_answer"), Text("b")),
        "end",
    ),
    (
        "unknown events, null fields and comments",
        [
            ": ping",
            CREATED,
            {"type": "response.new", "x": 1},
            at(0, "content_part.added", part=None),
            at(7, "function_call_arguments.delta", delta="lost"),
            {"type": "keepalive"},
            "data: [DONE]",
            end(message("A"), usage=None),
        ],
        (Text("A"),),
        "end",
    ),
]


@pytest.mark.parametrize(
    ("records", "parts", "reason"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES]
)
def test_every_shape_of_an_answer_is_read(
    records: list[Json | str], parts: tuple[Part, ...], reason: StopReason
) -> None:
    data = sse(*records)
    reply = read(data)
    assert (reply.message, reply.reason) == (Message("assistant", parts, ENDPOINT.origin), reason)
    assert read(data, range(0, len(data), 3)) == reply


def test_a_server_that_sends_no_pieces_and_no_items_at_the_end() -> None:
    """Only `done` of each text: what has come is neither lost nor taken for a call without arguments."""
    data = sse(
        CREATED,
        at(0, "output_item.added", item=message("")),
        at(0, "output_text.done", content_index=0, text="Hi"),
        at(1, "output_item.added", item=function("")),
        at(1, "function_call_arguments.done", arguments='{"at":1}'),
        at(2, "output_item.added", item={"id": "c", "type": "custom_tool_call", "call_id": "c", "name": "patch"}),
        at(2, "custom_tool_call_input.delta", delta="*** "),
        at(2, "custom_tool_call_input.delta", delta="End"),
        at(2, "output_item.done", item={"type": "custom_tool_call"}),
        end(),
    )
    free = ToolCall("c", "patch", '{"input": "*** End"}')
    assert read(data).message.parts == (Text("Hi"), ToolCall("a", "look", '{"at":1}'), free)


def test_a_thought_that_ends_behind_its_answer_stands_in_front_of_it() -> None:
    """As LM Studio sends it."""
    thought = {"id": "rs_1", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    data = sse(
        CREATED,
        at(0, "output_item.added", item={**thought, "content": []}),
        at(0, "reasoning_text.delta", content_index=0, delta="Hm."),
        at(1, "output_item.added", item=message("")),
        at(1, "output_text.delta", delta="Hi"),
        at(1, "output_item.done", item=message("Hi")),
        at(0, "output_item.done", item=thought),
        end(thought, message("Hi")),
    )
    proof = f"openai.responses:{compact(thought)}"
    assert read(data).message.parts == (Reasoning("Hm.", proof), Text("Hi"))


def test_an_answer_begins_with_its_first_item_because_an_error_may_come_before() -> None:
    decoder = client.decoder(ASK, ENDPOINT)

    def feed(record: Json) -> list[Event]:
        return list(decoder.feed("", json.dumps(record).encode()))

    assert feed(CREATED) == []
    assert feed(at(0, "output_item.added", item=message("") | {"content": []})) == [Started("m-1", ENDPOINT.origin)]
    assert feed(at(0, "output_text.delta", delta="A")) == [TextDelta("A")]
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    assert feed(end(message("A"), usage=usage)) == [Finished("end", Usage(5, 4, 0, 3, 2))]
    assert list(decoder.close()) == []


def test_an_error_in_any_place_is_a_failure() -> None:
    quota = {"code": "insufficient_quota", "message": "no"}
    for record in (
        {"type": "error", "error": quota},
        {"type": "error", **quota},
        {"type": "response.failed", "response": {"status": "failed", "error": quota}},
        {"error": quota},
    ):
        with pytest.raises(Failure) as raised:
            read(sse(CREATED) + b"data: " + json.dumps(record).encode() + b"\n\n")
        assert raised.value.body["error"]["code"] == "insufficient_quota"
    with pytest.raises(Failure):
        fold(client.decoder(ASK, ENDPOINT).whole({"error": quota}))


def test_a_stream_that_ends_before_its_end_is_broken() -> None:
    records = [CREATED, at(0, "output_item.added", item=function("")), at(0, "output_item.done", item=function())]
    for n in range(len(records) + 1):
        with pytest.raises(BrokenAnswer):
            read(sse(*records[:n]))
    for data in (b"data: {\n\n", b"data: 5\n\n", b"<html>", sse({"type": "response.completed", "response": None})):
        with pytest.raises(BrokenAnswer):
            read(data)
    for body in ({}, {"output": None}, {"status": "queued", "output": []}):
        with pytest.raises(BrokenAnswer):
            fold(client.decoder(ASK, ENDPOINT).whole(body))


# ---- there and back


def written(events: Iterable[Event], options: ResponsesOptions) -> bytes:
    encoder = codec.encoder(options, id="resp_1", created=1, model="m")
    return b"".join([encoder.encode(event) for event in events])


OWN: list[tuple[Part, ...]] = [
    (SIGNED, A),
    (
        Reasoning("", f"openai.responses:{compact(THOUGHT | {'summary': []})}", redacted=True),
        SEARCHED,
        SIGNED,
        Text("A"),
    ),
    (phase_of("commentary"), Text("a"), SIGNED, A, phase_of("final_answer"), Text("b")),
]


@pytest.mark.parametrize("parts", OWN)
def test_what_a_provider_of_the_protocol_made_reaches_the_client_as_it_is(parts: tuple[Part, ...]) -> None:
    answer = Message("assistant", parts, ENDPOINT.origin)
    events: list[Event] = []
    for event in replay(answer):
        if isinstance(event, ReasoningDelta) and event.text:  # as the provider sends it
            events += [ReasoningDelta(event.text, id="rs_1"), replace(event, text="", id="rs_1")]
        else:
            events.append(event)
    options = ResponsesOptions({"tools": []})
    records = [
        json.loads(line[6:]) for line in written(events, options).decode().splitlines() if line.startswith("data: ")
    ]
    output = records[-1]["response"]["output"]
    sent = [
        json.loads(part.signature.partition(":")[2]) for part in parts if isinstance(part, Reasoning) and part.signature
    ]
    assert [item for item in output if item["type"] == "reasoning"] == sent
    assert [item for item in output if item["type"] == "web_search_call"] == [SEARCH] * (SEARCHED in parts)
    begun = {
        record["output_index"]: record["item"]["id"] for record in records if record["type"].endswith("item.added")
    }
    assert [begun[index] for index in range(len(output))] == [item["id"] for item in output]
    for record in records:
        if "item_id" in record:
            assert record["item_id"] == begun[record["output_index"]]
    # The whole reply is the same, and both come back as they were: in the next request, and to our own client half.
    whole = codec.encoder(options, id="resp_1", created=1, model="m").encode_replies([fold(events)])
    assert whole["output"] == output
    ask = codec.decode_request({"input": [{"role": "user", "content": "a"}, *output, {"role": "user", "content": "b"}]})
    assert ask.request.messages[1].parts == parts
    assert fold(replayed(client.decoder(ASK, ENDPOINT), written(events, options))).message == answer
    assert fold(client.decoder(ASK, ENDPOINT).whole(whole)).message == answer


@given(answers(), st.sampled_from(["end", "length", "filtered"]), st.lists(st.floats(0, 1), max_size=6), st.booleans())
@settings(max_examples=examples(200))
def test_what_our_server_writes_is_read_as_it_was(
    answer: Message, reason: StopReason, cuts: list[float], in_summaries: bool
) -> None:
    reason = "tool_calls" if answer.calls and reason == "end" else reason
    options = ResponsesOptions({"tools": []}, thinks_in_summaries=in_summaries)
    events: list[Event] = [*list(replay(answer))[:-1], Finished(reason, Usage(3, 2, 1, 5, 4))]
    data = written(events, options)
    edges = sorted(round(cut * len(data)) for cut in cuts)
    body = codec.encoder(options, id="resp_1", created=1, model="m").encode_replies([fold(events)])
    for reply in (
        fold(replayed(client.decoder(ASK, ENDPOINT), data, edges)),
        fold(client.decoder(ASK, ENDPOINT).whole(body)),
    ):
        parts = tuple(
            replace(part, signature=None) if isinstance(part, Reasoning) else part for part in reply.message.parts
        )
        assert parts == answer.parts
        assert (reply.reason, reply.usage, reply.model) == (reason, Usage(3, 2, 1, 5, 4), "m")


def test_the_annotations_of_a_text_pass_through() -> None:
    note = {"type": "url_citation", "url": "http://x/", "start_index": 0, "end_index": 1}
    said = message("A") | {"content": [{"type": "output_text", "text": "A", "annotations": [note]}]}
    answer = read(sse(end(said))).message
    assert answer.parts == (Text("A"), annotated([note]))
    data = written(replay(answer), ResponsesOptions({"tools": []}))
    assert b"response.output_text.annotation.added" in data
    assert fold(replayed(client.decoder(ASK, ENDPOINT), data)).message == answer
    assert items_of(answer) == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    ]


def test_blocks_of_other_protocols_are_left_out() -> None:
    events: list[Event] = [Started("m"), OpaqueBlock(Opaque("anthropic", "{}")), TextDelta("A"), Finished("end")]
    assert read(written(events, ResponsesOptions({"tools": []}))).message.parts == (Text("A"),)
