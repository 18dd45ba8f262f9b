"""The conversation as Anthropic's protocol writes it, decoded to messages.

    user       tool_result* ┐ a tool message each        assistant   text, thinking, tool_use … ┐ one message
               text, image… ┘ a user message behind                  server_tool_use + result   ┘
    system     anywhere; it stays where it is

A message is the same in every form: as a string or as blocks, with a cache mark or without. Clients send the newest
message in one form and the same one in another later, and its cached tokens must stay valid. Blocks that only Anthropic
understands are `Opaque`: they go back to it as they came.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shepherd.core import Document, Image, InvalidRequest, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from shepherd.core.edits import COMPACTION, SEAL
from shepherd.wire.base import Fields, field_error, shown, wrong
from shepherd.wire.extensions import facts_of
from shepherd.wire.parts import decode_base64, joined
from shepherd.wire.signature import raw_for, received, signed

logger = logging.getLogger(__name__)

HEADER_LINES = re.compile(r"(?:x-anthropic-[^\n]*(?:\n|\Z))+")
"""Claude Code begins a system prompt with accounting of its vendor. It changes with each request, so the text behind it
could never come from a cache."""


def decode_conversation(body: Fields, key: str = "messages") -> tuple[Message, ...]:
    """The system prompt and the messages. Raises: `InvalidRequest`."""
    reader = _Reader()
    messages = [*reader.system_prompt(body)]
    if not body.has(key):
        raise field_error(key, "is missing")
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
                raise message.error("role", f"is {shown(role)}; the roles are user, assistant and system")
    if len(messages) == n_before:
        raise field_error(key, "is empty; send at least one message")
    return tuple(messages)


class _Reader:
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
        parts = list(self._blocks(message, "content"))
        results = [part for part in parts if _is_result(part)]
        rest = [part for part in parts if not _is_result(part)]
        yield from (Message("tool", (result,)) for result in results)
        if rest or not results:
            yield Message("user", tuple(joined(rest, "\n")))

    def assistant(self, message: Fields) -> Iterator[Message]:
        # Text that a citation has cut in two continues in the middle of a sentence.
        yield Message("assistant", tuple(joined(self._blocks(message, "content"), "")))

    def _texts(self, holder: Fields, key: str) -> Iterator[Text]:
        return (part for part in self._parts(holder, key) if isinstance(part, Text))

    def _parts(self, holder: Fields, key: str) -> Iterator[Part]:
        """As `_blocks`, for what every model reads."""
        for part in self._blocks(holder, key):
            yield from _readable(part)

    def _blocks(self, holder: Fields, key: str) -> Iterator[Part]:
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
        else:
            yield self.opaque(block)

    def opaque(self, block: Fields) -> Opaque:
        """A block that only Anthropic understands, or one of our own, which we hold."""
        kind = block.get_string("type")
        read = _ELSEWHERE.get(kind) or (_Reader._result_from_elsewhere if kind.endswith("_tool_result") else None)
        if read is None:
            logger.info("a content block of type %s is not known here", shown(kind))
        parts = read(self, block) if read is not None else ()
        inner = tuple(part for part in parts if isinstance(part, Text | ToolCall | ToolResult))
        is_own = kind == "compaction" and (block.find_string("encrypted_content") or "").startswith(SEAL)
        return Opaque(COMPACTION if is_own else "anthropic", _unmarked(block), inner)

    # ---- one kind of block each

    def _text(self, block: Fields) -> Iterator[Part]:
        if not (text := block.get_text("text")):
            return
        notes = block.find_array("citations")
        if notes:
            yield cited([])
        yield Text(text)
        if notes:
            yield cited(notes)

    def _thinking(self, block: Fields) -> Iterator[Part]:
        yield Reasoning(block.find_string("thinking") or "", received("anthropic", block.find_string("signature")))

    def _redacted(self, block: Fields) -> Iterator[Part]:
        yield Reasoning("", received("anthropic", block.find_string("data")), redacted=True)

    def _call(self, block: Fields) -> Iterator[Part]:
        given = block.find_json("input")
        # A model wrote it: text that is no JSON object stays as it is.
        arguments = given if isinstance(given, str) else json.dumps({} if given is None else given, ensure_ascii=False)
        signature = called_by(block.find_any("caller"))
        call = ToolCall(block.get_string("id"), block.get_string("name"), arguments, signature=signature)
        self._names[call.id] = call.name
        yield call

    def _call_elsewhere(self, block: Fields) -> Iterator[Part]:
        """It comes with its result: without one a model could not continue."""
        (call,) = self._call(block)
        assert isinstance(call, ToolCall)
        self._elsewhere[call.id] = call
        return iter(())

    def _result(self, block: Fields) -> Iterator[Part]:
        inner = list(self._blocks(block, "content"))
        read = joined((each for part in inner for each in _readable(part)), "\n")
        result = self._new_result(block, tuple(part for part in read if isinstance(part, Text | Image)))
        if any(isinstance(part, Opaque | Document) for part in inner):
            yield Opaque("anthropic", _unmarked(block), (result,))
        else:
            yield result

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

    def _audio(self, block: Fields) -> Iterator[Part]:
        why = "this protocol has no recordings; send it to /v1/chat/completions as input_audio"
        raise block.error("type", f"is {shown(block.find_any('type'))}, and {why}")

    def _image(self, block: Fields) -> Iterator[Part]:
        source = block.get_object("source")
        kind = source.get_string("type")
        if kind == "base64":
            path = source.at("data")
            yield Image(source.find_string("media_type") or "", _bytes_of(source.get_string("data"), path), path=path)
        elif kind == "url":
            yield _linked_image(source)
        else:
            note = Text(f"[image: {_name_of(source)}; it cannot be seen here]")
            yield Opaque("anthropic", json.dumps(block.body, ensure_ascii=False), (note,))

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
        elif kind == "base64":
            data = _bytes_of(source.get_string("data"), source.at("data"))
            yield Document(title or "unnamed", media_type, data)
            return
        elif kind == "url":
            yield Document(title or "unnamed", url=_web_address(source))
            return
        else:
            note = Text(_note("document", title, _name_of(source), lost="it cannot be read here"))
            yield Opaque("anthropic", json.dumps(block.body, ensure_ascii=False), (note,))
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


def _unmarked(block: Fields) -> str:
    """The block as it came; with a mark for the cache and without, it is the same."""
    return json.dumps({key: value for key, value in block.body.items() if key != "cache_control"}, ensure_ascii=False)


def _readable(part: Part) -> tuple[Part, ...]:
    """What every model reads of a part."""
    match part:
        case Opaque(parts=inner):
            return inner
        case Document():
            return (Text(part.note),)
        case _:
            return (part,)


def _is_result(part: Part) -> bool:
    """Whether it answers a call of the client's own tools."""
    return isinstance(part, ToolResult) or (isinstance(part, Opaque) and part.result is not None)


def cited(notes: list[Any]) -> Opaque:
    """What stands behind a text with citations; without any it only ends the block of the text in front of it."""
    return Opaque("anthropic", json.dumps({"type": "text", "citations": notes}, ensure_ascii=False))


def citations_in(block: Opaque) -> list[Any] | None:
    """Of the text in front of the block; None for a block of another kind."""
    facts = facts_of("anthropic", block)
    notes = facts.get("citations")
    return notes if facts.get("type") == "text" and "text" not in facts and isinstance(notes, list) else None


def called_by(caller: Any) -> str | None:
    """The signature of a call that did not come from the model itself, but from code that the provider runs."""
    if not isinstance(caller, dict) or caller.get("type") in (None, "direct"):
        return None
    return signed("anthropic", json.dumps({"caller": caller}, ensure_ascii=False))


def fields_of_call(signature: str | None) -> dict[str, Any]:
    """The fields of a `tool_use` that `called_by` has kept."""
    caller = facts_of("anthropic", Opaque("anthropic", raw_for("anthropic", signature) or "")).get("caller")
    return {} if caller is None else {"caller": caller}


def opaque_reader() -> Callable[[dict[str, Any]], Opaque]:
    reader = _Reader()

    def read(block: dict[str, Any]) -> Opaque:
        try:
            return reader.opaque(Fields(block))
        except InvalidRequest:  # a block of a newer kind, which only Anthropic reads
            return Opaque("anthropic", json.dumps(block, ensure_ascii=False))

    return read


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
        raise field_error(path, "holds 0 bytes")
    return content


def _linked_image(source: Fields) -> Image:
    url, path = source.get_string("url"), source.at("url")
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        head, _, payload = url.partition(",")
        media_type, _, coding = head[len("data:") :].partition(";")
        if coding != "base64":
            raise field_error(path, f"must look like data:image/png;base64,…, not {shown(url)}")
        return Image(media_type, _bytes_of(payload, path), path=path)
    return Image(url=_web_address(source), path=path)


def _web_address(source: Fields) -> str:
    url, path = source.get_string("url"), source.at("url")
    if url.partition(":")[0].lower() not in ("http", "https"):
        # A `file:` URL would let a client read the disk of the server.
        raise field_error(path, f"must be an http: or https: URL, not {shown(url)}")
    return url


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
    "image": _Reader._image,
    **dict.fromkeys(("audio", "input_audio"), _Reader._audio),
    "document": _Reader._document,
    "search_result": _Reader._search_result,
}
_ELSEWHERE: dict[str, Callable[[_Reader, Fields], Iterator[Part]]] = {
    "server_tool_use": _Reader._call_elsewhere,
    "mcp_tool_use": _Reader._call_elsewhere,
    "compaction": _Reader._compaction,
    "container_upload": _noted("[file: {}; it cannot be read here]", _name_of),
    "tool_reference": _noted(_THERE, _tool_name),
    "tool_addition": _noted(_THERE, _tool_name),
    "tool_removal": _noted("[from here on the tool {} must not be called]", _tool_name),
}
"""By type. The types of results from other servers are known by their end."""
