"""Stored text as a quote: on one line, unable to leave its quotation marks, within the room there is.

Quoted text may imitate the end of its block, another entry, or a notice of Shepherd. So the characters that form a
block are replaced:

    line breaks  ─▶ " / "        double quotes of any script ─▶ '
    [ and ]      ─▶ ( and )      except around numbers, as in servers[0]
    invisible characters (controls, zero widths, changes of direction) ─▶ removed

Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from shepherd.memory.search.excerpt import ELLIPSIS, TermSpan, snippet

MIN_CHARS = 24
"""A shorter piece of a longer text has no meaning."""
GUESS_CHARS = 8
"""Above the characters per token of most texts, so that no long text is counted as a whole."""
MOST_PLACES = 256
"""Spans of a text that are used: a word repeated more often has no meaning."""

_BREAKS = re.compile(r"[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_INDEX = re.compile(r"\[([0-9][0-9 ,.:-]{0,20})\]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SEEN = "\t\u200c\u200d"
"""A tab, and the joiners that Persian, Hindi and composed emoji need."""
_HOLD, _RELEASE = "\ue000", "\ue001"
"""Of the private use area; `to_one_line` has removed them from the text."""
_QUOTES = dict.fromkeys(map(ord, '"“”„‟〝〞〟＂❝❞'), "'")
_OPENING = dict.fromkeys(map(ord, "[［【〔〖〘〚⟦❲⁅﹝"), "(")
_CLOSING = dict.fromkeys(map(ord, "]］】〕〗〙〛⟧❳⁆﹞"), ")")
_FORM = {**_QUOTES, **_OPENING, **_CLOSING}


def to_one_line(text: str) -> str:
    text = _BREAKS.sub(" / ", text.strip())
    if not text.isprintable():
        text = "".join(char for char in text if char in _SEEN or unicodedata.category(char) not in _UNSEEN)
    return " ".join(text.split())


def escape_quote(text: str) -> str:
    """The text in a form that a line of a block may contain."""
    held = _INDEX.sub(rf"{_HOLD}\1{_RELEASE}", to_one_line(text)).translate(_FORM)
    return held.replace(_HOLD, "[").replace(_RELEASE, "]")


def longest_fitting(
    text: str, found: Sequence[TermSpan], fits: Callable[[str], bool], room: int, least: int = MIN_CHARS
) -> str | None:
    """The longest snippet of `text` around the spans in `found` that `fits`; None if it is shorter than `least`.

    `room` is about the number of free tokens. A long text is never given to `fits` as a whole; `fits` is called some
    twenty times at most.
    """
    chars = min(len(text), room * GUESS_CHARS)
    while chars >= min(len(text), least) and chars > 0:
        piece = snippet(text, found[:MOST_PLACES], chars)
        if piece.strip(ELLIPSIS) and fits(piece):
            return piece
        chars = min(chars * 4 // 5, chars - 1)
    return None
