"""The conversation as Anthropic's protocol writes it, decoded to messages.

    user       tool_result* ┐ a tool message each        assistant   text, thinking, tool_use … ┐ one message
               text, image… ┘ a user message behind                  server_tool_use + result   ┘ call, result, the rest
    system     anywhere; it stays where it is

A message is the same in every form: as a string or as blocks, with a cache mark or without. Clients send the newest
message in one form and the same one in another later, and its cached tokens must stay valid. Unknown blocks are left
out, with a line in the log.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shepherd.core import Image, InvalidRequest, Message, Part, Reasoning, Text, ToolCall, ToolResult
from shepherd.wire.base import Fields, shown, wrong
from shepherd.wire.parts import decode_base64, joined

logger = logging.getLogger(__name__)

HEADER_LINES = re.compile(r"(?:x-anthropic-[^\n]*(?:\n|\Z))+")
"""Claude Code begins a system prompt with accounting of its vendor. It changes with each request, so the text behind it
could never come from a cache."""


def decode_conversation(body: Fields, key: str = "messages") -> tuple[Message, ...]:
    """The system prompt and the messages. Raises: `InvalidRequest`."""
    reader = _Reader()
    messages = [*reader.system_prompt(body)]
    if not body.has(key):
        raise InvalidRequest(f"{key} is missing", field=key)
    n_before = len(messages)
    for message in body.objects(key):
        role = message.get_string("role")
        match role:
            case "user":
                messages += reader.user(message)
            case "assistant":
                messages += reader.assistant(message)
            case "system":
                messages += reader.system(message)
            case _:
                path = message.at("role")
                raise InvalidRequest(f"{path} is {shown(role)}; the roles are user, assistant and system", field=path)
    if len(messages) == n_before:
        raise InvalidRequest(f"{key} is empty; send at least one message", field=key)
    return tuple(messages)


class _Reader:
    """Reads one conversation from its beginning."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Of the tools, by the id of their calls."""
        self._elsewhere: dict[str, ToolCall] = {}
        """Calls that another server ran, by their id, until their result comes."""

    def system_prompt(self, body: Fields) -> Iterator[Message]:
        yield from _system(_without_headers(self._texts(body, "system")))

    def system(self, message: Fields) -> Iterator[Message]:
        """None for an empty one, which sets an option for the turns behind it."""
        yield from _system(self._texts(message, "content"))

    def user(self, message: Fields) -> Iterator[Message]:
        """The results of calls first: models need them right behind the calls."""
        parts = list(self._parts(message, "content"))
        results = [part for part in parts if isinstance(part, ToolResult)]
        rest = [part for part in parts if not isinstance(part, ToolResult)]
        yield from (Message("tool", (result,)) for result in results)
        if rest or not results:
            yield Message("user", tuple(joined(rest, "\n")))

    def assistant(self, message: Fields) -> Iterator[Message]:
        """One message, in pieces where a result stands between them."""
        parts: list[Part] = []
        is_cut = False
        for part in self._parts(message, "content"):
            if isinstance(part, ToolResult):
                if parts:
                    yield Message("assistant", tuple(joined(parts, "")))
                yield Message("tool", (part,))
                parts, is_cut = [], True
            else:
                parts.append(part)
        if parts or not is_cut:
            # Text that a citation has cut in two continues in the middle of a sentence.
            yield Message("assistant", tuple(joined(parts, "")))

    def _texts(self, holder: Fields, key: str) -> Iterator[Text]:
        """The texts of a system prompt or message."""
        return (part for part in self._parts(holder, key) if isinstance(part, Text))

    def _parts(self, holder: Fields, key: str) -> Iterator[Part]:
        """The parts in the blocks of a field; a string is one block of text."""
        content = holder.find_any(key)
        if isinstance(content, str):
            if content:
                yield Text(content)
        elif isinstance(content, list):
            for block in holder.objects(key):
                yield from self._block(block)
        elif content is not None:
            raise wrong(holder.at(key), "a string or an array of blocks", content)

    def _block(self, block: Fields) -> Iterator[Part]:
        kind = block.get_string("type")
        if (read := _READERS.get(kind)) is not None:
            yield from read(self, block)
        elif kind.endswith("_tool_result"):
            yield from self._result_from_elsewhere(block)
        else:
            logger.info("left out a content block of type %s, which is not known here", shown(kind))

    # ---- one kind of block each

    def _text(self, block: Fields) -> Iterator[Part]:
        if text := block.get_text("text"):
            yield Text(text)

    def _thinking(self, block: Fields) -> Iterator[Part]:
        yield Reasoning(block.find_string("thinking") or "", block.find_string("signature") or None)

    def _redacted(self, block: Fields) -> Iterator[Part]:
        yield Reasoning("", block.find_string("data"), redacted=True)

    def _call(self, block: Fields) -> Iterator[Part]:
        given = block.find_json("input")
        # A model wrote it: text that is no JSON object stays as it is.
        arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
        call = ToolCall(block.get_string("id"), block.get_string("name"), arguments)
        self._names[call.id] = call.name
        if block.find_any("type") == "tool_use":
            yield call
        else:
            self._elsewhere[call.id] = call  # without its result the model could not continue

    def _result(self, block: Fields) -> Iterator[Part]:
        inner = joined(self._parts(block, "content"), "\n")
        yield self._new_result(block, tuple(part for part in inner if isinstance(part, Text | Image)))

    def _new_result(self, block: Fields, parts: tuple[Text | Image, ...]) -> ToolResult:
        call_id = block.get_string("tool_use_id", "a tool_result names the call that it answers")
        return ToolResult(call_id, parts, self._names.get(call_id, ""), block.find_boolean("is_error") is True)

    def _result_from_elsewhere(self, block: Fields) -> Iterator[Part]:
        text = _text_of(block.find_any("content"))
        result = self._new_result(block, (Text(text),) if text else ())
        call = self._elsewhere.pop(result.call_id, None)
        if call is None:
            logger.info("left out a content block of type %s, whose call is not there", shown(block.find_any("type")))
        else:
            yield call
            yield result

    def _image(self, block: Fields) -> Iterator[Part]:
        source = block.get_object("source")
        kind = source.get_string("type")
        if kind == "base64":
            content = _bytes_of(source.get_string("data"), source.at("data"))
            yield Image(source.find_string("media_type") or "", content)
        elif kind == "url":
            yield _linked_image(source)
        else:
            yield Text(f"[image: {_name_of(source)}; it cannot be seen here]")

    def _document(self, block: Fields) -> Iterator[Part]:
        source = block.get_object("source")
        title = block.find_string("title") or ""
        kind, media_type = source.get_string("type"), source.find_string("media_type") or ""
        if kind == "text" or (kind == "base64" and media_type.startswith("text/")):
            text = source.get_string("data")
            inside: Iterable[Part] = (
                Text(text if kind == "text" else _bytes_of(text, source.at("data")).decode("utf-8", "replace")),
            )
        elif kind == "content":
            inside = self._parts(source, "content")
        else:
            size = f"{-(-(len(source.find_string('data') or '') * 3 // 4) // 1000)} kB"
            facts = (media_type, size) if kind == "base64" else (_name_of(source),)
            yield Text(_note("document", title, *facts, lost="it cannot be read here"))
            return
        yield Text(_note("document", title))
        if context := block.find_string("context"):
            yield Text(context)
        yield from inside

    def _search_result(self, block: Fields) -> Iterator[Part]:
        yield Text(_note("search result", block.find_string("title") or "", block.find_string("source") or ""))
        yield from self._parts(block, "content")

    def _compaction(self, block: Fields) -> Iterator[Part]:
        """The summary of what stood before it; null when the summing up has failed."""
        if summary := block.find_string("content"):
            yield Text(summary)


def _system(texts: Iterable[Text]) -> Iterator[Message]:
    if parts := tuple(joined(texts, "\n")):
        yield Message("system", parts)


def _without_headers(texts: Iterable[Text]) -> Iterator[Text]:
    """The texts of a system prompt, without the header in front of them."""
    rest = iter(texts)
    for part in rest:
        if bare := HEADER_LINES.sub("", part.text, count=1) if HEADER_LINES.match(part.text) else part.text:
            yield Text(bare)
            break
    yield from rest


def _bytes_of(text: str, path: str) -> bytes:
    """The bytes of a base64 text, at least one. Raises: `InvalidRequest` that names `path`."""
    content = decode_base64("".join(text.split()), path)
    if not content:
        raise InvalidRequest(f"{path} holds 0 bytes", field=path)
    return content


def _linked_image(source: Fields) -> Image:
    url, path = source.get_string("url"), source.at("url")
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        head, _, payload = url.partition(",")
        media_type, _, coding = head[len("data:") :].partition(";")
        if coding != "base64":
            raise InvalidRequest(f"{path} must look like data:image/png;base64,…, not {shown(url)}", field=path)
        return Image(media_type, _bytes_of(payload, path))
    if scheme not in ("http", "https"):
        # A `file:` URL would let a client read the disk of the server.
        raise InvalidRequest(f"{path} must be an http: or https: URL, not {shown(url)}", field=path)
    return Image(url=url)


def _note(kind: str, *facts: str, lost: str = "") -> str:
    """A line that stands for a block, or in front of what it holds."""
    known = ", ".join(fact for fact in facts if fact)
    return f"[{kind}{known and ': '}{known}{lost and '; '}{lost}]"


def _first_name(fields: Fields, keys: tuple[str, ...], default: str) -> str:
    names = map(fields.find_any, keys)
    return next((name[:200] for name in names if isinstance(name, str) and name), default)


def _name_of(source: Fields) -> str:
    """The client's name of a file that is not here: its id or its address."""
    return _first_name(source, ("file_id", "url", "type"), "unnamed")


def _tool_name(block: Fields) -> str:
    """The name of the tool in a block, which holds the name or the whole tool."""
    tool = block.find_object("tool") or block
    tool = tool.find_object("definition") or tool
    return _first_name(tool, ("name", "tool_name", "server_name", "mcp_server_name"), "of no name")


_HIDDEN = frozenset({"type", "cache_control", "citations", "caller"})


def _text_of(content: Any) -> str:
    """The result of another server's tool: its text, and the rest as JSON without encrypted values."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(_text_of, content)))
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return json.dumps(_plain(content), ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            is_binary = value.get("type") == "base64"
            return {
                key: _plain(child)
                for key, child in value.items()
                if key not in _HIDDEN and not key.startswith("encrypted") and not (is_binary and key == "data")
            }
        case list():
            return [_plain(child) for child in value]
        case _:
            return value


def _noted(form: str, name_of: Callable[[Fields], str]) -> Callable[[_Reader, Fields], Iterator[Part]]:
    """Reads a block that becomes a note with a name in it."""
    return lambda reader, block: iter((Text(form.format(name_of(block))),))


_THERE = "[from here on there is the tool {}]"
_READERS: dict[str, Callable[[_Reader, Fields], Iterator[Part]]] = {
    "text": _Reader._text,
    "thinking": _Reader._thinking,
    "redacted_thinking": _Reader._redacted,
    "tool_use": _Reader._call,
    "tool_result": _Reader._result,
    "server_tool_use": _Reader._call,
    "mcp_tool_use": _Reader._call,
    "image": _Reader._image,
    "document": _Reader._document,
    "search_result": _Reader._search_result,
    "compaction": _Reader._compaction,
    "container_upload": _noted("[file: {}; it cannot be read here]", _name_of),
    "tool_reference": _noted(_THERE, _tool_name),
    "tool_addition": _noted(_THERE, _tool_name),
    "tool_removal": _noted("[from here on the tool {} must not be called]", _tool_name),
}
"""By type. The types of results from other servers are known by their end."""
