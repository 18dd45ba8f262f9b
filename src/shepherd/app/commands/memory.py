"""The /commands about the memory: /memory, /facts and /profile."""

from __future__ import annotations

from shepherd.app.commands.command import Surface, number_of
from shepherd.core import InvalidRequest
from shepherd.memory.search.search import as_text
from shepherd.memory.store import MemoryStore
from shepherd.process.pools import in_pool


async def memory(chat: Surface, argument: str) -> None:
    store = await _store(chat)
    if argument in {"on", "off"}:
        chat.session.recall = argument == "on"
        how = "are shown to the model" if chat.session.recall else "come only when the model searches for them"
        chat.note(f"Memories {how}.")
    elif argument:
        chat.say(as_text(await in_pool("memory", store.search, argument), argument))
    else:
        stats = await in_pool("memory", store.stats)
        where = "" if chat.is_guest else f" in {store.path}"
        chat.say(f"{stats.messages} messages of {stats.conversations} conversations{where}")
        chat.note(f"Recall is {'on' if chat.session.recall else 'off'}; /memory TEXT searches.")


async def facts(chat: Surface, argument: str) -> None:
    store = await chat.store()
    stored = [] if store is None else await in_pool("memory", store.facts)
    for fact in stored:
        chat.say(f"{fact.key} = {fact.value}")
    if not stored:
        chat.note("No facts are stored.")


async def profile(chat: Surface, argument: str) -> None:
    store = await _store(chat)
    verb, _, number = argument.partition(" ")
    if not argument:
        kept = await in_pool("memory", store.profile)
        waiting = await in_pool("memory", store.candidates)
        for mark, found in (("", kept), ("? ", waiting)):
            for fact in found:
                chat.say(f"{mark}{fact.id}  {fact.value}")
        if waiting:
            chat.note("A question mark is a proposal: /profile keep N keeps it, /profile drop N drops it.")
        elif not kept:
            chat.note("The profile is empty.")
    elif verb in {"keep", "drop"} and (fact_id := number_of(number.strip())) is not None:
        settle = store.confirm if verb == "keep" else store.reject
        await in_pool("memory", settle, fact_id)
        chat.note("Kept: it is in the system prompt from now on." if verb == "keep" else "Dropped.")
    else:
        raise InvalidRequest("write /profile, /profile keep N or /profile drop N", field="profile")


async def _store(chat: Surface) -> MemoryStore:
    """Raises: `InvalidRequest` without a memory."""
    if (store := await chat.store()) is None:
        raise InvalidRequest("this conversation has no memory", field="memory")
    return store
