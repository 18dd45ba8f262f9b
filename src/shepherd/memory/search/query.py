"""A question as search terms; any string is a safe question.

Each term has its forms (the word itself, inflections that the stemmer does not know, such as `went` for `go`) and near
forms, which are other words and weigh less. No character of a question is an operator. `Filters` are conditions that
every result must meet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Literal, NamedTuple

from shepherd.core import InvalidRequest, Role
from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive.index import EMOJI, emoji_word, spaced
from shepherd.memory.records import clean
from shepherd.memory.search.words import NEAR, SAME, STOP

MOST_TERMS = 24
READ_CHARS = 4_000
"""Of a longer question, half of this is read at each end: the question is there, and pasted text between."""

MOST_SHARP = 3
"""Places of a word, or of a phrase, where `ss` may stand for `ß`."""

_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u065f\u0670\u0900-\u0dff\u0f00-\u109f\u1780-\u17ff"
_UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d"
    "\u0e00-\u0e7f\U00020000-\U0003ffff"
)
_TOKEN = re.compile(
    f"(?P<run>[{_UNSPACED}]+)"
    f"|(?P<emoji>[\U0001f1e6-\U0001f1ff]{{2}}|[{EMOJI}])"  # the first: a flag
    r"|(?P<number>\d+(?:[.,:/-]\d+)+)"
    f"|(?P<word>(?:(?![{_UNSPACED}])[^\\W_]|[{_MARKS}])+)"
)
_DAY = re.compile(r"0?([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?")
_MAY = re.compile(r"\b(?:in|last|this|next|since|until|by|of|early|late|\d+) may\b|\bmay \d")
"""The month."""


AnswerType = Literal["time", "number", "name", ""]
"""The kind of answer that a question asks for; "" = unknown."""

_ANSWER_TYPES: tuple[tuple[AnswerType, str], ...] = (
    ("time", r"when|(?:what|which) (?:date|day|month|year)|how long ago|wann|quand|cuándo|quando"),
    ("number", r"how (?:many|much|old|long|far|often|tall|big|large|fast)|what (?:age|number|price|score|time)"),
    ("number", r"wie ?viele?|wie (?:alt|lange|oft)|combien|cuánt[oa]s?|quant[ioae]"),
    ("name", r"who|whom|whose|where|which|what(?: is| are| was| were|'s) the names?|wer|wo|qui|où|quién|dónde"),
)
_ABOUT_ANSWERS = re.compile(
    r"\b(?:did|have|had) you\b|\byour (?:advice|answer|example|explanation|idea|instruction|list|opinion|plan|proposal"
    r"|recipe|recommendation|solution|suggestion|tip)s?\b"
    r"|\byou (?:advised|explained|gave|listed|proposed|provided|recommended|said|showed|suggested|told|wrote)\b"
    r"|\bhast du|\bdein(?:e|em|en)? (?:rat|vorschlag|antwort|empfehlung|idee)\b"
    r"|\bas-tu|\btu (?:as|m'as)\b|\b(?:me )?(?:dijiste|recomendaste|sugeriste|aconsejaste)\b"
)
"""How a user asks for what the model has answered."""


class Term(NamedTuple):
    """A form is a word, or several, separated by blanks, that stand side by side."""

    forms: tuple[str, ...]
    """Each stands for the term; the first is that of the question."""
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on the messages to find; all must hold."""

    conversation: str | None = None
    """Its uuid."""
    session: str | None = None
    roles: tuple[Role, ...] = ()
    """() = all."""
    after_ms: int | None = None
    """At this time or later."""
    before_ms: int | None = None
    """Before this time."""
    phrase: str | None = None
    """Words that stand side by side in the message."""
    prefix: str | None = None
    """The beginning of a word of the message."""
    untrusted: bool = True
    """Also text from tools, files and the web."""

    @property
    def required(self) -> str:
        """Phrase and prefix in FTS5's syntax; "" = none. Raises: `InvalidRequest` for one without a letter or digit."""
        parts = []
        for field, value, end in (("phrase", self.phrase, ""), ("prefix", self.prefix, " *")):
            if value is None:
                continue
            if not (words := " ".join(words_of(value))):
                raise InvalidRequest(
                    f"{field}: {value!r} has no letter, digit or emoji; give the text to find", field=field
                )
            forms = [f"{quoted(each)}{end}" for each in (words, *sharp_forms(words))]
            parts.append(forms[0] if len(forms) == 1 else f"({' OR '.join(forms)})")
        return f"body : ({' AND '.join(parts)})" if parts else ""


NO_FILTERS = Filters()


def terms_of(text: str) -> list[Term]:
    """The terms of a question, in its order, without repetition; at most `MOST_TERMS`, the longest.

    Stop words are left out, unless there are no others. Empty for a text without a letter, digit or emoji.
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
    if len(seen) > MOST_TERMS:  # long words are rare
        longest = set(sorted(seen, key=len, reverse=True)[:MOST_TERMS])
        return [term for word, term in seen.items() if word in longest]
    return list(seen.values())


def answer_type_of(text: str) -> AnswerType:
    text = _readable(text)
    return next((aim for aim, pattern in _ANSWER_TYPES if re.search(rf"\b(?:{pattern})\b", text)), "")


def is_about_answers(text: str) -> bool:
    return bool(_ABOUT_ANSWERS.search(_readable(text)))


def words_of(text: str) -> list[str]:
    """All words of a text as the index splits them, in order."""
    return re.findall(f"(?:[^\\W_]|[{_MARKS}{_UNSPACED}])+", spaced(_readable(text)))


def match_any(forms: Iterable[str]) -> str:
    """An FTS5 expression for any of the forms. It is valid for every string, since the forms are quoted."""
    return " OR ".join(map(quoted, forms))


def quoted(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


def _readable(text: str) -> str:
    if len(text) > READ_CHARS:
        text = f"{text[: READ_CHARS // 2]} {text[-READ_CHARS // 2 :]}"
    return unicodedata.normalize("NFKC", clean(text)).lower()


def _words(text: str) -> Iterator[str]:
    """Words, numbers with punctuation inside, and pairs of characters of scripts without blanks."""
    for match in _TOKEN.finditer(_readable(text)):
        token = match.group()
        if match.lastgroup == "run":
            pairs = [token[at : at + 2] for at in range(len(token) - 1)] or [token]
            yield from (" ".join(pair) for pair in pairs)
        elif match.lastgroup == "emoji":
            yield " ".join(map(emoji_word, token))
        elif match.lastgroup == "number":
            yield " ".join(re.findall(r"\d+", token))
        else:
            yield token


def _term(word: str) -> Term:
    forms = {word: None}
    if day := _DAY.fullmatch(word):  # the index has the day of a message with two digits
        forms |= {day[1]: None, f"{day[1]:0>2}": None}
    forms |= dict.fromkeys(sharp_forms(word))
    bases = (word, *_bases(word))
    for base in bases:
        forms |= dict.fromkeys(SAME.get(base, ()))
    near = {other: None for base in bases for other in (*NEAR.get(base, ()), *_agent_nouns(base)) if other not in forms}
    return Term(tuple(forms), tuple(near))


def sharp_forms(words: str) -> tuple[str, ...]:
    """The same with `ss` for `ß`, as capitals, Switzerland and many keyboards have it, and the reverse."""
    if "ß" in words:
        return (words.replace("ß", "ss"),)
    places = [found.start() for found in re.finditer("ss", words)][:MOST_SHARP]
    made = []
    for chosen in product((False, True), repeat=len(places)):
        form = words
        for at in (at for at, is_sharp in zip(reversed(places), chosen, strict=True) if is_sharp):
            form = f"{form[:at]}ß{form[at + 2 :]}"
        made.append(form)
    return tuple(made[1:])


def _agent_nouns(word: str) -> tuple[str, ...]:
    """`teacher` for `teach`, and the reverse: the stemmer keeps them apart."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return ()
    if word.endswith("er"):
        return (word[:-2], word[:-1]) if len(word) > 5 else ()
    return (word + "r",) if word.endswith("e") else (word + "er",)


def _bases(word: str) -> Iterator[str]:
    """The word without endings, for the tables of `words.py`."""
    for ending, instead in (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("d", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            yield word[: -len(ending)] + instead
