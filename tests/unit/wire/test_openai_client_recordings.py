"""What OpenAI, xAI and servers like them really answered, read by our client halves; it stays where it is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.wire.recordings import differences, load, replayed, replies, sessions, stream_text

from shepherd.core import Opaque, Reasoning, Request, TextDelta
from shepherd.core.events import Event, Reply
from shepherd.wire.base import Json
from shepherd.wire.client import ClientCodec, Endpoint, Failure
from shepherd.wire.openai import chat, client
from shepherd.wire.openai.responses import client as responses
from shepherd.wire.openai.responses import codec
from shepherd.wire.openai.responses.parts import facts_in

CODECS: dict[str, ClientCodec] = {"openai.chat": client, "openai.responses": responses}
PROVIDERS = ("openai", "xai", "openai_compat")
REPEATS_NO_MODEL = "m"


@pytest.fixture(scope="module")
def folder(conformance: Path) -> Path:
    found = conformance / "providers"
    if not found.is_dir():
        pytest.skip(f"no recordings at {found}")
    return found


def exchanges(folder: Path, endpoint: str) -> Iterator[Json]:
    for provider in PROVIDERS:
        yield from load(folder / provider, endpoint)
        yield from sessions(folder, provider, endpoint)


def target_of(exchange: Json) -> Endpoint:
    body = exchange["request"].get("body")
    model = (body or {}).get("model") if isinstance(body, dict) else None
    return Endpoint(model or REPEATS_NO_MODEL, "cloud:model", efforts=("low", "high"), thinks_by="effort")


@pytest.mark.parametrize(("endpoint", "least"), [("openai.chat", 115), ("openai.responses", 75)])
def test_every_recorded_answer_is_read_at_any_cut(folder: Path, endpoint: str, least: int) -> None:
    half, n = CODECS[endpoint], 0
    found: list[str] = []
    for exchange in exchanges(folder, endpoint):
        expect = exchange["expect"]
        if exchange["response"]["status"] != 200 or expect["finish"] == "error":
            continue
        first: Reply | None = None
        for reply in replies(half, exchange, Request("m"), target_of(exchange)):
            found += [f"{exchange['id']}: {each}" for each in unexplained(reply, expect)]
            assert first is None or reply == first, f"{exchange['id']}: a cut changes the answer"
            first = reply
        assert first is not None
        if expect.get("model"):
            assert first.model == expect["model"], exchange["id"]
        n += 1
    assert found == []
    assert n >= least


def unexplained(reply: Reply, expect: Json) -> list[str]:
    """How a reply differs from its recording. A refusal is text to us; thoughts of two items are two parts."""
    found = [each for each in differences(reply, expect) if not each.startswith("reasoning:")]
    if expect["finish"] == "refusal":
        found = [each for each in found if not each.startswith("text:")]
    texts = [part.text for part in reply.message.parts if isinstance(part, Reasoning) and part.text]
    if expect["reasoning"] is not None and expect["reasoning"].strip() != "\n\n".join(texts).strip():
        found.append(f"reasoning: {texts!r:.200} is not {expect['reasoning']!r:.200}")
    return found


def test_every_recorded_error_is_a_failure_behind_the_text_that_has_come(folder: Path) -> None:
    n = 0
    for endpoint, half in CODECS.items():
        for exchange in exchanges(folder, endpoint):
            expect, body = exchange["expect"], exchange["response"].get("body")
            target = target_of(exchange)
            events: list[Event] = []
            if (text := stream_text(exchange)) is not None and expect.get("finish") == "error":
                with pytest.raises(Failure) as raised:
                    events += replayed_until(half, text.encode(), target, events)
                said = expect["stream_error"]["message"]
                assert said[:40] in json.dumps(raised.value.body, ensure_ascii=False), exchange["id"]
                texts = "".join(event.text for event in events if isinstance(event, TextDelta))
                assert texts == (expect["text"] or ""), exchange["id"]
                n += 1
            elif exchange["response"]["status"] != 200 and isinstance(body, dict):
                # The transport sees the status first; a server that sends it with 200 says the same.
                if not body.get("error") and "detail" not in body and body.get("object") != "error":
                    continue
                if endpoint == "openai.chat" or body.get("error"):
                    with pytest.raises(Failure):
                        list(half.decoder(Request("m"), target).whole(body))
                    n += 1
    assert n >= 15


def replayed_until(codec: ClientCodec, data: bytes, target: Endpoint, events: list[Event]) -> list[Event]:
    events.extend(replayed(codec.decoder(Request("m"), target), data))
    return []


def test_the_artefacts_of_a_provider_are_kept_whole(folder: Path) -> None:
    n = 0
    for exchange in exchanges(folder, "openai.responses"):
        if exchange["response"]["status"] != 200 or exchange["expect"]["finish"] == "error":
            continue
        reply = next(replies(responses, exchange, Request("m"), target_of(exchange)))
        output = output_of(exchange)
        kept = [
            json.loads(part.body) for part in reply.message.parts if isinstance(part, Opaque) and facts_in(part) is None
        ]
        others = [item for item in output if item["type"] not in ("message", "reasoning", "function_call")]
        assert kept == others, exchange["id"]
        thoughts = [part.signature for part in reply.message.parts if isinstance(part, Reasoning) and part.signature]
        sealed = [
            item
            for item in output
            if item["type"] == "reasoning" and (item.get("encrypted_content") or item.get("content"))
        ]
        proofs = [json.loads(each.removeprefix("openai.responses:")) for each in thoughts]
        if any(str(item["id"]).startswith("rs_tmp_") for item in sealed):  # LM Studio's change while they come
            sealed = [{**item, "id": proof["id"]} for item, proof in zip(sealed, proofs, strict=True)]
        assert proofs == [{key: value for key, value in item.items() if value is not None} for item in sealed], (
            exchange["id"]
        )
        n += len(sealed) + len(others)
    assert n > 50


def output_of(exchange: Json) -> list[Json]:
    """The items at the end of an answer."""
    text = stream_text(exchange)
    if text is None:
        return list(exchange["response"]["body"]["output"])
    return [
        json.loads(line[6:])["item"]
        for line in text.splitlines()
        if line.startswith("data: {") and '"type":"response.output_item.done"' in line
    ]


@pytest.mark.parametrize("endpoint", CODECS)
def test_a_recorded_conversation_goes_out_again_as_its_client_sent_it(folder: Path, endpoint: str) -> None:
    """Body -> our server half -> our client half: the same messages and tools, but for what means the same."""
    n = 0
    for exchange in exchanges(folder, endpoint):
        body = exchange["request"].get("body")
        if exchange["response"]["status"] != 200 or not isinstance(body, dict) or "file_id" in json.dumps(body):
            continue
        if '"namespace"' in json.dumps(body) or '"openrouter:web_search"' in json.dumps(body):
            continue  # a tool's two names become one; chat refuses a tool that no client runs
        if body.get("previous_response_id") or not (body.get("messages") or body.get("input")):
            continue
        if endpoint == "openai.chat":
            request, quirks = chat.decode_request(body).request, frozenset({"reasoning_content"})
            quirks |= {"document_urls" if "document_url" in json.dumps(body) else "file_urls"}
        else:
            request, quirks = codec.decode_request(body).request, frozenset[str]()
        target = Endpoint(
            body["model"], "x:y", reads_documents=True, quirks=quirks, efforts=("low",), thinks_by="effort"
        )
        made = CODECS[endpoint].encode_request(request, target)
        key = "messages" if endpoint == "openai.chat" else "input"
        theirs = normal(body, key, endpoint)
        assert normal(made, key, endpoint) == theirs, exchange["id"]
        assert [tool_of(tool) for tool in made.get("tools", ())] == [tool_of(tool) for tool in body.get("tools") or ()]
        assert made["stream"] is True
        n += 1
    assert n > 60


def test_a_recorded_tool_loop_goes_on_with_the_artefacts_of_its_answers(folder: Path) -> None:
    """The answers that we have read, sent back, are what the recorded client sent back: proofs and places included."""
    n = n_proofs = 0
    for provider in PROVIDERS:
        for file in sorted((folder / "sessions").glob(f"{provider}-*.json")):
            steps = [
                step for step in json.loads(file.read_text("utf-8"))["steps"] if step["expect"]["finish"] != "error"
            ]
            for earlier, later in pairwise(steps):
                endpoint = earlier["endpoint"]
                half, server = CODECS[endpoint], chat if endpoint == "openai.chat" else codec
                request = server.decode_request(earlier["request"]["body"]).request
                target = Endpoint(
                    "m", "x:y", quirks=frozenset({"reasoning_content"}), efforts=("low",), thinks_by="effort"
                )
                answer = next(replies(half, {"id": file.stem, **earlier}, request, target)).message
                known = len(request.messages)
                following = server.decode_request(later["request"]["body"]).request.messages
                if following[:known] != request.messages or following[known].role != "assistant":
                    continue  # that client has changed the beginning
                if "<think>" in following[known].text:
                    continue  # that client sends thoughts back as text
                messages = (*request.messages, answer, *following[known + 1 :])
                made = half.encode_request(replace(request, messages=messages), target)
                key = "messages" if endpoint == "openai.chat" else "input"
                ours, theirs = normal(made, key, endpoint), normal(later["request"]["body"], key, endpoint)
                assert without_ids(ours) == without_ids(theirs), file.stem
                n += 1
                n_proofs += json.dumps(made[key]).count('"encrypted_content"')
    assert n >= 15
    assert n_proofs >= 12


def without_ids(items: list[Any]) -> list[Any]:
    """Items without what some clients leave out of them."""
    optional = {"id", "status"}
    return [
        {key: value for key, value in item.items() if key not in optional and value} if isinstance(item, dict) else item
        for item in items
    ]


def tool_of(tool: Json) -> Any:
    inner = tool.get("function", tool)
    if tool.get("type", "function") not in ("function", "custom"):
        return tool
    return (
        inner["name"],
        inner.get("description") or "",
        {"type": "object", "properties": {}, **(inner.get("parameters") or {})},
    )


def normal(body: Json, key: str, endpoint: str) -> list[Any]:
    """The messages of a body as one form: who, what texts and files, which calls and results, which proofs."""
    found: list[Any] = []
    given = body[key]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if body.get("instructions"):
        given = [{"role": "system", "content": body["instructions"]}, *given]
    for item in given:
        kind = item.get("type", "message")
        if kind == "function_call":
            found.append(("call", item["call_id"], item["name"], json.loads(item["arguments"] or "{}")))
        elif kind == "function_call_output":
            output = item["output"]
            found.append(("result", item["call_id"], texts_of(output)))
        elif kind == "reasoning" and not item.get("encrypted_content"):
            pass  # of a thought without a proof our server keeps the text
        elif kind != "message":
            found.append({name: value for name, value in item.items() if value is not None})
        elif item["role"] == "tool":
            found.append(("result", item["tool_call_id"], texts_of(item["content"])))
        else:
            role = {"developer": "system"}.get(item["role"], item["role"])
            said = (role, texts_of(item.get("content")), item.get("phase"))
            proofs = [each for each in item.get("reasoning_details") or () if each.get("signature") or each.get("data")]
            if role != "assistant" or said[1] != ("", []):
                found.append((*said, bool(proofs)))
            for call in item.get("tool_calls") or ():
                function = call["function"]
                found.append(("call", call["id"], function["name"], json.loads(function["arguments"] or "{}")))
    return found


def texts_of(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or "", []
    texts = [part.get("text") or part.get("refusal") or "" for part in content]
    files = [part for part in content if not part.get("text") and part.get("type") != "thinking"]
    return "\n".join(filter(None, texts)), [file_of(part) for part in files]


def file_of(part: Any) -> str:
    """The end of a file's content or address, which each protocol puts somewhere else."""
    keys = ("image_url", "file", "document_url", "url", "file_data", "file_url")
    while isinstance(part, dict):
        part = next((part[key] for key in keys if key in part), "")
    return str(part)[-60:]
