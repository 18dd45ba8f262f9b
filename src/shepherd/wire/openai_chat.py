"""The server half of OpenAI's chat protocol, `POST /v1/chat/completions`: a body to a request, events to chunks.

The whole reply is the fold of the same deltas that a stream carries, so that both say the same. A tool call goes out
when it has ended and parsed: half a call, which nobody can take back, would otherwise reach the client whenever the
tokens run out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import (
    BadCall,
    CallEnded,
    Event,
    Finished,
    InvalidRequest,
    ReasoningDelta,
    ReasoningLevel,
    Reply,
    Request,
    Started,
    StopReason,
    TextDelta,
    ToolCall,
    replay,
)
from shepherd.wire.base import Decoded, Fields, Json, wrong
from shepherd.wire.openai_format import decode_format
from shepherd.wire.openai_messages import decode_messages, decode_tool_choice, decode_tools
from shepherd.wire.openai_shapes import encode_error, encode_usage
from shepherd.wire.sampling import decode_max_tokens, decode_sampling, decode_stop
from shepherd.wire.sse import DONE, MEDIA_TYPE, PING, encode_event

__all__ = ["ChatOptions", "Encoder", "decode_request", "encode_error", "encoder"]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How the answer is to be written."""

    include_usage: bool = False
    """Send the token counts in a chunk of their own before the end of a stream."""


# ---- the request


def decode_request(body: Json) -> Decoded[ChatOptions]:
    """What the client asks. Raises: `InvalidRequest`, and nothing else, whatever JSON object comes."""
    fields = Fields(body)
    _refuse_what_is_missing(fields)
    model = fields.find_string("model") or ""  # none = whatever the routes give to nobody in particular
    messages = decode_messages(fields)
    tools, choice = decode_tool_choice(fields, decode_tools(fields))
    form = decode_format(fields)
    template_arguments = fields.find_object("chat_template_kwargs")
    extra: Json = {} if template_arguments is None else {"chat_template_kwargs": template_arguments.body}
    if form.path:
        extra["constrained_by"] = form.path
    request = Request(
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=choice,
        sampling=decode_sampling(fields),
        max_tokens=decode_max_tokens(fields, "max_completion_tokens", "max_tokens"),
        stop=decode_stop(fields),
        reasoning=_decode_reasoning(fields, template_arguments),
        schema=form.schema,
        grammar=form.grammar,
        parallel_calls=fields.find_boolean("parallel_tool_calls"),
        session=_decode_session(fields),
        user=fields.find_string("user") or None,
        extra=extra,
    )
    stream_options = fields.find_object("stream_options")
    include_usage = stream_options is not None and stream_options.find_boolean("include_usage") is True
    return Decoded((request,), fields.find_boolean("stream") is True, ChatOptions(include_usage))


def _refuse_what_is_missing(fields: Fields) -> None:
    """Refuse what would change the answer and cannot be done yet: ignoring it would be a silent lie."""
    n = fields.find_integer("n")
    if n not in (None, 1):
        raise InvalidRequest(f"n is {n}; only one choice can be generated at a time: send n requests", field="n")
    if fields.find_boolean("logprobs"):
        raise InvalidRequest("logprobs are not available yet; leave the field out", field="logprobs")


_EFFORTS: dict[str, ReasoningLevel] = {
    "none": "off",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}


def _decode_reasoning(fields: Fields, template_arguments: Fields | None) -> ReasoningLevel | None:
    effort = fields.find_string("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        raise wrong("reasoning_effort", f"one of {', '.join(_EFFORTS)}", effort)
    # Qwen's switch, as vLLM and llama-server take it; the most explicit word wins.
    if template_arguments is not None and template_arguments.find_boolean("enable_thinking") is False:
        return "off"
    if fields.find_boolean("enable_thinking") is False:
        return "off"
    return None if effort is None else _EFFORTS[effort]


def _decode_session(fields: Fields) -> str | None:
    names = [fields.find_string(key) for key in ("session_id", "prompt_cache_key", "user")]
    return next((name for name in names if name), None)


# ---- the answer


def encoder(options: ChatOptions, *, id: str, created: int, model: str) -> Encoder:
    """A new encoder for one answer."""
    return Encoder(options, id=id, created=created, model=model)


class Encoder:
    """Writes one answer. Not for sharing; events must come in the order of the grammar."""

    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: ChatOptions, *, id: str, created: int, model: str) -> None:
        self._options = options
        self._id = id
        self._created = created
        self._model = model
        self._head = b""
        self._tail = b'},"finish_reason":null}]' + (b',"usage":null' if options.include_usage else b"") + b"}\n\n"
        self._deltas = _Deltas(id)

    def encode(self, event: Event, choice: int = 0) -> bytes:
        """The chunks that tell of `event`; none for notices, and for a call that has not ended."""
        if type(event) is TextDelta and not self._deltas.holds:
            # Once per token: everything but the text is a constant.
            return self._head + b'"content":' + quote(event.text).encode("ascii") + self._tail
        if isinstance(event, Started):
            self._begin(event)
        chunks = [self._chunk(delta) for delta in self._deltas.feed(event)]
        if isinstance(event, Finished):
            chunks.append(self._last_chunk(event))
        return b"".join(chunks)

    def encode_failure(self, error: Exception) -> bytes:
        """An error in the middle: OpenAI's clients raise at the `error` field. No `[DONE]`, for it is not done."""
        return encode_event(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        """The `chat.completion` object."""
        (reply,) = replies
        deltas = _Deltas(self._id)
        events = replay(reply.message, model=reply.model or "?", reason=reply.reason)
        message = _folded(delta for event in events for delta in deltas.feed(event))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": deltas.finish_reason(reply.reason)}
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model or reply.model,
            "choices": [choice],
            "usage": encode_usage(reply.usage),
        }

    def _begin(self, started: Started) -> None:
        self._model = self._model or started.model
        self._head = self._common_head() + b'"choices":[{"index":0,"delta":{'

    def _common_head(self) -> bytes:
        return (
            f'data: {{"id":{quote(self._id)},"object":"chat.completion.chunk","created":{self._created},'
            f'"model":{quote(self._model)},'
        ).encode("ascii")

    def _chunk(self, delta: Json) -> bytes:
        return self._head + _compact(delta)[1:-1] + self._tail  # the braces are in the head and in the tail

    def _last_chunk(self, finished: Finished) -> bytes:
        reason = quote(self._deltas.finish_reason(finished.reason)).encode("ascii")
        last = self._head + self._tail.replace(b"null", reason, 1)
        if self._options.include_usage:
            usage = _compact(encode_usage(finished.usage))
            last += self._common_head() + b'"choices":[],"usage":' + usage + b"}\n\n"
        return last + DONE


class _Deltas:
    """Turns events into `delta` objects: the one place that decides what of an answer a client sees."""

    def __init__(self, id: str) -> None:
        self._id = id.rpartition("-")[2]
        self._n_calls = 0
        self._held: BadCall | None = None

    @property
    def holds(self) -> bool:
        """Whether a bad call waits for the next event: only the end tells whether it was cut off or wrong."""
        return self._held is not None

    def feed(self, event: Event) -> Iterator[Json]:
        match event:
            case Started():
                yield {"role": "assistant", "content": ""}
            case TextDelta():
                yield from self._release()
                yield {"content": event.text}
            case ReasoningDelta():
                yield from self._release()
                if event.text:
                    yield {"reasoning_content": event.text}
            case CallEnded(call=ToolCall() as call):
                yield from self._release()
                yield from self._call(call.id, call.name, call.arguments)
            case CallEnded(call=BadCall() as call):
                yield from self._release()
                self._held = call
            case Finished(reason="length"):
                self._held = None  # cut off in the middle: neither markup nor `{}` would be true
            case Finished():
                yield from self._release()
            case _:
                pass  # notices, and the pieces of a call

    def finish_reason(self, reason: StopReason) -> str:
        # A client looks for calls only behind this word, bad calls included; and must find some behind it.
        if reason in ("end", "stop", "tool_calls"):
            return "tool_calls" if self._n_calls else "stop"
        return _FINISH_REASONS[reason]

    def _release(self) -> Iterator[Json]:
        call, self._held = self._held, None
        if call is None:
            return
        if call.name:
            yield from self._call(call.id, call.name, call.raw)
        else:
            yield {"content": f"[invalid tool call: {call.error}]"}

    def _call(self, id: str, name: str, arguments: str) -> Iterator[Json]:
        index = self._n_calls
        self._n_calls += 1
        function = {"name": name, "arguments": ""}
        yield _call_delta(index, {"id": id or f"call_{self._id}_{index}", "type": "function", "function": function})
        yield _call_delta(index, {"function": {"arguments": arguments}})


_FINISH_REASONS: dict[StopReason, str] = {"length": "length", "filtered": "content_filter", "cancelled": "stop"}


def _folded(deltas: Iterable[Json]) -> Json:
    """The message that the deltas spell."""
    content, reasoning, calls = "", "", list[Json]()
    for delta in deltas:
        content += delta.get("content", "")
        reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls.append({key: call[key] for key in ("id", "type", "function")})
            else:
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
    message: Json = {"role": "assistant", "content": content, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _call_delta(index: int, call: Json) -> Json:
    return {"tool_calls": [{"index": index, **call}]}


def _compact(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode("ascii")
