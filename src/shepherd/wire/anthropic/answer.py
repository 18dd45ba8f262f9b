"""The answer in Anthropic's protocol: events to content blocks, streamed or whole.

    message_start ( content_block_start content_block_delta* content_block_stop )* message_delta message_stop

Blocks are numbered from 0 and one is open at a time. A block ends as soon as another begins, so that a client can show
a thought as finished during the answer. A whole reply is the fold of the blocks of its stream, so the two are equal. A
tool call is sent when it has ended and parsed: a client cannot take half a call back when the tokens run out.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Literal, NoReturn

from shepherd.core import (
    BadCall,
    CallEnded,
    Event,
    Finished,
    Opaque,
    OpaqueBlock,
    ReasoningDelta,
    Reply,
    Started,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    replay,
)
from shepherd.core.dataclasses import dataclass
from shepherd.core.edits import COMPACTION, AppliedEdit
from shepherd.wire.anthropic.blocks import citations_in, fields_of_call
from shepherd.wire.anthropic.edits import encode_edits
from shepherd.wire.anthropic.shapes import encode_error, encode_usage
from shepherd.wire.bad_calls import HeldCalls
from shepherd.wire.base import MAX_DEPTH, Json, is_deeper, without_surrogates
from shepherd.wire.extensions import facts_of
from shepherd.wire.signature import sent
from shepherd.wire.sse import MEDIA_TYPE, encode_event

PING = encode_event({"type": "ping"}, "ping")

INVALID = "INVALID_JSON"
"""The only member of the input of a call that did not parse: its text. The client's own check then refuses it."""

DEPTH = MAX_DEPTH // 2
"""Levels of the input of a call. The server would refuse a conversation with deeper ones."""

_BESIDE_DELTA = frozenset({"context_management"})
"""What the last record has outside of its delta."""

Display = Literal["shown", "signed", "hidden"]
"""What a client sees of a thought: all of it, a signature, or nothing."""


@dataclass(frozen=True, slots=True)
class MessageOptions:
    thinking: Display = "hidden"
    silent: bool = False
    """Send an empty answer: the client only wants the prompt in the cache."""
    has_edits: bool = False
    """The answer reports what has left the context."""


class Encoder:
    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: MessageOptions, *, id: str, created: int, model: str) -> None:
        self._id = id
        self._model = model
        self._blocks = _Blocks(options, id)
        self._has_edits = options.has_edits
        self._edits: tuple[AppliedEdit, ...] = ()
        self._text_head = b""
        """Of a text delta in the open block."""

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if type(event) is TextDelta and self._blocks.open == "text" and self._blocks.calls.held is None:
            # Once per token: everything but the text is a constant.
            return self._text_head + quote(event.text).encode("ascii") + b"}}\n\n"
        if isinstance(event, Started):
            self._edits = event.edits
            return _record({"type": "message_start", "message": self._message(event)})
        records = [_record(body) for body in self._blocks.feed(event)]
        if isinstance(event, Finished):
            own = facts_of("anthropic", event.own)
            usage = own.pop("usage", {}) | encode_usage(event.usage)
            rest = {key: own.pop(key) for key in _BESIDE_DELTA & own.keys()}
            last = {"delta": self._ending(event.reason, event.stop, own), "usage": usage}
            last |= self._what_left(self._edits) | rest
            records += [_record({"type": "message_delta", **last}), _record({"type": "message_stop"})]
        self._text_head = (
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{self._blocks.index},'
            '"delta":{"type":"text_delta","text":'
        ).encode("ascii")
        return b"".join(records)

    def encode_failure(self, error: Exception) -> bytes:
        return _record(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        (reply,) = replies
        events = replay(reply.message, model=reply.model or "?", reason=reply.reason)
        content = _folded(body for event in events for body in self._blocks.feed(event))
        message = self._message(Started(reply.model, usage=reply.usage, own=reply.own[0]))
        own = facts_of("anthropic", reply.own[1])
        message["usage"] = own.pop("usage", {}) | message["usage"]
        what_left = self._what_left(reply.edits)
        return {**message, "content": content, **what_left, **self._ending(reply.reason, reply.stop, own)}

    def _message(self, started: Started) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model or started.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": facts_of("anthropic", started.own).get("usage", {}) | encode_usage(started.usage),
        }

    def _what_left(self, edits: Sequence[AppliedEdit]) -> Json:
        return {"context_management": encode_edits(edits)} if self._has_edits else {}

    def _ending(self, reason: StopReason, stop: str | None, own: Json) -> Json:
        """Why it ended, and what a provider of the protocol reports (`own`). A model that is none of its own has
        no word for a full context; it counts as the client's own limit (C9)."""
        if reason == "stop" and stop is not None and not self._blocks.n_calls:
            return {**own, "stop_reason": "stop_sequence", "stop_sequence": stop}
        if reason == "filtered":
            word = "refusal"
        elif self._blocks.n_calls:
            word = "tool_use"  # agents look for calls behind this word only
        else:
            ours = "max_tokens" if reason == "length" else "compaction" if self._blocks.is_compacted else "end_turn"
            word = own.get("stop_reason") or ours
        return {**own, "stop_reason": word, "stop_sequence": None}


class _Blocks:
    """Turns events into the records of content blocks: the one place that decides what of an answer a client sees."""

    def __init__(self, options: MessageOptions, id: str) -> None:
        self.index = -1
        """Of the last block that has begun."""
        self.n_calls = 0
        self.is_compacted = False
        """The last block is a compaction: the answer pauses there."""
        self._options = options
        self._id = id.rpartition("_")[2]
        self.open: Literal["text", "thinking"] | None = None
        self.calls = HeldCalls()

    def feed(self, event: Event) -> Iterator[Json]:
        for ready in self.calls.feed(event):
            if isinstance(ready, Finished):
                if self.index < 0:
                    yield from self._begin({"type": "text", "text": ""})  # empty content breaks clients (H19)
                    yield self._stopped()
                yield from self._end()
            elif not self._options.silent:
                yield from self._write(ready)

    def _write(self, event: Event) -> Iterator[Json]:
        match event:
            case TextDelta(text):
                if self.open != "text":
                    yield from self._begin({"type": "text", "text": ""})
                    self.open = "text"
                yield self._delta("text", text=text)
            case ReasoningDelta():
                yield from self._think(event)
            case OpaqueBlock(block) if block.protocol == "anthropic":
                yield from self._pass_on(block)
            case OpaqueBlock(block) if block.protocol == COMPACTION:
                yield from self._begin({"type": "compaction", "content": None})
                text = "".join(part.text for part in block.parts if isinstance(part, Text))
                word = json.loads(block.body)["encrypted_content"]
                yield self._delta("compaction", content=text, encrypted_content=word)
                yield self._stopped()
                self.is_compacted = True
            case CallEnded(call):
                id = call.id or f"toolu_{self._id}_{self.n_calls}"
                self.n_calls += 1
                text = json.dumps({INVALID: call.raw}) if isinstance(call, BadCall) else object_text(call.arguments)
                own = fields_of_call(call.signature) if isinstance(call, ToolCall) else {}
                yield from self._begin({"type": "tool_use", "id": id, "name": call.name, "input": {}, **own})
                yield self._delta("input_json", partial_json=text)
                yield self._stopped()
            case _:
                pass  # notices, and the pieces of a call

    def _pass_on(self, block: Opaque) -> Iterator[Json]:
        """A block of the provider's, in the pieces that it comes in."""
        if (notes := citations_in(block)) is not None:
            if self.open == "text":
                yield from (self._delta("citations", citation=note) for note in notes)
                yield from self._end()
            return
        body = facts_of("anthropic", block)
        given = body.get("input") if str(body.get("type")).endswith("tool_use") else None
        yield from self._begin(body if given is None else {**body, "input": {}})
        if given is not None:
            yield self._delta("input_json", partial_json=json.dumps(given, ensure_ascii=False))
        yield self._stopped()

    def _think(self, event: ReasoningDelta) -> Iterator[Json]:
        if self._options.thinking == "hidden":
            return
        if event.redacted:
            yield from self._begin({"type": "redacted_thinking", "data": sent("anthropic", event.signature or "")})
            yield self._stopped()
        elif event.text or event.signature:
            if self.open != "thinking":
                yield from self._begin({"type": "thinking", "thinking": "", "signature": ""})
                self.open = "thinking"
            if event.text and self._options.thinking == "shown":
                yield self._delta("thinking", thinking=event.text)
            if event.signature:
                yield from self._end(sent("anthropic", event.signature))

    def _begin(self, block: Json) -> Iterator[Json]:
        yield from self._end()
        self.index += 1
        self.is_compacted = False
        yield {"type": "content_block_start", "index": self.index, "content_block": block}

    def _end(self, signature: str | None = None) -> Iterator[Json]:
        """End the open block, if any. Every thought is signed: clients drop unsigned ones."""
        if self.open == "thinking":
            yield self._delta("signature", signature=signature or self._signature())
        if self.open is not None:
            yield self._stopped()

    def _stopped(self) -> Json:
        self.open = None
        return {"type": "content_block_stop", "index": self.index}

    def _delta(self, kind: str, **values: Any) -> Json:
        return {"type": "content_block_delta", "index": self.index, "delta": {"type": f"{kind}_delta", **values}}

    def _signature(self) -> str:
        """For thoughts without a signature: opaque to clients, and proof of nothing."""
        return base64.b64encode(f"shepherd/{self._id}/{self.index}".encode("utf-8", "replace")).decode("ascii")


def object_text(arguments: str) -> str:
    """The arguments as a JSON object that every client can read; unchanged if they are one."""
    try:
        value = _JSON.decode(arguments)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or (arguments.count("{") + arguments.count("[") > DEPTH and is_deeper(value, DEPTH)):
        return json.dumps({INVALID: arguments})
    return arguments if _ODD.search(arguments) is None else json.dumps(without_surrogates(value))


def _folded(records: Iterable[Json]) -> list[Json]:
    """The content that the records of blocks spell."""
    content: list[Json] = []
    for record in records:
        match record:
            case {"content_block": block}:
                content.append(dict(block))
            case {"delta": {"type": "input_json_delta", "partial_json": text}}:
                content[-1]["input"] = _JSON.decode(text)
            case {"delta": {"type": "compaction_delta", "content": text, "encrypted_content": word}}:
                content[-1] |= {"content": text, "encrypted_content": word}
            case {"delta": {"type": "citations_delta", "citation": note}}:
                content[-1].setdefault("citations", []).append(note)
            case {"delta": dict() as delta}:
                content[-1].update({key: content[-1][key] + piece for key, piece in delta.items() if key != "type"})
    return content


def _record(body: Json) -> bytes:
    return encode_event(body, body["type"])


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _integer(text: str) -> int | str:
    return int(text) if len(text) < 4300 else text  # Python converts no longer ones


def _float(text: str) -> float | str:
    return number if math.isfinite(number := float(text)) else text


_JSON = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_refuse_constant)
"""A number that JSON allows and Python does not stays text."""
_ODD = re.compile(r"\\u[dD][89a-fA-F]|[0-9]{300}|[eE]\+?[0-9]{3}")
"""Signs of JSON that clients fail on, Anthropic's own among them: half a character, and numbers beyond theirs."""
