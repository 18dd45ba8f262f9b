"""What Codex really sent, and what OpenAI really answered; read in place, none of it is part of this project."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    Message,
    ReasoningDelta,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from shepherd.wire.base import Fields, Json
from shepherd.wire.openai.responses import codec as responses
from shepherd.wire.openai.responses.codec import decode_request
from shepherd.wire.openai.responses.items import decode_items
from shepherd.wire.openai.responses.tools import decode_tools


def read(path: Path) -> Json:
    found: Json = json.loads(path.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def codex(conformance: Path) -> list[Request]:
    """The requests of one conversation, in order."""
    folder = conformance / "clients" / "codex"
    if not folder.is_dir():
        pytest.skip(f"no recordings at {folder}")
    return [decode_request(read(path)["body"]).request for path in sorted(folder.iterdir())]


def test_every_request_of_codex_goes_on_where_the_last_one_ended(codex: list[Request]) -> None:
    assert len(codex) > 2
    for earlier, later in pairwise(codex):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert len(later.messages) > len(earlier.messages)
        assert later.tools == earlier.tools
        assert later.session == earlier.session != ""


def test_the_tools_of_codex_are_offered_but_for_what_nobody_here_can_run(codex: list[Request]) -> None:
    names = [tool.name for tool in codex[0].tools]
    assert "exec_command" in names
    assert "multi_agent_v1__spawn_agent" in names
    assert "web_search" not in names
    assert len(set(names)) == len(names)


def test_the_calls_of_codex_are_answered(codex: list[Request]) -> None:
    calls = [call for message in codex[-1].messages for call in message.calls]
    parts = [part for message in codex[-1].messages for part in message.parts]
    answered = [part.call_id for part in parts if isinstance(part, ToolResult)]
    assert [call.name for call in calls] == ["exec_command", "exec_command"]
    assert [call.id for call in calls] == answered


def recorded(conformance: Path) -> Iterator[tuple[str, Json]]:
    """Every exchange with OpenAI's Responses protocol."""
    for path in sorted((conformance / "providers" / "openai").glob("openai-responses-*.json")):
        yield path.stem, read(path)
    for path in sorted((conformance / "providers" / "sessions").glob("openai-*.json")):
        session = read(path)
        for number, step in enumerate(session.get("steps") or session.get("exchanges") or []):
            if step.get("endpoint", session.get("endpoint")) == "openai.responses":
                yield f"{path.stem}/{number}", step


def test_every_recorded_request_is_understood(conformance: Path) -> None:
    n = 0
    for name, exchange in recorded(conformance):
        body = exchange["request"].get("body")
        if not isinstance(body, dict) or exchange["response"]["status"] != 200:
            continue
        if body.get("previous_response_id"):
            body = {**body, responses.N_STORED: 0}
        if '"file_id"' in json.dumps(body):
            native = decode_request(body).request.native
            assert native is not None
            assert "this server stores no files" in str(native.demand), name
            continue
        assert decode_request(body).request.messages, name
        n += 1
    assert n > 20


def events_in(sse: str) -> list[Json]:
    return [json.loads(line[len("data: ") :]) for line in sse.splitlines() if line.startswith("data: {")]


def replayed(output: list[Json]) -> list[Event]:
    """The events of ours that say the same as a recorded output."""
    events: list[Event] = [Started("m")]
    for item in output:
        match item["type"]:
            case "reasoning":
                if told := "".join(part["text"] for part in item["summary"]):
                    events.append(ReasoningDelta(told))
            case "message":
                events += [TextDelta(part["text"]) for part in item["content"] if part.get("text")]
            case "function_call":
                call = ToolCall(item["call_id"], item["name"], item["arguments"])
                events += [CallStarted(call.id, call.name), CallDelta(call.arguments), CallEnded(call)]
    return [*events, Finished("end", Usage())]


def test_the_same_answer_is_told_with_the_same_events_and_the_same_fields_as_openais(conformance: Path) -> None:
    n = 0
    for name, exchange in recorded(conformance):
        theirs = events_in(exchange["response"].get("sse_text") or "")
        body = exchange["request"].get("body")
        if not theirs or theirs[-1]["type"] != "response.completed" or not isinstance(body, dict):
            continue
        output = theirs[-1]["response"]["output"]
        if not {item["type"] for item in output} <= {"message", "function_call"}:
            continue  # hosted tools; thoughts of theirs come in other pieces
        encoder = responses.encoder(decode_request(body).options, id="resp_1", created=1, model="m")
        told = b"".join(encoder.encode(event) for event in replayed(output)).decode()
        ours = events_in(told)
        assert order(ours) == order(theirs), name
        for mine, other in zip(first_of_each(ours), first_of_each(theirs), strict=True):
            # What is only of theirs: noise against eavesdroppers, and fields that they add from year to year.
            assert mine.keys() - {"name", "response"} <= other.keys(), (name, mine["type"])
            assert other.keys() - mine.keys() <= {"obfuscation"}, (name, mine["type"])
        for mine, other in zip(ours[-1]["response"]["output"], output, strict=True):
            assert mine.keys() - {"namespace"} <= other.keys(), name
            assert other.keys() - mine.keys() <= {"phase"}, name
        n += 1
    assert n >= 3


def order(events: list[Json]) -> list[str]:
    """The types in order, runs of deltas as one."""
    types = [event["type"] for event in events]
    return [kind for at, kind in enumerate(types) if not (kind.endswith(".delta") and kind in types[at - 1 : at])]


def first_of_each(events: list[Json]) -> list[Json]:
    firsts: dict[str, Json] = {}
    for event in events:
        firsts.setdefault(event["type"], event)
    return [firsts[kind] for kind in sorted(firsts)]


def test_recorded_answers_can_be_sent_back(conformance: Path) -> None:
    n = 0
    for name, exchange in recorded(conformance):
        output: Any = (exchange["response"].get("body") or {}).get("output")
        if not output:
            continue
        messages = decode_items([Fields(item) for item in output], decode_tools(()))
        expect = exchange["expect"]
        calls = [call for message in messages for call in message.calls]
        assert "".join(map(text_of, messages)) == (expect["text"] or ""), name
        assert [(call.id, call.name) for call in calls] == [
            (call["id"], call["name"]) for call in expect["tool_calls"] or ()
        ], name
        n += 1
    assert n > 20


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))
