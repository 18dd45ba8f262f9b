"""OpenAI's completions: prompts of every form, and columns of logprobs that add up over a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shepherd.core import (
    Completion,
    ContextFull,
    Event,
    Evicted,
    Finished,
    Grammar,
    InvalidRequest,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    Sampling,
    Started,
    TextDelta,
    TokenScore,
    Usage,
    fold,
)
from shepherd.wire.base import Json
from shepherd.wire.openai import completions as openai_completions
from shepherd.wire.openai.completions import CompletionOptions, decode_request, encode_error


def request_of(**fields: Any) -> Request:
    return decode_request({"model": "m", "prompt": "Once", **fields}).request


@pytest.mark.parametrize(
    ("prompt", "decoded"),
    [
        ("Once", ["Once"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        ([[]], [()]),
        (["a", [1]], ["a", (1,)]),
    ],
)
def test_a_prompt_is_text_or_tokens_one_or_several(prompt: object, decoded: list[Any]) -> None:
    requests = decode_request({"prompt": prompt}).requests
    assert [request.completion for request in requests] == [Completion(one) for one in decoded]
    assert {request.max_tokens for request in requests} == {16}
    assert {request.messages for request in requests} == {()}


def test_every_choice_of_every_prompt_is_a_request() -> None:
    decoded = decode_request({"prompt": ["a", "b"], "n": 2, "best_of": 2, "seed": 5})
    told = [(request.completion and request.completion.prompt, request.sampling.seed) for request in decoded.requests]
    assert told == [("a", 5), ("a", 6), ("b", 5), ("b", 6)]
    assert decoded.options == CompletionOptions(n=2, n_choices=4)


def test_everything_that_is_said_arrives() -> None:
    body: Json = {
        "model": "m", "prompt": "a", "suffix": "b", "echo": True, "logprobs": 5, "max_tokens": 3, "stop": ["x"],
        "temperature": 0, "user": "u", "stream": True, "stream_options": {"include_usage": True}, "unknown": 1,
        "guided_regex": "a+",
    }  # fmt: skip
    decoded = decode_request(body)
    assert decoded.request == Request(
        "m",
        completion=Completion("a", "b", True),
        sampling=Sampling(temperature=0.0),
        grammar=Grammar("regex", "a+"),
        max_tokens=3,
        stop=("x",),
        logprobs=5,
        session="u",
        user="u",
        archive=False,
        recall=False,
        extra={"constrained_by": "guided_regex"},
    )
    assert (decoded.stream, decoded.options) == (True, CompletionOptions(include_usage=True, logprobs=True))


@pytest.mark.parametrize(
    ("fields", "max_tokens"), [({}, 16), ({"max_tokens": None}, 16), ({"max_tokens": -1}, None), ({"max_tokens": 0}, 0)]
)
def test_an_answer_has_16_tokens_where_nobody_says_how_many(fields: Json, max_tokens: int | None) -> None:
    assert request_of(**fields).max_tokens == max_tokens


def test_null_is_absent_everywhere() -> None:
    names = ["suffix", "echo", "logprobs", "max_tokens", "stop", "n", "best_of", "seed", "stream", "stream_options",
             "model", "user", "temperature", "logit_bias", "response_format"]  # fmt: skip
    assert decode_request({"prompt": "a"} | dict.fromkeys(names)) == decode_request({"prompt": "a"})
    assert request_of(suffix="") == request_of(), "nothing behind the gap is no gap"


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"prompt": None}, "prompt", "missing"),
        ({"prompt": None, "messages": []}, "prompt", "/v1/chat/completions"),
        ({"prompt": 5}, "prompt", "an array of tokens, or an array of these, not 5"),
        ({"prompt": {"a": 1}}, "prompt.prompt_string", "missing"),
        ({"prompt": []}, "prompt", "an empty array"),
        ({"prompt": [1, {}]}, "prompt[1]", "a token: an integer of at least 0, not an object"),
        ({"prompt": [1.5]}, "prompt[0]", "not 1.5"),
        ({"prompt": [True]}, "prompt[0]", "not true"),
        ({"prompt": [-1]}, "prompt[0]", "not -1"),
        ({"prompt": ["a", None]}, "prompt[1]", "a string, an array of tokens, or an array of these, not null"),
        ({"prompt": [[1], [None]]}, "prompt[1][0]", "not null"),
        ({"prompt": ["a"] * 65}, "prompt", "makes 65 choices; at most 64"),
        ({"prompt": ["a"] * 10, "n": 7}, "n", "makes 70 choices"),
        ({"n": 0}, "n", "from 1 to 64"),
        ({"best_of": 3}, "best_of", "leave best_of out"),
        ({"best_of": "a"}, "best_of", "an integer"),
        ({"logprobs": 21}, "logprobs", "from 0 to 20, not 21"),
        ({"logprobs": True}, "logprobs", "an integer from 0 to 20, not true"),
        ({"suffix": 1}, "suffix", "a string"),
        ({"echo": "yes"}, "echo", "true or false"),
        ({"max_tokens": -2}, "max_tokens", "at least 0"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or false"),
        ({"model": 1}, "model", "a string"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_the_rule(fields: Json, field: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_of(**fields)
    assert caught.value.field == field
    assert said in caught.value.message


# ---- answers


def encoder(**options: Any) -> openai_completions.Encoder:
    return openai_completions.encoder(CompletionOptions(**options), id="cmpl-1", created=17, model="m")


def chunks_of(events: list[tuple[int, Event]], **options: Any) -> list[Json]:
    made = encoder(**options)
    *chunks, done, rest = b"".join(made.encode(event, choice) for choice, event in events).decode("ascii").split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    bodies: list[Json] = [json.loads(chunk.removeprefix("data: ")) for chunk in chunks]
    assert {(body["id"], body["object"], body["created"], body["model"]) for body in bodies} == {
        ("cmpl-1", "text_completion", 17, "m")
    }
    return bodies


def test_a_stream_is_chunks_of_text_and_a_reason() -> None:
    events: list[Event] = [Started("x"), Evicted(1, 2), ReasoningDelta("hm"), TextDelta('a"\n'), Finished("length")]
    assert [body["choices"] for body in chunks_of([(0, event) for event in events])] == [
        [{"index": 0, "text": 'a"\n', "logprobs": None, "finish_reason": None}],
        [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}],
    ]


def test_a_prompt_counts_once_however_many_choices_it_has() -> None:
    usage = Usage(input=3, cache_read=1, output=2)
    replies = [Reply(Message.assistant(text), "end", usage, "m") for text in "abcd"]
    whole = encoder(n=2, n_choices=4).encode_replies(replies)
    assert whole["object"] == "text_completion"
    assert [choice["text"] for choice in whole["choices"]] == ["a", "b", "c", "d"]
    assert [whole["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")] == [8, 8, 16]
    events: list[tuple[int, Event]] = [
        (at, event) for at in range(4) for event in (Started("m"), Finished("end", usage))
    ]
    bodies = chunks_of(events, n=2, n_choices=4, include_usage=True)
    assert (bodies[-1]["choices"], bodies[-1]["usage"]) == ([], whole["usage"])
    assert [body["usage"] for body in bodies[:-1]] == [None] * 4


SCORES = (
    TokenScore(1, b"Hi", float("nan")),
    TokenScore(2, b" \xe2", -0.5, ((2, b" \xe2", -0.5), (3, b"!", -1.0))),
    TokenScore(4, b"\x82\xac", -2.0, ((5, b"x", -0.1),)),
    TokenScore(6, b"!", float("-inf")),
)


def test_logprobs_come_in_columns() -> None:
    deltas = TextDelta("Hi", SCORES[:1]), TextDelta(" €", SCORES[1:3]), TextDelta("!", SCORES[3:])
    events: list[Event] = [Started("m"), *deltas, Finished("end")]
    whole = encoder(logprobs=True).encode_replies([fold(events)])["choices"][0]["logprobs"]
    assert whole == {
        "tokens": ["Hi", r"bytes:\x20\xe2", r"bytes:\x82\xac", "!"],
        "token_logprobs": [None, -0.5, -2.0, -9999.0],
        "top_logprobs": [
            None,
            {r"bytes:\x20\xe2": -0.5, "!": -1.0},
            {"x": -0.1, r"bytes:\x82\xac": -2.0},
            {"!": -9999.0},
        ],
        "text_offset": [0, 2, 3, 4],
    }
    told = [body["choices"][0]["logprobs"] for body in chunks_of([(0, event) for event in events], logprobs=True)]
    assert {key: [item for part in told if part for item in part[key]] for key in whole} == whole


def test_an_error_has_openais_shape() -> None:
    status, body = encode_error(ContextFull(needed=9, limit=8, n_prompt=7))
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (7, 8)
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "context_length_exceeded", "prompt")
    assert body["error"]["type"] == "invalid_request_error"
    assert b'"error"' in encoder().encode_failure(ContextFull(needed=9, limit=8))
