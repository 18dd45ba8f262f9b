"""A back end that reads and writes compactions: what a client's short item stands for comes back word for word.

    request with items ─ expanded ─▶ whole history, marks ─ edit ─▶ more marks ─▶ back end ─▶ events
                                                             └ stored, and a new item right behind `Started`

An item holds a sealed word (`compaction_store`). Its messages take its place, with the marks of what had left, so the
prompt is the one that the cells hold: only new tokens are computed. Everything in front of the newest item that its
messages have is left out; the rest, which clients add again, stands right behind them.

Where a digest is wanted, the turns that a compaction clears stay for one more answer, so that the model can read them
when it writes the digest.

A provider that has compactions of its own gets requests of its own protocol as they came.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from shepherd.agent.compaction_store import Compacted, CompactionStore, ForeignItem
from shepherd.agent.digest import Digests, DigestWriter, with_digests
from shepherd.agent.extract import extract
from shepherd.agent.turn import calls_of
from shepherd.backends.base import EditingBackend
from shepherd.core import (
    Assembler,
    Event,
    Finished,
    InvalidRequest,
    Message,
    Opaque,
    OpaqueBlock,
    Request,
    Started,
    Text,
    Usage,
)
from shepherd.core.edits import COMPACTION, WHOLE, Edit, Edited
from shepherd.core.messages import Part, leading_systems
from shepherd.process.pools import in_pool
from shepherd.wire.history import plain
from shepherd.wire.values import object_of

logger = logging.getLogger(__name__)

COMPACTING_PROTOCOLS = frozenset({"openai.responses", "anthropic"})
"""Providers of these compact by themselves."""


class EditableBackend(EditingBackend, Protocol):
    """What is behind compactions: a cache or a provider, with its memory."""

    async def count(self, request: Request) -> int: ...

    async def render(self, request: Request) -> str: ...

    async def search_left(self, request: Request, query: str) -> str: ...


class CompactingBackend:
    """One cache or provider; satisfies `Backend`. Requests without edits and items pass through unchanged."""

    def __init__(
        self,
        backend: EditableBackend,
        store: CompactionStore,
        *,
        name: str = "",
        protocol: str = "",
        digests: Digests | None = None,
        writer: DigestWriter | None = None,
    ) -> None:
        """`name`: that of the cache or provider. `protocol`: the provider's; empty for a model of this machine.
        `digests`, `writer`: where digests are written, and how; None = there are none."""
        self._backend = backend
        self._name = name
        self._store = store
        self._protocol = protocol
        self._digests = digests
        self._writer = writer

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`. Raises: as that, `InvalidRequest` for an item that names no
        conversation of this caller."""
        is_plain = not _has_items(request) and (not request.edits or self._passes_on(request))
        return self._backend.stream(request) if is_plain else self._compacted(request)

    async def _compacted(self, request: Request) -> AsyncGenerator[Event, None]:
        whole, request = await in_pool("memory", self._expand, request, fixes=True)
        edited, edits = Edited(request.cleared), request.edits
        if self._passes_on(request):
            edits = ()
        elif edits:
            edited = await self._backend.edit(request, edits)
            request = replace(request, edits=(), cleared=edited.cleared)
        block, word, wishes = None, "", None
        is_paused = any(edit.pause for edit in edits)
        # Until the model has read them, the turns that leave now stay; parts of messages have left before.
        staying = frozenset(place for place in edited.cleared - whole.cleared if place[1] == WHOLE)
        before = replace(request, cleared=edited.cleared - staying)
        if _wants_item(edits, edited):
            block, word = await in_pool("memory", self._item, whole, edited)
            wishes = self._wishes(edits, has_room=is_paused or edited.can_wait)
        if block is not None and is_paused:
            source = _paused(edited, self._name)
        else:
            source = self._backend.stream(request if wishes is None or not edited.can_wait else before)
        assembler, answered = Assembler(), list[Message]()
        is_sent = False
        try:
            async with aclosing(source) as events:
                async for event in events:
                    if wishes is not None:
                        assembler.feed(event)
                    if isinstance(event, Finished) and wishes is not None and not is_paused:
                        answered = [message for message in (assembler.reply().message,) if not calls_of(message)]
                    yield replace(event, edits=edited.applied) if isinstance(event, Started) else event
                    if block is not None and isinstance(event, Started):
                        is_sent = True
                        yield block
        finally:
            if is_sent and wishes is not None and self._digests is not None and self._writer is not None:
                asked = replace(before, messages=(*before.messages, *answered))
                self._digests.begin(self._writer, word, asked, wishes)

    def _wishes(self, edits: Sequence[Edit], *, has_room: bool) -> str | None:
        """What the client wants in the digest; None where none is written."""
        wishes = self._writer.wishes(edits) if self._writer is not None else None
        if wishes is None or has_room or (self._writer is not None and self._writer.most_new is None):
            return wishes
        logger.info("no digest is written of a compaction: what leaves must make room for the answer at once")
        return None

    async def count(self, request: Request) -> int:
        """How many tokens the prompt has, behind the request's edits."""
        request = await self.expanded(request)
        if request.edits and not self._passes_on(request):
            return (await self._backend.edit(request, request.edits)).n_after
        return await self._backend.count(request)

    async def render(self, request: Request) -> str:
        """The prompt as text; what is cleared is in it."""
        return await self._backend.render(await self.expanded(request))

    async def search_left(self, request: Request, query: str) -> str:
        """See `SearchableBackend`; what its items stand for is searched, too."""
        return await self._backend.search_left(await self.expanded(request), query)

    async def expanded(self, request: Request) -> Request:
        """The request with the messages that its items stand for. Raises: as `stream`."""
        return (await in_pool("memory", self._expand, request))[1] if _has_items(request) else request

    def _passes_on(self, request: Request) -> bool:
        """Whether the provider compacts by itself."""
        native = request.native
        return native is not None and native.protocol == self._protocol and self._protocol in COMPACTING_PROTOCOLS

    # ---- items in a request

    def _expand(self, request: Request, *, fixes: bool = False) -> tuple[Request, Request]:
        """The request with the messages that its items stand for, and the same with the digests of these. `fixes`: a
        digest that is new stands with the newest message from now on."""
        passes_on = self._passes_on(request)
        newest: Compacted | None = None
        place, found = (0, 0), dict[str, Compacted]()
        messages = list(request.messages)
        for at, message in enumerate(request.messages):
            for n, part in enumerate(message.parts):
                if not isinstance(part, Opaque) or not _is_item(part):
                    continue
                word = _word_in(part)
                try:
                    each = found.get(word) or self._store.open(word, caller=request.caller)
                except ForeignItem:
                    if not passes_on:
                        raise
                    parts = messages[at].parts  # the provider is that installation, or knows what to do
                    own = Opaque(self._protocol, part.body)
                    messages[at] = replace(messages[at], parts=(*parts[:n], own, *parts[n + 1 :]))
                    continue
                found[word] = each
                if newest is None or len(each.messages) >= len(newest.messages):
                    newest, place = each, (at, n)
        if newest is None:
            whole = replace(request, messages=tuple(messages))
            return whole, whole
        if not all(newest.has(each) for each in found.values()):
            raise InvalidRequest(
                "the request has compaction items of two conversations, or of two branches of one; send the newest of "
                "one branch only",
                field="compaction",
            )
        before, behind = _cut(messages, place)
        whole = self._joined(request, newest, before, behind)
        shown, fresh, where = with_digests(whole, newest.written, is_behind=bool(behind))
        if fixes and fresh is not None:
            self._store.place_digest(fresh.number, where)
        return whole, shown

    def _joined(
        self, request: Request, compacted: Compacted, before: Sequence[Message], behind: Sequence[Message]
    ) -> Request:
        """`before`, `behind`: the messages around the newest item."""
        stored, cleared = compacted.messages, compacted.cleared
        if not self._protocol and (readable := plain(stored)) != stored:
            # A provider has read it before. Where messages were cut in pieces, the marks fit no more.
            stored, cleared = readable, cleared if len(readable) == len(stored) else frozenset()
        n, n_stored = leading_systems(before), leading_systems(stored)
        # Instructions hold for one answer: those of this request take the place of the stored ones.
        systems = (*before[:n], *(each for each in stored[n:n_stored] if each not in before[:n]))
        added = tuple(message for message in before[n:] if message not in compacted.known)
        moved = len(systems) - n_stored
        return replace(
            request,
            messages=(*systems, *stored[n_stored:], *added, *behind),
            cleared=frozenset((at + moved, part) for at, part in cleared if at >= n_stored),
        )

    # ---- a new item

    def _item(self, request: Request, edited: Edited) -> tuple[OpaqueBlock, str]:
        """The item that stands for all messages of the request, and its word. Raises: `InvalidRequest` for too many of
        them."""
        user = (request.user or "").strip()
        word = self._store.keep(request.messages, edited.cleared, caller=request.caller, user=user)
        body = json.dumps({"type": "compaction", "encrypted_content": word})
        return OpaqueBlock(Opaque(COMPACTION, body, (Text(extract(request.messages)),))), word


async def _paused(edited: Edited, cache: str) -> AsyncGenerator[Event, None]:
    """An answer that has nothing but its item."""
    usage = Usage(cache_read=edited.n_before)  # read, and nothing computed
    yield Started(edited.model, usage=usage, cache=cache)
    yield Finished("end", usage)


def _wants_item(edits: Sequence[Edit], edited: Edited) -> bool:
    """Whether old turns leave, or the client wants an item in any case."""
    has_left = any(each.kind == "compact" and each.count for each in edited.applied)
    return has_left or any(edit.pause and edit.trigger_tokens == 0 for edit in edits)


def _has_items(request: Request) -> bool:
    return any(_is_item(part) for message in request.messages for part in message.parts)


def _is_item(part: Part) -> bool:
    return isinstance(part, Opaque) and part.protocol == COMPACTION


def _word_in(item: Opaque) -> str:
    word = object_of(item.body).get("encrypted_content")
    return word if isinstance(word, str) else ""


def _cut(messages: Sequence[Message], place: tuple[int, int]) -> tuple[list[Message], list[Message]]:
    """The messages in front of an item, and those behind it, without items."""
    at, n = place
    message = messages[at]
    before = [*messages[:at], replace(message, parts=message.parts[:n])]
    behind = [replace(message, parts=message.parts[n + 1 :]), *messages[at + 1 :]]
    return list(_without_items(before, at)), list(_without_items(behind, 0))


def _without_items(messages: Sequence[Message], cut: int) -> Iterator[Message]:
    """`cut`: the index of the message that is cut in two: empty, it is none."""
    for at, message in enumerate(messages):
        parts = tuple(part for part in message.parts if not _is_item(part))
        if parts or (len(parts) == len(message.parts) and at != cut):
            yield message if len(parts) == len(message.parts) else replace(message, parts=parts)
