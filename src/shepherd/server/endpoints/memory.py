"""`/v1/memory/*`: the paths of the memory, one row each. Adding a path is adding a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shepherd.core import InvalidRequest
from shepherd.memory.transfer import as_json
from shepherd.server.endpoints.memory_request import Arguments, MemoryEndpoint
from shepherd.wire.base import Json, shown

if TYPE_CHECKING:
    from shepherd.memory import MemoryStore
    from shepherd.memory.records import Conversation


# ---- the answers


def _search(store: MemoryStore, arguments: Arguments) -> Json:
    from shepherd.memory.search.query import Filters  # noqa: PLC0415 - what a server without a memory need not load

    given = arguments.get("conversation")
    found = store.conversation(given) if given else None
    filters = Filters(
        conversation=found.uuid if found else given,
        session=arguments.get("session"),
        roles=tuple(arguments.get("role", ())),
        after_ms=arguments.get("after"),
        before_ms=arguments.get("before"),
        phrase=arguments.get("phrase"),
        prefix=arguments.get("prefix"),
        untrusted=arguments["untrusted"],
    )
    hits = store.search(arguments["q"], arguments["limit"], filters=filters)
    return {"results": [as_json.hit(hit) for hit in hits]}


def _conversations(store: MemoryStore, arguments: Arguments) -> Json:
    found = store.conversations(arguments["limit"] + 1, arguments.get("cursor"))
    page = found[: arguments["limit"]]
    more = page[-1].id if len(found) > len(page) else None
    return {"conversations": [as_json.conversation(each) for each in page], "next": more}


def _messages(store: MemoryStore, arguments: Arguments) -> Json:
    conversation, limit = _get_conversation(store, arguments), arguments["limit"]
    found = store.messages(conversation.uuid, after_seq=arguments.get("cursor", -1), limit=limit + 1, shared=True)
    return {
        "conversation": as_json.conversation(conversation),
        "messages": [as_json.message(each) for each in found[:limit]],
        "next": found[limit - 1].seq if len(found) > limit else None,
    }


def _left(store: MemoryStore, arguments: Arguments) -> Json:
    """Messages by their index in the conversation, as they were said; those that are not archived are left out."""
    session, wanted = arguments["session"], frozenset(arguments["messages"])
    first, last = min(wanted), max(wanted)
    if (conversation := store.newest_conversation(session)) is None:
        message = f"the memory has no conversation of session {shown(session, 80)}"
        raise InvalidRequest(message, field="session", status=404)
    found = store.messages(conversation.uuid, after_seq=first - 1, limit=last - first + 1, shared=True)
    return {
        "messages": [
            {"index": each.seq, "role": each.role, "text": each.body, "id": each.id}
            for each in found if each.seq in wanted
        ]
    }  # fmt: skip


def _get_conversation(store: MemoryStore, arguments: Arguments) -> Conversation:
    name = arguments["conversation"]
    if (found := store.conversation(name)) is None:
        message = f"there is no conversation {shown(name, 80)}; GET /v1/memory/conversations lists them"
        raise InvalidRequest(message, field="conversation", status=404)
    return found


def _message(store: MemoryStore, arguments: Arguments) -> Json:
    if not (found := store.stored([arguments["id"]])):
        raise InvalidRequest(
            f"there is no message {arguments['id']}; it may have been forgotten", field="id", status=404
        )
    conversation = store.conversation_with(found[0].conversation)
    return {"message": as_json.message(found[0]), "conversation": as_json.conversation(conversation)}


def _get_fact(store: MemoryStore, arguments: Arguments) -> Json:
    found = store.get_fact(arguments["key"])
    unknown: Json = {"key": arguments["key"], "value": None}
    answer = {**(unknown if found is None else as_json.fact(found)), "found": found is not None}
    if arguments["history"]:
        answer["history"] = [as_json.fact(each) for each in store.history(answer["key"])]
    return answer


def _judge(store: MemoryStore, arguments: Arguments) -> Json:
    (store.confirm if arguments["action"] == "confirm" else store.reject)(arguments["id"])
    return {"success": True, "id": arguments["id"], "action": arguments["action"]}


def _remember(store: MemoryStore, arguments: Arguments) -> Json:
    store.remember(arguments["question"], arguments["answer"])
    return {"success": True}


def _to_forget(store: MemoryStore, arguments: Arguments) -> Json:
    """What to delete, as arguments of `MemoryStore.find` and `Service.forget`."""
    wanted = {name: arguments[name] for name in ("messages", "matching") if name in arguments}
    if "conversation" in arguments:
        wanted["conversation"] = _get_conversation(store, arguments).uuid
    if "before" in arguments:
        wanted["before_ms"] = arguments["before"]
    if not wanted:
        raise InvalidRequest("name what to forget: messages, conversation, matching or before")
    return wanted


def _export(store: MemoryStore, arguments: Arguments) -> Iterator[str]:
    from shepherd.memory.transfer import export  # noqa: PLC0415 - as above

    return export.lines(store, _get_conversation(store, arguments).uuid if "conversation" in arguments else None)


# ---- the rows


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _number(description: str, low: int = 1, high: int = 2**63 - 1, **more: Any) -> Json:
    return {"type": "integer", "description": description, "minimum": low, "maximum": high, **more}


def _flag(description: str, *, default: bool = False) -> Json:
    return {"type": "boolean", "description": description, "default": default}


def _list(description: str, items: Json, most: int, **more: Any) -> Json:
    return {"type": "array", "description": description, "items": items, "maxItems": most, **more}


_KEY = _text("the name of the fact", minLength=1, maxLength=200)
_CONVERSATION = _text("the uuid of a conversation, or the beginning of it", minLength=1, maxLength=200)
_CURSOR = _number("where to continue: the `next` of the previous page", 0)
_AFTER = _text("only messages of this time or later: ISO 8601, UTC if no zone is given", format="date-time")
_BEFORE = _text("only messages before this time: ISO 8601, UTC if no zone is given", format="date-time")
_ROLE = _text("the role of the message", enum=["user", "assistant", "tool"])
_KIND = _text("the kind of the fact", enum=["fact", "preference", "instruction"])
_PROFILE_KIND = _text("the kind of the entry", enum=["preference", "instruction"])
_QUESTION = _text("the question", minLength=1)

_SEARCH: Mapping[str, Json] = {
    "q": _text("what to search for, in plain words; empty = the latest exchanges", default=""),
    "limit": _number("how many exchanges", 1, 50, default=5),
    "conversation": _CONVERSATION,
    "session": _text("only messages of this session of a client", minLength=1),
    "role": _list("only messages of these roles", _ROLE, 3),
    "after": _AFTER,
    "before": _BEFORE,
    "phrase": _text("words that stand next to each other in the message"),
    "prefix": _text("the beginning of a word of the message"),
    "untrusted": _flag("also text from tools and the web", default=True),
}
_ONE_FACT = "/v1/memory/facts/{key:path}"

MEMORY_ENDPOINTS = (
    *(
        MemoryEndpoint("memory-search", method, "/v1/memory/search", "Search messages, best first", _search, _SEARCH)
        for method in ("GET", "POST")
    ),
    MemoryEndpoint(
        "memory-conversations", "GET", "/v1/memory/conversations", "The conversations, newest first", _conversations,
        {"limit": _number("how many", 1, 1000, default=50), "cursor": _CURSOR},
    ),
    MemoryEndpoint(
        "memory-messages", "GET", "/v1/memory/conversations/{conversation}",
        "The messages of one conversation, in order", _messages,
        {"conversation": _CONVERSATION, "limit": _number("how many", 1, 1000, default=200), "cursor": _CURSOR},
    ),
    MemoryEndpoint(
        "memory-message", "GET", "/v1/memory/messages/{id}", "One message, with its conversation", _message,
        {"id": _number("the id of the message")},
    ),
    MemoryEndpoint(
        "memory-facts", "GET", "/v1/memory/facts", "The known facts",
        lambda store, given: {
            "facts": [as_json.fact(each) for each in store.facts(kind=given.get("kind"), status=given["status"])]
        },
        {
            "kind": _KIND,
            "status": _text(
                "current, replaced by a newer value, or proposed", enum=["current", "past", "candidate"],
                default="current",
            ),
        },
    ),
    MemoryEndpoint(
        "memory-fact", "GET", _ONE_FACT, "One fact", _get_fact,
        {"key": _KEY, "history": _flag("with its earlier values")},
    ),
    *(
        MemoryEndpoint(
            "memory-set-fact", "PUT", path, "Set a fact; its earlier value becomes history",
            lambda store, given: {
                "success": True, **as_json.fact(store.set_fact(given["key"], given["value"], kind=given["kind"])),
            },
            {"key": _KEY, "value": _text("any text"), "kind": {**_KIND, "default": "fact"}}, ("key", "value"),
        )
        for path in (_ONE_FACT, "/v1/memory/facts")
    ),
    *(
        MemoryEndpoint(
            "memory-clear-fact", "DELETE", path, "Delete a fact and its history",
            lambda store, given: {"key": given["key"], "cleared": store.clear_fact(given["key"])},
            {"key": _KEY}, ("key",),
        )
        for path in (_ONE_FACT, "/v1/memory/facts")
    ),
    MemoryEndpoint(
        "memory-profile", "GET", "/v1/memory/profile", "Standing instructions and preferences, and proposed ones",
        lambda store, given: {
            "profile": [as_json.fact(each) for each in store.profile()],
            "candidates": [as_json.fact(each) for each in store.candidates()],
        },
    ),
    MemoryEndpoint(
        "memory-add-to-profile", "POST", "/v1/memory/profile", "Add to the profile, with effect at once",
        lambda store, given: {"success": True, **as_json.fact(store.adopt(given["value"], given["kind"]))},
        {"value": _text("what always holds", minLength=1), "kind": {**_PROFILE_KIND, "default": "instruction"}},
        ("value",),
    ),
    MemoryEndpoint(
        "memory-judge", "POST", "/v1/memory/profile/{id}", "Confirm a proposed entry, or remove an entry", _judge,
        {"id": _number("the id of the entry"), "action": _text("what to do", enum=["confirm", "reject"])},
        ("action",),
    ),
    MemoryEndpoint(
        "memory-note", "POST", "/v1/memory/notes",
        "Store a question and its answer; the same question replaces it", _remember,
        {"question": _QUESTION, "answer": _text("the answer", minLength=1)}, ("question", "answer"),
    ),
    MemoryEndpoint(
        "memory-clear-note", "DELETE", "/v1/memory/notes", "Delete a note",
        lambda store, given: {"question": given["question"], "cleared": store.clear_memory(given["question"])},
        {"question": _QUESTION}, ("question",),
    ),
    MemoryEndpoint(
        "memory-forget", "POST", "/v1/memory/forget",
        "Delete the messages that match all of these, permanently: no byte of them is left", _to_forget,
        {
            "messages": _list("these messages", _number("the id of a message"), 10_000, minItems=1),
            "conversation": _CONVERSATION,
            "matching": _text("every message with this phrase, in small letters or capitals", minLength=1),
            "before": _BEFORE,
            "dry_run": _flag("only count what would be deleted"),
        },
        forgets=True,
    ),
    MemoryEndpoint(
        "memory-stats", "GET", "/v1/memory/stats", "How many messages are stored, and their size",
        lambda store, given: as_json.stats(store.stats()),
    ),
    MemoryEndpoint(
        "window-left", "GET", "/v1/window/left", "What was said in messages that have left the context", _left,
        {
            "session": _text("the conversation, as /v1/window/events names it", minLength=1, maxLength=1000),
            "messages": _list("these messages, by their index", _number("an index", 0, 10**9), 100, minItems=1),
        },
        ("session", "messages"),
    ),
    MemoryEndpoint(
        "memory-export", "GET", "/v1/memory/export", "The whole archive, or one conversation, as lines of JSON",
        parameters={"conversation": _CONVERSATION}, lines=_export,
    ),
)  # fmt: skip
