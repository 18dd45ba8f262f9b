"""Answers in Anthropic's protocol: the shapes, the order of a stream, and that a stream and a whole reply say the same.

The oracle is the vendor's own client: what it makes of our bytes is what counts.
"""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import anthropic as sdk
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

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
    Evicted,
    Finished,
    InvalidRequest,
    Message,
    NotAllowed,
    Progress,
    RateLimited,
    Reasoning,
    ReasoningDelta,
    Refused,
    Reply,
    Started,
    StopReason,
    Text,
    TextDelta,
    TimedOut,
    ToolCall,
    Traced,
    UnknownModel,
    Usage,
    fold,
)
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.anthropic.answer import INVALID, Display, Encoder
from shepherd.wire.anthropic.codec import MessageOptions, encode_error
from shepherd.wire.base import Json

USAGE = Usage(input=10, cache_read=30, cache_write=2, output=8, reasoning=3)
BIG = '{"at": 12345678901234567890}'


def encoder_of(thinking: Display = "shown", *, silent: bool = False, model: str = "claude-x") -> Encoder:
    return anthropic.encoder(MessageOptions(thinking, silent), id="msg_1", created=17, model=model)


def records_of(raw: bytes) -> list[Json]:
    """The records of a stream; each has an `event:` line that says the same as its body."""
    records = []
    *lines, rest = raw.decode("ascii").split("\n\n")
    assert rest == ""
    for line in lines:
        name, body = line.split("\n")
        record: Json = json.loads(body.removeprefix("data: "))
        assert name == f"event: {record['type']}"
        records.append(record)
    return records


def stream_of(events: Iterable[Event], thinking: Display = "shown", *, silent: bool = False) -> list[Json]:
    encoder = encoder_of(thinking, silent=silent)
    return records_of(b"".join([encoder.encode(event) for event in events]))


def message_of(records: list[Json]) -> Json:
    """The message that a client puts together; checks the rules of the order on the way."""
    first, *middle, last_delta, stop = records
    assert first["type"] == "message_start"
    assert first["message"]["content"] == []
    assert stop == {"type": "message_stop"}
    assert last_delta["type"] == "message_delta"
    content: list[Json] = []
    is_open = False
    for record in middle:
        match record["type"]:
            case "content_block_start":
                assert not is_open, "two blocks are open"
                assert record["index"] == len(content)
                content.append(dict(record["content_block"], json=""))
            case "content_block_delta":
                assert is_open
                assert record["index"] == len(content) - 1
                block, delta = content[-1], record["delta"]
                kinds = {"text": ["text"], "thinking": ["thinking", "signature"], "tool_use": ["input_json"]}
                assert delta["type"].removesuffix("_delta") in kinds[block["type"]]
                for key, piece in delta.items():
                    if key != "type":
                        block["json" if key == "partial_json" else key] += piece
            case "content_block_stop":
                assert is_open
                assert record["index"] == len(content) - 1
            case other:
                raise AssertionError(other)
        is_open = record["type"] != "content_block_stop"
    assert not is_open
    for block in content:
        text = block.pop("json")
        if block["type"] == "tool_use":
            assert block["input"] == {}
            block["input"] = json.loads(text)
    return {**first["message"], "content": content, **last_delta["delta"], "usage": last_delta["usage"]}


def whole_of(reply: Reply, thinking: Display = "shown", *, silent: bool = False) -> Json:
    return encoder_of(thinking, silent=silent).encode_replies([reply])


def content_of(*events: Event, thinking: Display = "shown", reason: StopReason = "end") -> list[Json]:
    content: list[Json] = message_of(stream_of([Started("m"), *events, Finished(reason)], thinking))["content"]
    return content


def ended(call: ToolCall | BadCall) -> tuple[Event, ...]:
    deltas = (CallDelta(call.arguments),) if isinstance(call, ToolCall) else ()
    return (CallStarted(call.id, call.name), *deltas, CallEnded(call))


# ---- streams


def test_a_stream_begins_before_the_prefill_and_closes_each_block_before_the_next() -> None:
    events = [
        Started("real", usage=Usage(input=10, cache_read=30, cache_write=2)),
        Progress(1, 2),
        Evicted(1, 9),
        Traced("prompt", "secret"),
        ReasoningDelta("Hm"),
        ReasoningDelta("."),
        TextDelta('a"\n'),
        TextDelta("é\u2028"),
        *ended(ToolCall("c1", "look", BIG)),
        Finished("tool_calls", USAGE),
    ]
    begun = {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 30, "output_tokens": 0}
    signature = {"type": "signature_delta", "signature": "c2hlcGhlcmQvMS8w"}
    assert stream_of(events) == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": begun,
            },
        },
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, {"type": "thinking_delta", "thinking": "Hm"}),
        delta(0, {"type": "thinking_delta", "thinking": "."}),
        delta(0, signature),
        stop(0),
        start(1, {"type": "text", "text": ""}),
        delta(1, {"type": "text_delta", "text": 'a"\n'}),
        delta(1, {"type": "text_delta", "text": "é\u2028"}),
        stop(1),
        start(2, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}),
        delta(2, {"type": "input_json_delta", "partial_json": BIG}),
        stop(2),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {**begun, "output_tokens": 8, "output_tokens_details": {"thinking_tokens": 3}},
        },
        {"type": "message_stop"},
    ]


def start(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, said: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": said}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def test_a_block_is_closed_with_the_event_that_opens_the_next_one() -> None:
    encoder = encoder_of()
    encoder.encode(Started("m"))
    encoder.encode(ReasoningDelta("Hm."))
    kinds = [record["type"] for record in records_of(encoder.encode(TextDelta("a")))]
    assert kinds == ["content_block_delta", "content_block_stop", "content_block_start", "content_block_delta"]
    assert [record["type"] for record in records_of(encoder.encode(TextDelta("b")))] == ["content_block_delta"]
    encoder.encode(CallStarted("c", "f"))
    kinds = [record["type"] for record in records_of(encoder.encode(CallEnded(ToolCall("c", "f", "{}"))))]
    assert kinds == ["content_block_stop", "content_block_start", "content_block_delta", "content_block_stop"]


def test_a_whole_reply_is_a_message() -> None:
    message = Message("assistant", (Reasoning("Hm."), Text("Look:"), ToolCall("c1", "look", BIG)))
    assert whole_of(Reply(message, "tool_calls", USAGE, "real")) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2hlcGhlcmQvMS8w"},
            {"type": "text", "text": "Look:"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 12345678901234567890}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 30,
            "output_tokens": 8,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    }


def test_an_answer_of_nothing_has_one_empty_text() -> None:
    assert content_of() == [{"type": "text", "text": ""}]
    assert whole_of(Reply(Message("assistant"), "end", Usage(), "m"))["content"] == [{"type": "text", "text": ""}]


def test_a_model_without_a_name_in_the_request_is_called_by_its_own() -> None:
    assert records_of(encoder_of(model="").encode(Started("real")))[0]["message"]["model"] == "real"


def test_a_ping_has_an_event_line() -> None:
    assert records_of(encoder_of().ping) == [{"type": "ping"}]


# ---- thoughts


THOUGHT: tuple[Event, ...] = (ReasoningDelta("Hm."), ReasoningDelta("", "c2ln"), TextDelta("a"))


@pytest.mark.parametrize(
    ("thinking", "blocks"),
    [
        ("shown", [{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}]),
        ("signed", [{"type": "thinking", "thinking": "", "signature": "c2ln"}]),
        ("hidden", []),
    ],
)
def test_a_thought_is_shown_or_only_signed_or_hidden(thinking: Display, blocks: list[Json]) -> None:
    assert content_of(*THOUGHT, thinking=thinking) == [*blocks, {"type": "text", "text": "a"}]


def test_a_hidden_thought_does_not_cut_the_text_in_two() -> None:
    events = (TextDelta("a"), ReasoningDelta("Hm."), TextDelta("b"))
    assert content_of(*events, thinking="hidden") == [{"type": "text", "text": "ab"}]


def test_a_thought_that_the_provider_hides_goes_back_to_it_as_it_came() -> None:
    events = (ReasoningDelta("Hm."), ReasoningDelta("", "b3BhcXVl", redacted=True), TextDelta("a"))
    first, second, _ = content_of(*events)
    assert first["thinking"] == "Hm."
    assert second == {"type": "redacted_thinking", "data": "b3BhcXVl"}


def test_two_signed_thoughts_are_two_blocks() -> None:
    events = (ReasoningDelta("a", "cw=="), ReasoningDelta("b", "dA=="))
    assert [block["signature"] for block in content_of(*events)] == ["cw==", "dA=="]


# ---- calls


def test_a_call_without_arguments_is_an_empty_object() -> None:
    *_, block, text, _, _, _ = stream_of([Started("m"), *ended(ToolCall("", "f", "{}")), Finished("tool_calls")])
    assert block["content_block"]["id"] == "toolu_1_0"  # a call needs an id to be answered
    assert text["delta"]["partial_json"] == "{}"


@pytest.mark.parametrize(
    ("call", "reason", "content", "told"),
    [
        (BadCall("{oops", "no JSON", "c", "f"), "end", [{"type": "tool_use", "id": "c", "name": "f",
            "input": {INVALID: "{oops"}}], "tool_use"),
        (BadCall("<x>", "no name", "c"), "end", [{"type": "text", "text": "[invalid tool call: no name]"}],
            "end_turn"),
        (BadCall("{oops", "cut off", "c", "f"), "length", [{"type": "text", "text": ""}], "max_tokens"),
    ],
)  # fmt: skip
def test_a_bad_call_can_be_answered_and_half_a_call_is_none(
    call: BadCall, reason: StopReason, content: list[Json], told: str
) -> None:
    said = message_of(stream_of([Started("m"), *ended(call), Finished(reason)]))
    assert (said["content"], said["stop_reason"]) == (content, told)


def test_a_bad_call_stands_where_it_was_said() -> None:
    events = (*ended(BadCall("<x>", "no name", "c")), TextDelta(" b"), *ended(ToolCall("d", "f", "{}")))
    assert content_of(*events) == [
        {"type": "text", "text": "[invalid tool call: no name] b"},
        {"type": "tool_use", "id": "d", "name": "f", "input": {}},
    ]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1e999}', {"a": "1e999"}),
        ('{"a": 1e-999}', {"a": 0.0}),
        (f'{{"a": {"9" * 5000}}}', {"a": "9" * 5000}),
        ('{"a": "\\ud83d\\udc11"}', {"a": "🐑"}),
        ('{"a": ["\\ud83d"], "\\udc11": 1}', {"a": ["\ufffd"], "\ufffd": 1}),
        ('{"a": "\\\\ud83d"}', {"a": "\\ud83d"}),
        (" {}\n", {}),
        ('{"a": "' + "{[" * 99 + '"}', {"a": "{[" * 99}),
        ('{"a":' * 64 + "1" + "}" * 64, json.loads('{"a":' * 64 + "1" + "}" * 64)),
        ('{"a":' * 65 + "1" + "}" * 65, {INVALID: '{"a":' * 65 + "1" + "}" * 65}),
        ('{"a":' * 9999, {INVALID: '{"a":' * 9999}),
        ("", {INVALID: ""}),
        ("[1]", {INVALID: "[1]"}),
        ('{"a": NaN}', {INVALID: '{"a": NaN}'}),
        ('{"a": 1', {INVALID: '{"a": 1'}),
    ],
)
def test_the_input_of_a_call_is_an_object_that_every_client_can_read(arguments: str, read: Json) -> None:
    call = ToolCall("c", "f", arguments)
    whole = whole_of(Reply(Message("assistant", (call,)), "tool_calls", Usage(), "m"))
    assert json.loads(json.dumps(whole["content"][0]["input"], allow_nan=False)) == read
    streamed = accumulated(b"".join(map(encoder_of().encode, [Started("m"), *ended(call), Finished("end")])))
    (block,) = streamed.content
    assert isinstance(block, sdk.types.ToolUseBlock)
    assert block.input == read


# ---- ends


@pytest.mark.parametrize(
    ("finished", "calls", "told"),
    [
        (Finished("end"), False, ("end_turn", None)),
        (Finished("end"), True, ("tool_use", None)),
        (Finished("tool_calls"), True, ("tool_use", None)),
        (Finished("tool_calls"), False, ("end_turn", None)),
        (Finished("length"), False, ("max_tokens", None)),
        (Finished("length"), True, ("tool_use", None)),
        (Finished("stop", stop="###"), False, ("stop_sequence", "###")),
        (Finished("stop", stop="###"), True, ("tool_use", None)),
        (Finished("stop"), False, ("end_turn", None)),
        (Finished("filtered"), False, ("refusal", None)),
        (Finished("filtered"), True, ("refusal", None)),
        (Finished("cancelled"), False, ("end_turn", None)),
    ],
)
def test_every_end_has_its_reason(finished: Finished, calls: bool, told: tuple[str, str | None]) -> None:
    events = [Started("m"), TextDelta("a"), *(ended(ToolCall("c", "f", "{}")) if calls else ()), finished]
    for said in (message_of(stream_of(events)), whole_of(fold(events))):
        assert (said["stop_reason"], said["stop_sequence"]) == told


def test_a_prompt_that_is_only_read_has_a_silent_answer() -> None:
    events = [Started("m"), ReasoningDelta("h"), TextDelta("a"), *ended(ToolCall("c", "f", "{}")), Finished("length")]
    for said in (message_of(stream_of(events, silent=True)), whole_of(fold(events), silent=True)):
        assert (said["content"], said["stop_reason"]) == ([{"type": "text", "text": ""}], "max_tokens")


# ---- errors


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("x", field="f"), 400, "invalid_request_error"),
        (InvalidRequest("x", status=405), 405, "invalid_request_error"),
        (InvalidRequest("x", status=404), 404, "not_found_error"),
        (InvalidRequest("x", status=413), 413, "request_too_large"),
        (NotAllowed("x"), 401, "authentication_error"),
        (NotAllowed("x", status=403), 403, "permission_error"),
        (UnknownModel("x"), 404, "not_found_error"),
        (RateLimited("x", backend="b"), 429, "rate_limit_error"),
        (EngineError("x"), 500, "api_error"),
        (BadReply("x", backend="b"), 502, "api_error"),
        (EngineDown("x"), 503, "overloaded_error"),
        (TimedOut("x", backend="b"), 504, "timeout_error"),
        (Refused("x", backend="b", status=529), 529, "overloaded_error"),
        (Refused("x", backend="b", status=402), 402, "billing_error"),
        (Refused("x", backend="b", status=302), 502, "api_error"),
    ],
)
def test_every_error_has_its_status_and_type(error: Exception, status: int, kind: str) -> None:
    told, body = encode_error(error)
    assert (told, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert "x" in body["error"]["message"]
    assert records_of(encoder_of().encode_failure(error)) == [body]


def test_a_full_context_is_told_in_the_words_that_clients_parse() -> None:
    status, body = encode_error(ContextFull(needed=41_000, limit=40_960, cache="main"))
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert body["error"]["message"].startswith("prompt is too long: 41000 tokens > 40960 maximum")


def test_nothing_is_told_of_an_unexpected_exception() -> None:
    status, body = encode_error(ValueError("a secret"))
    assert (status, body["error"]["type"]) == (500, "api_error")
    assert "secret" not in json.dumps(body)


# ---- the vendor's own client as the judge of every stream there can be


SENT = [b""]
CLIENT = sdk.Anthropic(
    api_key="any",
    base_url="http://test",
    max_retries=0,
    http_client=httpx2.Client(
        transport=httpx2.MockTransport(
            lambda _: httpx2.Response(200, content=SENT[0], headers={"content-type": "text/event-stream"})
        )
    ),
)


def accumulated(raw: bytes) -> Any:
    """What Anthropic's client makes of a stream."""
    SENT[0] = raw
    with CLIENT.messages.stream(model="m", max_tokens=9, messages=[]) as stream:
        return stream.get_final_message()


texts = st.text(min_size=1, max_size=6)
arguments = st.one_of(
    st.dictionaries(texts, st.one_of(st.integers(), texts, st.none()), max_size=2).map(json.dumps), texts
)
calls = st.one_of(
    st.builds(ToolCall, st.sampled_from(("c1", "toolu_2", "")), st.sampled_from(("f", "é")), arguments),
    st.builds(BadCall, texts, texts, st.just("c3"), st.sampled_from(("f", ""))),
).map(ended)
pieces = st.one_of(
    texts.map(lambda text: (TextDelta(text),)),
    st.builds(ReasoningDelta, st.one_of(st.just(""), texts), st.sampled_from((None, "c2ln")), st.booleans()).map(
        lambda event: (event,)
    ),
    calls,
    st.sampled_from([(Progress(1, 2),), (Evicted(1, 2),), (Traced("output", "x"),)]),
)
reasons: st.SearchStrategy[StopReason] = st.sampled_from(
    ("end", "stop", "length", "tool_calls", "filtered", "cancelled")
)
finishes = st.builds(Finished, reasons, st.just(USAGE), st.sampled_from((None, "###")))
streams = st.builds(
    lambda inner, end: [Started("m", usage=USAGE), *itertools.chain(*inner), end],
    st.lists(pieces, max_size=8),
    finishes,
)
displays: st.SearchStrategy[Display] = st.sampled_from(("shown", "signed", "hidden"))


@given(streams, displays, st.booleans())
@settings(deadline=None)
def test_every_stream_keeps_the_order_and_says_what_the_whole_reply_says(
    events: list[Event], thinking: Display, silent: bool
) -> None:
    streamed = message_of(stream_of(events, thinking, silent=silent))
    assert streamed == whole_of(fold(events), thinking, silent=silent)
    assert streamed["content"]
    calls = any(block["type"] == "tool_use" for block in streamed["content"])
    assert (streamed["stop_reason"] == "tool_use") == (calls and streamed["stop_reason"] != "refusal")


@given(streams, displays)
@settings(deadline=None, max_examples=examples(50))
def test_the_vendors_client_takes_every_stream_and_reads_the_whole_reply(
    events: list[Event], thinking: Display
) -> None:
    read = accumulated(b"".join([encoder.encode(event) for encoder in [encoder_of(thinking)] for event in events]))
    whole = whole_of(fold(events), thinking)
    assert [block.model_dump(exclude_unset=True) for block in read.content] == whole["content"]
    assert (read.stop_reason, read.stop_sequence) == (whole["stop_reason"], whole["stop_sequence"])
    told = read.usage.model_dump(exclude_unset=True)
    assert told == whole["usage"]


@given(streams)
@settings(deadline=None)
def test_what_was_said_comes_back_as_it_was_said(events: list[Event]) -> None:
    """A client sends an answer back in the blocks that it got."""
    blocks = whole_of(fold(events))["content"]
    body = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": blocks}]}
    _, message = anthropic.decode_request(body).request.messages
    assert whole_of(Reply(message, "end", Usage(), "m"))["content"] == blocks
