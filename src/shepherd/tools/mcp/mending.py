"""Results of calls that break the protocol, made readable: the tool has run, and the model must see what it has said.

    session ── tools/call, id 7 ──▶ server      the id is noted
    session ◀── result ── mended ◀── server     what is valid stays as it is

A session of the SDK drops a whole result for one wrong field. Here a wrong item becomes text, and a field of another
name, kind or revision what it means. Answers of other requests pass unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.encoding import read_base64
from shepherd.media import image, sound
from shepherd.tools.mcp.content import size

Json = Mapping[str, Any]
PROTOCOL_NAMES = {"is_error": "isError", "structured_content": "structuredContent", "mime_type": "mimeType"}
"""By the name that a library of Python has for it."""
SAID = frozenset({"content", "structuredContent", "isError", "resultType", "_meta"})
DEFAULT_VERSION = "2025-11-25"


@dataclass(slots=True)
class Mending:
    """The calls of one connection that wait for their results."""

    waiting: dict[Any, str] = field(default_factory=dict)
    """By id, the method."""
    version: str = DEFAULT_VERSION

    def see(self, sent: SessionMessage) -> None:
        message = sent.message
        if isinstance(message, types.JSONRPCRequest) and message.method in ("initialize", "tools/call"):
            self.waiting[message.id] = message.method
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self.waiting.pop((message.params or {}).get("requestId"), None)

    def mend(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCError):
            self.waiting.pop(message.id, None)
        if not isinstance(message, types.JSONRPCResponse) or not isinstance(item, SessionMessage):
            return item
        method = self.waiting.pop(message.id, "")
        if method == "initialize":
            self.version = str(message.result.get("protocolVersion", self.version))
        if method != "tools/call" or is_valid(message.result, self.version):
            return item
        result = mended(message.result, self.version)
        return replace(item, message=message.model_copy(update={"result": result}))


def is_valid(result: Json, version: str) -> bool:
    """Whether the session takes it in this revision of the protocol."""
    try:
        validate_server_result("tools/call", version, result)
        types.CallToolResult.model_validate(result, by_name=False)
    except ValidationError:
        return result.get("resultType") not in (None, "complete")  # a question of the server, which is no result yet
    except (KeyError, ValueError):  # a revision that is unknown
        return True
    return True


def mended(result: Json, version: str) -> dict[str, Any]:
    """A result of a tool that is valid in this revision of the protocol."""
    result = {PROTOCOL_NAMES.get(key, key): value for key, value in result.items()}
    content = result.get("content")
    items = content if isinstance(content, list) else [] if content is None else [content]
    if not items and "structuredContent" not in result:
        rest = {key: value for key, value in result.items() if key not in SAID}
        items = [next(iter(rest.values())) if len(rest) == 1 else rest] if rest else []
    made: dict[str, Any] = {"content": [block_of(item, version) for item in items], "resultType": "complete"}
    structured = result.get("structuredContent")
    if structured is not None:
        kept = {**made, "structuredContent": structured}
        made = kept if is_valid(kept, version) else {**made, "content": [*made["content"], text_of(structured)]}
    failed = result.get("isError")
    return {**made, "isError": failed.strip().lower() == "true" if isinstance(failed, str) else bool(failed)}


def block_of(item: Any, version: str) -> Json:
    """An item of a result; one that is not valid becomes what can be made of it, a text at worst."""

    def is_block(block: Json) -> bool:
        return is_valid({"content": [block], "resultType": "complete"}, version)

    if not isinstance(item, Mapping):
        return text_of(item)
    block: dict[str, Any] = {PROTOCOL_NAMES.get(str(key), str(key)): value for key, value in item.items()}
    plain = {key: value for key, value in block.items() if key not in ("annotations", "_meta")}
    ways: tuple[Json, ...] = (block, plain, *(way(plain) for kind, way in GUESSES.items() if plain.get("type") == kind))
    return next(filter(is_block, ways), text_of(plain))


def with_type(find: Callable[[bytes], str | None]) -> Callable[[Json], Json]:
    def guess(block: Json) -> Json:
        try:
            found = find(read_base64(block["data"]))
        except (ValueError, KeyError, AttributeError):
            return block
        return {**block, "mimeType": found or "application/octet-stream"}

    return guess


GUESSES: Mapping[str, Callable[[Json], Json]] = {
    "image": with_type(image.find_type),
    "audio": with_type(sound.find_type),
    "resource_link": lambda link: {"name": link.get("uri", ""), **link},
}
"""By the type of an item, the item with what it lacks."""


def text_of(item: Any) -> Json:
    """A text in the place of what has no valid form: its own text, or a note about its bytes, or its JSON."""
    inner = item.get("resource", item) if isinstance(item, Mapping) else item
    if isinstance(inner, Mapping):
        data = inner.get("data", inner.get("blob"))
        if isinstance(inner.get("text"), str):
            inner = inner["text"]
        elif isinstance(data, str):
            kinds = (item.get("type"), inner.get("mimeType"), size(data))
            inner = f"[{', '.join(str(kind) for kind in kinds if kind)}, not shown]"
    return {"type": "text", "text": inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}


# -- between the transport and the session ----------------------------------------------------------------------------


class _Between:
    """A stream of a transport, and what looks at it."""

    def __init__(self, stream: Any, mending: Mending) -> None:
        self._stream = stream
        self._mending = mending

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*error)
        return ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Mended(_Between):
    """The one that a session reads, with results mended."""

    async def receive(self) -> SessionMessage | Exception:
        return self._mending.mend(await self._stream.receive())

    def __aiter__(self) -> Mended:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._mending.mend(await self._stream.__anext__())


class Seen(_Between):
    """The one that a session writes, whose calls are noted."""

    async def send(self, item: SessionMessage, /) -> None:
        self._mending.see(item)
        await self._stream.send(item)


def with_mended_results(streams: tuple[Any, ...]) -> Any:
    """The streams of a transport, the one to read first, with `Mending` between them and the session."""
    mending = Mending()
    reads, writes, *others = streams
    return (Mended(reads, mending), Seen(writes, mending), *others)
