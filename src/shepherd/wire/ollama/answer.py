"""The answers of Ollama's `/api/chat` and `/api/generate`: lines of JSON, the last of them with the counts.

Chat writes a `message`, generate a `response`. A whole answer is the fold of the lines of its stream. A tool call is
sent in a line of its own when it has ended and parsed, with its arguments as an object. A call that did not parse
becomes text, because clients of this protocol read only objects there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quote
from typing import NoReturn

from shepherd.core import (
    BadCall,
    CallEnded,
    Event,
    Finished,
    Message,
    Opaque,
    OpaqueBlock,
    ReasoningDelta,
    Reply,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
    ToolCall,
    Usage,
    replay,
)
from shepherd.core.dataclasses import dataclass
from shepherd.wire.bad_calls import HeldCalls
from shepherd.wire.base import Json, compact
from shepherd.wire.extensions import facts_of
from shepherd.wire.ollama.context import context_of
from shepherd.wire.ollama.fields import Errand, encode_error
from shepherd.wire.openai.shapes import encode_scores
from shepherd.wire.thoughts import JoinedThoughts
from shepherd.wire.watch import Clock, Watch

MEDIA_TYPE = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    chat: bool
    """In a `message`, else in `response`."""
    began: int
    """When the body was read, on the encoder's clock."""
    errand: Errand = ""
    conversation: tuple[Message, ...] | None = None
    """The messages that the end of the answer repeats in its `context`; `None` = it has none."""


class Encoder:
    media_type = MEDIA_TYPE

    def __init__(
        self, options: AnswerOptions, *, id: str, created: int, model: str, clock: Clock = time.perf_counter_ns
    ) -> None:
        self._errand = options.errand
        self._conversation = options.conversation
        self._said: list[str] = []
        """What of the answer `context` repeats."""
        self._created = created * 10**9
        self._model = model
        self._clock = clock
        self._made = clock()
        self._watch = Watch(options.began, clock)
        self._deltas = _Deltas(id)
        self._open, self._close = (_OPEN, b"}") if options.chat else (b'"response":', b"")
        self.ping = self._line(_Delta())

    def note_time(self, event: Event) -> None:
        """Note when an event of a whole answer comes; `encode` notes the events of a stream itself."""
        self._watch.note_time(event)

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if not self._watch.has_text:
            self.note_time(event)  # later ones change nothing but the end
        if type(event) is TextDelta and not event.scores and self._deltas.calls.held is None:
            # Once per token: everything but the text and the time is a constant.
            self._said.append(event.text)
            return self._head() + self._open + quote(event.text).encode("ascii") + self._close + _NOT_DONE
        if isinstance(event, Started) and not self._model:
            self._model = event.model
            self.ping = self._line(_Delta())
        lines = [self._line(delta) for delta in self._deltas.feed(event)]
        if isinstance(event, Finished):
            self.note_time(event)
            lines.append(self._line(_Delta(), self._end(event.reason, event.usage, event.own)))
        return b"".join(lines)

    def encode_failure(self, error: Exception) -> bytes:
        return compact(encode_error(error)[1]) + b"\n"

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        (reply,) = replies
        self._model = self._model or reply.model
        whole = _Delta(scores=reply.scores)
        for event in replay(reply.message, model=reply.model or "?", reason=reply.reason):
            for delta in self._deltas.feed(event):
                whole.text += delta.text
                whole.thinking += delta.thinking
                whole.calls = [*whole.calls, *delta.calls]
        self.note_time(Finished(reply.reason, reply.usage))
        self._said = [whole.text]
        answer: Json = json.loads(self._line(whole, self._end(reply.reason, reply.usage, reply.own[1])))
        return answer

    def _end(self, reason: StopReason, usage: Usage, own: Opaque | None) -> bytes:
        """The rest of the last line. Times are the provider's own (`own`), where it is an Ollama."""
        if self._errand:
            return f'"done":true,"done_reason":"{self._errand}"}}\n'.encode("ascii")
        figures: Json = {
            "done": True,
            "done_reason": "length" if reason == "length" else "stop",
            **_figures(self._watch, usage),
            **facts_of("ollama", own),
        }
        if self._conversation is not None:
            figures["context"] = context_of(self._conversation, "".join(self._said))
        return compact(figures)[1:] + b"\n"

    def _head(self) -> bytes:
        now = self._created + self._clock() - self._made
        stamp = datetime.fromtimestamp(now // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f'{{"model":{quote(self._model)},"created_at":"{stamp}.{now % 10**9:09d}Z",'.encode("ascii")

    def _line(self, delta: _Delta, end: bytes = b"") -> bytes:
        self._said.append(delta.text)
        parts = [self._head(), self._open, quote(delta.text).encode("ascii")]
        if delta.thinking:
            parts += [b',"thinking":', quote(delta.thinking).encode("ascii")]
        if delta.calls:
            parts += [b',"tool_calls":', compact(delta.calls)]
        parts.append(self._close)
        if delta.scores:
            parts += [b',"logprobs":', compact(encode_scores(delta.scores))]
        return b"".join(parts) + (b"," + end if end else _NOT_DONE)


encoder = Encoder

_OPEN = b'"message":{"role":"assistant","content":'
_NOT_DONE = b',"done":false}\n'


# ---- the pieces of an answer


@dataclass(slots=True)
class _Delta:
    text: str = ""
    thinking: str = ""
    calls: Sequence[Json] = ()
    scores: Sequence[TokenScore] = ()


class _Deltas:
    """Turns events into deltas: the one place that decides what of an answer a client sees."""

    def __init__(self, id: str) -> None:
        self.calls = HeldCalls()
        self._thoughts = JoinedThoughts()
        self._id = id.rpartition("-")[2]
        self._n_calls = 0

    def feed(self, event: Event) -> Iterator[_Delta]:
        for ready in self.calls.feed(event):
            match ready:
                case TextDelta(text, scores):
                    yield _Delta(text, scores=scores)
                case ReasoningDelta() | OpaqueBlock():
                    if text := self._thoughts.feed(ready):
                        yield _Delta(thinking=text)
                case CallEnded(call):
                    yield self._call(call)
                case _:
                    pass  # the start, the end, notices, and the pieces of a call

    def _call(self, call: ToolCall | BadCall) -> _Delta:
        if isinstance(call, BadCall):
            return _Delta(f"[invalid tool call of {call.name}: {call.error}]")
        arguments = read_object(call.arguments)
        if arguments is None:
            return _Delta(f"[invalid tool call of {call.name}: its arguments are no JSON object]")
        index = self._n_calls
        self._n_calls += 1
        id = call.id or f"call_{self._id}_{index}"
        return _Delta(calls=[{"id": id, "function": {"index": index, "name": call.name, "arguments": arguments}}])


def read_object(text: str) -> Json | None:
    """The arguments of a call as an object; None if they are no JSON object, or hold numbers that JSON cannot."""
    try:
        found = json.loads(text or "{}", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# ---- how long it took


def _figures(watch: Watch, usage: Usage) -> Json:
    """Nanoseconds and tokens. Time that was not measured counts as generating."""
    started = watch.started or watch.began
    first = watch.first or (watch.ended if watch.started else started)
    return {
        "total_duration": watch.ended - watch.began,
        "load_duration": started - watch.began,
        "prompt_eval_count": usage.prompt,
        "prompt_eval_duration": first - started,
        "eval_count": usage.output,
        "eval_duration": watch.ended - first,
    }
