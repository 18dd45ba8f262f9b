"""llama-server's completion: what its clients send, and what they read of the answer."""

from __future__ import annotations

import json
import math
from itertools import count
from typing import Any

import pytest

from shepherd.core import (
    Completion,
    ContextFull,
    Event,
    Evicted,
    Finished,
    InvalidRequest,
    Progress,
    ReadPrompt,
    Sampling,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
    Usage,
    fold,
)
from shepherd.wire.base import Json
from shepherd.wire.llama import completion
from shepherd.wire.llama.answer import AnswerOptions
from shepherd.wire.llama.completion import decode_request
from shepherd.wire.watch import Watch

USAGE = Usage(input=4, cache_read=6, output=3)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a<|im_end|>", ("a<|im_end|>",)),
        ([1, 2], ((1, 2),)),
        ({"prompt_string": "a"}, ("a",)),
        ([[1, 2], "a", {"prompt_string": "b"}], ((1, 2), "a", "b")),
        ([1, 2, "a", 3], ((1, 2, "a", 3),)),
        (["a", 3], (("a", 3),)),
    ],
)
def test_prompts_come_in_every_form_and_their_control_tokens_count(prompt: Any, prompts: Any) -> None:
    requests = decode_request({"prompt": prompt, "n_predict": 7}).requests
    expected = [Completion(one, special=True) for one in prompts]
    assert [request.completion for request in requests] == expected
    assert {request.max_tokens for request in requests} == {7}


def test_without_a_limit_the_answer_may_fill_the_context() -> None:
    assert decode_request({"prompt": "a"}).request.max_tokens is None
    assert decode_request({"prompt": "a", "n_predict": -1, "image_data": []}).request.max_tokens is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1, None]}, "prompt[1]"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "prompt.multimodal_data"),
        ({"prompt": "a [img-1]", "image_data": [{"data": "aGk=", "id": 1}]}, "image_data"),
        ({"prompt": "a", "multimodal_data": ["aGk="]}, "multimodal_data"),
        ({"prompt": "a", "n_probs": 101}, "n_probs"),
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": "a", "grammar": "no"}, "grammar"),
        ({"prompt": "a", "logit_bias": [[None, -1]]}, "logit_bias[0]"),
    ],
)
def test_a_wrong_field_is_named(body: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_request(body)
    assert caught.value.field == field


def chunks_of(options: AnswerOptions, events: list[Event]) -> list[Any]:
    encoder = completion.encoder(options, id="", created=0, model="")
    text = b"".join(map(encoder.encode, events)).decode()
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-1]]


@pytest.mark.parametrize(
    ("reason", "n_max", "kind", "truncated"),
    [("end", None, "eos", False), ("length", 3, "limit", False), ("length", None, "limit", True)],
)
def test_a_stream_and_a_whole_answer_say_the_same(
    reason: StopReason, n_max: int | None, kind: str, truncated: bool
) -> None:
    options = AnswerOptions(max_tokens=n_max)
    start = Started("real", read=ReadPrompt("<s>Once"))
    events: list[Event] = [start, TextDelta("x"), TextDelta("\n"), Finished(reason, USAGE)]
    whole: Any = completion.encoder(options, id="", created=0, model="").encode_replies([fold(events)])
    assert (whole["content"], whole["stop_type"], whole["truncated"]) == ("x\n", kind, truncated)
    assert (whole["prompt"], whole["has_new_line"], whole["model"]) == ("<s>Once", True, "real")
    assert (whole["timings"]["prompt_n"], whole["timings"]["cache_n"], whole["timings"]["predicted_n"]) == (4, 6, 3)
    *texts, last = chunks_of(options, events)
    assert [text["content"] for text in texts] == ["x", "\n"]
    assert {**last, "timings": 0} == {**whole, "content": "", "timings": 0}


def test_several_prompts_are_answered_with_an_array() -> None:
    options = AnswerOptions(n_choices=2)
    reads = map(ReadPrompt, "ab")
    replies = [fold([Started("m", read=next(reads)), TextDelta(text), Finished("end", USAGE)]) for text in "xy"]
    whole = completion.encoder(options, id="", created=0, model="").encode_replies(replies)
    assert isinstance(whole, list)
    assert [(one["index"], one["prompt"], one["content"]) for one in whole] == [(0, "a", "x"), (1, "b", "y")]


def test_only_the_fields_that_are_named_come_back() -> None:
    fields = ["content", "generation_settings/n_predict", "no/way"]
    decoded = decode_request({"prompt": "a", "n_predict": 3, "response_fields": fields})
    reply = fold([Started("m"), TextDelta("x"), Finished("end", USAGE)])
    whole = completion.encoder(decoded.options, id="", created=0, model="").encode_replies([reply])
    assert whole == {"content": "x", "generation_settings/n_predict": 3}


def test_the_settings_say_which_tokens_are_wanted_and_which_never_come() -> None:
    decoded = decode_request({"prompt": "a", "logit_bias": [["no", False], [7, 2]], "ignore_eos": True})
    assert [*(decoded.request.sampling.logit_bias or ())] == [("no", -100), (7, 2)]
    read = ReadPrompt("a", ((5, -100.0), (7, 2.0), (0, -math.inf)))
    reply = fold([Started("m", read=read), Finished("end", USAGE)])
    whole: Any = completion.encoder(decoded.options, id="", created=0, model="").encode_replies([reply])
    assert whole["generation_settings"]["logit_bias"] == [
        {"token": 5, "bias": -100}, {"token": 7, "bias": 2}, {"token": 0, "bias": None},
    ]  # fmt: skip


def test_probabilities_and_tokens_come_with_their_text() -> None:
    decoded = decode_request({"prompt": "a", "n_probs": 1, "return_tokens": True})
    assert decoded.request.logprobs == 1
    score = TokenScore(5, b"x", -0.5, ((5, b"x", -0.5),))
    one = {"id": 5, "token": "x", "bytes": [120], "logprob": -0.5}
    events: list[Event] = [Started("m"), TextDelta("x", (score,), (5,)), Finished("end", USAGE)]
    chunk, _ = chunks_of(decoded.options, events)
    assert (chunk["tokens"], chunk["completion_probabilities"]) == ([5], [{**one, "top_logprobs": [one]}])
    whole: Any = completion.encoder(decoded.options, id="", created=0, model="").encode_replies([fold(events)])
    assert (whole["tokens"], whole["completion_probabilities"]) == (chunk["tokens"], chunk["completion_probabilities"])


def test_every_setting_that_holds_is_named_as_llama_server_does() -> None:
    read = ReadPrompt("<s> a", (), Sampling(seed=42, top_k=40, repetition_penalty=1.1))
    decoded = decode_request({"prompt": "a", "n_predict": 3})
    assert decoded.request.report
    whole: Any = completion.encoder(decoded.options, id="", created=0, model="").encode_replies(
        [fold([Started("m", read=read), Finished("end", USAGE)])]
    )
    assert whole["generation_settings"] == {
        "seed": 42,
        "top_k": 40,
        "repeat_penalty": 1.1,
        "logit_bias": [],
        "n_predict": 3,
        "n_probs": 0,
        "stop": [],
        "stream": False,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,  # a sampler that is not here, switched off
    }


def test_each_piece_of_a_stream_has_its_tokens() -> None:
    events: list[Event] = [Started("m"), TextDelta("a", (), (5, 6)), TextDelta("b", (), (7,)), Finished("end", USAGE)]
    first, second, last = chunks_of(AnswerOptions(), events)
    assert (first["tokens"], second["tokens"], last["tokens"]) == ([5, 6], [7], [])


def test_times_come_with_the_progress_of_the_prompt_if_they_are_wanted() -> None:
    options = AnswerOptions(return_progress=True, timings_per_token=True)
    events: list[Event] = [Started("m", usage=Usage(input=8)), Progress(4, 8), TextDelta("x"), Finished("end")]
    first, second, third = [chunk["timings"] for chunk in chunks_of(options, events) if "prompt_progress" in chunk]
    assert (first["prompt_n"], first["prompt_ms"], first["predicted_n"]) == (0, 0.0, 0)
    assert (second["prompt_n"], third["prompt_n"]) == (4, 8)
    assert 0 < second["prompt_ms"] <= third["prompt_ms"]


def test_an_answer_for_which_text_left_the_context_is_truncated() -> None:
    events: list[Event] = [Started("m"), TextDelta("x"), Evicted(1, 16), Finished("length", Usage(output=3))]
    options = decode_request({"prompt": "a", "n_predict": 3}).options
    assert chunks_of(options, events)[-1]["truncated"]
    whole: Any = completion.encoder(options, id="", created=0, model="").encode_replies([fold(events)])
    assert whole["truncated"]
    del events[2]
    assert not chunks_of(options, events)[-1]["truncated"]


def test_probabilities_after_sampling_have_names_of_their_own() -> None:
    decoded = decode_request({"prompt": "a", "n_probs": 1, "post_sampling_probs": True})
    assert decoded.request.scores_drawn
    score = TokenScore(5, b"x", math.log(0.25), ((6, b"y", math.log(0.75)),))
    chunk, _ = chunks_of(decoded.options, [Started("m"), TextDelta("x", (score,)), Finished("end", USAGE)])
    [found] = chunk["completion_probabilities"]
    assert found == {
        "id": 5,
        "token": "x",
        "bytes": [120],
        "prob": pytest.approx(0.25),
        "top_probs": [{"id": 6, "token": "y", "bytes": [121], "prob": pytest.approx(0.75)}],
    }
    assert not decode_request({"prompt": "a", "post_sampling_probs": True}).request.scores_drawn


def test_the_prompt_is_reported_as_it_is_read_to_its_end() -> None:
    options = AnswerOptions(return_progress=True)
    usage = Usage(input=8, cache_read=2)
    events: list[Event] = [Started("m", usage=usage), Progress(4, 8), TextDelta("x"), TextDelta("y"), Finished("end")]
    found = [chunk["prompt_progress"] for chunk in chunks_of(options, events) if "prompt_progress" in chunk]
    assert [each["processed"] for each in found] == [2, 6, 10]
    assert {(each["total"], each["cache"]) for each in found} == {(10, 2)}


def test_reading_and_writing_are_timed_apart() -> None:
    ticks = count(0, 10**9)
    watch = Watch(clock=lambda: next(ticks))
    for event in (Started("m"), Progress(1, 2), TextDelta("a"), TextDelta("b"), Finished("end")):
        watch.note_time(event)
    assert watch.timings(Usage(input=4, cache_read=6, output=2)) == {
        "cache_n": 6,
        "prompt_n": 4,
        "prompt_ms": 1000.0,
        "prompt_per_token_ms": 250.0,
        "prompt_per_second": 4.0,
        "predicted_n": 2,
        "predicted_ms": 1000.0,
        # Two tokens are one step: the first comes with the end of the prompt.
        "predicted_per_token_ms": 1000.0,
        "predicted_per_second": 1.0,
    }
    assert watch.timings(Usage(output=1))["predicted_per_second"] == 0


def test_the_time_in_the_queue_is_not_the_time_of_reading() -> None:
    ticks = iter((0, 5000, 5400))
    watch = Watch(clock=lambda: next(ticks) * 10**6)
    # The start and the end of a prompt of one batch come together, long after the body.
    for event in (Started("m", at_ns=4900 * 10**6), TextDelta("a"), Finished("end")):
        watch.note_time(event)
    timings = watch.timings(Usage(input=4, output=2))
    assert (timings["prompt_ms"], timings["predicted_ms"]) == (100.0, 400.0)


def test_a_full_context_is_told_in_numbers() -> None:
    status, body = completion.encode_error(ContextFull(needed=10, limit=5))
    assert (status, body["error"]["type"]) == (400, "exceed_context_size_error")
    assert "exceeds the available context size" in body["error"]["message"]
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (10, 5)
