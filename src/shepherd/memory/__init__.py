"""What was said, kept for good: an archive of every message in one file, searched in milliseconds.

Every message is stored when it arrives, so that turns which leave the context are not lost; `recall` offers what
matters to the model again, `search` finds the rest.

    with MemoryStore("memory.db") as memory:
        memory.archive([Entry("user", "My cat is called Lamb."), Entry("assistant", "Noted.")])
        memory.search("what is the cat called")[0].user_message

Everything is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shepherd.memory.records import Entry, Fact, Hit
    from shepherd.memory.store import MemoryStore
    from shepherd.memory.users import rag_manager

__all__ = ["Entry", "Fact", "Hit", "MemoryStore", "rag_manager"]

_HOMES = dict.fromkeys(__all__, "records") | {"MemoryStore": "store", "rag_manager": "users"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
