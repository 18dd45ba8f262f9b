"""`/v1/chats`: the conversations that the server keeps, one row for each path. Adding a path is adding a row.

    path, query, body ─ row.fields ─▶ checked values ─ row.answer(shelf, values) ─▶ JSON
    GET .../events ─▶ the events of one chat as server-sent events, for as long as the client reads

The chats run tools on this machine, so that no page of another origin may send a request (`caller.check_page`). An open
server answers programs of this machine only. A key of one user among others has the chats of that user.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.types import Scope

from shepherd.app.chats import attached
from shepherd.app.chats.chats import MOST_READERS, Owner
from shepherd.app.chats.view import media_of
from shepherd.core import InvalidRequest, Sampling, Text
from shepherd.core.dataclasses import asdict, dataclass
from shepherd.memory.users import LOCAL
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import Endpoint, RequestContext
from shepherd.server.endpoints.openapi import operation_id
from shepherd.server.http.admission import turn_of
from shepherd.server.http.body import PRIVATE, RawHeaders, json_bytes
from shepherd.server.http.caller import caller_of, check_page
from shepherd.wire.base import COMPACT, Fields, Json, decode_json, field_error, shown, wrong
from shepherd.wire.sampling import SAMPLING, sampling_of
from shepherd.wire.table import OBJECT, OBJECTS, STRING, Field, FieldKind, body_schema, integer, one_of, read_fields

if TYPE_CHECKING:
    from shepherd.app.chats.chats import Chat, ChatShelf, Count
    from shepherd.app.chats.event_log import LoggedEvent

Values = Mapping[str, Any]
Answer = Callable[["ChatShelf", Values], Coroutine[Any, Any, Json]]

MOST_LISTED = 1_000
MOST_MESSAGES = 1_000
"""Of one page of a chat."""
MOST_TITLE_CHARS = 200
ACTIONS = {
    "send": ("text", "attachments", "quotes"),
    "retry": ("at",),
    "edit": ("text", "attachments", "quotes", "at"),
    "resume": (),
}
"""What a turn does, and the fields that it takes."""


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    name: str
    method: str
    path: str
    summary: str
    answer: Answer | None = None
    fields: tuple[Field, ...] = ()
    """Of the query, or of the body."""
    begin: Callable[[ChatShelf, Values, Count], Coroutine[Any, Any, Json]] | None = None
    """Instead of `answer`: may begin a turn."""
    respond: Callable[[RequestContext, ChatShelf, Values], Awaitable[None]] | None = None
    """Instead of both: sends what is no JSON."""
    status: int = 200

    @property
    def endpoint(self) -> Endpoint:
        schema = body_schema(*self.fields)
        openapi: Json = {
            "summary": self.summary,
            "operationId": operation_id(self.method, self.path),
            "tags": ["chats"],
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in re.findall(r"{(\w+)}", self.path)
            ],
        }
        if self.method in _WITH_BODY:
            openapi["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        else:
            openapi["parameters"] += [
                {"name": name, "in": "query", "required": False, "schema": each}
                for name, each in schema["properties"].items()
            ]
        methods = ("GET", "HEAD") if self.method == "GET" and self.answer is not None else (self.method,)
        return Endpoint(self.name, (self.path,), self._respond, openapi, methods)

    async def _respond(self, context: RequestContext) -> None:
        scope = context.scope
        check_page(scope)
        context.check_local("the chats")
        shelf = context.state.service.chats.of(_owner(scope))
        body = await context.read_body() if self.method in _WITH_BODY else b""
        given = await context.decode(body, decode_json) if body.strip() else {}
        values = {**self._read(_query(scope, self.fields) if self.method not in _WITH_BODY else given)}
        values |= scope.get("path_params", {})
        if self.respond is not None:
            await self.respond(context, shelf, values)
            return
        if self.begin is not None:
            answer = self.begin(shelf, values, turn_of(scope))
        else:
            assert self.answer is not None
            answer = self.answer(shelf, values)
        found = await context.while_connected(answer)
        context.record.reason = "answered"
        await context.answer(json_bytes(found), PRIVATE, status=self.status)

    def _read(self, given: Json) -> Json:
        known = {name for field in self.fields for name in (field.name, *field.also)}
        for name in given:
            if name not in known:
                here = f"known: {', '.join(sorted(known))}" if known else "this path takes none"
                raise InvalidRequest(f"there is no field {shown(name)} here; {here}", field=name[:80])
        return read_fields(Fields(given), self.fields)


_WITH_BODY = ("POST", "PATCH")


def _owner(scope: Scope) -> Owner:
    """Whose chats a caller has."""
    caller = caller_of(scope)
    return Owner(caller.user or LOCAL, caller.user or "", is_guest=caller.is_one_of_many)


def _query(scope: Scope, fields: tuple[Field, ...]) -> Json:
    """The values of the query as JSON has them."""
    whole = {field.name for field in fields if field.kind.schema.get("type") == "integer"}
    found: Json = {}
    for name, value in parse_qsl(scope["query_string"].decode("utf-8", "replace"), keep_blank_values=True):
        if name in found:
            raise InvalidRequest(f"{shown(name)} is given twice; send one", field=name[:80])
        is_whole = name in whole and re.fullmatch(r"[+-]?[0-9]{1,20}", value)
        found[name] = int(value) if is_whole else value
    return found


# ---- the answers


async def _list(shelf: ChatShelf, values: Values) -> Json:
    return await shelf.page(values["cursor"], values["limit"])


async def _create(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.create(values["model"], values["system"])
    return chat.shown(None, 0)


async def _get(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    return chat.shown(values["before"], values["limit"])


async def _delete(shelf: ChatShelf, values: Values) -> Json:
    await shelf.remove(values["id"])
    return {"deleted": True}


async def _turn(shelf: ChatShelf, values: Values, count: Count) -> Json:
    chat = await shelf.get(values["id"])
    action, text, at = values["action"], values["text"] or "", values["at"]
    if action is None:
        raise InvalidRequest(f"action is missing; send one of {', '.join(ACTIONS)}", field="action")
    for name, value in values.items():
        if value is not None and name not in ("id", "action", *ACTIONS[action]):
            takers = ", ".join(each for each, fields in ACTIONS.items() if name in fields)
            raise InvalidRequest(f"{action} takes no {name}, which belongs to {takers}; leave it out", field=name)
    if action in ("retry", "resume"):
        return {"turn": chat.retry(at, count) if action == "retry" else chat.resume(count)}
    chat.refuse_if_running("send another message")
    files = [*Fields(dict(values)).objects("attachments")]
    if not text.strip() and not files:
        raise InvalidRequest("text is missing: a message needs one, or an attachment", field="text")
    parts = (
        *await attached.quoted(chat, values["quotes"] or ()),
        *await attached.attached(chat, files),
        *((Text(text),) if text.strip() else ()),
    )
    return {"turn": chat.send(parts, count) if action == "send" else chat.edit(parts, at, count)}


async def _change(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    changed = [name for name in ("title", "system", "sampling") if values[name] is not None]
    if {"system", "sampling"} & {*changed}:
        chat.refuse_if_running("change it")
    sampling = _sampling(values["sampling"]) if values["sampling"] is not None else None
    if values["mode"] is not None:
        chat.check_mode(values["mode"])
    if values["model"] is not None:  # first: the others are changed only where this can be
        await chat.move(values["model"])
    if values["mode"] is not None:
        chat.set_mode(values["mode"])
        changed.append("mode")
    if values["title"] is not None:
        chat.session.title = values["title"]
    if values["system"] is not None:
        chat.session.system = values["system"]
    if sampling is not None:
        chat.session.sampling = sampling
    if changed:
        await chat.changed(*changed)
    return chat.shown(None, 0)


def _sampling(given: Json) -> Sampling:
    """Raises: `InvalidRequest`, also for a parameter that there is not."""
    known = {field.name: field for field in SAMPLING}
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"sampling has no {shown(name)}; known: {', '.join(known)}", field=f"sampling.{name}"[:80]
            )
    return sampling_of(read_fields(Fields(given, "sampling"), SAMPLING))


async def _switch(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    for name in ("at", "branch"):
        if values[name] is None:
            raise field_error(name, "is missing")
    await chat.switch(values["at"], values["branch"])
    return chat.shown(None, MOST_LISTED)


async def _command(shelf: ChatShelf, values: Values, count: Count) -> Json:
    from shepherd.app.chats import commands  # noqa: PLC0415 - loads the tools

    chat = await shelf.get(values["id"])
    before = chat.log.number
    if not (values["line"] or "").strip():
        raise InvalidRequest("line is missing: a command, such as /help", field="line")
    lines = await commands.run(chat, values["line"], count)
    return {"lines": lines, "changed": chat.log.number != before}


async def _complete(shelf: ChatShelf, values: Values) -> Json:
    from shepherd.app.chats import commands  # noqa: PLC0415 - loads the tools

    chat = await shelf.get(values["chat"]) if values["chat"] else await shelf.draft()
    return {"suggestions": await commands.suggestions(chat, values["text"] or "")}


async def _options(shelf: ChatShelf, values: Values) -> Json:
    from shepherd.app.chats import commands  # noqa: PLC0415 - loads the tools

    chat = await shelf.get(values["chat"]) if values["chat"] else await shelf.draft()
    return commands.options(chat)


async def _search(shelf: ChatShelf, values: Values) -> Json:
    if not (values["q"] or "").strip():
        raise InvalidRequest("q is missing: the words to search for", field="q")
    return {"results": await shelf.search(values["q"], values["limit"])}


async def _window(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    chat.refuse_if_running("look at its window")
    window = await chat.session.window()
    return {**asdict(window), "n_tokens": window.n_tokens, "n_evicted": window.n_evicted}


# ---- what is no JSON


async def _export(context: RequestContext, shelf: ChatShelf, values: Values) -> None:
    from shepherd.agent import transcript  # noqa: PLC0415 - few conversations are exported

    chat = await shelf.get(values["id"])
    form, kind = _FORMATS[values["format"]]
    made = await in_pool("texts", transcript.FORMATS[form], chat.messages, chat.session.system, chat.session.model)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", chat.id)
    await _send_file(context, made.encode("utf-8", "replace"), kind, f'attachment; filename="{name}.{form}"')


async def _medium(context: RequestContext, shelf: ChatShelf, values: Values) -> None:
    chat = await shelf.get(values["id"])
    index, part = (int(values[name]) if re.fullmatch(r"[0-9]{1,9}", values[name]) else -1 for name in ("index", "part"))
    messages = chat.messages
    media = media_of(messages[index]) if 0 <= index < len(messages) else []
    if not 0 <= part < len(media) or media[part].data is None:
        raise InvalidRequest(
            f"message {shown(values['index'])} has no such image or recording", field="part", status=404
        )
    data, kind = media[part].data or b"", media[part].media_type
    # Any other type may be a page, which would run with the rights of ours.
    kind = kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream"
    await _send_file(context, data, kind, "inline")


_MEDIA_TYPE = re.compile(r"image/(png|jpeg|gif|webp|bmp)|audio/[a-z0-9.-]{1,40}")
_FORMATS = {"markdown": ("md", "text/markdown; charset=utf-8"), "json": ("json", "application/json")}


async def _send_file(context: RequestContext, content: bytes, kind: str, disposition: str) -> None:
    headers: RawHeaders = [
        (b"content-type", kind.encode("ascii")),
        (b"content-length", str(len(content)).encode()),
        (b"content-disposition", disposition.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
        *PRIVATE,
    ]
    context.record.reason = "answered"
    await context.begin(headers)
    context.record.complete = True
    await context.send_fragment(content, is_last=True, more=False)


async def _stop(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    return {"stopped": await chat.stop()}


async def _answer_question(shelf: ChatShelf, values: Values) -> Json:
    chat = await shelf.get(values["id"])
    chat.person.answer(values["question"], values["verdict"], values["values"])
    return {"answered": True}


# ---- the events


async def _events(context: RequestContext, shelf: ChatShelf, values: Values) -> None:
    chat = await shelf.get(values["id"])
    after = values["after"] if values["after"] is not None else _last_event_id(context.scope)
    if chat.log.n_readers >= MOST_READERS:
        raise InvalidRequest(
            f"{MOST_READERS} clients read the events of this chat already; close one", field="id", status=429
        )
    with chat.log.reading():
        await context.stream_events(_pieces(chat, after, context.state.limits.ping_s))


async def _pieces(chat: Chat, after: int | None, ping_s: float) -> AsyncGenerator[bytes, None]:
    log, number = chat.log, -1 if after is None else after
    yield b""  # so that the client knows at once that it reads
    while True:
        events = log.since(number)
        number = log.number
        if events:
            yield b"".join(map(_encoded, events))
        elif chat.is_gone:
            return
        else:
            await log.wait(number, ping_s)
            if log.number == number:
                yield b""


def _encoded(event: LoggedEvent) -> bytes:
    return f"id: {event.number}\nevent: {event.type}\ndata: {COMPACT.encode(event.data)}\n\n".encode("ascii")


def _last_event_id(scope: Scope) -> int | None:
    """What a browser's `EventSource` sends when it comes back."""
    text = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


# ---- the rows


def _read_ids(body: Fields, key: str) -> list[int] | None:
    found = body.find_array(key)
    for at, value in enumerate(found or ()):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise wrong(f"{body.at(key)}[{at}]", "the id of a message", value)
    return found


def _read_title(body: Fields, key: str) -> str | None:
    title = body.find_string(key)
    if title is not None and len(title) > MOST_TITLE_CHARS:
        raise body.error(key, f"has {len(title)} characters; {MOST_TITLE_CHARS} are allowed")
    return title


_ID = "/v1/chats/{id}"
_NUMBER = 2**53

_CHAT = Field("chat", STRING, "The id of a chat; none = as a new one.")
_TITLE = FieldKind(_read_title, {"type": "string", "maxLength": MOST_TITLE_CHARS})
_IDS = FieldKind(_read_ids, {"type": "array", "items": {"type": "integer"}})

_ROWS = (
    ChatEndpoint(  # in front of the ids
        "chats-search", "GET", "/v1/chats/search", "Search all conversations, as the memory does", _search,
        (Field("q", STRING, "Words."), Field("limit", integer(1, 50), default=20)),
    ),
    ChatEndpoint(
        "chats-complete", "GET", "/v1/chats/complete", "What may follow a typed text: commands, and files behind an @",
        _complete, (_CHAT, Field("text", STRING)),
    ),
    ChatEndpoint(
        "chats-options", "GET", "/v1/chats/options", "The models, modes, commands and tools of a chat", _options,
        (_CHAT,),
    ),
    ChatEndpoint(
        "chats-list", "GET", "/v1/chats", "The chats, the newest first", _list,
        (Field("cursor", STRING, "next of the page before."),
         Field("limit", integer(1, MOST_LISTED), "Chats of a page.", default=50)),
    ),
    ChatEndpoint(
        "chats-create", "POST", "/v1/chats", "Begin a chat", _create,
        (Field("model", STRING, "Any name that /model takes; none = the default."),
         Field("system", STRING, "The system prompt; none = the configured one.")),
    ),
    ChatEndpoint(
        "chats-get", "GET", _ID, "A chat with its newest messages, or those before one", _get,
        (Field("before", integer(0, _NUMBER), "Messages in front of this index only."),
         Field("limit", integer(0, MOST_MESSAGES), "Messages of a page.", default=200)),
    ),
    ChatEndpoint("chats-delete", "DELETE", _ID, "Delete a chat", _delete),
    ChatEndpoint(
        "chats-turn", "POST", f"{_ID}/turn", "Begin a turn: it runs in the server, whether its events are read or not",
        None,
        (Field("action", one_of(*ACTIONS), "What the turn does."), Field("text", STRING, "Of send and edit."),
         Field("at", integer(0, _NUMBER), "The question of edit and retry; none = the last one."),
         Field("attachments", OBJECTS, "Files: name, type and data in base64; or the path of a file of the server."),
         Field("quotes", _IDS, "Messages of the memory that come back, by id.")),
        begin=_turn, status=202,
    ),
    ChatEndpoint(
        "chats-events", "GET", f"{_ID}/events", "The events of a chat, as server-sent events", None,
        (Field("after", integer(0, _NUMBER), "The id of the last event that was read."),), respond=_events,
    ),
    ChatEndpoint("chats-stop", "POST", f"{_ID}/stop", "Stop the turn that runs", _stop),
    ChatEndpoint(
        "chats-change", "PATCH", _ID, "Change the title, the system prompt, the model, how answers are drawn", _change,
        (Field("title", _TITLE), Field("system", STRING), Field("model", STRING, "Any name that /model takes."),
         Field("sampling", OBJECT, "All parameters that are set; {} = as the model has them."),
         Field("mode", one_of("ask", "edits", "plan"), "What runs without a question.")),
    ),
    ChatEndpoint(
        "chats-answer", "POST", f"{_ID}/questions/{{question}}", "Answer a question of a tool or of an MCP server",
        _answer_question,
        (Field("verdict", STRING, "One of the question's verdicts."),
         Field("values", OBJECT, "Of a form; null = refused.")),
    ),
    ChatEndpoint(
        "chats-branch", "POST", f"{_ID}/branch", "Continue with another version of a question", _switch,
        (Field("at", integer(0, _NUMBER), "The index of the question."), Field("branch", integer(0, _NUMBER))),
    ),
    ChatEndpoint(
        "chats-command", "POST", f"{_ID}/command", "Run a /command", None, (Field("line", STRING, "As /undo."),),
        begin=_command,
    ),
    ChatEndpoint("chats-window", "GET", f"{_ID}/window", "What the context of the model holds, turn by turn", _window),
    ChatEndpoint(
        "chats-export", "GET", f"{_ID}/export", "The chat as a file", None,
        (Field("format", one_of(*_FORMATS), default="markdown"),), respond=_export,
    ),
    ChatEndpoint(
        "chats-media", "GET", f"{_ID}/media/{{index}}/{{part}}", "An image or a recording of a message", None,
        respond=_medium,
    ),
)  # fmt: skip

CHAT_ENDPOINTS = tuple(row.endpoint for row in _ROWS)
