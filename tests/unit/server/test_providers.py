"""Every surface in front of every wire: official clients talk to our server, which talks to a replayed provider.

    openai, anthropic, ollama ─▶ our server ─▶ its provider's client half ─▶ `ReplayServer`, with a recorded answer

What a client reads must be what the recording says (`expect`): text, thoughts, calls with their arguments; and each
error must be one of the client's own classes. `WIRES`, `SURFACES` and `CASES` are data, which
docs/provider-reference.md shows.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import pytest
from tests.in_time import becomes_true
from tests.own_server import serving
from tests.providers_replay import FOLDER, REASON, Answer, ReplayServer, Way, answer_of, recordings
from tests.providers_thread import apart

from shepherd.server.app import Limits

HI = [{"role": "user", "content": "Hi"}]
KEY = "sk-test-SECRET-4242424242"
MODEL = "up-1"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PDF = b"%PDF-1.4\n\xe2\xe3\n%%EOF"
PAPER = base64.b64encode(PDF).decode()
NOTES = "The fox is red."
STOP = "END"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


# -- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wire:
    """A provider's protocol, and where its recordings are."""

    name: str
    type: str
    protocol: str
    path: str
    recorded: tuple[tuple[str, str], ...]
    """Provider and endpoint of recordings."""
    known: str
    """A model of the table in `backends/cloud/models.py`; empty where it knows none."""
    overflow: Any = None
    """A body, where no recording has one."""


WIRES = (
    Wire("openai", "openai", "openai.responses", "/v1/responses", (("openai", "openai.responses"),),
         "gpt-5.4-mini"),
    Wire("openai-chat", "openai", "openai.chat", "/v1/chat/completions", (("openai", "openai.chat"),), "gpt-4.1",
         {"error": {
        "message": "This model's maximum context length is 4097 tokens. Your messages resulted in 9000 tokens.",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
    }}),
    Wire("anthropic", "anthropic", "anthropic", "/v1/messages", (("anthropic", "anthropic.messages"),),
         "claude-sonnet-4-5"),
    Wire(
        "gemini", "gemini", "gemini", f"/v1beta/models/{MODEL}:streamGenerateContent",
        (("gemini", "gemini.streamGenerateContent"), ("gemini", "gemini.generateContent")),
        "gemini-3-flash", {"error": {
            "code": 400, "status": "INVALID_ARGUMENT",
            "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        }},
    ),
    Wire(
        "grok", "grok", "openai.responses", "/v1/responses", (("xai", "openai.responses"),), "grok-4.3",
        {"code": "invalid-argument", "error": "This model's maximum prompt length is 131072 but the request contains "
         "200000 tokens."},
    ),
    Wire("ollama", "ollama", "ollama", "/api/chat", (("ollama", "ollama.chat"),), "",
         {"error": "prompt too long; exceeded max context length by 12 tokens"}),
    Wire("compatible", "openai_compat", "openai.chat", "/v1/chat/completions", (("openai_compat", "openai.chat"),),
         ""),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One thing that a client does."""

    name: str
    kinds: tuple[str, ...]
    """Of the recordings that answer it."""
    has_image: bool = False
    has_results: bool = False
    are_swapped: bool = False
    """The results come in another order than the calls."""
    shows: bool = False
    """A result has an image."""
    document: str = ""
    """The kind of one: `pdf` or `text`."""
    thinks: bool = False
    stops: bool = False
    schema: Mapping[str, Any] | None = None
    ending: Mapping[str, str] = field(default_factory=dict)
    """What each surface calls the end of the answer, where the provider says why it ended."""
    without: str = ""
    """The surface whose protocol has no word for it."""


SPOKEN = ("plain", "text_stream")
AFTER_RESULTS = ("tool_result", "tool_result_stream")
CASES = (
    Case("text", SPOKEN),
    Case("parallel tools", ("parallel_tools", "parallel_tools_stream")),
    Case("tool results", AFTER_RESULTS, has_results=True),
    Case("results in another order", AFTER_RESULTS, has_results=True, are_swapped=True),
    Case("image", ("image",), has_image=True),
    Case("image in a result", AFTER_RESULTS, has_results=True, shows=True),
    Case("document (PDF)", ("document", *SPOKEN), document="pdf", without="ollama"),
    Case("document (text)", ("document", *SPOKEN), document="text", without="ollama"),
    Case("reasoning", ("reasoning", "reasoning_stream"), thinks=True),
    Case("structured output", ("structured", "structured_stream"), schema=SCHEMA),
    Case("stop string", ("stop_stream",), stops=True,
         ending={"chat": "stop", "responses": "", "anthropic": "stop_sequence", "ollama": "stop"}),
    Case("refusal", ("refusal_stream",),
         ending={"chat": "content_filter", "responses": "content_filter", "anthropic": "refusal", "ollama": "stop"}),
)  # fmt: skip
CUT = Case("cut stream", ("text_stream", "reasoning_stream", "plain"))
OVERFLOW = Case("overflow", ("error",))

IMPOSSIBLE = {
    ("grok", "document (PDF)"): "2",
    ("ollama", "document (PDF)"): "3",
    ("compatible", "document (PDF)"): "2",
    ("openai-chat", "reasoning"): "9",
    ("ollama", "refusal"): "10",
}
"""What a provider's protocol, or its models, cannot do, and the note of docs/provider-reference.md that says why."""
NAMES_NO_STOP = {"openai-chat", "gemini", "ollama"}
"""They end the answer at a stop string, and do not say so: for Anthropic's clients it is an ordinary end."""


def recorded(wire: Wire, case: Case) -> list[dict[str, Any]]:
    """Answers of the wire for the case, the shortest first."""
    found = [each for each in _all() if (each["provider"], each["endpoint"]) in wire.recorded]
    found = [each for each in found if each["kind"] in case.kinds and not each["expect"].get("inline_think_tags")]
    return sorted(found, key=lambda each: len(json.dumps(each["response"])))


@cache
def _all() -> list[dict[str, Any]]:
    return recordings()


def answer_for(wire: Wire, recording: Mapping[str, Any], name: str = "") -> Answer:
    """`name`: of the provider."""
    model = wire.known if name.endswith("-known") else MODEL
    return replace(answer_of(recording), path=wire.path.replace(MODEL, model))


# -- the surfaces ----------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a client has read."""

    text: str = ""
    thoughts: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    error: Exception | None = None
    ending: str = ""
    """Why the answer ended, in the client's word; empty where it is complete and has none."""


Ask = Callable[[str, str, Case, tuple[str, ...], bool], Seen]
"""From the address, the model, the case, the names of tools, and whether to stream."""


@contextmanager
def caught(seen: Seen, *kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        seen.error = error


def _tools(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"name": name, "description": name, "parameters": {"type": "object", "properties": {}}} for name in names]


CALLED = ("look", "listen")
"""The tools that were called, in this order."""


def _results(case: Case) -> list[tuple[int, str, str]]:
    """Number, tool and text of each result, as they are sent."""
    made = [(n, name, f"result {n}") for n, name in enumerate(CALLED, 1)]
    return made[::-1] if case.are_swapped else made


def _document(case: Case) -> tuple[str, str, str]:
    """Name, type and base64."""
    if case.document == "pdf":
        return "paper.pdf", "application/pdf", PAPER
    return "notes.txt", "text/plain", base64.b64encode(NOTES.encode()).decode()


def ask_chat(url: str, model: str, case: Case, tools: tuple[str, ...], stream: bool) -> Seen:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    content: list[Any] = [{"type": "text", "text": "Hi"}, *([image] * case.has_image)]
    if case.document:
        name, kind, data = _document(case)
        content.append({"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}})
    messages: list[Any] = [{"role": "user", "content": content}]
    if case.has_results:
        calls = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for n, name in enumerate(CALLED, 1)
        ]
        messages += [{"role": "assistant", "content": None, "tool_calls": calls}]
        for n, _, text in _results(case):
            parts = [{"type": "text", "text": text}, image] if case.shows and n == 1 else text
            messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": parts})
    more: dict[str, Any] = {"reasoning_effort": "medium"} if case.thinks else {}
    if case.stops:
        more["stop"] = [STOP]
    if case.schema:
        more["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": case.schema}}
    if tools:
        more["tools"] = [{"type": "function", "function": each} for each in _tools(tools)]
    seen, pieces = Seen(), dict[int, list[str]]()
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client, caught(seen, openai.APIError):
        if not stream:
            choice = client.chat.completions.create(model=model, messages=messages, **more).choices[0]
            message = choice.message
            found = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
            thoughts = getattr(message, "reasoning_content", None) or ""
            read = [(name, json.loads(text)) for name, text in found]
            return Seen(message.content or message.refusal or "", thoughts, read, ending=choice.finish_reason)
        for chunk in client.chat.completions.create(model=model, messages=messages, stream=True, **more):
            for choice in chunk.choices:
                seen.text += choice.delta.content or choice.delta.refusal or ""
                seen.ending = choice.finish_reason or ""
                seen.thoughts += getattr(choice.delta, "reasoning_content", None) or ""
                for call in choice.delta.tool_calls or ():
                    name, arguments = pieces.setdefault(call.index, ["", ""])
                    pieces[call.index] = [
                        name + (call.function.name or ""),
                        arguments + (call.function.arguments or ""),
                    ]
        seen.calls = [(name, json.loads(text)) for name, text in pieces.values()]
    return seen


def ask_responses(url: str, model: str, case: Case, tools: tuple[str, ...], stream: bool) -> Seen:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    content: list[Any] = [{"type": "input_text", "text": "Hi"}, *([image] * case.has_image)]
    if case.document:
        name, kind, data = _document(case)
        content.append({"type": "input_file", "filename": name, "file_data": f"data:{kind};base64,{data}"})
    items: list[Any] = [{"role": "user", "content": content}]
    if case.has_results:
        items += [
            {"type": "function_call", "call_id": f"c{n}", "name": name, "arguments": "{}"}
            for n, name in enumerate(CALLED, 1)
        ]
        for n, _, text in _results(case):
            output = [{"type": "input_text", "text": text}, image] if case.shows and n == 1 else text
            items.append({"type": "function_call_output", "call_id": f"c{n}", "output": output})
    more: dict[str, Any] = {"reasoning": {"effort": "medium", "summary": "auto"}} if case.thinks else {}
    if case.stops:
        more["extra_body"] = {"stop": [STOP]}
    if case.schema:
        more["text"] = {"format": {"type": "json_schema", "name": "a", "schema": case.schema}}
    if tools:
        more["tools"] = [{"type": "function", "strict": False, **each} for each in _tools(tools)]
    seen = Seen()
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client, caught(seen, openai.APIError):
        if stream:
            response = None
            for event in client.responses.create(model=model, input=items, stream=True, **more):
                if event.type in ("response.output_text.delta", "response.refusal.delta"):
                    seen.text += event.delta
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    response = event.response
            assert response is not None, "the stream has no end"
            whole = seen.text
        else:
            response, whole = client.responses.create(model=model, input=items, **more), None
        parts = [part for item in response.output if item.type == "message" for part in item.content]
        read = "".join(part.refusal if part.type == "refusal" else part.text for part in parts)
        seen = Seen(read if whole is None else whole)
        seen.ending = (response.incomplete_details and response.incomplete_details.reason) or ""
        for item in response.output:
            if item.type == "reasoning":
                parts = [*(item.content or ()), *item.summary]
                seen.thoughts += "".join(part.text for part in parts)
            elif item.type == "function_call":
                seen.calls.append((item.name, json.loads(item.arguments)))
    return seen


def ask_anthropic(url: str, model: str, case: Case, tools: tuple[str, ...], stream: bool) -> Seen:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    content: list[Any] = [{"type": "text", "text": "Hi"}, *([image] * case.has_image)]
    if case.document:
        name, kind, data = _document(case)
        source = {"type": "base64", "media_type": kind, "data": data}
        if case.document == "text":
            source = {"type": "text", "media_type": kind, "data": NOTES}
        content.append({"type": "document", "title": name, "source": source})
    messages: list[Any] = [{"role": "user", "content": content}]
    if case.has_results:
        uses = [{"type": "tool_use", "id": f"c{n}", "name": name, "input": {}} for n, name in enumerate(CALLED, 1)]
        results = [
            {
                "type": "tool_result",
                "tool_use_id": f"c{n}",
                "content": [{"type": "text", "text": text}, image] if case.shows and n == 1 else text,
            }
            for n, _, text in _results(case)
        ]
        messages += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    more: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if case.thinks else {}
    if case.stops:
        more["stop_sequences"] = [STOP]
    if case.schema:
        more["output_config"] = {"format": {"type": "json_schema", "schema": case.schema}}
    if tools:
        more["tools"] = [
            {"name": each["name"], "description": "-", "input_schema": each["parameters"]} for each in _tools(tools)
        ]
    seen = Seen()
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    with client, caught(seen, anthropic.APIError):
        if stream:
            with client.messages.stream(model=model, max_tokens=4000, messages=messages, **more) as events:
                for text in events.text_stream:
                    seen.text += text
                message = events.get_final_message()
        else:
            message = client.messages.create(model=model, max_tokens=4000, messages=messages, **more)
        seen = Seen(ending=message.stop_reason or "")
        for block in message.content:
            if block.type == "text":
                seen.text += block.text
            elif block.type == "thinking":
                seen.thoughts += block.thinking
            elif block.type == "tool_use":
                seen.calls.append((block.name, block.input))
    return seen


def ask_ollama(url: str, model: str, case: Case, tools: tuple[str, ...], stream: bool) -> Seen:
    messages: list[Any] = [{"role": "user", "content": "Hi", **({"images": [PIXEL]} if case.has_image else {})}]
    if case.has_results:
        messages += [
            {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": {}}} for name in CALLED]}
        ]
        for n, name, text in _results(case):
            images = {"images": [PIXEL]} if case.shows and n == 1 else {}
            messages.append({"role": "tool", "tool_name": name, "content": text, **images})
    more: dict[str, Any] = {"think": True} if case.thinks else {}
    if case.stops:
        more["options"] = {"stop": [STOP]}
    if case.schema:
        more["format"] = case.schema
    if tools:
        more["tools"] = [{"type": "function", "function": each} for each in _tools(tools)]
    seen = Seen()
    with ollama.Client(url) as client, caught(seen, ollama.ResponseError):
        answers = client.chat(model=model, messages=messages, stream=stream, **more)
        for answer in answers if stream else [answers]:
            seen.text += answer.message.content or ""
            seen.thoughts += answer.message.thinking or ""
            seen.ending = answer.done_reason or ""
            seen.calls += [
                (call.function.name, dict(call.function.arguments)) for call in answer.message.tool_calls or ()
            ]
    return seen


SURFACES: dict[str, Ask] = {
    "chat": ask_chat,
    "responses": ask_responses,
    "anthropic": ask_anthropic,
    "ollama": ask_ollama,
}


# -- the stage -------------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    url: str
    """Of our server."""
    replay: ReplayServer

    def play(self, *answers: Answer) -> None:
        self.replay.answers = deque(answers)
        self.replay.requests.clear()
        self.replay.faults.clear()


@contextmanager
def staged(folder: Path, more: str = "", **options: Any) -> Iterator[Stage]:
    """Our server with one provider for each wire: the model `NAME/up-1` is answered by the provider NAME, and
    `NAME-known` is one of the provider's models whose abilities are known."""
    with apart(ReplayServer()) as replay:
        rows = [
            f'[providers.{name}]\ntype = "{wire.type}"\nprotocol = "{wire.protocol}"\napi_key = "{KEY}"\n'
            f'base_url = "{replay.url}"\nmodel = "{model}"\n'
            for wire in WIRES
            for name, model in ((wire.name, MODEL), (f"{wire.name}-known", wire.known))
            if model
        ]
        with serving(folder, "\n".join([more, *rows]), **options) as url:
            yield Stage(url, replay)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("providers")) as made:
        yield made


needs_recordings = pytest.mark.skipif(not (FOLDER / "index.json").exists(), reason=REASON)
everywhere = pytest.mark.parametrize("surface", SURFACES)
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


@needs_recordings
@pytest.mark.grid(0.1, family="surface")
@everywhere
@every_wire
def test_a_client_reads_what_the_provider_has_answered(stage: Stage, surface: str, wire: Wire) -> None:
    wrong = []
    for case in CASES:
        if surface == case.without:
            continue
        model = f"{wire.name}-known" if case.document and wire.known else wire.name
        for recording in recorded(wire, case)[:2]:
            expect = recording["expect"]
            calls = [(call["name"], call["arguments"]) for call in expect["tool_calls"]]
            tools = tuple(dict.fromkeys(name for name, _ in calls)) or (CALLED if case.has_results else ())
            text = expect["text"] or ""
            for stream in (False, True):
                stage.play(answer_for(wire, recording, model))
                seen = SURFACES[surface](stage.url, f"{model}/x", case, tools, stream)
                got = (seen.error, seen.text, seen.calls)
                is_lost = case.thinks and expect["reasoning"] and not seen.thoughts
                has_right_end = not case.ending or seen.ending in endings_of(case, surface, wire)
                expected = (None, text.partition(STOP)[0] if case.stops else text, calls)
                lacks = lacking(stage, wire, case)
                if got != expected or is_lost or not has_right_end or lacks:
                    why = [*lacks, *stage.replay.faults]
                    wrong.append((case.name, recording["id"], stream, got, seen.ending, why, expected))
    assert not wrong


def endings_of(case: Case, surface: str, wire: Wire) -> tuple[str, ...]:
    if case.stops and surface == "anthropic" and wire.name in NAMES_NO_STOP:
        return ("end_turn",)
    if case.name == "refusal":  # a refusal in its own words, where both sides have them, is an ordinary end
        own = {"openai.chat": ("chat", "stop"), "openai.responses": ("responses", "")}.get(wire.protocol, ("", ""))
        return (case.ending[surface], *own[1:]) if surface == own[0] else (case.ending[surface],)
    return (case.ending[surface],)


def lacking(stage: Stage, wire: Wire, case: Case) -> list[str]:
    """What the provider should have got, and has not."""
    body = next((each.json for each in stage.replay.requests if each.method == "POST"), None)
    text = json.dumps(body, ensure_ascii=False)
    wanted = []
    if case.has_image or case.shows:
        wanted.append(PIXEL)
    if case.document == "text":
        wanted.append(NOTES)
    elif case.document:
        wanted.append("[document: paper.pdf" if (wire.name, case.name) in IMPOSSIBLE else PAPER)
    if case.stops and wire.protocol != "openai.responses":  # there it is cut here
        wanted.append(f'"{STOP}"')
    lacks = [each for each in wanted if each not in text]
    if case.has_results and (found := answered(wire.protocol, body)) != [("look", "result 1"), ("listen", "result 2")]:
        lacks.append(f"results in their places, not {found}")
    return lacks


def answered(protocol: str, body: Any) -> list[tuple[str, str]]:
    """The tools that were called, in their order, each with the text of its result."""
    names, results = dict[str, str](), list[tuple[str, Any]]()
    if protocol == "openai.chat":
        for message in body["messages"]:
            names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
            if message["role"] == "tool":
                results.append((message["tool_call_id"], message["content"]))
    elif protocol == "openai.responses":
        for item in body["input"]:
            if item["type"] == "function_call":
                names[item["call_id"]] = item["name"]
            elif item["type"] == "function_call_output":
                results.append((item["call_id"], item["output"]))
    elif protocol == "anthropic":
        for block in (block for message in body["messages"] for block in message["content"]):
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            elif block["type"] == "tool_result":
                results.append((block["tool_use_id"], block["content"]))
    elif protocol == "gemini":
        for part in (each for content in body["contents"] for each in content["parts"]):
            if call := part.get("functionCall"):
                names[call["name"]] = call["name"]
            elif result := part.get("functionResponse"):
                results.append((result["name"], result))
    else:
        for message in body["messages"]:
            names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
            if message["role"] == "tool":
                assert message["tool_name"] == names[message["tool_call_id"]]
                results.append((message["tool_call_id"], message["content"]))
    assert [id for id, _ in results] == list(names)
    texts = (re.findall(r"result \d", json.dumps(content)) for _, content in results)
    return [(names[id], " ".join(text)) for (id, _), text in zip(results, texts, strict=True)]


@needs_recordings
def test_every_wire_has_a_recording_of_every_case() -> None:
    missing = {(wire.name, case.name) for wire in WIRES for case in (*CASES, CUT) if not recorded(wire, case)}
    assert missing == {("ollama", "refusal")}
    without_thoughts = {
        wire.name for wire in WIRES if not any(each["expect"]["reasoning"] for each in recorded(wire, CASES[8]))
    }
    assert without_thoughts == {wire for wire, case in IMPOSSIBLE if case == CASES[8].name}


@needs_recordings
@pytest.mark.grid(0.2, family="surface")
@everywhere
@every_wire
def test_a_prompt_that_is_too_long_is_what_the_client_calls_it(stage: Stage, surface: str, wire: Wire) -> None:
    found = [each for each in recorded(wire, OVERFLOW) if each["expect"]["error"]["kind"] == "context_length"]
    body = wire.overflow or found[0]["response"]["body"]
    for stream in (False, True):
        stage.play(Answer(wire.path, json.dumps(body).encode(), 400, {"content-type": "application/json"}))
        error = SURFACES[surface](stage.url, f"{wire.name}/x", CASES[0], (), stream).error
        assert isinstance(error, openai.BadRequestError | anthropic.BadRequestError | ollama.ResponseError)
        assert error.status_code == 400
        assert "prompt is too long" in str(error)
        if surface in ("chat", "responses"):
            assert getattr(error, "code", "") == "context_length_exceeded"


@needs_recordings
@pytest.mark.grid(0.2, family="surface")
@everywhere
@every_wire
def test_a_cut_stream_is_an_error_after_the_text_that_came(stage: Stage, surface: str, wire: Wire) -> None:
    streams = [each for each in recorded(wire, CUT) if "body" not in each["response"] and each["expect"]["text"]]
    if not streams:
        pytest.skip(f"no recorded stream of {wire.name}")
    whole = answer_for(wire, streams[-1])
    stage.play(replace(whole, way=Way(end_at=len(whole.body) * 3 // 5)))
    seen = SURFACES[surface](stage.url, f"{wire.name}/x", CUT, (), True)
    assert isinstance(seen.error, openai.APIError | anthropic.APIError | ollama.ResponseError), seen
    assert (streams[-1]["expect"]["text"]).startswith(seen.text)
    assert surface == "anthropic" or seen.text or seen.thoughts or streams[-1]["expect"]["reasoning"]


# -- errors ----------------------------------------------------------------------------------------------------------


def refused(wire: Wire, status: int, body: Any, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(wire.path, json.dumps(body).encode(), status, {"content-type": "application/json", **named})


WRONG_KEY = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": "x", "code": "invalid_api_key"}}
NO_MONEY = {"error": {"message": "You exceeded your current quota", "type": "x", "code": "insufficient_quota"}}
TOO_OFTEN = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
FAILURES: tuple[tuple[str, int, Any, dict[str, str], int, str], ...] = (
    ("a wrong key of ours", 401, WRONG_KEY, {}, 502, "Incorrect API key"),
    ("a right that we lack", 403, {"error": {"message": "not in your region", "type": "permission_error"}}, {}, 502,
     "not in your region"),
    ("money that we lack", 429, NO_MONEY, {}, 402, "quota"),
    ("too many requests", 429, TOO_OFTEN, {"retry_after": "120"}, 429, "slow down"),
    ("too much to do", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
     {"x_should_retry": "false", "retry_after": "7"}, 503, "Overloaded"),
    ("a model that does not exist", 404, {"error": {"message": "The model `x` does not exist", "code":
     "model_not_found"}}, {}, 404, "does not exist"),
    ("a wrong field", 400, {"error": {"message": "bad thing", "type": "invalid_request_error"}}, {}, 400, "bad thing"),
)  # fmt: skip


@everywhere
def test_what_a_provider_refuses_has_its_words_and_the_status_that_is_right_here(stage: Stage, surface: str) -> None:
    for what, status, body, headers, expected, words in FAILURES:
        stage.play(refused(WIRES[2], status, body, request_id="req_up_1", **headers))
        error = SURFACES[surface](stage.url, "anthropic/x", CASES[0], (), False).error
        assert isinstance(error, openai.APIStatusError | anthropic.APIStatusError | ollama.ResponseError), what
        assert (error.status_code, words in str(error), "req_up_1" in str(error)) == (expected, True, True), what
        assert KEY not in str(error)
        if isinstance(error, openai.APIStatusError | anthropic.APIStatusError):
            sent = error.response.headers
            assert sent.get("retry-after") == headers.get("retry_after"), what
            assert sent.get("x-shepherd-backend") == "anthropic" or expected == 400, what
            if expected in (402, 404, 502):
                assert sent["x-should-retry"] == "false", what


class Lines(logging.Handler):
    """Lines of the log, as they come."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: Queue[str] = Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(record.getMessage())


def test_the_log_has_the_provider_and_its_id_of_the_request(stage: Stage) -> None:
    logger, handler = logging.getLogger("shepherd.server"), Lines()
    level = logger.level
    logger.setLevel("INFO")
    logger.addHandler(handler)
    stage.play(
        refused(WIRES[2], 401, WRONG_KEY, request_id="req_log_1"), replace(SAID, headers={"request-id": "req_log_2"})
    )
    try:
        for _ in range(2):
            ask_anthropic(stage.url, "anthropic/x", CASES[0], (), stream=False)
        every = list[str]()
        while not all(any(f"upstream={id}" in line for line in every) for id in ("req_log_1", "req_log_2")):
            every.append(handler.lines.get(timeout=20))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    lines = [line for line in every if "upstream=req_log" in line]
    assert any("Incorrect API key" in line for line in every)  # a warning: the operator has to act
    assert "backend=anthropic cache=anthropic upstream=req_log_1" in lines[0]
    assert "backend=anthropic:up-1 cache=anthropic upstream=req_log_2" in lines[1]
    assert KEY not in "".join(every)


# -- by hand ---------------------------------------------------------------------------------------------------------


def events(*each: dict[str, Any]) -> bytes:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in each).encode()


HEAD: dict[str, Any] = {"type": "message_start", "message": {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "up-1", "content": [], "stop_reason": None,
    "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1},
}}  # fmt: skip
TAIL = (
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)
BEGUN = events(
    HEAD,
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
)
SAID = Answer("/v1/messages", BEGUN + events(*TAIL))


def test_a_client_that_leaves_closes_the_connection_to_the_provider(stage: Stage) -> None:
    for path in ("/v1/messages", "/v1/chat/completions"):
        for way in (Way(hang_at=len(BEGUN)), Way(hang_at=-1)):
            stage.play(replace(SAID, way=way))
            body = {
                "model": "anthropic/x",
                "max_tokens": 9,
                "stream": True,
                "messages": [{"role": "user", "content": "Hi"}],
            }
            with httpx2.Client() as client:
                if way.hang_at == -1:
                    with pytest.raises(httpx2.ReadTimeout):
                        client.post(stage.url + path, json=body, timeout=0.5)
                else:
                    with client.stream("POST", stage.url + path, json=body) as answer:
                        assert "Hello" in next(text for text in answer.iter_text() if "Hello" in text)
            (asked,) = stage.replay.requests
            assert asyncio.run_coroutine_threadsafe(asked.has_left.wait(), stage.replay.loop).result(20)


def test_a_silent_provider_does_not_make_the_client_give_up(tmp_path: Path) -> None:
    with staged(tmp_path, limits=Limits(ping_s=0.05)) as stage:
        stage.play(replace(SAID, way=Way(hang_at=-1)))
        body = {"model": "anthropic/x", "stream": True, "messages": HI}
        with httpx2.Client() as client, client.stream("POST", f"{stage.url}/v1/chat/completions", json=body) as answer:
            pieces = answer.iter_bytes()
            assert [next(pieces)[:1] for _ in range(3)] == [b":"] * 3


def test_options_of_the_protocol_reach_its_provider_and_keys_do_not(stage: Stage) -> None:
    sent = {
        "anthropic-beta": "interleaved-thinking-2025-05-14,context-1m-2025-08-07",
        "x-api-key": "sk-client",
        "authorization": "Bearer sk-client",
        "cookie": "a=sk-client",
        "openai-organization": "org-client",
    }
    body = {"model": "anthropic/x", "max_tokens": 9, "messages": HI, "speed": "fast"}
    counted = Answer("/v1/messages/count_tokens", b'{"input_tokens": 12}', 200, {"content-type": "application/json"})
    answers = {"/v1/messages": SAID, "/v1/messages/count_tokens": counted, "/v1/chat/completions": SAID}
    for path, answer in answers.items():
        stage.play(answer)
        assert httpx2.post(stage.url + path, json=body, headers=sent).status_code == 200
        (asked,) = stage.replay.requests
        is_same = path != "/v1/chat/completions"
        assert asked.headers.get("anthropic-beta") == (sent["anthropic-beta"] if is_same else None)
        assert asked.headers["x-api-key"] == KEY
        assert "sk-client" not in repr(asked.headers)
        assert "openai-organization" not in asked.headers


PARTS: tuple[tuple[Any, str, str], ...] = (
    ({"type": "file", "file": {"file_id": "file-1"}}, "messages[0].content[0].file.file_data", "stores no files"),
    ({"type": "input_audio", "input_audio": {"data": "T2dnUw==", "format": "ogg"}},
     "messages[0].content[0].input_audio.format", "send one of wav, mp3, flac"),
)  # fmt: skip


def test_what_only_the_provider_of_a_client_reads_reaches_it_and_no_other(stage: Stage) -> None:
    spoken = {"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]}
    answer = Answer("/v1/chat/completions", json.dumps(spoken).encode(), 200, {"content-type": "application/json"})
    hosted = {"type": "openrouter:web_search", "parameters": {"max_results": 3}}
    asked: list[tuple[dict[str, Any], str, str]] = [
        ({"messages": [{"role": "user", "content": [part]}]}, field, words) for part, field, words in PARTS
    ]
    asked.append(({"messages": HI, "tools": [hosted]}, "tools[0].type", "only tools of type function"))
    voice = {"messages": HI, "modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}
    asked.append((voice, "modalities", "answer in text only"))
    with openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none", max_retries=0) as client:
        for body, field, words in asked:
            stage.play(answer)
            client.chat.completions.create(model="compatible/x", **body)
            sent = stage.replay.requests[0].json
            assert {key: sent[key] for key in body} == body
            stage.play()
            with pytest.raises(openai.BadRequestError, match=words) as caught:
                client.chat.completions.create(model="anthropic/x", **body)
            assert caught.value.param == field
            assert stage.replay.requests == []
        item = {"type": "input_image", "file_id": "file-1"}
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": [item]}
        items: list[Any] = [{"type": "message", "role": "user", "content": [item]}, call, output]
        done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}
        whole = json.dumps({"status": "completed", "output": [done]}).encode()
        stage.play(Answer("/v1/responses", whole, 200, {"content-type": "application/json"}))
        assert client.responses.create(model="openai/x", input=items).output_text == "Hello"
        assert stage.replay.requests[0].json["input"] == items
        with pytest.raises(openai.BadRequestError, match="stores no files"):
            client.responses.create(model="anthropic/x", input=items)


def test_a_count_is_the_providers_own(stage: Stage) -> None:
    stage.play(Answer("/v1/messages/count_tokens", b'{"input_tokens": 12}', 200, {"content-type": "application/json"}))
    body = {"model": "anthropic/x", "messages": HI}
    assert httpx2.post(f"{stage.url}/v1/messages/count_tokens", json=body).json() == {"input_tokens": 12}
    stage.play()  # it has no such path: an estimate
    body["model"] = "ollama/x"
    assert httpx2.post(f"{stage.url}/v1/messages/count_tokens", json=body).json()["input_tokens"] > 0


def test_lists_of_models_have_the_providers(stage: Stage) -> None:
    names = {wire.name for wire in WIRES}
    assert {card["id"] for card in httpx2.get(f"{stage.url}/v1/models").json()["data"]} >= names
    assert {card["name"].removesuffix(":latest") for card in ollama_list(stage)} >= names
    with anthropic.Anthropic(base_url=stage.url, api_key="none") as client:
        found = {each.display_name: each for each in client.models.list().data}
        assert found["ollama"].max_input_tokens is None  # a window that is not known is not 0
    with ollama.Client(stage.url) as client:
        assert "tools" in (client.show("anthropic").capabilities or ())
        assert client.generate("anthropic").done_reason == "load"
    assert httpx2.get(f"{stage.url}/props").status_code == 200


def ollama_list(stage: Stage) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx2.get(f"{stage.url}/api/tags").json()["models"]
    return found


def test_what_only_a_model_of_our_own_can_do_is_a_clear_400(stage: Stage) -> None:
    stage.play()
    for path, body in (
        ("/v1/completions", {"prompt": "Once"}),
        ("/completion", {"prompt": "Once"}),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("/api/generate", {"prompt": "Once", "raw": True}),
        ("/tokenize", {"content": "Once"}),
        ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}),
    ):
        answer = httpx2.post(stage.url + path, json={"model": "anthropic/x", **body})
        assert answer.status_code == 400, (path, answer.text)
        assert "messages" in answer.text or "anthropic" in answer.text
    assert stage.replay.requests == []


EMBEDDED = {"data": [{"index": 1, "embedding": [0, 3, 4]}, {"index": 0, "embedding": [2, 0, 0]}]}


def test_vectors_come_from_providers_with_as_many_numbers_as_asked_for(stage: Stage) -> None:
    rows: tuple[tuple[str, str, Any, str], ...] = (
        ("openai", "/v1/embeddings", {**EMBEDDED, "usage": {"prompt_tokens": 4}}, "dimensions"),
        ("gemini", "/v1beta/models/e:batchEmbedContents", {"embeddings": [{"values": [2, 0]}, {"values": [0, 3]}]},
         "outputDimensionality"),
        ("ollama", "/api/embed", {"embeddings": [[2, 0, 0], [0, 3, 4]], "prompt_eval_count": 4}, "dimensions"),
    )  # fmt: skip
    for name, path, body, word in rows:
        for wire in (path, path.replace("models/e:", f"models/{MODEL}:")):
            stage.play(Answer(wire, json.dumps(body).encode(), 200, {"content-type": "application/json"}))
            with openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none", max_retries=0) as client:
                try:
                    made = client.embeddings.create(model=f"{name}/e", input=["a", "b"], dimensions=2)
                except openai.NotFoundError:
                    continue
            break
        assert [each.embedding for each in made.data] == [[1.0, 0.0], [0.0, 1.0]], name
        assert f'"{word}":2' in stage.replay.requests[-1].body.decode()
    cut = json.dumps({"embeddings": [[1.0]]}).encode()
    for truncate in (True, False):
        stage.play(Answer("/api/embed", cut, 200, {"content-type": "application/json"}))
        httpx2.post(f"{stage.url}/api/embed", json={"model": "ollama/e", "input": "a", "truncate": truncate})
        assert stage.replay.requests[-1].json.get("truncate", True) is truncate
    answer = httpx2.post(f"{stage.url}/v1/embeddings", json={"model": "anthropic/e", "input": "a"})
    assert (answer.status_code, "no embeddings" in answer.text) == (400, True)


def test_a_call_that_must_come_over_ollama_has_the_form_of_one(stage: Stage) -> None:
    said = [
        {"model": "q", "message": {"role": "assistant", "content": text}, "done": False}
        for text in ('{"name": "look", ', '"arguments": {"at": 1}}')
    ]
    said.append({"model": "q", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
    lines = "".join(json.dumps(line) + "\n" for line in said).encode()
    look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    asked = {"model": "ollama/q", "messages": [{"role": "user", "content": "Go."}], "tools": [look], "stream": False}
    for path in ("/api/chat", "/v1/chat/completions"):
        stage.play(Answer("/api/chat", lines, 200, {"content-type": "application/x-ndjson"}))
        answer = httpx2.post(f"{stage.url}{path}", json={**asked, "tool_choice": "required"}).json()
        message = answer["message"] if path == "/api/chat" else answer["choices"][0]["message"]
        (call,) = message["tool_calls"]
        assert (call["function"]["name"], message["content"] or "") == ("look", "")
        assert stage.replay.requests[-1].json["format"]["properties"]["name"] == {"type": "string", "enum": ["look"]}


def test_a_compressed_body_as_codex_sends_it(stage: Stage) -> None:
    library: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    stage.play(SAID)
    body = library.compress(json.dumps({"model": "anthropic/x", "input": "Hi"}).encode())
    answer = httpx2.post(f"{stage.url}/v1/responses", content=body, headers={"content-encoding": "zstd"})
    assert answer.json()["output"][0]["content"][0]["text"] == "Hello"
    assert answer.json()["usage"]["input_tokens_details"]["cached_tokens"] == 7
    assert answer.headers["x-shepherd-backend"] == "anthropic:up-1"


def test_thoughts_of_a_stored_answer_go_back_with_their_signature(stage: Stage) -> None:
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    parts = (
        {"type": "content_block_start", "index": 0, "content_block": thought},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln/+=="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {
            "type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )  # fmt: skip
    stage.play(Answer("/v1/messages", events(HEAD, *parts)), SAID)
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    with openai.OpenAI(base_url=f"{stage.url}/v1", api_key="none", max_retries=0) as client:
        first = client.responses.create(model="anthropic/x", input="Hi", tools=tools)
        output: Any = [{"type": "function_call_output", "call_id": "toolu_1", "output": "a tree"}]
        client.responses.create(model="anthropic/x", input=output, tools=tools, previous_response_id=first.id)
    sent = stage.replay.requests[-1].json["messages"][1]["content"]
    assert sent[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln/+=="}
    assert (sent[1]["type"], sent[1]["id"]) == ("tool_use", "toolu_1")


# -- several back ends -----------------------------------------------------------------------------------------------

FALLBACK = """
[[routes]]
match = "sure"
provider = "openai-chat"
fallback = ["anthropic"]
"""


def test_what_answers_in_whose_place_is_shown_everywhere(tmp_path: Path) -> None:
    with staged(tmp_path, FALLBACK) as stage, httpx2.Client(base_url=stage.url) as client:
        body = {"model": "sure", "max_tokens": 9, "messages": HI}
        for path, streams in (("/v1/chat/completions", False), ("/v1/messages", True)):
            stage.play(refused(WIRES[1], 401, WRONG_KEY), SAID)
            answer = client.post(path, json={**body, "stream": streams})
            assert answer.status_code == 200
            assert answer.headers["x-shepherd-backend"] == "anthropic:up-1"
            assert answer.headers["x-shepherd-instead-of"] == "openai-chat"  # it rests at the second time
        health = client.get("/health").json()
        assert health["status"] == "ok"
        assert 0 < health["providers"]["openai-chat"]["rests_s"] <= 5
        assert health["providers"]["anthropic"] == {}

        def rows() -> Any:
            return client.get("/v1/caches").json()["outcomes"]

        assert becomes_true(lambda: rows()["anthropic"]["answered"] == 2), rows()
        assert rows()["openai-chat"]["replaced"] == 2
        metrics = client.get("/metrics").text
        assert 'shepherd_backend_requests_total{backend="anthropic",outcome="answered"} 2.0' in metrics
        assert 'shepherd_backend_requests_total{backend="openai-chat",outcome="replaced"} 2.0' in metrics
        assert 'shepherd_backend_rest_seconds{backend="anthropic"} 0.0' in metrics


@pytest.mark.model
def test_texts_of_a_private_route_get_no_vectors_from_elsewhere(tmp_path: Path) -> None:
    toml = f"""
[models.here]
path = "embedded"
[caches.main]
model = "here"
[providers.openai]
api_key = "{KEY}"
[[routes]]
match = "*"
cache = "main"
privacy = "local"
"""
    with serving(tmp_path, toml) as url:
        answer = httpx2.post(f"{url}/v1/embeddings", json={"model": "openai/text-embedding-3-small", "input": "a"})
    assert answer.status_code == 403
    assert "keeps prompts on this machine" in answer.json()["error"]["message"]
