"""The profile: standing wishes, found in the user's messages, and shown to the model.

A standing wish ("never use tables") shares no word with the questions that it applies to, so search cannot find it.
`candidates` finds possible wishes by tables (`profile_patterns.py`), without a model; the user confirms them; `render`
makes the block of the system prompt, which is never evicted.

    text ─▶ without quotations and code ─▶ sentences ─▶ clauses ─▶ a rule that matches there, and no objection

To miss a wish is better than to propose a question, a report of others' words, or a passing remark. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

from shepherd.core.dataclasses import dataclass
from shepherd.memory.recall.profile_patterns import ANNOUNCED, NO_NAME, OPENERS, PARTICLES, PASSING, REPORTED, RULES
from shepherd.memory.recall.quotation import escape_quote, to_one_line
from shepherd.memory.records import Fact, FactKind

OPENING = "[PROFILE: standing wishes of the user, in the user's own words]"
CLOSING = "[END OF PROFILE]"

MAX_CHARS = 20_000
"""A longer text was pasted; only its first part is read."""
MAX_SENTENCE_CHARS, MAX_VALUE_CHARS = 1_000, 300
"""Longer sentences are stories."""
MAX_CANDIDATES = 8
"""Of one message."""
MAX_NAME_WORDS = 5

_BLOT = "\x1f"
_FOREIGN = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|^(?: {4}|\t)[^\n]*|^ {0,3}>[^\n]*|`[^`\n]*`|"
    r"\"[^\"]{1,2000}\"|“[^”]{1,2000}”|„[^“”]{1,2000}[“”]|«[^»]{1,2000}»|(?<!\w)'[^'\n]{2,500}'(?!\w)|"
    r"(?<!\w)‘[^’\n]{2,500}’(?!\w)",
    re.DOTALL | re.MULTILINE,
)
"""Code and quotations: not the user's own words."""
_SENTENCE_END = re.compile(
    r"(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bProf)(?<!\bSt)[.!?](?=\s|$|[\"')\]])|[!?]|[。！？]|\n"
)
_CLAUSE = re.compile(r", (?:and|but|so|und|et|y) |,? and (?=please|always|never|call|i |my |from )|[,;:(–—] ?| - ")
"""The end of a clause within a sentence."""
_NAME_WORD = re.compile(r"\s+([^\W\d_](?:[\w'-]|\.(?=\s+\w))*)")
_AFTER_NAME = re.compile(r"\s*(?:$|[,.;:!)–—-]|(?:and|but|please|from|instead|und|bitte|et|y)\b)", re.IGNORECASE)
"""Must follow a name in lower case, which could be any word."""


@dataclass(frozen=True, slots=True)
class Candidate:
    kind: FactKind
    """`instruction` or `preference`."""
    value: str
    """The user's own words, one line."""


# -- finding ---------------------------------------------------------------------------------------------------------


def candidates(text: str) -> list[Candidate]:
    """The possible standing wishes in a user's text, in order, without repetition. Reads `MAX_CHARS` of it."""
    text = unicodedata.normalize("NFC", text[:MAX_CHARS])
    own = _FOREIGN.sub(lambda match: _BLOT * len(match[0]), text).replace("’", "'")  # of the same length as the text
    found: dict[str, Candidate] = {}
    for start, stop in _statements(own):
        for candidate in _in_sentence(text[start:stop], own[start:stop]):
            found.setdefault(candidate.value.casefold(), candidate)
    return list(found.values())[:MAX_CANDIDATES]


def _statements(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in _SENTENCE_END.finditer(text + "\n"):
        if end[0] not in "?？" and end.end() - start <= MAX_SENTENCE_CHARS:
            yield start, min(end.end(), len(text))
        start = end.end()


def _in_sentence(sentence: str, own: str) -> Iterator[Candidate]:
    """The candidates of one sentence. `own` is the sentence with quotations blotted out."""
    is_passing = PASSING.search(own) is not None
    taken = 0
    for clause in (0, *(match.end() for match in _CLAUSE.finditer(own))):
        if clause < taken or (clause and not _may_begin(own[:clause])):
            continue
        opener = OPENERS.match(own, clause)
        start = opener.end() if opener else clause
        for kind, is_name, pattern in RULES:
            if (is_passing and not is_name) or not (match := pattern.match(own, start)):
                continue
            end = _name_end(own, match.end()) if is_name else len(own)
            value = to_one_line(sentence[start:end]).rstrip(" .!,;:")
            if end and len(value) <= MAX_VALUE_CHARS:
                yield Candidate(kind, value[0].upper() + value[1:])
                taken = end
                break


def _may_begin(before: str) -> bool:
    before = before.rstrip()
    return not REPORTED.search(before) and (not before.endswith(":") or ANNOUNCED.search(before) is not None)


def _name_end(text: str, start: int) -> int:
    """The end of the name that begins at `start`; 0 = there is none."""
    end, place = 0, start
    for count in range(MAX_NAME_WORDS):
        match = _NAME_WORD.match(text, place)
        if match is None or match[1].casefold() in NO_NAME:
            break
        place = match.end()
        is_lower = match[1][0].islower()
        if is_lower and not count and not _AFTER_NAME.match(text, place):
            break
        if match[1].casefold() not in PARTICLES:
            if is_lower and count:
                break
            end = place
    return end


# -- showing ---------------------------------------------------------------------------------------------------------


def render(facts: Sequence[Fact], budget: int, count: Callable[[str], int]) -> str:
    """The block of the system prompt, at most `budget` tokens by `count`; "" when there is nothing to show.

    `facts` are confirmed, oldest first, and shown in this order. If they do not fit, the newest stay, and a line has
    the number of the others. None is shortened: half a wish may be a different wish.
    """
    kept: list[Fact] = []
    for fact in reversed(facts):
        if count(_block([fact, *kept], len(facts) - len(kept) - 1)) <= budget:
            kept.insert(0, fact)
    return _block(kept, len(facts) - len(kept)) if kept else ""


def _block(facts: Sequence[Fact], n_left_out: int) -> str:
    lines = [f"- {escape_quote(fact.value)}" for fact in facts]
    if n_left_out:
        lines.insert(0, f"({n_left_out} left out for want of room)")
    return "\n".join([OPENING, *lines, CLOSING])
