"""Stop strings: finds them in a stream of text, across any cutting, and holds back only what might become one.

    stops "abc", "bd"       a ─ b ─ c●        A node is a beginning of a stop string. `back` leads to the longest other
                            ┊   ┊back         end of it that is one, too: ab ┄▶ b. Text moves from node to node, so that
                            ┊   b ─ d●        each character costs a step or two (Aho and Corasick, 1975).

Nodes and text take memory linear in the lengths of the stop strings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopFilter:
    """Passes text through until one of the stop strings appears. Holds back at most the longest stop string less one
    character. The earliest match wins; of two at the same place, the longer one. After a match it passes nothing."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        """Per node, by the next character; node 0 is the empty beginning."""
        self._match: list[str] = [""]
        """Per node, the longest stop string that it ends with."""
        for stop in stops:
            self._match[self._add(stop)] = stop
        self._back = [0] * len(self._next)
        self._growing = [0] * len(self._next)
        """Per node, the length of its longest end that may still become a stop string."""
        self._link()
        self._node = 0
        self._held: deque[str] = deque()
        """Characters."""
        self._found_at: tuple[str, int] | None = None
        """A match, and how many held characters stand before it; a longer one may still grow over that place."""
        self.found: str | None = None
        """The stop string that ended the text, once there is one."""

    def feed(self, text: str) -> str:
        """What of the text so far is safe to show, and has not been returned before."""
        if self.found is not None:
            return ""
        if not self._next[0]:
            return text
        for character in text:
            self._held.append(character)
            self._node = self._step(self._node, character)
            growing = len(self._held) - self._growing[self._node]
            if stop := self._match[self._node]:
                at = len(self._held) - len(stop)
                if self._found_at is None or at <= self._found_at[1]:
                    self._found_at = stop, at
            if self._found_at is not None and growing > self._found_at[1]:
                return self.close()
        # A match is never before what grows: it would have ended the text.
        return self._let_go(len(self._held) - self._growing[self._node])

    def close(self) -> str:
        """What was held back, when the text ends here; up to a stop string if there is one in it."""
        shown = len(self._held)
        if self._found_at is not None:
            self.found, shown = self._found_at
        text = self._let_go(shown)
        self._held.clear()
        self._node, self._found_at = 0, None
        return text

    def _let_go(self, n: int) -> str:
        if self._found_at is not None:
            self._found_at = self._found_at[0], self._found_at[1] - n
        return "".join(self._held.popleft() for _ in range(n))

    def _add(self, stop: str) -> int:
        node = 0
        for character in stop:
            node = self._next[node].setdefault(character, len(self._next))
            if node == len(self._next):
                self._next.append({})
                self._match.append("")
        return node

    def _link(self) -> None:
        """Find `back`, `match` and `growing` of every node, the shorter ones first: those of a node need them."""
        nodes = [(0, 0)]
        for node, length in nodes:
            for character, longer in self._next[node].items():
                back = self._step(self._back[node], character) if node else 0
                self._back[longer] = back
                self._match[longer] = self._match[longer] or self._match[back]
                self._growing[longer] = length + 1 if self._next[longer] else self._growing[back]
                nodes.append((longer, length + 1))

    def _step(self, node: int, character: str) -> int:
        """The node of the longest end of `node` and `character`."""
        while node and character not in self._next[node]:
            node = self._back[node]
        return self._next[node].get(character, 0)
