"""One source of chance for everything that is made up: words, names, values, paths; and which wording is drawn.

    Draw(seed)                  what training sees
    Draw(seed, held_out=True)   what only the evaluation sees

Of every table of at least `ENOUGH` wordings, each fifth is never drawn in training: the evaluation asks in these words.
The same seed gives the same draws on every machine and in every process: nothing iterates over a set.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from training.words import (
    ADJECTIVES,
    CITIES,
    CODAS,
    COMMON,
    DAYS,
    FILES,
    FIRST_NAMES,
    FOLDERS,
    MONTHS,
    NOT_IN_WORDS,
    NOUNS,
    ONSETS,
    UNITS,
    VERBS,
    VOWELS,
)

T = TypeVar("T")

ENOUGH, EACH = 5, 5
"""A table with fewer wordings is drawn whole; of a larger one each fifth is held out."""
UPPER, LOWER, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"
EXTENSIONS = ("txt", "md", "py", "json", "csv", "log", "yaml", "html", "toml", "cfg", "sh", "xml", "ini", "js")
_UNWANTED = re.compile(NOT_IN_WORDS)
_PART = re.compile(r"\{(\w+)\}")
ENGLISH = (
    "The {noun} is {adjective}.", "The {noun} has {n} {adjective} {noun}s.", "This is a {noun}.",
    "This is a {adjective} {noun}.", "{hello} {who}{end}", "Hello, world{end}", "{name} was in {place} on {day}.",
    "We meet at the {noun} at {n}.", "Please {verb} the {noun}.", "{verb} the {noun}, then the {noun}{end}",
    "buy {noun} and {noun}{end}", "There are {n} {noun}s in the {noun}.", "{name} and {name} have a {noun}.",
    "My {noun} is in {place}, not in {place}.", "If the {noun} is {adjective}, {verb} the {noun}.",
    "It is {adjective} and {adjective} today.", "To do: {noun}, {noun}, {noun}", "# {noun}", "# {adjective} {noun}",
    "- {verb} the {noun}", "A {adjective} {noun} for {name}.", "Nothing is as {adjective} as the {noun} of {name}.",
    "see you at {n}", "see you at the {noun} in {place}", "feed the {noun}", "call {name} at {n}", "pay the {noun}",
    "go to the {noun} in {place}", "meet {name} in {place} at {n}", "send the {noun} to {name}", "add {n} {noun}s",
    "come to {place} on {day}", "the {noun} is in the {noun}", "bring the {noun} to the {noun}", "back at {n}",
    "{name} is at the {noun}", "say hello to {name}", "put the {noun} into the {noun}", "{verb} the {noun}",
    "lunch with {name} at {n}", "a {adjective} {noun}", "water the {noun}s", "thank {name} for the {noun}",
    "be in {place} at {n} on {day}", "from {place} to {place} in {n} hours", "change the {noun} to {adjective}",
)  # fmt: skip
"""Sentences with parts: see `Draw.english`."""


def is_held_out(at: int, n: int) -> bool:
    """Whether wording `at` of a table of `n` is only for the evaluation."""
    return n >= ENOUGH and at % EACH == EACH - 1


def cap(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


class Draw:
    """Draws of one conversation after the other; the same seed draws the same ones."""

    def __init__(self, seed: int | str, *, held_out: bool = False) -> None:
        self.random = random.Random(f"{seed} {held_out}")
        self.held_out = held_out

    # -- choices ------------------------------------------------------------------------------------------------------

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random.random() * len(choices))]

    def of(self, *choices: T) -> T:
        return self.pick(choices)

    def wording(self, table: Sequence[T]) -> T:
        """One of the wordings that training may see, or one of those that it may not."""
        n = len(table)
        if n < ENOUGH:
            return self.pick(table)
        return self.pick([each for at, each in enumerate(table) if is_held_out(at, n) == self.held_out])

    def weighted(self, choices: Sequence[tuple[T, float]]) -> T:
        return self.random.choices([each for each, _ in choices], [share for _, share in choices])[0]

    def made(self, *makers: Callable[[], T]) -> T:
        """What one of the makers makes."""
        return self.pick(makers)()

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.random.random() * (high - low + 1))

    def sample(self, choices: Sequence[T], n: int) -> list[T]:
        return self.random.sample(choices, min(n, len(choices)))

    def shuffled(self, each: Sequence[T]) -> list[T]:
        return self.sample(each, len(each))

    # -- words --------------------------------------------------------------------------------------------------------

    def invented(self) -> str:
        """A word that does not exist."""
        while True:
            n = self.weighted(((1, 15), (2, 50), (3, 28), (4, 7)))
            word = "".join(self._syllable() for _ in range(n))
            if not _UNWANTED.search(word):
                return word

    def _syllable(self) -> str:
        onset = self.pick(ONSETS) if self.often(0.93) else ""
        return onset + self.pick(VOWELS) + (self.pick(CODAS) if self.often(0.58) else "")

    def word(self) -> str:
        kind = self.weighted((("common", 50), ("noun", 20), ("invented", 30)))
        return self.invented() if kind == "invented" else self.pick(COMMON if kind == "common" else NOUNS)

    def noun(self) -> str:
        """What has a value: "the server", "the spare key"."""
        return self.made(
            lambda: self.pick(NOUNS),
            lambda: f"{self.pick(ADJECTIVES)} {self.pick(NOUNS)}",
            lambda: f"{self.pick(NOUNS)} {self.of('code', 'name', 'number', 'date', 'price', 'size', 'owner', 'port')}",
            lambda: f"{self.word()} {self.pick(NOUNS)}",
        )

    def phrase(self, most: int = 5) -> str:
        return " ".join(self.word() for _ in range(self.whole(1, most)))

    def name(self) -> str:
        if self.often(0.35):
            return self.pick(FIRST_NAMES)
        return cap(self.pick(COMMON) if self.often(0.2) else self.invented())

    def person(self) -> str:
        return self.made(self.name, self.name, lambda: f"{self.name()} {self.name()}", lambda: f"Dr {self.name()}")

    def place(self) -> str:
        return self.made(lambda: self.pick(CITIES), self.name, self.name)

    # -- values -------------------------------------------------------------------------------------------------------

    def digits(self, n: int) -> str:
        return "".join(self.pick(DIGITS) for _ in range(n))

    def number(self) -> str:
        return self.made(
            lambda: self.digits(self.whole(1, 5)),
            lambda: str(self.whole(1, 999)),
            lambda: f"{self.whole(0, 999)}.{self.digits(self.whole(1, 2))}",
            lambda: f"{self.whole(1, 500)} {self.pick(UNITS)}",
            lambda: f"${self.whole(1, 9999)}",
            lambda: f"{self.whole(1, 100)}%",
        )

    def date(self) -> str:
        day, month, year = self.whole(1, 28), self.pick(MONTHS), self.whole(1950, 2040)
        return self.of(
            f"{day} {month}",
            f"{month} {day}",
            f"{day} {month} {year}",
            f"{year}-{self.whole(1, 12):02d}-{day:02d}",
            self.pick(DAYS),
            f"{self.pick(DAYS)} at {self.whole(1, 12)} {self.of('am', 'pm')}",
            f"{self.whole(0, 23)}:{self.whole(0, 59):02d}",
        )

    def code(self) -> str:
        def of(signs: str, low: int, high: int) -> str:
            return "".join(self.pick(signs) for _ in range(self.whole(low, high)))

        return self.made(
            lambda: f"{of(UPPER, 2, 4)}-{self.digits(self.whole(2, 5))}",
            lambda: of(LOWER + DIGITS, 4, 9),
            lambda: of(UPPER + DIGITS, 4, 8),
            lambda: f"{self.invented()}-{self.invented()}-{self.digits(2)}",
            lambda: f"{self.invented()}_{self.pick(COMMON)}{self.digits(self.whole(1, 3))}",
            lambda: of(UPPER + LOWER + DIGITS, 5, 10),
            lambda: self.pick(COMMON) + self.digits(self.whole(1, 4)),
            lambda: cap(self.pick(COMMON)) + self.digits(self.whole(1, 4)),
        )

    def file(self) -> str:
        if self.often(0.4):
            return self.pick(FILES)
        stem = self.made(
            self.word,
            lambda: f"{self.word()}_{self.word()}",
            lambda: f"{self.word()}-{self.word()}",
            lambda: self.word() + self.digits(self.whole(1, 3)),
            lambda: cap(self.word()),
        )
        return f"{stem}.{self.pick(EXTENSIONS)}"

    def folder(self) -> str:
        if self.often(0.4):
            return self.pick(FOLDERS)
        start = self.of("", "", "/", "~/", "./", f"{self.pick(FOLDERS[:14])}/")
        return start + "/".join(self.word() for _ in range(self.whole(1, 3)))

    def path(self) -> str:
        if self.often(0.55):
            return self.file()
        folder = self.folder().rstrip("/")
        return f"{folder}/{self.file()}" if folder else f"/{self.file()}"

    def host(self) -> str:
        return self.of(
            f"{self.word()}.{self.of('com', 'org', 'net', 'io', 'dev')}",
            f"api.{self.word()}.{self.of('com', 'org')}",
            f"{self.word()}.example.com",
            "example.com",
            f"localhost:{self.digits(4)}",
        )

    def url(self) -> str:
        rest = self.of(
            "", "/", f"/{self.word()}", f"/{self.word()}/{self.digits(self.whole(1, 4))}", f"/v1/{self.word()}",
            f"/{self.word()}.json", f"/{self.word()}?{self.word()}={self.word()}",
        )  # fmt: skip
        return f"{self.of('http', 'https')}://{self.host()}{rest}"

    def command(self) -> str:
        return self.made(
            lambda: self.of(
                "date", "whoami", "uptime", "pwd", "df -h", "uname -a", "ps aux", "free -m", "hostname", "ls"
            ),
            lambda: f"ls -{self.of('l', 'la', 'lh', 'a')} {self.folder()}",
            lambda: f"cat {self.path()}",
            lambda: f"git {self.of('status', 'pull', 'log', 'diff', 'branch')}",
            lambda: f"python {self.file()}",
            lambda: f"mkdir {self.folder()}",
            lambda: f"grep {self.word()} {self.path()}",
            lambda: f"echo {self.phrase(3)}",
            lambda: f"wc -l {self.path()}",
            lambda: f"cp {self.path()} {self.path()}",
            lambda: f"pip install {self.word()}",
            lambda: f"{self.word()} --{self.word()} {self.word()}",
            lambda: f"tail -n {self.whole(1, 50)} {self.path()}",
        )

    def email(self) -> str:
        return f"{self.word()}{self.of('', '.')}{self.word()}@{self.word()}.{self.of('com', 'org', 'net', 'io')}"

    def english(self) -> str:
        """A sentence as people write them: copying must not depend on how a text begins."""
        parts: dict[str, Callable[[], str]] = {
            "noun": lambda: self.pick(NOUNS), "verb": lambda: self.pick(VERBS),
            "adjective": lambda: self.pick(ADJECTIVES), "name": self.name, "place": self.place,
            "day": lambda: self.pick(DAYS), "n": lambda: str(self.whole(2, 12)),
            "end": lambda: self.of("", ".", "!"), "who": lambda: self.made(self.name, self.word),
            "hello": lambda: self.of("Hello", "Hello,", "Hi", "Hi,", "hello", "Good morning,"),
        }  # fmt: skip
        made = self.pick(ENGLISH)
        said = _PART.sub(lambda part: parts[part[1]](), made)
        return said if made[0].islower() and self.often(0.7) else cap(said)

    def sentence(self) -> str:
        return self.made(
            self.english,
            self.english,
            self.english,
            self.english,
            lambda: f"the {self.word()} {self.word()} the {self.word()}",
            lambda: f"{cap(self.phrase())}.",
            self.phrase,
            lambda: f"hello {self.word()}",
            lambda: f"{self.name()} likes {self.word()}",
            lambda: f"{self.word()}: {self.number()}",
            lambda: f"buy {self.phrase(2)}",
            lambda: f"call {self.name()} on {self.pick(DAYS)}",
        )

    def value(self) -> str:
        """Anything that can be told and asked for."""
        return self.kind_and_value()[1]

    def kind_and_value(self) -> tuple[str, str]:
        kind = self.weighted(
            (
                ("name", 30),
                ("number", 16),
                ("date", 14),
                ("code", 16),
                ("phrase", 10),
                ("path", 4),
                ("url", 4),
                ("email", 4),
            )
        )
        makers: dict[str, Callable[[], str]] = {
            "name": self.person, "number": self.number, "date": self.date, "code": self.code, "phrase": self.phrase,
            "path": self.path, "url": self.url, "email": self.email,
        }  # fmt: skip
        return kind, makers[kind]()

    def identifier(self, *parts: str) -> str:
        """A name as programs have them: `send_note`, `sendNote`."""
        words = [re.sub(r"[^a-z0-9]", "", part.lower()) or "x" for part in " ".join(parts).split()]
        style = self.weighted((("snake", 74), ("camel", 16), ("title", 3), ("dash", 4), ("joined", 3)))
        title = "".join(map(cap, words))
        return {
            "snake": "_".join(words), "camel": words[0] + "".join(map(cap, words[1:])), "title": title,
            "dash": "-".join(words), "joined": "".join(words),
        }[style]  # fmt: skip
