"""Stored text as a quotation: on one line, unable to leave its quotes, no longer than there is room for.

What is quoted may have been written to be taken for something else: for the end of the block that it stands in, for
another entry of it, for a notice of ours. So nothing that makes the form of a block can be in a quotation at all:

    line breaks  ─▶ " / "        double quotes of any script ─▶ '
    [ and ]      ─▶ ( and )      except around numbers, as in servers[0]
    what cannot be seen (controls, zero widths, changes of direction) ─▶ gone

Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from shepherd.memory.search.excerpt import ELLIPSIS, TermSpan, snippet

MIN_CHARS = 24
"""A piece of a longer text that is shorter than this says nothing."""
GUESS_CHARS = 8
"""More than a token has of most texts, so that no long text is counted whole."""
MOST_PLACES = 256
"""In a text, that are looked at: who says a word so often means nothing by it."""

_BREAKS = re.compile(r"[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_INDEX = re.compile(r"\[([0-9][0-9 ,.:-]{0,20})\]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SEEN = "\t\u200c\u200d"
"""A blank, and joiners: part of how Persian, Hindi and families of emoji are spelled."""
_HOLD, _RELEASE = "\ue000", "\ue001"
"""Of the private use area, and taken out of the text before they are put in."""
_QUOTES = dict.fromkeys(map(ord, '"“”„‟〝〞〟＂❝❞'), "'")
_OPENING = dict.fromkeys(map(ord, "[［【〔〖〘〚⟦❲⁅﹝"), "(")
_CLOSING = dict.fromkeys(map(ord, "]］】〕〗〙〛⟧❳⁆﹞"), ")")
_FORM = {**_QUOTES, **_OPENING, **_CLOSING}


def to_one_line(text: str) -> str:
    """The text on one line, without what cannot be seen."""
    text = _BREAKS.sub(" / ", text.strip())
    if not text.isprintable():
        text = "".join(char for char in text if char in _SEEN or unicodedata.category(char) not in _UNSEEN)
    return " ".join(text.split())


def escape_quote(text: str) -> str:
    """The text as it can stand on a line of a block of ours."""
    held = _INDEX.sub(rf"{_HOLD}\1{_RELEASE}", to_one_line(text)).translate(_FORM)
    return held.replace(_HOLD, "[").replace(_RELEASE, "]")


def longest_fitting(
    text: str, found: Sequence[TermSpan], fits: Callable[[str], bool], room: int, least: int = MIN_CHARS
) -> str | None:
    """The part of `text` that says the most of what was `found` in it, as long as it `fits`; None if less than `least`.

    `room` is about how many tokens there are. A long text is never given to `fits` as a whole; it is asked some twenty
    times at most.
    """
    chars = min(len(text), room * GUESS_CHARS)
    while chars >= min(len(text), least) and chars > 0:
        piece = snippet(text, found[:MOST_PLACES], chars)
        if piece.strip(ELLIPSIS) and fits(piece):
            return piece
        chars = min(chars * 4 // 5, chars - 1)
    return None
