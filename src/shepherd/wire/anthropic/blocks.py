"""The conversation as Anthropic's protocol writes it, decoded into the vocabulary.

    user       tool_result* ┐ a tool message each        assistant   text, thinking, tool_use … ┐ one message
               text, image… ┘ a user message behind                  server_tool_use + result   ┘ call, result, the rest
    system     anywhere; it stays where it is

A message is the same however it comes: as a string or as blocks, with a cache mark or without. Clients send the newest
message one way and the same one another way later, and what a cache holds of it must go on to count. Blocks that nobody
here knows are left out, with a line in the log: a conversation must not be stuck for ever behind one of them.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from shepherd.core import Image, InvalidRequest, Message, Part, Reasoning, Text, ToolCall, ToolResult
from shepherd.wire.base import Fields, shown, wrong

logger = logging.getLogger(__name__)

HEADER_LINES = re.compile(r"(?:x-anthropic-[^\n]*(?:\n|\Z))+")
"""What Claude Code puts in front of a system prompt for the accounting of its vendor: another one for each request, so
that nothing behind it could ever come from a cache."""


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
        """Calls that another server has run, by their id, until their result comes."""

    def system_prompt(self, body: Fields) -> Iterator[Message]:
        yield from _system(_without_headers(self._texts(body, "system")))

    def system(self, message: Fields) -> Iterator[Message]:
        """None where nothing is said: such a message sets an option for the turns behind it."""
        yield from _system(self._texts(message, "content"))

    def user(self, message: Fields) -> Iterator[Message]:
        """The results of calls first: models want them right behind the calls, wherever the client puts them."""
        parts = list(self._parts(message, "content"))
        results = [part for part in parts if isinstance(part, ToolResult)]
        rest = [part for part in parts if not isinstance(part, ToolResult)]
        yield from (Message("tool", (result,)) for result in results)
        if rest or not results:
            yield Message("user", tuple(_joined(rest, "\n")))

    def assistant(self, message: Fields) -> Iterator[Message]:
        """One message, in pieces where a result stands between them."""
        said: list[Part] = []
        told = False
        for part in self._parts(message, "content"):
            if isinstance(part, ToolResult):
                if said:
                    yield Message("assistant", tuple(_joined(said, "")))
                yield Message("tool", (part,))
                said, told = [], True
            else:
                said.append(part)
        if said or not told:
            # Text that a citation has cut in two goes on in the middle of a sentence.
            yield Message("assistant", tuple(_joined(said, "")))

    def _texts(self, holder: Fields, key: str) -> Iterator[Text]:
        """What a system prompt or message says; it can hold nothing but text."""
        return (part for part in self._parts(holder, key) if isinstance(part, Text))

    def _parts(self, holder: Fields, key: str) -> Iterator[Part]:
        """What the blocks of a field say, a string being one of text."""
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

    # ---- what every block says

    def _text(self, block: Fields) -> Iterator[Part]:
        text = block.find_string("text")
        if text is None:
            raise InvalidRequest(f"{block.at('text')} is missing", field=block.at("text"))
        if text:
            yield Text(text)

    def _thinking(self, block: Fields) -> Iterator[Part]:
        yield Reasoning(block.find_string("thinking") or "", block.find_string("signature") or None)

    def _redacted(self, block: Fields) -> Iterator[Part]:
        yield Reasoning("", block.find_string("data"), redacted=True)

    def _call(self, block: Fields) -> Iterator[Part]:
        yield self._new_call(block)

    def _new_call(self, block: Fields) -> ToolCall:
        given = block.find_json("input")
        # A model wrote it: what is no JSON object stays what it is.
        arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
        call = ToolCall(block.get_string("id"), block.get_string("name"), arguments)
        self._names[call.id] = call.name
        return call

    def _result(self, block: Fields) -> Iterator[Part]:
        inner = _joined(self._parts(block, "content"), "\n")
        yield self._new_result(block, tuple(part for part in inner if isinstance(part, Text | Image)))

    def _new_result(self, block: Fields, parts: tuple[Text | Image, ...]) -> ToolResult:
        call_id = block.get_string("tool_use_id", "a tool_result names the call that it answers")
        return ToolResult(call_id, parts, self._names.get(call_id, ""), block.find_boolean("is_error") is True)

    def _call_elsewhere(self, block: Fields) -> Iterator[Part]:
        """Nothing yet: a call without its result says nothing that could be gone on with."""
        call = self._new_call(block)
        self._elsewhere[call.id] = call
        return iter(())

    def _result_from_elsewhere(self, block: Fields) -> Iterator[Part]:
        text = _told(block.find_any("content"))
        result = self._new_result(block, (Text(text),) if text else ())
        call = self._elsewhere.pop(result.call_id, None)
        if call is None:
            logger.info("left out a content block of type %s, whose call is not there", shown(block.find_any("type")))
            return
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
            inside: Iterable[Part] = (Text(text if kind == "text" else _as_text(text, source.at("data"))),)
        elif kind == "content":
            inside = self._parts(source, "content")
        elif kind == "base64":
            n_bytes = len(source.find_string("data") or "") * 3 // 4
            yield Text(_note("document", title, media_type, f"{-(-n_bytes // 1000)} kB", lost="it cannot be read here"))
            return
        else:
            yield Text(_note("document", title, _name_of(source), lost="it cannot be read here"))
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

    def _upload(self, block: Fields) -> Iterator[Part]:
        yield Text(f"[file: {_name_of(block)}; it cannot be read here]")

    def _tool_is_there(self, block: Fields) -> Iterator[Part]:
        yield Text(f"[from here on there is the tool {_tool_name(block)}]")

    def _tool_is_gone(self, block: Fields) -> Iterator[Part]:
        yield Text(f"[from here on the tool {_tool_name(block)} must not be called]")


_READERS: dict[str, Callable[[_Reader, Fields], Iterator[Part]]] = {
    "text": _Reader._text,
    "thinking": _Reader._thinking,
    "redacted_thinking": _Reader._redacted,
    "tool_use": _Reader._call,
    "tool_result": _Reader._result,
    "server_tool_use": _Reader._call_elsewhere,
    "mcp_tool_use": _Reader._call_elsewhere,
    "image": _Reader._image,
    "document": _Reader._document,
    "search_result": _Reader._search_result,
    "compaction": _Reader._compaction,
    "container_upload": _Reader._upload,
    "tool_reference": _Reader._tool_is_there,
    "tool_addition": _Reader._tool_is_there,
    "tool_removal": _Reader._tool_is_gone,
}
"""By type. Results of tools that another server has run are known by the end of their type."""


def _system(texts: Iterable[Text]) -> Iterator[Message]:
    if parts := tuple(_joined(texts, "\n")):
        yield Message("system", parts)


def _without_headers(texts: Iterable[Text]) -> Iterator[Text]:
    """The texts of a system prompt from the first word that is meant for the model."""
    rest = iter(texts)
    for part in rest:
        if bare := HEADER_LINES.sub("", part.text, count=1) if HEADER_LINES.match(part.text) else part.text:
            yield Text(bare)
            break
    yield from rest


def _joined(parts: Iterable[Part], between: str) -> Iterator[Part]:
    """The parts with neighbouring texts as one; `between` them unless a line ends there anyway."""
    for is_text, run in groupby(parts, lambda part: isinstance(part, Text)):
        if not is_text:
            yield from run
            continue
        pieces: list[str] = []
        for part in run:
            assert isinstance(part, Text)
            if pieces and not pieces[-1].endswith("\n") and not part.text.startswith("\n"):
                pieces.append(between)
            pieces.append(part.text)
        yield Text("".join(pieces))


def _bytes_of(text: str, path: str) -> bytes:
    """What base64 spells, at least one byte. Raises: `InvalidRequest` that names `path`."""
    bare = "".join(text.split()).rstrip("=")
    try:
        content = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{path} holds base64 that cannot be decoded: {error}", field=path) from error
    if not content:
        raise InvalidRequest(f"{path} holds 0 bytes", field=path)
    return content


def _as_text(text: str, path: str) -> str:
    return _bytes_of(text, path).decode("utf-8", "replace")


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


def _name_of(source: Fields) -> str:
    """What a client calls a thing that is not here: its file's id or its address."""
    names = (source.find_any(key) for key in ("file_id", "url", "type"))
    return next((name[:200] for name in names if isinstance(name, str) and name), "unnamed")


def _tool_name(block: Fields) -> str:
    """Of the tool that a block is about, which may stand there by name or as a whole."""
    tool = block.find_object("tool") or block
    tool = tool.find_object("definition") or tool
    names = (tool.find_any(key) for key in ("name", "tool_name", "server_name", "mcp_server_name"))
    return next((name[:200] for name in names if isinstance(name, str) and name), "of no name")


_UNTOLD = frozenset({"type", "cache_control", "citations", "caller"})


def _told(content: Any) -> str:
    """What another server's tool has found, in words: its text, and the rest as JSON, but for what is encrypted."""
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(_told, content)))
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
                if key not in _UNTOLD and not key.startswith("encrypted") and not (is_binary and key == "data")
            }
        case list():
            return [_plain(child) for child in value]
        case _:
            return value
