"""Positions in a model with M-RoPE, where an image takes fewer positions than it has tokens. Pure.

    engine    0 1 2 | 3 4 5 6 7 8 | 9 10 11       each token has a position of its own
    library   0 1 2 | 3 3 3 3 3 3 | 6  7  8       an image of 3 x 2: its cells share one, and the text goes on 3 later

The engine's ledger counts one position a token, so that holes, forks and snapshots of images are those of texts. The
runtime translates at the library's edge, by what it has decoded into each sequence. An evicted image leaves a hole in
both counts.
"""

from __future__ import annotations

from array import array

from shepherd.engine.base import Saved

_FIELDS = 3


class Positions:
    """The images of each sequence, and what follows from them. One thread at a time."""

    def __init__(self, n_seq: int) -> None:
        self._media: list[list[tuple[int, int, int]]] = [[] for _ in range(n_seq)]
        """By sequence, ascending: position (the engine's), tokens, positions of the library."""

    def add(self, seq: int, position: int, n_tokens: int, n_positions: int) -> None:
        """An image was decoded at the end of a sequence."""
        self._media[seq].append((position, n_tokens, n_positions))

    def in_library(self, seq: int, position: int) -> int | None:
        """The library's position; -1 stays -1. None for one inside of an image."""
        less = 0
        for start, n_tokens, n_positions in self._media[seq]:
            if position <= start:
                break
            if position < start + n_tokens:
                return None
            less += n_tokens - n_positions
        return position - less

    def in_engine(self, seq: int, position: int, *, last: bool) -> int:
        """The engine's position of a token; of an image, its first or its last one."""
        less = 0
        for start, n_tokens, n_positions in self._media[seq]:
            first = start - less
            if position < first:
                break
            if position < first + n_positions:
                return start + n_tokens - 1 if last else start
            less += n_tokens - n_positions
        return position + less

    def cut(self, seq: int, position: int) -> None:
        """Everything from `position` on was removed."""
        self._media[seq] = [each for each in self._media[seq] if each[0] < position]

    def agree(self, source: int, target: int, start: int) -> bool:
        """Whether `start` is the same position of the library in both sequences, of which the target ends before."""
        return self._media[target] == [each for each in self._media[source] if each[0] < start]

    def copy(self, source: int, target: int, stop: int) -> None:
        """The target has the source's positions before `stop` (-1: all)."""
        self._media[target] = [each for each in self._media[source] if stop < 0 or each[0] < stop]

    def saved(self, seq: int) -> bytes:
        """The images of a sequence, to stand behind its state."""
        flat = array("i", (number for each in self._media[seq] for number in each))
        return flat.tobytes() + array("i", [len(self._media[seq])]).tobytes()

    def load(self, seq: int, state: Saved) -> int:
        """Take the images of a sequence from the end of its state; the bytes that are left before them, or -1."""
        count = array("i", bytes(state[-4:])) if len(state) >= 4 else array("i", [-1])
        size = 4 + 4 * _FIELDS * count[0]
        if not 4 <= size <= len(state):
            return -1
        flat = array("i", bytes(state[len(state) - size : -4]))
        self._media[seq] = [(flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), _FIELDS)]
        return len(state) - size
