"""The server half of OpenAI's chat protocol, `POST /v1/chat/completions`: a body to requests, events to chunks.

A whole reply is the fold of the deltas of its stream, so the two are equal. A tool call is sent when it has ended and
parsed: a client cannot take half a call back when the tokens run out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as quote

from shepherd.core import (
    AnswerStart,
    BadCall,
    CallEnded,
    Event,
    Finished,
    InvalidRequest,
    Message,
    Native,
    OpaqueBlock,
    ReasoningDelta,
    ReasoningLevel,
    Reply,
    Request,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
    ToolCall,
    replay,
)
from shepherd.core.dataclasses import dataclass
from shepherd.wire.bad_calls import HeldCalls
from shepherd.wire.base import Decoded, Fields, Json, compact, wrong
from shepherd.wire.extensions import facts_of, merge_facts
from shepherd.wire.openai.chunks import FINISH_REASONS, ChunkOptions, Chunks
from shepherd.wire.openai.format import RESPONSE_FORMAT
from shepherd.wire.openai.messages import CONVERSATION, custom_tools, decode_tool_choice, provider_demand
from shepherd.wire.openai.responses.codec import decode_hybrid
from shepherd.wire.openai.settings import (
    EFFORTS,
    NAMES,
    RETURN_PROGRESS,
    STREAM_OPTIONS,
    TEMPLATE_ARGUMENTS,
    TIMINGS_PER_TOKEN,
    VERBOSE,
    reasoning_level,
    request_settings,
)
from shepherd.wire.openai.shapes import encode_error, encode_scores
from shepherd.wire.openai.signatures import PROTOCOL, decode_beside, decode_details, encode_extra
from shepherd.wire.read import encode_read
from shepherd.wire.sampling import GENERATION, repeat_request, token_limit
from shepherd.wire.sse import MEDIA_TYPE, PING, encode_event
from shepherd.wire.table import (
    BOOLEAN,
    STRING,
    STRINGS,
    Field,
    FieldKind,
    body_schema,
    inside,
    integer,
    one_of,
    read_fields,
)
from shepherd.wire.thoughts import JoinedThoughts
from shepherd.wire.tools import free_text

__all__ = ["ChatOptions", "Encoder", "decode_request", "encode_error", "encoder"]

MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class ChatOptions(ChunkOptions):
    custom: frozenset[str] = frozenset()
    """Tools that take any text: their calls are written as text."""
    is_legacy: bool = False
    """The tools came as `functions`: the call goes back as `function_call`."""
    hides_reasoning: bool = False
    verbose: bool = False


# ---- the request


def _decode_thinking(body: Fields, key: str) -> bool | None:
    """A switch, or an object with a type."""
    if not isinstance(body.find_any(key), dict):
        return body.find_boolean(key)
    kind = body.get_object(key).find_string("type")
    return {"enabled": True, "disabled": False}.get(kind or "")


def _decode_continued(body: Fields, key: str) -> str | None:
    value = body.find_any(key)
    if isinstance(value, bool):
        return "auto" if value else "none"
    if value not in (None, "auto", "content", "reasoning_content"):
        raise wrong(body.at(key), "true, false, auto, content or reasoning_content", value)
    return body.find_string(key)


def _decode_parallel(body: Fields, key: str) -> bool | None:
    return False if body.has("functions") else body.find_boolean(key)  # their answer has one place for one call


_REASONING = inside(
    Field("effort", one_of(*EFFORTS)),
    Field("enabled", BOOLEAN),
    Field("exclude", BOOLEAN, "Do not send thoughts.", default=False),
)
_THINKING = {"type": ["boolean", "object", "null"]}
_KEPT, _HIDDEN = ("none", "raw"), "hidden"
_REASONING_FORMATS = (*_KEPT, "auto", "deepseek", "deepseek-legacy", "parsed", _HIDDEN)
_CONTINUED = {"enum": [True, False, "auto", "content", "reasoning_content"]}
FIELDS = (
    *GENERATION,
    STREAM_OPTIONS,
    *CONVERSATION,
    Field("max_completion_tokens", token_limit(), "Cut down to the room that is left.", also=("max_tokens",)),
    Field("n", integer(1, MAX_CHOICES), "Choices.", default=1),
    Field("logprobs", BOOLEAN, "How likely each token of the text was.", default=False),
    Field("top_logprobs", integer(0, MAX_TOP_LOGPROBS), "Needs logprobs."),
    RESPONSE_FORMAT,
    Field("reasoning_effort", one_of(*EFFORTS)),
    Field("reasoning", _REASONING, "As OpenRouter has it."),
    Field(
        "reasoning_format",
        one_of(*_REASONING_FORMATS),
        "Where thoughts go, as llama-server and Groq have it: none and raw leave them in the text, with their tags.",
    ),
    Field("enable_thinking", BOOLEAN),
    Field("thinking", FieldKind(_decode_thinking, _THINKING), "true, or an object with a type: enabled or disabled."),
    TEMPLATE_ARGUMENTS,
    Field("continue_final_message", FieldKind(_decode_continued, _CONTINUED), "Go on with the last message, or not."),
    Field("add_generation_prompt", BOOLEAN, "Begin a new turn, or write nothing behind the last message."),
    Field("modalities", STRINGS, "text; others only where a provider of the protocol answers."),
    Field("parallel_tool_calls", FieldKind(_decode_parallel, BOOLEAN.schema)),
    Field("session_id", STRING, "Names the conversation."),
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
    VERBOSE,
    *NAMES,
)
_EXAMPLE = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 100}
BODY = body_schema(*FIELDS, required=["messages"], example=_EXAMPLE)


def decode_request(body: Json) -> Decoded[ChatOptions]:
    fields = Fields(body)
    if fields.has("input") and not fields.has("messages"):  # Cursor sends the body of one protocol to another's path
        request, stream = decode_hybrid(body)
        wants_usage = read_fields(fields, [STREAM_OPTIONS])["stream_options"]["include_usage"]
        return Decoded((request,), stream, ChatOptions(wants_usage))
    given = read_fields(fields, FIELDS)
    tools, choice = decode_tool_choice(fields, given["tools"])
    logprobs = _n_alternatives(given)
    request = Request(
        native=Native(PROTOCOL, body, provider_demand(fields, given["messages"])),
        messages=given["messages"],
        tools=tools,
        tool_choice=choice,
        reasoning=_reasoning_level(given),
        # The old form keeps them in streams only.
        keeps_thoughts=given["reasoning_format"] in (*_KEPT, *(["deepseek-legacy"] if given["stream"] else [])),
        start=_start(given),
        parallel_calls=given["parallel_tool_calls"],
        logprobs=logprobs,
        report=given["verbose"],
        **request_settings(given, given["response_format"], given["max_completion_tokens"]),
    )
    options = ChatOptions(
        include_usage=given["stream_options"]["include_usage"],
        n=given["n"],
        logprobs=logprobs is not None,
        custom=custom_tools(fields),
        is_legacy=fields.has("functions"),
        hides_reasoning=given["reasoning"]["exclude"] or given["reasoning_format"] == _HIDDEN,
        return_progress=given["return_progress"],
        timings_per_token=given["timings_per_token"],
        verbose=given["verbose"],
    )
    return Decoded(repeat_request(request, given["n"]), given["stream"], options)


def _n_alternatives(given: Json) -> int | None:
    """How many alternatives to each token are wanted; `None` = no logprobs at all."""
    n_top: int = given["top_logprobs"] or 0
    if given["logprobs"]:
        return n_top
    if n_top:
        raise InvalidRequest("top_logprobs needs logprobs; send logprobs: true", field="top_logprobs")
    return None


def _reasoning_level(given: Json) -> ReasoningLevel | None:
    """`reasoning` is OpenRouter's object, whose default is medium; `thinking` is the switch of several providers."""
    switches = given["reasoning"]["enabled"], given["thinking"]
    effort = given["reasoning_effort"] or given["reasoning"]["effort"] or ("medium" if True in switches else None)
    return reasoning_level(given, effort, given["enable_thinking"], *switches)


def _start(given: Json) -> AnswerStart | None:
    """How the answer begins, by the switches of vLLM and of llama-server."""
    part, heads_turn = given["continue_final_message"], given["add_generation_prompt"]
    last: Message | None = given["messages"][-1] if given["messages"] else None
    is_answer = last is not None and last.role == "assistant"
    if part in (None, "none"):
        if heads_turn is False and (part or not is_answer):
            return "nothing"
        if part or heads_turn:
            return "turn"
        if [message.role for message in given["messages"][-2:]] == ["assistant"] * 2:
            why = "the last two messages are the assistant's, and an answer continues one: join them"
            raise InvalidRequest(f"{why}, or send add_generation_prompt true to begin a new turn", field="messages")
        return None
    field = "continue_final_message"
    if heads_turn:
        why = f"{field} and add_generation_prompt cannot both be true; leave one of them out"
    elif last is None or not is_answer or last.calls or not (last.text or last.reasoning):
        why = f"{field} needs a last message of the assistant with a text and no tool calls; send one, or leave it out"
    elif part == "reasoning_content" and (last.text or not last.reasoning):
        why = f"{field} reasoning_content needs a last message with reasoning_content and no content"
    else:
        return "text" if part == "content" else None
    raise InvalidRequest(why, field=field)


# ---- the answer


class Encoder:
    media_type = MEDIA_TYPE
    ping = PING

    def __init__(self, options: ChatOptions, *, id: str, created: int, model: str) -> None:
        n = options.n
        self._options = options
        self._chunks = Chunks(options, n, kind="chat.completion.chunk", id=id, created=created, model=model)
        self._heads = self._chunks.heads
        self._text_heads = [b""] * n
        """Of the chunks of each choice, up to their text; empty until it has some."""
        self._text_tail = b"}" + _UNFINISHED + self._chunks.tail
        self._deltas = [_Deltas(id, options, choice) for choice in range(n)]

    def encode(self, event: Event, choice: int = 0) -> bytes:
        deltas = self._deltas[choice]
        if (
            type(event) is TextDelta
            and not event.scores
            and not event.refused
            and deltas.calls.held is None
            and (head := self._text_heads[choice])
        ):
            # Once per token: everything but the text is a constant.
            return head + quote(event.text).encode("ascii") + self._text_tail
        self.note_time(event)
        if isinstance(event, Started):
            self._chunks.begin(choice, event.model, '"delta":{')
        elif isinstance(event, TextDelta) and not self._options.timings_per_token:
            self._text_heads[choice] = self._heads[choice] + b'"content":'
        progress = self._chunks.progress(choice, event, b'},"finish_reason":null}]')
        ready = list(deltas.feed(event))
        scores = event.scores if isinstance(event, TextDelta) else ()
        tail = self._chunks.timed_tail(event)
        chunks = [self._chunk(choice, delta, scores if delta is ready[-1] else (), tail) for delta in ready]
        if isinstance(event, Finished):
            own = facts_of(PROTOCOL, event.own)
            ending = {"finish_reason": deltas.finish_reason(event.reason, own), **own.pop("choice", {})}
            chunks.append(self._chunks.end(choice, b"}," + compact(ending)[1:] + b"]", event.usage, own))
        # The role comes first, and the prompt is read before the text.
        return b"".join((*chunks, progress) if isinstance(event, Started) else (progress, *chunks))

    def note_time(self, event: Event) -> None:
        self._chunks.watch.note_time(event)

    def encode_failure(self, error: Exception) -> bytes:
        """An error in the middle: OpenAI's clients raise at the `error` field. No `[DONE]`, for it is not done."""
        return encode_event(encode_error(error)[1])

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        owns = [facts_of(PROTOCOL, reply.own[1]) for reply in replies]
        choices = [self._choice(at, reply, owns[at]) for at, reply in enumerate(replies)]
        body = self._chunks.whole(choices, replies, owns[0])
        if self._options.verbose and (read := replies[0].read) is not None:
            body["__verbose"] = encode_read(read)
        return body

    def _choice(self, index: int, reply: Reply, own: Json) -> Json:
        deltas = self._deltas[index]
        events = replay(reply.message, model=reply.model or "?", reason=reply.reason)
        message = _folded(delta for event in events for delta in deltas.feed(event))
        return {
            "index": index,
            "message": message,
            "logprobs": _logprobs(reply.scores) if self._options.logprobs else None,
            "finish_reason": deltas.finish_reason(reply.reason, own),
            **own.pop("choice", {}),
        }

    def _chunk(self, choice: int, delta: Json, scores: Sequence[TokenScore], tail: bytes) -> bytes:
        logprobs = b',"logprobs":' + compact(_logprobs(scores)) if scores else b""
        # The first brace is in the head.
        return self._heads[choice] + compact(delta)[1:] + logprobs + _UNFINISHED + tail


encoder = Encoder

_UNFINISHED = b',"finish_reason":null}]'


class _Deltas:
    """Turns events into `delta` objects: the one place that decides what of an answer a client sees."""

    def __init__(self, id: str, options: ChatOptions, choice: int) -> None:
        self.calls = HeldCalls()
        self._thoughts = JoinedThoughts()
        self._id = id.rpartition("-")[2] + (f"_{choice}" if choice else "")
        self._options = options
        self._n_calls = 0

    def feed(self, event: Event) -> Iterator[Json]:
        for ready in self.calls.feed(event):
            match ready:
                case Started():
                    yield {"role": "assistant", "content": None}
                case TextDelta(text):
                    yield {"refusal" if ready.refused else "content": text}
                case ReasoningDelta() if not self._options.hides_reasoning:
                    if text := self._thoughts.feed(ready):
                        # Some clients look for one name, some for the other, none for both.
                        yield {"reasoning_content": text, "reasoning": text}
                    if details := decode_details(ready.signature):
                        yield {"reasoning_details": details}
                    if extra := decode_beside(ready.signature):
                        yield {"extra_content": extra}
                case CallEnded(call):
                    yield from self._call(call)
                case OpaqueBlock(block):
                    self._thoughts.feed(ready)
                    if facts := facts_of(PROTOCOL, block):
                        yield facts
                case _:
                    pass  # notices, and the pieces of a call

    def finish_reason(self, reason: StopReason, own: Json) -> str:
        """Why it ended; `own`: what a provider of the protocol reports, without this word when it returns."""
        given = own.pop("finish_reason", None)
        # A client looks for calls only behind this word, bad calls included; and must find some behind it.
        if reason in ("end", "stop", "tool_calls"):
            called = "function_call" if self._options.is_legacy else "tool_calls"
            return called if self._n_calls else "stop"
        return given or FINISH_REASONS.get(reason, "stop")

    def _call(self, call: ToolCall | BadCall) -> Iterator[Json]:
        id, name, index = call.id, call.name, self._n_calls
        arguments = call.raw if isinstance(call, BadCall) else call.arguments
        self._n_calls += 1
        if self._options.is_legacy and index == 0:
            yield {"function_call": {"name": name, "arguments": ""}}
            yield {"function_call": {"arguments": arguments}}
            return
        kind, key = ("custom", "input") if name in self._options.custom else ("function", "arguments")
        text = arguments if kind == "function" else free_text(arguments)
        id = id or f"call_{self._id}_{index}"
        signature = call.signature if isinstance(call, ToolCall) else None
        rest = {"extra_content": encode_extra(signature)} if signature else {}
        yield {"tool_calls": [{"index": index, "id": id, "type": kind, kind: {"name": name, key: ""}, **rest}]}
        yield {"tool_calls": [{"index": index, kind: {key: text}}]}


def _folded(deltas: Iterable[Json]) -> Json:
    """The message that the deltas spell."""
    message: Json = {"role": "assistant", "content": "", "refusal": None}
    calls: list[Json] = []
    for delta in deltas:
        merge_facts(message, {key: value for key, value in delta.items() if key not in _PUT_TOGETHER})
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls.append({key: value for key, value in call.items() if key != "index"})
            else:
                _extend(calls[-1], call)
        if "function_call" in delta:
            _extend(message, {"function_call": delta["function_call"]})
    if message["refusal"] and not message["content"]:
        message["content"] = None
    return message | ({"tool_calls": calls} if calls else {})


_PUT_TOGETHER = ("role", "tool_calls", "function_call")


def _extend(call: Json, delta: Json) -> None:
    """Put the texts of a delta behind those of what it adds to."""
    for kind in ("function", "custom", "function_call"):
        for key, text in delta.get(kind, {}).items():
            inside = call.setdefault(kind, {})
            inside[key] = inside.get(key, "") + text


def _logprobs(scores: Iterable[TokenScore]) -> Json:
    return {"content": encode_scores(scores), "refusal": None}
