"""Free text into what is looked for: any string is a safe question.

A question becomes terms, and each term the forms that say it: as asked, inflected where the stemmer cannot know
(`went`, `go`), and, for less, in another word. Nothing that a user types is an operator. A phrase and a prefix that
must be there, and where and when to look, are `Filters`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shepherd.core import InvalidRequest, Role
from shepherd.memory.archive.index import spaced
from shepherd.memory.records import clean
from shepherd.memory.search.words import NEAR, SAME, STOP

MOST_TERMS = 24
READ_CHARS = 4_000
"""Of a longer question half of this is read at each end: what is asked stands there, pasted text between."""

_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0670\u0900-\u0dff\u0f00-\u109f\u1780-\u17ff"
_UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d"
    "\u0e00-\u0e7f\U00020000-\U0003ffff"
)
_TOKEN = re.compile(
    f"(?P<run>[{_UNSPACED}]+)"
    r"|(?P<number>\d+(?:[.,:/-]\d+)+)"
    f"|(?P<word>(?:(?![{_UNSPACED}])[^\\W_]|[{_MARKS}])+)"
)
_DAY = re.compile(r"0?([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_MAY = re.compile(r"\b(?:in|last|this|next|since|until|by|of|early|late|\d+) may\b|\bmay \d")
"""The month."""


Aim = Literal["time", "number", "name", ""]
"""What kind of thing is asked for; "" = cannot be told."""

_AIMS: tuple[tuple[Aim, str], ...] = (
    ("time", r"when|(?:what|which) (?:date|day|month|year)|how long ago|wann|quand|cuándo|quando"),
    ("number", r"how (?:many|much|old|long|far|often|tall|big|large|fast)|what (?:age|number|price|score|time)"),
    ("number", r"wie ?viele?|wie (?:alt|lange|oft)|combien|cuánt[oa]s?|quant[ioae]"),
    ("name", r"who|whom|whose|where|which|what(?: is| are| was| were|'s) the names?|wer|wo|qui|où|quién|dónde"),
)
_ANSWERS = re.compile(
    r"\b(?:did|have|had) you\b|\byour (?:advice|answer|example|explanation|idea|instruction|list|opinion|plan|proposal"
    r"|recipe|recommendation|solution|suggestion|tip)s?\b"
    r"|\byou (?:advised|explained|gave|listed|proposed|provided|recommended|said|showed|suggested|told|wrote)\b"
    r"|\bhast du|\bdein(?:e|em|en)? (?:rat|vorschlag|antwort|empfehlung|idee)\b"
    r"|\bas-tu|\btu (?:as|m'as)\b|\b(?:me )?(?:dijiste|recomendaste|sugeriste|aconsejaste)\b"
)
"""How one asks for what the other has said."""


class Term(NamedTuple):
    """One thing asked for. A form is a word, or several, separated by blanks, that stand side by side."""

    said: tuple[str, ...]
    """Each says it; the first is as it was asked."""
    near: tuple[str, ...] = ()
    """Each says something close to it."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Where to look: what does not match all that is said is not found."""

    conversation: str | None = None
    """Its uuid."""
    session: str | None = None
    roles: tuple[Role, ...] = ()
    """None = all."""
    after_ms: int | None = None
    """Said at this time or later."""
    before_ms: int | None = None
    """Said before this time."""
    phrase: str | None = None
    """Words that stand side by side in the message."""
    prefix: str | None = None
    """How a word of the message begins."""
    untrusted: bool = True
    """Also what came from tools, files and the web."""

    @property
    def required(self) -> str:
        """What the index must find in the message itself; "" = nothing. Raises: `InvalidRequest`."""
        said = []
        for field, value, end in (("phrase", self.phrase, ""), ("prefix", self.prefix, " *")):
            if value is None:
                continue
            words = " ".join(words_of(value))
            if not words:
                raise InvalidRequest(
                    f"{field}: {value!r} has no letter and no digit; give the text to find", field=field
                )
            said.append(f"{quoted(words)}{end}")
        return f"body : ({' AND '.join(said)})" if said else ""


def terms_of(text: str) -> list[Term]:
    """What a question asks for, in its order, without repetition; at most `MOST_TERMS`, the longest.

    Words that say nothing are left out, unless there are no others. Empty when the text has neither letter nor digit.
    """
    seen: dict[str, Term] = {}
    words = list(_words(text))
    plain = [word for word in words if " " not in word]
    stop = set(STOP["en"])
    n_english = len(stop.intersection(plain))
    for known in STOP.values():
        if len(known.intersection(plain)) > max(1, n_english):
            stop |= known
    if _MAY.search(" ".join(words)):
        stop.discard("may")
    kept = [word for word in words if word not in stop] or words
    for word in kept:
        if word not in seen:
            seen[word] = _term(word)
    if len(seen) > MOST_TERMS:  # long words are rare ones
        longest = set(sorted(seen, key=len, reverse=True)[:MOST_TERMS])
        return [term for word, term in seen.items() if word in longest]
    return list(seen.values())


def aim_of(text: str) -> Aim:
    """What kind of thing a question asks for."""
    text = _readable(text)
    return next((aim for aim, pattern in _AIMS if re.search(rf"\b(?:{pattern})\b", text)), "")


def is_about_answers(text: str) -> bool:
    """Whether a question is about what the model said, rather than what the user did."""
    return bool(_ANSWERS.search(_readable(text)))


def words_of(text: str) -> list[str]:
    """The words of a text as the index sees them, in its order, nothing left out."""
    return re.findall(f"(?:[^\\W_]|[{_MARKS}{_UNSPACED}])+", spaced(_readable(text)))


def any_of(forms: Iterable[str]) -> str:
    """An expression of FTS5 that cannot fail: every form is quoted."""
    return " OR ".join(map(quoted, forms))


def quoted(words: str) -> str:
    """A string of FTS5: never an operator."""
    return '"' + words.replace('"', '""') + '"'


def _readable(text: str) -> str:
    if len(text) > READ_CHARS:
        text = f"{text[: READ_CHARS // 2]} {text[-READ_CHARS // 2 :]}"
    return unicodedata.normalize("NFKC", clean(text)).lower()


def _words(text: str) -> Iterator[str]:
    """Words, numbers that punctuation joins as one, and pairs of the characters that are written without blanks."""
    for match in _TOKEN.finditer(_readable(text)):
        token = match.group()
        if match.lastgroup == "run":
            pairs = [token[at : at + 2] for at in range(len(token) - 1)] or [token]
            yield from (" ".join(pair) for pair in pairs)
        elif match.lastgroup == "number":
            yield " ".join(re.findall(r"\d+", token))
        else:
            yield token


def _term(word: str) -> Term:
    said = {word: None}
    if day := _DAY.fullmatch(word):  # the index has the day of a message as two digits
        said |= {day[1]: None, f"{day[1]:0>2}": None}
    bases = (word, *_bases(word))
    for base in bases:
        said |= dict.fromkeys(SAME.get(base, ()))
    near = {other: None for base in bases for other in (*NEAR.get(base, ()), *_doers(base)) if other not in said}
    return Term(tuple(said), tuple(near))


def _doers(word: str) -> tuple[str, ...]:
    """Who does it, or what such a person does: the stemmer keeps `teach` and `teacher` apart."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return ()
    if word.endswith("er"):
        return (word[:-2], word[:-1]) if len(word) > 5 else ()
    return (word + "r",) if word.endswith("e") else (word + "er",)


def _bases(word: str) -> Iterator[str]:
    """What the word may be an ending of, for the tables."""
    for ending, instead in (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("d", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            yield word[: -len(ending)] + instead
