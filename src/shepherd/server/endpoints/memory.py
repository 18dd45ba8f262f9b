"""`/v1/memory/*`: what can be asked of the memory over HTTP, one row each. Adding a path is adding a row.

Not here: how a request is read, checked and answered (`inquiry`), what is found and how (`memory`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.responses import Response

from shepherd.core import InvalidRequest
from shepherd.memory.transfer import as_json
from shepherd.server.endpoints.generate import Limits
from shepherd.server.endpoints.memory_request import Asked, Inquiry, Row, described
from shepherd.server.http.body import EncodeError
from shepherd.server.service import Service
from shepherd.wire.base import Json, shown

if TYPE_CHECKING:
    from shepherd.memory import MemoryStore
    from shepherd.memory.records import Conversation


def add_memory_paths(
    app: FastAPI, service: Service, limits: Limits, encode_error: EncodeError, *, is_open: bool
) -> None:
    """Add every row to `app`. `is_open`: no keys are configured."""
    for row in ROWS:
        _add_row(app, row, partial(Inquiry, row, service, limits, encode_error, is_open=is_open))


def _add_row(app: FastAPI, row: Row, inquiry: Callable[[], Inquiry]) -> None:
    async def answer() -> Response:
        return inquiry()

    name = f"{row.method} {row.path}".lower()
    app.add_api_route(
        row.path,
        answer,
        methods=[row.method],
        name=name,
        operation_id=re.sub(r"\W+", "_", name).strip("_"),
        summary=row.summary,
        tags=["memory"],
        response_class=Response,
        responses={code: {"description": says} for code, says in _ANSWERS.items()},
        openapi_extra=described(row),
    )
    if row.method == "GET" and row.answer is not None:
        app.add_api_route(row.path, answer, methods=["HEAD"], include_in_schema=False)


# ---- what is answered


def _search(store: MemoryStore, asked: Asked) -> Json:
    from shepherd.memory.search.query import Filters  # noqa: PLC0415 - what a server without a memory need not load

    given = asked.get("conversation")
    found = store.conversation(given) if given else None
    filters = Filters(
        conversation=found.uuid if found else given,
        session=asked.get("session"),
        roles=tuple(asked.get("role", ())),
        after_ms=asked.get("after"),
        before_ms=asked.get("before"),
        phrase=asked.get("phrase"),
        prefix=asked.get("prefix"),
        untrusted=asked["untrusted"],
    )
    hits = store.search(asked["q"], asked["limit"], filters=filters)
    return {"results": [as_json.hit(hit) for hit in hits]}


def _conversations(store: MemoryStore, asked: Asked) -> Json:
    found = store.conversations(asked["limit"] + 1, asked.get("cursor"))
    page = found[: asked["limit"]]
    more = page[-1].id if found[len(page) :] else None
    return {"conversations": [as_json.conversation(each) for each in page], "next": more}


def _messages(store: MemoryStore, asked: Asked) -> Json:
    conversation = _get_conversation(store, asked)
    found = store.messages(conversation.uuid, after_seq=asked.get("cursor", -1), limit=asked["limit"] + 1, shared=True)
    page = found[: asked["limit"]]
    more = page[-1].seq if found[len(page) :] else None
    return {
        "conversation": as_json.conversation(conversation),
        "messages": [as_json.message(each) for each in page],
        "next": more,
    }


def _get_conversation(store: MemoryStore, asked: Asked) -> Conversation:
    name = asked["conversation"]
    if (found := store.conversation(name)) is None:
        message = f"there is no conversation {shown(name, 80)}; GET /v1/memory/conversations lists them"
        raise InvalidRequest(message, field="conversation", status=404)
    return found


def _facts(store: MemoryStore, asked: Asked) -> Json:
    return {"facts": [as_json.fact(each) for each in store.facts(kind=asked.get("kind"), status=asked["status"])]}


def _get_fact(store: MemoryStore, asked: Asked) -> Json:
    found = store.get_fact(asked["key"])
    said = (
        {"key": asked["key"], "value": None, "found": False}
        if found is None
        else {**as_json.fact(found), "found": True}
    )
    if asked["history"]:
        said["history"] = [as_json.fact(each) for each in store.history(found.key if found else asked["key"])]
    return said


def _set_fact(store: MemoryStore, asked: Asked) -> Json:
    return {"success": True, **as_json.fact(store.set_fact(asked["key"], asked["value"], kind=asked["kind"]))}


def _clear_fact(store: MemoryStore, asked: Asked) -> Json:
    return {"key": asked["key"], "cleared": store.clear_fact(asked["key"])}


def _profile(store: MemoryStore, asked: Asked) -> Json:
    profile, candidates = ([as_json.fact(each) for each in facts] for facts in (store.profile(), store.candidates()))
    return {"profile": profile, "candidates": candidates}


def _adopt(store: MemoryStore, asked: Asked) -> Json:
    return {"success": True, **as_json.fact(store.adopt(asked["value"], asked["kind"]))}


def _judge(store: MemoryStore, asked: Asked) -> Json:
    (store.confirm if asked["action"] == "confirm" else store.reject)(asked["id"])
    return {"success": True, "id": asked["id"], "action": asked["action"]}


def _remember(store: MemoryStore, asked: Asked) -> Json:
    store.remember(asked["question"], asked["answer"])
    return {"success": True}


def _clear_memory(store: MemoryStore, asked: Asked) -> Json:
    return {"question": asked["question"], "cleared": store.clear_memory(asked["question"])}


def _meant(store: MemoryStore, asked: Asked) -> Json:
    """What must go, in the words of the store."""
    meant = {name: asked[name] for name in ("messages", "matching") if name in asked}
    if "conversation" in asked:
        meant["conversation"] = _get_conversation(store, asked).uuid
    if "before" in asked:
        meant["before_ms"] = asked["before"]
    if not meant:
        raise InvalidRequest("say what to forget: messages, conversation, matching or before")
    return meant


def _would_forget(store: MemoryStore, asked: Asked) -> Json:
    return {"messages": len(store.find(**_meant(store, asked)))}


def _stats(store: MemoryStore, asked: Asked) -> Json:
    return as_json.stats(store.stats())


def _export(store: MemoryStore, asked: Asked) -> Iterator[str]:
    from shepherd.memory.transfer import export  # noqa: PLC0415 - as above

    return export.lines(store, _get_conversation(store, asked).uuid if "conversation" in asked else None)


# ---- what can be asked


def _text(says: str, **more: Any) -> Json:
    return {"type": "string", "description": says, **more}


def _number(says: str, low: int = 1, high: int = 2**63 - 1, **more: Any) -> Json:
    return {"type": "integer", "description": says, "minimum": low, "maximum": high, **more}


def _flag(says: str) -> Json:
    return {"type": "boolean", "description": says, "default": False}


def _list(says: str, items: Json, most: int, **more: Any) -> Json:
    return {"type": "array", "description": says, "items": items, "maxItems": most, **more}


_KEY = _text("the name of the fact", minLength=1, maxLength=200)
_CONVERSATION = _text("the uuid of a conversation, or how it begins", minLength=1, maxLength=200)
_CURSOR = _number("where to read on: the `next` of the page before", 0)
_AFTER = _text("said at this time or later: ISO 8601, UTC if it does not say otherwise", format="date-time")
_BEFORE = _text("said before this time: ISO 8601, UTC if it does not say otherwise", format="date-time")
_ROLE = _text("who said it", enum=["user", "assistant", "tool"])
_KIND = _text("what kind of fact", enum=["fact", "preference", "instruction"])
_PROFILE_KIND = _text("what kind", enum=["preference", "instruction"])

_SEARCH: Mapping[str, Json] = {
    "q": _text("what to look for, in plain words; empty = the latest exchanges", default=""),
    "limit": _number("how many exchanges", 1, 50, default=5),
    "conversation": _CONVERSATION,
    "session": _text("in this session of a client only", minLength=1),
    "role": _list("who said it", _ROLE, 3),
    "after": _AFTER,
    "before": _BEFORE,
    "phrase": _text("words that stand side by side in the message"),
    "prefix": _text("how a word of the message begins"),
    "untrusted": {**_flag("also what came from tools and the web"), "default": True},
}

ROWS = (
    Row("GET", "/v1/memory/search", "Find what was said, best first", _search, _SEARCH),
    Row("POST", "/v1/memory/search", "Find what was said, best first", _search, _SEARCH),
    Row(
        "GET", "/v1/memory/conversations", "The conversations, newest first", _conversations,
        {"limit": _number("how many", 1, 1000, default=50), "cursor": _CURSOR},
    ),
    Row(
        "GET", "/v1/memory/conversations/{conversation}", "The messages of one conversation, in order", _messages,
        {"conversation": _CONVERSATION, "limit": _number("how many", 1, 1000, default=200), "cursor": _CURSOR},
    ),
    Row(
        "GET", "/v1/memory/facts", "The facts that are known", _facts,
        {
            "kind": _KIND,
            "status": _text("now, once, or proposed", enum=["current", "past", "candidate"], default="current"),
        },
    ),
    Row(
        "GET", "/v1/memory/facts/{key:path}", "One fact", _get_fact,
        {"key": _KEY, "history": _flag("with the values it had before")},
    ),
    *(
        Row(
            "PUT", path, "Set a fact; the value it had before becomes history", _set_fact,
            {"key": _KEY, "value": _text("any text"), "kind": {**_KIND, "default": "fact"}}, ("key", "value"),
        )
        for path in ("/v1/memory/facts/{key:path}", "/v1/memory/facts")
    ),
    *(
        Row("DELETE", path, "Clear a fact and all its history", _clear_fact, {"key": _KEY}, ("key",))
        for path in ("/v1/memory/facts/{key:path}", "/v1/memory/facts")
    ),
    Row("GET", "/v1/memory/profile", "Standing instructions and preferences, and proposed ones", _profile),
    Row(
        "POST", "/v1/memory/profile", "Add to the profile; it counts at once", _adopt,
        {"value": _text("what always counts", minLength=1), "kind": {**_PROFILE_KIND, "default": "instruction"}},
        ("value",),
    ),
    Row(
        "POST", "/v1/memory/profile/{id}", "Confirm what was proposed, or take something away", _judge,
        {"id": _number("the id of the candidate"), "action": _text("what to do", enum=["confirm", "reject"])},
        ("action",),
    ),
    Row(
        "POST", "/v1/memory/notes", "Note a question and its answer; the same question again replaces it", _remember,
        {"question": _text("the question", minLength=1), "answer": _text("the answer", minLength=1)},
        ("question", "answer"),
    ),
    Row(
        "DELETE", "/v1/memory/notes", "Forget a note", _clear_memory,
        {"question": _text("the question", minLength=1)}, ("question",),
    ),
    Row(
        "POST", "/v1/memory/forget", "Forget what is all of this, for good; no byte of it is left", _would_forget,
        {
            "messages": _list("these messages", _number("the id of a message"), 10_000, minItems=1),
            "conversation": _CONVERSATION,
            "matching": _text("all that holds this phrase, in small letters or capitals", minLength=1),
            "before": _BEFORE,
            "dry_run": _flag("only tell what would be forgotten"),
        },
        forgets=_meant,
    ),
    Row("GET", "/v1/memory/stats", "How much is kept, and how large it is", _stats),
    Row(
        "GET", "/v1/memory/export", "The whole archive, or one conversation, as lines of JSON", lines=_export,
        takes={"conversation": _CONVERSATION},
    ),
)  # fmt: skip

MEMORY_ENDPOINTS = [f"{row.method} {row.path.replace(':path', '')}" for row in ROWS]

_ANSWERS = {
    200: "What was asked for; a list is empty when nothing was found.",
    400: "The request is wrong; the message names the field.",
    404: "No such conversation, or no memory here.",
}
