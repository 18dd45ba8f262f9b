"""The client half of Anthropic's protocol: a request to a body, the records of an answer to events.

    message_start ( content_block_start content_block_delta* content_block_stop )* message_delta message_stop

Where the prompt may be cut for the provider's cache is marked by us (`cache_control`): behind the tools, behind the
system prompt, and behind the last two messages of the user, so that each turn reads what the turn before it wrote.
Source: Anthropic's API reference (Messages, streaming, prompt caching, extended and adaptive thinking).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Document,
    Event,
    Finished,
    Image,
    Message,
    Opaque,
    OpaqueBlock,
    Part,
    Reasoning,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Unsupported,
    Usage,
)
from shepherd.core.messages import leading_systems
from shepherd.wire.anthropic.blocks import called_by, citations_in, cited, fields_of_call, opaque_reader
from shepherd.wire.anthropic.shapes import COUNTS
from shepherd.wire.arguments import Arguments
from shepherd.wire.base import Json, compact_json
from shepherd.wire.client import (
    Decoder,
    Effort,
    Endpoint,
    Failure,
    alternating,
    check_messages,
    native_of,
    native_tools,
)
from shepherd.wire.ending import ending_of, word_of
from shepherd.wire.extensions import besides, kept
from shepherd.wire.history import for_provider
from shepherd.wire.sampling import COMPUTING
from shepherd.wire.signature import raw_for, signed
from shepherd.wire.values import (
    BrokenAnswer,
    closed,
    count_in,
    count_of,
    ended_call,
    object_in,
    object_of,
    record_of,
    text_in,
)

PROTOCOL: Final = "anthropic"

EPHEMERAL: Json = {"type": "ephemeral"}
MARKED_TURNS = 2
"""Of the four marks that a body may have; two are for the tools and the system prompt."""
_BUDGETS = {"low": 4_096, "medium": 12_288, "high": 32_000, "max": 64_000, "on": 12_288}
"""Tokens of thinking, for models that are asked by a number."""
_LEAST_BUDGET = 1_024
_LEVELS: dict[str, tuple[Effort, ...]] = {
    "low": ("low",),
    "medium": ("medium",),
    "high": ("high",),
    "max": ("max", "xhigh", "high"),
}
"""The words for a level, the best first."""


# ---- the body


def encode_request(request: Request, endpoint: Endpoint) -> Json:
    """The body. Raises: `Unsupported` for a bare prompt, and for a stop string of blanks."""
    _check(request)
    body = _prompt(request, endpoint)
    body["stream"] = True
    thinking = _thinking(request, endpoint, body["messages"])
    body["max_tokens"] = _max_tokens(request, endpoint, thinking)
    body |= thinking
    if thinking.get("thinking") != native_of(request, PROTOCOL).get("thinking"):  # not the client's own
        _budget(body)
    if request.schema is not None:
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": closed(request.schema)}
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    body |= _sampling(request, is_thinking="thinking" in body)
    body |= {key: value for key, value in native_of(request, PROTOCOL).items() if key not in _KNOWN}
    body |= endpoint.options
    return {key: value for key, value in body.items() if key not in endpoint.refuses}


def encode_count(request: Request, endpoint: Endpoint) -> Json:
    _check(request)
    body = _prompt(request, endpoint)
    body |= _thinking(request, endpoint, body["messages"])
    if body.get("thinking", {}).get("type") == "enabled":
        body["thinking"]["budget_tokens"] = _LEAST_BUDGET
    return {key: value for key, value in body.items() if key not in endpoint.refuses}


def decode_count(body: Json) -> int:
    return count_of(body, "input_tokens")


def _check(request: Request) -> None:
    check_messages(request, "Anthropic's models follow no grammar; send a JSON schema")
    if any(not stop.strip() for stop in request.stop):
        raise Unsupported("Anthropic accepts no stop string of blanks only; leave it out", field="stop")


def _prompt(request: Request, endpoint: Endpoint) -> Json:
    """What of the body the model reads: what is counted and cached."""
    messages = for_provider(request.messages, PROTOCOL, endpoint)
    n_system = leading_systems(messages)
    mark = EPHEMERAL | ({"ttl": "1h"} if _asks_for_an_hour(request) else {})
    own = native_tools(request, PROTOCOL)
    tools = [*(_encode_tool(tool, own.get(tool.name, {})) for tool in request.tools), *_provider_tools(request)]
    system: list[Json] = [
        {"type": "text", "text": part.text}
        for message in messages[:n_system]
        for part in message.parts
        if isinstance(part, Text) and part.text.strip()
    ]
    turns = _turns(messages[n_system:])
    if system:
        system[-1]["cache_control"] = mark
    if shown := [tool for tool in tools if not tool.get("defer_loading")]:  # the others are not in the prompt
        shown[-1]["cache_control"] = mark
    asked = [turn for turn in turns if turn["role"] == "user"]
    for turn in asked[-MARKED_TURNS:]:
        turn["content"][-1] = turn["content"][-1] | {"cache_control": mark}
    body: Json = {"model": endpoint.model}
    if tools:
        body["tools"] = tools
    if system:
        body["system"] = system
    body["messages"] = turns
    return body | _choice(request)


def _turns(messages: Sequence[Message]) -> list[Json]:
    """Users and models in turn; results of calls stand first in the user's message, as the protocol wants them."""
    named = (("assistant" if each.role == "assistant" else "user", list(_blocks(each.parts))) for each in messages)
    turns = alternating(named, "content")
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        # The answer continues it, and the API refuses blanks at its end.
        last = turns[-1]["content"][-1]
        last["text"] = last["text"].rstrip()
        if not last["text"]:
            turns[-1]["content"].pop()
            turns = turns if turns[-1]["content"] else turns[:-1]
    return turns


def _blocks(parts: Sequence[Part]) -> Iterator[Json]:
    last: Json | None = None
    """A text that citations may follow."""
    for part in parts:
        if isinstance(part, Opaque) and (notes := citations_in(part)) is not None:
            if last is not None and notes:
                last["citations"] = notes
            last = None
        elif (block := _encode_part(part)) is not None:
            last = block if isinstance(part, Text) else None
            yield block


def _encode_part(part: Part) -> Json | None:
    """One block; None for what the API refuses: empty text, thoughts that it has not signed."""
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(data=bytes() as data, media_type=kind):
            return {"type": "image", "source": _base64(data, kind or "image/png")}
        case Image(url=url):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Document(data=bytes() as data, media_type=kind, name=name):
            return {"type": "document", "title": name, "source": _base64(data, kind or "application/pdf")}
        case Document(url=url, name=name):
            return {"type": "document", "title": name, "source": {"type": "url", "url": url}}
        case Reasoning(text=text, signature=signature, redacted=redacted):
            raw = raw_for(PROTOCOL, signature)
            if raw is None:
                return None
            if redacted:
                return {"type": "redacted_thinking", "data": raw}
            return {"type": "thinking", "thinking": text, "signature": raw}
        case ToolCall(id=id, name=name, arguments=arguments, signature=signature):
            made = {"type": "tool_use", "id": _id(id), "name": name, "input": object_of(arguments)}
            return made | fields_of_call(signature)
        case ToolResult():
            return _encode_result(part)
        case Opaque(body=body):
            return dict(json.loads(body))
        case _:
            return None


def _encode_result(result: ToolResult) -> Json:
    made: Json = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    if content := [block for part in result.parts if (block := _encode_part(part)) is not None]:
        made["content"] = content
    if result.is_error:
        made["is_error"] = True
    return made


def _base64(data: bytes, media_type: str) -> Json:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode("ascii")}


def _id(id: str) -> str:
    """The id of a call, in the characters that the API accepts."""
    if _ID.fullmatch(id):
        return id
    return f"toolu_{hashlib.blake2b(id.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _encode_tool(tool: ToolSpec, native: Json) -> Json:
    """A tool; one of the vendor's types, which the client runs, is sent as it is."""
    rest = besides(native, ("cache_control",))
    if rest.get("type", "custom") != "custom" and "input_schema" not in rest:
        return rest
    made: Json = {**rest, "name": tool.name}
    if tool.description:
        made["description"] = tool.description
    made["input_schema"] = {"type": "object", **tool.parameters}
    if tool.strict:
        made |= {"strict": True, "input_schema": closed(made["input_schema"])}
    return made


def _provider_tools(request: Request) -> Iterator[Json]:
    """The tools that only the provider runs, as the client sent them."""
    ours = {tool.name for tool in request.tools}
    for tool in native_of(request, PROTOCOL).get("tools") or ():
        if isinstance(tool, dict) and tool.get("type", "custom") != "custom" and tool.get("name") not in ours:
            yield {key: value for key, value in tool.items() if key != "cache_control"}


def _choice(request: Request) -> Json:
    """`tool_choice`, where it is not the default."""
    if not request.tools and not any(_provider_tools(request)):
        return {}
    if request.native is not None and request.native.demand is not None:
        return {"tool_choice": request.native.body["tool_choice"]}
    one = {"disable_parallel_tool_use": True} if request.parallel_calls is False else {}
    match request.tool_choice:
        case "none":
            return {"tool_choice": {"type": "none"}}
        case "required":
            return {"tool_choice": {"type": "any", **one}}
        case ("named", name):
            return {"tool_choice": {"type": "tool", "name": name, **one}}
        case _:
            return {"tool_choice": {"type": "auto", **one}} if one else {}


def _thinking(request: Request, endpoint: Endpoint, turns: Sequence[Json]) -> Json:
    """The fields that ask for thoughts; none for a model that is not known to have such fields, unless the client of
    this protocol has sent them."""
    native = native_of(request, PROTOCOL)
    if not endpoint.thinks_by:
        return {key: native[key] for key in ("thinking", "output_config") if key in native and request.schema is None}
    asked = native.get("thinking") or {}
    level = request.reasoning or ("on" if asked.get("type") == "adaptive" else None)
    is_forced = request.tool_choice not in ("auto", "none")
    if level in (None, "off") or is_forced:  # a forced call and thoughts exclude each other
        return {}
    display = {k: v for k, v in asked.items() if k == "display"}
    if endpoint.thinks_by == "budget":
        if not _has_thoughts(turns):
            return {}
        if asked.get("type") == "enabled":
            return {"thinking": asked}
        return {"thinking": {"type": "enabled", "budget_tokens": _BUDGETS[level], **display}}
    given = (native.get("output_config") or {}).get("effort")
    words = (given, *_LEVELS.get(level, ()))
    effort = next((word for word in words if word in endpoint.efforts), None)
    config = {"output_config": {"effort": effort}} if effort else {}
    return {"thinking": {"type": "adaptive", **display}, **config}


def _has_thoughts(turns: Sequence[Json]) -> bool:
    """Whether a turn that is under way began with a thought; the API refuses one that did not, where it is to think."""
    for turn in reversed(turns):
        kinds = [block["type"] for block in turn["content"]]
        if turn["role"] == "assistant":
            return kinds[0] in ("thinking", "redacted_thinking") or "tool_use" not in kinds
        if "tool_result" not in kinds:
            return True
    return True


def _max_tokens(request: Request, endpoint: Endpoint, thinking: Json) -> int:
    """The protocol demands a number."""
    most = endpoint.max_output or 2**31 - 1
    if request.max_tokens is not None:
        return min(max(1, request.max_tokens), most)
    budget = (thinking.get("thinking") or {}).get("budget_tokens", 0)
    return min(endpoint.max_output or endpoint.default_output + budget, most)


def _budget(body: Json) -> None:
    """Thoughts need at least 1,024 tokens, and fewer than `max_tokens`; without that room there are none."""
    if "budget_tokens" not in (body.get("thinking") or {}):
        return
    room = body["max_tokens"] - 1
    if room < _LEAST_BUDGET:
        del body["thinking"]
    else:
        budget = min(body["thinking"]["budget_tokens"], max(_LEAST_BUDGET, room // 2))
        body["thinking"] = body["thinking"] | {"budget_tokens": budget}  # the client's own object stays as it is


def _sampling(request: Request, *, is_thinking: bool) -> Json:
    """Temperature and top-p exclude each other, and thoughts exclude both. Temperatures end at 1."""
    sampling = request.sampling
    if is_thinking:
        return {}
    made: Json = {}
    if sampling.temperature is not None:
        made["temperature"] = min(1.0, sampling.temperature)
    elif sampling.top_p is not None:
        made["top_p"] = sampling.top_p
    if sampling.top_k:
        made["top_k"] = sampling.top_k
    return made


_KNOWN = frozenset((
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format", "max_tokens",
    "stream", "stop_sequences", "temperature", "top_p", "top_k", "metadata", "thread", "cache_control",
    *(field.name for field in COMPUTING),
))  # fmt: skip
"""Fields that `Request` has a word for, and those that belong to the client's own account."""


def _asks_for_an_hour(request: Request) -> bool:
    """Whether the client marks its prompt for an hour in place of five minutes."""
    native = native_of(request, PROTOCOL)
    marked = [*(native.get("tools") or ()), *(native.get("system") or ())]
    marks = (block.get("cache_control") for block in marked if isinstance(block, dict))
    return any(isinstance(mark, dict) and mark.get("ttl") == "1h" for mark in marks)


# ---- the answer

_OWN_WORDS = frozenset((
    "end_turn", "pause_turn", "compaction", "stop_sequence", "max_tokens", "model_context_window_exceeded", "tool_use",
    "refusal",
))  # fmt: skip
"""Why an answer ended, in words that Anthropic's clients know. A gateway's word for the same is replaced by ours; one
that nobody knows goes on as it is."""
_OF_MESSAGE = ("id", "type", "role", "model", "content", "usage", "stop_sequence")
"""Fields of a message that are read, or belong to the answer of our own server."""


def notes_in(block: Json) -> list[Any]:
    notes = block.get("citations")
    return notes if isinstance(notes, list) else []


_BEGIN_THEMSELVES = {"text_delta": "text", "thinking_delta": "thinking"}
"""Pieces that name the type of their block, where a proxy has lost its beginning."""


class AnthropicDecoder(Decoder):
    id_prefix = "toolu_"

    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(request, endpoint, new_id)
        self._usage: Json = {}
        self._block: Json | None = None
        """The open one."""
        self._index: Any = None
        self._arguments = Arguments()
        """Of the open block: its JSON."""
        self._has_answer = False
        self._reason: str | None = None
        self._stop: str | None = None
        self._ending_facts: Json = {}
        """What else is reported at the end."""
        self._is_behind_text = False
        self._has_ended = False
        self._opaque = opaque_reader()

    def _read(self, event: str, data: bytes) -> Iterator[Event]:
        if event == "error" and not data.startswith(b"{"):
            raise Failure(data.decode("utf-8", "replace"))
        record = record_of(data)
        match record.get("type") or event:
            case "message_start":
                yield from self._begin(object_in(record, "message"))
            case "content_block_start":
                yield from self._open(record.get("index"), object_in(record, "content_block"))
            case "content_block_delta":
                delta = object_in(record, "delta")
                if self._block is None or record.get("index") != self._index:
                    if (kind := _BEGIN_THEMSELVES.get(text_in(delta, "type"))) is None:
                        raise BrokenAnswer("a piece of a block came that had not begun")
                    yield from self._open(record.get("index"), {"type": kind})
                yield from self._add(delta)
            case "content_block_stop":
                yield from self._end()
            case "message_delta":
                self._ending_facts |= besides(record, ("type", "delta", "usage"))
                self._note(record.get("delta"), record.get("usage"))
            case "message_stop":
                yield from self._finish()
            case "message" if isinstance(record.get("content"), str | list):  # whole, though a stream was asked for
                yield from self._read_whole(record)
            case _ if record.get("error"):
                raise Failure(record)
            case "error":
                raise Failure(record)
            case _:
                pass  # pings, and what comes with newer versions

    def _read_whole(self, body: Json) -> Iterator[Event]:
        if body.get("type") == "error" or body.get("error"):
            raise Failure(body)
        content = body.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list):
            raise BrokenAnswer("the answer has no content")
        yield from self._begin(body)
        for index, block in enumerate(content):
            yield from self._open(index, object_in({"block": block}, "block"))
            yield from self._end()
        self._note(body, body.get("usage"))
        yield from self._finish()

    def _end_of_body(self) -> Iterator[Event]:
        if self._has_ended:
            return
        if self._reason is None:
            raise BrokenAnswer("the answer ended before message_stop")
        yield from self._finish()

    def _begin(self, message: Json) -> Iterator[Event]:
        if self._has_started:
            raise BrokenAnswer("message_start came twice")
        self._note(None, message.get("usage"))
        usage = self._usage_of_it()
        prompt = Usage(usage.input, usage.cache_read, usage.cache_write)
        own = kept(PROTOCOL, {"usage": besides(message.get("usage"), COUNTS)})
        yield from self._start(text_in(message, "model"), prompt, own)

    def _open(self, index: Any, block: Json) -> Iterator[Event]:
        if self._has_ended:
            raise BrokenAnswer("a block came behind the end of the message")
        if not self._has_started:
            yield from self._begin({})
        yield from self._end()
        if (
            (is_text := block.get("type") == "text")
            and self._is_behind_text
            and isinstance(block.get("citations"), list)
        ):
            yield OpaqueBlock(cited([]))
        self._block, self._index, self._arguments, self._is_behind_text = block, index, Arguments(), is_text
        self._has_answer = True
        match block.get("type"):
            case "text":
                if text := text_in(block, "text"):
                    yield TextDelta(text)
            case "thinking":
                if text := text_in(block, "thinking"):
                    yield ReasoningDelta(text)
            case "tool_use":
                block["id"], block["name"] = text_in(block, "id"), text_in(block, "name")
                if block["id"] not in self._made_by_id:  # else it may be the same call again: wait for its end
                    block["own_id"], block["id"] = block["id"], self._unique(block["id"])
                    yield CallStarted(block["id"], block["name"])
            case _:
                pass

    def _add(self, delta: Json) -> Iterator[Event]:
        assert self._block is not None
        block = self._block
        match delta.get("type"):
            case "text_delta" if text := text_in(delta, "text"):
                yield TextDelta(text)
            case "thinking_delta" if text := text_in(delta, "thinking"):
                yield ReasoningDelta(text)
            case "signature_delta":
                block["signature"] = text_in(block, "signature") + text_in(delta, "signature")
            case "input_json_delta" if text := text_in(delta, "partial_json"):
                self._arguments.add(text)
                if "own_id" in block and (ready := self._arguments.ready()):
                    yield CallDelta(ready)
            case "compaction_delta":
                block["content"] = text_in(block, "content") + text_in(delta, "content")
                block |= besides(delta, ("type", "content"))
            case "citations_delta" if isinstance(note := delta.get("citation"), dict):
                block["citations"] = [*notes_in(block), note]
            case _:
                pass  # kinds of a newer version

    def _end(self) -> Iterator[Event]:
        block, self._block = self._block, None
        if block is None:
            return
        match block.get("type"):
            case "text":
                if notes := notes_in(block):
                    yield OpaqueBlock(cited(notes))
            case "thinking":
                if signature := text_in(block, "signature"):
                    yield ReasoningDelta("", signed(PROTOCOL, signature))
            case "redacted_thinking":
                yield ReasoningDelta("", signed(PROTOCOL, text_in(block, "data")), redacted=True)
            case "tool_use":
                yield from self._end_call(block)
            case _:
                if not self._arguments.is_empty:
                    block["input"] = object_of(self._arguments.text)
                yield OpaqueBlock(self._opaque(block))

    def _end_call(self, block: Json) -> Iterator[Event]:
        """End a call. Its arguments came in pieces, or with its beginning, or both ways from some gateways."""
        if self._arguments.is_empty and block.get("input"):
            self._arguments.add(compact_json(block["input"]))
        signature = called_by(block.get("caller"))
        if "own_id" not in block:
            yield from self._whole_call(block["id"], block["name"], self._arguments.text, signature)
            return
        if rest := self._arguments.end():
            yield CallDelta(rest)
        self._note_made(block["own_id"], block["name"], self._arguments.text)
        call = ended_call(block["id"], block["name"], self._arguments.text)
        yield CallEnded(replace(call, signature=signature) if isinstance(call, ToolCall) else call)

    def _note(self, ending: Any, usage: Any) -> None:
        if isinstance(ending, dict) and (word := word_of(ending.get("stop_reason"))):
            self._reason = word
            self._stop = ending["stop_sequence"] if isinstance(ending.get("stop_sequence"), str) else None
            is_own = word in _OWN_WORDS or ending_of(word) is None
            self._ending_facts |= besides(ending, _OF_MESSAGE if is_own else (*_OF_MESSAGE, "stop_reason"))
        if isinstance(usage, dict):  # cumulative; later records may leave fields out
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _usage_of_it(self) -> Usage:
        """The three inputs are disjoint, as ours are."""
        counts = self._usage
        return Usage(
            input=count_in(counts, "input_tokens"),
            cache_read=count_in(counts, "cache_read_input_tokens"),
            cache_write=count_in(counts, "cache_creation_input_tokens"),
            output=count_in(counts, "output_tokens"),
            reasoning=count_in(counts.get("output_tokens_details"), "thinking_tokens"),
        )

    def _finish(self) -> Iterator[Event]:
        if not self._has_started:
            raise BrokenAnswer("the answer ended before message_start")
        if self._has_ended:
            return
        yield from self._end()
        reason = self._ending(self._reason or "", has_answer=self._has_answer)
        self._has_ended = True
        own = kept(PROTOCOL, {**self._ending_facts, "usage": besides(self._usage, COUNTS)})
        yield Finished(reason, self._usage_of_it(), self._stop, own)


decoder = AnthropicDecoder
