"""One request in every protocol that generates: how it is written, and how its answer is read.

    Ask ─ body ─▶ HTTP ─ pieces ─▶ Answer

The same `Ask` can be sent to another server, which is how answers are compared. An answer whose shape is not the
protocol's is a `Malformed`; one that makes no progress for a while is a `Hang`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx2 as httpx

Surface = Literal["chat", "responses", "messages", "ollama", "completions", "generate"]
SURFACES: tuple[Surface, ...] = ("chat", "responses", "messages", "ollama", "completions", "generate")
TALKING: tuple[Surface, ...] = ("chat", "responses", "messages", "ollama")
"""Those that take a conversation; the others continue a text."""

Json = dict[str, Any]
FULL = ("context_length_exceeded", "prompt is too long", "too long")


class Malformed(Exception):
    """An answer that is none in its protocol."""


class Failed(Malformed):
    """An answer that ended with an error, in its protocol's own form."""


class Hang(Exception):
    """Nothing came for longer than a request may be silent."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation, as every protocol can say it."""

    role: Literal["user", "assistant"]
    text: str
    picture: bytes = b""
    """A PNG file in front of the text."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, before it is written in a protocol."""

    surface: Surface
    model: str
    turns: tuple[Turn, ...]
    system: str = ""
    max_tokens: int = 8
    temperature: float = 0.0
    stream: bool = False
    user: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of this protocol's own."""
    previous: str | None = None
    """Responses: the answer that is gone on with; `turns` is the whole conversation all the same."""
    leave_after: int | None = None
    """Hang up after so many pieces; 0 = as soon as it is sent."""

    @property
    def question(self) -> str:
        return self.turns[-1].text


@dataclass(slots=True)
class Answer:
    """What came of it."""

    status: int
    text: str = ""
    calls: list[Json] = field(default_factory=list)
    finish: str | None = None
    n_prompt: int = 0
    n_cached: int = 0
    n_generated: int = 0
    evicted: bool = False
    left: bool = False
    """The client went away in the middle."""
    id: str = ""
    error: str = ""
    first_s: float | None = None
    """To the first text."""
    total_s: float = 0.0
    sent_s: float = field(default_factory=time.perf_counter)

    @property
    def is_full(self) -> bool:
        """Refused because the prompt does not fit."""
        return self.status == 400 and any(word in self.error for word in FULL)

    @property
    def said(self) -> str:
        """Text and calls, to be compared."""
        return self.text + "".join(f"\n{call['name']}({call['arguments']})" for call in self.calls)


@dataclass(frozen=True, slots=True)
class _Protocol:
    path: str
    body: Callable[[Ask], Json]
    take: Callable[[Answer, Json], bool]
    """Reads a piece of a stream, or a whole answer, into the answer; whether there was something of it."""
    ends: Callable[[Json], bool]
    """Whether a piece of a stream is the last that has to come."""


RATE_LIMITED = "rate_limit_error"
"""The type that OpenAI's and Anthropic's errors of status 429 have."""


async def ask(client: httpx.AsyncClient, asked: Ask, patience_s: float) -> Answer:
    """Send it and read the answer to its end, or until the client leaves.

    Raises: `Hang`, `Malformed` (`Failed`), and `httpx.HTTPError` when the connection fails.
    """
    protocol = PROTOCOLS[asked.surface]
    headers = {"x-shepherd-user": asked.user} if asked.user else {}
    answer = Answer(0)
    try:
        async with asyncio.timeout(patience_s) as limit:
            body = {**protocol.body(asked), **asked.extra, "stream": asked.stream}
            async with client.stream("POST", protocol.path, json=body, headers=headers) as response:
                answer.status = response.status_code
                answer.evicted = "x-shepherd-evicted" in response.headers
                if response.status_code != 200:
                    answer.error = (await response.aread()).decode(errors="replace")
                elif asked.stream:
                    await _follow(asked, answer, response, limit, patience_s)
                else:
                    _take(protocol, answer, _parsed(await response.aread()))
                    answer.first_s = time.perf_counter() - answer.sent_s
    except TimeoutError as error:
        raise Hang(
            f"{asked.surface}: nothing came for {patience_s:g} s, {len(answer.text)} characters before"
        ) from error
    answer.total_s = time.perf_counter() - answer.sent_s
    _check(asked, answer)
    return answer


async def _follow(
    asked: Ask,
    answer: Answer,
    response: httpx.Response,
    limit: asyncio.Timeout,
    patience_s: float,
) -> None:
    """Read a stream; only what tells something of the answer is progress, a sign of life is none."""
    protocol = PROTOCOLS[asked.surface]
    n_pieces, ended = 0, False
    async for piece in _pieces(response, answer):
        if asked.leave_after is not None and n_pieces >= asked.leave_after:
            answer.left = True
            return
        if (error := _error(piece)) is not None:
            if not answer.said and isinstance(error, dict) and error.get("type") == RATE_LIMITED:
                answer.status, answer.error = 429, json.dumps(piece)  # the headers went out while it waited for room
                return
            raise Failed(f"an error in the middle: {json.dumps(piece)[:300]}")
        if _take(protocol, answer, piece):
            n_pieces += 1
            limit.reschedule(asyncio.get_running_loop().time() + patience_s)
            if answer.first_s is None and answer.text:
                answer.first_s = time.perf_counter() - answer.sent_s
        ended = ended or protocol.ends(piece)
    if not ended:
        raise Malformed("the stream has no end")


async def _pieces(response: httpx.Response, answer: Answer) -> AsyncIterator[Json]:
    """The JSON of each server-sent event, or of each line."""
    async for line in response.aiter_lines():
        if line.startswith(": evicted"):
            answer.evicted = True
        elif line.startswith("{"):
            yield _parsed(line)
        elif line.startswith("data:"):
            text = line[5:].strip()
            yield {"done": "[DONE]"} if text == "[DONE]" else _parsed(text)


def _error(piece: Json) -> Any:
    """What a piece of a stream says that has failed; None where it says nothing of the kind."""
    return piece["response"]["error"] if piece.get("type") == "response.failed" else piece.get("error")


def _take(protocol: _Protocol, answer: Answer, piece: Json) -> bool:
    try:
        return protocol.take(answer, piece)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise Malformed(f"{error!r} in {json.dumps(piece)[:300]}") from error


def _parsed(text: str | bytes) -> Json:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Malformed(f"no JSON: {text[:200]!r}") from error
    if not isinstance(found, dict):
        raise Malformed(f"no object: {text[:200]!r}")
    return found


def _check(asked: Ask, answer: Answer) -> None:
    """What holds of every whole answer. Raises: `Malformed`."""
    if answer.status != 200 or answer.left:
        return
    if answer.finish is None:
        raise Malformed("the answer does not say why it ended")
    if answer.n_prompt <= 0 or not 0 <= answer.n_cached <= answer.n_prompt:
        raise Malformed(f"{answer.n_cached} cached tokens of {answer.n_prompt}")
    n_choices = asked.extra.get("n", 1)
    if not 0 <= answer.n_generated <= asked.max_tokens * n_choices + n_choices:  # the one that ends an answer counts
        raise Malformed(f"{answer.n_generated} tokens, {asked.max_tokens} were asked for")


# -- OpenAI ------------------------------------------------------------------------------------------------------------


def _base64(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def _url(picture: bytes) -> str:
    return f"data:image/png;base64,{_base64(picture)}"


def messages(asked: Ask) -> list[Json]:
    """Those of chat completions."""
    system = [{"role": "system", "content": asked.system}] if asked.system else []
    return [*system, *({"role": turn.role, "content": _chat_content(turn)} for turn in asked.turns)]


def _chat_content(turn: Turn) -> str | list[Json]:
    if not turn.picture:
        return turn.text
    return [{"type": "image_url", "image_url": {"url": _url(turn.picture)}}, {"type": "text", "text": turn.text}]


def _chat_body(asked: Ask) -> Json:
    body: Json = {
        "model": asked.model,
        "messages": messages(asked),
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
    }
    return body | ({"stream_options": {"include_usage": True}} if asked.stream else {})


def _take_chat(answer: Answer, piece: Json) -> bool:
    answer.id = piece.get("id", answer.id)
    if usage := piece.get("usage"):
        answer.n_prompt, answer.n_generated = usage["prompt_tokens"], usage["completion_tokens"]
        answer.n_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    for choice in piece.get("choices", ()):
        if choice.get("index", 0) == 0:
            said = choice.get("message") or choice.get("delta") or {}
            answer.text += said.get("content") or choice.get("text") or ""
            for call in said.get("tool_calls") or ():
                _take_call(answer, call)
            answer.finish = choice.get("finish_reason") or answer.finish
    return bool(piece.get("choices"))


def _call(answer: Answer, name: str, arguments: Json) -> None:
    answer.calls.append({"name": name, "arguments": json.dumps(arguments)})


def _take_call(answer: Answer, call: Json) -> None:
    at = call.get("index", len(answer.calls))
    while len(answer.calls) <= at:
        answer.calls.append({"name": "", "arguments": ""})
    function = call.get("function") or {}
    answer.calls[at]["name"] += function.get("name") or ""
    answer.calls[at]["arguments"] += function.get("arguments") or ""


def _completion_body(asked: Ask) -> Json:
    body = _chat_body(asked)
    del body["messages"]
    return body | {"prompt": asked.question}


# -- Responses ---------------------------------------------------------------------------------------------------------


def _responses_body(asked: Ask) -> Json:
    turns = asked.turns[-1:] if asked.previous else asked.turns
    body: Json = {
        "model": asked.model,
        "input": [{"role": turn.role, "content": _responses_content(turn)} for turn in turns],
        "max_output_tokens": asked.max_tokens,
        "temperature": asked.temperature,
    }
    if asked.system:
        body["instructions"] = asked.system
    return body | ({"previous_response_id": asked.previous} if asked.previous else {})


def _responses_content(turn: Turn) -> str | list[Json]:
    if not turn.picture:
        return turn.text
    return [{"type": "input_image", "image_url": _url(turn.picture)}, {"type": "input_text", "text": turn.text}]


def _take_responses(answer: Answer, piece: Json) -> bool:
    if piece.get("object") == "response":
        return _take_response(answer, piece)
    kind = piece.get("type", "")
    if kind == "response.output_text.delta":
        answer.text += piece["delta"]
    if kind in ("response.completed", "response.incomplete"):
        text, answer.text = answer.text, ""
        _take_response(answer, piece["response"])
        if answer.text != text:
            raise Malformed(f"the deltas spell {text!r}, the answer is {answer.text!r}")
    return kind.startswith("response.") and kind not in ("response.created", "response.in_progress")


def _take_response(answer: Answer, response: Json) -> bool:
    answer.id = response["id"]
    usage = response.get("usage") or {}
    answer.n_prompt, answer.n_generated = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    answer.n_cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
    for item in response["output"]:
        if item["type"] == "message":
            answer.text += "".join(part.get("text", "") for part in item["content"])
        elif item["type"] == "function_call":
            answer.calls.append({"name": item["name"], "arguments": item["arguments"]})
    answer.finish = response["status"]
    return True


# -- Anthropic ---------------------------------------------------------------------------------------------------------


def _anthropic_body(asked: Ask) -> Json:
    body: Json = {
        "model": asked.model,
        "messages": [{"role": turn.role, "content": _anthropic_content(turn)} for turn in asked.turns],
        "max_tokens": asked.max_tokens,
        "temperature": asked.temperature,
    }
    return body | ({"system": asked.system} if asked.system else {})


def _anthropic_content(turn: Turn) -> str | list[Json]:
    if not turn.picture:
        return turn.text
    source = {"type": "base64", "media_type": "image/png", "data": _base64(turn.picture)}
    return [{"type": "image", "source": source}, {"type": "text", "text": turn.text}]


def _take_anthropic(answer: Answer, piece: Json) -> bool:
    match piece.get("type"):
        case "message":
            _take_usage(answer, piece["usage"])
            answer.id, answer.finish = piece["id"], piece["stop_reason"]
            for block in piece["content"]:
                if block["type"] == "text":
                    answer.text += block["text"]
                elif block["type"] == "tool_use":
                    _call(answer, block["name"], block["input"])
        case "content_block_start" if piece["content_block"]["type"] == "tool_use":
            answer.calls.append({"name": piece["content_block"]["name"], "arguments": ""})
        case "message_start":
            answer.id = piece["message"]["id"]
            _take_usage(answer, piece["message"]["usage"])
            return False  # it comes before the prompt is computed
        case "content_block_delta":
            answer.text += piece["delta"].get("text", "")
            if (more := piece["delta"].get("partial_json")) is not None:
                answer.calls[-1]["arguments"] += more
        case "message_stop":
            for call in answer.calls:
                call["arguments"] = json.dumps(json.loads(call["arguments"] or "{}"))
        case "message_delta":
            answer.n_generated = piece["usage"]["output_tokens"]
            answer.finish = piece["delta"]["stop_reason"]
        case "ping":
            return False
    return True


def _take_usage(answer: Answer, usage: Json) -> None:
    answer.n_cached = usage.get("cache_read_input_tokens") or 0
    answer.n_prompt = usage["input_tokens"] + answer.n_cached + (usage.get("cache_creation_input_tokens") or 0)
    answer.n_generated = usage["output_tokens"]


# -- Ollama ------------------------------------------------------------------------------------------------------------


def _ollama_options(asked: Ask) -> Json:
    return {"model": asked.model, "options": {"num_predict": asked.max_tokens, "temperature": asked.temperature}}


def _ollama_messages(asked: Ask) -> list[Json]:
    system = [{"role": "system", "content": asked.system}] if asked.system else []
    turns = (
        {"role": turn.role, "content": turn.text} | ({"images": [_base64(turn.picture)]} if turn.picture else {})
        for turn in asked.turns
    )
    return [*system, *turns]


def _take_ollama(answer: Answer, piece: Json) -> bool:
    message = piece.get("message") or {}
    text = message.get("content") or piece.get("response") or ""
    answer.text += text
    for call in message.get("tool_calls") or ():
        function = call["function"]
        _call(answer, function["name"], function["arguments"])
    if piece.get("done"):
        answer.finish = piece.get("done_reason", "stop")
        answer.n_prompt, answer.n_generated = piece.get("prompt_eval_count", 0), piece.get("eval_count", 0)
    return bool(text or piece.get("done"))  # a line without either is a sign of life


def _is_done(piece: Json) -> bool:
    return piece.get("done") == "[DONE]"


PROTOCOLS: Mapping[Surface, _Protocol] = {
    "chat": _Protocol("/v1/chat/completions", _chat_body, _take_chat, _is_done),
    "completions": _Protocol("/v1/completions", _completion_body, _take_chat, _is_done),
    "responses": _Protocol(
        "/v1/responses", _responses_body, _take_responses,
        lambda piece: piece.get("type") in ("response.completed", "response.incomplete"),
    ),
    "messages": _Protocol(
        "/v1/messages", _anthropic_body, _take_anthropic, lambda piece: piece.get("type") == "message_stop"
    ),
    "ollama": _Protocol(
        "/api/chat", lambda asked: _ollama_options(asked) | {"messages": _ollama_messages(asked)}, _take_ollama,
        lambda piece: piece.get("done") is True,
    ),
    "generate": _Protocol(
        "/api/generate", lambda asked: _ollama_options(asked) | {"prompt": asked.question}, _take_ollama,
        lambda piece: piece.get("done") is True,
    ),
}  # fmt: skip


def alone(asked: Ask) -> Ask:
    """The same request as a server without a past is asked it: whole, with nothing that it would have to remember."""
    extra = {name: value for name, value in asked.extra.items() if name not in ("n", "truncation", "truncate", "store")}
    if asked.surface == "responses":
        extra["store"] = False
    return replace(asked, previous=None, stream=False, leave_after=None, user=None, extra=extra)
