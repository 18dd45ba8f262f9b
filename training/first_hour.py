"""The first hour's sentences: what people type first, and what is right. Programs judge: calls, facts and files
exactly, refusals and small talk by their form.

    first_hour.toml ─▶ Sentence ─ the engine, in a scratch folder ─▶ Outcome ─ faults ─▶ what is wrong; nothing = right

Not here: how a sentence is played (`engine.py`).
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("first_hour.toml")
FORMS = {
    "greeting": r"^(hello|hi|hey|good (morning|afternoon|evening|day))\b",
    "welcome": r"\bwelcome\b|\bglad\b|\bpleasure\b",
    "goodbye": r"\bgoodbye\b|\bsee you\b|^bye\b",
    "self": r"\blamb\b.*\btiny\b|\btiny\b.*\bmodel\b",
    "abilities": r"\b(chat|talk)\b.*\b(remember|files|tools)\b",
    "fine": r"\bfine\b|\bwell, thank",
    "here": r"\bhere\b",
    "joke": r"\b(baa|lamb|sheep)\b.*[.!?]$",
    "pleased": r"\bglad\b|\bgood to\b",
    "no problem": r"\bno problem\b|\bsorry\b",
    "unknown": r"\b(don't|do not) know\b|\bfound nothing\b",
    "unable": r"\btiny model\b.*\b(cannot|can't|don't|only)\b",
    "english": r"\benglish\b",
    "unclear": r"\b(don't|did not|didn't|do not) understand\b",
    "failed": r"\b(no such|not there|does not exist|could not|not found|failed)\b",
    "which": r"\bwhich (line|text)\b|\bwhat (line|text|should)\b",
    "ran": r"\bcommand printed\b",
}
"""What an answer of each form has, in small letters."""
MOST_WORDS = 80
"""An answer with more is no answer: the model repeats itself."""

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sentence:
    kind: str
    say: tuple[str, ...]
    """What is typed, turn by turn; the last one is judged."""
    is_held_out: bool
    reply: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    calls: tuple[tuple[Call, ...], ...] = ((),)
    """The sequences of calls that are right."""
    any_calls: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All that is typed."""
        return " ".join(self.say)


@dataclass(frozen=True, slots=True)
class Outcome:
    answer: str
    calls: tuple[Call, ...]
    files: Mapping[str, str]
    """Of the folder, afterwards."""
    has_ended: bool = True
    """The answer ended by itself."""


def load(file: Path = FILE) -> tuple[list[Sentence], dict[str, str]]:
    """The sentences, and the files of their folder. Raises: `ValueError`, with the sentence that is not understood."""
    read = tomllib.loads(file.read_text("utf-8"))
    found = [
        _sentence(group, row, is_held_out=part == "held_out")
        for group in read["group"]
        for part in ("seen", "held_out")
        for row in group[part]
    ]
    return found, read["folder"]


def _sentence(group: Mapping[str, Any], row: str | Mapping[str, Any], *, is_held_out: bool) -> Sentence:
    fields: dict[str, Any] = {"say": row} if isinstance(row, str) else dict(row)
    fields.setdefault("reply", group.get("reply", ()))
    say, reply, calls = fields.pop("say"), fields.pop("reply"), fields.pop("calls", None)
    replies = (reply,) if isinstance(reply, str) else tuple(reply)
    if unknown := [each for each in replies if each not in FORMS]:
        raise ValueError(f"{say!r}: there is no form {unknown[0]!r}; the forms are {', '.join(FORMS)}")
    sequences = [calls or []] + ([fields.pop("or_calls")] if "or_calls" in fields else [])
    known = {name: fields.pop(name, {}) for name in ("files", "known")}
    has, lacks = (tuple(fields.pop(name, ())) for name in ("has", "lacks"))
    if fields:
        raise ValueError(f"{say!r}: there is no field {next(iter(fields))!r}")
    return Sentence(
        kind=group["kind"],
        say=(say,) if isinstance(say, str) else tuple(say),
        is_held_out=is_held_out,
        reply=replies,
        calls=tuple(tuple(map(_call, each)) for each in sequences),
        any_calls=calls is None and bool(known["files"]),
        has=has,
        lacks=lacks,
        **known,
    )


def _call(text: str) -> Call:
    name, _, arguments = text.partition(" ")
    return name, json.loads(arguments)


def faults(
    asked: Sentence, came: Outcome, folder: Mapping[str, str], defaults: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """What is wrong with an outcome. `folder`: the files before. `defaults`: of the arguments of each tool: an argument
    that is given its default value counts as not given."""
    found = []
    came_calls = [_plain(call, defaults) for call in came.calls]
    if not asked.any_calls and all(came_calls != [_plain(call, defaults) for call in each] for each in asked.calls):
        found.append(f"calls {_shown(came.calls)} in place of {' or '.join(map(_shown, asked.calls))}")
    expected = {path: text for path, text in {**folder, **asked.files}.items() if text}
    after = {path: text.rstrip("\n") for path, text in came.files.items()}
    found += [
        f"{path} has {after.get(path)!r} in place of {expected.get(path)!r}"
        for path in sorted({*expected, *after})
        if after.get(path) != (expected[path].rstrip("\n") if path in expected else None)
    ]
    answer = " ".join(came.answer.split())
    if asked.reply and not any(re.search(FORMS[form], answer.lower()) for form in asked.reply):
        found.append(f"no reply of the form {' or '.join(asked.reply)}")
    found += [f"{word!r} is missing" for word in asked.has if not _has(answer, word)]
    found += [f"{word!r} is wrong" for word in asked.lacks if _has(answer, word)]
    if not answer:
        found.append("no answer")
    if not came.has_ended or len(answer.split()) > MOST_WORDS:
        found.append("no end")
    return found


def _has(answer: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", answer, re.IGNORECASE) is not None


def _plain(call: Call, defaults: Mapping[str, Mapping[str, Any]]) -> Call:
    """The call without defaults, its paths in their shortest spelling."""
    name, arguments = call
    given = {
        key: posixpath.normpath(value) if key == "path" and isinstance(value, str) else value
        for key, value in arguments.items()
    }
    usual = defaults.get(name, {})
    return name, {key: value for key, value in given.items() if key not in usual or usual[key] != value}


def _shown(calls: Sequence[Call]) -> str:
    return ", ".join(f"{name} {json.dumps(arguments, ensure_ascii=False)}" for name, arguments in calls) or "none"


def plain(text: str) -> str:
    """A sentence as it is compared with what training says: its words in small letters."""
    words = " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))
    return words.strip(" .!?") or words
