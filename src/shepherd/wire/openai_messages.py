"""The conversation and the tools as OpenAI's chat protocol writes them, decoded into the vocabulary.

What a *model* wrote earlier and a client sends back is taken as it is: arguments that are no JSON stay what they are,
for a conversation must not be stuck for ever behind one bad call. What the *client* means to say is checked strictly.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterator
from urllib.parse import unquote, unquote_to_bytes

from shepherd.core import (
    Image,
    InvalidRequest,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from shepherd.wire.base import Fields, shown, wrong


def decode_messages(body: Fields) -> tuple[Message, ...]:
    """The conversation. Raises: `InvalidRequest`."""
    if not body.has("messages"):
        hint = "; this is the body of a Responses request: send it to /v1/responses" if body.has("input") else ""
        raise InvalidRequest(f"messages is missing{hint}", field="messages")
    names: dict[str, str] = {}
    messages = []
    for message in body.objects("messages"):
        role = message.get_string("role")
        decode = _ROLES.get(role)
        if decode is None:
            hint = "; send the result of a call with role tool and its tool_call_id" if role == "function" else ""
            raise InvalidRequest(
                f"{message.at('role')} is {shown(role)}; the roles are {', '.join(_ROLES)}{hint}",
                field=message.at("role"),
            )
        decoded = decode(message, names)
        names.update((call.id, call.name) for call in decoded.calls)
        messages.append(decoded)
    if not messages:
        raise InvalidRequest("messages is empty; send at least one message", field="messages")
    return tuple(messages)


def _decode_system(message: Fields, names: dict[str, str]) -> Message:
    return Message("system", _decode_content(message, images=False))


def _decode_user(message: Fields, names: dict[str, str]) -> Message:
    return Message("user", _decode_content(message, images=True))


def _decode_assistant(message: Fields, names: dict[str, str]) -> Message:
    if message.has("function_call"):
        raise InvalidRequest(
            f"{message.at('function_call')} is no longer supported; send tool_calls", field=message.at("function_call")
        )
    parts: list[Part] = []
    # `reasoning` is the name that OpenRouter and newer vLLM use.
    thoughts = message.find_string("reasoning_content") or message.find_string("reasoning")
    if thoughts:
        parts.append(Reasoning(thoughts))
    said = _decode_content(message, images=False)
    refusal = message.find_string("refusal")
    parts += said or ((Text(refusal),) if refusal else ())
    parts += [_decode_call(call) for call in message.objects("tool_calls")]
    return Message("assistant", tuple(parts))


def _decode_tool(message: Fields, names: dict[str, str]) -> Message:
    call_id = message.get_string("tool_call_id", "a message with role tool names the call that it answers")
    name = message.find_string("name") or names.get(call_id, "")
    return Message("tool", (ToolResult(call_id, _decode_content(message, images=True), name),))


_ROLES: dict[str, Callable[[Fields, dict[str, str]], Message]] = {
    "system": _decode_system,
    "developer": _decode_system,
    "user": _decode_user,
    "assistant": _decode_assistant,
    "tool": _decode_tool,
}


def _decode_call(call: Fields) -> ToolCall:
    kind = call.find_string("type") or "function"
    if kind != "function":
        raise InvalidRequest(
            f"{call.at('type')} is {shown(kind)}; only function calls exist here", field=call.at("type")
        )
    function = call.get_object("function")
    arguments = function.find_any("arguments")
    if arguments is None:
        arguments = "{}"
    elif isinstance(arguments, dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif not isinstance(arguments, str):
        raise wrong(function.at("arguments"), "a string of JSON", arguments)
    return ToolCall(call.get_string("id"), function.get_string("name"), arguments)


def _decode_content(message: Fields, *, images: bool) -> tuple[Text | Image, ...]:
    content = message.find_any("content")
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise wrong(message.at("content"), "a string or an array of parts", content)
    return tuple(_decode_parts(message, images))


def _decode_parts(message: Fields, images: bool) -> Iterator[Text | Image]:
    for part in message.objects("content"):
        kind = part.get_string("type")
        if (key := _TEXT_PARTS.get(kind)) is not None:
            text = part.find_string(key)
            if text is None:
                raise InvalidRequest(f"{part.at(key)} is missing", field=part.at(key))
            if text:
                yield Text(text)
        elif images and kind in _IMAGE_PARTS:
            yield _decode_image(part)
        else:
            allowed = (*_TEXT_PARTS, *(_IMAGE_PARTS if images else ()))
            raise InvalidRequest(
                f"{part.at('type')} is {shown(kind)}, which is not supported here; supported: {', '.join(allowed)}",
                field=part.at("type"),
            )


_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGE_PARTS = ("image_url", "input_image")


def _decode_image(part: Fields) -> Image:
    path = part.at("image_url")
    if isinstance(part.find_any("image_url"), dict):
        image = part.get_object("image_url")
        path, url = image.at("url"), image.get_string("url")
    else:
        url = part.get_string("image_url")
    scheme = url.split(":", 1)[0].lower()
    if scheme == "data":
        return _decode_data_url(url, path)
    if scheme not in ("http", "https"):
        # A `file:` URL would let a client read the disk of the server.
        raise InvalidRequest(f"{path} must be a data:, http: or https: URL, not {shown(url)}", field=path)
    return Image(url=url)


def _decode_data_url(url: str, path: str) -> Image:
    head, comma, payload = url.partition(",")
    media_type, *parameters = head[len("data:") :].lower().split(";")
    if not comma or not media_type.startswith("image/"):
        raise InvalidRequest(f"{path} must look like data:image/png;base64,…, not {shown(url)}", field=path)
    if "base64" in (parameter.strip() for parameter in parameters):
        try:
            text = (unquote(payload) if "%" in payload else payload).strip().rstrip("=")
            content = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequest(f"{path} holds base64 that cannot be decoded: {error}", field=path) from error
    else:
        content = unquote_to_bytes(payload)
    if not content:
        raise InvalidRequest(f"{path} holds an image of 0 bytes", field=path)
    return Image(media_type, content)


def decode_tools(body: Fields) -> tuple[ToolSpec, ...]:
    """The tools that the client offers. Raises: `InvalidRequest`."""
    for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.find_any(old):
            raise InvalidRequest(f"{old} is no longer supported; send {new}", field=old)
    return tuple(_decode_tool_spec(tool) for tool in body.objects("tools"))


def _decode_tool_spec(tool: Fields) -> ToolSpec:
    kind = tool.find_string("type") or "function"
    if kind != "function":
        raise InvalidRequest(
            f"{tool.at('type')} is {shown(kind)}; only tools of type function can be offered", field=tool.at("type")
        )
    function = tool.get_object("function")
    parameters = function.find_object("parameters")
    return ToolSpec(
        name=function.get_string("name"),
        description=function.find_string("description") or "",
        parameters=parameters.body if parameters is not None else {},
        strict=function.find_boolean("strict") is True,
    )


def decode_tool_choice(body: Fields, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that may be called, and whether and which of them must be. Raises: `InvalidRequest`."""
    choice = body.find_any("tool_choice")
    path = body.at("tool_choice")
    match choice:
        case None | "auto":
            return tools, "auto"
        case "none":
            return tools, "none"
        case "required":
            if not tools:
                raise InvalidRequest(f'{path} is "required" but no tools are offered; send tools', field=path)
            return tools, "required"
        case {"type": "function"}:
            return tools, ("named", _decode_chosen(Fields(choice, path), tools))
        case {"type": "allowed_tools"}:
            return _decode_allowed(Fields(choice, path).get_object("allowed_tools"), tools)
        case _:
            raise wrong(path, '"auto", "none", "required" or {"type": "function", "function": {"name": …}}', choice)


def _decode_chosen(choice: Fields, tools: Collection[ToolSpec]) -> str:
    """The name of one of the tools."""
    function = choice.get_object("function")
    name = function.get_string("name")
    names = [tool.name for tool in tools]
    if name not in names:
        known = ", ".join(names) or "none"
        raise InvalidRequest(
            f"{function.at('name')} is {shown(name)}, which is not among the tools ({known})",
            field=function.at("name"),
        )
    return name


def _decode_allowed(allowed: Fields, tools: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], ToolChoice]:
    """The tools that are left. The others are not shown to the model either: what it cannot see it does not call."""
    mode = allowed.find_string("mode") or "auto"
    names = [_decode_chosen(tool, tools) for tool in allowed.objects("tools")]
    if not names:
        raise InvalidRequest(f"{allowed.at('tools')} names no tool", field=allowed.at("tools"))
    left = tuple(tool for tool in tools if tool.name in names)
    match mode:
        case "auto" | "required":
            return left, mode
        case _:
            raise wrong(allowed.at("mode"), '"auto" or "required"', mode)
