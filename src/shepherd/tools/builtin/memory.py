"""The memory's tools: search it, and keep facts and notes in it.

Names, arguments and results are the seeds' (requirements 3.6). The context names the owner of the memory; the model
cannot. Descriptions are short, since every prompt contains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shepherd.memory.search.search import TEXT_CHARS, as_text
from shepherd.memory.store import MemoryStore
from shepherd.process.pools import in_pool
from shepherd.tools.base import ToolError
from shepherd.tools.signature import tool
from shepherd.tools.tool import ToolContext

MOST_RESULTS = 50
LEAST_CHARS = 300
"""Of a result, before results are left out."""

KEY = {"name": "key"}
QUESTION = {"key": "question"}
"""Other names that models use."""


@tool(category="memory", effect="read", subject="query")
async def search_memory(context: ToolContext, query: str, max_results: int = 5) -> str:
    """Search earlier conversations."""
    left = await context.search_left(query) if context.search_left is not None else ""
    if context.memory is None and context.search_left is not None:
        return left or f"Nothing that has left this conversation matches: {query}"
    store, room = memory_of(context), context.budget - context.count(left)

    def search() -> str:
        # The newest turn is the question itself.
        without = store.newest_turn(context.session) if context.session else []
        hits = store.search(query, min(max(1, max_results), MOST_RESULTS), without=without)
        n_chars = TEXT_CHARS
        while context.count(text := as_text(hits, query, most_chars=n_chars)) > room and len(hits) > 1:
            # First the long texts are shortened, then the least relevant results are dropped.
            n_chars //= 2
            if n_chars < LEAST_CHARS * len(hits):
                n_chars, hits = LEAST_CHARS * (len(hits) - 1), hits[:-1]
        return text

    return left + await in_pool("memory", search)


@tool(category="memory", effect="read", subject="key", argument_aliases=KEY)
async def get_fact(context: ToolContext, key: str) -> dict[str, Any]:
    """Look up a value by key."""
    fact = await in_pool("memory", memory_of(context).get_fact, key)
    return {"value": fact.value} if fact else {"value": None, "found": False}


async def would_change(context: ToolContext, arguments: Mapping[str, Any]) -> str:
    """The change of a fact, as a diff; empty for none. Without a `value` it is deleted."""
    key, value = arguments["key"], arguments.get("value")
    fact = await in_pool("memory", memory_of(context).get_fact, key)
    before = fact.value if fact else None
    sides = [] if before == value else [("-", before), ("+", value)]
    return "\n".join(
        f"{sign}{line}" for sign, text in sides if text is not None for line in f"{key}: {text}".split("\n")
    )


async def is_lost(context: ToolContext, arguments: Mapping[str, Any]) -> bool:
    """Whether a value would be replaced or deleted."""
    return (await would_change(context, arguments)).startswith("-")


changes_a_fact = tool(
    category="memory", effect="write", subject="key", argument_aliases=KEY, overwrites=is_lost, preview=would_change
)


@changes_a_fact
async def set_fact(context: ToolContext, key: str, value: str) -> dict[str, Any]:
    """Store a value under a key."""
    await in_pool("memory", memory_of(context).set_fact, key, value)
    return {"success": True}


@changes_a_fact
async def clear_fact(context: ToolContext, key: str) -> dict[str, Any]:
    """Delete the value of a key."""
    return {"success": True, "found": await in_pool("memory", memory_of(context).clear_fact, key)}


@tool(category="memory", effect="write", subject="question", argument_aliases=QUESTION)
async def store_memory(context: ToolContext, question: str, answer: str) -> dict[str, Any]:
    """Store a question and its answer."""
    await in_pool("memory", memory_of(context).remember, question, answer)
    return {"success": True}


@tool(category="memory", effect="write", subject="question", argument_aliases=QUESTION)
async def clear_memory(context: ToolContext, question: str) -> dict[str, Any]:
    """Delete a stored question."""
    return {"success": True, "found": await in_pool("memory", memory_of(context).clear_memory, question)}


def memory_of(context: ToolContext) -> MemoryStore:
    """Raises: `ToolError` where there is none."""
    if context.memory is None:
        raise ToolError("this conversation has no memory; continue without it")
    return context.memory
