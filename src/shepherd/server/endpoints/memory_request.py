"""One question to the memory over HTTP, from its first byte to its last: who asks, whose memory, and what exactly.

    path, query, header, body ─ row.takes ─▶ checked values ─ row.answer(store, asked), in a thread ─▶ JSON

A row says what it takes as JSON Schema: the same lines check a request and describe it in `/docs`. A field that a row
does not know is refused: a misspelt limit must not make a `forget` larger than was meant.

Whose memory: header `x-shepherd-user` or field `user`; neither = the owner's, for so are the keys. Without keys only
programs on this machine are answered, whatever address the server listens on.

Not here: what can be asked (`memory`), and who may use the server at all (`auth`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from shepherd.core import InvalidRequest, NotAllowed, ShepherdError
from shepherd.memory.users import LOCAL
from shepherd.server.endpoints.generate import Limits
from shepherd.server.http.auth import is_loopback
from shepherd.server.http.body import BodyTooLarge, ClientGone, EncodeError, RawHeaders, read_body, send_json
from shepherd.server.http.caller import USER
from shepherd.server.http.errors import retry_headers
from shepherd.server.observe.record import REQUEST_ID
from shepherd.server.service import Service
from shepherd.wire.base import Fields, Json, Range, decode_json, shown, wrong

if TYPE_CHECKING:
    from shepherd.memory import MemoryStore

logger = logging.getLogger("shepherd.server")

T = TypeVar("T")

USER_HEADER = USER.decode()
PAGE_BYTES = 64 * 2**10
"""Of lines: what is sent at once."""


Asked = Mapping[str, Any]
"""The values that a row takes, checked; what was not said and has no default is not there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that can be asked of a memory."""

    method: str
    path: str
    summary: str
    answer: Callable[[MemoryStore, Asked], Json] | None = None
    takes: Mapping[str, Json] = field(default_factory=dict)
    """By name, the schema of every field, wherever it is said: in the path, the query or the body."""
    needs: tuple[str, ...] = ()
    """Those that must be said. What is in the path is, always."""
    lines: Callable[[MemoryStore, Asked], Iterator[str]] | None = None
    """In the place of `answer`: lines of JSON, made as they are read."""
    forgets: Callable[[MemoryStore, Asked], Json] | None = None
    """What must go, as `Service.forget` takes it; `answer` says what a dry run would do."""


def described(row: Row) -> Json:
    """A row as OpenAPI says it."""
    in_path = re.findall(r"{(\w+)", row.path)
    has_body = row.method in ("POST", "PUT")
    by_name = {**row.takes, "user": _USER}
    parameters = [
        {"name": name, "in": "path" if name in in_path else "query", "required": name in (*in_path, *row.needs),
         "schema": schema, "description": schema["description"]}
        for name, schema in by_name.items() if name in in_path or not has_body
    ]  # fmt: skip
    parameters.append({"name": USER_HEADER, "in": "header", "required": False, "schema": _USER})
    body = {
        "type": "object",
        "properties": {name: schema for name, schema in by_name.items() if name not in in_path},
        "required": list(row.needs),
        "additionalProperties": False,
    }
    said: Json = {"parameters": parameters}
    if has_body:
        said["requestBody"] = {"required": bool(row.needs), "content": {"application/json": {"schema": body}}}
    return said


class Inquiry(Response):
    """Answers one request. An ASGI application for one call."""

    background = None

    def __init__(self, row: Row, service: Service, limits: Limits, encode_error: EncodeError, *, is_open: bool) -> None:
        self._row = row
        self._encode_error = encode_error
        self._service = service
        self._limits = limits
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._is_open:
                _refuse_strangers(scope)
            user, asked = await self._read(scope, receive)
            if self._row.lines is None:
                await send_json(send, 200, await self._answer(user, asked), _PRIVATE)
            else:
                await self._export(user, asked, scope, receive, send)
        except ClientGone:
            pass
        except ShepherdError as error:
            if error.status >= 500:
                logger.warning("%s: %s", scope.get(REQUEST_ID, "-"), error)
            unread = receive if isinstance(error, BodyTooLarge) else None
            status, body = self._encode_error(scope["path"], error)
            await send_json(send, status, body, retry_headers(error), unread=unread)

    async def _read(self, scope: Scope, receive: Receive) -> tuple[str, Asked]:
        """Whose memory is meant, and what is asked of it."""
        body = b""
        if self._row.method in ("POST", "PUT"):
            body = await read_body(scope, receive, self._limits.max_body_bytes, self._limits.stall_s)
        if len(body) <= self._limits.inline_bytes:
            return _decode(self._row, scope, body)
        return await asyncio.to_thread(_decode, self._row, scope, body)

    async def _answer(self, user: str, asked: Asked) -> Json:
        row = self._row
        if row.forgets is not None and not asked["dry_run"]:
            removed = await self._service.forget(user, **await asyncio.to_thread(self._ask, row.forgets, user, asked))
            return {"messages": removed.n_messages, "facts": removed.n_facts}
        assert row.answer is not None
        return await asyncio.to_thread(self._ask, row.answer, user, asked)

    def _ask(self, answer: Callable[[MemoryStore, Asked], T], user: str, asked: Asked) -> T:
        """In a thread."""
        if (store := self._service.memory(user)) is None:
            raise InvalidRequest("there is no memory here: it is switched off in the configuration", status=404)
        return answer(store, asked)

    async def _export(self, user: str, asked: Asked, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._row.lines is not None
        lines = await asyncio.to_thread(self._ask, self._row.lines, user, asked)
        first = await asyncio.to_thread(_page, lines)  # what fails at once is a status, not half an answer
        stream = StreamingResponse(_pages(first, lines), media_type="application/x-ndjson")
        stream.raw_headers += [(b"content-disposition", b'attachment; filename="shepherd-memory.jsonl"'), *_PRIVATE]
        try:
            await stream(scope, receive, send)
        except Exception:  # the wall: the client sees that the answer has no end
            logger.exception("%s: the export broke off", scope.get(REQUEST_ID, "-"))


def _refuse_strangers(scope: Scope) -> None:
    """Raises: `NotAllowed` for a peer on another machine; one without an address is in a process of this machine."""
    host = scope["client"][0] if scope.get("client") else "localhost"
    if not is_loopback(host):
        raise NotAllowed(
            f"the memory is told to programs on this machine only, not to {host[:80]!r}, as long as no API key is "
            "configured; configure one (server.api_keys)",
            status=403,
        )


async def _pages(page: bytes, lines: Iterator[str]) -> AsyncGenerator[bytes, None]:
    """`page` and what follows it: no thread and no view of the file is held while the client reads."""
    while page:
        yield page
        page = await asyncio.to_thread(_page, lines)


def _page(lines: Iterator[str]) -> bytes:
    """The next lines, `PAGE_BYTES` or a little more; empty at the end."""
    page = bytearray()
    for line in lines:
        page += line.encode("utf-8", "replace")
        if len(page) >= PAGE_BYTES:
            break
    return bytes(page)


# ---- what is asked


def _decode(row: Row, scope: Scope, body: bytes) -> tuple[str, Asked]:
    """The user and the checked values. Raises: `InvalidRequest`, and nothing else, whatever comes."""
    schemas = {"user": _USER, **row.takes}
    in_path = {name: _spoken(name, schemas[name], [value]) for name, value in scope["path_params"].items()}
    said: Json = {}
    for source in (in_path, _query(scope, schemas), _header(scope), decode_json(body) if body else {}):
        for given, value in source.items():
            name = _ALIASES.get(given, given) if _ALIASES.get(given) in schemas else given
            if name not in schemas:
                known = ", ".join(schemas)
                raise InvalidRequest(f"there is no field {shown(given)} here; known: {known}", field=given[:80])
            if value is None:
                continue
            if said.setdefault(name, value) != value:
                raise InvalidRequest(f"{name} is said twice: {shown(said[name])} and {shown(value)}", field=name)
    asked = {}
    for name, schema in schemas.items():
        if name in said:
            asked[name] = _checked(name, schema, said[name])
        elif name in row.needs:
            raise InvalidRequest(f"{name} is missing: {schema['description']}", field=name)
        elif "default" in schema:
            asked[name] = schema["default"]
    return asked.pop("user"), asked


def _query(scope: Scope, schemas: Mapping[str, Json]) -> Json:
    """The values of the query as JSON would say them; what cannot be one is left as text, for `_checked` to refuse."""
    found: dict[str, list[str]] = {}
    text = scope["query_string"].decode("utf-8", "replace")
    for name, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
        found.setdefault(name, []).append(value)
    return {name: _spoken(name, schemas.get(_ALIASES.get(name, name), _TEXT), values) for name, values in found.items()}


def _spoken(name: str, schema: Json, values: list[str]) -> Any:
    if schema["type"] == "array":
        return [_spoken(name, schema["items"], [part]) for value in values for part in value.split(",")]
    if len({*values}) > 1:
        raise InvalidRequest(f"{name} is said twice: {shown(values[0])} and {shown(values[1])}", field=name)
    text = values[0]
    if schema["type"] == "integer":
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text
    if schema["type"] == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if schema.get("format") == "date-time":
        return re.sub(r"(T.*) (\d\d:?\d\d)$", r"\1+\2", text)  # a plus sign that nobody escaped
    return text


def _header(scope: Scope) -> Json:
    given = [value for name, value in scope["headers"] if name == USER]
    try:
        # Two that differ, a client's and a proxy's, must not be a choice of ours.
        return {"user": _spoken("user", _USER, [value.decode("utf-8") for value in given])} if given else {}
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the header {USER_HEADER} is not valid UTF-8", field="user") from error


def _checked(name: str, schema: Json, value: Any) -> Any:
    """`value`, if it is what `schema` says; a time in milliseconds. Raises: `InvalidRequest`."""
    fields = Fields({name: value})
    if schema["type"] == "array":
        values = fields.find_array(name) or []
        if len(values) < schema.get("minItems", 0):
            raise InvalidRequest(f"{name} is empty: {schema['description']}", field=name)
        if len(values) > schema["maxItems"]:
            raise InvalidRequest(f"{name} has {len(values)} elements; {schema['maxItems']} are allowed", field=name)
        return [_checked(f"{name}[{index}]", schema["items"], each) for index, each in enumerate(values)]
    if schema["type"] == "integer":
        return fields.find_integer(name, Range(schema["minimum"], schema["maximum"]))
    if schema["type"] == "boolean":
        return fields.find_boolean(name)
    text = fields.find_string(name)
    assert text is not None
    if "enum" in schema and text not in schema["enum"]:
        raise wrong(name, f"one of {', '.join(schema['enum'])}", text)
    if not text.strip() and schema.get("minLength"):
        raise InvalidRequest(f"{name} is empty: {schema['description']}", field=name)
    if len(text) > schema.get("maxLength", len(text)):
        raise InvalidRequest(f"{name} has {len(text)} characters; {schema['maxLength']} are allowed", field=name)
    return _milliseconds(name, text) if schema.get("format") == "date-time" else text


def _milliseconds(name: str, text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise wrong(name, "a time such as 2026-03-01 or 2026-03-01T12:00:00Z", text) from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


_PRIVATE: RawHeaders = [(b"cache-control", b"no-store")]
"""What is forgotten here must not be kept by a browser."""
_TEXT: Json = {"type": "string"}
_USER: Json = {
    "type": "string",
    "description": "whose memory; none = the owner's",
    "minLength": 1,
    "maxLength": 256,
    "default": LOCAL,
}
_ALIASES = {"query": "q", "max_results": "limit"}
"""As the tool `search_memory` and the Python API call them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
