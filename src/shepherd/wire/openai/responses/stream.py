"""An answer in the Responses protocol: as a stream of events, or as the object that its last event carries.

    created, in_progress ─ item* ─ completed | incomplete | failed
    item: output_item.added ─ parts and deltas ─ output_item.done

Thoughts, texts and calls are items of their own, in the order in which the model wrote them. A whole reply is the fold
of the same events, so the two are equal. A call is sent when it has ended and parsed: clients run what they get.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from shepherd.core import (
    BadCall,
    CallEnded,
    CallStarted,
    ContextFull,
    Event,
    Finished,
    InvalidRequest,
    Opaque,
    OpaqueBlock,
    RateLimited,
    Reasoning,
    ReasoningDelta,
    Reply,
    Started,
    StopReason,
    TextDelta,
    TokenScore,
    Usage,
    replay,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.edits import COMPACTION
from shepherd.wire.bad_calls import HeldCalls
from shepherd.wire.base import Json, parse_object
from shepherd.wire.extensions import facts_of
from shepherd.wire.openai import shapes
from shepherd.wire.openai.responses.parts import PROTOCOL, facts_in, own_thought, seal
from shepherd.wire.openai.responses.tools import NO_TOOLS, OfferedTools
from shepherd.wire.speculation import encode_drafts
from shepherd.wire.sse import MEDIA_TYPE, PING
from shepherd.wire.tools import free_text
from shepherd.wire.watch import Watch


@dataclass(frozen=True, slots=True)
class ResponsesOptions:
    """How to write the answer, and what to store of the body."""

    echo: Json
    """Fields of the body that the answer repeats."""
    box: OfferedTools = NO_TOOLS
    thinks_in_summaries: bool = False
    """The client asks for summaries of thoughts, and shows only these."""
    seals: bool = False
    """The client keeps thoughts as sealed words."""
    own_items: tuple[Json, ...] = ()
    """The input, without what is from earlier answers."""
    store: bool = True
    return_progress: bool = False
    timings_per_token: bool = False


@dataclass(frozen=True, slots=True)
class StoredResponse:
    id: str
    previous: str | None
    """The id of the answer before it."""
    items: tuple[Json, ...]
    """Its own input."""
    response: Json
    """As the client got it."""


class UnknownResponse(InvalidRequest):
    """A body refers to an answer that is not stored."""

    code = "previous_response_not_found"

    def __init__(self, message: str) -> None:
        super().__init__(message, field="previous_response_id")


def encode_error(error: Exception) -> tuple[int, Json]:
    status, body = shapes.encode_error(error, prompt="input")
    if isinstance(error, UnknownResponse):
        body["error"]["code"] = error.code
    return status, body


class Encoder:
    media_type = MEDIA_TYPE
    ping = PING

    def __init__(
        self, options: ResponsesOptions, *, id: str, created: int, model: str, clock: Callable[[], float] = time.time
    ) -> None:
        self.options = options
        self._writer = _Writer(options, id, created, model, clock)
        self._watch = Watch()
        self._n_events = 0
        self._echo = ""
        self.stored: StoredResponse | None = None
        """Set when the answer is complete and `store` is true."""

    def encode(self, event: Event, choice: int = 0) -> bytes:
        if type(event) is TextDelta and not event.scores and not event.refused and (head := self._writer.text_head()):
            self._writer.add_text(event.text)
            number, self._n_events = self._n_events, self._n_events + 1
            # Once per token: everything but the number and the text is a constant.
            return b"%b%d%b%b}\n\n" % (head[0], number, head[1], quote(event.text).encode("ascii"))
        self._watch.note_time(event)
        written = b"".join(map(self._framed, self._told_times(event)))
        if isinstance(event, Finished):
            self._remember()
        return written

    def _told_times(self, event: Event) -> Iterator[Json]:
        """What the event becomes, with llama-server's figures where they are wanted."""
        progress = self._watch.progress(event) if self.options.return_progress else None
        if progress is not None and not isinstance(event, Started):
            yield {"type": "response.in_progress", "prompt_progress": progress, "response": self._writer.response}
        timings = None
        if self.options.timings_per_token:
            watch = self._watch
            timings = watch.timings(event.usage) if isinstance(event, Finished) else watch.timings_so_far(event)
        for written in self._writer.feed(event):
            kind = written["type"]
            if timings is not None and kind.endswith((".delta", ".completed", ".incomplete")):
                written = {"type": kind, "timings": timings, **written}
            elif progress is not None and kind == "response.in_progress":
                written = {"type": kind, "prompt_progress": progress, **written}
            yield written

    def encode_replies(self, replies: Sequence[Reply]) -> Json:
        (reply,) = replies
        for event in _events_of(reply):
            for _ in self._writer.feed(event):
                pass
        return self._remember()

    def encode_failure(self, error: Exception) -> bytes:
        """An error for clients that raise it, and a `response.failed` for clients that wait for the end."""
        status, body = encode_error(error)
        code = "invalid_prompt" if status < 500 else "server_error"
        if isinstance(error, ContextFull | RateLimited):
            code = error.code
        facts = {"message": body["error"]["message"], "param": body["error"]["param"], "code": code}
        events = self._writer.fail(
            {"code": code, "message": facts["message"]}, {**facts, "error": {**body["error"], **facts}}
        )
        return b"".join(map(self._framed, events))

    def _framed(self, event: Json) -> bytes:
        name = event["type"]
        numbered = {"type": name, "sequence_number": self._n_events, **event}
        self._n_events += 1
        text = json.dumps(numbered, separators=(",", ":"))
        if "response" in event:
            # Instructions and tools, much of the body, three times: written once.
            self._echo = ("" if self._writer.own else self._echo) or json.dumps(
                self._repeated(), separators=(",", ":")
            )[1:]
            text = f"{text[:-2]},{self._echo}}}"
        return f"event: {name}\ndata: {text}\n\n".encode("ascii")

    def _repeated(self) -> Json:
        """What the answer repeats of the body, but for what a provider reports otherwise."""
        return {key: value for key, value in self.options.echo.items() if key not in self._writer.response}

    def _remember(self) -> Json:
        response = {**self._writer.response, **self._repeated()}
        if self.options.store:
            previous = self.options.echo.get("previous_response_id")
            self.stored = StoredResponse(self._writer.id, previous, self.options.own_items, response)
        return response


encoder = Encoder


def _events_of(reply: Reply) -> Iterator[Event]:
    """The stream of a whole reply, with its counts, and the scores at their tokens."""
    scores = list(reply.scores)
    for event in replay(reply.message, model=reply.model or "?"):
        match event:
            case TextDelta(text=text) if scores:
                n_bytes, n = len(text.encode("utf-8", "replace")), 0
                while n < len(scores) and n_bytes > 0:
                    n_bytes -= len(scores[n].piece)
                    n += 1
                yield TextDelta(text, tuple(scores[:n]), refused=event.refused)
                del scores[:n]
            case Finished():
                yield Finished(reply.reason, reply.usage, reply.stop, reply.own[1])
            case _:
                yield event


class _Writer:
    """Turns events of ours into events of the protocol: the one place that decides what of an answer a client sees.

    The events have no numbers yet, and share objects with later ones: encode each before the next. `response` is the
    answer so far, without the fields that repeat the body.
    """

    def __init__(
        self, options: ResponsesOptions, id: str, created: int, model: str, clock: Callable[[], float]
    ) -> None:
        self.id = id
        self._options = options
        self._clock = clock
        self._tail = id.rpartition("_")[2]
        self._output: list[Json] = []
        """Items that are complete."""
        self._open: _Item | None = None
        self._calls = HeldCalls(until_start=True)
        self._has_begun = False
        self._phase = ""
        """Of the next message."""
        self.own: Json = {}
        """What a provider of the protocol reports of the answer."""
        self.response: Json = {
            "id": id,
            "object": "response",
            "created_at": created,
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": self._output,
            "usage": None,
        }

    def feed(self, event: Event) -> Iterator[Json]:
        for ready in self._calls.feed(event):
            match ready:
                case Started():
                    yield from self._begin(ready.model)
                case TextDelta():
                    yield from self._write("refusal" if ready.refused else "message", ready.text, ready.scores)
                case ReasoningDelta():
                    yield from self._think(ready)
                case OpaqueBlock(block) if block.protocol == PROTOCOL:
                    yield from self._pass_on(block)
                case OpaqueBlock(block) if block.protocol == COMPACTION:
                    body = parse_object(block.body) or {}
                    yield from self._whole({"id": f"cmp_{self._tail}_{len(self._output)}", **body})
                case CallStarted():
                    yield from self._close()
                case CallEnded(call):
                    yield from self._call(call.id, call.name, call.raw if isinstance(call, BadCall) else call.arguments)
                case Finished():
                    yield from self._finish(ready)
                case _:
                    pass  # notices, and the pieces of a call

    def fail(self, error: Json, facts: Json) -> Iterator[Json]:
        yield from self._begin("")
        yield {"type": "error", **facts}
        self.response |= {"status": "failed", "error": error}
        yield self._lifecycle("failed")

    # ---- the whole

    def _begin(self, model: str) -> Iterator[Json]:
        if not self._has_begun:
            self._has_begun = True
            self.response["model"] = self.response["model"] or model
            yield self._lifecycle("created")
            yield self._lifecycle("in_progress")

    def _lifecycle(self, state: str) -> Json:
        return {"type": f"response.{state}", "response": self.response}

    def _finish(self, finished: Finished) -> Iterator[Json]:
        status, detail = _ENDS[finished.reason]
        self.own = facts_of(PROTOCOL, finished.own)
        if self.own.get("status") == "completed":  # a refusal
            status, detail = "completed", None
        is_cut = status != "completed"
        yield from self._close("incomplete" if is_cut else "completed")
        if not (self._output and is_cut) and all(item["type"] == "reasoning" for item in self._output):
            yield from self._write("message", "")
            yield from self._close()
        self.response |= {
            "incomplete_details": detail and {"reason": detail},
            **self.own,
            "status": status,
            "completed_at": None if is_cut else int(self._clock()),
            "usage": shapes.with_own(encode_usage(finished.usage), self.own.get("usage")),
        }
        yield self._lifecycle("incomplete" if is_cut else "completed")

    # ---- texts and thoughts

    def text_head(self) -> tuple[bytes, bytes] | None:
        """The event of one more piece of the open text, up to its number, and from there up to its text."""
        return None if self._calls.held or self._open is None else self._open.head

    def add_text(self, text: str) -> None:
        """Add to the open text; the caller writes the event."""
        assert self._open is not None
        self._open.texts.append(text)

    def _think(self, delta: ReasoningDelta) -> Iterator[Json]:
        own = sealed_thought(delta.signature)
        id = delta.id or str((own or {}).get("id") or "")
        if own is not None and not delta.text and (self._open is None or self._open.id != id):
            yield from self._whole(own)
            return
        kind = "summary" if id or self._options.thinks_in_summaries else "thought"
        if delta.redacted:
            yield from self._close()
        if delta.text or self._open is None or self._open.kind != kind:
            yield from self._write(kind, delta.text, id=id)
        assert self._open is not None
        self._open.thought = Reasoning("", delta.signature, delta.redacted)
        if delta.signature is not None or delta.redacted:
            yield from self._close()

    def _write(self, kind: str, text: str, scores: Sequence[TokenScore] = (), id: str = "") -> Iterator[Json]:
        """Add to the item of this kind, opened if it is not open. `id`: as the provider calls the item."""
        if self._open is None or self._open.kind != kind or (id and self._open.id != id):
            yield from self._close()
            id = id or f"{_KINDS[kind].prefix}_{self._tail}_{len(self._output)}"
            self._open = _Item(kind, len(self._output), id, self._phase)
            self._phase = "" if self._open.is_message else self._phase
            if self._options.timings_per_token:
                self._open.head = None  # no two events are alike
            yield self._open.event("output_item.added", item=self._open.body("in_progress", self._options.seals))
            yield self._open.part("added")
        if text:
            yield self._open.delta(text, scores)

    def _close(self, status: str = "completed") -> Iterator[Json]:
        item, self._open = self._open, None
        if item is None:
            return
        yield from item.end_part()
        body = item.body(status, self._options.seals)
        self._output.append(body)
        yield item.event("output_item.done", item=body)

    # ---- items of a provider of the same protocol

    def _pass_on(self, block: Opaque) -> Iterator[Json]:
        facts = facts_in(block)
        if facts is None:
            if (item := parse_object(block.body)) is not None:
                yield from self._whole(item)
        elif isinstance(notes := facts.get("annotations"), list):
            if self._open is not None and self._open.is_message:
                yield from self._open.annotate(notes)
        else:
            yield from self._close()
            self._phase = str(facts.get("phase") or "")

    def _whole(self, item: Json) -> Iterator[Json]:
        yield from self._close()
        index = len(self._output)
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        self._output.append(item)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    # ---- calls

    def _call(self, call_id: str, name: str, arguments: str) -> Iterator[Json]:
        own, index = self._options.box.own(name), len(self._output)
        key, kind, prefix, verb = _FREE_CALL if own.is_free else _CALL
        text = free_text(arguments) if own.is_free else arguments
        place = {"output_index": index, "item_id": f"{prefix}_{self._tail}_{index}"}
        body = {"id": place["item_id"], "type": kind, "status": "completed", "name": own.name}
        if own.namespace is not None:
            body["namespace"] = own.namespace
        body |= {"call_id": call_id or f"call_{self._tail}_{index}", key: text}
        begun = {**body, "status": "in_progress", key: ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        yield {"type": f"response.{verb}.delta", **place, "delta": text}
        yield {"type": f"response.{verb}.done", **place, "name": own.name, key: text}
        self._output.append(body)
        yield {"type": "response.output_item.done", "output_index": index, "item": body}


_CALL = ("arguments", "function_call", "fc", "function_call_arguments")
_FREE_CALL = ("input", "custom_tool_call", "ctc", "custom_tool_call_input")

_ENDS: dict[StopReason, tuple[str, str | None]] = {
    "end": ("completed", None),
    "stop": ("completed", None),
    "tool_calls": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "filtered": ("incomplete", "content_filter"),
    "cancelled": ("incomplete", None),
}


# ---- one item of text


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of text: the words of its events and of its parts."""

    prefix: str
    text: str
    part: str
    index: str
    shape: str
    """The type of its parts."""
    field: str = "text"
    """The name of the text in a part."""


_KINDS = {
    "message": _Kind("msg", "output_text", "content_part", "content_index", "output_text"),
    "refusal": _Kind("msg", "refusal", "content_part", "content_index", "refusal", "refusal"),
    "thought": _Kind("rs", "reasoning_text", "content_part", "content_index", "reasoning_text"),
    "summary": _Kind("rs", "reasoning_summary_text", "reasoning_summary_part", "summary_index", "summary_text"),
}


class _Item:
    """An incomplete message, or incomplete thoughts: one part with one text."""

    def __init__(self, kind: str, index: int, id: str, phase: str = "") -> None:
        self.kind = kind
        self.id = id
        self.texts: list[str] = []
        self.thought = Reasoning("")
        """Its signature, and whether it is hidden."""
        self._words = _KINDS[kind]
        self._index = index
        self.is_message = self._words.prefix == "msg"
        self._phase = {"phase": phase} if phase and self.is_message else {}
        self._scores: list[Json] = []
        self._notes: list[Any] = []
        self._place = {"item_id": id, "output_index": index, self._words.index: 0}
        self.head: tuple[bytes, bytes] | None = None
        if kind == "message":
            name = f"response.{self._words.text}.delta"
            rest = json.dumps({**self._place, "logprobs": []}, separators=(",", ":"))[1:-1]
            head = f'event: {name}\ndata: {{"type":"{name}","sequence_number":'
            self.head = head.encode("ascii"), f',{rest},"delta":'.encode("ascii")

    def event(self, what: str, **facts: Any) -> Json:
        return {"type": f"response.{what}", "output_index": self._index, **facts}

    def delta(self, text: str, scores: Iterable[TokenScore]) -> Json:
        self.texts.append(text)
        encoded = [encode_score(score) for score in scores]
        self._scores += encoded
        rest = {"logprobs": encoded} if self.kind == "message" else {}
        return {"type": f"response.{self._words.text}.delta", **self._place, "delta": text, **rest}

    def annotate(self, notes: list[Any]) -> Iterator[Json]:
        for note in notes:
            self._notes.append(note)
            place = {**self._place, "annotation_index": len(self._notes) - 1}
            yield {"type": "response.output_text.annotation.added", **place, "annotation": note}

    def end_part(self) -> Iterator[Json]:
        rest = {"logprobs": self._scores} if self.kind == "message" else {}
        text = {self._words.field: "".join(self.texts)}
        yield {"type": f"response.{self._words.text}.done", **self._place, **text, **rest}
        yield self.part("done")

    def body(self, status: str, seals: bool) -> Json:
        has_parts = status != "in_progress" and (self.is_message or any(self.texts))
        parts = [self._part_body()] if has_parts else []
        head: Json = {"id": self.id, "type": "message", "status": status}
        if self.is_message:
            return {**head, "role": "assistant", **self._phase, "content": parts}
        own = sealed_thought(self.thought.signature)
        if own is not None and own.get("id") == self.id:
            return own
        body: Json = {**head, "type": "reasoning", "summary": [], "content": []}
        body["summary" if self.kind == "summary" else "content"] = parts
        if status != "in_progress" and (seals or self.thought.signature is not None or self.thought.redacted):
            body["encrypted_content"] = seal(replace(self.thought, text="".join(self.texts)))
        return body

    def part(self, what: str) -> Json:
        return {"type": f"response.{self._words.part}.{what}", **self._place, "part": self._part_body()}

    def _part_body(self) -> Json:
        body: Json = {"type": self._words.shape, self._words.field: "".join(self.texts)}
        return body | {"annotations": self._notes, "logprobs": self._scores} if self.kind == "message" else body


def sealed_thought(signature: str | None) -> Json | None:
    """The item of a thought that a provider of this protocol has encrypted: it goes out as it is."""
    item = own_thought(signature)
    return item if item is not None and item.get("encrypted_content") else None


def encode_score(score: TokenScore) -> Json:
    """One token, how likely it was, and what else was likely."""
    top = [{**_token(piece), "logprob": logprob} for _, piece, logprob in score.top]
    return {**_token(score.piece), "logprob": score.logprob, "top_logprobs": top}


def _token(piece: bytes) -> Json:
    return {"token": piece.decode("utf-8", "replace"), "bytes": list(piece)}


def encode_usage(usage: Usage) -> Json:
    """Token counts; cached and recalled tokens are part of the input's, reasoning tokens part of the output's."""
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": details | shapes.encode_recalled(usage),
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning} | encode_drafts(usage),
        "total_tokens": usage.total,
    }
