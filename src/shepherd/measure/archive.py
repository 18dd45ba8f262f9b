"""Times the memory, on a file of its own: fills it, writes to it turn by turn, searches it. Blocks.

The file is on the disk that the caller names; a turn counts when it is on that disk, not before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from shepherd.measure.dialogue import WORDS
from shepherd.measure.metrics import Measured
from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore

N_MESSAGES = 4_000
"""In the file before the search."""
SESSION = 40
"""Messages of a conversation."""
MOST_TURNS, MOST_QUERIES = 200, 200


def measure(
    folder: Path,
    found: Measured,
    *,
    budget_s: float,
    is_wanted: Callable[[], bool] = lambda: True,
    n_messages: int = N_MESSAGES,
) -> None:
    """Store and search in `folder` for `budget_s` seconds, and longer where the file takes longer to fill.

    Raises: `MemoryFailure`.
    """
    words = [one + other for one in WORDS.split() for other in WORDS.split()]
    chance = random.Random(1)  # the same texts in every run

    def text(n_words: int, rare: float = 3.0) -> str:
        """Few words are in many messages, and many in few, as in a language."""
        return " ".join(words[int(len(words) * chance.random() ** rare)] for _ in range(n_words))

    def exchange() -> tuple[Entry, Entry]:
        return Entry("user", text(12)), Entry("assistant", text(40))

    ends = time.monotonic() + budget_s
    with MemoryStore(folder / "memory.db") as store:
        for number in range(n_messages // SESSION):
            if not is_wanted():
                return
            store.archive([each for _ in range(SESSION // 2) for each in exchange()], session=f"filled-{number}")
        found.workload["n_messages"] = n_messages // SESSION * SESSION
        until = (time.monotonic() + ends) / 2
        history: list[Entry] = []
        for number in range(MOST_TURNS):
            if not is_wanted() or (number > 4 and time.monotonic() > until):
                break
            history = [*(history if len(history) < SESSION else []), *exchange()]
            began = time.perf_counter()
            store.archive(history, session=f"turns-{number * 2 // SESSION}")
            found.add(archive=2 / (time.perf_counter() - began))
        for number in range(MOST_QUERIES):
            if not is_wanted() or (number > 4 and time.monotonic() > ends):
                break
            query = text(4, 1.0)
            began = time.perf_counter()
            store.search(query)
            found.add(search=1000 * (time.perf_counter() - began))
