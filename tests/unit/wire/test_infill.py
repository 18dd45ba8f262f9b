"""llama-server's infill: what stands around the cursor goes in, what fits in comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shepherd.core import (
    Completion,
    Event,
    Finished,
    InvalidRequest,
    Request,
    Sampling,
    Started,
    StopReason,
    TextDelta,
    Usage,
    fold,
)
from shepherd.wire.base import Json
from shepherd.wire.llama import infill
from shepherd.wire.llama.answer import AnswerOptions
from shepherd.wire.llama.infill import decode_request


@pytest.mark.parametrize(
    ("body", "completion"),
    [
        ({"input_prefix": "a(", "input_suffix": ")"}, Completion("a(", ")")),
        ({"input_prefix": "a"}, Completion("a", "")),
        ({"input_suffix": "b"}, Completion("", "b")),
        ({"input_prefix": "a\n", "prompt": "  b", "input_suffix": ""}, Completion("a\n  b", "")),
        (
            {"input_prefix": "a", "input_extra": [{"filename": "f.py", "text": "x"}, {"text": "y"}]},
            Completion("--- f.py ---\nx\n\n--- snippet ---\ny\n\na", ""),
        ),
    ],
)
def test_the_gap_is_where_the_cursor_is(body: Json, completion: Completion) -> None:
    assert decode_request(body).request.completion == completion


def test_what_editors_send_along_arrives() -> None:
    body: Json = {
        "model": "m", "input_prefix": "a", "n_predict": 12, "stop": ["\n"], "temperature": 0, "top_k": 40,
        "stream": True, "cache_prompt": True, "samplers": ["top_k"], "t_max_predict_ms": 500, "n_indent": 4,
    }  # fmt: skip
    decoded = decode_request(body)
    sampling = Sampling(temperature=0.0, top_k=40)
    assert decoded.request == Request(
        "m",
        completion=Completion("a", ""),
        max_tokens=12,
        stop=("\n",),
        sampling=sampling,
        report=True,
        archive=False,
        recall=False,
    )
    assert (decoded.stream, decoded.options) == (True, AnswerOptions(max_tokens=12))
    assert decode_request({"input_prefix": "a", "n_predict": -1}).request.max_tokens is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input_prefix"),
        ({"prompt": "a"}, "input_prefix"),
        ({"input_prefix": 5}, "input_prefix"),
        ({"input_prefix": "a", "input_suffix": []}, "input_suffix"),
        ({"input_prefix": "a", "input_extra": ["x"]}, "input_extra[0]"),
        ({"input_prefix": "a", "input_extra": [{"text": ""}, {"filename": "f.py"}]}, "input_extra[1].text"),
        ({"input_prefix": "a", "input_extra": [{"filename": 1, "text": "x"}]}, "input_extra[0].filename"),
        ({"input_prefix": "a", "input_extra": [{"text": 1}]}, "input_extra[0].text"),
        ({"input_prefix": "a", "n_predict": "all"}, "n_predict"),
    ],
)
def test_a_wrong_field_is_named(body: Json, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_request(body)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("reason", "stop", "kind"), [("end", None, "eos"), ("length", None, "limit"), ("stop", ";", "word")]
)
def test_a_stream_and_a_whole_answer_say_the_same(reason: StopReason, stop: str | None, kind: str) -> None:
    usage = Usage(input=4, cache_read=6, output=3)
    events: list[Event] = [Started("real"), TextDelta("x"), TextDelta("é"), Finished(reason, usage, stop)]
    whole: Any = infill.encoder(AnswerOptions(), id="", created=0, model="").encode_replies([fold(events)])
    assert (whole["content"], whole["stop"], whole["model"], whole["stop_type"]) == ("xé", True, "real", kind)
    assert whole["stopping_word"] == (stop or "")
    assert (whole["tokens_evaluated"], whole["tokens_cached"], whole["tokens_predicted"]) == (10, 6, 3)
    made = infill.encoder(AnswerOptions(), id="", created=0, model="")
    text = b"".join(map(made.encode, events)).decode()
    chunks: list[Any] = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-1]]
    assert "".join(chunk["content"] for chunk in chunks) == "xé"
    assert [chunk["stop"] for chunk in chunks] == [False, False, True]
    assert {**chunks[-1], "timings": 0} == {**whole, "content": "", "timings": 0}
    assert b'"error"' in made.encode_failure(InvalidRequest("no"))
