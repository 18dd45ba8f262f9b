"""Answers in Ollama's protocol: the shapes, the figures, and that a stream and a whole answer say the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
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
    EngineError,
    Event,
    Evicted,
    Finished,
    Message,
    Part,
    Progress,
    RateLimited,
    Reasoning,
    Refused,
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
from shepherd.wire.ollama.answer import AnswerOptions, Encoder, encoder, read_object
from shepherd.wire.ollama.context import read_context
from shepherd.wire.ollama.fields import Errand, encode_error

USAGE = Usage(input=7, cache_read=3, output=5)


def ticking(step: int = 1_000) -> Iterator[int]:
    return itertools.count(0, step)


def encoding(*, chat: bool = True, errand: Errand = "", model: str = "m", step: int = 1_000) -> Encoder:
    """An encoder whose clock goes on by `step` ns whenever somebody looks."""
    times = ticking(step)
    return encoder(
        AnswerOptions(chat, next(times), errand),
        id="ollama-ab",
        created=1_700_000_000,
        model=model,
        clock=times.__next__,
    )


def lines_of(events: Iterable[Event], encoder: Encoder) -> list[Json]:
    text = b"".join(encoder.encode(event) for event in events).decode("ascii")
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def whole_of(events: Iterable[Event], encoder: Encoder) -> Json:
    """What a client gets that does not want a stream."""
    told = list(events)
    for event in told:
        encoder.note_time(event)
    return encoder.encode_replies([fold(told)])


def folded(lines: Iterable[Json], *, chat: bool = True) -> Json:
    """What a client puts together; checks the order on the way."""
    text, thinking, calls, last = "", "", [], None
    for line in lines:
        assert last is None, "something follows the end"
        said = line["message"] if chat else line
        assert not chat or said["role"] == "assistant"
        text += said["content" if chat else "response"]
        thinking += said.get("thinking", "")
        calls += said.get("tool_calls", [])
        if "tool_calls" in said:
            assert said["content" if chat else "response"] == "", "a call has a line of its own"
        last = line if line["done"] else None
    assert last is not None
    return {"text": text, "thinking": thinking, "calls": calls, "end": timeless(last, chat=chat)}


def timeless(last: Json, *, chat: bool = True) -> Json:
    dropped = {"created_at", "message" if chat else "response", "thinking", "tool_calls", "logprobs"}
    return {key: value for key, value in last.items() if key not in dropped and not key.endswith("_duration")}


def message_of(whole: Json, *, chat: bool = True) -> Json:
    said = whole["message"] if chat else whole
    return {
        "text": said["content" if chat else "response"],
        "thinking": said.get("thinking", ""),
        "calls": said.get("tool_calls", []),
        "end": timeless(whole, chat=chat),
    }


CALL = ToolCall("c1", "look", '{"at": 12345678901234567890, "é": "\u2028"}')


def test_a_stream_is_lines_of_which_the_last_is_done() -> None:
    events = replay(Message("assistant", (Reasoning("Hm."), Text("I look."), CALL)), model="m")
    lines = lines_of(events, encoding())
    stamps = [datetime.fromisoformat(line.pop("created_at")[:26] + "+00:00") for line in lines]
    assert stamps == sorted(stamps)
    assert stamps[0].timestamp() == pytest.approx(1_700_000_000, abs=1e-3)
    head = {"model": "m"}
    arguments = {"at": 12345678901234567890, "é": "\u2028"}
    call = {"id": "c1", "function": {"index": 0, "name": "look", "arguments": arguments}}
    silent = {"role": "assistant", "content": ""}
    assert lines[:-1] == [
        {**head, "message": {**silent, "thinking": "Hm."}, "done": False},
        {**head, "message": {"role": "assistant", "content": "I look."}, "done": False},
        {**head, "message": {**silent, "tool_calls": [call]}, "done": False},
    ]
    assert timeless(lines[-1]) == {
        "model": "m", "done": True, "done_reason": "stop", "prompt_eval_count": 0, "eval_count": 0,
    }  # fmt: skip
    assert lines[-1]["message"] == silent


def test_generate_says_the_same_in_other_places() -> None:
    message = Message("assistant", (Reasoning("Hm."), Text("I look."), CALL))
    chat = folded(lines_of(replay(message), encoding()))
    generated = folded(lines_of(replay(message), encoding(chat=False)), chat=False)
    assert chat == generated
    assert message_of(whole_of(replay(message), encoding(chat=False)), chat=False) == generated


def test_a_context_repeats_what_the_client_has_seen() -> None:
    question = Message.user("My name is Ann.")
    message = Message("assistant", (Reasoning("Hm."), Text("Hello, "), Text("Ann. 🐑")))
    for made in (whole_of, lambda events, encoder: lines_of(events, encoder)[-1]):
        told = made(replay(message), encoder(AnswerOptions(False, 0, "", (question,)), id="x", created=0, model="m"))
        assert read_context(told["context"], "context") == (question, Message.assistant("Hello, Ann. 🐑"))
    assert "context" not in whole_of(replay(message), encoding(chat=True))


CALLS = st.builds(
    ToolCall,
    id=st.sampled_from(["", "c1", "c2"]),
    name=st.text(min_size=1, max_size=5),
    arguments=st.sampled_from(
        ["{}", '{"a": [1, 2.50, "x"]}', '{"n": 12345678901234567890}', "[]", "{oops", '{"x": 1e999}']
    )
    | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)).map(json.dumps),
)
BAD = st.builds(BadCall, raw=st.text(max_size=5), error=st.text(max_size=9), name=st.sampled_from(["", "look"]))
PARTS: st.SearchStrategy[Part] = (
    st.builds(Text, st.text(min_size=1)) | st.builds(Reasoning, st.text(), st.none() | st.just("sig")) | CALLS | BAD
)
REASONS: tuple[StopReason, ...] = ("end", "stop", "length", "tool_calls", "filtered", "cancelled")


@given(st.lists(PARTS, max_size=6), st.sampled_from(REASONS), st.booleans(), st.data())
def test_a_stream_and_a_whole_answer_say_the_same(
    parts: list[Part], reason: StopReason, chat: bool, data: st.DataObject
) -> None:
    events: list[Event] = list(replay(Message("assistant", tuple(parts)), model="m"))[:-1]
    for notice in (Progress(1, 2), Evicted(1, 2)):
        at = data.draw(st.integers(1, len(events)))
        if not any(isinstance(event, CallStarted | CallDelta) for event in events[at - 1 : at]):
            events.insert(at, notice)
    events.append(Finished(reason, USAGE))
    lines = lines_of(events, encoding(chat=chat))
    whole = whole_of(events, encoding(chat=chat))
    assert folded(lines, chat=chat) == message_of(whole, chat=chat)
    assert whole["done_reason"] == ("length" if reason == "length" else "stop")
    assert (whole["prompt_eval_count"], whole["eval_count"]) == (10, 5)


def test_scores_go_along() -> None:
    scores = (TokenScore(1, b"\xf0\x9f", -0.5, ((1, b"\xf0\x9f", -0.5),)), TokenScore(2, b"\x90\x91", float("-inf")))
    events: list[Event] = [Started("m"), TextDelta("🐑", scores), TextDelta("a"), Finished("end", USAGE)]
    lines = lines_of(events, encoding())
    whole = whole_of(events, encoding())
    assert lines[0]["logprobs"] == whole["logprobs"] == [
        {
            "token": "\ufffd",
            "logprob": -0.5,
            "bytes": [240, 159],
            "top_logprobs": [{"token": "\ufffd", "logprob": -0.5, "bytes": [240, 159]}],
        },
        {"token": "\ufffd\ufffd", "logprob": -9999.0, "bytes": [144, 145], "top_logprobs": []},
    ]  # fmt: skip
    assert "logprobs" not in lines[1]


def test_a_call_without_an_id_gets_one_and_calls_are_numbered() -> None:
    message = Message("assistant", (ToolCall("", "a", ""), Text("and"), ToolCall("c2", "b", "{}")))
    calls = folded(lines_of(replay(message), encoding()))["calls"]
    assert calls == [
        {"id": "call_ab_0", "function": {"index": 0, "name": "a", "arguments": {}}},
        {"id": "c2", "function": {"index": 1, "name": "b", "arguments": {}}},
    ]


@pytest.mark.parametrize(
    ("reason", "text"), [("end", "I look.[invalid tool call of look: no JSON]"), ("length", "I look.")]
)
def test_a_bad_call_is_told_unless_it_was_cut_off(reason: StopReason, text: str) -> None:
    message = Message("assistant", (Text("I look."), BadCall("{", "no JSON", "c1", "look")))
    events = list(replay(message, reason=reason))
    assert folded(lines_of(events, encoding()))["text"] == text
    assert whole_of(events, encoding())["message"]["content"] == text


@pytest.mark.parametrize("arguments", ["[1]", "{oops", '{"x": NaN}', '{"x": -1e999}', '"text"', "[" * 100_000])
def test_arguments_that_are_no_object_are_told_in_words(arguments: str) -> None:
    assert read_object(arguments) is None
    call = ToolCall("c1", "look", arguments)
    events: list[Event] = [
        Started("m"),
        CallStarted("c1", "look"),
        CallDelta(arguments),
        CallEnded(call),
        Finished("end", USAGE),
    ]
    told = folded(lines_of(events, encoding()))
    assert (told["text"], told["calls"]) == ("[invalid tool call of look: its arguments are no JSON object]", [])


# -- figures


def test_a_stream_tells_how_long_its_parts_took() -> None:
    clock = {"now": 0}
    made = encoder(AnswerOptions(True, 100), id="x", created=0, model="m", clock=lambda: clock["now"])
    end: Json = {}
    times: list[tuple[int, Event]] = [
        (105, Started("m")), (110, Progress(1, 2)), (125, TextDelta("a")), (150, TextDelta("b")),
        (195, Finished("end", USAGE)),
    ]  # fmt: skip
    for time, event in times:
        clock["now"] = time
        for line in lines_of([event], made):
            end = line
    assert {key: value for key, value in end.items() if key.endswith(("_duration", "_count"))} == {
        "total_duration": 95,
        "load_duration": 5,
        "prompt_eval_count": 10,
        "prompt_eval_duration": 20,
        "eval_count": 5,
        "eval_duration": 70,
    }


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("text", ["", "a"])
def test_the_parts_make_the_whole(text: str, heard: bool) -> None:
    events: list[Event] = [Started("m"), *([TextDelta(text)] if text else []), Finished("end", USAGE)]
    made = encoding()
    answer = whole_of(events, made) if heard else made.encode_replies([fold(events)])
    parts = [answer[f"{part}_duration"] for part in ("load", "prompt_eval", "eval")]
    assert sum(parts) == answer["total_duration"] > 0
    assert min(parts) >= 0
    assert heard or parts[2] == answer["total_duration"], "what nobody has measured is time of generating"


@pytest.mark.parametrize("errand", ["load", "unload"])
@pytest.mark.parametrize("chat", [True, False])
def test_an_errand_has_no_figures(chat: bool, errand: Errand) -> None:
    events: list[Event] = [Started("m"), Finished("end")]
    (line,) = lines_of(events, encoding(chat=chat, errand=errand))
    whole = whole_of(events, encoding(chat=chat, errand=errand))
    said: Json = {"message": {"role": "assistant", "content": ""}} if chat else {"response": ""}
    for answer in (line, whole):
        assert answer.pop("created_at").startswith("2023-11-14T22:13:20.")
        assert answer == {"model": "m", **said, "done": True, "done_reason": errand}


def test_the_ping_says_nothing() -> None:
    made = encoding(model="")
    made.encode(Started("found"))
    ping = json.loads(made.ping)
    assert (ping["model"], ping["message"], ping["done"]) == ("found", {"role": "assistant", "content": ""}, False)


# -- errors


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (UnknownModel("x", known=("a", "b")), 404, "model 'x' not found; known: a, b"),
        (UnknownModel("x"), 404, "model 'x' not found"),
        (ContextFull(needed=9, limit=8), 400, "prompt is too long: 9 tokens > 8 maximum"),
        (RateLimited("slow down", backend="b"), 429, "slow down"),
        (Refused("moved", backend="b", status=301), 502, "moved"),
        (EngineError("broken"), 500, "broken"),
        (KeyError("a secret"), 500, "the server made an error"),
    ],
)
def test_errors_are_a_status_and_words(error: Exception, status: int, words: str) -> None:
    told_status, body = encode_error(error)
    assert (told_status, list(body)) == (status, ["error"])
    assert words in body["error"]
    assert "secret" not in body["error"]
    assert json.loads(encoding().encode_failure(error)) == body


# -- what Ollama itself says


def keys_of(value: Any, path: str = "") -> set[str]:
    """The paths of all fields, but for those inside of arguments."""
    match value:
        case dict() if not path.endswith("arguments"):
            return {f"{path}.{key}" for key in value}.union(
                *(keys_of(child, f"{path}.{key}") for key, child in value.items())
            )
        case list():
            return set().union(*(keys_of(child, f"{path}[]") for child in value))
        case _:
            return set()


NEWER = {".message.tool_calls[].id", ".message.tool_calls[].function.index"}
"""Fields that the recorded versions had not, or not always."""


def test_answers_have_the_fields_of_recorded_ones(conformance: Path) -> None:
    n_read = 0
    for file in sorted((conformance / "providers" / "ollama").glob("ollama-native-*.json")):
        recorded = json.loads(file.read_bytes())
        response, expect = recorded["response"], recorded["expect"]
        if response["status"] != 200:
            assert list(response["body"]) == list(encode_error(EngineError("x"))[1])
            continue
        calls = [
            ToolCall(call["id"] or "", call["name"], json.dumps(call["arguments"])) for call in expect["tool_calls"]
        ]
        parts = (*((Text(expect["text"]),) if expect["text"] else ()), *calls)
        usage = Usage(input=expect["usage"]["input_tokens"] or 0, output=expect["usage"]["output_tokens"])
        *started, _ = replay(Message("assistant", parts), model="m")
        events = [*started, Finished("end", usage)]
        if "ndjson_text" in response:
            theirs = [json.loads(line) for line in response["ndjson_text"].splitlines()]
            ours = lines_of(events, encoding())
            pairs = [(theirs[0], ours[0]), (theirs[-1], ours[-1])]
            text = "".join(line["message"]["content"] for line in theirs)
            assert folded(ours)["text"] == (text if expect["text"] else "")
        else:
            pairs = [(response["body"], whole_of(events, encoding()))]
        for one, other in pairs:
            assert keys_of(one) - NEWER - {".prompt_eval_count"} <= keys_of(other) | keys_of(pairs[-1][1]), file.name
            assert keys_of(other) - NEWER <= keys_of(one) | {".prompt_eval_count"}, file.name
        n_read += 1
    assert n_read > 8
