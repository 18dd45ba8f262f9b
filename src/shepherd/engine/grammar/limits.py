"""The cost of nested repetitions: in how many ways a matcher may have counted them at once.

In `(a{1,100}){1,100}` each number of `a` can be any of many pairs of counts, and a matcher that never goes back keeps
all of them: its work grows with each character, until it fails in the middle of an answer. A separator of its own makes
a repetition harmless, as in `([a-z]{1,63}[.]){1,100}`, and so does a fixed length, as in `(.{4}){1,100}`. The same is
true of repeated rules. Nothing is compiled here: only brackets and repetitions of an expression are parsed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from shepherd.core.dataclasses import dataclass, field

MAX_TEXTS = 100
MAX_KINDS = 1_000
"""Different parts of one group that are compared at most."""
ANYTHING = frozenset({"."})


@dataclass(frozen=True, slots=True)
class Cost:
    ways: int = 1
    """Approximate number of counts that a matcher may keep at once."""
    length: int = 1
    """Length after multiplying nested exact repetitions."""
    is_fixed: bool = True
    """Whether all its matches have the same number of parts."""
    texts: frozenset[str] = ANYTHING
    """Expressions for one character each, which together cover all characters that it may match."""
    is_multiplied: bool = False
    """Whether `ways` is a product of nested repetitions."""
    is_nested: bool = False
    """Whether `length` is."""
    literal: str = ""
    """Its characters, if it is literal text."""


ATOM = Cost()


@dataclass(slots=True)
class Group:
    """The content of one pair of brackets."""

    parts: list[Cost] = field(default_factory=list)
    is_choice: bool = False

    def cost(self, *, is_whole: bool = False) -> Cost:
        if len(self.parts) == 1 and not self.is_choice and not is_whole:
            return self.parts[0]
        return Cost(
            max((part.ways for part in self.parts), default=1),
            max((part.length for part in self.parts), default=1),
            not self.is_choice and all(part.is_fixed for part in self.parts),
            _together(part.texts for part in self.parts),
            any(part.is_multiplied for part in self.parts),
            any(part.is_nested for part in self.parts),
        )

    def is_marked(self) -> bool:
        """Whether a character that occurs nowhere else separates the repetitions."""
        if self.is_choice:
            return False
        kinds = {(part.literal, part.texts) for part in self.parts}
        if len(kinds) > MAX_KINDS:
            return False
        for literal in {literal for literal, _ in kinds}:
            others = _together(texts for other, texts in kinds if other != literal)
            signs = {sign for sign in literal if not sign.isalnum()}
            if len(signs) <= MAX_TEXTS and any(not any(_matches(text, sign) for text in others) for sign in signs):
                return True
        return False


Item = Cost | str | tuple[int, int | None]
"""A part; one of `(`, `)` and `|`; or the least and most repetitions of the part before it."""


def cost(items: Iterable[Item]) -> Cost:
    open_groups = [Group()]
    last = Group()
    for item in items:
        group = open_groups[-1]
        if item == "(":
            open_groups.append(Group())
        elif item == ")":
            if len(open_groups) > 1:
                last = open_groups.pop()
                open_groups[-1].parts.append(last.cost())
        elif item == "|":
            group.is_choice = True
            last = Group()
        elif isinstance(item, Cost):
            group.parts.append(item)
            last = Group([item])
        elif isinstance(item, tuple) and group.parts:
            group.parts[-1] = _repeated(group.parts[-1], last, *item)
            last = Group([group.parts[-1]])
    whole = Group([part for group in open_groups for part in group.parts], any(g.is_choice for g in open_groups))
    return whole.cost(is_whole=True)


def _repeated(part: Cost, group: Group, least: int, most: int | None) -> Cost:
    times = max(1, least if most is None else most)
    length = part.length * times
    is_nested = part.is_nested or (times > 1 and part.length > 1)
    if least == most and part.is_fixed:
        return Cost(part.ways, length, True, part.texts, part.is_multiplied, is_nested)
    if part.ways == 1 or group.is_marked():
        return Cost(max(part.ways, times), length, False, part.texts, part.is_multiplied, is_nested)
    return Cost(part.ways * times, length, False, part.texts, True, is_nested)


def _together(texts: Iterable[frozenset[str]]) -> frozenset[str]:
    found: set[str] = set()
    for some in texts:
        found |= some
        if len(found) > MAX_TEXTS:
            return ANYTHING
    return frozenset(found)


@functools.lru_cache(4096)
def _matches(text: str, sign: str) -> bool:
    """Whether an expression for one character matches `sign`; True if that cannot be decided."""
    if text == ".":
        return True
    if re.search(r"\[.*\[|&&|--|~~|\|\|", text):
        return True
    try:
        return re.fullmatch(text, sign) is not None
    except (re.error, OverflowError):
        return True


# -- regular expressions -------------------------------------------------------------------------------------------

TIMES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_PARTS = re.compile(
    r"""(?P<escape>\\(?:[pPxuU]\{[^}]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.))
    |(?P<flags>\(\?[A-Za-z-]*\))
    |(?P<open>\((?:\?(?:P?<[A-Za-z_][^>]*>|[A-Za-z-]*:))?)
    |(?P<times>[*+?]|\{\s*[0-9]*\s*,?\s*[0-9]*\s*\})
    |(?P<sign>[)|])
    |(?P<letters>\[\^?\]?)
    |(?P<character>.)""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS = {"\\n": "\n", "\\r": "\r", "\\t": "\t"}
COUNTS = re.compile(r"\{\s*[0-9]*\s*,?\s*[0-9]*\s*\}")
_LETTERS = re.compile(r"\\.|\[\^?\]?|\]|[^\\\[\]]+", re.DOTALL)


def times(text: str) -> tuple[int, int | None]:
    """The least and most repetitions of `*`, `{2,3}` and the like; None = no limit."""
    if text in TIMES:
        return TIMES[text]
    least, comma, most = text.strip("{} ").partition(",")
    low = _number(least)
    return low, (_number(most) if most.strip() else None) if comma else low


def _number(text: str) -> int:
    return int(text.strip()[:9] or "0")


@functools.lru_cache(256)
def of_regex(pattern: str) -> Cost:
    """The cost of a regular expression, approximately in Rust's syntax."""
    return cost(_items(pattern))


def _items(pattern: str) -> Iterator[Item]:
    is_spread = re.search(r"\(\?[a-wyz]*x", pattern) is not None
    at = 0
    while at < len(pattern):
        found = _PARTS.match(pattern, at)
        assert found is not None
        kind, text, at = found.lastgroup, found.group(), found.end()
        if kind == "letters":
            depth = 1
            while depth and (inner := _LETTERS.match(pattern, at)):
                depth += inner.group().startswith("[") - (inner.group() == "]")
                at = inner.end()
            yield Cost(texts=frozenset({pattern[found.start() : at]}))
        elif kind == "open":
            yield "("
        elif kind == "times":
            yield times(text)
        elif kind == "sign":
            yield text
        elif kind != "flags" and not (is_spread and text.isspace()):
            plain = _BLANKS.get(text, text[1:] if kind == "escape" else text)
            is_literal = len(plain) == 1 and (text != "." if kind == "character" else not plain.isalnum())
            yield Cost(texts=frozenset({text}), literal=plain) if is_literal else Cost(texts=frozenset({text}))


def of_text(text: str) -> Cost:
    return Cost(texts=_together(frozenset({re.escape(sign)}) for sign in text[: MAX_TEXTS + 1]), literal=text)
