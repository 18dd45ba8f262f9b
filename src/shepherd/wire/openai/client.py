"""The client half of the chat protocol, `POST /chat/completions`, which nearly every server speaks in its own way.

    Request ─ encode_request ─▶ body ─▶ provider ─ chunks ─▶ decoder ─▶ events
                ├ messages, tools             ├ text, thoughts   as they come
                └ quirks: what differs        └ calls            one after the other, each whole at its end

The body has only fields that the provider understands. The decoder takes everything: thoughts under any name,
calls without ids, indexes or an end, content as a list, a stream without `[DONE]`, an error in any place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

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
    StopReason,
    Text,
    TextDelta,
    TokenScore,
    ToolCall,
    ToolResult,
    ToolSpec,
    Unsupported,
    Usage,
)
from shepherd.core.messages import leading_systems
from shepherd.wire.base import Fields, Json
from shepherd.wire.client import AnswerDecoder, Choices, Endpoint, check_messages, limit_for, native_of, native_tools
from shepherd.wire.ending import ending_of, word_of
from shepherd.wire.extensions import besides, facts_of, kept, merge_facts
from shepherd.wire.history import for_provider
from shepherd.wire.openai import shared_fields
from shepherd.wire.openai.call_decoder import Calls
from shepherd.wire.openai.chat import FIELDS
from shepherd.wire.openai.messages import is_hosted
from shepherd.wire.openai.signatures import (
    PROTOCOL,
    decode_beside,
    decode_details,
    encode_beside,
    encode_details,
    encode_extra,
)
from shepherd.wire.sampling import LORA
from shepherd.wire.speculation import PREDICTION
from shepherd.wire.tools import free_text
from shepherd.wire.values import BrokenAnswer, object_at, objects_in, record_of, text_in, texts_in

QUIRKS: Mapping[str, str] = {
    "flac": "recordings may be FLAC files, not WAV and MP3 only",
    "audio_text": "a recording is a text in base64, without its format",
    "developer": "system messages have the role developer",
    "one_system": "there is one system message, the first; later ones are the user's",
    "max_completion_tokens": "the limit of tokens has this name, in place of max_tokens",
    "no_stream_options": "stream_options is refused; the token counts come anyway, or never",
    "cache_key": "prompt_cache_key is understood: the session",
    "reasoning_content": "thoughts of earlier answers go back in this field of their message",
    "reasoning": "the same in this field",
    "thinking_parts": "the same as parts of the content (Mistral)",
    "thinking_object": "thoughts are switched by an object `thinking` with a type, not by the template's arguments",
    "template_arguments": "chat_template_kwargs is understood: what the client sends goes on",
    "samplers": "the sampling parameters of open servers are understood, under our names",
    "repeat_penalty": "repetition_penalty has this name (llama.cpp)",
    "grammars": "grammar (GBNF) and structured_outputs (regex, lark) are understood",
    "continues": "the answer can continue the last message: continue_final_message",
    "custom_tools": "tools of type custom are understood, and go on as the client wrote them; else they are functions",
    "extra_content": "calls and messages have this field for proofs: Gemini's, that a client sends, go on in it",
    "short_ids": "ids of calls are 9 letters and digits (Mistral)",
    "file_urls": "a file part may hold an address (OpenRouter)",
    "document_urls": "documents are parts with an address (Mistral)",
}
"""How servers depart from the protocol, for `Endpoint.quirks`. That xAI counts thoughts besides the completion needs no
word: the total shows it."""


# ---- the request


def encode_request(request: Request, endpoint: Endpoint) -> Json:
    check_messages(request)
    quirks, free = endpoint.quirks, _custom_tools(request, endpoint)
    limit = limit_for(request, endpoint)
    own: Json = {
        "model": endpoint.model,
        "messages": list(_messages(request.messages, endpoint, free)),
        **_tools(request, free),
        "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens": limit,
        **_sampling(request, quirks),
        "stop": list(request.stop) or None,
        **_form(request, quirks),
        **_thinking(request, endpoint),
        "logprobs": True if request.logprobs is not None else None,
        "top_logprobs": request.logprobs or None,
        "prompt_cache_key": shared_fields.cache_key(request, PROTOCOL) if "cache_key" in quirks else None,
        "modalities": native_of(request, PROTOCOL).get("modalities"),
        "stream": True,
        "stream_options": None if "no_stream_options" in quirks else {"include_usage": True},
    }
    if "continues" in quirks and _continues(request):
        own |= {"continue_final_message": True, "add_generation_prompt": False}
    return shared_fields.assembled(own, request, endpoint, PROTOCOL, _WORDS)


_KEPT = (LORA, PREDICTION)
"""Fields that a provider gets as they came: they are about its own model."""
_WORDS = frozenset(name for field in FIELDS if field not in _KEPT for name in (field.name, *field.also)) | {
    "messages", "functions", "function_call", "input", "instructions", "structured_outputs", "grammar", "json_schema",
    "grammar_lazy", "guided_json", "guided_json_object", "guided_regex", "guided_choice", "guided_grammar",
    "guided_structural_tag",
}  # fmt: skip
"""Fields of a body that `Request` has words for."""
_SAMPLING = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
_SAMPLERS = (
    "top_k", "min_p", "typical_p", "top_n_sigma", "repetition_penalty", "repeat_last_n", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_probability", "xtc_threshold",
    "mirostat", "mirostat_tau", "mirostat_eta", "ignore_eos",
)  # fmt: skip
_ID_BYTES = 40
"""OpenAI's longest id of a call."""


def _continues(request: Request) -> bool:
    """Whether the answer continues the last message."""
    last = request.messages[-1] if request.messages else None
    is_open = last is not None and last.role == "assistant" and not last.calls and bool(last.text)
    return is_open and request.start in (None, "text")


def _custom_tools(request: Request, endpoint: Endpoint) -> Mapping[str, Json]:
    """The client's tools of type custom, by name, where the provider has such tools."""
    if "custom_tools" not in endpoint.quirks:
        return {}
    named: dict[str, Json] = {}
    for tool in objects_in(native_of(request, PROTOCOL).get("tools")):
        if tool.get("type") == "custom":
            custom = object_at(tool, "custom") or {key: value for key, value in tool.items() if key != "type"}
            named[text_in(custom, "name")] = {"type": "custom", "custom": custom}
    return {tool.name: named[tool.name] for tool in request.tools if tool.name in named}


def _messages(messages: Sequence[Message], endpoint: Endpoint, free: Collection[str]) -> Iterator[Json]:
    """`free`: tools whose calls are a text."""
    quirks = endpoint.quirks
    role = "developer" if "developer" in quirks else "system"
    history = for_provider(messages, PROTOCOL, endpoint, _formats(quirks).keys())
    n_first = leading_systems(history)
    if "one_system" in quirks and n_first:
        yield {"role": role, "content": "\n\n".join(message.text for message in history[:n_first])}
        history = history[n_first:]
    for message in history:
        match message.role:
            case "system":
                yield {"role": "user" if "one_system" in quirks else role, "content": message.text}
            case "user":
                yield {"role": "user", "content": _content(message.parts, endpoint)}
            case "assistant":
                yield from _answer(message, quirks, free)
            case "tool":
                yield from _results(message, endpoint)


def _answer(message: Message, quirks: frozenset[str], free: Collection[str]) -> Iterator[Json]:
    """An answer; none of one that holds thoughts at most, which providers refuse."""
    content: Any = message.text or None
    calls = [_call(call, quirks, free) for call in message.calls]
    voice = next((facts_of(PROTOCOL, part).get("audio") for part in message.parts if isinstance(part, Opaque)), None)
    if content is None and not calls and not voice:
        return
    if "thinking_parts" in quirks and message.reasoning:
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": message.reasoning}]}
        content = [thought, *([{"type": "text", "text": content}] if content else ())]
    body: Json = {"role": "assistant", "content": content}
    for field in ("reasoning_content", "reasoning"):
        if field in quirks and message.reasoning:
            body[field] = message.reasoning
    if details := [
        each for part in message.parts if isinstance(part, Reasoning) for each in decode_details(part.signature)
    ]:
        body["reasoning_details"] = details
    if isinstance(voice, dict) and "id" in voice:
        body["audio"] = {"id": voice["id"]}
    for part in message.parts:
        if isinstance(part, Reasoning) and (extra := decode_beside(part.signature)):
            body["extra_content"] = extra
    yield body | ({"tool_calls": calls} if calls else {})


def _call(call: ToolCall, quirks: frozenset[str], free: Collection[str]) -> Json:
    kind, key = ("custom", "input") if call.name in free else ("function", "arguments")
    text = free_text(call.arguments) if call.name in free else call.arguments
    body: Json = {"id": _id(call.id, quirks), "type": kind, kind: {"name": call.name, key: text}}
    if call.signature is not None:
        body["extra_content"] = encode_extra(call.signature)
    return body


def _id(id: str, quirks: frozenset[str]) -> str:
    if "short_ids" not in quirks:
        return shared_fields.short_id(id, _ID_BYTES)
    return id if len(id) == 9 and id.isascii() and id.isalnum() else shared_fields.hashed(id, 9)


def _results(message: Message, endpoint: Endpoint) -> Iterator[Json]:
    """The results, and behind the last a message with their images and recordings, which no result has a place for."""
    others: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            texts = [each.text for each in part.parts if isinstance(each, Text)]
            seen = [each for each in part.parts if not isinstance(each, Text)]
            if seen:
                one, many = _NAMES[isinstance(seen[0], Audio)]
                texts = texts or [f"The result is {one}; it follows."]
                others += (Text(f"{many} of the result of {part.name or part.call_id}:"), *seen)
            yield {"role": "tool", "tool_call_id": _id(part.call_id, endpoint.quirks), "content": "\n".join(texts)}
    if others:
        yield {"role": "user", "content": _content(others, endpoint)}


_NAMES = (("an image", "Images"), ("a recording", "Recordings"))


def _content(parts: Sequence[Part], endpoint: Endpoint) -> str | list[Json]:
    """A text where there are only texts: not every server takes parts."""
    found = [_part(part, endpoint) for part in parts]
    if all(part["type"] == "text" for part in found):
        return "\n".join(part["text"] for part in found)
    return found


def _part(part: Part, endpoint: Endpoint) -> Json:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image() if endpoint.sees_images:
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": shared_fields.url_of(part), **detail}}
        case Audio():
            return _recording(part, endpoint.quirks)
        case Opaque():
            return facts_of(PROTOCOL, part)
        case Document():
            return _document(part, endpoint.quirks)
        case _:
            return {"type": "text", "text": shared_fields.UNSEEN}


def _formats(quirks: frozenset[str]) -> Mapping[str, str]:
    """The words for the media types of recordings that the server takes."""
    return {"audio/wav": "wav", "audio/mpeg": "mp3", **({"audio/flac": "flac"} if "flac" in quirks else {})}


def _recording(part: Audio, quirks: frozenset[str]) -> Json:
    data: Any = base64.b64encode(part.data).decode("ascii")
    if "audio_text" not in quirks:
        data = {"data": data, "format": _formats(quirks)[part.media_type]}
    return {"type": "input_audio", "input_audio": data}


def _document(part: Document, quirks: frozenset[str]) -> Json:
    url = part.url or shared_fields.data_url(part.media_type or "application/pdf", part.data)
    if "document_urls" in quirks:
        return {"type": "document_url", "document_url": url, "document_name": part.name}
    if part.url is not None and "file_urls" not in quirks:
        return {"type": "text", "text": part.note}
    return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def _tools(request: Request, free: Mapping[str, Json]) -> Json:
    given = objects_in(native_of(request, PROTOCOL).get("tools"))
    hosted = [tool for tool in given if is_hosted(Fields(tool))]
    if not request.tools and not hosted:
        return {}
    choice: Any = request.tool_choice
    if isinstance(choice, tuple):
        kind = "custom" if choice[1] in free else "function"
        choice = {"type": kind, kind: {"name": choice[1]}}
    native = native_tools(request, PROTOCOL, "function")
    own = [free.get(tool.name) or _tool(tool, native.get(tool.name, {})) for tool in request.tools]
    return {
        "tools": [*own, *hosted],
        "tool_choice": None if choice == "auto" else choice,
        "parallel_tool_calls": False if request.parallel_calls is False else None,
    }


def _tool(tool: ToolSpec, native: Json) -> Json:
    inner = native.get("function")
    rest = besides(native, ("type", "function", "custom")) if isinstance(inner, dict) else {}
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": shared_fields.parameters_of(tool),
        **({"strict": True} if tool.strict else {}),
    }
    return {**rest, "type": "function", "function": besides(inner, function) | function}


def _sampling(request: Request, quirks: frozenset[str]) -> Json:
    sampling = request.sampling
    native = native_of(request, PROTOCOL)
    names = _SAMPLING + tuple(name for name in _SAMPLERS if "samplers" in quirks or name in native)
    values = {name: value for name in names if (value := getattr(sampling, name)) not in (None, -1)}
    if "repeat_penalty" in quirks and (penalty := values.pop("repetition_penalty", None)) is not None:
        values["repeat_penalty"] = penalty
    if sampling.logit_bias:
        values["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return values


def _form(request: Request, quirks: frozenset[str]) -> Json:
    """The form of the answer. Raises: `Unsupported` for a grammar that the provider cannot keep to."""
    if request.schema is not None:
        given = native_of(request, PROTOCOL).get("response_format")
        if isinstance(given, dict):
            return {"response_format": given}
        form = shared_fields.json_form(request.schema)
        kind = form.pop("type")
        return {"response_format": {"type": kind, **({kind: form} if form else {})}}
    if request.grammar is None:
        return {}
    if "grammars" not in quirks:
        message = "a grammar cannot be sent to this provider; send a JSON schema, or use a model of this machine"
        raise Unsupported(message, field="grammar")
    if request.grammar.kind == "gbnf":
        return {"grammar": request.grammar.text}
    return {"structured_outputs": {"regex" if request.grammar.kind == "regex" else "grammar": request.grammar.text}}


def _thinking(request: Request, endpoint: Endpoint) -> Json:
    quirks, level = endpoint.quirks, request.reasoning if endpoint.thinks_by else None
    native = native_of(request, PROTOCOL)
    if endpoint.thinks_by is None:
        return {key: native[key] for key in _SWITCHES if key in native}
    if endpoint.thinks_by and besides(native.get("reasoning"), ("effort", "enabled", "exclude")):  # OpenRouter's budget
        return {"reasoning": native["reasoning"]}
    body: Json = {}
    switches = dict(request.extra.get("chat_template_kwargs", {})) if "template_arguments" in quirks else {}
    if endpoint.thinks_by != "switch":
        body["reasoning_effort"] = shared_fields.effort_for(level, endpoint.efforts)
    elif level is not None and "thinking_object" in quirks:
        body["thinking"] = besides(native.get("thinking"), ()) | {"type": "disabled" if level == "off" else "enabled"}
    elif level is not None:
        switches["enable_thinking"] = level != "off"
    return body | {"chat_template_kwargs": switches or None}


_SWITCHES = ("reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs")


# ---- the answer


class ChatDecoder(AnswerDecoder):
    def __init__(self, request: Request, endpoint: Endpoint, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(request, endpoint, new_id)
        # Servers that count from 0 in every answer repeat the ids of the conversation.
        self._ids |= {call.id for message in request.messages for call in message.calls}
        self._calls = Calls(self._unique)
        self._choices = Choices("finish_reason")
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        """What has been sent."""
        self._is_over = self._has_refused = False
        self._finish: str | None = None
        self._stop: str | None = None
        self._usage = Usage()
        self._own: Json = {}
        self._choice: Json = {}
        self._message: Json = {}
        """What is reported of the whole answer, of its choice and its message, besides what our events hold."""
        self._details: list[Json] = []
        """Proofs of thoughts (OpenRouter), until they are sent on."""
        self._beside: Json = {}
        """`extra_content` of the message (Gemini)."""
        self._scores: tuple[TokenScore, ...] = ()
        """Of tokens that have no text yet."""

    def _read(self, event: str, data: bytes) -> Iterator[Event]:
        if self._is_over:
            return
        if event == "error":
            raise shared_fields.error_in(data)
        yield from self._take(record_of(data))

    def _pause(self, data: bytes) -> Iterator[Event]:
        if data and not self._is_over:
            yield from self._end()

    def _read_whole(self, body: Json) -> Iterator[Event]:
        yield from self._take(body)
        yield from self._take_choices(self._choices.rest())
        if not self._has_started:
            raise BrokenAnswer("the answer has no choices")
        yield from self._end()

    def _end_of_body(self) -> Iterator[Event]:
        if self._is_over:
            return
        yield from self._take_choices(self._choices.rest())
        if not self._finish:
            raise BrokenAnswer("the answer ends before its end")
        yield from self._end()

    def _take(self, record: Json) -> Iterator[Event]:
        choices = record.get("choices")
        is_answer = isinstance(choices, list)
        is_error = "error" in (record.get("object"), record.get("type")) or "detail" in record
        if record.get("error") or (not is_answer and is_error):
            raise shared_fields.failure_of(record)
        groq = object_at(record, "x_groq") if "x_groq" in record else {}
        if groq.get("error"):
            raise shared_fields.failure_of(groq)
        self._count(record.get("usage") or groq.get("usage"))
        if not record.keys() <= _FRAME:
            self._own |= besides(record, _FRAME)
        if not is_answer:
            return  # a ping, or what is only known to its sender
        yield from self._start(text_in(record, "model"))
        yield from self._take_choices(self._choices.take(objects_in(choices)))

    def _count(self, found: Any) -> None:
        """Note the counts of tokens, which some servers send in every record, and as zeros in the last."""
        usage = shared_fields.usage_of(found)
        if found and (usage.total or not self._usage.total):
            self._usage, self._own["usage"] = usage, found

    def _take_choices(self, choices: list[Json]) -> Iterator[Event]:
        for choice in choices:
            if choice.get("error"):
                raise shared_fields.failure_of({"error": choice["error"]})
            delta = choice.get("delta")
            if not isinstance(delta, dict):  # a whole message, or a piece as completions have it
                message = object_at(choice, "message")
                delta = self._unsaid(message) if message else {"content": choice.get("text")}
            yield from self._read_delta(delta, object_at(choice, "logprobs"))
            self._count(choice.get("usage"))  # Moonshot
            if not choice.keys() <= _CHOICE:
                self._choice |= besides(choice, _CHOICE)
            word = word_of(choice.get("finish_reason"))
            if word and (not self._finish or ending_of(word) not in _PLAIN_ENDS):
                self._finish = word  # a second reason may say that the answer is not whole, and no more
            self._stop = text_in(choice, "stop_reason") or self._stop

    def _unsaid(self, message: Json) -> Json:
        """What has not been sent of a message that is whole: some servers put it behind its pieces."""
        if not self._texts and not self._thoughts and not self._calls.n:
            return message
        made = dict(message)
        if self._calls.n:  # it lists them all
            self._calls.has_indexes = True
            made["tool_calls"] = [{"index": at, **call} for at, call in enumerate(objects_in(made.get("tool_calls")))]
        for name, sent in (("content", self._texts), *((name, self._thoughts) for name in _THOUGHTS)):
            text, said = texts_in(message.get(name)), "".join(sent)
            if said:
                made[name] = text[len(said) :] if text.startswith(said) else ""
        if self._thoughts:
            made.pop("reasoning_details", None)
        return made

    def _read_delta(self, delta: Json, logprobs: Json) -> Iterator[Event]:
        is_plain = delta.keys() <= _PLAIN  # once per token
        if not is_plain:
            yield from self._think(delta)
        if logprobs:
            self._scores += shared_fields.scores_of(logprobs.get("content"))
        content = delta.get("content")
        if isinstance(content, str):
            yield from self._say(content)
        else:
            for part in content if isinstance(content, list) else (content,):
                yield from self._read_part(part)
        if not is_plain:
            yield from self._read_rest(delta)

    def _read_rest(self, delta: Json) -> Iterator[Event]:
        if refusal := text_in(delta, "refusal"):
            self._has_refused = True
            yield from self._say(refusal, refused=True)
        for name in _BESIDE_TEXT:
            if value := delta.get(name):
                merge_facts(self._message, {name: value})
        if isinstance(extra := delta.get("extra_content"), dict):
            self._beside |= extra
        fragments = objects_in(delta.get("tool_calls"))
        if old := object_at(delta, "function_call"):
            fragments.append({"index": 0, "function": old})
        if fragments:
            yield from self._prove()
        for fragment in fragments:
            yield from self._calls.feed(fragment)

    def _read_part(self, part: Any) -> Iterator[Event]:
        """A part of a content that is a list, as Mistral sends it, or a text in its place."""
        kind = text_in(part, "type") if isinstance(part, dict) else ""
        if kind in ("thinking", "reasoning"):
            yield from self._think({"reasoning": part.get(kind) or part})
        else:
            yield from self._say(texts_in(part))

    def _say(self, text: str, *, refused: bool = False) -> Iterator[Event]:
        if text:
            if self._calls.n:
                yield from self._calls.end()
            if self._details:
                yield from self._prove()
            self._texts.append(text)
            scores, self._scores = self._scores, ()
            yield TextDelta(text, scores, refused=refused)

    def _think(self, delta: Json) -> Iterator[Event]:
        details = objects_in(delta.get("reasoning_details"))
        text = next((found for name in _THOUGHTS if (found := texts_in(delta.get(name)))), "")
        text = text or "".join(text_in(each, "text") or text_in(each, "summary") for each in details)
        for each in details:
            _merge(self._details, each)
        if text:
            yield from self._calls.end()
            self._thoughts.append(text)
            yield ReasoningDelta(text)

    def _prove(self) -> Iterator[Event]:
        """Sign the thoughts so far, where the provider has proved them."""
        details, self._details = self._details, []
        if (signature := encode_details(details)) is not None:
            yield from self._calls.end()
            yield ReasoningDelta("", signature)

    def _end(self) -> Iterator[Event]:
        yield from self._take_choices(self._choices.rest())
        if not self._has_started:
            raise BrokenAnswer("the answer is empty")
        has_answer = bool(self._calls.n or self._texts or self._thoughts)
        ending = self._ending(self._finish or "", has_answer=has_answer)
        self._is_over = True
        yield from self._calls.end()
        yield from self._prove()
        if self._beside:
            yield ReasoningDelta("", encode_beside(self._beside))
        if (beside := kept(PROTOCOL, self._message)) is not None:
            yield OpaqueBlock(beside)
        if self._finish and self._finish not in _OPENAIS:
            self._choice.setdefault("native_finish_reason", self._finish)
        word = self._finish if self._finish in _OPENAIS[:3] else None
        own = kept(PROTOCOL, {**self._own, "choice": self._choice, "finish_reason": word})
        reason = self._reason(ending)
        yield Finished(reason, self._usage, self._stop if reason == "stop" else None, own)

    def _reason(self, ending: StopReason) -> StopReason:
        if ending not in _PLAIN_ENDS:
            return ending
        if self._calls.n:
            return "tool_calls"
        return "filtered" if self._has_refused else "stop" if self._stop else "end"


_PLAIN_ENDS = ("end", "stop", "tool_calls")
"""Of a whole answer; which of them it is shows in the answer."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
_PLAIN = frozenset({"role", "content"})
"""Fields of a piece of text."""
_OPENAIS = ("stop", "length", "content_filter", "tool_calls", "function_call")
"""Reasons that every client knows; the first three do not follow from the rest of the answer."""
_FRAME = frozenset({
    "id", "object", "created", "model", "choices", "usage", "system_fingerprint", "obfuscation", "error",
    "timings", "prompt_progress", "__verbose", "choice", "finish_reason",
})  # fmt: skip
"""Fields of a chunk that are read, or that our own server has words for."""
_CHOICE = frozenset({"index", "delta", "message", "finish_reason", "logprobs", "text", "error", "usage"})
_BESIDE_TEXT = ("annotations", "audio", "images")
"""What a message has besides its text, thoughts and calls."""


def _merge(details: list[Json], detail: Json) -> None:
    """Put a piece of a detail behind the others; pieces of one have its index and type."""
    key = detail.get("index"), detail.get("type")
    own = next((each for each in details if (each.get("index"), each.get("type")) == key), None)
    if own is None or key[0] is None:
        details.append(dict(detail))
        return
    for name, value in detail.items():
        if name in ("text", "summary", "data", "signature") and isinstance(value, str):
            own[name] = text_in(own, name) + value
        elif value is not None:
            own[name] = value


decoder = ChatDecoder
