"""`context_management` of Anthropic's protocol: what a client asks for, and what the answer says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage
from anthropic.types.beta.beta_context_management_response import BetaContextManagementResponse

from shepherd.core import Finished, InvalidRequest, Opaque, OpaqueBlock, Started, Text, TextDelta, fold
from shepherd.core.edits import COMPACTION, AppliedEdit, Edit
from shepherd.wire.anthropic import client, codec
from shepherd.wire.client import Endpoint

TOOLS, THOUGHTS, COMPACT = "clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"
HELLO = [{"role": "user", "content": "Hello"}]


def decoded(*edits: Any) -> tuple[Edit, ...]:
    return codec.decode_request({"messages": HELLO, "context_management": {"edits": list(edits)}}).request.edits


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": TOOLS}, Edit("results", keep=3)),
        ({"type": TOOLS, "trigger": {"type": "input_tokens", "value": 500}}, Edit("results", 500, keep=3)),
        ({"type": TOOLS, "trigger": {"type": "tool_uses", "value": 5}}, Edit("results", trigger_calls=5, keep=3)),
        ({"type": TOOLS, "keep": {"type": "tool_uses", "value": 0}}, Edit("results", keep=0)),
        (
            {"type": TOOLS, "clear_at_least": {"type": "input_tokens", "value": 9}, "exclude_tools": ["web"]},
            Edit("results", keep=3, least_tokens=9, excluded=frozenset({"web"})),
        ),
        ({"type": TOOLS, "clear_tool_inputs": True}, Edit("results", keep=3, inputs=True)),
        ({"type": TOOLS, "clear_tool_inputs": ["a"]}, Edit("results", keep=3, inputs=frozenset({"a"}))),
        ({"type": TOOLS, "clear_at_least": None, "exclude_tools": None}, Edit("results", keep=3)),
        ({"type": THOUGHTS}, Edit("thoughts", 0, keep=1)),
        ({"type": THOUGHTS, "keep": "all"}, Edit("thoughts", 0)),
        ({"type": THOUGHTS, "keep": {"type": "all"}}, Edit("thoughts", 0)),
        ({"type": THOUGHTS, "keep": {"type": "thinking_turns", "value": 4}}, Edit("thoughts", 0, keep=4)),
        ({"type": COMPACT}, Edit("compact", is_capped=True)),
        (
            {"type": COMPACT, "trigger": {"type": "input_tokens", "value": 7}, "pause_after_compaction": True},
            Edit("compact", 7, is_capped=True, pause=True),
        ),
        (
            {"type": COMPACT, "instructions": "Keep names.", "trigger": None},
            Edit("compact", is_capped=True, instructions="Keep names."),
        ),
    ],
)
def test_what_a_client_asks_for(given: dict[str, Any], wanted: Edit) -> None:
    assert decoded(given) == (wanted,)


@pytest.mark.parametrize(
    ("management", "message"),
    [
        ([], "context_management must be an object"),
        ({"edits": {}}, "context_management.edits must be an array"),
        ({"edits": [1]}, r"context_management.edits\[0\] must be an object"),
        ({"edits": [{}]}, r"context_management.edits\[0\].type is missing"),
        (
            {"edits": [{"type": COMPACT}, {"type": THOUGHTS}]},
            r"edits\[1\] is clear_thinking_20251015, which must be the first",
        ),
        (
            {"edits": [{"type": TOOLS, "keep": {"type": "turns", "value": 1}}]},
            r"edits\[0\].keep.type must be \"tool_uses\"",
        ),
        ({"edits": [{"type": TOOLS, "keep": {"type": "tool_uses", "value": -1}}]}, r"edits\[0\].keep.value"),
        ({"edits": [{"type": TOOLS, "trigger": {"type": "input_tokens", "value": "x"}}]}, r"edits\[0\].trigger.value"),
        ({"edits": [{"type": TOOLS, "exclude_tools": [1]}]}, r"edits\[0\].exclude_tools\[0\] must be a string"),
        ({"edits": [{"type": THOUGHTS, "keep": "none"}]}, r"edits\[0\].keep must be an object or \"all\""),
        ({"edits": [{"type": THOUGHTS, "keep": {"type": "thinking_turns", "value": 0}}]}, r"edits\[0\].keep.value"),
        ({"edits": [{"type": COMPACT, "pause_after_compaction": 1}]}, r"edits\[0\].pause_after_compaction"),
        ({"edits": [{"type": COMPACT}] * 17}, r"context_management.edits has 17 elements; at most 16"),
    ],
)
def test_what_is_refused(management: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        codec.decode_request({"messages": HELLO, "context_management": management})


def test_an_edit_of_a_newer_kind_is_the_vendors_alone() -> None:
    body = {"messages": HELLO, "context_management": {"edits": [{"type": "clear_images_20270101"}]}}
    request = codec.decode_request(body).request
    assert request.edits == ()
    assert request.native is not None
    assert "clear_images_20270101" in str(request.native.demand)
    assert TOOLS in str(request.native.demand)
    assert client.encode_request(request, Endpoint("m", "up:m"))["context_management"] == body["context_management"]


WORD = "shp1.word"
BLOCK = OpaqueBlock(
    Opaque(COMPACTION, json.dumps({"type": "compaction", "encrypted_content": WORD}), (Text("The task."),))
)
EDITS = (AppliedEdit("results", 2, 900), AppliedEdit("thoughts", 1, 50), AppliedEdit("compact", 8, 4000))
OPTIONS = codec.MessageOptions(has_edits=True)


def answer(*events: Any, options: Any = OPTIONS) -> tuple[dict[str, Any], bytes]:
    whole = codec.encoder(options, id="msg_1", created=0, model="m")
    stream = codec.encoder(options, id="msg_1", created=0, model="m")
    return whole.encode_replies([fold(events)]), b"".join(map(stream.encode, events))


def test_the_answer_says_what_has_left() -> None:
    body, stream = answer(Started("m", edits=EDITS), TextDelta("Hi."), Finished("end"))
    wanted = [
        {"type": TOOLS, "cleared_tool_uses": 2, "cleared_input_tokens": 900},
        {"type": THOUGHTS, "cleared_thinking_turns": 1, "cleared_input_tokens": 50},
    ]
    assert body["context_management"] == {"applied_edits": wanted}
    BetaContextManagementResponse.model_validate(body["context_management"], strict=True)
    BetaMessage.model_validate(body)
    assert json.dumps(wanted[0], separators=(",", ":")).encode() in stream.replace(b", ", b",").replace(b": ", b":")
    body, _ = answer(Started("m"), TextDelta("Hi."), Finished("end"))
    assert body["context_management"] == {"applied_edits": []}
    body, stream = answer(Started("m"), TextDelta("Hi."), Finished("end"), options=codec.MessageOptions())
    assert "context_management" not in body
    assert b"context_management" not in stream


def test_a_compaction_is_a_block_that_comes_back_as_what_it_stands_for() -> None:
    body, stream = answer(Started("m", edits=EDITS), BLOCK, TextDelta("Hi."), Finished("end"))
    block = {"type": "compaction", "content": "The task.", "encrypted_content": WORD}
    assert body["content"] == [block, {"type": "text", "text": "Hi."}]
    assert body["stop_reason"] == "end_turn"
    BetaMessage.model_validate(body)
    assert b'"compaction_delta"' in stream
    again = codec.decode_request(
        {"messages": [*HELLO, {"role": "assistant", "content": body["content"]}, *HELLO]}
    ).request
    (part, text) = again.messages[1].parts
    assert isinstance(part, Opaque)
    assert part.protocol == COMPACTION
    assert json.loads(part.body)["encrypted_content"] == WORD
    assert text == Text("Hi.")


def test_an_answer_that_pauses_says_so() -> None:
    body, stream = answer(Started("m", edits=EDITS), BLOCK, Finished("end"))
    assert body["stop_reason"] == "compaction"
    assert b'"stop_reason": "compaction"' in stream or b'"stop_reason":"compaction"' in stream


def test_the_compaction_of_another_is_read_as_its_summary() -> None:
    block = {"type": "compaction", "content": "They mend a parser.", "encrypted_content": "theirs"}
    message = codec.decode_request({"messages": [{"role": "assistant", "content": [block]}, *HELLO]}).request.messages[
        0
    ]
    (part,) = message.parts
    assert isinstance(part, Opaque)
    assert (part.protocol, part.parts) == ("anthropic", (Text("They mend a parser."),))
