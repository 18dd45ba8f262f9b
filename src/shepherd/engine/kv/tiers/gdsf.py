"""The eviction policy of a tier with a cap of bytes: Greedy-Dual-Size-Frequency (GDSF). Pure; the owner locks.

    priority = clock + value          value = uses * cost / size: the time that keeping it saves, per byte

An item that leaves sets the clock to its priority, so items that are not used again fall behind without being visited.
L. Cherkasova: Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy, HPL-98-69R1, 1998.
There are two differences. A new item that is not worth its bytes moves the clock too: otherwise a tier full of old
items of slightly higher value would refuse every new one. A new item that stays counts from the clock that it moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class _Item(NamedTuple):
    size: int
    priority: float


class GdsfPolicy:
    """Sizes and priorities by key. It may exceed its cap between `place` and `overflow`."""

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
        """Add a new key, at the present clock or an earlier one."""
        assert key not in self._items
        self._items[key] = _Item(size, (self.clock if clock is None else clock) + value)
        self.used += size

    def touch(self, key: str, value: float) -> None:
        item = self._items.pop(key)
        self._items[key] = item._replace(priority=self.clock + value)

    def remove(self, key: str) -> None:
        """Remove a key, if it is there; the clock does not move."""
        item = self._items.pop(key, None)
        self.used -= item.size if item else 0

    def in_order(self, rank: Callable[[str], int | None] = lambda key: 0) -> list[str]:
        """All keys in the order in which they leave: by rank, priority, age. Keys of rank None stay. O(n log n)."""
        ranks = {key: rank(key) for key in self._items}
        movable = [(of_key, self._items[key].priority, key) for key, of_key in ranks.items() if of_key is not None]
        return [key for _, _, key in sorted(movable, key=lambda item: item[:2])]

    def overflow(self, newcomer: str = "", rank: Callable[[str], int | None] = lambda key: 0) -> list[str]:
        """Remove keys until the cap holds again, and return them. See `in_order` for `rank`.

        If the newcomer would be among them, it leaves alone: it is not worth the others.
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
