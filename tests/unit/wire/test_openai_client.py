"""The client half of chat completions: bodies that servers accept, answers in all the ways that servers write them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter
from tests.cases import examples
from tests.unit.wire.recordings import replayed

from shepherd.core import (
    BadCall,
    Completion,
    Document,
    Event,
    Finished,
    Grammar,
    Image,
    InvalidRequest,
    Message,
    Native,
    Part,
    Reasoning,
    ReasoningLevel,
    Reply,
    Request,
    Sampling,
    Started,
    StopReason,
    Text,
    TextDelta,
    TokenScore,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    fold,
    replay,
)
from shepherd.wire.base import Json
from shepherd.wire.client import Effort, Endpoint, Failure, new_call_id
from shepherd.wire.openai import chat, client, shared_fields
from shepherd.wire.openai.call_decoder import Calls
from shepherd.wire.openai.chat import ChatOptions
from shepherd.wire.values import BrokenAnswer

ENDPOINT = Endpoint("gpt-x", "openai:gpt-x")
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "integer"}}})
ASK = Request("m", (Message.user("Hello."),))
CHAT = (
    Message.system("Be brief."),
    Message("user", (Text("Look."), Image("image/png", b"png"), Document("a.pdf", "application/pdf", b"%PDF"))),
    Message(
        "assistant",
        (Reasoning("Hm."), Text("I do."), ToolCall("a", "look", '{"at": 1}'), BadCall("{", "No.", "b", "look")),
    ),
    Message("tool", (ToolResult("a", (Text("one"), Image("image/png", b"PNG"))),)),
    Message.user("And?"),
)


def body_of(request: Request, **endpoint: Any) -> Json:
    return client.encode_request(request, replace(ENDPOINT, **endpoint))


# ---- the body


def test_a_user_s_name_does_not_become_the_key_of_a_cache() -> None:
    said = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "user": "ann"}
    endpoint = Endpoint("m", "o:m", quirks=frozenset({"cache_key"}))
    for more, expected in (({}, shared_fields.hashed("ann", 64)), ({"prompt_cache_key": "k"}, "k")):
        body = client.encode_request(chat.decode_request(said | more).request, endpoint)
        assert body["prompt_cache_key"] == expected
        assert "ann" not in json.dumps(body)


def test_a_whole_conversation_is_encoded() -> None:
    request = Request(
        "m",
        CHAT,
        tools=(TOOL, ToolSpec("rest", strict=True)),
        tool_choice=("named", "look"),
        sampling=Sampling(temperature=0.5, top_k=40, seed=7, repeat_last_n=-1, logit_bias=((5, -100.0),)),
        max_tokens=100_000,
        stop=("###",),
        parallel_calls=False,
        logprobs=2,
        session="s",
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}}
    assert body_of(request, reads_documents=True, max_output=64_000) == {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "I do.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
                    {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "There is no result: the call was not carried out."},
            {"role": "user", "content": [{"type": "text", "text": "Images of the result of look:"}, image]},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": TOOL.parameters}},
            {
                "type": "function",
                "function": {
                    "name": "rest",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": True,
                },
            },
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": False,
        "max_tokens": 64_000,
        "temperature": 0.5,
        "seed": 7,
        "logit_bias": {"5": -100.0},
        "stop": ["###"],
        "logprobs": True,
        "top_logprobs": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


THOUGHT = Message("assistant", (Reasoning("Hm."), Text("Yes.")))
QUIRKY: list[tuple[str, Request, Json, Json]] = [
    (
        "developer",
        ASK,
        {},
        {"messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "Hello."}]},
    ),
    ("max_completion_tokens", replace(ASK, max_tokens=5), {}, {"max_completion_tokens": 5, "max_tokens": None}),
    ("no_stream_options", ASK, {}, {"stream_options": None}),
    ("cache_key", replace(ASK, session="s" * 65), {}, {"prompt_cache_key": shared_fields.hashed("s" * 65, 64)}),
    ("samplers", replace(ASK, sampling=Sampling(top_k=4, dry_penalty_last_n=-1)), {}, {"top_k": 4}),
    (
        "repeat_penalty",
        replace(ASK, sampling=Sampling(repetition_penalty=1.1)),
        {"quirks": {"samplers"}},
        {"repeat_penalty": 1.1},
    ),
    ("grammars", replace(ASK, grammar=Grammar("regex", "a+")), {}, {"structured_outputs": {"regex": "a+"}}),
    (
        "continues",
        replace(ASK, messages=(*ASK.messages, Message.assistant("Well"))),
        {},
        {"continue_final_message": True, "add_generation_prompt": False},
    ),
    ("continues", replace(ASK, start="turn"), {}, {"continue_final_message": None}),
    (
        "template_arguments",
        replace(ASK, extra={"chat_template_kwargs": {"a": 1}}),
        {},
        {"chat_template_kwargs": {"a": 1}, "reasoning_effort": None},
    ),
    ("thinking_object", replace(ASK, reasoning="off"), {"thinks_by": "switch"}, {"thinking": {"type": "disabled"}}),
]
SAID: list[tuple[str, Message, Json]] = [
    ("reasoning_content", THOUGHT, {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}),
    ("reasoning", THOUGHT, {"role": "assistant", "content": "Yes.", "reasoning": "Hm."}),
    (
        "thinking_parts",
        THOUGHT,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "Yes."},
            ],
        },
    ),
    ("one_system", Message.system("Late."), {"role": "user", "content": "Late."}),
    (
        "file_urls",
        Message("user", (Document("a", url="http://x/a.pdf"),)),
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": "http://x/a.pdf"}}]},
    ),
    (
        "document_urls",
        Message("user", (Document("a", url="http://x/a.pdf"),)),
        {"role": "user", "content": [{"type": "document_url", "document_url": "http://x/a.pdf", "document_name": "a"}]},
    ),
]


def test_every_quirk_changes_what_the_table_says() -> None:
    system = Message.system("S")
    for quirk, request, endpoint, expected in QUIRKY:
        quirks = frozenset({quirk, *endpoint.pop("quirks", ())})
        body = body_of(replace(request, messages=(system, *request.messages)), quirks=quirks, **endpoint)
        assert {key: body.get(key) for key in expected} == expected, quirk
    for quirk, message, said in SAID:
        messages = (system, ASK.messages[0], message)
        body = body_of(replace(ASK, messages=messages), quirks=frozenset({quirk}), reads_documents=True)
        assert body["messages"][2] == said, quirk
    proven = Message("assistant", (ToolCall("call_1", "look", "{}", signature="gemini:CiQB"),))
    for quirk in ("extra_content", "short_ids"):
        (said, _) = body_of(replace(ASK, messages=(proven,)), quirks=frozenset({quirk}))["messages"]
        extra = {"google": {"thought_signature": "CiQB"}} if quirk == "extra_content" else None
        assert said["tool_calls"][0].get("extra_content") == extra
    call = Message("assistant", (ToolCall("call_1", "look", "{}"),))
    (said, result) = body_of(replace(ASK, messages=(call,)), quirks=frozenset({"short_ids"}))["messages"]
    id = said["tool_calls"][0]["id"]
    assert (len(id), id.isalnum(), result["tool_call_id"]) == (9, True, id)
    elsewhere = {"short_ids", "extra_content", "custom_tools", "flac", "audio_text"}
    assert {quirk for quirk, *_ in (*QUIRKY, *SAID)} | elsewhere == set(client.QUIRKS)


def test_tools_of_any_text_stay_what_they_are_where_the_provider_has_them() -> None:
    patch: Json = {
        "name": "patch",
        "description": "Edits.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark"}},
    }
    sent: Json = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": 'a"\n'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ],
        "tools": [
            {"type": "custom", "custom": patch},
            {"type": "custom", **patch, "name": "flat"},
            {"type": "function", "function": {"name": "look", "parameters": {}}},
        ],
        "tool_choice": {"type": "custom", "custom": {"name": "patch"}},
    }
    request = chat.decode_request(sent).request
    body = body_of(request, quirks=frozenset({"custom_tools"}))
    assert body["tools"][:2] == [sent["tools"][0], {"type": "custom", "custom": {**patch, "name": "flat"}}]
    assert body["tools"][2]["type"] == "function"
    assert body["tool_choice"] == sent["tool_choice"]
    assert body["messages"][1]["tool_calls"] == sent["messages"][1]["tool_calls"]
    elsewhere = body_of(request)
    assert {tool["type"] for tool in elsewhere["tools"]} == {"function"}
    assert elsewhere["tool_choice"] == {"type": "function", "function": {"name": "patch"}}


def test_how_closely_an_image_is_seen_goes_on() -> None:
    for detail in ("", "low", "high"):
        image = replace(ASK, messages=(Message("user", (Image("image/png", b"x", detail=detail),)),))
        (part,) = body_of(image)["messages"][0]["content"]
        assert part["image_url"].get("detail", "") == detail


def test_what_the_provider_does_not_take_is_not_sent() -> None:
    request = Request("m", CHAT, max_tokens=5, sampling=Sampling(temperature=1, top_p=0.9))
    body = body_of(
        request, refuses=frozenset({"temperature", "max_tokens"}), options={"top_p": 1, "tier": "flex", "stop": ["x"]}
    )
    assert body["stop"] == ["x"]
    assert body.keys() & {"temperature", "max_tokens", "tools", "tool_choice", "reasoning_effort"} == set()
    assert (body["top_p"], body["tier"]) == (0.9, "flex")  # what the request says is stronger
    assert "a.pdf" in body["messages"][1]["content"][2]["text"]
    unseen = body_of(request, sees_images=False)["messages"]
    assert "image_url" not in json.dumps(unseen)
    assert None not in body.values()


def test_fields_that_only_the_protocol_knows_pass_through() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True}}
    sent = {
        "model": "m", "messages": [{"role": "user", "content": "a"}], "n": 2, "user": "ann", "store": False,
        "service_tier": "flex", "shepherd.x": 1, "response_format": form,
    }  # fmt: skip
    body = body_of(chat.decode_request(sent).request)
    assert body.keys() - {"model", "messages", "stream", "stream_options"} == {
        "store",
        "service_tier",
        "response_format",
    }
    assert body["response_format"] == form
    other = replace(ASK, native=Native("openai.responses", {"service_tier": "flex"}))
    assert "service_tier" not in body_of(other)


def test_a_bare_prompt_and_a_grammar_are_refused() -> None:
    for request, field in (
        (Request("m", completion=Completion("a")), "prompt"),
        (replace(ASK, grammar=Grammar("gbnf", 'root ::= "a"')), "grammar"),
    ):
        with pytest.raises(InvalidRequest) as raised:
            body_of(request)
        assert raised.value.field == field


def test_the_form_of_an_answer_is_strict_only_if_its_schema_is() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    cases: list[tuple[Json, bool]] = [
        (closed, True),
        ({**closed, "properties": {"a": closed}, "$defs": {"b": closed}}, True),
        ({**closed, "additionalProperties": True}, False),
        ({**closed, "required": []}, False),
        ({**closed, "properties": {"a": {"type": "string", "default": "x"}}}, False),
        ({**closed, "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, False),
        ({**closed, "properties": {"a": {"anyOf": [closed, {"type": "null"}]}}}, True),
        ({"type": "array", "items": closed}, False),
    ]
    for schema, strict in cases:
        form = body_of(replace(ASK, schema=schema))["response_format"]
        assert form == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}
    assert body_of(replace(ASK, schema={"type": "object"}))["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(
    ("efforts", "words"),
    [
        ((), {"off": None, "on": None, "low": None, "max": None}),
        (("low", "medium", "high"), {"off": "low", "on": None, "medium": "medium", "max": "high"}),
        (("none", "low", "high"), {"off": "none", "on": "low", "medium": "low", "high": "high"}),
        (("minimal", "low", "high", "xhigh"), {"off": "minimal", "low": "low", "max": "xhigh"}),
        (("none",), {"off": None, "high": None}),
    ],
)
def test_each_level_becomes_the_nearest_word_that_the_model_has(
    efforts: tuple[Effort, ...], words: dict[ReasoningLevel, str | None]
) -> None:
    for level, word in words.items():
        body = body_of(replace(ASK, reasoning=level), efforts=efforts, thinks_by="effort")
        assert body.get("reasoning_effort") == word, level
    assert "reasoning_effort" not in body_of(replace(ASK, reasoning="high"), efforts=efforts)


def test_the_beginning_of_a_prompt_stays_the_same_bytes() -> None:
    longer = (*CHAT, Message.assistant("Two."), Message.user("More."))
    quirks = frozenset({"one_system", "short_ids", "reasoning_content"})
    for n in range(len(CHAT), len(longer)):
        short = body_of(Request("m", longer[:n]), quirks=quirks)["messages"]
        assert json.dumps(body_of(Request("m", longer), quirks=quirks)["messages"]).startswith(json.dumps(short)[:-1])


def test_the_vendors_types_accept_our_bodies() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)
    request = Request(
        "m", CHAT, tools=(TOOL,), tool_choice="required", stop=("a",), logprobs=1, reasoning="high",
        schema={"type": "object", "properties": {}},
    )  # fmt: skip
    body = body_of(request, reads_documents=True, efforts=("low", "high"), thinks_by="effort")
    accepted = adapter.validate_python(body)
    assert accepted.keys() == body.keys()


# ---- the answer


def sse(*records: Json | str, done: bool = True) -> bytes:
    """A stream; a text is a line of its own."""
    lines = [record if isinstance(record, str) else f"data: {json.dumps(record)}" for record in records]
    return "".join(f"{line}\n\n" for line in [*lines, *(["data: [DONE]"] if done else [])]).encode()


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = "") -> Json:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(data: bytes, cuts: Iterable[int] = ()) -> Reply:
    ids = iter(f"made_{n}" for n in range(99))
    return fold(replayed(client.decoder(ASK, ENDPOINT, lambda: next(ids)), data, cuts))


A = ToolCall("a", "look", "{}")
SHAPES: list[tuple[str, list[Json | str], tuple[Part, ...], StopReason]] = [
    (
        "roles and empty texts in every delta",
        [delta(role="assistant", content=""), delta(role="assistant", content="A"), delta("stop", content="")],
        (Text("A"),),
        "end",
    ),
    (
        "no reason at the end",
        [delta(content="A"), delta(tool_calls=[call(0, "a", "look", "{}")])],
        (Text("A"), A),
        "tool_calls",
    ),
    (
        "each name of thoughts",
        [
            delta(reasoning_content="a"),
            delta(reasoning="b"),
            delta(thinking="c"),
            delta(reasoning="d", reasoning_content="d"),
            delta(reasoning_details=[{"type": "reasoning.summary", "summary": "e"}]),
            delta("stop", content="A"),
        ],
        (Reasoning("abcde"), Text("A")),
        "end",
    ),
    (
        "content as parts",
        [
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
            delta("stop", content=[{"type": "text", "text": "A"}]),
        ],
        (Reasoning("Hm."), Text("A")),
        "end",
    ),
    (
        "the message beside its last piece",
        [delta(content="A"), {"choices": [{"delta": {}, "message": {"content": "A"}, "finish_reason": "stop"}]}],
        (Text("A"),),
        "end",
    ),
    ("a refusal", [delta(refusal="No."), delta("stop")], (Text("No."),), "filtered"),
    ("no arguments", [delta(tool_calls=[call(0, "a", "look", "")]), delta("tool_calls")], (A,), "tool_calls"),
    ("arguments as an object", [delta("stop", tool_calls=[call(0, "a", "look", {})])], (A,), "tool_calls"),
    (
        "an id in every piece",
        [delta(tool_calls=[call(0, "a", "look", "{")]), delta(tool_calls=[call(0, "a", "look", "}")]), delta("stop")],
        (A,),
        "tool_calls",
    ),
    (
        "one index for all calls",
        [delta("stop", tool_calls=[call(0, "a", "look", "{}"), call(0, "b", "look", "{}")])],
        (A, replace(A, id="b")),
        "tool_calls",
    ),
    (
        "one index and no ids",
        [delta(tool_calls=[call(0, "", "look", "{}")]), delta("stop", tool_calls=[call(0, None, "look", "{}")])],
        (replace(A, id="made_0"), replace(A, id="made_1")),
        "tool_calls",
    ),
    (
        "no indexes",
        [delta("stop", tool_calls=[call(None, "a", "look", "{"), call(None, None, None, "}")])],
        (A,),
        "tool_calls",
    ),
    (
        "pieces of two calls in turn",
        [
            delta(tool_calls=[call(0, "a", "look", "{"), call(1, "b", "look", "{")]),
            delta(tool_calls=[call(0, None, None, "}"), call(1, None, None, "}")]),
            delta("stop"),
        ],
        (A, replace(A, id="b")),
        "tool_calls",
    ),
    (
        "the old form",
        [
            delta(function_call={"name": "look", "arguments": "{"}),
            delta("function_call", function_call={"arguments": "}"}),
        ],
        (replace(A, id="made_0"),),
        "tool_calls",
    ),
    (
        "a call that is cut off",
        [delta("length", tool_calls=[call(0, "a", "look", '{"a')])],
        (BadCall('{"a', "the arguments are not valid JSON: it ends before its end.", "a", "look"),),
        "length",
    ),
    (
        "a call that is no object",
        [delta("stop", tool_calls=[call(0, "a", "look", "[1]")])],
        (BadCall("[1]", "the arguments must be a JSON object.", "a", "look"),),
        "tool_calls",
    ),
    (
        "text behind a call",
        [delta(tool_calls=[call(0, "a", "look", "{}")]), delta("stop", content="A")],
        (A, Text("A")),
        "tool_calls",
    ),
    (
        "a stop string",
        [{"choices": [{"delta": {"content": "A"}, "finish_reason": "stop", "stop_reason": "###"}]}],
        (Text("A"),),
        "stop",
    ),
    (
        "other choices, null fields, unknown records and comments",
        [
            ": ping",
            {"type": "ping"},
            {"model": None, "choices": []},
            {"choices": [{"index": 1, "delta": {"content": "B"}}]},
            {"choices": None, "usage": None},
            delta(content="A", tool_calls=None, refusal=None, reasoning=None),
            delta("stop", tool_calls=[]),
        ],
        (Text("A"),),
        "end",
    ),
    ("a filter", [delta("content_filter", content="A")], (Text("A"),), "filtered"),
    (
        "proofs of thoughts",
        [
            delta(reasoning="Hm", reasoning_details=[{"type": "reasoning.text", "text": "Hm", "index": 0}]),
            delta(reasoning_details=[{"type": "reasoning.text", "signature": "c2ln", "index": 0}]),
            delta("stop", content="A"),
        ],
        (
            Reasoning("Hm", 'openai.chat:[{"type":"reasoning.text","text":"Hm","index":0,"signature":"c2ln"}]'),
            Text("A"),
        ),
        "end",
    ),
    (
        "a proof of a call",
        [delta("stop", tool_calls=[call(0, "a", "look", "{}") | {"extra_content": {"google": {"x": 1}}}])],
        (replace(A, signature='openai.chat:{"google":{"x":1}}'),),
        "tool_calls",
    ),
    (
        "proofs of a message",
        [
            delta(content="A", extra_content={"google": {"thought_signature": "CiQB"}}),
            delta("stop", extra_content={"x": 1}),
        ],
        (Text("A"), Reasoning("", 'openai.chat:{"extra_content":{"google":{"thought_signature":"CiQB"},"x":1}}')),
        "end",
    ),
    (
        "any text for a tool, in pieces",
        [
            delta(tool_calls=[{"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": ""}}]),
            delta(tool_calls=[{"index": 0, "custom": {"input": '+"x'}}]),
            delta("tool_calls", tool_calls=[{"index": 0, "custom": {"input": '"\n'}}]),
        ],
        (ToolCall("a", "patch", '{"input": "+\\"x\\"\\n"}'),),
        "tool_calls",
    ),
    (
        "any text for a tool",
        [delta("stop", tool_calls=[{"id": "a", "custom": {"name": "patch", "input": "+x"}}])],
        (ToolCall("a", "patch", '{"input": "+x"}'),),
        "tool_calls",
    ),
    (
        "half of a character",
        [
            'data: {"model":"m","choices":[{"delta":{"content":"\\\\ud83d"},"finish_reason":"stop"}]}'.replace(
                "\\\\", "\\"
            )
        ],
        (Text("\ufffd"),),
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
    if reply.reason != "tool_calls" or 'finish_reason": "' in data.decode():
        assert read(sse(*records, done=False)) == reply  # [DONE] may be missing where there is a reason


def test_the_pieces_of_a_free_text_are_one_text() -> None:
    pieces = [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** "}}]
    pieces.append({"index": 0, "custom": {"input": "End\n"}})
    reply = read(sse(*(delta(tool_calls=[each]) for each in pieces), delta("tool_calls")))
    assert reply.message.parts == (ToolCall("a", "patch", '{"input": "*** End\\n"}'),)


def test_text_goes_out_with_the_record_that_it_came_in() -> None:
    decoder = client.decoder(ASK, ENDPOINT)
    first = list(decoder.feed("", json.dumps(delta(content="A")).encode()))
    assert first == [Started("m", ENDPOINT.origin), TextDelta("A")]
    begun = list(decoder.feed("", json.dumps(delta(tool_calls=[call(0, "a", "look", '{"a')])).encode()))
    assert [type(event).__name__ for event in begun] == ["CallStarted", "CallDelta"]
    assert [type(event) for event in decoder.feed("", b"[DONE]")][-1] is Finished
    assert list(decoder.close()) == []


def test_an_id_that_the_conversation_has_is_not_given_twice() -> None:
    used = replace(ASK, messages=(Message("assistant", (ToolCall("0", "look", "{}"),)),))
    decoder = client.decoder(used, ENDPOINT, lambda: "made")
    reply = fold(replayed(decoder, sse(delta("stop", tool_calls=[call(0, "0", "look", "{}")]))))
    assert [found.id for found in reply.message.calls] == ["made"]
    assert len({id for id in (new_call_id() for _ in range(99)) if len(id) == 29}) == 99


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            },
            Usage(3, 4, 3, 5),
        ),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "completion_tokens": 1}, Usage(5, 4, 0, 1)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(9, 0, 0, 7, 5),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(9, 0, 0, 7, 5),
        ),
        (
            {"prompt_tokens": 2, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(0, 2, 0, 0),
        ),
        ({"prompt_tokens": "many", "completion_tokens": -1, "prompt_tokens_details": None}, Usage()),
    ],
)
def test_counts_are_three_disjoint_inputs_and_an_output_with_its_thoughts(given: Json, usage: Usage) -> None:
    assert read(sse(delta("stop", content="A"), {"choices": [], "usage": given})).usage == usage


def test_scores_stand_beside_the_text_that_they_are_of() -> None:
    score = {
        "token": "A",
        "bytes": [65],
        "logprob": -0.5,
        "top_logprobs": [{"token": "B", "bytes": None, "logprob": -1}],
    }
    record = delta("stop", content="A")
    record["choices"][0]["logprobs"] = {"content": [score]}
    assert read(sse(record)).scores == (TokenScore(-1, b"A", -0.5, ((-1, b"B", -1.0),)),)


ERRORS: list[tuple[str, int | None]] = [
    ('data: {"error": {"message": "no", "code": 502}}', 502),
    ('data: {"error": "no", "code": "rate"}', None),
    ('event: error\ndata: {"error": {"message": "no", "status_code": 400}}', 400),
    ("event: error\ndata: no JSON", None),
    ('error: {"error": {"message": "no"}}', None),
    ('data: {"object": "error", "message": "no", "code": 400}', 400),
    ('data: {"detail": "no"}', None),
    ('data: {"choices": [], "x_groq": {"error": "no"}}', None),
    ('data: {"choices": [{"error": {"message": "no"}, "finish_reason": "error"}]}', None),
]


def test_an_error_in_any_place_is_a_failure_and_the_text_before_it_stays() -> None:
    for line, status in ERRORS:
        for before in ((), (delta(content="A"),)):
            events: list[Event] = []
            with pytest.raises(Failure) as raised:
                events.extend(replayed(client.decoder(ASK, ENDPOINT), sse(*before, line)))
            assert "no" in json.dumps(raised.value.body)
            assert raised.value.status == status
        decoder = client.decoder(ASK, ENDPOINT)
        assert TextDelta("A") in list(decoder.feed("", json.dumps(delta(content="A")).encode()))
    with pytest.raises(Failure, match="insufficient_system_resource"):
        read(sse(delta("insufficient_system_resource", content="A")))
    with pytest.raises(Failure):
        fold(client.decoder(ASK, ENDPOINT).whole({"error": {"message": "no"}}))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"data: [DONE]\n\n", b"data: {\n\n", b"data: 5\n\n", b"data: []\n\n", b"data: \xff\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n", b"<html>busy</html>", sse(delta(content="A"), done=False),
        sse(
            delta(tool_calls=[call(0, "a", "look", "{}")]),
            delta(content="A"),
            delta(tool_calls=[call(0, None, None, "x")]),
        ),
    ],
)  # fmt: skip
def test_an_answer_that_breaks_the_protocol_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        read(data)


def test_a_stream_that_ends_after_any_record_is_broken_or_complete() -> None:
    records = [
        delta(content="A"),
        delta(tool_calls=[call(0, "a", "look", "{")]),
        delta(tool_calls=[call(0, None, None, "}")]),
    ]
    for n in range(len(records) + 1):
        with pytest.raises(BrokenAnswer):
            read(sse(*records[:n], done=False))
    assert read(sse(*records, delta("stop"), done=False)).message.parts == (Text("A"), A)


def test_a_whole_body_is_read_like_a_stream() -> None:
    message = {"role": "assistant", "content": "A", "reasoning": "Hm.", "tool_calls": [call(None, "a", "look", "{}")]}
    body = {
        "model": "m",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3},
    }
    reply = fold(client.decoder(ASK, ENDPOINT).whole(body))
    assert reply.message.parts == (Reasoning("Hm."), Text("A"), A)
    assert (reply.model, reply.usage) == ("m", Usage(3))
    for broken in ({}, {"choices": None}, {"choices": "x"}):
        with pytest.raises(BrokenAnswer):
            fold(client.decoder(ASK, ENDPOINT).whole(broken))


# ---- there and back

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_ARGUMENTS = st.dictionaries(_TEXT, st.integers() | _TEXT, max_size=3).map(json.dumps)
_CALLS = st.builds(ToolCall, st.just("c"), st.sampled_from(["look", "rest"]), _ARGUMENTS)
_PARTS = st.one_of(st.builds(Text, _TEXT), st.builds(Reasoning, _TEXT), _CALLS)


@st.composite
def answers(draw: st.DrawFn) -> Message:
    """An answer in normal form: no two texts or thoughts side by side, and every call with an id of its own."""
    parts: list[Part] = []
    for part in draw(st.lists(_PARTS, max_size=6)):
        if isinstance(part, ToolCall):
            parts.append(replace(part, id=f"c{len(parts)}"))
        elif not parts or type(parts[-1]) is not type(part):
            parts.append(part)
    return Message("assistant", tuple(parts), ENDPOINT.origin)


@given(answers(), st.sampled_from(["end", "length", "filtered"]), st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=examples(200))
def test_what_our_server_writes_is_read_as_it_was(message: Message, reason: StopReason, cuts: list[float]) -> None:
    reason = "tool_calls" if message.calls and reason == "end" else reason
    encoder = chat.encoder(ChatOptions(include_usage=True), id="chatcmpl-1", created=1, model="m")
    usage = Usage(3, 2, 0, 5, 4)
    events = [*list(replay(message))[:-1], Finished(reason, usage)]
    data = b"".join(encoder.encode(event) for event in events)
    edges = sorted(round(cut * len(data)) for cut in cuts)
    expected = Reply(message, reason, usage, "m")
    assert fold(replayed(client.decoder(ASK, ENDPOINT), data, edges)) == expected
    whole = chat.encoder(ChatOptions(), id="chatcmpl-1", created=1, model="m")
    # As one object, thoughts, text and calls have no order among each other.
    read_back = fold(client.decoder(ASK, ENDPOINT).whole(whole.encode_replies([expected])))
    assert read_back.message.text == message.text
    assert read_back.message.reasoning == message.reasoning
    assert read_back.message.calls == message.calls
    assert (read_back.reason, read_back.usage) == (reason, usage)


def test_the_calls_of_one_answer_cost_no_more_than_their_length() -> None:
    calls = Calls(lambda id: "x")
    pieces = [
        call(0, "a", "look", '{"a": "'),
        *(call(0, None, None, "x" * 10) for _ in range(20_000)),
        call(0, None, None, '"}'),
    ]
    n = sum(len(list(calls.feed(piece))) for piece in pieces) + len(list(calls.end()))
    assert n == len(pieces) + 2
