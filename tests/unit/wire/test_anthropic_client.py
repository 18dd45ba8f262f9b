"""The client half of Anthropic's protocol: bodies that its own client accepts, answers as they were recorded."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, with_config
from tests.cases import examples
from tests.unit.wire.recordings import faults, recorded, replayed, replies, stream_text

from shepherd.core import (
    Assembler,
    BadCall,
    Document,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Reasoning,
    Request,
    Sampling,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    fold,
    replay,
)
from shepherd.core.events import Event
from shepherd.core.messages import Part
from shepherd.wire.anthropic import client, codec
from shepherd.wire.anthropic.codec import MessageOptions
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint, Failure
from shepherd.wire.values import BrokenAnswer

ENDPOINT = Endpoint("claude-x", "anthropic:claude-x", max_output=64_000, thinks_by="adaptive", efforts=("low", "high"))
TOOL = ToolSpec("look", "Look at it.", {"properties": {"at": {"type": "integer"}}})
ASK = Request("m", (Message.user("Hello."),))
SIGNED = Reasoning("Hm.", "anthropic:c2ln")


def body_of(request: Request, **endpoint: Any) -> Json:
    return client.encode_request(request, replace(ENDPOINT, **endpoint))


# ---- the body


def test_a_whole_conversation_is_encoded() -> None:
    request = Request(
        "m",
        (
            Message.system("Be brief."),
            Message("user", (Text("Look."), Image("image/png", b"png"), Document("a.pdf", "application/pdf", b"%PDF"))),
            Message(
                "assistant", (SIGNED, Text("I do."), ToolCall("a b", "look", '{"at": 1}'), ToolCall("c", "look", ""))
            ),
            Message("tool", (ToolResult("a b", (Text("one"),)),)),
            Message("tool", (ToolResult("c", (), is_error=True),)),
            Message.user("And?"),
        ),
        tools=(TOOL,),
        sampling=Sampling(temperature=1.5, top_p=0.9, top_k=40),
        max_tokens=100_000,
        stop=("###",),
        parallel_calls=False,
    )
    body = body_of(request, reads_documents=True)
    mark = {"cache_control": {"type": "ephemeral"}}
    id = body["messages"][1]["content"][2]["id"]
    assert id.startswith("toolu_")
    assert body == {
        "model": "claude-x",
        "tools": [
            {
                "name": "look",
                "description": "Look at it.",
                "input_schema": {"type": "object", "properties": {"at": {"type": "integer"}}},
                **mark,
            }
        ],
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look."},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
                    {
                        "type": "document",
                        "title": "a.pdf",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
                        **mark,
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "text", "text": "I do."},
                    {"type": "tool_use", "id": id, "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "c", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": "one"}]},
                    {"type": "tool_result", "tool_use_id": "c", "is_error": True},
                    {"type": "text", "text": "And?", **mark},
                ],
            },
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stream": True,
        "max_tokens": 64_000,
        "stop_sequences": ["###"],
        "temperature": 1.0,
        "top_k": 40,
    }


@pytest.mark.parametrize(
    ("request_", "endpoint", "expected"),
    [
        ({}, {}, {}),
        ({"reasoning": "off"}, {}, {}),
        ({"reasoning": "on"}, {}, {"thinking": {"type": "adaptive"}}),
        ({"reasoning": "high"}, {}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ({"reasoning": "max"}, {}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ({"reasoning": "high", "tool_choice": "required", "tools": (TOOL,)}, {}, {}),
        ({"reasoning": "high"}, {"thinks_by": ""}, {}),
        ({"reasoning": "low"}, {"thinks_by": "budget"}, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        (
            {"reasoning": "high", "max_tokens": 3000},
            {"thinks_by": "budget"},
            {"thinking": {"type": "enabled", "budget_tokens": 1499}},
        ),
        ({"reasoning": "high", "max_tokens": 1000}, {"thinks_by": "budget"}, {}),
    ],
)
def test_thinking_is_asked_for_as_the_model_knows_it(request_: Json, endpoint: Json, expected: Json) -> None:
    body = body_of(replace(ASK, sampling=Sampling(temperature=0.5), **request_), **endpoint)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == expected
    assert ("temperature" in body) == (not expected)


def test_a_turn_under_way_that_began_without_a_thought_goes_on_without() -> None:
    call = Message("assistant", (ToolCall("a", "look", "{}"),))
    asked = replace(
        ASK, messages=(*ASK.messages, call, Message("tool", (ToolResult("a", (Text("4"),)),))), reasoning="low"
    )
    assert "thinking" not in body_of(asked, thinks_by="budget")
    thought = replace(call, parts=(SIGNED, *call.parts))
    asked = replace(asked, messages=(*ASK.messages, thought, asked.messages[-1]))
    assert "thinking" in body_of(asked, thinks_by="budget")
    assert "thinking" in body_of(replace(asked, messages=(*asked.messages, Message.user("Go on."))), thinks_by="budget")


def test_what_a_model_refuses_and_what_no_claude_knows_is_not_sent() -> None:
    body = body_of(
        replace(ASK, sampling=Sampling(temperature=0.5, min_p=0.1, seed=3)), refuses=frozenset({"temperature"})
    )
    assert not {"temperature", "min_p", "seed"} & body.keys()
    for wrong, field in ((replace(ASK, stop=("\n",)), "stop"), (codec_free(), "prompt")):
        with pytest.raises(InvalidRequest) as caught:
            body_of(wrong)
        assert caught.value.field == field


def codec_free() -> Request:
    from shepherd.core import Completion

    return Request("m", completion=Completion("Once"))


def test_fields_and_tools_that_only_anthropic_knows_pass_through() -> None:
    sent: Json = {
        "model": "m",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hello."}],
        "tools": [
            {"name": "look", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "context_management": {"edits": [{"type": "compact_20260112"}]},
        "service_tier": "auto",
        "metadata": {"user_id": "a person"},
    }
    body = body_of(codec.decode_request(sent).request)
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert body["tools"][1] == {"type": "web_search_20250305", "name": "web_search", **hour}
    assert body["messages"][0]["content"][-1]["cache_control"] == hour["cache_control"]
    assert (body["context_management"], body["service_tier"]) == (sent["context_management"], "auto")
    assert "metadata" not in body


def test_the_beginning_of_a_prompt_stays_the_same_bytes() -> None:
    """But for the marks, which do not count for the provider."""
    messages = [Message.system("Be brief."), Message.user("1")]
    before = ""
    for n in range(4):
        body = body_of(replace(ASK, messages=tuple(messages), tools=(TOOL,)))
        text = json.dumps({key: body[key] for key in ("tools", "system", "messages")})
        text = text.replace(', "cache_control": {"type": "ephemeral"}', "")
        assert text.startswith(before)
        before = text.removesuffix("]}")
        messages += [Message.assistant(f"a{n}"), Message.user(f"u{n}")]


# ---- answers


@pytest.fixture(scope="module")
def exchanges(conformance: Path) -> list[Json]:
    return recorded(conformance, "anthropic", "anthropic.messages")


def test_recorded_answers_say_what_they_say(exchanges: list[Json]) -> None:
    assert faults(client, exchanges, ASK, ENDPOINT) == []


def test_recorded_answers_go_back_as_they_came(exchanges: list[Json]) -> None:
    """A thought with its signature, a search with its result, in their places."""
    n = 0
    for exchange in exchanges:
        content = exchange["response"].get("body", {}).get("content")
        if exchange["response"]["status"] != 200 or not content:
            continue
        (reply,) = replies(client, exchange, ASK, ENDPOINT)
        body = body_of(replace(ASK, messages=(*ASK.messages, reply.message, Message.user("Go on."))))
        (answer,) = [turn for turn in body["messages"] if turn["role"] == "assistant"]
        assert [_plain(block) for block in answer["content"]] == _merged(map(_plain, content)), exchange["id"]
        n += any(block["type"] not in ("text", "tool_use") for block in content)
    assert n


def _plain(block: Json) -> Json:
    if block["type"] in ("text", "thinking", "tool_use"):
        return {k: v for k, v in block.items() if k != "caller" and v is not None}
    return block


def _merged(blocks: Iterator[Json]) -> list[Json]:
    """Texts side by side are one here; citations cut them."""
    made: list[Json] = []
    for block in blocks:
        if (
            made
            and block["type"] == made[-1]["type"] == "text"
            and not any("citations" in x for x in (made[-1], block))
        ):
            made[-1] = {"type": "text", "text": made[-1]["text"] + block["text"]}
        elif block != {"type": "text", "text": ""}:
            made.append(block)
    return made


def test_an_error_in_a_recorded_stream_keeps_the_text_before_it(exchanges: list[Json]) -> None:
    found = [exchange for exchange in exchanges if exchange["kind"] == "stream_error"]
    assert found
    for exchange in found:
        text, assembler = stream_text(exchange), Assembler()
        assert text is not None
        events = replayed(client.decoder(ASK, ENDPOINT), text.encode("utf-8"))
        with pytest.raises(Failure) as caught:
            deque(map(assembler.feed, events))
        assert caught.value.body["type"] == "error"
        assert assembler.partial().text == (exchange["expect"]["text"] or "")


_WORDS = st.text(min_size=1, max_size=8)
_IDS = st.integers(0, 9**9).map("toolu_{}".format)
_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, _WORDS),
    st.builds(lambda text, raw: Reasoning(text, f"anthropic:{raw}"), _WORDS, _WORDS),
    st.builds(lambda raw: Reasoning("", f"anthropic:{raw}", redacted=True), _WORDS),
    st.builds(
        lambda id, name, value: ToolCall(id, name, json.dumps({"a": value}, ensure_ascii=False, separators=(",", ":"))),
        _IDS,
        _WORDS,
        _WORDS,
    ),
    st.builds(lambda word: Opaque("anthropic", json.dumps({"type": "of_2031", "x": word}, ensure_ascii=False)), _WORDS),
)
_ANSWERS = st.lists(_PARTS, min_size=1, max_size=6).filter(
    lambda parts: (
        not any(isinstance(a, Text) and isinstance(b, Text) for a, b in itertools.pairwise(parts))
        and len(ids := [part.id for part in parts if isinstance(part, ToolCall)]) == len(set(ids))
    )
)


@given(_ANSWERS, st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=examples(200))
def test_what_our_server_writes_is_read_as_it_was(parts: list[Part], cuts: list[float]) -> None:
    message = Message("assistant", tuple(parts), ENDPOINT.origin)
    encoder = codec.encoder(MessageOptions("shown"), id="msg_1", created=1, model="claude-x")
    data = b"".join([encoder.encode(event) for event in replay(message)])
    edges = sorted(round(cut * len(data)) for cut in cuts)
    assert fold(replayed(client.decoder(ASK, ENDPOINT), data, edges)).message == message
    whole = codec.encoder(MessageOptions("shown"), id="msg_1", created=1, model="claude-x")
    body = whole.encode_replies([fold(replay(message))])
    assert fold(client.decoder(ASK, ENDPOINT).whole(body)).message == message


START: Json = {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 1}}}


def events_of(*records: object) -> list[Event]:
    data = b"".join(b"data: " + json.dumps(record).encode() + b"\n\n" for record in records)
    return list(replayed(client.decoder(ASK, ENDPOINT), data))


def block(index: int, start: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


END: list[Json] = [
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]


def test_a_call_without_arguments_and_one_that_is_cut_off() -> None:
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": '{"at": '}
    reply = fold(events_of(START, *block(0, use), *block(1, use, piece), *END))
    whole, cut = reply.message.parts
    assert whole == ToolCall("a", "look", "{}")
    assert isinstance(cut, BadCall)
    assert (cut.raw, cut.name) == ('{"at": ', "look")


@pytest.mark.parametrize(
    "records",
    [
        [],
        [START],
        [START, *block(0, {"type": "text", "text": "a"})],
        [*block(0, {"type": "text", "text": "a"})],
        [START, START],
        [
            START,
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "a"}},
        ],
        [START, {"type": "content_block_start", "index": 0, "content_block": None}],
        [START, *END, *block(0, {"type": "text", "text": "a"})],
        [{"type": "message_start"}],
        ["message_start"],
        [END[1]],
    ],
)
def test_an_answer_that_breaks_the_protocol_is_broken(records: list[object]) -> None:
    with pytest.raises(BrokenAnswer):
        events_of(*records)


# ---- the vendor's own client as a judge


def test_the_vendors_types_accept_our_bodies() -> None:
    """But for the temperature, which they do not know any more; older models do."""
    message = Message("assistant", (SIGNED, Text("I look."), ToolCall("a", "look", "{}")))
    request = replace(ASK, messages=(*ASK.messages, message, Message.user("Go on.")), tools=(TOOL,), stop=("x",))
    accepted = TypeAdapter(with_config({"extra": "forbid"})(message_create_params.MessageCreateParamsStreaming))
    for more in ({"tool_choice": "required"}, {"schema": {"type": "object"}}, {"reasoning": "high"}):
        accepted.validate_python(body_of(replace(request, **more)))
    with pytest.raises(ValueError, match="temperature"):
        accepted.validate_python(body_of(replace(request, sampling=Sampling(temperature=0.5))))


def test_calls_without_an_id_and_with_the_same_get_their_own() -> None:
    calls: list[Json] = [
        {"type": "tool_use", "id": id, "name": "look", "input": {"at": at}} for at, id in enumerate(("a", "a", ""))
    ]
    message = fold(client.decoder(ASK, ENDPOINT).whole({"content": calls, "stop_reason": "tool_use"})).message
    ids = [call.id for call in message.calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert all(ids)
