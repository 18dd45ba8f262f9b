"""The client half of Gemini's protocol: a request to a body, the chunks of an answer to events.

    chunk := candidates[0].content.parts*  finishReason?  usageMetadata        the end of the body is the end

A `thoughtSignature` goes back on the very part it stood on: on a call as `ToolCall.signature`, on a thought as
`Reasoning.signature`, on text as an opaque block right behind it. Source: Google's API reference (generateContent,
thinking, thought signatures, function calling).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from shepherd.core import (
    Audio,
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
    Unsupported,
    Usage,
)
from shepherd.core.messages import leading_systems
from shepherd.wire.base import Json, compact_json
from shepherd.wire.client import AnswerDecoder, Choices, Endpoint, Failure, alternating, check_messages, limit_for
from shepherd.wire.ending import word_of
from shepherd.wire.history import for_provider
from shepherd.wire.signature import raw_for, signed
from shepherd.wire.values import BrokenAnswer, count_in, count_of, object_at, object_of, objects_in, text_in

PROTOCOL: Final = "gemini"

NO_SIGNATURE = "skip_thought_signature_validator"
"""For calls that another model made: Google's documentation names it for histories that are moved over."""
MAX_STOPS = 5
_OUR_ID = "call_g"
"""How ids begin that we gave to calls without one; the API does not get them back."""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576, "max": 24_576}
_LEAST_BUDGET = 128
"""Of the models that cannot be without thoughts."""


_SOUNDS = {
    "audio/mpeg": "audio/mp3",
    **{kind: kind for kind in ("audio/wav", "audio/mp3", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac")},
}
"""Google's words for the media types of recordings. Source: its page on audio understanding."""


# ---- the body


def encode_request(request: Request, endpoint: Endpoint) -> Json:
    """The body. Raises: `Unsupported` for a bare prompt, a grammar, an image that is only an address, and for more
    than five stop strings."""
    check_messages(request, "Gemini's models follow no grammar; send a JSON schema")
    if len(request.stop) > MAX_STOPS:
        raise Unsupported(f"Gemini accepts at most {MAX_STOPS} stop strings, not {len(request.stop)}", field="stop")
    body = _prompt(request, endpoint)
    if config := _generation(request, endpoint):
        body["generationConfig"] = config
    return {**body, **endpoint.options}


def encode_count(request: Request, endpoint: Endpoint) -> Json:
    name = endpoint.model if "/" in endpoint.model else f"models/{endpoint.model}"
    return {"generateContentRequest": {"model": name, **_prompt(request, endpoint)}}


def decode_count(body: Json) -> int:
    return count_of(body, "totalTokens")


def _prompt(request: Request, endpoint: Endpoint) -> Json:
    messages = for_provider(request.messages, PROTOCOL, endpoint, _SOUNDS.keys())
    n_system = leading_systems(messages)
    body: Json = {}
    if system := "\n\n".join(filter(str.strip, (message.text for message in messages[:n_system]))):
        body["systemInstruction"] = {"parts": [{"text": system}]}
    body["contents"] = _contents(messages[n_system:], endpoint)
    if request.tools:
        declared = []
        for tool in request.tools:
            made: Json = {"name": tool.name, "description": tool.description}
            schema = accepted(tool.parameters)
            if schema.get("properties") or schema.keys() - {"type", "properties", "additionalProperties", "required"}:
                made["parametersJsonSchema"] = schema
            declared.append({key: value for key, value in made.items() if value})
        body["tools"] = [{"functionDeclarations": declared}]
        if mode := _mode(request):
            body["toolConfig"] = {"functionCallingConfig": mode}
    return body


def _mode(request: Request) -> Json:
    match request.tool_choice:
        case "none":
            return {"mode": "NONE"}
        case "required":
            return {"mode": "ANY"}
        case ("named", name):
            return {"mode": "ANY", "allowedFunctionNames": [name]}
        case _:
            return {}


def _contents(messages: Sequence[Message], endpoint: Endpoint) -> list[Json]:
    sent_ids: set[str] = set()
    turns = (
        ("model" if message.role == "assistant" else "user", _parts(message, endpoint, sent_ids))
        for message in messages
    )
    return alternating(turns, "parts")


def _parts(message: Message, endpoint: Endpoint, sent_ids: set[str]) -> list[Json]:
    made: list[Json] = []
    # The API demands one on the first call of each answer behind the last question. Other models' answers before it
    # have one, too: the bytes stay the same when a question follows.
    needs_signature = endpoint.thinks_by == "level" and message.origin != endpoint.origin
    knows_ids = message.origin == endpoint.origin or any(
        isinstance(part, ToolCall) and part.signature is not None for part in message.parts
    )
    is_own = message.origin in (None, endpoint.origin)
    for part in message.parts:
        match part:
            case ToolCall(id=id, name=name, arguments=arguments, signature=signature):
                call: Json = {"name": name, "args": object_of(arguments)}
                if knows_ids and not id.startswith(_OUR_ID):
                    call["id"] = id
                    sent_ids.add(id)
                raw = raw_for(PROTOCOL, signature) or (NO_SIGNATURE if needs_signature else None)
                made.append({"functionCall": call} | ({"thoughtSignature": raw} if raw else {}))
                needs_signature = False
            case Opaque(body=body):
                block = dict(json.loads(body))
                if block.keys() != {"thoughtSignature"}:
                    made.append(block)
                elif is_own and made and "text" in made[-1]:
                    made[-1] |= block
            case _:
                made += _plain_parts(part, sent_ids)
    return made


def _plain_parts(part: Part, sent_ids: set[str]) -> Iterator[Json]:
    match part:
        case Text(text=text):
            if text:
                yield {"text": text}
        case Reasoning(text=text, signature=signature):
            if raw := raw_for(PROTOCOL, signature):
                yield {"text": text, "thought": True, "thoughtSignature": raw}
        case Image(data=bytes() as data, media_type=kind):
            yield _inline(data, kind or "image/png")
        case Audio(data=data, media_type=kind):
            yield _inline(data, _SOUNDS[kind])
        case Document(data=bytes() as data, media_type=kind):
            yield _inline(data, kind or "application/pdf")
        case Image() | Document():
            raise Unsupported(
                "Gemini reads no image or document by its address; send its content in base64", field="messages"
            )
        case ToolResult(call_id=id, name=name, parts=inner, is_error=is_error):
            text = "".join(each.text for each in inner if isinstance(each, Text))
            answer: Json = {"name": name, "response": {"error" if is_error else "output": text}}
            yield {"functionResponse": answer | ({"id": id} if id in sent_ids else {})}
            for each in inner:
                if not isinstance(each, Text):
                    yield from _plain_parts(each, sent_ids)
        case _:
            pass


def _inline(data: bytes, media_type: str) -> Json:
    return {"inlineData": {"mimeType": media_type, "data": base64.b64encode(data).decode("ascii")}}


def _generation(request: Request, endpoint: Endpoint) -> Json:
    sampling = request.sampling
    made: Json = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k or None,
        "seed": sampling.seed,
        "presencePenalty": sampling.presence_penalty,
        "frequencyPenalty": sampling.frequency_penalty,
        "maxOutputTokens": limit_for(request, endpoint),
        "stopSequences": list(request.stop) or None,
        "thinkingConfig": _thinking(request, endpoint) or None,
    }
    if request.schema is not None:
        made |= {"responseMimeType": "application/json", "responseJsonSchema": accepted(request.schema)}
    return {key: value for key, value in made.items() if value is not None and key not in endpoint.refuses}


def _thinking(request: Request, endpoint: Endpoint) -> Json:
    level = request.reasoning
    if endpoint.thinks_by not in ("budget", "level"):
        return {}
    if level == "off":
        if endpoint.thinks_by == "level":
            return {"thinkingLevel": "minimal" if "minimal" in endpoint.efforts else "low"}
        return {"thinkingBudget": 0 if "none" in endpoint.efforts else _LEAST_BUDGET}
    made: Json = {"includeThoughts": True}
    if level in _BUDGETS:
        named = "high" if level == "max" else level
        made |= {"thinkingBudget": _BUDGETS[level]} if endpoint.thinks_by == "budget" else {"thinkingLevel": named}
    return made


# ---- the answer


class GeminiDecoder(AnswerDecoder):
    id_prefix = _OUR_ID

    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(request, endpoint, new_id)
        self._has_call = self._has_text = False
        self._reason = self._details = ""
        self._usage = Usage()
        self._choices = Choices("finishReason")

    def _read_whole(self, body: Any) -> Iterator[Event]:
        """One chunk, or an array of them: the API's form of a stream where SSE is not asked for."""
        for chunk in body if isinstance(body, list) else (body,):
            if not isinstance(chunk, dict):
                raise BrokenAnswer("a chunk is no JSON object")
            yield from self._take(chunk)
        yield from self._end_of_body()

    def _end_of_body(self) -> Iterator[Event]:
        yield from self._take_candidates(self._choices.rest())
        if not self._reason:
            raise BrokenAnswer("the answer ended before its finishReason")
        reason = self._ending(self._reason, has_answer=self._has_text, details=self._details)
        if reason in ("end", "stop", "tool_calls"):
            reason = "tool_calls" if self._has_call else "end"
        yield Finished(reason, self._usage)

    def _take(self, chunk: Json) -> Iterator[Event]:
        if "error" in chunk:
            raise Failure(chunk)
        self._note(chunk.get("usageMetadata"))
        yield from self._start(text_in(chunk, "modelVersion"), Usage(self._usage.input, self._usage.cache_read))
        candidates = chunk.get("candidates")
        if isinstance(candidates, list) and len(objects_in(candidates)) < len(candidates):
            raise BrokenAnswer("a candidate is no JSON object")
        yield from self._take_candidates(self._choices.take(objects_in(candidates)))
        if isinstance(blocked := chunk.get("promptFeedback"), dict) and blocked.get("blockReason"):
            self._reason = self._reason or "SAFETY"

    def _take_candidates(self, candidates: list[Json]) -> Iterator[Event]:
        for candidate in candidates:
            parts = object_at(candidate, "content").get("parts")
            parts = parts if isinstance(parts, list) else []
            if len(objects_in(parts)) < len(parts):
                raise BrokenAnswer("a part is no JSON object")
            if self._are_made([_call_in(each) for each in parts if isinstance(each.get("functionCall"), dict)]):
                parts = [each for each in parts if not isinstance(each.get("functionCall"), dict)]
            for part in parts:
                yield from self._part(part)
            if word := word_of(candidate.get("finishReason")):
                self._reason, self._details = word, text_in(candidate, "finishMessage")

    def _part(self, part: Json) -> Iterator[Event]:
        signature = text_in(part, "thoughtSignature")
        text = part.get("text")
        if isinstance(part.get("functionCall"), dict):
            self._has_call = self._has_text = True
            proof = signed(PROTOCOL, signature) if signature else None
            yield from self._whole_call(*_call_in(part), proof)
        elif isinstance(text, str) and part.get("thought") is True:
            if text or signature:
                yield ReasoningDelta(text, signed(PROTOCOL, signature) if signature else None)
        elif isinstance(text, str):
            if text:
                self._has_text = True
                yield TextDelta(text)
            if signature:
                kept = {"thoughtSignature": signature} if text else {"text": "", "thoughtSignature": signature}
                yield OpaqueBlock(Opaque(PROTOCOL, json.dumps(kept)))
        elif part:
            yield OpaqueBlock(Opaque(PROTOCOL, json.dumps(part, ensure_ascii=False), tuple(_in_words(part))))

    def _note(self, counts: Any) -> None:
        """Each chunk counts all so far."""
        if not isinstance(counts, dict):
            return
        cached, thoughts = count_in(counts, "cachedContentTokenCount"), count_in(counts, "thoughtsTokenCount")
        prompt = count_in(counts, "promptTokenCount") + count_in(counts, "toolUsePromptTokenCount")
        self._usage = Usage(
            input=max(0, prompt - cached),
            cache_read=cached,
            output=count_in(counts, "candidatesTokenCount") + thoughts,
            reasoning=thoughts,
        )


def _call_in(part: Json) -> tuple[str, str, str]:
    """The id, the name and the arguments of a call."""
    call = part["functionCall"]
    return text_in(call, "id"), text_in(call, "name"), compact_json({} if call.get("args") is None else call["args"])


def _in_words(part: Json) -> Iterator[Text]:
    """What another model reads of a part that only Gemini has."""
    match part:
        case {"executableCode": {"code": str(code)}}:
            yield Text(f"\n[code that was run]\n{code}\n")
        case {"codeExecutionResult": {"output": str(output)}}:
            yield Text(f"\n[its output]\n{output}\n")
        case {"inlineData": {"mimeType": str(kind)}}:
            yield Text(f"[{kind}; it cannot be shown here]")


decoder = GeminiDecoder


# -- the schemas that the API accepts ---------------------------------------------------------------------------------


_DROPPED = frozenset({
    "$schema", "$id", "$comment", "title", "examples", "discriminator", "exclusiveMinimum", "exclusiveMaximum",
    "default", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keywords whose members are names, not keywords."""
_FORMATS = frozenset({"date-time", "date", "time", "duration", "enum"})
"""Of strings; the API refuses others."""


def accepted(schema: Mapping[str, Any]) -> Json:
    """The schema without what the API refuses; what words can express goes into the description."""
    made: Json = {}
    notes: list[str] = []
    for key, value in schema.items():
        if key in _DROPPED:
            continue
        if key == "const":
            made["enum"] = [value]
        elif key == "format" and schema.get("type") == "string" and value not in _FORMATS:
            notes.append(f"format: {value}")
        elif key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _inside(each) for name, each in value.items()}
        elif key in ("enum", "required"):
            made[key] = value
        else:
            made[key] = _inside(value)
    if made.get("type") == "array":
        made.setdefault("items", {})
    if notes:
        made["description"] = " ".join(filter(None, (made.get("description"), f"({', '.join(notes)})")))
    return made


def _inside(value: Any) -> Any:
    match value:
        case Mapping():
            return accepted(value)
        case list():
            return [_inside(each) for each in value]
        case _:
            return value
