"""The memory: an archive of every message in one SQLite file for each user, searched in milliseconds.

A message is stored when it arrives, so messages that leave a model's context are not lost. `recall` puts the relevant
ones before the model again; `search` finds the others.

    with MemoryStore("memory.db") as memory:
        memory.archive([Entry("user", "My cat is called Lamb."), Entry("assistant", "Noted.")])
        memory.search("what is the cat called")[0].user_message

Open first: `store.py` (the whole interface), then `records.py` (what it takes and returns), `archive/` (writing),
`search/`, `recall/` and `transfer/` (export, import).

Words: an *entry* is a message to be stored; a *turn* is a user's message and all up to the next one; a *fact* is a
value with a key. A name is imported on first use.
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
