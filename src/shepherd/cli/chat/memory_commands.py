"""The /commands about what is remembered: /memory, /facts and /profile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shepherd.core import InvalidRequest

if TYPE_CHECKING:
    from shepherd.cli.chat.repl import Repl
    from shepherd.memory.store import MemoryStore


async def memory(repl: Repl, argument: str) -> None:
    """Search, or switch recall on or off."""
    store = _store(repl)
    if argument in {"on", "off"}:
        repl.session.recall = argument == "on"
        told = "are offered to the model" if repl.session.recall else "come only when the model searches for them"
        repl.note(f"Memories {told}.")
    elif argument:
        from shepherd.memory.search.search import as_text

        repl.tell(as_text(await asyncio.to_thread(store.search, argument), argument))
    else:
        stats = await asyncio.to_thread(store.stats)
        repl.tell(f"{stats.messages} messages of {stats.conversations} conversations in {store.path}")
        repl.note(f"Recall is {'on' if repl.session.recall else 'off'}; /memory TEXT searches.")


async def facts(repl: Repl, argument: str) -> None:
    """List the facts."""
    stored = await asyncio.to_thread(repl.memory.facts) if repl.memory else []
    for fact in stored:
        repl.tell(f"{fact.key} = {fact.value}")
    if not stored:
        repl.note("No facts are stored.")


async def profile(repl: Repl, argument: str) -> None:
    """List the standing instructions, keep or drop one."""
    store = _store(repl)
    verb, _, number = argument.partition(" ")
    if not argument:
        kept = await asyncio.to_thread(store.profile)
        waiting = await asyncio.to_thread(store.candidates)
        for mark, found in (("", kept), ("? ", waiting)):
            for fact in found:
                repl.tell(f"{mark}{fact.id}  {fact.value}")
        if waiting:
            repl.note("/profile keep N keeps what has a question mark, /profile drop N drops it.")
        elif not kept:
            repl.note("The profile is empty.")
    elif verb in {"keep", "drop"} and number.isdecimal():
        settle = store.confirm if verb == "keep" else store.reject
        await asyncio.to_thread(settle, int(number))
        repl.note("Kept: it stands in the system prompt from now on." if verb == "keep" else "Dropped.")
    else:
        raise InvalidRequest("say /profile, /profile keep N or /profile drop N", field="profile")


def _store(repl: Repl) -> MemoryStore:
    """Raises: `InvalidRequest` when there is none."""
    if repl.memory is None:
        raise InvalidRequest("this conversation has no memory", field="memory")
    return repl.memory
