"""Answers in OpenAI's chat protocol: the shapes, and that a stream and a whole reply say the same."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Progress,
    RateLimited,
    ReadPrompt,
    Reasoning,
    ReasoningDelta,
    Refused,
    Reply,
    Sampling,
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
from shepherd.wire.base import Json
from shepherd.wire.openai import chat as openai_chat
from shepherd.wire.openai.chat import ChatOptions, encode_error
from shepherd.wire.openai.chunks import fingerprint


def stream_of(events: Iterable[Event], *, model: str = "gpt-4", include_usage: bool = False) -> list[Json]:
    """The chunks of a stream, checked for what is the same in each."""
    encoder = openai_chat.encoder(ChatOptions(include_usage), id="chatcmpl-1", created=17, model=model)
    text = b"".join(encoder.encode(event) for event in events).decode("ascii")
    *chunks, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    bodies: list[Json] = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    for body in bodies:
        assert body["id"] == "chatcmpl-1"
        assert body["object"] == "chat.completion.chunk"
        assert body["created"] == 17
        assert body["model"] == model
    return bodies


def message_of(chunks: Iterable[Json]) -> tuple[Json, str]:
    """The message that a client puts together, and the finish reason; checks OpenAI's rules on the way."""
    message: Json = {"content": "", "reasoning_content": "", "tool_calls": []}
    reasons: list[str] = []
    for number, chunk in enumerate(chunk for chunk in chunks if chunk["choices"]):
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        assert (choice["index"], "role" in delta) == (0, number == 0)
        assert not reasons, "something follows the finish reason"
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["tool_calls"]):
                assert call["id"]
                assert call["type"] == "function"
                message["tool_calls"].append({key: call[key] for key in ("id", "type", "function")})
            else:
                assert call["index"] == len(message["tool_calls"]) - 1
                message["tool_calls"][-1]["function"]["arguments"] += call["function"]["arguments"]
        if choice["finish_reason"] is not None:
            assert delta == {}
            reasons.append(choice["finish_reason"])
    (reason,) = reasons
    return message, reason


def whole_of(reply: Reply, *, model: str = "gpt-4") -> Json:
    encoder = openai_chat.encoder(ChatOptions(), id="chatcmpl-1", created=17, model=model)
    return encoder.encode_replies([reply])


USAGE = Usage(input=10, cache_read=30, cache_write=2, output=8, reasoning=3)


def test_a_stream_has_a_role_first_and_an_empty_delta_with_the_reason_last() -> None:
    chunks = stream_of(
        [Started("m"), Progress(1, 2), Evicted(1, 9), TextDelta('a"\n'), TextDelta("é"), Finished("end")]
    )
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None},
        {"index": 0, "delta": {"content": 'a"\n'}, "finish_reason": None},
        {"index": 0, "delta": {"content": "é"}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    assert not any("usage" in chunk for chunk in chunks)


def test_a_stream_of_calls_alone_has_no_text() -> None:
    """The AI SDK begins a text at an empty one, and ends it behind the call."""
    called = CallEnded(ToolCall("c1", "look", "{}"))
    deltas = [chunk["choices"][0]["delta"] for chunk in stream_of([Started("m"), called, Finished("tool_calls")])]
    assert [delta.get("content") for delta in deltas] == [None] * 4


def test_usage_comes_in_a_chunk_of_its_own_only_when_asked() -> None:
    chunks = stream_of([Started("m"), TextDelta("a"), Finished("length", USAGE)], include_usage=True)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None, None, None]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 42,
        "completion_tokens": 8,
        "total_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_a_whole_reply_is_a_chat_completion() -> None:
    message = Message("assistant", (Reasoning("Hm."), Text("Look:"), ToolCall("c1", "look", '{"a": 1}')))
    whole = whole_of(Reply(message, "tool_calls", USAGE, "real"))
    assert whole.pop("timings")["predicted_n"] == 8
    assert whole == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 17,
        "model": "gpt-4",
        "system_fingerprint": fingerprint(),
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Look:",
                    "refusal": None,
                    "reasoning_content": "Hm.",
                    "reasoning": "Hm.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 42,
            "completion_tokens": 8,
            "total_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }


def test_the_real_model_is_named_when_the_client_named_none() -> None:
    assert stream_of([Started("real"), Finished("end")], model="real")[0]["model"] == "real"
    encoder = openai_chat.encoder(ChatOptions(), id="x", created=1, model="")
    assert b'"model":"real"' in encoder.encode(Started("real"))
    assert whole_of(Reply(Message("assistant"), "end", USAGE, "real"), model="")["model"] == "real"


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [("end", "stop"), ("stop", "stop"), ("length", "length"), ("filtered", "content_filter"), ("cancelled", "stop")],
)
def test_each_stop_reason_has_its_word(reason: StopReason, finish_reason: str) -> None:
    reply = Reply(Message.assistant("a"), reason, USAGE, "m")
    assert message_of(stream_of(replay(reply.message, reason=reason)))[1] == finish_reason
    assert whole_of(reply)["choices"][0]["finish_reason"] == finish_reason


def test_calls_are_numbered_and_named_before_their_arguments() -> None:
    events: list[Event] = [
        Started("m"),
        CallStarted("a", "look"), CallDelta('{"x":'), CallDelta("1}"), CallEnded(ToolCall("a", "look", '{"x":1}')),
        CallStarted("", "see"), CallEnded(ToolCall("", "see", "")),
        Finished("tool_calls"),
    ]  # fmt: skip
    deltas = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in stream_of(events)]
    assert deltas[1:-1] == [
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x":1}'}}],
        [{"index": 1, "id": "call_1_1", "type": "function", "function": {"name": "see", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": ""}}],
    ]


BAD = BadCall("<call>{oops", "the braces do not match", id="b", name="look")
NAMELESS = BadCall("<call>{oops", "no name could be read", id="b")


@pytest.mark.parametrize(
    ("parts", "reason", "content", "arguments", "finish_reason"),
    [
        ((Text("a"), BAD), "length", "a", [], "length"),
        ((BAD,), "length", "", [], "length"),
        ((BAD,), "end", "", ["<call>{oops"], "tool_calls"),
        ((BAD, NAMELESS), "length", "", ["<call>{oops"], "length"),
        ((NAMELESS,), "end", "[invalid tool call: no name could be read]", [], "stop"),
        ((NAMELESS,), "tool_calls", "[invalid tool call: no name could be read]", [], "stop"),
        ((NAMELESS, Text("b")), "end", "[invalid tool call: no name could be read]b", [], "stop"),
        ((BAD, Reasoning("r"), ToolCall("c", "see", "{}")), "tool_calls", "", ["<call>{oops", "{}"], "tool_calls"),
    ],
)
def test_a_bad_call_is_a_call_or_a_note_and_nothing_when_it_was_cut_off(
    parts: tuple[Any, ...], reason: StopReason, content: str, arguments: list[str], finish_reason: str
) -> None:
    message = Message("assistant", parts)
    streamed, streamed_reason = message_of(stream_of(replay(message, reason=reason)))
    assert streamed["content"] == content
    assert [call["function"]["arguments"] for call in streamed["tool_calls"]] == arguments
    assert streamed_reason == finish_reason
    assert_same(Reply(message, reason, USAGE, "m"), streamed, streamed_reason)


def assert_same(reply: Reply, streamed: Json, streamed_reason: str) -> None:
    choice = whole_of(reply)["choices"][0]
    whole = choice["message"]
    assert isinstance(whole["content"], str)
    assert whole["content"] == streamed["content"]
    assert whole.get("reasoning_content", "") == streamed["reasoning_content"]
    assert whole.get("tool_calls", []) == streamed["tool_calls"]
    assert choice["finish_reason"] == streamed_reason


TEXT = st.text(min_size=1, max_size=6)
PARTS = st.one_of(
    st.builds(Text, TEXT),
    st.builds(Reasoning, TEXT),
    st.builds(ToolCall, st.just("c"), TEXT, st.text(max_size=6)),
    st.builds(BadCall, TEXT, TEXT, st.just("c"), st.text(max_size=3)),
)
REASONS: st.SearchStrategy[StopReason] = st.sampled_from(
    ("end", "stop", "length", "tool_calls", "filtered", "cancelled")
)


@given(st.lists(PARTS, max_size=6), REASONS)
def test_a_stream_and_a_whole_reply_say_the_same(parts: list[Any], reason: StopReason) -> None:
    events = list(replay(Message("assistant", tuple(parts)), reason=reason))
    assert_same(fold(events), *message_of(stream_of(events)))


def test_text_after_a_held_call_does_not_overtake_it() -> None:
    encoder = openai_chat.encoder(ChatOptions(), id="x", created=1, model="m")
    encoder.encode(Started("m"))
    encoder.encode(CallStarted("b", ""))
    assert encoder.encode(CallEnded(NAMELESS)) == b""
    assert b"invalid tool call" in encoder.encode(TextDelta("after")).split(b"after")[0]


def test_chunks_are_ascii_so_that_no_reader_splits_a_line_at_a_unicode_separator() -> None:
    encoder = openai_chat.encoder(ChatOptions(), id="x", created=1, model="m\u2028")
    chunks = [encoder.encode(event) for event in (Started("m"), TextDelta("a\u2028\x85b"), ReasoningDelta("\u2029"))]
    assert b"".join(chunks).decode("ascii").splitlines()[0::2] == [
        chunk.decode("ascii").removesuffix("\n\n") for chunk in chunks
    ]


def test_a_failure_in_the_middle_is_an_error_event_and_no_done() -> None:
    encoder = openai_chat.encoder(ChatOptions(), id="x", created=1, model="m")
    fragment = encoder.encode_failure(EngineError("the engine stopped"))
    assert json.loads(fragment.removeprefix(b"data: ")) == {
        "error": {"message": "the engine stopped", "type": "server_error", "param": None, "code": "500"}
    }


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (InvalidRequest("m", field="a.b"), 400, "invalid_request_error", "a.b", "400"),
        (InvalidRequest("m", status=413), 413, "invalid_request_error", None, "413"),
        (ContextFull(needed=9, limit=8), 400, "invalid_request_error", "messages", "context_length_exceeded"),
        (NotAllowed("m"), 401, "authentication_error", None, "401"),
        (NotAllowed("m", status=403), 403, "authentication_error", None, "403"),
        (UnknownModel("x"), 404, "invalid_request_error", "model", "model_not_found"),
        (RateLimited("m", backend="b"), 429, "rate_limit_error", None, "429"),
        (EngineDown("m"), 503, "server_error", None, "503"),
        (EngineError("m"), 500, "server_error", None, "500"),
        (Refused("m", backend="b", status=302), 502, "server_error", None, "502"),
    ],
)
def test_each_error_has_the_shape_that_clients_test_for(
    error: Exception, status: int, kind: str, param: str | None, code: str
) -> None:
    counts = {"n_prompt_tokens": 9, "n_ctx": 8} if isinstance(error, ContextFull) else {}
    found, body = encode_error(error)
    assert found == status
    assert body == {"error": {"message": str(error), "type": kind, "param": param, "code": code, **counts}}


def test_of_an_unexpected_exception_nothing_is_told() -> None:
    status, body = encode_error(KeyError("secret"))
    assert status == 500
    assert "secret" not in json.dumps(body)
    assert body["error"]["type"] == "server_error"


# ---- several choices, scores, and calls of other kinds


def score(piece: bytes, logprob: float, *others: tuple[bytes, float]) -> TokenScore:
    return TokenScore(7, piece, logprob, tuple((8, *other) for other in others))


def test_each_choice_has_its_own_role_and_reason_and_the_end_comes_once() -> None:
    encoder = openai_chat.encoder(ChatOptions(True, n=2), id="chatcmpl-1", created=17, model="m")
    usages = Usage(input=5, cache_read=1, output=2), Usage(cache_read=6, output=3)
    told: list[tuple[int, Event]] = [
        (0, Started("m")),
        (0, TextDelta("a")),
        (1, Started("m")),
        (1, CallEnded(ToolCall("", "look", "{}"))),
        (0, Finished("length", usages[0])),
        (1, Finished("tool_calls", usages[1])),
    ]
    *chunks, done, _ = b"".join(encoder.encode(event, choice) for choice, event in told).decode().split("\n\n")
    bodies = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    assert done == "data: [DONE]"
    assert [body["usage"] for body in bodies[:-1]] == [None] * (len(bodies) - 1)
    assert (bodies[-1]["choices"], bodies[-1]["usage"]["prompt_tokens"]) == ([], 6)
    assert (bodies[-1]["usage"]["completion_tokens"], bodies[-1]["usage"]["total_tokens"]) == (5, 11)
    choices = [body["choices"][0] for body in bodies[:-1]]
    for index, reason in ((0, "length"), (1, "tool_calls")):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": None}
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [reason]


def test_several_replies_are_several_choices_of_one_prompt() -> None:
    replies = [
        Reply(Message.assistant(text), "end", Usage(input=5, cache_read=at, output=2), "m")
        for at, text in enumerate("ab")
    ]
    whole = openai_chat.encoder(ChatOptions(n=2), id="chatcmpl-1", created=17, model="m").encode_replies(replies)
    assert [(choice["index"], choice["message"]["content"]) for choice in whole["choices"]] == [(0, "a"), (1, "b")]
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (5, 4)


def test_calls_of_different_choices_have_different_ids() -> None:
    reply = Reply(Message("assistant", (ToolCall("", "look", "{}"),)), "tool_calls", Usage(), "m")
    whole = openai_chat.encoder(ChatOptions(n=2), id="chatcmpl-1", created=17, model="m").encode_replies([reply] * 2)
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in whole["choices"]]
    assert len(set(ids)) == 2


def test_scores_stand_beside_the_text_that_they_are_of() -> None:
    scores = (score(b"Hi", -0.5, (b"Hi", -0.5), (b"Ho", -1.25)), score(b"\xe2", float("-inf")))
    events: list[Event] = [
        Started("m"),
        TextDelta("Hi", scores[:1]),
        TextDelta(" "),
        TextDelta("€", scores[1:]),
        Finished("end"),
    ]
    encoder = openai_chat.encoder(ChatOptions(logprobs=True), id="chatcmpl-1", created=17, model="m")
    text = b"".join(map(encoder.encode, events)).decode()
    chunks = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-2]]
    told = [chunk["choices"][0].get("logprobs") for chunk in chunks]
    first = {
        "token": "Hi",
        "logprob": -0.5,
        "bytes": [72, 105],
        "top_logprobs": [
            {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]},
            {"token": "Ho", "logprob": -1.25, "bytes": [72, 111]},
        ],
    }
    second = {"token": "\ufffd", "logprob": -9999.0, "bytes": [0xE2], "top_logprobs": []}
    assert told == [None, {"content": [first], "refusal": None}, None, {"content": [second], "refusal": None}, None]
    reply = fold(events)
    whole = openai_chat.encoder(ChatOptions(logprobs=True), id="chatcmpl-1", created=17, model="m").encode_replies(
        [reply]
    )
    assert whole["choices"][0]["logprobs"] == {"content": [first, second], "refusal": None}


def test_scores_are_not_told_of_a_note_that_was_held_back() -> None:
    events: list[Event] = [
        Started("m"),
        CallStarted("c", ""),
        CallEnded(BadCall("x", "no name", "c")),
        TextDelta("a", (score(b"a", -1),)),
    ]
    encoder = openai_chat.encoder(ChatOptions(logprobs=True), id="chatcmpl-1", created=17, model="m")
    chunks = b"".join(map(encoder.encode, events)).decode().split("\n\n")[1:-1]
    told = [json.loads(chunk.removeprefix("data: "))["choices"][0] for chunk in chunks]
    assert [("logprobs" in choice, choice["delta"]["content"]) for choice in told] == [
        (False, "[invalid tool call: no name]"),
        (True, "a"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"input": "a\\n\\"b"}', 'a\n"b'), ("{broken", "{broken"), ('{"other": 1}', '{"other": 1}'), ('["x"]', '["x"]')],
)
def test_a_call_of_any_text_is_told_as_text(arguments: str, text: str) -> None:
    options = ChatOptions(custom=frozenset({"patch"}))
    reply = Reply(Message("assistant", (ToolCall("c", "patch", arguments),)), "tool_calls", Usage(), "m")
    whole = openai_chat.encoder(options, id="chatcmpl-1", created=17, model="m").encode_replies([reply])
    assert whole["choices"][0]["message"]["tool_calls"] == [
        {"id": "c", "type": "custom", "custom": {"name": "patch", "input": text}}
    ]
    encoder = openai_chat.encoder(options, id="chatcmpl-1", created=17, model="m")
    chunks = b"".join(map(encoder.encode, replay(reply.message))).decode().split("\n\n")[1:3]
    deltas = [json.loads(chunk.removeprefix("data: "))["choices"][0]["delta"] for chunk in chunks]
    assert [delta["tool_calls"][0]["custom"] for delta in deltas] == [{"name": "patch", "input": ""}, {"input": text}]


def test_a_call_goes_back_in_the_old_way_if_functions_were_offered() -> None:
    options = ChatOptions(is_legacy=True)
    reply = Reply(Message("assistant", (ToolCall("c", "look", '{"a": 1}'),)), "tool_calls", Usage(), "m")
    whole = openai_chat.encoder(options, id="chatcmpl-1", created=17, model="m").encode_replies([reply])
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "look", "arguments": '{"a": 1}'}
    assert "tool_calls" not in choice["message"]


def test_thoughts_have_two_names_or_none() -> None:
    message = Message("assistant", (Reasoning("Hm."), Text("Yes.")))
    for options, told in ((ChatOptions(), "Hm."), (ChatOptions(hides_reasoning=True), None)):
        encoder = openai_chat.encoder(options, id="chatcmpl-1", created=17, model="m")
        said = encoder.encode_replies([Reply(message, "end", Usage(), "m")])["choices"][0]["message"]
        assert (said.get("reasoning_content"), said.get("reasoning"), said["content"]) == (told, told, "Yes.")


def test_a_verbose_answer_says_how_the_prompt_was_read() -> None:
    body: Json = {"messages": [{"role": "user", "content": "a"}], "verbose": True}
    decoded = openai_chat.decode_request(body)
    assert decoded.request.report
    reply = replace(fold([Started("m"), Finished("end")]), read=ReadPrompt("<s> a", (), Sampling(top_k=40)))
    whole = openai_chat.encoder(decoded.options, id="", created=0, model="").encode_replies([reply])
    assert whole["__verbose"]["prompt"] == "<s> a"
    assert whole["__verbose"]["generation_settings"]["top_k"] == 40
    decoded = openai_chat.decode_request(body | {"verbose": False})
    assert not decoded.request.report
    assert "__verbose" not in openai_chat.encoder(decoded.options, id="", created=0, model="").encode_replies([reply])


def test_proofs_go_out_with_the_thoughts_and_the_calls_that_they_are_of() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"}]
    parts = (
        Reasoning("Hm.", f"openai.chat:{json.dumps(details)}"),
        ToolCall("a", "look", "{}", signature="gemini:CiQB"),
        ToolCall("b", "look", "{}", signature='openai.chat:{"x": 1}'),
        Reasoning("", 'openai.chat:{"extra_content":{"y":2}}'),
    )
    events = list(replay(Message("assistant", parts), model="m"))
    deltas = [chunk["choices"][0]["delta"] for chunk in stream_of(events)]
    assert [delta["reasoning_details"] for delta in deltas if "reasoning_details" in delta] == [details]
    extras = [{"google": {"thought_signature": "CiQB"}}, {"x": 1}]
    begun = [delta["tool_calls"][0] for delta in deltas if "id" in delta.get("tool_calls", [{}])[0]]
    assert [call["extra_content"] for call in begun] == extras
    whole = whole_of(fold(events))["choices"][0]["message"]
    assert whole["reasoning_details"] == details
    assert [call["extra_content"] for call in whole["tool_calls"]] == extras
    assert (
        {"y": 2} == whole["extra_content"] == next(each["extra_content"] for each in deltas if "extra_content" in each)
    )
    sent = openai_chat.decode_request({"messages": [{"role": "user", "content": "a"}, whole]}).request
    calls = sent.messages[1].calls
    assert sent.messages[1].reasoning == "Hm."
    assert [call.signature for call in calls] == ["gemini:CiQB", 'openai.chat:{"x":1}']
    assert sent.messages[1].parts[-1] == parts[-1]


def test_signatures_of_other_protocols_are_not_shown_in_chat() -> None:
    thought = Reasoning("Hm.", "anthropic:c2ln")
    chunks = stream_of(replay(Message("assistant", (thought, Text("A"))), model="m"))
    assert "c2ln" not in json.dumps(chunks)
