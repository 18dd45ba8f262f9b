"""Results that were too long to be shown whole, kept so that the model can read on.

    read_file(path="result:3", offset=201)

In memory only, for as long as the conversation lives, and bounded: the oldest go first.
"""

from __future__ import annotations

import re
import threading

from shepherd.tools.base import ToolError
from shepherd.tools.results import replace_unencodable

MOST_CHARS = 32_000_000
"""Of all results together; each takes at most a quarter of it."""

NAME = re.compile(r"result:(\d{1,9})", re.IGNORECASE | re.ASCII)


class ResultStore:
    """The kept results of one conversation. For any thread."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._lock = threading.Lock()
        self._texts: dict[int, str] = {}  # oldest first
        self._last = 0

    def keep(self, text: str) -> tuple[str, bool]:
        """The name of the stored text, such as `result:3`, and whether it is complete. Of a text larger than a quarter
        of the limit, the beginning is stored."""
        most_chars = self._most_chars // 4
        kept = replace_unencodable(text[:most_chars])
        with self._lock:
            self._last += 1
            self._texts[self._last] = kept
            n_chars = sum(map(len, self._texts.values()))
            while n_chars > self._most_chars:
                n_chars -= len(self._texts.pop(next(iter(self._texts))))
            return f"result:{self._last}", len(text) <= most_chars

    def get(self, name: str) -> str:
        """The text that is kept under a name. Raises: `ToolError`."""
        found = NAME.fullmatch(name.strip())
        with self._lock:
            text = self._texts.get(int(found[1])) if found else None
            names = ", ".join(f"result:{number}" for number in self._texts)
        if text is None:
            there = f"the names are: {names}" if names else "call the tool again that gave it"
            raise ToolError(f"no result is stored under the name {name[:40]!r}; {there}")
        return text
