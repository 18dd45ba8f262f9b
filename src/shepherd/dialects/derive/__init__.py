"""Derives the dialect of a model that no family knows from what its chat template prints.

    template ──observed──▶ texts: a call, two calls, an answer, a thought    runs the template
    texts    ──derived───▶ a dialect that reads each of these texts back, or none

Three notations of a call are known:

    <call>{"name": NAME, "arguments": {...}}</call>    <call>NAME<args>{...}</call>              JSON
    <call name="NAME"><arg name="K">V</arg></call>                                               tagged pairs
    <call>[NAME(K='V', K=7)]</call>                                                              Python

A guess counts only if it proves itself: every printed call comes back as it was, however the text is cut, no markup is
left in the text, and the call that constrained output writes is read, too. Open first: `calls.py`. Not here: where a
foreign template runs (`app`), families that are known (`families`).
"""

from __future__ import annotations

from shepherd.dialects.derive.answers import Answers, Printed, observed
from shepherd.dialects.derive.calls import Sample, guesses
from shepherd.dialects.derive.proof import proven
from shepherd.dialects.parse.markup import Markup
from shepherd.dialects.parse.tags import TagDialect

NAME = "derived"
LONGEST = 4_000
"""No printed answer is longer; one that is derives nothing."""


def derived(printed: Printed) -> TagDialect | None:
    """The dialect of a template that prints this; `None` if none reads it all."""
    if not {"head", "answer", "call"} <= printed.keys() or any(len(text) > LONGEST for text in printed.values()):
        return None
    answers = Answers.of(printed)
    sample = Sample.of(answers) if answers else None
    if answers is None or sample is None:
        return None
    for blocks, skips, declared in guesses(sample):
        markup = Markup(
            answers.thoughts, blocks=blocks, skips=(*answers.skips, *skips), answer=answers.around, declared=declared
        )
        dialect = TagDialect(NAME, markup, thinks=bool(answers.thoughts))
        if proven(dialect, answers):
            return dialect
    return None


def provable(template: str) -> dict[str, str]:
    """What a template prints, if that derives a dialect; else nothing. Raises: any error of a foreign template."""
    printed = observed(template)
    return printed if derived(printed) else {}


__all__ = ["NAME", "derived", "observed", "provable"]
