"""`/v1/window/events`: what the caches hold, as it changes, as server-sent events (docs/window-events.md).

    LiveWindow ─ Listener: news ─▶ encode ─▶ hello · spans · grow · gone · turn · left · miss · moved · recalled · pool

A connection begins with `hello` and the whole picture, and so does every `hello` behind it: a client that reads too
slowly, or comes back, has nothing to make up for. A key of one user gets only what is its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, assert_never
from urllib.parse import parse_qsl

from starlette.types import Scope

from shepherd.app.live_window import Absence, CameBack, Growth, Happened, Hello, Kinds, Listener, News, Pool, Whole
from shepherd.core import InvalidRequest
from shepherd.engine.base import CachedPrefix
from shepherd.engine.window import Kind, Left, Miss, Moved, Picture, Turn
from shepherd.server.endpoints.caches import encode_caches, seen_by
from shepherd.server.endpoints.handler import Endpoint, RequestContext
from shepherd.server.http.body import PRIVATE, json_bytes
from shepherd.server.http.caller import caller_of, sees
from shepherd.server.observe.record import Caller
from shepherd.server.service import Service
from shepherd.wire import sse
from shepherd.wire.base import Json, field_error, shown

VERSION = 1
"""Of the events; it changes when a client that reads this one would be wrong."""
MOST_TOKENS = 2_000
"""Of one answer of `/v1/window/tokens`."""
MOST_DIGITS = 10
NAME_CHARS = 1_000
"""Of a session or a cache in a query."""

_EVENTS = {Turn: "turn", Left: "left", Miss: "miss", Moved: "moved", CameBack: "recalled"}
_NAMES = {"at_s": "at", "source": "from", "target": "to", "now": "is"}
"""Fields of notices that have other names in JSON."""


async def _respond(context: RequestContext) -> None:
    context.check_local("the window")
    session, cache = (_query(context.scope, ("session", "cache")).get(name) for name in ("session", "cache"))
    caller = caller_of(context.scope)

    def concerns(its_cache: str, owner: str, its_session: str | None) -> bool:
        return sees(caller, owner) and cache in (None, its_cache) and session in (None, its_session)

    context.record.reason = "looked"
    with context.state.service.window.listen(concerns) as listener:
        await context.stream_events(_pieces(context, listener, caller))


async def _pieces(context: RequestContext, listener: Listener, caller: Caller) -> AsyncGenerator[bytes, None]:
    while (news := await listener.take(context.state.limits.ping_s)) is not None:
        yield b"".join(_encoded(each, context.state.service, caller) for each in news)


def _query(scope: Scope, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters of the query, each once. Raises: `InvalidRequest`."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("utf-8", "replace"), keep_blank_values=True):
        if name not in known:
            raise InvalidRequest(
                f"there is no parameter {shown(name)} here; known: {', '.join(known)}", field=name[:80]
            )
        if name in found:
            raise field_error(name, "is given twice; send one")
        if len(value) > NAME_CHARS:
            raise field_error(name, f"has {len(value)} characters; {NAME_CHARS} are allowed")
        if value:
            found[name] = value
    return found


async def _answer_tokens(context: RequestContext) -> None:
    context.check_local("the window")
    given = _query(context.scope, ("cache", "seq", "session", "start", "stop"))
    service = context.state.service
    caches = seen_by(caller_of(context.scope), service.stats())
    name = given.get("cache") or next(iter(caches), "")
    if name not in caches:
        message = f"there is no cache {shown(name)}; the caches are: {', '.join(caches) or 'none'}"
        raise InvalidRequest(message, field="cache", status=404)
    seq, start, stop = (_number(given, field) for field in ("seq", "start", "stop"))
    start = start or 0
    stop = start + MOST_TOKENS if stop is None else stop
    if start >= stop:
        raise InvalidRequest(f"stop is {stop} and start {start}; stop must be larger", field="stop")
    if stop - start > MOST_TOKENS:
        raise InvalidRequest(f"{stop - start} tokens are asked for; {MOST_TOKENS} are allowed at a time", field="stop")
    if seq is None and "session" not in given:
        raise InvalidRequest("name the sequence: seq, or session", field="seq")
    found = [each for each in caches[name].sequences if (each.seq == seq if seq is not None else True)]
    found = [each for each in found if given.get("session") in (None, each.session)]
    if not found:
        raise InvalidRequest("this sequence is not in the cells now", field="seq", status=404)
    one, before = found[-1], service.health().caches.get(name)
    tokens = await service.window.tokens(name, one.seq, one.owner, start, stop)
    now = service.health().caches.get(name)
    if before is None or now is None or now.model != (model := before.model):
        raise InvalidRequest("the model of this cache has just changed", field="cache", status=404)
    texts = iter(
        await service.dispatcher.detokenize(model, [each for each in tokens if each >= 0], endpoint=context.path)
    )
    body = [
        {"id": each, "text": next(texts).decode("utf-8", "replace")} if each >= 0 else {"id": None, "text": ""}
        for each in tokens
    ]
    context.record.reason = "answered"
    await context.answer(json_bytes({"cache": name, "seq": one.seq, "start": start, "tokens": body}), PRIVATE)


def _number(given: Mapping[str, str], name: str) -> int | None:
    if (text := given.get(name)) is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < MOST_DIGITS):
        raise field_error(name, f"must be a number from 0, not {shown(text)}")
    return int(text)


# -- events ------------------------------------------------------------------------------------------------------------


def _encoded(news: News, service: Service, caller: Caller) -> bytes:
    match news:
        case Hello():
            caches = {
                name: {"model": each.model, "n_ctx": each.n_ctx} for name, each in service.health().caches.items()
            }
            return sse.encode_event({"version": VERSION, "server": version("shepherd"), "caches": caches}, "hello")
        case Whole():
            return sse.encode_event(encode_whole(news), "spans")
        case Growth(cache, picture, kind):
            last = {"tokens": picture.n_tokens, "held": picture.n_held, "kind": kind}
            return sse.encode_event({"cache": cache, "seq": picture.seq, "session": picture.session, **last}, "grow")
        case Absence(cache, seq):
            return sse.encode_event({"cache": cache, "seq": seq}, "gone")
        case Happened(cache, notice, is_archived):
            facts = {_NAMES.get(name, name): value for name, value in asdict(notice).items() if name != "owner"}
            more = {"archived": is_archived} if isinstance(notice, Left) else {}
            return sse.encode_event({"cache": cache, **facts, **more}, _EVENTS[type(notice)])
        case Pool():
            models = {name: each.model for name, each in service.health().caches.items()}
            return sse.encode_event(encode_caches(seen_by(caller, service.stats()), models), "pool")
        case _:
            assert_never(news)


def encode_whole(whole: Whole) -> Json:
    """One sequence; its spans cover all of its tokens."""
    picture = whole.picture
    return {
        "cache": whole.cache,
        "seq": picture.seq,
        "session": picture.session,
        "tier": picture.tier,
        "n_ctx": whole.n_ctx,
        "tokens": picture.n_tokens,
        "held": picture.n_held,
        "spans": [*_spans(picture, whole.answer)],
    }


def _spans(picture: Picture, kinds: Kinds) -> Iterator[Json]:
    held, at = CachedPrefix(picture.n_tokens, picture.runs), 0

    def span(start: int, stop: int, kind: Kind, message: int | None, *, keep: bool) -> Json:
        n_held = held.count(start, stop)
        return {"start": start, "stop": stop, "kind": kind, "message": message, "keep": keep, "held": n_held}

    for each in picture.parts:
        start, stop = min(each.start, picture.n_tokens), min(each.stop, picture.n_tokens)
        if at < start:
            yield span(at, start, "markup", None, keep=True)
        if start < stop:
            yield span(start, stop, each.kind, each.message, keep=each.keep)
        at = max(at, stop)
    if at < picture.n_prompt:
        yield span(at, picture.n_prompt, "markup", None, keep=True)
        at = picture.n_prompt
    if at < picture.n_tokens:
        answer = max((each.message for each in picture.parts), default=-1) + 1
        last: Kind = kinds[-1][1] if kinds else "assistant"
        for stop, kind in (*kinds[:-1], (picture.n_tokens, last)):  # the last kind reaches to the end
            if at < (stop := min(stop, picture.n_tokens)):
                yield span(at, stop, kind, answer, keep=True)
                at = stop


_PARAMETERS: list[Any] = [
    {"name": "session", "in": "query", "required": False, "schema": {"type": "string"},
     "description": "Only what concerns this conversation."},
    {"name": "cache", "in": "query", "required": False, "schema": {"type": "string"},
     "description": "Only what concerns this cache."},
]  # fmt: skip
_STREAM = {"200": {"description": "A stream of server-sent events, without end: docs/window-events.md.",
                   "content": {"text/event-stream": {"schema": {"type": "string"}}}}}  # fmt: skip

WINDOW_ENDPOINTS = (
    Endpoint(
        "window-events", ("/v1/window/events",), _respond,
        {"summary": "What the caches hold and what happens to it, as it changes", "parameters": _PARAMETERS,
         "responses": _STREAM},
        ("GET",),
    ),
    Endpoint(
        "window-tokens", ("/v1/window/tokens",), _answer_tokens,
        {"summary": "Some tokens of a sequence in the cells, each with its text", "parameters": [
            {"name": name, "in": "query", "required": False, "schema": {"type": kind}, "description": text}
            for name, kind, text in (
                ("cache", "string", "The cache; the default is the first one."),
                ("seq", "integer", "The sequence, as the events name it."),
                ("session", "string", "In place of `seq`: the newest sequence of this conversation."),
                ("start", "integer", "The first token; the default is 0."),
                ("stop", "integer", f"The token behind the last one; at most {MOST_TOKENS} at a time."),
            )
        ]},
        ("GET",),
    ),
)  # fmt: skip
