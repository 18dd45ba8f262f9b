"""What Claude Code really sent, and what Anthropic really answered, as the judges of our half of the protocol."""

import json
from collections.abc import Iterator
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
    Refused,
    Request,
    Started,
    StopReason,
    TextDelta,
    ToolCall,
    Usage,
    replay,
)
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.anthropic.codec import MessageOptions, decode_request, encode_error
from shepherd.wire.base import Json


def load(file: Path) -> Json:
    loaded: Json = json.loads(file.read_text())
    return loaded


@pytest.fixture(scope="module")
def claude_code(conformance: Path) -> list[Json]:
    files = sorted((conformance / "clients" / "claude-code").glob("*.json"))
    assert files
    return [load(file) for file in files]


@pytest.fixture(scope="module")
def exchanges(conformance: Path) -> list[Json]:
    files = sorted((conformance / "providers" / "anthropic").glob("*.json"))
    assert files
    return [load(file) for file in files]


# ---- requests


def test_claude_code_asks_for_what_it_says(claude_code: list[Json]) -> None:
    for exchange in claude_code:
        body = exchange["body"]
        decoded = decode_request(body)
        request = decoded.request
        assert decoded.stream
        assert decoded.options == MessageOptions("shown", has_edits="context_management" in body)
        assert [tool.name for tool in request.tools] == [tool["name"] for tool in body["tools"]]
        assert (request.model, request.max_tokens, request.reasoning) == (body["model"], body["max_tokens"], "high")
        assert request.user is None
        system = request.messages[0].text
        assert system.startswith(body["system"][1]["text"])
        assert system.endswith(body["system"][2]["text"])
        assert "x-anthropic" not in repr(request.messages)


def test_every_request_of_claude_code_goes_on_with_the_one_before(claude_code: list[Json]) -> None:
    """The newest message comes as blocks with a mark and later as a string; a header line changes every time."""
    n_checked = 0
    before: dict[str, tuple[Json, Request]] = {}
    for exchange in claude_code:
        body = exchange["body"]
        request = decode_request(body).request
        if request.model in before:
            earlier_body, earlier = before[request.model]
            # A resumed conversation has another system prompt and other tools, by the client's own will.
            assert (request.tools == earlier.tools) == (body["tools"] == earlier_body["tools"])
            is_same = unmarked(body["system"][1:]) == unmarked(earlier_body["system"][1:])
            assert (request.messages[0] == earlier.messages[0]) == is_same
            assert request.messages[1 : len(earlier.messages)] == earlier.messages[1:]
            assert len(request.messages) > len(earlier.messages)
            n_checked += 1
        before[request.model] = body, request
    assert n_checked == len(claude_code) - len(before)


def unmarked(blocks: list[Json]) -> list[str]:
    return [block["text"] for block in blocks]


def test_a_system_message_in_the_middle_stays_in_the_middle(claude_code: list[Json]) -> None:
    roles = [message.role for message in decode_request(claude_code[1]["body"]).request.messages]
    assert roles == ["system", "user", "system", "assistant", "tool"]


def test_every_recorded_request_is_understood(exchanges: list[Json]) -> None:
    n_understood = 0
    for exchange in exchanges:
        body = exchange["request"].get("body")
        if not isinstance(body, dict) or "messages" not in body:
            continue
        request = decode_request(body).request
        n_understood += 1
        said = repr(request.messages)
        for text in texts_in(body["messages"]):
            assert repr(text.strip())[1:-1] in said
    assert n_understood > 40


def texts_in(value: Any) -> Iterator[str]:
    """What is said in the messages, in words."""
    match value:
        case {"type": "text", "text": str(text)}:
            yield text
        case dict():
            for child in value.values():
                yield from texts_in(child)
        case list():
            for child in value:
                yield from texts_in(child)


# ---- answers


USAGE_KEYS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
REASONS: dict[str, StopReason] = {"end_turn": "end", "tool_use": "tool_calls", "max_tokens": "length"}


def usage_of(told: Json) -> Usage:
    sent, written, read, output = (told.get(key) or 0 for key in USAGE_KEYS)
    return Usage(sent, read, written, output, (told.get("output_tokens_details") or {}).get("thinking_tokens", 0))


def is_ours(content: list[Json]) -> bool:
    """Whether the answer holds only what a model of ours can say."""
    return all(block["type"] in ("text", "thinking", "redacted_thinking", "tool_use") for block in content)


def bare(block: Json) -> Json:
    return {key: value for key, value in block.items() if key not in ("caller", "citations", "toolset_name")}


def test_a_recorded_answer_can_be_said_again(exchanges: list[Json]) -> None:
    n_said = 0
    for exchange in exchanges:
        body = exchange["response"].get("body")
        if exchange["response"]["status"] != 200 or not isinstance(body, dict) or "content" not in body:
            continue
        if not is_ours(body["content"]) or body["stop_reason"] not in REASONS:
            continue
        asked = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": body["content"]}]}
        message = decode_request(asked).request.messages[1]
        encoder = anthropic.encoder(MessageOptions("shown"), id=body["id"], created=0, model=body["model"])
        events = stream_again(message, REASONS[body["stop_reason"]], usage_of(body["usage"]))
        records = records_of(b"".join(encoder.encode(event) for event in events))
        assert folded(records) == [bare(block) for block in body["content"]]
        (last,) = [record for record in records if record["type"] == "message_delta"]
        assert last["delta"]["stop_reason"] == body["stop_reason"]
        assert all(last["usage"][key] == (body["usage"].get(key) or 0) for key in USAGE_KEYS)
        n_said += 1
    assert n_said > 15


def stream_again(message: Message, reason: StopReason, usage: Usage) -> Iterator[Event]:
    for event in replay(message, reason=reason):
        yield Finished(reason, usage) if isinstance(event, Finished) else event


def test_a_recorded_stream_has_the_same_records_when_we_say_it(exchanges: list[Json]) -> None:
    n_said = 0
    for exchange in exchanges:
        recorded = records_of((exchange["response"].get("sse_text") or "").encode())
        starts = [record["content_block"] for record in recorded if record["type"] == "content_block_start"]
        is_cited = any(record.get("delta", {}).get("type") == "citations_delta" for record in recorded)
        if not recorded or recorded[-1]["type"] != "message_stop" or not is_ours(starts) or is_cited:
            continue
        encoder = anthropic.encoder(MessageOptions("shown"), id=recorded[0]["message"]["id"], created=0, model="")
        ours = records_of(b"".join(encoder.encode(event) for event in events_of(recorded)))
        assert simplified(ours) == simplified(recorded)
        n_said += 1
    assert n_said > 10


def events_of(recorded: list[Json]) -> Iterator[Event]:
    """The recorded stream in our own vocabulary."""
    block: Json = {}
    arguments = ""
    usage = Usage()
    for record in recorded:
        match record:
            case {"type": "message_start", "message": message}:
                usage = usage_of({**message["usage"], "output_tokens": 0})
                yield Started(message["model"], usage=usage)
            case {"type": "content_block_start", "content_block": block}:
                arguments = ""
                if block["type"] == "tool_use":
                    yield CallStarted(block["id"], block["name"])
                elif block["type"] == "redacted_thinking":
                    yield ReasoningDelta("", block["data"], redacted=True)
            case {"delta": {"type": "text_delta", "text": text}} if text:
                yield TextDelta(text)
            case {"delta": {"type": "thinking_delta", "thinking": text}} if text:
                yield ReasoningDelta(text)
            case {"delta": {"type": "signature_delta", "signature": signature}}:
                yield ReasoningDelta("", signature)
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                arguments += text
            case {"type": "content_block_stop"} if block["type"] == "tool_use":
                yield CallDelta(arguments or "{}")
                yield CallEnded(ToolCall(block["id"], block["name"], arguments or "{}"))
            case {"type": "message_delta", "delta": delta}:
                told = usage_of({**told_prompt(usage), **record["usage"]})
                stop = delta["stop_sequence"]
                yield Finished("stop" if stop else REASONS[delta["stop_reason"]], told, stop)
            case _:
                pass


def told_prompt(usage: Usage) -> Json:
    return dict(zip(USAGE_KEYS, (usage.input, usage.cache_write, usage.cache_read, 0), strict=True))


def simplified(records: list[Json]) -> list[Json]:
    """The records without what is free: pings, empty deltas, where arguments are cut, fields of billing."""
    made: list[Json] = []
    for record in records:
        match record:
            case {"type": "ping"} | {"delta": {"type": "text_delta" | "thinking_delta", "text": ""}}:
                continue
            case {"delta": {"type": "thinking_delta", "thinking": ""}}:
                continue
            case {"type": "message_start", "message": message}:
                keys = ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence")
                prompt = {key: message["usage"].get(key) or 0 for key in USAGE_KEYS[:3]}
                made.append({"type": "message_start", **{key: message[key] for key in keys}, "usage": prompt})
            case {"type": "content_block_start"}:
                made.append({**record, "content_block": bare(record["content_block"])})
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                if made[-1]["type"] == "arguments":
                    made[-1]["text"] += text
                else:
                    made.append({"type": "arguments", "text": text})
            case {"type": "content_block_stop"} if made[-1]["type"] == "arguments":
                made[-1]["text"] = json.loads(made[-1]["text"] or "{}")
                made.append(record)
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                reason = {key: delta[key] for key in ("stop_reason", "stop_sequence")}
                made.append({"type": "message_delta", "delta": reason, "output_tokens": usage["output_tokens"]})
            case _:
                made.append(record)
    return made


def records_of(raw: bytes) -> list[Json]:
    records = []
    for part in raw.decode().replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.strip().splitlines() if ": " in line)
        if "data" in lines:
            records.append(json.loads(lines["data"]))
            assert records[-1]["type"] == lines["event"]
    return records


def folded(records: list[Json]) -> list[Json]:
    content: list[Json] = []
    for record in records:
        match record:
            case {"content_block": block}:
                content.append(dict(block))
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                content[-1]["input"] = json.loads(text)
            case {"type": "content_block_delta", "delta": dict() as delta}:
                content[-1].update({key: content[-1][key] + text for key, text in delta.items() if key != "type"})
    return content


# ---- errors


def test_a_recorded_error_has_the_type_that_we_give_to_its_status(exchanges: list[Json]) -> None:
    statuses = set()
    for exchange in exchanges:
        response = exchange["response"]
        if response["status"] == 200:
            continue
        status, ours = encode_error(Refused("no", backend="b", status=response["status"]))
        assert status == response["status"]
        assert ours["error"]["type"] == response["body"]["error"]["type"]
        assert ours.keys() <= response["body"].keys()
        statuses.add(status)
    assert statuses >= {400, 404, 429, 529}
