"""How a text is worded: whether it asks, refers back, does not know, reports a change. Tables of patterns; pure.

Mostly English, and the simplest forms of German, French and Spanish. A mistake costs one quote too many or too few;
nothing is stored or deleted by it.
"""

from __future__ import annotations

import re

HEAD_CHARS = 120
"""An answer without knowledge says so at its beginning."""

_SENTENCE = re.compile(r"[^\n]*?\w[^\n]*?(?:[.!?]+(?=[\s\"'”)\]*_]|$)|[。！？]+|$)", re.MULTILINE)
_AUXILIARY = "(?:is|are|was|were|am|do|does|did|can|could|should|would|will|has|have|had)"
_QUESTION = re.compile(
    r"(?i)\W*(?:(?:and|so|but|ok|okay|hey|hi|hello|please|well|then|also|now)\W+)*(?:"
    rf"(?:what|which|whose|who|whom|how)(?:'s| (?:\w+ ){{0,3}}{_AUXILIARY}\b)|(?:when|where|why)(?:'s| {_AUXILIARY}\b)|"
    r"(?:do|does|did|can|could|would|will|should|have|has|is|are|was) (?:i|you|we|he|she|it|they|my|there)\b|"
    r"(?:tell|remind|give|show) me\b|explain\b|describe\b)"
)
asks_for_answer = re.compile(
    r"(?i)\b(?:i (?:need|want|would like)|i'd like|i(?: am|'m) looking for|help me|i wonder|please (?:make|write|give|"
    r"find|suggest|recommend|plan|list|compare)|ich brauche|ich suche|j'ai besoin|je cherche|necesito|busco)\b"
).search
refers_back = re.compile(
    r"(?i)\A\W*(?:and|but|so|what about|how about|und|et|y)\b|\b(?:it|its|it's|he|him|his|she|her|hers|they|them|their|"
    r"theirs|this|that|these|those|there|one|ones|same|er|sie|es|ihn|ihm|il|elle|ils|lui|él|ella|ello)\b"
).search
_EVASION = re.compile(
    r"(?i)\b(?:i(?:'m| am) (?:sorry|afraid|unable|not (?:sure|able|aware))|i (?:don't|do not|can't|cannot|couldn't|"
    r"didn't) (?:\w+ )?(?:know|have|recall|remember|find|see|look|access|mention)|no (?:information|record|memory|"
    r"mention)|as an ai|(?:ich weiß|weiß ich)(?: \w+)? nicht|je ne sais pas|no (?:lo )?sé)\b"
)
reports_change = re.compile(
    r"(?i)\b(?:now|no longer|any ?more|instead|changed?|changes|moved|switched|replaced|updated?|actually|correction|"
    r"since|sold|jetzt|nicht mehr|stattdessen|geändert|maintenant|ne plus|désormais|ahora|ya no|cambi\w+)\b"
).search
is_first_person = re.compile(
    r"(?i)\b(?:my|mine|i|i'm|our|we|mein\w*|ich|unser\w*|wir|mon|ma|mes|je|notre|nous|mis?|yo|nuestr[oa]s?)\b"
).search
NAMING = frozenset({"name", "names", "named", "called"})
"""Words with which a question asks for a name."""
gives_name = re.compile(
    r"(?i)(?:\b(?:is|are|was|were)|['’]s) called\b|\b(?:an?|my|our) (?:\w+ )?\w+ called\b|\bnamed\b"
    r"|\bnames? (?:is|are|was)\b"
).search
"""Whether a text gives something a name; "I called the vet" does not."""
find_names = re.compile(r"(?<=[\w,;:'’] )[A-ZÀ-Þ](?:['’][A-ZÀ-Þ])?[\w-]+").findall
"""The capitalised words within sentences."""


def is_question_only(text: str) -> bool:
    return not without_questions(text).strip() and bool(text.strip())


def without_questions(text: str) -> str:
    return _SENTENCE.sub(lambda sentence: "" if _is_question(sentence[0]) else sentence[0], text)


def _is_question(sentence: str) -> bool:
    return sentence.endswith(("?", "？")) or _QUESTION.match(sentence) is not None


def ends_with_question(text: str) -> bool:
    return text.rstrip(" \t\r\n\"')*_").endswith(("?", "？"))


def does_not_know(text: str) -> bool:
    return _EVASION.search(text[:HEAD_CHARS].replace("’", "'")) is not None
