"""What is worth keeping under a cap of bytes: Greedy-Dual-Size-Frequency. Pure; the owner locks.

    priority = clock + value          value = uses * cost / size: what keeping it saves, for each byte it takes

Whatever leaves sets the clock to its priority, so what is not used again falls behind without ever being visited.
L. Cherkasova: Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HPL-98-69R1, 1998.
Two things differ. A newcomer that is not worth its room moves the clock, too: otherwise a shelf full of old things of
slightly higher value would refuse all new ones for ever. And one that stays counts from the clock that it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class _Item(NamedTuple):
    size: int
    priority: float


class GdsfPolicy:
    """Sizes and priorities by key. It may be overfull between `place` and `overflow`."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        """Bytes."""
        self.used = 0
        """Bytes."""
        self.clock = 0.0
        self._items: dict[str, _Item] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def place(self, key: str, size: int, value: float, *, clock: float | None = None) -> None:
        """Put a new key there, as of now or of an earlier clock."""
        assert key not in self._items
        self._items[key] = _Item(size, (self.clock if clock is None else clock) + value)
        self.used += size

    def touch(self, key: str, value: float) -> None:
        """It was used now, which may have changed its value."""
        item = self._items.pop(key)
        self._items[key] = item._replace(priority=self.clock + value)

    def remove(self, key: str) -> None:
        """Take it away, if it is there; the clock stands."""
        item = self._items.pop(key, None)
        self.used -= item.size if item else 0

    def in_order(self, rank: Callable[[str], int | None] = lambda key: 0) -> list[str]:
        """All keys, those to leave first in front: by rank, priority, age; those of rank None may not. O(n log n)."""
        ranks = {key: rank(key) for key in self._items}
        movable = [(of_key, self._items[key].priority, key) for key, of_key in ranks.items() if of_key is not None]
        return [key for _, _, key in sorted(movable, key=lambda item: item[:2])]

    def overflow(self, newcomer: str = "", rank: Callable[[str], int | None] = lambda key: 0) -> list[str]:
        """Take away what has to leave to be under the cap again; the keys. See `in_order` for `rank`.

        Where the newcomer is among them it leaves alone: it is not worth the others.
        """
        excess, before = self.used - self.cap, self.clock
        leaving: list[str] = []
        for key in self.in_order(rank) if excess > 0 else ():
            if excess <= 0:
                break
            leaving.append(key)
            excess -= self._items[key].size
        if newcomer in leaving and self.used - self._items[newcomer].size <= self.cap:
            leaving = [newcomer]
        for key in leaving:
            self.clock = max(self.clock, self._items[key].priority)
            self.remove(key)
        if newcomer in self._items:
            item = self._items[newcomer]
            self._items[newcomer] = item._replace(priority=item.priority + self.clock - before)
        return leaving
