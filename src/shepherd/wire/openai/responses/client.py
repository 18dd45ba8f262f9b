"""The client half of the Responses protocol, `POST /responses`: OpenAI's and xAI's own, and LM Studio's.

    Request ─ encode_request ─▶ items ─▶ provider ─ events ─▶ decoder ─▶ events of ours
                                                  └ an item that has ended is compared with what was sent of it

A thought of the provider is an item with `encrypted_content`: it is kept whole as the signature of a `Reasoning`, and
goes back as it was, in front of the item that it led to. Items that we do not know are kept whole as `Opaque`. Nothing
is stored by the provider (`store: false`).

A message that has a `phase` is a comment or the final answer. An `Opaque` without text stands in front of its text and
keeps the word; another one stands behind a text with annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Unsupported,
)
from shepherd.wire.arguments import Arguments
from shepherd.wire.base import Json, compact_json, parse_object
from shepherd.wire.client import Decoder, Endpoint, check_messages, limit_for, native_of, native_tools
from shepherd.wire.ending import word_of
from shepherd.wire.extensions import besides, kept
from shepherd.wire.history import for_provider
from shepherd.wire.openai import shared_fields
from shepherd.wire.openai.responses.codec import WORDS
from shepherd.wire.openai.responses.parts import (
    PROTOCOL,
    annotated,
    facts_in,
    is_part,
    own_thought,
    phase_of,
    without_nulls,
)
from shepherd.wire.signature import signed
from shepherd.wire.tools import free_arguments, free_text
from shepherd.wire.values import BrokenAnswer, count_of, ended_call, index_in, object_at, objects_in, record_of, text_in

QUIRKS: Mapping[str, str] = {
    "developer": "system messages have the role developer",
    "summaries": "summaries of thoughts are asked for, where the client has no word about them; OpenAI shows them only "
    "to organisations that have proved who they are",
    "encrypted_reasoning": "thoughts come encrypted although the model has no setting for them",
    "text_outputs": "results of calls are texts: their images follow in a message of the user",
    "no_cache_key": "prompt_cache_key is refused",
}

LEAST_OUTPUT = 16
"""OpenAI refuses a smaller limit of tokens."""
_ID_BYTES = 64
_ENCRYPTED = "reasoning.encrypted_content"
_OWN_TOOLS = ("function", "custom", "namespace")


# ---- the request


def encode_request(request: Request, endpoint: Endpoint) -> Json:
    """As `ClientCodec`. Stop strings and grammars are refused: the protocol has neither."""
    check_messages(request)
    if request.stop and "stop" not in endpoint.refuses:
        message = f"stop strings cannot be sent to {endpoint.origin}: its protocol has none; leave stop out"
        raise Unsupported(message, field="stop")
    if request.grammar is not None:
        message = "a grammar cannot be sent to this provider; send a JSON schema, or use a model of this machine"
        raise Unsupported(message, field="grammar")
    native = native_of(request, PROTOCOL)
    thinks = bool(endpoint.thinks_by or endpoint.efforts or "encrypted_reasoning" in endpoint.quirks)
    asked = [each for each in native.get("include") or () if isinstance(each, str)]
    if thinks and _ENCRYPTED not in asked:
        asked.append(_ENCRYPTED)
    if request.logprobs is not None and "message.output_text.logprobs" not in asked:
        asked.append("message.output_text.logprobs")
    limit = limit_for(request, endpoint)
    own = {
        **_prompt(request, endpoint),
        "max_output_tokens": None if limit is None else max(limit, LEAST_OUTPUT),
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "top_logprobs": request.logprobs or None,
        "include": asked or None,
        "prompt_cache_key": None if "no_cache_key" in endpoint.quirks else shared_fields.cache_key(request, PROTOCOL),
        "store": False,
        "stream": True,
    }
    return shared_fields.assembled(own, request, endpoint, PROTOCOL, WORDS)


def encode_count(request: Request, endpoint: Endpoint) -> Json:
    body = _prompt(request, endpoint)
    return {key: value for key, value in body.items() if value is not None and key not in endpoint.refuses}


def decode_count(body: Json) -> int:
    return count_of(body, "input_tokens", "answer")


def _prompt(request: Request, endpoint: Endpoint) -> Json:
    """What the tokens of the prompt depend on."""
    native = native_of(request, PROTOCOL)
    free = frozenset(text_in(tool, "name") for tool in _native_tools(native, "custom"))
    return {
        "model": endpoint.model,
        "input": [*_items(request.messages, endpoint, free), *_trigger(request)],
        **_tools(request, native, free),
        "reasoning": _thinking(request, endpoint, native) or None,
        "text": _form(request, native) or None,
    }


def _trigger(request: Request) -> Iterator[Json]:
    """What asks the provider for a compaction, and for no answer."""
    if any(edit.pause and edit.kind == "compact" for edit in request.edits):
        yield {"type": "compaction_trigger"}


def _items(messages: Sequence[Message], endpoint: Endpoint, free: frozenset[str]) -> Iterator[Json]:
    """`free`: tools that take a text."""
    system = "developer" if "developer" in endpoint.quirks else "system"
    names: dict[str, str] = {}
    for message in for_provider(messages, PROTOCOL, endpoint):
        match message.role:
            case "system":
                yield from _kept(message.parts)
                yield {"type": "message", "role": system, "content": message.text}
            case "user":
                yield from _of_user(message.parts, endpoint)
            case "assistant":
                names |= {call.id: call.name for call in message.calls}
                yield from _answer(message, free)
            case "tool":
                yield from _results(message, endpoint, {id for id, name in names.items() if name in free})


def _kept(parts: Sequence[Part]) -> list[Json]:
    """The items that stand beside a message."""
    kept = (part for part in parts if isinstance(part, Opaque) and not is_part(part))
    return [item for part in kept if (item := parse_object(part.body))]


def _of_user(parts: Sequence[Part], endpoint: Endpoint) -> Iterator[Json]:
    kept = _kept(parts)
    content: Any = [_part(part, endpoint) for part in parts if not isinstance(part, Opaque) or is_part(part)]
    yield from kept
    if all(part["type"] == "input_text" for part in content):
        content = "\n".join(part["text"] for part in content)
    if content or not kept:
        yield {"type": "message", "role": "user", "content": content}


def _answer(message: Message, free: frozenset[str]) -> Iterator[Json]:
    """The items of an answer. A thought without an item behind it is left out: the provider refuses it."""
    thoughts: list[Json] = []
    phase: str | None = None
    for part in message.parts:
        item: Json | None = None
        match part:
            case Reasoning(signature=signature):
                if (thought := own_thought(signature)) is not None:
                    thoughts.append(thought)
            case Opaque():
                if (facts := facts_in(part)) is None:
                    item = parse_object(part.body)
                else:
                    phase = text_in(facts, "phase")
            case Text(text):
                item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
                if phase:
                    item["phase"] = phase
                phase = None
            case ToolCall():
                item = _call(part, free)
        if item:
            yield from thoughts
            yield item
            thoughts = []


def _call(call: ToolCall, free: frozenset[str]) -> Json:
    head = {"call_id": shared_fields.short_id(call.id, _ID_BYTES), "name": call.name}
    if call.name in free:
        return {"type": "custom_tool_call", **head, "input": free_text(call.arguments)}
    return {"type": "function_call", **head, "arguments": call.arguments}


def _results(message: Message, endpoint: Endpoint, free: set[str]) -> Iterator[Json]:
    """The results; `free`: calls that had a text."""
    images: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            yield from _kept((part,))
            continue
        kind = "custom_tool_call_output" if part.call_id in free else "function_call_output"
        has_images = any(isinstance(each, Image) for each in part.parts)
        if has_images and "text_outputs" in endpoint.quirks:
            images += (Text(f"Images of the result of {part.name or part.call_id}:"), *part.parts)
        output: Any = [_part(each, endpoint) for each in part.parts]
        if not has_images or "text_outputs" in endpoint.quirks:
            output = "\n".join(each.text for each in part.parts if isinstance(each, Text))
        yield {"type": kind, "call_id": shared_fields.short_id(part.call_id, _ID_BYTES), "output": output}
    if images:
        yield from _of_user(images, endpoint)


def _part(part: Part, endpoint: Endpoint) -> Json:
    match part:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image() if endpoint.sees_images:
            return {"type": "input_image", "image_url": shared_fields.url_of(part), "detail": part.detail or "auto"}
        case Opaque(body=body):
            return parse_object(body) or {}
        case Document(url=str(url)):
            return {"type": "input_file", "file_url": url}
        case Document():
            url = shared_fields.data_url(part.media_type or "application/pdf", part.data)
            return {"type": "input_file", "filename": part.name, "file_data": url}
        case _:
            return {"type": "input_text", "text": shared_fields.UNSEEN}


def _native_tools(native: Mapping[str, Any], *kinds: str) -> list[Json]:
    """The client's tools of these types; of no types: those that only the provider can run."""
    tools = objects_in(native.get("tools"))
    if kinds:
        return [tool for tool in tools if tool.get("type") in kinds and "name" in tool]
    return [tool for tool in tools if tool.get("type", "function") not in _OWN_TOOLS]


def _tools(request: Request, native: Mapping[str, Any], free: frozenset[str]) -> Json:
    own = native_tools(request, PROTOCOL)
    tools: list[Json] = [
        {
            **besides(own.get(tool.name), ("type", "function", "format", "tools")),
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": shared_fields.parameters_of(tool),
            "strict": tool.strict,  # the protocol's own default is true
        }
        for tool in request.tools
        if tool.name not in free
    ]
    tools += _native_tools(native, "custom")
    tools += _native_tools(native)
    if not tools:
        return {}
    choice: Any = request.tool_choice
    if isinstance(choice, tuple):
        choice = {"type": "custom" if choice[1] in free else "function", "name": choice[1]}
    return {
        "tools": tools,
        "tool_choice": None if choice == "auto" else choice,
        "parallel_tool_calls": False if request.parallel_calls is False else None,
    }


def _thinking(request: Request, endpoint: Endpoint, native: Mapping[str, Any]) -> Json:
    if endpoint.thinks_by is None and not endpoint.efforts:
        return besides(native.get("reasoning"), ())
    if not endpoint.thinks_by and not endpoint.efforts:
        return {}
    given = native.get("reasoning")
    found = {key: value for key, value in given.items() if key != "effort"} if isinstance(given, dict) else {}
    if "summaries" in endpoint.quirks and request.reasoning != "off":
        found.setdefault("summary", "auto")
    effort = shared_fields.effort_for(request.reasoning, endpoint.efforts)
    return {**found, **({"effort": effort} if effort else {})}


def _form(request: Request, native: Mapping[str, Any]) -> Json:
    given = native.get("text")
    text = dict(given) if isinstance(given, dict) else {}
    if request.schema is not None and "format" not in text:
        text["format"] = shared_fields.json_form(request.schema)
    return text


# ---- the answer


class ResponsesDecoder(Decoder):
    def __init__(self, request: Request, endpoint: Endpoint) -> None:
        super().__init__(request, endpoint)
        self._model = ""
        self._is_over = self._has_refused = False
        self._n_calls = 0
        self._items: dict[Any, _Item] = {}
        self._call: _Item | None = None
        """The call that is being sent; records of other items wait for its end."""
        self._waiting: list[Json] = []
        self._last: Any = None
        self._speaker: _Item | None = None
        """The item that the last piece was of."""

    def _read(self, event: str, data: bytes) -> Iterator[Event]:
        if self._is_over:
            return
        if event == "error" and not data.startswith(b"{"):
            raise shared_fields.error_in(data)
        record = record_of(data)
        kind = text_in(record, "type") or event
        if kind == "error" or (not kind.startswith("response.") and record.get("error")):
            raise shared_fields.failure_of(record if record.get("error") else {"error": record})
        yield from self._take_event(kind, record)

    def _read_whole(self, body: Json) -> Iterator[Event]:
        yield from self._end(body)

    def _end_of_body(self) -> Iterator[Event]:
        if not self._is_over:
            raise BrokenAnswer("the answer ends before its end")
        return iter(())

    def _take_event(self, kind: str, record: Json) -> Iterator[Event]:
        match kind:
            case "response.created" | "response.in_progress" | "response.queued":
                # An error may still come: the answer begins with its first item.
                self._model = text_in(object_at(record, "response"), "model") or self._model
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                yield from self._end(object_at(record, "response"))
            case _ if "output_index" in record or "item" in record or "item_id" in record:
                key = self._key(record)
                if self._call is not None and self._items.get(key) is not self._call:
                    self._waiting.append(record)
                else:
                    yield from self._take_item(kind, record, key)

    def _key(self, record: Json) -> Any:
        """The item that a record is about, by its index, or by its id where a server counts none."""
        key: Any = index_in(record, "output_index")
        if key is None:
            key = text_in(record, "item_id") or text_in(object_at(record, "item"), "id") or self._last
        self._last = key
        return key

    def _take_item(self, kind: str, record: Json, key: Any) -> Iterator[Event]:
        yield from self._start(self._model)
        if key not in self._items and kind in _IMPLIED:  # a server that does not announce its items
            yield from self._add(key, {"type": _IMPLIED[kind], "id": record.get("item_id")})
        item = self._items.get(key)
        if kind.endswith(".delta"):
            if self._speaker not in (None, item):
                yield from self._speaker.end_thought()
            self._speaker = item
        match kind.removeprefix("response."):
            case "output_item.added":
                yield from self._add(key, object_at(record, "item"))
            case "output_item.done":
                yield from self._finish(key, object_at(record, "item"))
            case "output_text.delta" | "refusal.delta" if item is not None:
                self._has_refused |= kind == "response.refusal.delta"
                refused = kind == "response.refusal.delta"
                yield from item.say(text_in(record, "delta"), record.get("logprobs"), refused=refused)
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if item is not None:
                part = record.get("summary_index", record.get("content_index"))
                yield from item.think(text_in(record, "delta"), (kind, part))
            case "function_call_arguments.delta" if item is not None:
                yield from item.argue(text_in(record, "delta"))
            case "custom_tool_call_input.delta" if item is not None:
                item.free_text += text_in(record, "delta")
            case "output_text.done" | "refusal.done" | "function_call_arguments.done" if item is not None:
                yield from item.complete(record)  # a server that sends no pieces
            case _:
                pass  # what the item at its end has as well

    def _add(self, key: Any, given: Json) -> Iterator[Event]:
        if key in self._items:
            return
        item = self._items[key] = _Item(given, self._call_id_of(given))
        if item.id:
            self._items[item.id] = item  # some servers name an item by its id alone
        if item.kind == "message" and (phase := text_in(given, "phase")):
            yield OpaqueBlock(phase_of(phase))
        if item.kind == "function_call" and given.get("name") and text_in(given, "call_id") not in self._made_by_id:
            self._call = item  # else it may be the same call again: it waits for its end
            yield from item.begin_call()

    def _call_id_of(self, given: Json) -> str:
        """The id of a call: the provider's, where no other call has it."""
        if text_in(given, "type") not in _CALLS:
            return ""
        return self._unique(text_in(given, "call_id") or text_in(given, "id"))

    def _finish(self, key: Any, given: Json) -> Iterator[Event]:
        yield from self._add(key, given)
        item = self._items[key]
        if item.is_over:
            return
        item.is_over = True
        match item.kind:
            case "message":
                yield from self._finish_message(item, given)
            case "reasoning":
                yield from item.finish_thought(given)
            case "function_call" | "custom_tool_call":
                yield from self._finish_call(item, given)
            case _ if text_in(given, "type"):
                yield OpaqueBlock(Opaque(PROTOCOL, compact_json(given)))
            case _:
                pass  # an item without a type
        if item is self._call:
            self._call, waiting, self._waiting = None, self._waiting, []
            for record in waiting:
                yield from self._take_event(text_in(record, "type"), record)

    def _finish_call(self, item: _Item, given: Json) -> Iterator[Event]:
        id, name = text_in(item.given, "call_id"), text_in(item.given, "name") or text_in(given, "name")
        if not item.has_begun and self._is_made(id, name, item.complete_arguments(given)):
            return
        self._n_calls += 1
        yield from item.finish_call(given)
        self._note_made(id, name, item.arguments.text)

    def _finish_message(self, item: _Item, given: Json) -> Iterator[Event]:
        parts = objects_in(given.get("content"))
        self._has_refused |= any(part.get("type") == "refusal" for part in parts)
        texts = [text_in(part, "text") or text_in(part, "refusal") for part in parts]
        full = "".join(texts)
        n_sent = len(full) - len(item.rest(full))
        for part, text in zip(parts, texts, strict=True):
            rest, n_sent = text[n_sent:], max(0, n_sent - len(text))
            scores = part.get("logprobs") if rest == text else None
            yield from item.say(rest, scores, refused=part.get("type") == "refusal")
        if notes := [note for part in parts for note in objects_in(part.get("annotations"))]:
            yield OpaqueBlock(annotated(notes))

    def _end(self, response: Json) -> Iterator[Event]:
        status = text_in(response, "status")
        if status == "failed" or response.get("error"):
            raise shared_fields.failure_of({"error": response.get("error") or {"message": "the provider failed"}})
        output = response.get("output")
        if status in ("in_progress", "queued") or not (isinstance(output, list) or self._items):
            raise BrokenAnswer("the answer has no output")
        self._model = text_in(response, "model") or self._model
        yield from self._start(self._model)
        finals = self._finals(objects_in(output))
        while (call := self._call) is not None:
            key = next(key for key, item in self._items.items() if item is call)
            yield from self._finish(key, next((finals[at] for at in finals if self._items.get(at) is call), call.given))
        for key, item in finals.items():
            yield from self._finish(key, item)
        self._is_over = True
        own = kept(PROTOCOL, {**besides(response, _OURS), "usage": response.get("usage")})
        yield Finished(self._reason(status, response), shared_fields.usage_of(response.get("usage")), own=own)

    def _finals(self, output: list[Json]) -> dict[Any, Json]:
        """The items of the whole output, each by the key of the one that was streamed: gateways change ids, and leave
        out items, so that indexes change."""
        by_id = {id: key for key, item in self._items.items() for id in item.ids}
        said = {item.text: key for key, item in self._items.items() if item.kind == "message" and item.text}
        finals, taken = dict[Any, Json](), set[int]()
        for index, item in enumerate(output):
            texts = [text_in(part, "text") or text_in(part, "refusal") for part in objects_in(item.get("content"))]
            ids = {text_in(item, "call_id"), text_in(item, "id")} - {""}
            named = [index] if index in self._items and self._items[index].ids & ids else map(by_id.get, ids)
            places = (*named, index, said.get("".join(texts)))
            streamed = ((key, self._items[key]) for key in places if key in self._items)
            kinds = (text_in(item, "type"), "")
            key = next((key for key, each in streamed if each.kind in kinds and id(each) not in taken), None)
            if key is not None:
                taken.add(id(self._items[key]))
            finals[key if key is not None else ("behind", index) if index in self._items else index] = item
        return finals

    def _reason(self, status: str, response: Json) -> StopReason:
        if status == "incomplete":
            why = word_of(object_at(response, "incomplete_details").get("reason"))
            ending = self._ending(why, has_answer=True)
            return ending if ending == "filtered" else "length"
        if status not in ("completed", ""):
            return self._ending(status, has_answer=True)
        return "tool_calls" if self._n_calls else "filtered" if self._has_refused else "end"


_OURS = frozenset({
    "id", "object", "created_at", "completed_at", "error", "model", "output", "usage",
    "output_text", "instructions", "tools", "tool_choice", "parallel_tool_calls", "previous_response_id",
    "store", "metadata", "user", "prompt_cache_key", "safety_identifier", "background", "max_output_tokens",
    "truncation", "conversation", "prompt", "prompt_progress", "timings",
})  # fmt: skip
"""Fields of an answer that our own server fills: from events, or from the body of its client."""
_IMPLIED: Mapping[str, str] = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
"""The items that pieces of text belong to."""


_CALLS = ("function_call", "custom_tool_call")


class _Item:
    """One item of the output: what has been sent of it."""

    def __init__(self, given: Json, call_id: str) -> None:
        self.given = given
        self.kind = text_in(given, "type")
        self.id = text_in(given, "id")
        self.ids = {self.id, text_in(given, "call_id")} - {""}
        self.is_over = False
        self._texts: list[str] = []
        self.arguments = Arguments()
        self.free_text = ""
        """The input so far, of a tool that takes a text."""
        self._part: Any = None
        """The part that the last piece of a thought belongs to."""
        self._call_id = call_id
        self.has_begun = False

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def rest(self, full: str) -> str:
        """What of a text has not been sent; nothing where the two differ."""
        sent = "".join(self._texts)
        return full[len(sent) :] if full.startswith(sent) else ""

    def say(self, text: str, logprobs: Any, *, refused: bool) -> Iterator[Event]:
        if text:
            self._texts.append(text)
            yield TextDelta(text, shared_fields.scores_of(logprobs), refused=refused)

    def complete(self, record: Json) -> Iterator[Event]:
        """The whole text of a part, or all arguments, of which nothing or less may have come."""
        if self.kind == "function_call":
            yield from self.argue(self._unsent(shared_fields.arguments_in(record.get("arguments"))))
        elif not self._texts:
            refusal = text_in(record, "refusal")
            yield from self.say(text_in(record, "text") or refusal, record.get("logprobs"), refused=bool(refusal))

    def think(self, text: str, part: Any) -> Iterator[Event]:
        if not text or (self._part is not None and part[0] != self._part[0]):
            return  # the provider writes a thought and its summary: one of them
        if self._part is not None and part != self._part:
            text = f"\n\n{text}"
        self._part = part
        self._texts.append(text)
        yield ReasoningDelta(text, id="" if part[0] == "response.reasoning_text.delta" else self.id)

    def end_thought(self) -> Iterator[Event]:
        """End an open thought, since what it leads to begins: LM Studio ends it behind that."""
        if self.id and not self.is_over and self._part and self._part[0] == "response.reasoning_text.delta":
            self.is_over = True
            content = [{"type": "reasoning_text", "text": "".join(self._texts)}]
            yield from self.finish_thought({**besides(self.given, ("status",)), "content": content})

    def finish_thought(self, given: Json) -> Iterator[Event]:
        content = "".join(text_in(part, "text") for part in objects_in(given.get("content")))
        summary = "\n\n".join(text_in(part, "text") for part in objects_in(given.get("summary")))
        rest = self.rest(summary or content)
        is_sealed = bool(given.get("encrypted_content"))
        if is_sealed or content:
            proof = signed(PROTOCOL, compact_json(without_nulls(given)))
            is_hidden = not rest and not self._texts
            yield ReasoningDelta(rest, proof, redacted=is_hidden, id=self.id if is_sealed else "")
        elif rest:
            yield ReasoningDelta(rest, id=self.id)

    def begin_call(self) -> Iterator[Event]:
        self.has_begun = True
        yield CallStarted(self._call_id, text_in(self.given, "name"))

    def argue(self, text: str) -> Iterator[Event]:
        if text and self.kind == "function_call" and not self.is_over:
            self.arguments.add(text)
            if self.has_begun and (ready := self.arguments.ready()):
                yield CallDelta(ready)

    def complete_arguments(self, given: Json) -> str:
        """All arguments, with what only the end of the item has."""
        full = shared_fields.arguments_in(given.get("arguments"))
        if self.kind == "custom_tool_call":
            full = free_arguments(text_in(given, "input") or self.free_text)
        self.arguments.add(self._unsent(full))
        return self.arguments.text

    def finish_call(self, given: Json) -> Iterator[Event]:
        self.given = {**given, **besides(self.given, [] if text_in(self.given, "name") else ["name"])}
        if not self.has_begun:
            yield from self.begin_call()
        self.complete_arguments(given)
        if rest := self.arguments.end():
            yield CallDelta(rest)
        yield CallEnded(ended_call(self._call_id, text_in(self.given, "name"), self.arguments.text))

    def _unsent(self, full: str) -> str:
        came = self.arguments.text
        return full[len(came) :] if full.startswith(came) else ""


decoder = ResponsesDecoder
