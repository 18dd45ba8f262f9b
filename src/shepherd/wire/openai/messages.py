"""The conversation and the tools as OpenAI's chat protocol writes them, decoded to messages.

Text that a *model* wrote and a client sends back stays as it is, arguments that are no JSON included: one bad call must
not end a conversation. The *client's* own fields are checked strictly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from shepherd.core import (
    Audio,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from shepherd.wire.base import MAX_TOOLS, Fields, compact_json, field_error, shown, wrong
from shepherd.wire.openai.signatures import PROTOCOL, decode_extra, encode_beside, encode_details
from shepherd.wire.parts import (
    AUDIO_TYPES,
    decode_audio,
    decode_document,
    decode_image_url,
    joined,
    only_provider,
    seen,
)
from shepherd.wire.signature import received
from shepherd.wire.table import ANYTHING, OBJECTS, STRING, Field, FieldKind, body_schema, one_of
from shepherd.wire.tools import FREE_INPUT, decode_arguments, decode_function, free_arguments, known_name


class Names(dict[str, str]):
    """The names of the tools that have been called so far, by the ids of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, str] = {}
        """The id of the last call of each tool."""

    def add(self, call: ToolCall) -> None:
        self[call.id] = call.name
        self.last[call.name] = call.id


def decode_messages(body: Fields, key: str = "messages") -> tuple[Message, ...]:
    if not body.has(key):
        raise field_error(key, "is missing")
    names = Names()
    messages = []
    for message in body.objects(key):
        role = message.get_string("role")
        decode = _ROLES.get(role)
        if decode is None:
            raise message.error("role", f"is {shown(role)}; the roles are {', '.join(_ROLES)}")
        for decoded in decode(message, names):
            for call in decoded.calls:
                names.add(call)
            messages.append(decoded)
    if not messages:
        raise field_error(key, "is empty; send at least one message")
    return tuple(messages)


def _decode_system(message: Fields, names: Names) -> Iterator[Message]:
    yield Message("system", tuple(joined(_decode_content(message, _TEXTS), "\n")))


def _decode_user(message: Fields, names: Names) -> Iterator[Message]:
    """Results of calls may be parts of a user's message, in Anthropic's way: they become messages of their own."""
    parts = _decode_content(message, _FROM_USERS)
    results = [part for part in parts if isinstance(part, ToolResult)]
    for result in results:
        yield Message("tool", (replace(result, name=names.get(result.call_id, "")),))
    others = tuple(joined((part for part in parts if not isinstance(part, ToolResult)), "\n"))
    if others or not results:
        yield Message("user", others)


def _decode_assistant(message: Fields, names: Names) -> Iterator[Message]:
    parts: list[Part] = []
    # `reasoning` is the name that OpenRouter and newer vLLM use, `thinking` is Ollama's.
    thoughts = (message.find_string(key) for key in ("reasoning_content", "reasoning", "thinking"))
    thought, proof = next(filter(None, thoughts), ""), encode_details(message.find_any("reasoning_details"))
    if thought or proof:
        parts.append(Reasoning(thought, proof))
    content = _decode_content(message, _FROM_MODELS)
    refusal = message.find_string("refusal")
    parts += content or ((Text(refusal),) if refusal else ())
    parts += [_decode_call(call) for call in message.objects("tool_calls")]
    if isinstance(extra := message.find_any("extra_content"), dict) and extra:
        parts.append(Reasoning("", encode_beside(extra)))
    if (call := message.find_object("function_call")) is not None:
        parts.append(_decode_function_call(call, f"function_{len(names)}"))  # they had no ids then
    yield Message("assistant", tuple(parts))


def _decode_tool(message: Fields, names: Names) -> Iterator[Message]:
    call_id = message.get_string("tool_call_id", "a message with role tool names the call that it answers")
    name = message.find_string("name") or names.get(call_id, "")
    yield Message("tool", (ToolResult(call_id, _decode_output(message), name),))


def _decode_function(message: Fields, names: Names) -> Iterator[Message]:
    """A result in the old way: it answers the last call of that name."""
    name = message.get_string("name", "a message with role function names the function that it answers for")
    yield Message("tool", (ToolResult(names.last.get(name, name), _decode_output(message), name),))


_ROLES: dict[str, Callable[[Fields, Names], Iterator[Message]]] = {
    "system": _decode_system,
    "developer": _decode_system,
    "user": _decode_user,
    "assistant": _decode_assistant,
    "tool": _decode_tool,
    "function": _decode_function,
}


def _decode_call(call: Fields) -> ToolCall:
    decoded, extra = _decode_typed_call(call), call.find_any("extra_content")
    return replace(decoded, signature=decode_extra(extra)) if isinstance(extra, dict) else decoded


def _decode_typed_call(call: Fields) -> ToolCall:
    match kind := call.find_string("type") or "function":
        case "function":
            return _decode_function_call(call.get_object("function"), call.get_string("id"))
        case "custom":
            custom = call.get_object("custom")
            arguments = free_arguments(custom.find_string("input") or "")
            return ToolCall(call.get_string("id"), custom.get_string("name"), arguments)
        case _:
            raise call.error("type", f"is {shown(kind)}; calls are of type function or custom")


def _decode_function_call(function: Fields, id: str) -> ToolCall:
    return ToolCall(id, function.get_string("name"), decode_arguments(function))


Read = Callable[[Fields], Part | None]
"""From a part of a content to its value, `None` for an empty one."""


def _decode_content(message: Fields, readers: Mapping[str, Read]) -> tuple[Part, ...]:
    """A string, or an array of parts of these types."""
    content = message.find_any("content")
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise wrong(message.at("content"), "a string or an array of parts", content)
    found: list[Part] = []
    for part in message.objects("content"):
        kind = part.get_string("type")
        if (error := only_provider(part)) is not None:
            if readers is not _FROM_USERS:
                raise error
            found.append(Opaque(PROTOCOL, compact_json(part.body)))  # `provider_demand` refuses it for other models
            continue
        if kind not in readers:
            known = ", ".join(readers)
            raise part.error("type", f"is {shown(kind)}, which is not supported here; supported: {known}")
        if (decoded := readers[kind](part)) is not None:
            found.append(decoded)
    return tuple(found)


def _decode_output(message: Fields) -> tuple[Text | Image | Audio, ...]:
    return seen(_decode_content(message, _SEEN))


def _decode_text(part: Fields) -> Text | None:
    text = part.get_text("refusal" if part.find_any("type") == "refusal" else "text")
    return Text(text) if text else None


def _decode_image(part: Fields) -> Image:
    holder, key = part, "image_url"
    if isinstance(part.find_any("image_url"), dict):
        holder, key = part.get_object("image_url"), "url"
    image = decode_image_url(holder.get_string(key), holder.at(key))
    return replace(image, detail=holder.find_string("detail") or "")


def _decode_address(part: Fields) -> Part:
    """Mistral's document."""
    url, name = part.get_string("document_url"), part.find_string("document_name") or "unnamed"
    key = "file_data" if url.startswith("data:") else "file_url"
    return decode_document(Fields({"filename": name, key: url}, part.path))


def _decode_source(part: Fields) -> Image:
    """Anthropic's image."""
    source = part.get_object("source")
    if source.has("url"):
        return decode_image_url(source.get_string("url"), source.at("url"))
    media_type = source.find_string("media_type") or "image/png"
    return decode_image_url(f"data:{media_type};base64,{source.get_string('data')}", source.at("data"))


def _decode_thought(part: Fields) -> Reasoning | None:
    """Anthropic's thinking."""
    text = part.find_string("thinking") or part.find_string("text")
    return Reasoning(text, received("anthropic", part.find_string("signature"))) if text else None


def _decode_use(part: Fields) -> ToolCall:
    """Anthropic's call."""
    arguments = part.find_object("input")
    text = "{}" if arguments is None else json.dumps(arguments.body, ensure_ascii=False)
    return ToolCall(part.get_string("id"), part.get_string("name"), text)


def _decode_result(part: Fields) -> ToolResult:
    """Anthropic's result."""
    return ToolResult(
        part.get_string("tool_use_id"), _decode_output(part), is_error=part.find_boolean("is_error") is True
    )


_TEXTS: Mapping[str, Read] = dict.fromkeys(("text", "input_text", "output_text", "refusal"), _decode_text)
_SEEN: Mapping[str, Read] = {
    **_TEXTS,
    "image_url": _decode_image,
    "input_image": _decode_image,
    "image": _decode_source,
    **dict.fromkeys(AUDIO_TYPES, decode_audio),
    "file": decode_document,
    "input_file": decode_document,
    "document_url": _decode_address,
}
_FROM_USERS: Mapping[str, Read] = {**_SEEN, "tool_result": _decode_result}
_FROM_MODELS: Mapping[str, Read] = {
    **_TEXTS,
    "thinking": _decode_thought,
    "reasoning": _decode_thought,
    "tool_use": _decode_use,
}
"""Cursor writes parts in Anthropic's way for models with such names."""


def decode_tools(body: Fields, key: str = "tools") -> tuple[ToolSpec, ...]:
    if body.has("functions") and body.has(key):
        raise InvalidRequest("functions and tools both offer tools; send tools", field="functions")
    return (
        *(_decode_tool_spec(tool) for tool in body.objects(key, MAX_TOOLS) if not is_hosted(tool)),
        *(decode_function(function) for function in body.objects("functions", MAX_TOOLS)),
    )


def provider_demand(body: Fields, messages: tuple[Message, ...]) -> InvalidRequest | None:
    """The error for a model that cannot read a part, or run a tool, that the body has; `body` has been decoded."""
    for tool in body.objects("tools"):
        if is_hosted(tool):
            why = "only tools of type function and custom can be offered: the client runs them"
            return tool.error("type", f"is {shown(tool.find_any('type'))}; {why}")
    for kind in body.find_strings("modalities") or ():
        if kind != "text":
            return field_error("modalities", f"holds {shown(kind)}; models here answer in text only")
    if any(isinstance(part, Opaque) for message in messages if message.role == "user" for part in message.parts):
        for message in body.objects("messages"):
            for part in message.objects("content") if isinstance(message.find_any("content"), list) else ():
                if (error := only_provider(part)) is not None:
                    return error
    return None


def is_hosted(tool: Fields) -> bool:
    """Whether the client's own provider runs the tool."""
    return (tool.find_string("type") or "function") not in ("function", "custom")


def custom_tools(body: Fields) -> frozenset[str]:
    """The names of the tools that take any text; `body` has been through `decode_tools`."""
    tools = (tool for tool in body.objects("tools") if tool.find_string("type") == "custom")
    return frozenset(_inside(tool, "custom").get_string("name") for tool in tools)


def _decode_tool_spec(tool: Fields) -> ToolSpec:
    if tool.find_string("type") == "custom":
        return _decode_custom_spec(_inside(tool, "custom"))
    return decode_function(_inside(tool, "function"))


def _inside(tool: Fields, key: str) -> Fields:
    """The description or the name of a tool: OpenAI wraps it, many clients do not."""
    return tool if tool.has("name") and not tool.has(key) else tool.get_object(key)


def _decode_custom_spec(custom: Fields) -> ToolSpec:
    """A function of one text. The model reads the grammar of the text, but nothing enforces it."""
    description = custom.find_string("description") or ""
    form = custom.find_object("format")
    grammar = form and (form.find_object("grammar") or form)
    if grammar is not None and (definition := grammar.find_string("definition")):
        description += f"\n\nThe input follows this grammar ({grammar.find_string('syntax') or 'lark'}):\n{definition}"
    text = {"type": "string", "description": "All of it, as it is: no JSON inside."}
    parameters = {"type": "object", "properties": {FREE_INPUT: text}, "required": [FREE_INPUT]}
    return ToolSpec(custom.get_string("name"), description.strip(), parameters)


def decode_tool_choice(body: Fields, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that may be called, and whether and which of them must be. Raises: `InvalidRequest`."""
    key = "tool_choice" if body.has("tool_choice") or not body.has("function_call") else "function_call"
    choice, path = body.find_any(key), body.at(key)
    match choice:
        case None | "auto":
            return tools, "auto"
        case "none":
            return tools, "none"
        case "required" | "any":  # the second is Mistral's word
            if not tools:
                raise field_error(path, f'is "{choice}" but no tools are offered; send tools')
            return tools, "required"
        case {"type": "function" | "custom"}:
            return tools, ("named", _decode_chosen(Fields(choice, path), tools))
        case {"name": _} if key == "function_call":
            return tools, ("named", _decode_chosen(Fields(choice, path), tools))
        case {"type": "allowed_tools"}:
            return _decode_allowed(Fields(choice, path).get_object("allowed_tools"), tools)
        case _:
            raise wrong(path, '"auto", "none", "required" or {"type": "function", "function": {"name": …}}', choice)


def _decode_chosen(choice: Fields, tools: Collection[ToolSpec]) -> str:
    function = _inside(choice, "custom" if choice.find_string("type") == "custom" else "function")
    return known_name(function, tools)


def _decode_allowed(allowed: Fields, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that are left. The model does not see the others, so it does not call them."""
    mode = allowed.find_string("mode") or "auto"
    names = {_decode_chosen(tool, tools) for tool in allowed.objects("tools", MAX_TOOLS)}
    if not names:
        raise allowed.error("tools", "names no tool")
    left = tuple(tool for tool in tools if tool.name in names)
    if mode not in ("auto", "required"):
        raise wrong(allowed.at("mode"), '"auto" or "required"', mode)
    return left, "required" if mode == "required" else "auto"


# ---- the fields of a body

_CONTENT = {
    "description": "Text, or an array of parts: text, image_url, input_audio, file.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
}
_MESSAGE = body_schema(
    Field("role", one_of(*_ROLES)),
    Field("content", FieldKind(Fields.find_any, _CONTENT)),
    Field("tool_calls", OBJECTS),
    Field("tool_call_id", STRING),
    Field("reasoning_content", STRING),
    required=["role"],
)
TOOLS = Field("tools", FieldKind(decode_tools, OBJECTS.schema), "Run by the client, never by the server.")
CONVERSATION = (
    Field("messages", FieldKind(decode_messages, {"type": "array", "minItems": 1, "items": _MESSAGE})),
    TOOLS,
    Field("tool_choice", ANYTHING, "auto, none, required, or one function by name."),
)
