"""A provider and a surface of one protocol: what a client reads of an answer is what the provider sent.

    bytes of a provider ─ decoder ─▶ events ─ encoder ─▶ bytes of ours;  folded, the two are equal

Our server's own are left out: ids, times, the model as the client called it. The answers are written by hand from the
types of the official clients.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.wire.recordings import replayed

from shepherd.core import Message, Request, ToolCall, fold
from shepherd.wire.anthropic import client as anthropic_client
from shepherd.wire.anthropic import codec as anthropic_codec
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint
from shepherd.wire.extensions import merge_facts
from shepherd.wire.ollama import chat as ollama_chat
from shepherd.wire.openai import chat as chat_codec
from shepherd.wire.openai import client as chat_client
from shepherd.wire.openai.responses import client as responses_client
from shepherd.wire.openai.responses import codec as responses_codec
from shepherd.wire.sse import EventReader

ENDPOINT = Endpoint("m", "up:m", thinks_by="effort", efforts=("low", "high"))
OWN = ("id", "model", "created", "created_at", "completed_at", "system_fingerprint", "timings", "object")


def sse(records: Iterable[Json]) -> bytes:
    return "".join(
        (f"event: {each['type']}\n" if "type" in each else "") + f"data: {json.dumps(each)}\n\n" for each in records
    ).encode()


def records_of(data: bytes) -> list[Json]:
    reader = EventReader()
    found = [*reader.feed(data), *reader.close()]
    return [json.loads(record) for _, record in found if record != b"[DONE]"]


def without(value: Any, *names: str) -> Any:
    """Without these fields and without nulls, at every level."""
    match value:
        case dict():
            return {k: without(v, *names) for k, v in value.items() if v is not None and k not in names}
        case list():
            return [without(each, *names) for each in value]
        case _:
            return value


# -- Anthropic -------------------------------------------------------------------------------------------------------


def anthropic_stream(message: Json) -> list[Json]:
    """The records of a message, its texts and arguments in two pieces each."""
    usage = message["usage"]
    head = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    ending: Json = {key: head.pop(key) for key in ("stop_details", "container") if key in head}
    beside: Json = {key: head.pop(key) for key in ("context_management",) if key in head}
    made: list[Json] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(message["content"]):
        begun, deltas = dict(block), list[Json]()
        for kind, field in (("text", "text"), ("thinking", "thinking"), ("input_json", "input")):
            if field not in block or (field == "input" and not str(block["type"]).endswith("tool_use")):
                continue
            whole = block[field] if field != "input" else json.dumps(block[field])
            begun[field] = {} if field == "input" else ""
            name = "partial_json" if field == "input" else field
            deltas.extend({"type": f"{kind}_delta", name: each} for each in (whole[:3], whole[3:]) if each)
        if "citations" in block:
            begun["citations"] = []
            deltas.extend({"type": "citations_delta", "citation": each} for each in block["citations"])
        if "signature" in block:
            begun["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        made.append({"type": "content_block_start", "index": index, "content_block": begun})
        made += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        made.append({"type": "content_block_stop", "index": index})
    delta: Json = {"stop_reason": message["stop_reason"], "stop_sequence": None, **ending}
    last: Json = {"type": "message_delta", "delta": delta, "usage": usage, **beside}
    return [*made, last, {"type": "message_stop"}]


def anthropic_folded(records: Iterable[Json]) -> Json:
    """The message that the records spell, as Anthropic's own client folds them."""
    message: Json = {}
    for record in records:
        match record:
            case {"type": "message_start"}:
                message = record["message"]
            case {"type": "content_block_start"}:
                message["content"].append({**record["content_block"]})
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}:
                block = message["content"][record["index"]]
                block["json"] = block.get("json", "") + text
            case {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": note}}:
                message["content"][record["index"]].setdefault("citations", []).append(note)
            case {"type": "content_block_delta", "delta": delta}:
                block = message["content"][record["index"]]
                block |= {key: block[key] + piece for key, piece in delta.items() if key != "type"}
            case {"type": "content_block_stop", "index": index} if "json" in message["content"][index]:
                block = message["content"][index]
                block["input"] = json.loads(block.pop("json"))
            case {"type": "message_delta"}:
                rest = {key: value for key, value in record.items() if key not in ("type", "delta", "usage")}
                message |= {**record["delta"], **rest, "usage": {**message["usage"], **record["usage"]}}
            case {"type": "error"}:
                message["error"] = record["error"]
    return message


SEARCHED: Json = {
    "type": "web_search_result",
    "url": "https://a.example",
    "title": "A",
    "encrypted_content": "EqgfCio=",
}
CITED: Json = {
    "type": "web_search_result_location", "url": "https://a.example", "title": "A", "encrypted_index": "Eo8BCio=",
    "cited_text": "It is so.",
}  # fmt: skip
CODE: Json = {"type": "code_execution_20250825", "tool_id": "srvtoolu_2"}
COUNTED: Json = {
    "input_tokens": 9, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 3, "output_tokens": 7,
    "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 0}, "service_tier": "standard",
    "server_tool_use": {"web_search_requests": 1}, "inference_geo": "eu",
}  # fmt: skip


def said(stop: str, *content: Json, **more: Any) -> Json:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    return {**head, "stop_reason": stop, "stop_sequence": None, "usage": COUNTED, **more}


def text(words: str, *notes: Json) -> Json:
    return {"type": "text", "text": words, **({"citations": list(notes)} if notes else {})}


ANTHROPIC: Mapping[str, Json] = {
    "a search with citations": said(
        "end_turn",
        text("I look."),
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "so?"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [SEARCHED]},
        text("It says that "),
        text("it is so", CITED, CITED),
        text(", and that ", CITED),
        text("is all."),
    ),
    "a search that failed, and a pause": said(
        "pause_turn",
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {
            "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
    ),
    "code that calls a tool": said(
        "tool_use",
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {"code": "look()"}},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}, "caller": CODE},
        container={"id": "container_1", "expires_at": "2026-11-23T12:00:00Z"},
    ),
    "a connector": said(
        "end_turn",
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "find", "server_name": "docs", "input": {"q": 1}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": [text("a")]},
        text("Found."),
    ),
    "a compaction": said(
        "compaction", {"type": "compaction", "content": "So far: much.", "encrypted_content": "Ab+/="},
        context_management={"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8}]},
    ),
    "thoughts between calls, one of them empty": said(
        "tool_use",
        {"type": "thinking", "thinking": "", "signature": "c2ln/+=="},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "thinking", "thinking": "And now?", "signature": "c2lnMg=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": {"x": [1, None]}}},
    ),
    "a refusal": said(
        "refusal", text("I can"), stop_details={"type": "refusal", "category": "cyber", "explanation": "No."}
    ),
    "a full window": said("model_context_window_exceeded", text("So long")),
    "a file and a word that is not known yet": said(
        "a_new_reason", {"type": "container_upload", "file_id": "file_1"}, {"type": "new_block", "deep": {"a": [1]}},
    ),
}  # fmt: skip
LOOK = [{"name": "look", "input_schema": {"type": "object"}}]
ASKED: Json = {"max_tokens": 9, "thinking": {"type": "adaptive"}, "tools": LOOK, "model": "x"}
HI: Json = {"role": "user", "content": "Hi"}


def anthropic_encoder() -> anthropic_codec.Encoder:
    decoded = anthropic_codec.decode_request({**ASKED, "messages": [HI]})
    return anthropic_codec.encoder(decoded.options, id="msg_2", created=0, model="x")


@pytest.mark.parametrize("name", ANTHROPIC)
def test_an_answer_of_anthropic_is_whole(name: str) -> None:
    message = ANTHROPIC[name]
    expected = without(message, *OWN[:2])
    stream = sse(anthropic_stream(message))
    assert without(anthropic_folded(records_of(stream)), *OWN[:2], "json") == expected, "the test's own fold"
    for events in (
        list(replayed(anthropic_client.decoder(Request("m"), ENDPOINT), stream)),
        list(anthropic_client.decoder(Request("m"), ENDPOINT).whole(json.loads(json.dumps(message)))),
    ):
        encoder = anthropic_encoder()
        sent = b"".join(encoder.encode(event) for event in events)
        got = anthropic_folded(records_of(sent))
        assert without(got, *OWN[:2]) == expected
        assert [x.get("id") for x in got["content"]] == [x.get("id") for x in message["content"]]
        assert without(anthropic_encoder().encode_replies([fold(events)]), *OWN[:2]) == expected


@pytest.mark.parametrize("name", ANTHROPIC)
def test_an_answer_of_anthropic_goes_back_as_it_was(name: str) -> None:
    content = ANTHROPIC[name]["content"]
    results = [
        {"type": "tool_result", "tool_use_id": each["id"], "content": "a"}
        for each in content
        if each["type"] == "tool_use"
    ]
    back = {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]}
    body = {**ASKED, "messages": [HI, {"role": "assistant", "content": content}, back]}
    request = anthropic_codec.decode_request(body).request
    sent = anthropic_client.encode_request(request, ENDPOINT)["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]
    assert without(sent[1]["content"]) == without(content)
    answer = fold(
        anthropic_client.decoder(Request("m"), ENDPOINT).whole(json.loads(json.dumps(ANTHROPIC[name])))
    ).message
    again = anthropic_client.encode_request(Request("m", (Message.user("Hi"), answer, *request.messages[2:])), ENDPOINT)
    assert without(again["messages"][1]["content"]) == without(content)


def test_what_only_anthropic_has_is_no_part_of_what_others_read() -> None:
    answer = fold(anthropic_client.decoder(Request("m"), ENDPOINT).whole(ANTHROPIC["a search with citations"])).message
    assert answer.text == "I look.It says that it is so, and that is all."
    plain = fold(anthropic_client.decoder(Request("m"), ENDPOINT).whole(
        said("tool_use", {"type": "tool_use", "id": "t", "name": "look", "input": {}, "caller": {"type": "direct"}})
    )).message  # fmt: skip
    assert plain.parts == (ToolCall("t", "look", "{}"),)


# -- chat ------------------------------------------------------------------------------------------------------------

WORDS_COUNTED: Json = {
    "prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13, "cost": 0.0001,
    "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 0},
}  # fmt: skip
URL: Json = {"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0, "end_index": 2}}
SAFE: Json = {"hate": {"filtered": False, "severity": "safe"}}


def completion(message: Json, finish: str = "stop", choice: Json | None = None, **more: Any) -> Json:
    whole = {"role": "assistant", "content": None, **message}
    choices = [{"index": 0, "message": whole, "finish_reason": finish, **(choice or {})}]
    return {"id": "c1", "object": "chat.completion", "model": "m", "choices": choices, "usage": WORDS_COUNTED, **more}


CHAT: Mapping[str, Json] = {
    "a refusal": completion({"refusal": "I cannot help with that."}),
    "a search of OpenAI": completion({"content": "It is.", "annotations": [URL]}, service_tier="default"),
    "a search of Perplexity": completion(
        {"content": "It is [1]."}, citations=["https://a.example"], search_results=[{"title": "A"}]
    ),
    "OpenRouter": completion(
        {"content": "A cat", "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]},
        choice={"native_finish_reason": "end_turn"},
        provider="Novita",
    ),
    "Azure": completion(
        {"content": "Hi"},
        choice={"content_filter_results": SAFE},
        prompt_filter_results=[{"prompt_index": 0, "content_filter_results": SAFE}],
    ),
    "Groq and vLLM": completion({"content": "Hi"}, choice={"stop_reason": 154827}, x_groq={"id": "req_1"}),
    "a voice": completion({"audio": {"id": "audio_1", "expires_at": 17, "data": "UklGRg==", "transcript": "Hi there"}}),
}


def chat_chunks(body: Json) -> list[Json]:
    """The chunks of an answer, its texts in two pieces each; what Azure says of the prompt stands in front."""
    (choice,) = body["choices"]
    frame = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    made = [{**frame, "choices": []}] if "prompt_filter_results" in body else []
    for key, value in choice["message"].items():
        if key == "audio":
            pieces: list[Any] = [{"id": value["id"]}, {"data": value["data"]}, {"transcript": value["transcript"]}]
            pieces.append({"expires_at": value["expires_at"]})
        else:
            pieces = [value[:3], value[3:]] if isinstance(value, str) and key != "role" else [value]
        made += [{**frame, "choices": [{"index": 0, "delta": {key: each}, "finish_reason": None}]} for each in pieces]
    rest = {key: value for key, value in choice.items() if key != "message"}
    return [*made, {**frame, "choices": [{**rest, "delta": {}}]}, {**frame, "choices": [], "usage": body["usage"]}]


def chat_folded(records: Iterable[Json]) -> Json:
    body: Json = {}
    message: Json = {}
    for record in records:
        for choice in record["choices"]:
            merge_facts(message, without(choice.pop("delta"), "role"))
            body["choices"] = [{**choice, "message": {"role": "assistant", **message}}]
        body |= {key: value for key, value in record.items() if key != "choices" and value is not None}
    return body


@pytest.mark.parametrize("name", CHAT)
def test_an_answer_of_chat_is_whole(name: str) -> None:
    body = CHAT[name]
    expected = without(body, *OWN[1:])
    stream = sse(chat_chunks(body))
    assert without(chat_folded(records_of(stream)), *OWN[1:]) == expected, "the test's own fold"
    asked = {"model": "x", "messages": [HI], "stream_options": {"include_usage": True}}
    for events in (
        list(replayed(chat_client.decoder(Request("m"), ENDPOINT), stream)),
        list(chat_client.decoder(Request("m"), ENDPOINT).whole(body)),
    ):
        for whole in (True, False):
            encoder = chat_codec.encoder(chat_codec.decode_request(asked).options, id="c-2", created=0, model="m")
            sent = [] if whole else records_of(b"".join(encoder.encode(event) for event in events))
            got = encoder.encode_replies([fold(events)]) if whole else chat_folded(sent)
            got["id"] = "c1"
            if not got["choices"][0]["message"].get("content"):
                got["choices"][0]["message"].pop("content", None)
            assert without(got, *OWN[1:]) == expected
    assert fold(events).message.text == (
        body["choices"][0]["message"].get("refusal") or body["choices"][0]["message"]["content"] or ""
    )


# -- Responses -------------------------------------------------------------------------------------------------------


def response(*output: Json, status: str = "completed", **more: Any) -> Json:
    usage = {
        "input_tokens": 8, "output_tokens": 5, "total_tokens": 13, "cost_in_usd_ticks": 12,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    head = {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": list(output)}
    return {**head, "usage": usage, "service_tier": "default", "temperature": 1.0, **more}


def spoken(*parts: Json, **more: Any) -> Json:
    return {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": list(parts),
        **more,
    }


def output_text(words: str, *notes: Json) -> Json:
    return {"type": "output_text", "text": words, "annotations": list(notes), "logprobs": []}


def called(name: str, at: int) -> Json:
    head = {"id": f"fc_{name}", "type": "function_call", "status": "completed", "call_id": f"call_{name}"}
    return {**head, "name": name, "arguments": f'{{"at":{at}}}'}


def item(kind: str, **more: Any) -> Json:
    return {"id": f"{kind}_1", "type": kind, "status": "completed", **more}


CITATION: Json = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2}
THOUGHT: Json = {
    "id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAAB==",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
}  # fmt: skip
RESPONSES: Mapping[str, Json] = {
    "searches": response(
        item("web_search_call", action={"type": "search", "query": "so?", "sources": []}),
        item("file_search_call", queries=["so?"], results=[{"file_id": "file_1", "text": "It is."}]),
        spoken(output_text("It is.", CITATION), phase="final_answer"),
    ),
    "code and images": response(
        item("code_interpreter_call", code="1+1", container_id="cntr_1", outputs=[{"type": "logs", "logs": "2"}]),
        item("image_generation_call", result="iVBO", output_format="png", size="1024x1024"),
        spoken(output_text("Two.", {"type": "container_file_citation", "file_id": "file_1"})),
    ),
    "connectors": response(
        item("mcp_list_tools", server_label="docs", tools=[{"name": "find", "input_schema": {}}]),
        item("mcp_call", server_label="docs", name="find", arguments="{}", output="found"),
        item("mcp_approval_request", server_label="docs", name="delete", arguments="{}"),
    ),
    "machines": response(
        THOUGHT,
        item("computer_call", call_id="call_1", action={"type": "screenshot"}, pending_safety_checks=[]),
        item("local_shell_call", call_id="call_2", action={"type": "exec", "command": ["ls"], "env": {}}),
        item("shell_call", call_id="call_3", action={"commands": ["ls"]}),
        item("apply_patch_call", call_id="call_4", operation={"type": "delete_file", "path": "a"}),
    ),
    "calls at once": response(THOUGHT, called("look", 1), called("find", 2)),
    "a refusal": response(spoken({"type": "refusal", "refusal": "I cannot help."})),
    "a filter": response(
        spoken(output_text("So"), status="incomplete"),
        status="incomplete",
        incomplete_details={"reason": "content_filter"},
    ),
    "an unknown item": response(item("new_thing", deep={"a": [1]}), spoken(output_text("Hi")), new_field={"b": 2}),
    "a compaction": response(item("compaction", encrypted_content="gAAAA==", created_by="x")),
}


def response_events(body: Json) -> list[Json]:
    """The events of an answer: its calls begin before any of them ends, and their pieces take turns."""
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    made = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
    lanes: list[list[Json]] = []
    for index, given in enumerate(body["output"]):
        place: Json = {"output_index": index, "item_id": given["id"]}
        head: Json = {**given, "status": "in_progress"}
        lane: list[Json] = []
        match given["type"]:
            case "message":
                head["content"] = []
                for part in given["content"]:
                    kind, words = ("refusal", part["refusal"]) if "refusal" in part else ("output_text", part["text"])
                    lane += [{"type": f"response.{kind}.delta", **place, "content_index": 0, "delta": w} for w in words]
            case "function_call":
                head |= {"arguments": ""}
                name = "response.function_call_arguments.delta"
                lane += [{"type": name, **place, "delta": each} for each in given["arguments"]]
            case "reasoning":
                head |= {"summary": [], "encrypted_content": None}
                name = "response.reasoning_summary_text.delta"
                for n, part in enumerate(given["summary"]):
                    where: Json = {**place, "summary_index": n}
                    lane += [{"type": name, **where, "delta": each} for each in part["text"]]
            case kind:
                lane += [{"type": f"response.{kind}.in_progress", **place, "obfuscation": "aZ"}]
        at: Json = {"output_index": index}
        made.append({"type": "response.output_item.added", **at, "item": head})
        lane.append({"type": "response.output_item.done", **at, "item": given})
        if given["type"] == "function_call":
            lanes.append(lane)
        else:
            made += lane
    made += [each for step in itertools.zip_longest(*lanes) for each in step if each is not None]
    return [*made, {"type": f"response.{body['status']}", "response": body}]


@pytest.mark.parametrize("name", RESPONSES)
def test_an_answer_of_responses_is_whole(name: str) -> None:
    body = RESPONSES[name]
    own = ("id", "created_at", "completed_at", "phase") if name == "calls at once" else ("created_at", "completed_at")
    asked: Json = {"model": "m", "input": "Hi", "include": ["reasoning.encrypted_content"], "store": False}
    for events in (
        list(replayed(responses_client.decoder(Request("m"), ENDPOINT), sse(response_events(body)))),
        list(responses_client.decoder(Request("m"), ENDPOINT).whole(body)),
    ):
        for whole in (True, False):
            options = responses_codec.decode_request(asked).options
            encoder = responses_codec.encoder(options, id="resp_1", created=0, model="m")
            sent = [] if whole else records_of(b"".join(encoder.encode(event) for event in events))
            got = encoder.encode_replies([fold(events)]) if whole else sent[-1]["response"]
            for each in got["output"]:
                each["id"] = "msg_1" if each["type"] == "message" else each["id"]
                each["id"] = f"fc_{each['name']}" if each["type"] == "function_call" else each["id"]
            assert without({key: got[key] for key in body if got[key] is not None}, *own) == without(body, *own)
            assert [each["type"] for each in sent[2:-1] if each["type"].endswith("item.done")] == (
                [] if whole else ["response.output_item.done"] * len(body["output"])
            )


@pytest.mark.parametrize("name", RESPONSES)
def test_an_answer_of_responses_goes_back_as_it_was(name: str) -> None:
    output = RESPONSES[name]["output"]
    kinds = {"function_call": "function_call_output", "local_shell_call": "local_shell_call_output"}
    kinds |= {"shell_call": "shell_call_output", "apply_patch_call": "apply_patch_call_output"}
    kinds["computer_call"] = "computer_call_output"
    results = [
        {"type": kinds[each["type"]], "call_id": each["call_id"], "output": "done"}
        for each in output
        if each["type"] in kinds
    ]
    question: Json = {"type": "message", "role": "user", "content": "Go on."}
    body: Json = {
        "model": "m",
        "input": [{"role": "user", "content": "Hi"}, *output, *results, question],
        "store": False,
    }
    request = responses_codec.decode_request(body).request
    sent = responses_client.encode_request(request, ENDPOINT)["input"]
    assert sent[-1] == question
    for given, got in zip([*output, *results], sent[1:-1], strict=True):
        if given["type"] == "message":
            (part,) = given["content"]
            assert (got["role"], got["content"][0]["text"]) == ("assistant", part.get("text") or part["refusal"])
            assert got.get("phase") == given.get("phase")
        elif given["type"] == "function_call":
            assert got == without(given, "id", "status")
        else:
            assert got == given


# -- requests --------------------------------------------------------------------------------------------------------


def test_what_a_client_of_anthropic_asks_for_reaches_it() -> None:
    tools: list[Json] = [
        {"name": "look", "input_schema": {"type": "object"}, "input_examples": [{"at": 1}]},
        {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True, "allowed_callers": ["direct"]},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex", "defer_loading": True},
    ]
    found: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
        {"type": "tool_reference", "tool_name": "late"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    ]}  # fmt: skip
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    messages = [
        HI,
        {"role": "assistant", "content": [thought, use]},
        {"role": "user", "content": [found, text("Go on.")]},
    ]
    thinking = {"type": "enabled", "budget_tokens": 3000}
    body = {"model": "x", "max_tokens": 4096, "thinking": thinking, "tools": tools, "messages": messages}
    request = anthropic_codec.decode_request(body).request
    sent = anthropic_client.encode_request(request, replace(ENDPOINT, thinks_by="budget"))
    assert without(sent["tools"], "cache_control") == tools
    assert ["cache_control" in each for each in sent["tools"]] == [False, False, True, False]
    assert without(sent["messages"][2]["content"], "cache_control") == [found, text("Go on.")]
    assert sent["thinking"] == thinking
    asked = {**body, "thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}
    modern = replace(ENDPOINT, thinks_by="adaptive", efforts=("low", "high", "xhigh", "max"))
    sent = anthropic_client.encode_request(anthropic_codec.decode_request(asked).request, modern)
    assert (sent["thinking"], sent["output_config"]) == ({"type": "adaptive"}, {"effort": "xhigh"})
    del asked["output_config"]
    sent = anthropic_client.encode_request(anthropic_codec.decode_request(asked).request, modern)
    assert (sent["thinking"], "output_config" in sent) == ({"type": "adaptive"}, False)
    other = chat_client.encode_request(request, ENDPOINT)["messages"]
    assert [each["role"] for each in other] == ["user", "assistant", "tool", "user"]
    assert "late" in other[2]["content"]


def test_what_a_client_of_chat_asks_for_reaches_a_model_that_is_not_known() -> None:
    tool = {
        "type": "function",
        "cache_control": {"type": "ephemeral"},
        "function": {
            "name": "look",
            "description": "-",
            "parameters": {"type": "object", "properties": {}},
            "note": "x",
        },
    }
    body = {
        "model": "x", "messages": [HI], "tools": [tool], "reasoning": {"max_tokens": 2000}, "enable_thinking": False,
        "thinking": {"type": "enabled", "clear_thinking": False}, "reasoning_effort": "low", "top_k": 5,
    }  # fmt: skip
    request = chat_codec.decode_request(body).request
    sent = chat_client.encode_request(request, replace(ENDPOINT, thinks_by=None))
    assert {key: sent.get(key) for key in body if key != "model"} == {key: body[key] for key in body if key != "model"}
    switches = ("reasoning", "enable_thinking", "thinking", "reasoning_effort")
    assert not any(each in chat_client.encode_request(request, replace(ENDPOINT, thinks_by="")) for each in switches)
    zai = replace(ENDPOINT, thinks_by="switch", quirks=frozenset({"thinking_object"}))
    del body["reasoning"], body["enable_thinking"]
    sent = chat_client.encode_request(chat_codec.decode_request(body).request, zai)
    assert sent["thinking"] == {"type": "enabled", "clear_thinking": False}


def test_what_a_client_of_responses_asks_for_reaches_it() -> None:
    tools: list[Json] = [
        {"type": "function", "name": "late", "description": "", "parameters": {"type": "object", "properties": {}},
         "strict": True, "defer_loading": True},
        {"type": "tool_search"},
    ]  # fmt: skip
    body: Json = {"model": "x", "input": "Hi", "tools": tools, "reasoning": {"effort": "low", "summary": "detailed"}}
    sent = responses_client.encode_request(
        responses_codec.decode_request(body).request, replace(ENDPOINT, thinks_by=None, efforts=())
    )
    assert (sent["tools"], sent["reasoning"]) == (tools, body["reasoning"])


# -- other surfaces --------------------------------------------------------------------------------------------------


def test_thoughts_of_several_blocks_are_paragraphs_where_there_is_one_text() -> None:
    thought = {"type": "thinking", "thinking": "One.", "signature": "c2ln"}
    search = item("web_search_call", action={"type": "search", "query": "so?"})
    plain = {"id": "rs_2", "type": "reasoning", "summary": [{"type": "summary_text", "text": "One."}]}
    second = {**plain, "summary": [{"type": "summary_text", "text": "Two."}]}
    for events in (
        anthropic_client.decoder(Request("m"), ENDPOINT).whole(
            said("end_turn", thought, {**thought, "thinking": "Two."}, text("So."))
        ),
        responses_client.decoder(Request("m"), ENDPOINT).whole(
            response(plain, search, second, spoken(output_text("So.")))
        ),
    ):
        reply = fold(events)
        chat = chat_codec.encoder(chat_codec.decode_request({"messages": [HI]}).options, id="c", created=0, model="m")
        message = chat.encode_replies([reply])["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("One.\n\nTwo.", "So.")
        body = {"model": "m", "messages": [HI]}
        ollama = ollama_chat.encoder(ollama_chat.decode_request(body).options, id="c", created=0, model="m")
        answer = ollama.encode_replies([reply])
        assert isinstance(answer, dict)
        assert answer["message"]["thinking"] == "One.\n\nTwo."
