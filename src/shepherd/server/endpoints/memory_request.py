"""An endpoint of the memory: it checks the user and the arguments, calls the memory in a thread, and answers.

    path, query, header, body ─ row.parameters ─▶ checked values ─ row.answer(store, arguments) ─▶ JSON

A row lists its parameters as JSON Schema: the same lines check a request and describe it in `/docs`. An unknown field
is refused: a misspelt limit must not make a `forget` larger than the client wants.

The header `x-shepherd-user` or the field `user` names the user; without either it is the owner, whose keys they are. A
key that is bound to a user acts as no other one.
Without keys only programs on this machine get an answer, at any address of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from starlette.types import Scope

from shepherd.core import InvalidRequest, NotAllowed
from shepherd.core.dataclasses import dataclass, field
from shepherd.memory.users import LOCAL
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import Endpoint, RequestContext
from shepherd.server.endpoints.openapi import operation_id
from shepherd.server.http.body import PRIVATE, RawHeaders, json_bytes
from shepherd.server.http.caller import USER, caller_of, other_user
from shepherd.server.service import Service
from shepherd.wire.base import Fields, Json, Range, decode_json, field_error, shown, wrong

if TYPE_CHECKING:
    from shepherd.memory import MemoryStore

T = TypeVar("T")

USER_HEADER = USER.decode()
PAGE_BYTES = 64 * 2**10
"""Of an export, sent at once."""

Arguments = Mapping[str, Any]
"""The checked values of a row's parameters; one that is absent and has no default is not in it."""


@dataclass(frozen=True, slots=True)
class MemoryEndpoint:
    name: str
    method: str
    path: str
    summary: str
    answer: Callable[[MemoryStore, Arguments], Json] | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    """By name, the schema of every parameter, wherever it stands: in the path, the query or the body."""
    required: tuple[str, ...] = ()
    """Parameters that a request must have, besides those of the path."""
    lines: Callable[[MemoryStore, Arguments], Iterator[str]] | None = None
    """Instead of `answer`: lines of JSON, made while the client reads."""
    forgets: bool = False
    """`answer` returns what to delete, as arguments of `MemoryStore.find` and `Service.forget`."""

    @property
    def endpoint(self) -> Endpoint:
        openapi = {
            "summary": self.summary,
            "operationId": operation_id(self.method, self.path),
            "tags": ["memory"],
            "responses": {code: {"description": text} for code, text in _ANSWERS.items()},
            **_described(self),
        }
        methods = ("GET", "HEAD") if self.method == "GET" and self.answer is not None else (self.method,)
        return Endpoint(self.name, (self.path,), self._respond, openapi, methods)

    async def _respond(self, context: RequestContext) -> None:
        service = context.state.service
        context.check_local("the memory")
        if self.method in ("POST", "PUT"):
            body = await context.read_body()
        else:
            body = b""
            context.observers.receive(context.scope, body)
        user, arguments = await context.decode(body, lambda body: _decode(self, context.scope, body))
        if self.forgets and not arguments["dry_run"]:
            context.check_deed("caches")
        if self.lines is not None:
            await context.while_connected(_export(context, self.lines, user, arguments))
            return
        # Not `while_connected`: a `forget` that has begun must empty the caches too, even if the client disconnects.
        answer = await self._answer(service, user, arguments)
        context.record.reason = "answered"
        await context.answer(json_bytes(answer), PRIVATE)

    async def _answer(self, service: Service, user: str, arguments: Arguments) -> Json:
        assert self.answer is not None
        answer = await in_pool("memory", _ask, self.answer, service, user, arguments)
        if not self.forgets:
            return answer
        if arguments["dry_run"]:
            found = await in_pool("memory", _ask, lambda store, what: store.find(**what), service, user, answer)
            return {"messages": len(found)}
        removed = await service.forget(user, **answer)
        return {"messages": removed.n_messages, "facts": removed.n_facts}


async def _export(
    context: RequestContext, make: Callable[[MemoryStore, Arguments], Iterator[str]], user: str, arguments: Arguments
) -> None:
    lines = await in_pool("memory", _ask, make, context.state.service, user, arguments)
    page = await in_pool("memory", _page, lines)  # what fails at once is a status, not half an answer
    context.record.status = 200
    await context.send({"type": "http.response.start", "status": 200, "headers": [*_EXPORT_HEADERS, *PRIVATE]})
    # Between pages neither a thread nor a view of the file is held. Observers do not get the pages: the archive may be
    # larger than the RAM.
    while page:
        await context.send({"type": "http.response.body", "body": page, "more_body": True})
        page = await in_pool("memory", _page, lines)
    context.record.complete = True
    context.record.reason = "answered"
    await context.send_last({"type": "http.response.body", "body": b"", "more_body": False})


def _ask(answer: Callable[[MemoryStore, Arguments], T], service: Service, user: str, arguments: Arguments) -> T:
    """What `answer` finds in the user's memory. Runs in a thread."""
    if (store := service.memory(user)) is None:
        raise InvalidRequest("this server has no memory: it is switched off in the configuration", status=404)
    return answer(store, arguments)


def _described(row: MemoryEndpoint) -> Json:
    """A row as OpenAPI describes it."""
    in_path = re.findall(r"{(\w+)", row.path)
    has_body = row.method in ("POST", "PUT")
    by_name = {**row.parameters, "user": _USER}
    parameters = [
        {"name": name, "in": "path" if name in in_path else "query", "required": name in (*in_path, *row.required),
         "schema": schema, "description": schema["description"]}
        for name, schema in by_name.items() if name in in_path or not has_body
    ]  # fmt: skip
    parameters.append({"name": USER_HEADER, "in": "header", "required": False, "schema": _USER})
    if not has_body:
        return {"parameters": parameters}
    required = [name for name in row.required if name not in in_path]
    body = {
        "type": "object",
        "properties": {name: schema for name, schema in by_name.items() if name not in in_path},
        "required": required,
        "additionalProperties": False,
    }
    content = {"application/json": {"schema": body}}
    return {"parameters": parameters, "requestBody": {"required": bool(required), "content": content}}


def _page(lines: Iterator[str]) -> bytes:
    """The next lines, `PAGE_BYTES` or a little more; empty at the end."""
    page = bytearray()
    for line in lines:
        page += line.encode("utf-8", "replace")
        if len(page) >= PAGE_BYTES:
            break
    return bytes(page)


# ---- the arguments


def _decode(row: MemoryEndpoint, scope: Scope, body: bytes) -> tuple[str, Arguments]:
    """The user and the checked values. Raises: `InvalidRequest`; `NotAllowed` for another user than the key's."""
    schemas = {"user": _USER, **row.parameters}
    in_path = {name: _from_text(name, schemas[name], [value]) for name, value in scope.get("path_params", {}).items()}
    values: Json = {}
    for source in (in_path, _query(scope, schemas), _header(scope), decode_json(body) if body else {}):
        for given, value in source.items():
            name = _ALIASES.get(given, given) if _ALIASES.get(given) in schemas else given
            if name not in schemas:
                known = ", ".join(schemas)
                raise InvalidRequest(f"there is no field {shown(given)} here; known: {known}", field=given[:80])
            if value is not None and values.setdefault(name, value) != value:
                raise _twice(name, values[name], value)
    arguments = {}
    for name, schema in schemas.items():
        if name in values:
            arguments[name] = _checked(name, schema, values[name])
        elif name in row.required:
            raise field_error(name, f"is missing: {schema['description']}")
        elif "default" in schema:
            arguments[name] = schema["default"]
    user, own = arguments.pop("user"), caller_of(scope).user
    if own is not None and "user" in values and user.strip() != own:
        raise NotAllowed(other_user("user", user, own), status=403)
    return own or user, arguments


def _twice(name: str, first: object, second: object) -> InvalidRequest:
    return field_error(name, f"has two values: {shown(first)} and {shown(second)}; send one")


def _query(scope: Scope, schemas: Mapping[str, Json]) -> Json:
    """The values of the query as JSON has them; `_checked` refuses a text that its schema does not allow."""
    found: dict[str, list[str]] = {}
    text = scope["query_string"].decode("utf-8", "replace")
    for name, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
        found.setdefault(name, []).append(value)
    return {name: _from_text(name, schemas.get(_ALIASES.get(name, name), _TEXT), each) for name, each in found.items()}


def _from_text(name: str, schema: Json, values: list[str]) -> Any:
    if schema["type"] == "array":
        return [_from_text(name, schema["items"], [part]) for value in values for part in value.split(",")]
    if len({*values}) > 1:
        raise _twice(name, *values[:2])
    text = values[0]
    if schema["type"] == "integer":
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text
    if schema["type"] == "boolean":
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if schema.get("format") == "date-time":
        return re.sub(r"(T.*) (\d\d:?\d\d)$", r"\1+\2", text)  # a plus sign that is not escaped arrives as a space
    return text


def _header(scope: Scope) -> Json:
    given = [value for name, value in scope["headers"] if name == USER]
    try:
        # If a client's and a proxy's differ, the server must not choose one.
        return {"user": _from_text("user", _USER, [value.decode("utf-8") for value in given])} if given else {}
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the header {USER_HEADER} is not valid UTF-8", field="user") from error


def _checked(name: str, schema: Json, value: Any) -> Any:
    """`value`, if `schema` allows it; a time in milliseconds. Raises: `InvalidRequest`."""
    fields = Fields({name: value})
    if schema["type"] == "array":
        values = fields.find_array(name) or []
        if len(values) < schema.get("minItems", 0):
            raise field_error(name, f"is empty: {schema['description']}")
        if len(values) > schema["maxItems"]:
            raise field_error(name, f"has {len(values)} elements; {schema['maxItems']} are allowed")
        return [_checked(f"{name}[{index}]", schema["items"], each) for index, each in enumerate(values)]
    if value is None:  # an element: fields that are null count as absent
        raise field_error(name, f"is null: {schema['description']}")
    if schema["type"] == "integer":
        return fields.find_integer(name, Range(schema["minimum"], schema["maximum"]))
    if schema["type"] == "boolean":
        return fields.find_boolean(name)
    text = fields.get_text(name)
    if "enum" in schema and text not in schema["enum"]:
        raise wrong(name, f"one of {', '.join(schema['enum'])}", text)
    if not text.strip() and schema.get("minLength"):
        raise field_error(name, f"is empty: {schema['description']}")
    if len(text) > schema.get("maxLength", len(text)):
        raise field_error(name, f"has {len(text)} characters; {schema['maxLength']} are allowed")
    return _milliseconds(name, text) if schema.get("format") == "date-time" else text


def _milliseconds(name: str, text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise wrong(name, "a time such as 2026-03-01 or 2026-03-01T12:00:00Z", text) from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


_EXPORT_HEADERS: RawHeaders = [
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="shepherd-memory.jsonl"'),
]
_TEXT: Json = {"type": "string"}
_USER: Json = {
    "type": "string", "description": "whose memory; none = the owner's", "minLength": 1, "maxLength": 256,
    "default": LOCAL,
}  # fmt: skip
_ALIASES = {"query": "q", "max_results": "limit"}
"""As the tool `search_memory` and the Python API call them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANSWERS = {
    "200": "The answer; a list is empty when nothing was found.",
    "400": "The request is wrong; the message names the field.",
    "403": "The API key acts as another user, or may not empty caches that others use.",
    "404": "No such conversation, or no memory here.",
}
