"""The /commands about the memory: /memory, /facts and /profile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shepherd.cli.text import whole_number
from shepherd.core import InvalidRequest

if TYPE_CHECKING:
    from shepherd.cli.chat.state import Chat
    from shepherd.memory.store import MemoryStore


async def memory(chat: Chat, argument: str) -> None:
    store = _store(chat)
    if argument in {"on", "off"}:
        chat.session.recall = argument == "on"
        how = "are shown to the model" if chat.session.recall else "come only when the model searches for them"
        chat.note(f"Memories {how}.")
    elif argument:
        from shepherd.memory.search.search import as_text

        chat.say(as_text(await asyncio.to_thread(store.search, argument), argument))
    else:
        stats = await asyncio.to_thread(store.stats)
        chat.say(f"{stats.messages} messages of {stats.conversations} conversations in {store.path}")
        chat.note(f"Recall is {'on' if chat.session.recall else 'off'}; /memory TEXT searches.")


async def facts(chat: Chat, argument: str) -> None:
    stored = await asyncio.to_thread(chat.memory.facts) if chat.memory else []
    for fact in stored:
        chat.say(f"{fact.key} = {fact.value}")
    if not stored:
        chat.note("No facts are stored.")


async def profile(chat: Chat, argument: str) -> None:
    store = _store(chat)
    verb, _, number = argument.partition(" ")
    if not argument:
        kept = await asyncio.to_thread(store.profile)
        waiting = await asyncio.to_thread(store.candidates)
        for mark, found in (("", kept), ("? ", waiting)):
            for fact in found:
                chat.say(f"{mark}{fact.id}  {fact.value}")
        if waiting:
            chat.note("A question mark is a proposal: /profile keep N keeps it, /profile drop N drops it.")
        elif not kept:
            chat.note("The profile is empty.")
    elif verb in {"keep", "drop"} and (fact_id := whole_number(number.strip())) is not None:
        settle = store.confirm if verb == "keep" else store.reject
        await asyncio.to_thread(settle, fact_id)
        chat.note("Kept: it is in the system prompt from now on." if verb == "keep" else "Dropped.")
    else:
        raise InvalidRequest("write /profile, /profile keep N or /profile drop N", field="profile")


def _store(chat: Chat) -> MemoryStore:
    """Raises: `InvalidRequest` without a memory."""
    if chat.memory is None:
        raise InvalidRequest("this conversation has no memory", field="memory")
    return chat.memory
