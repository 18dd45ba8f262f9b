"""The arguments of one call, as a provider writes them: an object, in pieces, or anything in its place.

    '{"a"'  ': 1}'        ─▶  goes out as it comes
    'null'  '""'  '[]'    ─▶  '{}'            no arguments, in the words of other languages
    '"{\\"a\\": 1}"'        ─▶  '{"a": 1}'      encoded twice

What does not begin like an object waits for its end. Whether an object is whole is known without reading it again.
"""

from __future__ import annotations

import re

from shepherd.wire.base import parse_json

_NOTHING = frozenset({"", "null", "[]", '""', "None"})
_SIGNS = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL)


def plain(text: str) -> str:
    """The arguments as an object, where they are one in another form; else as they came."""
    bare = text.strip()
    if bare in _NOTHING:
        return "{}"
    if bare[:1] == '"':
        inner = parse_json(bare)
        if isinstance(inner, str) and (inner.strip() in _NOTHING or inner.lstrip()[:1] == "{"):
            return plain(inner)
    return text


class Arguments:
    """Takes the pieces; yields what can be sent."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.n_chars = 0
        self._n_sent = 0
        self._first = ""
        """The first letter that is no blank."""
        self._depth = 0
        self._is_in_string = self._is_escaped = False
        self.is_whole = False
        """The object has ended, or the array, which is none."""

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def is_empty(self) -> bool:
        return not self._first

    def add(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self.n_chars += len(piece)
            self._first = self._first or piece.lstrip()[:1]
            self._follow(piece)

    def ready(self) -> str:
        """What has come since the last time, and can go out."""
        if self._first != "{":
            return ""
        new, self._n_sent = "".join(self._pieces[self._n_sent :]), len(self._pieces)
        return new

    def end(self) -> str:
        """The rest. `text` is what went out in all."""
        if not self._n_sent:
            self._pieces = [plain(self.text)]
        new, self._n_sent = "".join(self._pieces[self._n_sent :]), len(self._pieces)
        return new

    def _follow(self, piece: str) -> None:
        at, n = 0, len(piece)
        while at < n:
            if self._is_in_string:
                at = self._follow_string(piece, at)
                continue
            sign = _SIGNS.search(piece, at)
            if sign is None:
                return
            at = sign.end()
            match sign[0]:
                case '"':
                    self._is_in_string = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    self.is_whole = self.is_whole or self._depth <= 0

    def _follow_string(self, piece: str, at: int) -> int:
        """Behind the end of a string that is open, or of the piece."""
        if self._is_escaped:
            self._is_escaped = False
            at += 1
        if end := _STRING_END.match(piece, at):
            self._is_in_string = False
            return end.end()
        n_slashes = len(piece) - len(piece.rstrip("\\")) if at < len(piece) else 0
        self._is_escaped = min(n_slashes, len(piece) - at) % 2 == 1
        return len(piece)
