"""The client half of Gemini's protocol: bodies as the API wants them, answers as they were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.wire.recordings import (
    faults,
    numbered,
    recorded,
    replayed,
    replies,
    stream_text,
)

from shepherd.core import (
    BadCall,
    Completion,
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
)
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint, Failure
from shepherd.wire.gemini import client
from shepherd.wire.gemini.client import accepted
from shepherd.wire.values import BrokenAnswer

ENDPOINT = Endpoint("gemini-x", "gemini:gemini-x", max_output=1_000, thinks_by="level", efforts=("low", "high"))
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "integer"}}})
ASK = Request("m", (Message.user("Hello."),))


def body_of(request: Request, **target: Any) -> Json:
    return client.encode_request(request, replace(ENDPOINT, **target))


# ---- the body


def test_a_whole_conversation_is_encoded() -> None:
    asked = Message("user", (Text("Look."), Image("image/png", b"png"), Document("a.pdf", "application/pdf", b"%PDF")))
    answer = Message(
        "assistant",
        (
            Reasoning("Hm.", "gemini:t"),
            Text("I do."),
            ToolCall("call_1", "look", '{"at": 1}', signature="gemini:s"),
            ToolCall("call_g0", "look", ""),
        ),
    )
    results = (
        Message("tool", (ToolResult("call_1", (Text("one"), Image("image/png", b"png"))),)),
        Message("tool", (ToolResult("call_g0", (), is_error=True),)),
    )
    request = Request(
        "m",
        (Message.system("Be brief."), asked, answer, *results, Message.user("And?")),
        tools=(TOOL, ToolSpec("stop", parameters={"type": "object", "properties": {}})),
        tool_choice=("named", "look"),
        sampling=Sampling(temperature=0.0, top_k=0, seed=3, min_p=0.1),
        max_tokens=5_000,
        stop=("###",),
        reasoning="max",
    )
    picture = {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}
    assert body_of(request, reads_documents=True) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Look."},
                    picture,
                    {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "Hm.", "thought": True, "thoughtSignature": "t"},
                    {"text": "I do."},
                    {"functionCall": {"name": "look", "args": {"at": 1}, "id": "call_1"}, "thoughtSignature": "s"},
                    {"functionCall": {"name": "look", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "look", "response": {"output": "one"}, "id": "call_1"}},
                    picture,
                    {"functionResponse": {"name": "look", "response": {"error": ""}}},
                    {"text": "And?"},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "look",
                        "description": "Look.",
                        "parametersJsonSchema": {"type": "object", "properties": {"at": {"type": "integer"}}},
                    },
                    {"name": "stop"},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {
            "temperature": 0.0,
            "seed": 3,
            "maxOutputTokens": 1_000,
            "stopSequences": ["###"],
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "high"},
        },
    }


@pytest.mark.parametrize(
    ("level", "target", "expected"),
    [
        (None, {}, {"includeThoughts": True}),
        ("off", {}, {"thinkingLevel": "low"}),
        ("off", {"efforts": ("minimal", "low")}, {"thinkingLevel": "minimal"}),
        ("off", {"thinks_by": "budget", "efforts": ("none", "low")}, {"thinkingBudget": 0}),
        ("off", {"thinks_by": "budget"}, {"thinkingBudget": 128}),
        ("low", {"thinks_by": "budget"}, {"includeThoughts": True, "thinkingBudget": 2_048}),
        ("on", {"thinks_by": "budget"}, {"includeThoughts": True}),
        ("high", {"thinks_by": ""}, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_knows_it(level: Any, target: Json, expected: Json | None) -> None:
    body = body_of(replace(ASK, reasoning=level), **target)
    assert body.get("generationConfig", {}).get("thinkingConfig") == expected


def test_an_answer_of_another_model_has_a_signature_on_its_first_call_in_every_turn() -> None:
    """The API demands it of the turn under way; the older ones keep it, so that the prompt begins as before."""

    def called(*ids: str) -> tuple[Message, Message]:
        calls = tuple(ToolCall(id, "look", "{}") for id in ids)
        return Message("assistant", calls), Message("tool", tuple(ToolResult(id, (), "look") for id in ids))

    old, new = called("a"), called("b", "c")
    request = replace(ASK, messages=(*ASK.messages, *old, Message.user("Again."), *new, *called("d")))
    signatures = [
        [part.get("thoughtSignature") for part in content["parts"]]
        for content in body_of(request)["contents"]
        if content["role"] == "model"
    ]
    assert signatures == [[client.NO_SIGNATURE], [client.NO_SIGNATURE, None], [client.NO_SIGNATURE]]
    assert "thoughtSignature" not in json.dumps(body_of(request, thinks_by="budget"))


def test_what_gemini_cannot_do_is_refused() -> None:
    for request, field in (
        (replace(ASK, stop=tuple("abcdef")), "stop"),
        (Request("m", completion=Completion("Once")), "prompt"),
        (Request("m", (Message("user", (Image(url="https://x.y/a.png"),)),)), "messages"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            body_of(request)
        assert caught.value.field == field


def test_schemas_are_what_the_api_accepts() -> None:
    schema = {
        "$schema": "x",
        "title": "T",
        "type": "object",
        "properties": {
            "title": {"type": "string", "format": "email", "description": "Where."},
            "kind": {"const": "a", "default": "a"},
            "many": {"type": "array"},
            "deep": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"$ref": "#/$defs/x"}]},
        },
        "$defs": {"x": {"type": "string", "format": "date"}},
    }
    assert accepted(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "Where. (format: email)"},
            "kind": {"enum": ["a"]},
            "many": {"type": "array", "items": {}},
            "deep": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/x"}]},
        },
        "$defs": {"x": {"type": "string", "format": "date"}},
    }


# ---- answers


@pytest.fixture(scope="module")
def exchanges(conformance: Path) -> list[Json]:
    return recorded(conformance, "gemini", "gemini.generateContent", "gemini.streamGenerateContent")


def test_recorded_answers_say_what_they_say(exchanges: list[Json]) -> None:
    assert faults(client, exchanges, ASK, ENDPOINT) == []


def test_recorded_answers_go_back_as_they_came(exchanges: list[Json]) -> None:
    """Signatures on the very parts they stood on, also on empty ones."""
    n = 0
    for exchange in exchanges:
        if exchange["response"]["status"] != 200:
            continue
        reply = next(iter(replies(client, exchange, ASK, ENDPOINT)))
        body = body_of(replace(ASK, messages=(*ASK.messages, reply.message, Message.user("Go on."))))
        back = [part for content in body["contents"] if content["role"] == "model" for part in content["parts"]]
        came = _joined(_parts_of(exchange))
        assert back == came, exchange["id"]
        n += any("thoughtSignature" in part for part in came)
    assert n > 10


def _parts_of(exchange: Json) -> list[Json]:
    text = stream_text(exchange)
    lines = text.replace("\r\n", "\n").split("\n") if text else []
    chunks = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
    if text is None:
        body = exchange["response"]["body"]
        chunks = body if isinstance(body, list) else [body]
    return [
        part
        for chunk in chunks
        for candidate in chunk.get("candidates", [])[:1]
        for part in candidate.get("content", {}).get("parts", [])
    ]


def _joined(parts: list[Json]) -> list[Json]:
    """Pieces of one text are one part; thoughts without a signature do not go back."""
    made: list[Json] = []
    for part in parts:
        if part.get("thought") and "thoughtSignature" not in part:
            continue
        is_text = part.keys() <= {"text", "thoughtSignature"}
        if is_text and not part.get("text") and "thoughtSignature" not in part:
            continue
        if is_text and part["text"] and made and made[-1].keys() == {"text"}:
            made[-1] = {**part, "text": made[-1]["text"] + part["text"]}
        else:
            made.append(part)
    return made


def chunk(*parts: Json, reason: str = "", **more: Any) -> Json:
    return {"candidates": [{"content": {"parts": list(parts)}, **({"finishReason": reason} if reason else {})}], **more}


def events_of(*chunks: object) -> list[Any]:
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\r\n\r\n" for each in chunks)
    return list(replayed(client.decoder(ASK, ENDPOINT, numbered("call_g")), data))


def test_calls_have_ids_of_their_own_and_bad_ones_are_bad() -> None:
    calls = ({"functionCall": {"name": "look"}}, {"functionCall": {"name": "look", "args": [1]}})
    reply = fold(events_of(chunk(*calls, reason="STOP")))
    good, bad = reply.message.parts
    assert good == ToolCall("call_g0000", "look", "{}")
    assert isinstance(bad, BadCall)
    assert (bad.id, reply.reason) == ("call_g0001", "tool_calls")


def test_of_several_candidates_the_first_by_its_number_is_the_answer() -> None:
    first, second = ({"content": {"parts": [{"text": text}]}, "index": at} for at, text in enumerate("AB"))
    reply = fold(events_of({"candidates": [second]}, {"candidates": [second, first]}, chunk(reason="STOP")))
    assert reply.message.text == "A"


def test_a_part_of_the_provider_is_read_by_others_in_words() -> None:
    part = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
    (block,) = fold(events_of(chunk(part, reason="STOP"))).message.parts
    assert block == Opaque("gemini", json.dumps(part), (Text("\n[code that was run]\nprint(1)\n"),))


def test_a_blocked_prompt_and_an_unreadable_call() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
    reply = fold(events_of(blocked))
    assert (reply.reason, reply.usage.prompt) == ("filtered", 9)
    with pytest.raises(Failure) as caught:
        events_of(chunk(reason="MALFORMED_FUNCTION_CALL"))
    assert caught.value.status == 500
    assert fold(events_of(chunk({"text": "a"}, reason="MALFORMED_FUNCTION_CALL"))).message.text == "a"


@pytest.mark.parametrize("chunks", [[], [chunk({"text": "a"})], [{}], [{"candidates": [5]}], [[]], [chunk(5)]])  # type: ignore[arg-type]
def test_an_answer_that_breaks_the_protocol_is_broken(chunks: list[object]) -> None:
    with pytest.raises(BrokenAnswer):
        events_of(*chunks)
