"""Answers in the Responses protocol: order and shapes of events, and that a stream and a whole reply say the same.

The reader is OpenAI's own: its types, checked strictly, and what its SDK puts a stream together with.
"""

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from shepherd.core import (
    BadCall,
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
    Part,
    Progress,
    RateLimited,
    Reasoning,
    ReasoningDelta,
    Started,
    StopReason,
    Text,
    TextDelta,
    TokenScore,
    ToolCall,
    UnknownModel,
    Usage,
    fold,
    replay,
)
from shepherd.engine.sampling import DEFAULTS
from shepherd.wire.base import Fields, Json
from shepherd.wire.openai.responses import codec as responses
from shepherd.wire.openai.responses.codec import UnknownResponse, decode_request, encode_error
from shepherd.wire.openai.responses.items import decode_items
from shepherd.wire.openai.responses.parts import seal, unseal

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = Usage(input=10, cache_read=30, cache_write=2, output=8, reasoning=3)
BODY: Json = {
    "model": "gpt-5",
    "input": "Hello",
    "instructions": "Be brief.",
    "metadata": {"a": "b"},
    "tools": [
        {"type": "function", "name": "look", "parameters": {}, "strict": False},
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "docs", "description": "", "tools": [{"type": "function", "name": "find"}]},
    ],
}
SUMMARIES: Json = {**BODY, "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}


def encoder_of(body: Json, *, model: str = "gpt-5") -> responses.Encoder:
    return responses.encoder(decode_request(body).options, id="resp_ab12", created=17, model=model, clock=lambda: 19.5)


def read(told: bytes) -> list[Json]:
    """The events of a stream, checked for what is the same in each."""
    *records, rest = told.decode("ascii").split("\n\n")
    assert rest == ""
    events: list[Json] = []
    for number, record in enumerate(records):
        name, text = record.split("\n")
        event = json.loads(text.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def stream_of(events: Iterable[Event], body: Json = BODY) -> list[Json]:
    encoder = encoder_of(body)
    return read(b"".join([encoder.encode(event) for event in events]))


def whole_of(events: Iterable[Event], body: Json = BODY) -> Json:
    return encoder_of(body).encode_replies([fold(events)])


def called(id: str, name: str, arguments: str) -> list[Event]:
    return [CallStarted(id, name), CallDelta(arguments), CallEnded(ToolCall(id, name, arguments))]


def names(events: Iterable[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


# ---- order and shapes

NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "created_at")


@pytest.mark.parametrize("tool", [{}, {"strict": None, "description": None}, {"strict": True, "description": "Looks."}])
def test_an_answer_has_every_field_that_open_responses_wants(tool: Json) -> None:
    body = {"model": "m", "input": "a", "tools": [{"type": "function", "name": "look", **tool}]}
    events: list[Event] = [Started("m"), TextDelta("a"), Finished("end", USAGE)]
    begun, *_, ended = stream_of(events, body)
    assert ended["response"] == whole_of(events, body)
    for answer in (begun["response"], ended["response"]):
        assert all(isinstance(answer[name], int | float) for name in NUMBERS)
        (shown,) = answer["tools"]
        assert shown == {
            "type": "function", "name": "look", "parameters": None, "description": tool.get("description"),
            "strict": bool(tool.get("strict")),
        }  # fmt: skip
    assert (begun["response"]["completed_at"], ended["response"]["completed_at"]) == (None, 19)


@pytest.mark.parametrize("reason", ["length", "filtered", "cancelled"])
def test_an_answer_that_is_cut_is_never_completed(reason: StopReason) -> None:
    assert whole_of([Started("m"), TextDelta("a"), Finished(reason, USAGE)])["completed_at"] is None


def test_what_the_client_leaves_open_is_the_default_of_the_engine() -> None:
    answer = whole_of([Started("m"), TextDelta("a"), Finished("end", USAGE)], {"model": "m", "input": "a"})
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
        assert answer[name] == getattr(DEFAULTS, name)


def test_what_the_client_sets_is_repeated() -> None:
    given = {"temperature": 0.3, "top_p": 0.5, "presence_penalty": -1, "frequency_penalty": 2, "top_logprobs": 3}
    answer = whole_of([Started("m"), TextDelta("a"), Finished("end", USAGE)], {"model": "m", "input": "a", **given})
    assert {name: answer[name] for name in given} == given


def test_an_answer_of_every_kind_comes_in_the_order_that_clients_wait_for() -> None:
    events = stream_of(
        [
            Started("m"), Progress(1, 2), Evicted(1, 9), ReasoningDelta("Hm."), TextDelta("a\u2028"), TextDelta("b"),
            *called("c1", "look", "{}"), *called("c2", "patch", '{"input": "x\\ny"}'),
            *called("c3", "docs__find", "{}"),
            Finished("tool_calls", USAGE),
        ]
    )  # fmt: skip
    assert names(events) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    place = {"item_id": "msg_ab12_1", "output_index": 1, "content_index": 0}
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    for delta, text in zip(deltas, ["a\u2028", "b"], strict=True):
        assert {key: delta[key] for key in place} == place
        assert (delta["delta"], delta["logprobs"]) == (text, [])
    assert events[-1]["response"]["output"] == [
        {
            "id": "rs_ab12_0",
            "type": "reasoning",
            "status": "completed",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {
            "id": "msg_ab12_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a\u2028b", "annotations": [], "logprobs": []}],
        },
        {
            "id": "fc_ab12_2",
            "type": "function_call",
            "status": "completed",
            "name": "look",
            "call_id": "c1",
            "arguments": "{}",
        },
        {
            "id": "ctc_ab12_3",
            "type": "custom_tool_call",
            "status": "completed",
            "name": "patch",
            "call_id": "c2",
            "input": "x\ny",
        },
        {
            "id": "fc_ab12_4",
            "type": "function_call",
            "status": "completed",
            "name": "find",
            "namespace": "docs",
            "call_id": "c3",
            "arguments": "{}",
        },
    ]


def test_the_answer_says_what_was_asked_for_and_what_it_cost() -> None:
    first, *_, last = stream_of([Started("m"), TextDelta("a"), Finished("end", USAGE)])
    assert (first["response"]["status"], first["response"]["output"], first["response"]["usage"]) == (
        "in_progress", [], None,
    )  # fmt: skip
    for event in (first, last):
        answer = event["response"]
        assert (answer["id"], answer["object"], answer["created_at"], answer["model"]) == (
            "resp_ab12", "response", 17, "gpt-5",
        )  # fmt: skip
        assert (answer["instructions"], answer["metadata"], answer["store"]) == ("Be brief.", {"a": "b"}, True)
        assert answer["tools"] == [{**BODY["tools"][0], "description": None}, *BODY["tools"][1:]]
        assert answer["tool_choice"] == "auto"
        assert answer["text"] == {"format": {"type": "text"}}
    assert last["response"]["usage"] == {
        "input_tokens": 42,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 2},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 50,
    }


def test_thoughts_are_told_as_summaries_to_those_who_asked_for_them_and_sealed_for_those_who_keep_them() -> None:
    events = stream_of([Started("m"), ReasoningDelta("Hm"), ReasoningDelta("."), Finished("end")], SUMMARIES)
    assert names(events)[2:9] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done",
        "output_item.done",
    ]  # fmt: skip
    assert {event["summary_index"] for event in events[3:8]} == {0}
    item = events[8]["item"]
    assert (item["summary"], item["content"]) == ([{"type": "summary_text", "text": "Hm."}], [])
    assert "Hm." not in item["encrypted_content"]
    assert decode_items([Fields(item)], decode_request(BODY).options.box)[0].parts == (Reasoning("Hm."),)


def test_the_real_model_is_named_when_the_client_named_none() -> None:
    encoder = encoder_of(BODY, model="")
    assert read(encoder.encode(Started("real")))[0]["response"]["model"] == "real"


ENDS: list[tuple[StopReason, str, str | None, str]] = [
    ("end", "completed", None, "completed"),
    ("stop", "completed", None, "completed"),
    ("length", "incomplete", "max_output_tokens", "incomplete"),
    ("filtered", "incomplete", "content_filter", "incomplete"),
    ("cancelled", "incomplete", None, "incomplete"),
]


@pytest.mark.parametrize(("reason", "status", "detail", "name"), ENDS)
def test_the_status_is_honest(reason: StopReason, status: str, detail: str | None, name: str) -> None:
    last = stream_of([Started("m"), TextDelta("a"), Finished(reason)])[-1]
    assert last["type"] == f"response.{name}"
    answer = last["response"]
    assert (answer["status"], answer["incomplete_details"]) == (status, detail and {"reason": detail})
    assert answer["output"][0]["status"] == status


def test_an_empty_answer_has_an_empty_message() -> None:
    (item,) = stream_of([Started("m"), Finished("end")])[-1]["response"]["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


BAD = BadCall("<call>{oops", "the braces do not match", id="b", name="look")
NAMELESS = BadCall("<call>{oops", "no name could be read", id="b")
NOTE = "[invalid tool call: no name could be read]"


@pytest.mark.parametrize(
    ("parts", "reason", "texts", "arguments"),
    [
        ((Text("a"), BAD), "length", ["a"], []),
        ((BAD,), "length", [""], []),
        ((BAD,), "end", [], ["<call>{oops"]),
        ((BAD, NAMELESS), "length", [], ["<call>{oops"]),
        ((NAMELESS,), "end", [NOTE], []),
        ((NAMELESS, Text("b")), "end", [f"{NOTE}b"], []),
        ((BAD, Reasoning("r"), ToolCall("c", "look", "{}")), "tool_calls", [], ["<call>{oops", "{}"]),
    ],
)
def test_a_bad_call_is_a_call_or_a_note_and_nothing_when_it_was_cut_off(
    parts: tuple[Part, ...], reason: StopReason, texts: list[str], arguments: list[str]
) -> None:
    output = stream_of(replay(Message("assistant", parts), reason=reason))[-1]["response"]["output"]
    assert [item["content"][0]["text"] for item in output if item["type"] == "message"] == texts
    assert [item["arguments"] for item in output if item["type"] == "function_call"] == arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input": "a"}', "a"), ('{"other": "a"}', '{"other": "a"}'), ('{"input": 3}', '{"input": 3}'), ("oops", "oops")],
)
def test_a_free_call_has_its_text_or_whatever_the_model_wrote(arguments: str, text: str) -> None:
    last = stream_of([Started("m"), *called("c", "patch", arguments), Finished("tool_calls")])[-1]
    assert last["response"]["output"][0]["input"] == text


def test_scores_are_told_with_their_text_in_the_stream_and_in_the_whole() -> None:
    a = TokenScore(1, b"\xc3", -0.5, ((1, b"\xc3", -0.5), (2, b"x", -1.0)))
    b = TokenScore(3, b"\xa9", -0.25)
    c, d = TokenScore(4, b"!?", -1.0), TokenScore(5, b"end", -2.0)
    rest: list[Event] = [*called("c", "look", "{}"), TextDelta("end", (d,)), Finished("end")]
    events: list[Event] = [Started("m"), TextDelta("é", (a, b)), TextDelta("!?", (c,)), *rest]
    streamed = stream_of(events)
    told = [
        {
            "token": "\ufffd",
            "bytes": [0xC3],
            "logprob": -0.5,
            "top_logprobs": [
                {"token": "\ufffd", "bytes": [0xC3], "logprob": -0.5},
                {"token": "x", "bytes": [120], "logprob": -1.0},
            ],
        },
        {"token": "\ufffd", "bytes": [0xA9], "logprob": -0.25, "top_logprobs": []},
    ]
    deltas = [event["logprobs"] for event in streamed if event["type"] == "response.output_text.delta"]
    assert deltas[0] == told
    assert [score["token"] for scores in deltas[1:] for score in scores] == ["!?", "end"]
    assert streamed[-1]["response"]["output"][0]["content"][0]["logprobs"] == [*told, *deltas[1]]
    assert whole_of(events) == streamed[-1]["response"]


# ---- failures


def test_a_failure_in_the_middle_raises_in_one_client_and_fails_the_answer_in_the_other() -> None:
    encoder = encoder_of(BODY)
    begun = encoder.encode(Started("m")) + encoder.encode(TextDelta("a"))
    *_, error, failed = read(begun + encoder.encode_failure(EngineError("the engine stopped")))
    assert (error["type"], error["message"], error["code"]) == ("error", "the engine stopped", "server_error")
    assert error["error"]["message"] == "the engine stopped"  # where the SDK looks before it raises
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "the engine stopped"}
    assert failed["response"]["usage"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextFull(needed=9, limit=8), "context_length_exceeded"),
        (RateLimited("slow", backend="b"), "rate_limit_exceeded"),
        (InvalidRequest("no"), "invalid_prompt"),
        (EngineDown("gone"), "server_error"),
        (KeyError("secret"), "server_error"),
    ],
)
def test_a_failure_before_the_first_event_begins_the_answer_and_ends_it(error: Exception, code: str) -> None:
    told = encoder_of(BODY).encode_failure(error)
    events = read(told)
    assert names(events) == ["created", "in_progress", "error", "failed"]
    assert events[-1]["response"]["error"]["code"] == code
    assert b"secret" not in told


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (InvalidRequest("m", field="a.b"), 400, "invalid_request_error", "a.b", "400"),
        (UnknownResponse("m"), 400, "invalid_request_error", "previous_response_id", "previous_response_not_found"),
        (ContextFull(needed=9, limit=8), 400, "invalid_request_error", "input", "context_length_exceeded"),
        (NotAllowed("m"), 401, "authentication_error", None, "401"),
        (UnknownModel("x"), 404, "invalid_request_error", "model", "model_not_found"),
        (EngineDown("m"), 503, "server_error", None, "503"),
    ],
)
def test_each_error_has_the_shape_that_clients_test_for(
    error: Exception, status: int, kind: str, param: str | None, code: str
) -> None:
    counts = {"n_prompt_tokens": 9, "n_ctx": 8} if isinstance(error, ContextFull) else {}
    assert encode_error(error) == (
        status,
        {"error": {"message": str(error), "type": kind, "param": param, "code": code, **counts}},
    )


# ---- properties

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
TOOLS = st.sampled_from(["look", "patch", "docs__find", "unknown"])
GOOD_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, WORDS),
    st.builds(Reasoning, WORDS),
    st.builds(Reasoning, WORDS, WORDS),
    st.builds(Reasoning, st.just(""), WORDS, st.just(True)),
    st.builds(ToolCall, st.uuids().map(str), TOOLS, WORDS | WORDS.map(lambda text: json.dumps({"input": text}))),
)
BAD_PARTS: st.SearchStrategy[Part] = st.builds(BadCall, WORDS, WORDS, st.uuids().map(str), st.text(max_size=3) | TOOLS)
REASONS: st.SearchStrategy[StopReason] = st.sampled_from(
    ["end", "stop", "length", "tool_calls", "filtered", "cancelled"]
)


def merges(a: Part, b: Part) -> bool:
    """Whether no stream would tell these two apart."""
    if isinstance(a, Reasoning) and isinstance(b, Reasoning):
        return a.signature is None and not a.redacted and not b.redacted
    return isinstance(a, Text) and isinstance(b, Text)


def apart(parts: list[Part]) -> bool:
    return not any(merges(a, b) for a, b in itertools.pairwise(parts))


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Any stream, cut anywhere, with notices anywhere."""
    parts = draw(st.lists(GOOD_PARTS | BAD_PARTS, max_size=6).filter(apart))
    events: list[Event] = []
    for event in replay(Message("assistant", tuple(parts)), reason=draw(REASONS)):
        match event:
            case TextDelta(text=text) if len(text) > 1:
                cut = draw(st.integers(1, len(text) - 1))
                events += [TextDelta(text[:cut]), Progress(1, 2), TextDelta(text[cut:])]
            case ReasoningDelta(text=text, signature=signature, redacted=False):
                events += [ReasoningDelta(text), ReasoningDelta("", signature)]
            case Finished(reason=reason):
                events.append(Finished(reason, USAGE))
            case _:
                events.append(event)
    return events


@settings(deadline=None)
@given(streams(), st.sampled_from([BODY, SUMMARIES]))
def test_openais_reader_accepts_any_stream_and_ends_with_the_whole_reply(events: list[Event], body: Json) -> None:
    streamed = stream_of(events, body)
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in streamed:
        state.handle_event(EVENT.validate_python(event))
    last = streamed[-1]["response"]
    whole = whole_of(events, body)
    assert whole == last
    Response.model_validate(whole, strict=True)
    if last["status"] == "completed":
        assert state._completed_response is not None
        assert len(state._completed_response.output) == len(last["output"])


@settings(deadline=None)
@given(streams(), st.sampled_from([BODY, SUMMARIES]))
def test_every_item_is_opened_filled_and_closed_one_after_the_other(events: list[Event], body: Json) -> None:
    streamed = stream_of(events, body)
    done: list[Json] = []
    deltas: list[str] = []
    for event in streamed:
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(done)
                deltas = []
            case "output_item.done":
                assert event["output_index"] == len(done)
                done.append(event["item"])
            case name if name.endswith(".delta"):
                deltas.append(event["delta"])
            case name if name.endswith(("text.done", "arguments.done", "input.done")):
                assert event.get("text", event.get("arguments", event.get("input"))) == "".join(deltas)
        if "item_id" in event:
            assert event["output_index"] == len(done)
    assert done == streamed[-1]["response"]["output"]
    assert len({item["id"] for item in done}) == len(done)


@settings(deadline=None)
@given(st.lists(GOOD_PARTS, min_size=1, max_size=6).filter(apart), st.sampled_from([BODY, SUMMARIES]))
@example([Text("a"), Reasoning("b"), Text("c")], BODY)
def test_what_was_answered_comes_back_as_it_was(parts: list[Part], body: Json) -> None:
    said = Message("assistant", tuple(parts))
    output = whole_of(replay(said), body)["output"]
    (back,) = decode_items([Fields(item) for item in output], decode_request(body).options.box)
    assert [meaning(part) for part in back.parts] == [meaning(part) for part in parts]


def meaning(part: Part) -> Part:
    """A call of free text without its spelling."""
    if isinstance(part, ToolCall) and part.name == "patch":
        try:
            text = json.loads(part.arguments)["input"]
        except (ValueError, TypeError, KeyError):
            text = part.arguments
        return ToolCall(part.id, part.name, text)
    return part


@settings(deadline=None)
@given(st.builds(Reasoning, st.text(st.characters(exclude_categories=["Cs"])), st.none() | WORDS, st.booleans()))
def test_a_sealed_thought_opens_again(thought: Reasoning) -> None:
    assert unseal(seal(thought)) == thought


@settings(deadline=None)
@given(st.text() | st.text("abcdef0123456789-_=").map(lambda text: f"shepherd1.{text}"))
def test_what_is_no_seal_of_ours_opens_to_nothing_and_never_fails(word: str) -> None:
    assert unseal(word) is None


def test_a_seal_that_unpacks_to_far_too_much_is_none() -> None:
    bomb = seal(Reasoning("a" * 20_000_000))
    assert len(bomb) < 200_000
    assert unseal(bomb) is None


# ---- what is kept


@pytest.mark.parametrize("stream", [True, False])
def test_a_finished_answer_can_be_kept_with_its_own_input(stream: bool) -> None:
    body = {**BODY, "input": [{"role": "user", "content": "old"}, {"role": "user", "content": "new"}],
            "previous_response_id": "resp_0", responses.N_STORED: 1}  # fmt: skip
    events: list[Event] = [Started("m"), TextDelta("a"), Finished("end", USAGE)]
    encoder = encoder_of(body)
    if stream:
        *begun, end = events
        told = b"".join([encoder.encode(event) for event in begun])
        assert encoder.stored is None
        answer = read(told + encoder.encode(end))[-1]["response"]
    else:
        answer = encoder.encode_replies([fold(events)])
    assert encoder.stored is not None
    assert (encoder.stored.id, encoder.stored.previous) == ("resp_ab12", "resp_0")
    assert encoder.stored.response == answer
    assert encoder.stored.items == ({"role": "user", "content": "new"},)


def test_an_answer_that_is_not_to_be_stored_is_not_kept() -> None:
    encoder = encoder_of({**BODY, "store": False})
    assert encoder.encode_replies([fold([Started("m"), Finished("end")])])["store"] is False
    assert encoder.stored is None
