"""A back end that remembers: what is said goes into the archive, what matters comes back out of it.

    request ─ archive ─▶ ids ─ recall ─▶ request with quotes ─▶ back end ─▶ events ─ archive ─▶ events

The messages of a request are stored, durably, before its answer begins, so that an eviction loses nothing and does no
I/O; it only marks. What is recalled stands in front of the newest user message, and stays there: a client sends its
history without our quotes, so they are remembered here and put back at every turn, and the prompt begins like the one
before (M4). Forgetting where one stood costs a prefill, nothing else.

Not here: what is worth recalling (`memory.injection`), and who may have a memory (`memory.scope`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from shepherd.agent.storage import Quoted
from shepherd.backends.base import Backend
from shepherd.backends.local.history import ENTRY_BYTES
from shepherd.backends.local.window import Holding, Window
from shepherd.core import (
    Assembler,
    BadCall,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    Request,
    ShepherdError,
    Text,
    ToolCall,
    ToolResult,
)
from shepherd.core.lru import LruCache
from shepherd.memory.recall import profile
from shepherd.memory.recall.recall import recall
from shepherd.memory.records import Call, Entry, State, chained
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import UserStores

logger = logging.getLogger(__name__)

READS_MEMORY = frozenset({"search_memory", "get_fact"})
"""Tools whose results are in the memory already (M9)."""
BUDGET_TOKENS, BUDGET_SHARE = 512, 10
"""What is recalled for one message: at most so many tokens, and one part in so many of the context."""
PROFILE_TOKENS = 256
BLOCKS_BYTES = 4_000_000
"""For what was recalled for the questions of late: thousands of them."""


class Counting(Backend, Protocol):
    """A back end that knows its room."""

    async def count(self, request: Request) -> int:
        """How many tokens the prompt of `request` has. Raises: as `stream`, before `Started`."""
        ...

    @property
    def n_ctx(self) -> int:
        """Tokens that one conversation can hold."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many tokens plain text has."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """What was recalled for one message; empty when nothing was."""

    text: str = ""
    ids: tuple[int, ...] = ()


class Histories:
    """The conversations of late as the archive takes them: one that has grown is not read again from its start."""

    def __init__(self, limit: int = 32) -> None:
        self._read = LruCache[tuple[tuple[Message, ...], list[Entry], list[bytes]]](limit)

    def of(self, request: Request) -> tuple[tuple[Entry, ...], list[bytes]]:
        """The entries of a request's messages, and for each a name for it and all before it."""
        key = (request.user, request.session) if request.session else (request.user, request.messages[:1])
        old, entries, shas = self._read.find(key) or ((), [], [])
        pairs = zip(old, request.messages, strict=False)
        n = next((at for at, (a, b) in enumerate(pairs) if a is not b and a != b), min(len(old), len(request.messages)))
        fresh = [entry_of(message) for message in request.messages[n:]]
        entries, shas = entries[:n] + fresh, shas[:n] + [entry.sha for entry in fresh]
        self._read.keep(key, (request.messages, entries, shas))
        # Named after the user, too: two may say the same, and must not see each other's quotes.
        return tuple(entries), chained(shas, repr((request.user, _session(request))))

    def clear(self) -> None:
        self._read.clear()


@dataclass(frozen=True, slots=True)
class Told:
    """One request, on its way."""

    request: Request
    """With what was recalled."""
    history: tuple[Entry, ...]
    ids: tuple[int, ...]
    """Of the messages in the archive, 0 for what is not in it; empty when nothing is archived."""
    shift: int
    """Messages put in front of the client's."""


class Remembering:
    """One cache with a memory beside it; satisfies `Backend`. Requests that name no user pass through untouched."""

    def __init__(self, backend: Counting, shelf: UserStores) -> None:
        self._backend = backend
        self._shelf = shelf
        self._blocks = LruCache[Block](BLOCKS_BYTES)
        """What was recalled, by the name of the history it was recalled for."""
        self._histories = Histories()

    def forget(self) -> None:
        """Drop everything that was said and recalled: it may be what must be forgotten, or quote it."""
        self._blocks.clear()
        self._histories.clear()

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """The events of one answer; see `Backend.stream`."""
        store = await self._store_for(request)
        if store is None:
            async with aclosing(self._backend.stream(request)) as events:
                async for event in events:
                    yield event
            return
        told = await self._tell(store, request)
        assembler = Assembler()
        try:
            async with aclosing(self._backend.stream(told.request)) as events:
                async for event in events:
                    assembler.feed(event)
                    match event:
                        case Evicted(gone=gone):
                            _mark(store, told, gone)
                        case Finished():
                            reply, assembler = assembler.reply().message, Assembler()
                            await self._archive(store, request, (*told.history, entry_of(reply)))
                    yield event
        finally:
            if (partial := assembler.partial()).parts and request.archive:
                # Not waited for: whoever stops an answer is not to wait for the disk.
                store.submit_archive((*told.history, entry_of(partial)), session=_session(request), model=request.model)

    async def count(self, request: Request) -> int:
        """How many tokens the prompt has, with what was recalled for it already; nothing is stored or recalled."""
        return await self._backend.count((await self._as_told(request)).request)

    # a conversation that is looked at, or comes back

    async def window(self, request: Request) -> Window:
        """See `Holding.window`; what was recalled is part of it. Raises: `InvalidRequest` where nobody knows."""
        return await self._holding.window((await self._as_told(request)).request)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        """See `Holding.evict`; what has left is marked in the archive. Raises: `InvalidRequest` where nobody knows."""
        told = await self._as_told(request)
        evicted = await self._holding.evict(told.request, n_turns)
        if (store := await self._store_for(request)) is not None and evicted.gone:
            _mark(store, replace(told, ids=await self._archive(store, request, told.history)), evicted.gone)
        return evicted

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        """See `Holding.recognise`."""
        if isinstance(self._backend, Holding):
            await self._backend.recognise((await self._as_told(request)).request, began)

    def quotes(self, request: Request) -> dict[int, Quoted]:
        """What was recalled for the messages of the request, by their index."""
        _, chains = self._histories.of(request)
        blocks = {at: self._blocks.find(chain) for at, chain in enumerate(chains)}
        return {at: Quoted(block.text, block.ids) for at, block in blocks.items() if block is not None}

    def quote(self, request: Request, quotes: Mapping[int, Quoted]) -> None:
        """That is what was recalled for them: it stands there again."""
        _, chains = self._histories.of(request)
        for at, quote in quotes.items():
            if at < len(chains):
                self._keep(chains[at], Block(quote.text, quote.ids))

    def _keep(self, chain: bytes, block: Block) -> None:
        self._blocks.keep(chain, block, ENTRY_BYTES + sys.getsizeof(block.text))

    @property
    def _holding(self) -> Holding:
        if not isinstance(self._backend, Holding):
            raise InvalidRequest("what this back end holds of a conversation is not known")
        return self._backend

    async def _as_told(self, request: Request) -> Told:
        """The request as it was told, with what was recalled for it already: nothing is stored or recalled now."""
        store = await self._store_for(request) if request.recall else None
        if store is None:
            return Told(request, self._histories.of(request)[0], (), 0)
        history, chains = self._histories.of(request)
        asked = [at for at, message in enumerate(request.messages) if message.is_input]
        messages = _with_blocks(request.messages, {at: self._blocks.find(chains[at]) for at in asked})
        try:
            system = await asyncio.to_thread(self._profile, store)
        except ShepherdError:
            system = ""
        shift = int(bool(system) and (not messages or messages[0].role != "system"))
        messages = _with_profile(messages, system) if system else messages
        return Told(replace(request, messages=messages), history, (), shift)

    async def _store_for(self, request: Request) -> MemoryStore | None:
        if not (request.user and (request.archive or request.recall)):
            return None
        try:
            return await asyncio.to_thread(self._shelf.find_store, request.user)
        except ShepherdError as error:
            logger.warning("this turn goes without memory: %s", error)
            return None

    async def _tell(self, store: MemoryStore, request: Request) -> Told:
        history, chains = self._histories.of(request)
        ids = await self._archive(store, request, history)
        if not request.recall:
            return Told(request, history, ids, 0)
        try:
            messages = await self._with_quotes(store, request, history, chains, ids)
            system = await asyncio.to_thread(self._profile, store)
        except ShepherdError as error:
            logger.warning("nothing is recalled for this turn: %s", error)
            return Told(request, history, ids, 0)
        shift = 0
        if system:
            shift = int(not messages or messages[0].role != "system")
            messages = _with_profile(messages, system)
        return Told(replace(request, messages=messages), history, ids, shift)

    async def _archive(self, store: MemoryStore, request: Request, history: Sequence[Entry]) -> tuple[int, ...]:
        """Store what is new of a history, durably; the ids. A memory that fails does not keep anybody from talking."""
        if not request.archive:
            return ()
        try:
            future = store.submit_archive(history, session=_session(request), model=request.model)
            ids = await asyncio.wrap_future(future)
            return tuple(ids)
        except ShepherdError as error:
            logger.warning("this turn is not archived: %s", error)
            return ()

    async def _with_quotes(
        self,
        store: MemoryStore,
        request: Request,
        history: Sequence[Entry],
        chains: Sequence[bytes],
        ids: Sequence[int],
    ) -> tuple[Message, ...]:
        """The messages, each with what was recalled for it; for the newest that is decided now."""
        asked = [at for at, message in enumerate(request.messages) if message.is_input and message.text.strip()]
        blocks = {at: block for at in asked if (block := self._blocks.find(chains[at])) is not None}
        newest = asked[-1] if asked else -1
        if newest >= 0 and newest not in blocks:
            previous = history[asked[-2]].body if len(asked) > 1 else ""
            block = await asyncio.to_thread(self._recall, store, history[newest].body, previous, ids, blocks)
            blocks[newest] = block
            self._keep(chains[newest], block)
        return _with_blocks(request.messages, blocks)

    def _recall(
        self, store: MemoryStore, question: str, previous: str, ids: Sequence[int], blocks: dict[int, Block]
    ) -> Block:
        evicted = {id for id, state in store.states(ids).items() if state != State.LIVE}
        live = {id for id in ids if id and id not in evicted}
        shown = {id for at, block in blocks.items() if not ids or ids[at] in live for id in block.ids}
        found = recall(
            store,
            question,
            previous=previous,
            live=live,
            shown=shown,
            budget=min(BUDGET_TOKENS, self._backend.n_ctx // BUDGET_SHARE),
            count=self._backend.count_tokens,
        )
        return Block() if found is None else Block(found.text, found.ids)

    def _profile(self, store: MemoryStore) -> str:
        return profile.render(store.profile(), PROFILE_TOKENS, self._backend.count_tokens)


def _session(request: Request) -> str | None:
    """The conversation's name. A client that only says who its user is has not named a conversation."""
    return request.session if request.session != request.user else None


def _mark(store: MemoryStore, told: Told, gone: Sequence[int]) -> None:
    """Note what has left the context, without waiting for it."""
    indexes = (at - told.shift for at in gone)
    if ids := [told.ids[at] for at in indexes if 0 <= at < len(told.ids) and told.ids[at]]:
        store.submit_mark(ids, State.EVICTED)


def _with_blocks(messages: Sequence[Message], blocks: Mapping[int, Block | None]) -> tuple[Message, ...]:
    """The messages, those with quotes by their index."""
    return tuple(
        _with_block(message, block.text) if (block := blocks.get(at)) and block.text else message
        for at, message in enumerate(messages)
    )


def _with_block(message: Message, text: str) -> Message:
    """The message with quotes in front of what is said in it, behind other asides."""
    at = next((n for n, part in enumerate(message.parts) if not (isinstance(part, Text) and part.aside)), 0)
    return replace(message, parts=(*message.parts[:at], Text(text, aside=True), *message.parts[at:]))


def _with_profile(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The messages with the profile at the end of the system prompt, which is made if there is none."""
    if messages and messages[0].role == "system":
        first = replace(messages[0], parts=(*messages[0].parts, Text(f"\n\n{text}", aside=True)))
        return (first, *messages[1:])
    return (Message("system", (Text(text, aside=True),)), *messages)


def entry_of(message: Message) -> Entry:
    """A message as the archive takes it: what is said in it, without our asides and without thoughts."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if not results:
        return Entry(message.role, _text(message.parts), calls=tuple(_calls(message)))
    return Entry(
        "tool",
        "\n".join(text for parts in (*(result.parts for result in results), message.parts) if (text := _text(parts))),
        tool=", ".join(dict.fromkeys(result.name for result in results if result.name)),
        call_id=", ".join(result.call_id for result in results),
        recalled=all(result.name in READS_MEMORY for result in results),
    )


def _text(parts: Sequence[object]) -> str:
    return "".join(_words(parts))


def _words(parts: Sequence[object]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text(text=text, aside=False):
                yield text
            case Image(media_type=kind, url=url):
                yield f"[image: {url or kind or 'data'}]" if not (url or "").startswith("data:") else "[image: data]"
            case BadCall(raw=raw):
                yield raw
            case _:
                pass


def _calls(message: Message) -> Iterator[Call]:
    for part in message.parts:
        if isinstance(part, ToolCall):
            yield Call(part.id, part.name, part.arguments)
