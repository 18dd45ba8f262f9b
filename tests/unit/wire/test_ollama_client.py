"""The client half of Ollama's protocol: bodies for `/api/chat`, answers as they were recorded."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.wire.recordings import faults, numbered, recorded, replayed

from shepherd.core import (
    Assembler,
    BadCall,
    Completion,
    Image,
    InvalidRequest,
    Message,
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
from shepherd.core.messages import Part
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint, Failure
from shepherd.wire.ollama import chat, client
from shepherd.wire.ollama.answer import AnswerOptions
from shepherd.wire.values import BrokenAnswer

ENDPOINT = Endpoint("qwen3", "ollama:qwen3", n_ctx=8_192, thinks_by="switch")
TOOL = ToolSpec("look", "Look.", {"type": "object"})
ASK = Request("m", (Message.user("Hello."),))


def body_of(request: Request, **endpoint: Any) -> Json:
    return client.encode_request(request, replace(ENDPOINT, **endpoint))


def test_a_whole_conversation_is_encoded() -> None:
    request = Request(
        "m",
        (
            Message.system("Be brief."),
            Message("user", (Image("image/png", b"png"), Text("Look."))),
            Message("assistant", (Reasoning("Hm."), ToolCall("a", "look", '{"at": 1}'))),
            Message("tool", (ToolResult("a", (Text("one"), Image("image/png", b"png"))),)),
        ),
        tools=(TOOL,),
        sampling=Sampling(temperature=0.5, repetition_penalty=1.1, seed=3, dry_base=2.0),
        max_tokens=50,
        stop=("#",),
        schema={"type": "object"},
        reasoning="high",
        extra={"keep_alive": "5m"},
    )
    assert body_of(request) == {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look.", "images": ["cG5n"]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "Hm.",
                "tool_calls": [{"id": "a", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}],
            },
            {"role": "tool", "content": "one", "tool_name": "look", "tool_call_id": "a", "images": ["cG5n"]},
        ],
        "stream": True,
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}
        ],
        "format": {"type": "object"},
        "think": True,
        "keep_alive": "5m",
        "options": {
            "temperature": 0.5,
            "repeat_penalty": 1.1,
            "seed": 3,
            "num_ctx": 8_192,
            "num_predict": 50,
            "stop": ["#"],
        },
    }


@pytest.mark.parametrize(
    ("level", "by", "expected"),
    [
        (None, "switch", None),
        ("off", "switch", False),
        ("low", "switch", True),
        ("off", "effort", "low"),
        ("max", "effort", "high"),
        ("high", "", None),
    ],
)
def test_thinking_is_asked_for_as_the_model_knows_it(level: Any, by: Any, expected: Any) -> None:
    assert body_of(replace(ASK, reasoning=level), thinks_by=by).get("think") == expected


def test_what_ollama_cannot_do_is_refused() -> None:
    for request, field in (
        (replace(ASK, completion=Completion("a")), "prompt"),
        (Request("m", (Message("user", (Image(url="https://x.y/a.png"),)),)), "messages"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            body_of(request)
        assert caught.value.field == field


PLACE = ToolSpec("place", "", {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}}, "$defs": {"at": {}}})


def test_a_call_that_must_come_is_the_form_of_the_answer() -> None:
    def form(name: str) -> Json:
        properties = {"name": {"type": "string", "enum": [name]}, "arguments": {"type": "object"}}
        return {"type": "object", "properties": properties, "required": ["name", "arguments"]}

    asking = replace(ASK, tools=(TOOL, PLACE), schema={"type": "object"})
    assert body_of(replace(asking, tool_choice="required"))["format"] == {"anyOf": [form("look"), form("place")]}
    named = body_of(replace(asking, tool_choice=("named", "look")))
    assert (named["format"], len(named["tools"])) == (form("look"), 2)
    assert body_of(asking)["format"] == {"type": "object"}


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        (
            ['{"name": "look", ', '"arguments": {"at": "\u2028é"}}'],
            (ToolCall("call_x0000", "look", '{"at":"\u2028é"}'),),
        ),
        (['{"name": "other", "arguments": {}}'], (Text('{"name": "other", "arguments": {}}'),)),
        (['{"name": ["look"], "arguments": {}}'], (Text('{"name": ["look"], "arguments": {}}'),)),
        (['{"name": "look", "argu'], (Text('{"name": "look", "argu'),)),
        (["[" * 100_000], (Text("[" * 100_000),)),
        ([{"function": {"name": "look", "arguments": {}}}], (ToolCall("call_x0000", "look", "{}"),)),
        ([], ()),
    ],
)
def test_an_answer_in_the_form_of_a_call_is_one_and_any_other_stays_text(
    lines: list[Any], parts: tuple[Part, ...]
) -> None:
    decoder = client.decoder(replace(ASK, tools=(TOOL,), tool_choice="required"), ENDPOINT, numbered("call_x"))
    assembler = Assembler()
    for line in lines:
        said = {"content": line} if isinstance(line, str) else {"tool_calls": [line]}
        for event in decoder.feed("", json.dumps({"message": {"role": "assistant", **said}, "done": False}).encode()):
            assembler.feed(event)
    for event in (*decoder.feed("", b'{"message": {}, "done": true, "done_reason": "stop"}'), *decoder.close()):
        assembler.feed(event)
    reply = assembler.reply()
    assert reply.message.parts == parts
    assert reply.reason == ("tool_calls" if reply.message.calls else "end")


def test_options_of_the_configuration_and_fields_of_the_client_are_added() -> None:
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "truncate": False}
    body = body_of(chat.decode_request(sent).request, options={"options": {"num_gpu": 1}, "shift": False})
    assert (body["truncate"], body["shift"], body["options"]) == (False, False, {"num_ctx": 8_192, "num_gpu": 1})


@pytest.fixture(scope="module")
def exchanges(conformance: Path) -> list[Json]:
    return recorded(conformance, "ollama", "ollama.chat")


def test_recorded_answers_say_what_they_say(exchanges: list[Json]) -> None:
    assert faults(client, exchanges, ASK, ENDPOINT) == []


_WORDS = st.text(min_size=1, max_size=8)
_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, _WORDS),
    st.builds(Reasoning, _WORDS),
    st.builds(
        lambda id, name, value: ToolCall(
            f"call_{id}", name, json.dumps({"a": value}, ensure_ascii=False, separators=(",", ":"))
        ),
        st.integers(0, 10**9),
        _WORDS,
        _WORDS,
    ),
)
_ANSWERS = st.lists(_PARTS, min_size=1, max_size=5, unique_by=repr).filter(
    lambda parts: (
        all(type(a) is not type(b) or isinstance(a, ToolCall) for a, b in itertools.pairwise(parts))
        and len({part.id for part in parts if isinstance(part, ToolCall)})
        == sum(isinstance(part, ToolCall) for part in parts)
    )
)


@given(_ANSWERS, st.lists(st.floats(0, 1), max_size=5))
@settings(max_examples=examples(200))
def test_what_our_server_writes_is_read_as_it_was(parts: list[Part], cuts: list[float]) -> None:
    message = Message("assistant", tuple(parts), ENDPOINT.origin)
    encoder = chat.encoder(AnswerOptions(chat=True, began=0), id="x-1", created=1, model="qwen3")
    data = b"".join([encoder.encode(event) for event in replay(message)])
    edges = sorted(round(cut * len(data)) for cut in cuts)
    assert fold(replayed(client.decoder(ASK, ENDPOINT), data, edges, is_ndjson=True)).message == message


def line(**message: Any) -> Json:
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}


DONE: Json = {"model": "m", "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2}


def reply_of(*lines: object) -> Any:
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    return fold(replayed(client.decoder(ASK, ENDPOINT, numbered("call_0")), data, is_ndjson=True))


def test_calls_without_ids_get_their_own_and_bad_ones_are_bad() -> None:
    function = {"function": {"name": "look", "arguments": {}}}
    reply = reply_of(
        line(tool_calls=[function]), line(tool_calls=[{"function": {"name": "f", "arguments": [1]}}]), DONE
    )
    good, bad = reply.message.parts
    assert good == ToolCall("call_00000", "look", "{}")
    assert isinstance(bad, BadCall)
    assert (reply.reason, reply.usage.prompt, reply.usage.output) == ("tool_calls", 5, 2)


def test_probabilities_are_asked_for_and_read() -> None:
    body = body_of(replace(ASK, logprobs=2))
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    scored = {**line(content="a"), "logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}]}
    ((score,), text) = (reply := reply_of(scored, DONE)).scores, reply.message.text
    assert (score.piece, score.logprob, text) == (b"a", -0.5, "a")


def test_the_times_of_an_answer_are_the_providers() -> None:
    times = {"total_duration": 40, "load_duration": 10, "prompt_eval_duration": 10, "eval_duration": 20}
    reply = reply_of(line(content="a"), {**DONE, **times})
    answer = chat.encoder(AnswerOptions(chat=True, began=0), id="c-1", created=1, model="m").encode_replies([reply])
    assert isinstance(answer, dict)
    assert {key: answer[key] for key in times} == times


def test_an_error_in_the_middle_is_a_failure() -> None:
    with pytest.raises(Failure) as caught:
        reply_of(line(content="a"), {"error": "out of memory"})
    assert caught.value.body == {"error": "out of memory"}


@pytest.mark.parametrize("lines", [[], [line(content="a")], [{}], [5], [DONE, DONE], [line(tool_calls=[1]), DONE]])
def test_an_answer_that_breaks_the_protocol_is_broken(lines: list[object]) -> None:
    with pytest.raises(BrokenAnswer):
        reply_of(*lines)
