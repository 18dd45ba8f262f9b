"""Messages and the events of a turn as the JSON that a page shows.

    Message   ─ shown_message ─▶ {"index", "role", "parts": [{"type": "text", "text": ...}, ...]}
    TurnEvent ─ put_event ─▶ an event of the chat's log

Law, tested: the events of a turn spell the parts of its messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, assert_never
from urllib.parse import quote

from shepherd.agent.turn import CallProgress, CallReturned, TurnEvent
from shepherd.app.chats.event_log import EventLog
from shepherd.app.loading import LoadProgress
from shepherd.core import (
    Audio,
    BadCall,
    CallDelta,
    CallEnded,
    CallStarted,
    Document,
    Evicted,
    Finished,
    Image,
    Message,
    Opaque,
    OpaqueBlock,
    Part,
    Progress,
    Reasoning,
    ReasoningDelta,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)
from shepherd.core.events import Traced

Json = dict[str, Any]

MOST_RESULT_CHARS = 20_000
"""Of the content of one result; the model has read all of it."""


def shown_message(message: Message, index: int, chat: str, extras: Mapping[str, Json] | None = None) -> Json:
    """`chat`: the name in the addresses of images and recordings. `extras`: by call, what its result adds."""
    parts = [part for each in message.parts for part in _shown(each, extras or {})]
    for number, media in enumerate(_media_in(parts)):
        media["url"] = f"v1/chats/{quote(chat, safe='')}/media/{index}/{number}"
    return {"index": index, "role": message.role, "parts": parts, "origin": message.origin}


def media_of(message: Message) -> list[Image | Audio]:
    """The images and recordings of a message in the order of their addresses, those of results included."""
    found: list[Image | Audio] = []
    for part in message.parts:
        result = part.result if isinstance(part, Opaque) else part
        inner = result.parts if isinstance(result, ToolResult) else (part,)
        found += [each for each in inner if isinstance(each, Image | Audio)]
    return found


def shown_usage(usage: Usage) -> Json:
    return {"cached": usage.cache_read, "new": usage.prompt - usage.cache_read, "output": usage.output} | (
        {"recalled": usage.recalled} if usage.recalled else {}
    )


def shown_loading(loading: LoadProgress | None) -> Json:
    """How far the model of a chat is; None = it waits for its turn to load."""
    shown: Json = {"stage": "waiting", "share": None, "loaded_bytes": None, "total_bytes": None}
    if loading is None:
        return shown
    shown["stage"] = loading.stage
    if loading.stage == "weights":
        shown["share"] = round(loading.fraction, 2)
        if total := loading.total_bytes:
            shown |= {"loaded_bytes": round(loading.fraction * total), "total_bytes": total}
    return shown


def shown_result(result: ToolResult, summary: str = "", diff: str = "") -> Json:
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    shown: Json = {"id": result.call_id, "name": result.name, "ok": not result.is_error, "content": text}
    if len(text) > MOST_RESULT_CHARS:
        shown |= {"content": text[:MOST_RESULT_CHARS], "more": True}
    if media := [_medium(part) for part in result.parts if isinstance(part, Image | Audio)]:
        shown["media"] = media
    return shown | {name: value for name, value in (("summary", summary), ("diff", diff)) if value}


def put_event(log: EventLog, event: TurnEvent, call: str, timing: Json) -> None:
    """Add the event of a turn to the log. `call`: the id of the call whose arguments come; `timing`: of a finished
    answer."""
    match event:
        case Started():
            started: Json = {"model": event.model, "cache": event.cache, "usage": shown_usage(event.usage)}
            if event.recalled is not None:
                started["recalled"] = asdict(event.recalled)
            if event.instead_of:
                started["instead_of"] = list(event.instead_of)
            log.put("started", started)
        case Progress():
            log.put("progress", {"done": event.done, "total": event.total}, replaces=True)
        case Evicted():
            log.put("evicted", {"messages": event.messages, "tokens": event.tokens})
        case TextDelta():
            log.put_text("text", event.text)
        case ReasoningDelta():
            log.put_text("thought", event.text)
        case OpaqueBlock():
            for part in _shown(event.block, {}):
                log.put("part", part)
        case CallStarted():
            log.put("call", {"id": event.id, "name": event.name})
        case CallDelta():
            log.put_text("arguments", event.text, id=call)
        case CallEnded():
            log.put("called", shown_call(event.call))
        case Finished():
            log.put("finished", {"reason": event.reason, "usage": shown_usage(event.usage), **timing})
        case CallProgress():
            log.put("call_progress", {"id": event.call.id, "line": event.line}, replaces=True)
        case CallReturned():
            log.put("returned", shown_result(event.result, event.summary, event.diff))
        case Traced():
            pass
        case _:
            assert_never(event)


def shown_call(call: ToolCall | BadCall) -> Json:
    if isinstance(call, BadCall):
        return {"id": call.id, "name": call.name, "arguments": call.raw, "bad": call.error}
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _shown(part: Part, extras: Mapping[str, Json]) -> Iterator[Json]:
    match part:
        case Text():
            yield {"type": "notice" if part.aside else "text", "text": part.text}
        case Reasoning():
            yield {"type": "thought", "text": part.text}
        case Image() | Audio():
            yield _medium(part)
        case Document():
            yield {"type": "document", "name": part.name, "media_type": part.media_type, "text": part.note}
        case ToolCall() | BadCall():
            yield {"type": "call", **shown_call(part)}
        case ToolResult():
            yield {"type": "result", **shown_result(part), **extras.get(part.call_id, {})}
        case Opaque():
            for inner in part.parts:
                yield from _shown(inner, extras)
        case _:
            assert_never(part)


def _medium(part: Image | Audio) -> Json:
    kind = "image" if isinstance(part, Image) else "audio"
    return {"type": kind, "media_type": part.media_type}


def _media_in(parts: Sequence[Json]) -> Iterator[Json]:
    for part in parts:
        if part["type"] in ("image", "audio"):
            yield part
        yield from part.get("media", ())
