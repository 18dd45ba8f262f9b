"""A text brought to a number of tokens: its beginning, a notice of what is left out, its end.

    whole ─ surely short? surely long? count ─▶ whole | head [Cut here: 12,345 of 20,000 characters ...] tail

Only about as much of the text as is kept is ever copied or counted: a tool may return a gigabyte.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable

from shepherd.tools.base import ToolError

Count = Callable[[str], int]

MOST_TOKENS_PER_CHAR = 4
"""One for each byte, at worst."""
MOST_CHARS_PER_TOKEN = 16
"""A text with more on average is blanks or one sign repeated; it counts as too long without being counted."""
SLACK = 8
"""Tokens that a vocabulary may add at the seams."""
HEAD_SHARE = 2 / 3
"""Of what is kept; the rest is the end, where commands report how they ended."""
ROUNDS = 8
"""Guesses of how much fits; the fourth is mostly within a few per cent."""
NEAR = 0.9
"""Of the budget: full enough."""

_SURROGATE_OR_NUL = re.compile("[\0\ud800-\udfff]")


def fits(text: str, budget: int, count: Count) -> bool:
    """Whether a text has at most `budget` tokens; looks at no text that is much too long."""
    if len(text) * MOST_TOKENS_PER_CHAR + SLACK <= budget:
        return True
    return len(text) <= budget * MOST_CHARS_PER_TOKEN and count(text) <= budget


def shorten(text: str, budget: int, count: Count, rest: Callable[[str], str] = lambda head: "") -> str:
    """The text if it has at most `budget` tokens; else a head, a notice and a tail that have, together.

    `rest`: from the head, a sentence that says how to read what is left out, or nothing. Cuts lie between characters
    as people see them, at the end of a line where one is near. A budget too small for the notice is exceeded by it.
    """
    if fits(text, budget, count):
        return text

    def kept(n_chars: int) -> str:
        n_tail = n_chars - int(n_chars * HEAD_SHARE)
        head = text[: head_end(text, n_chars - n_tail)]
        start = tail_start(text, max(len(text) - n_tail, len(head))) if head else len(text)
        how = rest(head)
        notice = f"[Cut here: {start - len(head):,} of {len(text):,} characters are left out.{' ' if how else ''}{how}]"
        if not head:
            return notice
        return "".join((head, "" if head.endswith("\n") else "\n", notice, "\n", text[start:]))

    return kept(most_that_fits(kept, len(text) - 1, budget, count))


def room_for(text: str, budget: int, count: Count) -> int:
    """How many of the first characters of a text have at most `budget` tokens, or a little less."""
    return len(text) if fits(text, budget, count) else most_that_fits(lambda n: text[:n], len(text) - 1, budget, count)


def most_that_fits(kept: Callable[[int], str], most: int, budget: int, count: Count) -> int:
    """About the largest number of characters up to `most` for which `kept` has at most `budget` tokens; 0 if none."""
    least, most = 0, min(most, budget * MOST_CHARS_PER_TOKEN)  # the first fits; above the second, nothing does
    n_chars = min(most, budget * 3)
    for _ in range(ROUNDS):
        if not least < n_chars <= most:
            break
        n_tokens = max(1, count(kept(n_chars)))
        if n_tokens <= budget:
            least = n_chars
            if n_tokens >= budget * NEAR:
                break
        else:
            most = n_chars - 1
        # Aimed a little low: a hit from below ends the search.
        guess = int(n_chars * budget * (1 + NEAR) / 2 / n_tokens)
        n_chars = min(max(guess, least + 1), most)
    return least


def head_end(text: str, at: int) -> int:
    """Where a head of at most `at` characters ends: behind a line if that costs little, else behind a character."""
    line = text.rfind("\n", at - at // 8, at) + 1
    return line or char_boundary(text, at)


def tail_start(text: str, at: int) -> int:
    """Where a tail from `at` or a little later begins: with a line, or else with a character."""
    n_tail = len(text) - at
    line = text.find("\n", at, at + n_tail // 4) + 1
    if line:
        return line
    while at < len(text) and char_boundary(text, at) != at:
        at += 1
    return at


def char_boundary(text: str, at: int) -> int:
    """The last place up to `at` that is not within a character as people see it: one with its marks, an emoji
    sequence, a flag, a line end. After 64 marks, any place counts."""
    for place in range(at, max(0, at - 64), -1):
        if place >= len(text) or not _joined(text, place):
            return place
    return at if at > 64 else 0


def _joined(text: str, at: int) -> bool:
    """Whether the code points on both sides of a place belong together."""
    before, after = text[at - 1], text[at]
    if after in "\n" and before == "\r":
        return True
    if after < "\u0300":
        return False
    if _is_flag_letter(after) and _is_flag_letter(before):
        start = at
        while start > max(0, at - 64) and _is_flag_letter(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 1
    return (
        before == "\u200d"
        or after in "\u200c\u200d"
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the colour of a skin
        or "\U000e0020" <= after <= "\U000e007f"  # the tags of a flag
        or "\u1160" <= after <= "\u11ff"  # what follows in a Hangul syllable
        or unicodedata.category(after) in {"Mn", "Me", "Mc"}
    )


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def replace_unencodable(text: str) -> str:
    """The text with what no prompt can hold replaced: halves of characters (two that belong together are joined), NUL.
    Any other sign stays: a file is to be read as it is, and what looks like a control token is none (DESIGN 1)."""
    if not _SURROGATE_OR_NUL.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


# -- results that are kept whole --------------------------------------------------------------------------------------


MOST_CHARS = 32_000_000
"""Of all results together; each takes at most a quarter of it."""

NAME = re.compile(r"result:(\d{1,9})", re.IGNORECASE | re.ASCII)


class ResultStore:
    """The whole results of one conversation, so that the model can read on: `read_file(path="result:3", offset=201)`.

    In memory only, for as long as the conversation lives, and bounded: the oldest go first. For any thread.
    """

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
