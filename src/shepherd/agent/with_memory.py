"""A back end with a memory: messages go into the archive, and what matters for a question comes back into the prompt.

    request ─ archive ─▶ ids ─ recall ─▶ request with quotes ─▶ back end ─▶ events ─ archive ─▶ events

The messages of a request are stored, durably, before its answer begins. So an eviction loses nothing and does no I/O:
it only marks. What is recalled stands in front of the newest user message, and stays there. A client sends its history
without our quotes, so they are kept here and put back at every turn: the prompt begins like the one before (M4). A
quote that is no longer kept costs a prefill, nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Protocol

from shepherd.agent.archiving import Archiving
from shepherd.agent.storage import Quote
from shepherd.backends.base import Backend, EditingBackend
from shepherd.backends.local.window import RowState, SearchableBackend, Window, WindowedBackend, WindowRow
from shepherd.core import (
    Assembler,
    Audio,
    BadCall,
    ContextFull,
    ContextTooSmall,
    Document,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    Opaque,
    Recalled,
    Request,
    ShepherdError,
    Started,
    Text,
)
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.core.edits import WHOLE, Edit, Edited, Place
from shepherd.core.lru import ENTRY_BYTES, LruCache
from shepherd.memory.recall import profile
from shepherd.memory.recall.recall import recall
from shepherd.memory.records import Call, Entry, State, chained
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import UserStores
from shepherd.process.pools import in_pool

logger = logging.getLogger(__name__)

READS_MEMORY = frozenset({"search_memory", "get_fact"})
"""Tools whose results are in the memory already (M9)."""
BUDGET_TOKENS, BUDGET_SHARE = 512, 10
"""Limits of the quotes for one message: tokens, and one part in so many of the context."""
LEAST_BUDGET, LEAST_SHARE = 128, 4
"""A small context has this limit instead, and one part in so many: the lines around the quotes may take 50 tokens."""
PROFILE_TOKENS = 256
BLOCKS_BYTES = 4_000_000
"""For the quotes of thousands of recent questions."""


class CountingBackend(Backend, Protocol):
    """A back end that counts tokens."""

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has. Raises: as `stream`, before `Started`."""
        ...

    async def render(self, request: Request) -> str:
        """The prompt of `request` as text. Raises: as `count`."""
        ...

    @property
    def n_ctx(self) -> int:
        """Tokens that one conversation can hold."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many tokens plain text has."""
        ...


class EntryCache:
    """Recent conversations as the archive stores them: one that has grown is not converted again from its start."""

    def __init__(self, limit: int = 32) -> None:
        self._read = LruCache[tuple[tuple[Message, ...], list[Entry], list[bytes]]](limit)

    def of(self, request: Request) -> tuple[tuple[Entry, ...], list[bytes]]:
        """The entries of a request's messages, and for each a hash of it and all before it."""
        key = (request.user, request.session) if request.session else (request.user, request.messages[:1])
        old, entries, shas = self._read.find(key) or ((), [], [])
        pairs = zip(old, request.messages, strict=False)
        n = next((at for at, (a, b) in enumerate(pairs) if a is not b and a != b), min(len(old), len(request.messages)))
        fresh = [entry_of(message) for message in request.messages[n:]]
        entries, shas = entries[:n] + fresh, shas[:n] + [entry.sha for entry in fresh]
        self._read.keep(key, (request.messages, entries, shas))
        # The user is part of the name: two users may write the same, and must not see each other's quotes.
        return tuple(entries), chained(shas, repr((request.user, _session(request))))

    def clear(self) -> None:
        self._read.clear()


@dataclass(frozen=True, slots=True)
class EnrichedRequest:
    request: Request
    """With what was recalled."""
    history: tuple[Entry, ...] = ()
    """The client's messages, as the archive stores them."""
    ids: tuple[int, ...] = ()
    """Of the messages in the archive, 0 for a message that is not in it; empty when nothing is archived."""
    n_inserted: int = 0
    """Messages in front of the client's: the profile, where there is no system prompt."""
    quotes: Mapping[int, Quote] = field(default_factory=dict)
    """By the index of the client's message."""
    recalled: Recalled | None = None
    """In front of the last message."""
    n_recalled: int = 0
    """Tokens of the quotes in the prompt."""


class MemoryBackend:
    """One cache with a memory; satisfies `Backend`. Requests that name no user are passed on."""

    def __init__(self, backend: CountingBackend, stores: UserStores, archiving: Archiving | None = None) -> None:
        self._backend = backend
        self._stores = stores
        self._archiving = archiving or Archiving()
        self._quotes = LruCache[Quote](BLOCKS_BYTES)
        """What was recalled, by the hash of the history it was recalled for; empty when nothing was found."""
        self._histories = EntryCache()

    def forget(self) -> None:
        """Drop all conversations and quotes: they may hold what must be forgotten."""
        self._quotes.clear()
        self._histories.clear()

    def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        if _wants_memory(request):
            return self._remembered(request)
        return self._unnamed(request) if request.archive and request.messages else self._backend.stream(request)

    async def _unnamed(self, request: Request) -> AsyncGenerator[Event, None]:
        """An answer that should be archived, where nothing says in whose memory: it says that it is not."""
        async with aclosing(self._backend.stream(request)) as events:
            async for event in events:
                yield replace(event, archived=False) if isinstance(event, Started) else event

    async def _remembered(self, request: Request) -> AsyncGenerator[Event, None]:
        """Archive the request, recall for it, archive the answer. What fits without quotes only is answered without."""
        store = await self._store_for(request)
        enriched = EnrichedRequest(request) if store is None else await self._enrich(store, request)
        has_begun = False
        while True:
            try:
                async with aclosing(self._answered(store, request, enriched)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
            except (ContextFull, ContextTooSmall) as full:
                n_excess = full.needed - full.limit if isinstance(full, ContextFull) else 0
                known = self._histories.of(request)
                if has_begun or store is None or not self._unquote(known[1], enriched, n_excess):
                    raise
                enriched = await self._recalled(store, request, enriched.ids, known)
            else:
                return

    async def _answered(
        self, store: MemoryStore | None, request: Request, enriched: EnrichedRequest
    ) -> AsyncGenerator[Event, None]:
        is_lost = bool(request.archive and request.messages and not enriched.ids)
        assembler = Assembler()
        try:
            async with aclosing(self._backend.stream(enriched.request)) as events:
                async for event in events:
                    if isinstance(event, Started | Finished):
                        n_recalled = event.usage.recalled + enriched.n_recalled
                        event = replace(event, usage=replace(event.usage, recalled=n_recalled))
                    if isinstance(event, Started):
                        event = replace(event, archived=not is_lost, recalled=enriched.recalled)
                    if store is not None:
                        assembler.feed(event)
                        match event:
                            case Evicted(gone=gone):
                                _mark(store, enriched, gone)
                            case Finished():
                                reply, assembler = assembler.reply().message, Assembler()
                                await self._archive(store, request, (*enriched.history, entry_of(reply)))
                    yield event
        finally:
            if store is not None and request.archive and (partial := assembler.partial()).parts:
                # Not awaited: a client that stops an answer does not wait for the disk.
                history = (*enriched.history, entry_of(partial))
                attempt = store.submit_archive(history, session=_session(request), model=request.model)
                attempt.add_done_callback(self._archiving.see)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt has, with earlier quotes; nothing is stored or recalled."""
        return await self._backend.count((await self._with_earlier_quotes(request)).request)

    async def render(self, request: Request) -> str:
        """The prompt as text, under the same conditions as `count`."""
        return await self._backend.render((await self._with_earlier_quotes(request)).request)

    # the window of a conversation

    async def edit(self, request: Request, edits: Sequence[Edit]) -> Edited:
        """See `EditingBackend.edit`; places are those of the client's messages, and quotes never leave."""
        if not isinstance(self._backend, EditingBackend):
            raise InvalidRequest("nothing leaves the context of this back end; leave context_management out")
        enriched = await self._with_earlier_quotes(request)
        edited = await self._backend.edit(enriched.request, edits)
        places = (_place_of_client(place, request.messages, enriched) for place in edited.cleared)
        return replace(edited, cleared=frozenset(place for place in places if place is not None))

    async def window(self, request: Request) -> Window:
        """See `WindowedBackend.window`; quotes are part of it. Raises: `InvalidRequest` for other back ends."""
        enriched = await self._with_earlier_quotes(request)
        return _with_memory_rows(await self._windowed.window(enriched.request), enriched)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        """See `WindowedBackend.evict`; the archive marks what leaves. Raises: `InvalidRequest` for other back ends."""
        enriched = await self._with_earlier_quotes(request)
        evicted = await self._windowed.evict(enriched.request, n_turns)
        if (store := await self._store_for(request)) is not None and evicted.gone:
            _mark(store, replace(enriched, ids=await self._archive(store, request, enriched.history)), evicted.gone)
        return evicted

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        if isinstance(self._backend, WindowedBackend):
            await self._backend.recognise((await self._with_earlier_quotes(request)).request, began)

    async def search_left(self, request: Request, query: str) -> str:
        """See `SearchableBackend`; other back ends have nothing."""
        if not isinstance(self._backend, SearchableBackend):
            return ""
        return await self._backend.search_left((await self._with_earlier_quotes(request)).request, query)

    def quotes(self, request: Request) -> dict[int, Quote]:
        """What was recalled for the messages of the request, by their index."""
        _, chains = self._histories.of(request)
        return {at: quote for at, chain in enumerate(chains) if (quote := self._quotes.find(chain)) is not None}

    def quote(self, request: Request, quotes: Mapping[int, Quote]) -> None:
        """Keep these quotes: they are put back in front of their messages."""
        _, chains = self._histories.of(request)
        for at, quote in quotes.items():
            if at < len(chains):
                self._keep(chains[at], replace(quote, n_tokens=self._backend.count_tokens(quote.text)))

    def _keep(self, chain: bytes, quote: Quote) -> None:
        self._quotes.keep(chain, quote, ENTRY_BYTES + sys.getsizeof(quote.text))

    @property
    def _windowed(self) -> WindowedBackend:
        if not isinstance(self._backend, WindowedBackend):
            raise InvalidRequest("this back end does not show its window")
        return self._backend

    async def _with_earlier_quotes(self, request: Request) -> EnrichedRequest:
        """The request with the quotes of earlier turns; nothing is stored or recalled now."""
        store = await self._store_for(request) if request.recall else None
        history, chains = self._histories.of(request)
        if store is None:
            return EnrichedRequest(request, history)
        asked = [at for at, message in enumerate(request.messages) if message.is_input]
        quotes = {at: quote for at in asked if (quote := self._quotes.find(chains[at])) is not None}
        try:
            system = await in_pool("memory", self._profile, store)
        except ShepherdError:
            system = ""
        return _with_profile(EnrichedRequest(request, history, quotes=quotes), system)

    async def _store_for(self, request: Request) -> MemoryStore | None:
        if not _wants_memory(request):
            return None
        try:
            return await in_pool("memory", self._stores.find_store, request.user)
        except ShepherdError as error:
            logger.warning("this turn goes without memory: %s", error)
            if request.archive:
                self._archiving.fail(error)
            return None

    async def _enrich(self, store: MemoryStore, request: Request) -> EnrichedRequest:
        known = self._histories.of(request)
        ids = await self._archive(store, request, known[0])
        if ids and (gone := [ids[at] for at, part in request.cleared if part == WHOLE and ids[at]]):
            await asyncio.wrap_future(store.submit_mark(gone, State.EVICTED))  # so that it may be quoted now
        return await self._recalled(store, request, ids, known)

    async def _recalled(
        self, store: MemoryStore, request: Request, ids: tuple[int, ...], known: tuple[tuple[Entry, ...], list[bytes]]
    ) -> EnrichedRequest:
        """`known`: as `EntryCache.of` has it."""
        history, chains = known
        if not request.recall:
            return EnrichedRequest(request, history, ids)
        try:
            quotes = await self._find_quotes(store, request, history, chains, ids)
            (n_recalled, recalled), system = await in_pool(
                "memory", lambda: (_described(store, request, quotes, ids), self._profile(store))
            )
        except ShepherdError as error:
            logger.warning("nothing is recalled for this turn: %s", error)
            return EnrichedRequest(request, history, ids)
        enriched = EnrichedRequest(request, history, ids, 0, quotes, recalled, n_recalled)
        return _with_profile(enriched, system)

    def _unquote(self, chains: Sequence[bytes], enriched: EnrichedRequest, n_excess: int) -> bool:
        """From now on, quote nothing for the newest question, or else for any; whether that can make so much room."""
        quoted = {at: quote.n_tokens for at, quote in enriched.quotes.items() if quote.text}
        if not quoted or sum(quoted.values()) < n_excess:
            return False
        newest = max(enriched.quotes)
        for at in (newest,) if newest in quoted else quoted:
            self._keep(chains[at], Quote(""))
        return True

    async def _archive(self, store: MemoryStore, request: Request, history: Sequence[Entry]) -> tuple[int, ...]:
        """Store what is new of a history, durably; the ids. A memory that fails does not fail the request. Raises:
        `MemoryFailure` where it is required."""
        if not request.archive:
            return ()
        try:
            future = store.submit_archive(history, session=_session(request), model=request.model)
            ids = await asyncio.wrap_future(future)
        except ShepherdError as error:
            self._archiving.fail(error)
            return ()
        self._archiving.succeed()
        return tuple(ids)

    async def _find_quotes(
        self,
        store: MemoryStore,
        request: Request,
        history: Sequence[Entry],
        chains: Sequence[bytes],
        ids: Sequence[int],
    ) -> dict[int, Quote]:
        """The quotes by the index of their message; for the newest question the memory is searched now."""
        asked = [at for at, message in enumerate(request.messages) if message.is_input and message.own_text.strip()]
        quotes = {at: quote for at in asked if (quote := self._quotes.find(chains[at])) is not None}
        newest = asked[-1] if asked else -1
        if newest >= 0 and newest not in quotes:
            previous = history[asked[-2]].body if len(asked) > 1 else ""
            quotes[newest] = await in_pool("memory", self._recall, store, history[newest].body, previous, ids, quotes)
            self._keep(chains[newest], quotes[newest])
        return quotes

    def _recall(
        self, store: MemoryStore, question: str, previous: str, ids: Sequence[int], quotes: dict[int, Quote]
    ) -> Quote:
        evicted = {id for id, state in store.states(ids).items() if state != State.LIVE}
        live = {id for id in ids if id and id not in evicted}
        shown = {id for at, quote in quotes.items() if not ids or ids[at] in live for id in quote.ids}
        n_ctx, count = self._backend.n_ctx, self._backend.count_tokens
        budget = max(min(BUDGET_TOKENS, n_ctx // BUDGET_SHARE), min(LEAST_BUDGET, n_ctx // LEAST_SHARE))
        found = recall(store, question, previous=previous, live=live, shown=shown, budget=budget, count=count)
        return Quote("") if found is None else Quote(found.text, found.ids, count(found.text), found.words)

    def _profile(self, store: MemoryStore) -> str:
        return profile.render(store.profile(), PROFILE_TOKENS, self._backend.count_tokens)


def _wants_memory(request: Request) -> bool:
    return bool(request.user and (request.archive or request.recall))


def _session(request: Request) -> str | None:
    """The conversation's name. A client that sends only its user's name has not named a conversation."""
    return request.session if request.session != request.user else None


def _mark(store: MemoryStore, enriched: EnrichedRequest, gone: Sequence[int]) -> None:
    """Mark what has left the context; does not wait for the disk."""
    indexes = (at - enriched.n_inserted for at in gone)
    if ids := [enriched.ids[at] for at in indexes if 0 <= at < len(enriched.ids) and enriched.ids[at]]:
        store.submit_mark(ids, State.EVICTED)


def _described(
    store: MemoryStore, request: Request, quotes: Mapping[int, Quote], ids: Sequence[int]
) -> tuple[int, Recalled | None]:
    """The tokens of the quotes in the context, and what is quoted for the last message."""
    quotes = {at: quote for at, quote in quotes.items() if quote.text}
    if not quotes:
        return 0, None
    states = store.states([ids[at] for at in quotes]) if ids else {}
    gone = {at for at in quotes if ids and states.get(ids[at]) == State.EVICTED}
    n_tokens = sum(quote.n_tokens for at, quote in quotes.items() if at not in gone)
    quote = quotes.get(len(request.messages) - 1)
    times = [message.created_ms / 1000 for message in store.stored(quote.ids)] if quote else []
    recalled = None
    if quote and times:
        recalled = Recalled(len(times), quote.n_tokens, min(times), max(times), quote.words, quote.ids)
    return n_tokens, recalled


def _quoted(messages: Sequence[Message], quotes: Mapping[int, Quote]) -> tuple[Message, ...]:
    """The messages, each with its quote in front of its own text."""
    made = list(messages)
    for at, quote in quotes.items():
        if quote.text:
            parts, n = made[at].parts, _place_of_quote(made[at])
            made[at] = replace(made[at], parts=(*parts[:n], Text(quote.text, aside=True), *parts[n:]))
    return tuple(made)


def _place_of_quote(message: Message) -> int:
    """The index of the part that a quote is put in front of."""
    return next((n for n, part in enumerate(message.parts) if not (isinstance(part, Text) and part.aside)), 0)


def _place_in_prompt(place: Place, messages: Sequence[Message], enriched: EnrichedRequest) -> Place:
    """A place of the client's messages, among those with the quotes."""
    at, part = place
    quote = enriched.quotes.get(at)
    is_moved = part != WHOLE and quote is not None and quote.text and part >= _place_of_quote(messages[at])
    return at + enriched.n_inserted, part + 1 if is_moved else part


def _place_of_client(place: Place, messages: Sequence[Message], enriched: EnrichedRequest) -> Place | None:
    """The reverse of `_place_in_prompt`; None for what the client has not sent."""
    at, part = place[0] - enriched.n_inserted, place[1]
    tried = ((at, part), (at, part - 1)) if at >= 0 else ()
    return next((each for each in tried if _place_in_prompt(each, messages, enriched) == place), None)


def _with_profile(enriched: EnrichedRequest, text: str) -> EnrichedRequest:
    """The request with its quotes, and the profile at the end of the system prompt, which is made if needed."""
    request, n_inserted = enriched.request, 0
    messages = _quoted(request.messages, enriched.quotes)
    if text and messages and messages[0].role == "system":
        first = replace(messages[0], parts=(*messages[0].parts, Text(f"\n\n{text}", aside=True)))
        messages = (first, *messages[1:])
    elif text:
        messages, n_inserted = (Message("system", (Text(text, aside=True),)), *messages), 1
    enriched = replace(enriched, n_inserted=n_inserted)
    cleared = frozenset(_place_in_prompt(place, request.messages, enriched) for place in request.cleared)
    return replace(enriched, request=replace(request, messages=messages, cleared=cleared))


def _with_memory_rows(window: Window, enriched: EnrichedRequest) -> Window:
    """The window with a row of its own for the quotes in front of each turn that the context holds."""
    rows: list[WindowRow] = []
    at = -enriched.n_inserted
    for row in window.rows:
        quotes = [enriched.quotes[n] for n in range(at, at + len(row.roles)) if n in enriched.quotes]
        at += len(row.roles)
        n = min(sum(quote.n_tokens for quote in quotes), row.n_tokens)
        if n and row.state != "evicted":
            lines = [line[2:] for quote in quotes for line in quote.text.splitlines() if line.startswith("- ")]
            n_held = min(n, row.n_held)
            state: RowState = "cached" if row.state == "partly" and n_held == n else row.state
            rows.append(WindowRow("memory", row.index, (), " ".join(lines), n, n_held, state, row.kept))
            row = replace(row, n_tokens=row.n_tokens - n, n_held=row.n_held - n_held)
        rows.append(row)
    return replace(window, rows=tuple(rows))


def entry_of(message: Message) -> Entry:
    """A message as the archive stores it: its text, without our asides and without reasoning."""
    results = message.results
    if not results:
        calls = tuple(Call(call.id, call.name, call.arguments) for call in message.calls)
        return Entry(message.role, _text(message.parts), calls=calls)
    texts = (_text(parts) for parts in (*(result.parts for result in results), message.parts))
    return Entry(
        "tool",
        "\n".join(filter(None, texts)),
        tool=", ".join(dict.fromkeys(result.name for result in results if result.name)),
        call_id=", ".join(result.call_id for result in results),
        recalled=all(result.name in READS_MEMORY for result in results),
    )


def _text(parts: Iterable[object]) -> str:
    return "".join(map(_text_of, parts))


def _text_of(part: object) -> str:
    match part:
        case Text(text=text, aside=False):
            return text
        case Image(url=url) if url:
            return f"[image: {url}]" if not url.startswith("data:") else "[image: data]"
        case Image(media_type=kind, data=data) | Audio(media_type=kind, data=data):
            name = hashlib.sha256(data or b"").hexdigest()[:8]
            what = "audio" if isinstance(part, Audio) else "image"
            return f"[{what} {name}: {kind or 'of unknown type'}, {len(data or b'')} bytes]"
        case BadCall(raw=raw):
            return raw
        case Document(note=note):
            return note
        case Opaque(parts=parts):
            return _text(parts)
        case _:
            return ""
