"""Facts: what can be told, asked for, remembered and forgotten. Each kind is a row of wordings.

{a} what it is about   {s} "a's"   {v} its value   {n} a person   {o} an owner
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.draw import Draw, cap
from training.words import FAMILY, FAVOURITES, NOUNS, PETS

UNKNOWN = "I don't know that. You have not told me yet."


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fact."""

    told: tuple[str, ...]
    asked: tuple[str, ...]
    embedded: tuple[str, ...]
    """Questions within another sentence: "what my name is"."""
    noun: str
    """What is asked for as a thing: "my name"; empty for none."""
    answer: str
    key: str
    """Under which it is stored, and searched for."""


KINDS: dict[str, tuple[float, Kind]] = {
    "name": (9, Kind(
        ("my name is {v}", "I am called {v}", "I am {v}", "you can call me {v}", "my name's {v}", "people call me {v}",
         "I'm {v}"),
        ("What is my name?", "What's my name?", "Who am I?", "What am I called?", "What should you call me?",
         "Say my name.", "How am I called?", "Do you know my name?"),
        ("what my name is", "who I am"), "my name", "Your name is {v}.", "name")),
    "pet": (11, Kind(
        ("my {a} is called {v}", "my {a} is named {v}", "my {s} name is {v}", "the name of my {a} is {v}",
         "I have a {a} called {v}", "I call my {a} {v}", "I have a {a} named {v}"),
        ("What is my {a} called?", "What's my {a} called?", "What is my {s} name?", "What is the name of my {a}?",
         "How is my {a} called?", "What did I name my {a}?", "What's the name of my {a}?", "What do I call my {a}?"),
        ("what my {a} is called", "what my {s} name is"), "the name of my {a}", "Your {a} is called {v}.", "{a} name")),
    "family": (9, Kind(
        ("my {a} is called {v}", "my {a} is named {v}", "my {s} name is {v}", "the name of my {a} is {v}",
         "I have a {a} called {v}"),
        ("What is my {a} called?", "What is my {s} name?", "What is the name of my {a}?", "Who is my {a}?",
         "How is my {a} called?", "What's my {s} name?", "What's my {a} called?"),
        ("what my {a} is called", "who my {a} is"), "the name of my {a}", "Your {a} is called {v}.", "{a} name")),
    "favourite": (10, Kind(
        ("my favourite {a} is {v}", "the {a} I like best is {v}", "{v} is my favourite {a}", "my favorite {a} is {v}",
         "of all I like the {a} {v} best"),
        ("What is my favourite {a}?", "What's my favourite {a}?", "Which {a} do I like best?", "What {a} do I prefer?",
         "Which {a} is my favourite?", "What is my favorite {a}?", "What {a} do I like best?"),
        ("what my favourite {a} is", "which {a} I like best"), "my favourite {a}", "Your favourite {a} is {v}.",
        "favourite {a}")),
    "home": (5, Kind(
        ("I live in {v}", "my home is in {v}", "I moved to {v}", "I have a flat in {v}",
        "I come from {v} and live there"),
        ("Where do I live?", "Which city do I live in?", "Where is my home?", "In which city do I live?",
         "What city do I live in?", "Which town do I live in?"),
        ("where I live", "which city I live in"), "", "You live in {v}.", "home")),
    "work": (4, Kind(
        ("I work at {v}", "I work for {v}", "my job is at {v}"),
        ("Where do I work?", "Who do I work for?", "Where is my job?", "Which company do I work for?",
         "Who is my employer?", "What company do I work for?"),
        ("where I work", "who I work for"), "", "You work at {v}.", "work")),
    "mine": (16, Kind(
        ("my {a} is {v}", "my {a}: {v}", "{v} is my {a}", "I have a {a}, it is {v}", "for my {a} I have {v}"),
        ("What is my {a}?", "What's my {a}?", "What was my {a}?", "Which one is my {a}?", "What did I say my {a} is?",
         "What is my {a} again?"),
        ("what my {a} is",), "my {a}", "Your {a} is {v}.", "{a}")),
    "the": (18, Kind(
        ("the {a} is {v}", "the {a}: {v}", "the {a} = {v}", "{v} is the {a}", "we have {v} as the {a}"),
        ("What is the {a}?", "What's the {a}?", "What was the {a}?", "Which one is the {a}?",
         "What did I say the {a} is?", "What is the {a} again?"),
        ("what the {a} is",), "the {a}", "The {a} is {v}.", "{a}")),
    "of": (9, Kind(
        ("the {a} of {o} is {v}", "the {a} for {o} is {v}", "{o} has the {a} {v}", "as {a} {o} has {v}",
         "{v} is the {a} of {o}"),
        ("What is the {a} of {o}?", "What's the {a} of {o}?", "Which {a} does {o} have?", "What {a} has {o}?",
         "What is the {a} for {o}?", "What was the {a} of {o}?"),
        ("what the {a} of {o} is", "which {a} {o} has"), "the {a} of {o}", "The {a} of {o} is {v}.", "{a} of {o}")),
    "lives": (3, Kind(
        ("{n} lives in {v}",), ("Where does {n} live?", "Which city does {n} live in?", "In which town does {n} live?",
         "Where is the home of {n}?", "What city does {n} live in?"),
        ("where {n} lives",), "", "{n} lives in {v}.", "{n}")),
    "likes": (3, Kind(
        ("{n} likes {v}",), ("What does {n} like?", "What is it that {n} likes?", "Which thing does {n} like?",
         "What would {n} like?", "So what does {n} like?"), ("what {n} likes",), "", "{n} likes {v}.", "{n}")),
    "plays": (2, Kind(
        ("{n} plays {v}",), ("What does {n} play?", "Which game does {n} play?", "What is it that {n} plays?",
         "What game does {n} play?", "So what does {n} play?"), ("what {n} plays",), "", "{n} plays {v}.", "{n}")),
}  # fmt: skip
AROUND = (
    "Tell me {}.", "Do you know {}?", "Do you remember {}?", "Can you tell me {}?", "Please tell me {}.",
    "I forgot {}.",
    "Could you remind me {}?", "Can you say {}?", "I would like to know {}.", "Any idea {}?", "Remind me {}.",
    "Do you still know {}?",
)  # fmt: skip
ABOUT = (
    "Tell me {}.", "Remind me of {}.", "Do you know {}?", "Do you remember {}?", "Give me {}.", "I need {}.", "{}?",
    "And {}?", "What about {}?", "Can you recall {}?",
)  # fmt: skip
BEFORE = (
    "Tell me: ",
    "Quick question: ",
    "So, ",
    "Now, ",
    "Hey, ",
    "Okay, ",
    "Please: ",
    "One more: ",
    "And ",
    "Well, ",
)
TELLING = (
    "{C}.", "{C}.", "{C}", "{c}", "By the way, {c}.", "FYI {c}.", "Just so you know, {c}.", "Hi, {c}.",
    "Note that {c}.",
    "You should know that {c}.", "Hello! {C}.", "For your information: {c}.", "{C}!", "Well, {c}.", "{C}, by the way.",
)  # fmt: skip
TOLD_TO_REMEMBER = (
    "Remember that {c}.", "Please remember that {c}.", "Remember: {c}", "Keep in mind that {c}.",
    "Don't forget that {c}.",
    "Can you remember that {c}?", "Remember {c}", "I want you to remember that {c}.", "Memorize that {c}.",
    "Make a note that {c}.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    kind: str
    clause: str
    """Without a capital and a full stop, as it may stand in a sentence."""
    questions: tuple[str, ...]
    answer: str
    key: str
    value: str

    @property
    def topic(self) -> str:
        """What it is about; two facts with the same topic contradict each other."""
        return self.answer.replace(self.value, "")

    @property
    def names(self) -> frozenset[str]:
        """Other facts of one conversation must have others."""
        return frozenset({self.topic, self.key, self.value})


def fact(draw: Draw, kind: str = "") -> Fact:
    kind = kind or draw.weighted([(name, share) for name, (share, _) in KINDS.items()])
    row = KINDS[kind][1]
    about, (sort, value) = "", ("", "")
    match kind:
        case "pet":
            about, value = draw.pick(PETS), draw.person()
        case "family":
            about, value = draw.pick(FAMILY), draw.person()
        case "favourite":
            about = draw.pick(FAVOURITES) if draw.often(0.75) else draw.word()
            value = draw.word() if draw.often(0.6) else draw.value()
        case "name":
            value = draw.name() if draw.often(0.7) else draw.person()
        case "home" | "lives":
            value = draw.place()
        case "work":
            value = draw.made(draw.name, lambda: f"{draw.name()} {draw.name()}", lambda: f"the {draw.pick(NOUNS)}")
        case "likes" | "plays":
            value = draw.made(draw.word, draw.name)
        case _:
            about, (sort, value) = draw.noun() if kind != "of" else draw.pick(NOUNS), draw.kind_and_value()
    slots = {
        "a": about, "s": f"{about}'s", "v": value, "n": draw.name(),
        "o": draw.made(draw.name, lambda: f"the {draw.pick(NOUNS)}"),
    }  # fmt: skip
    asked = [draw.wording(row.asked) for _ in range(4)]
    asked.append(draw.wording(AROUND).format(draw.pick(row.embedded)))
    if row.noun:
        asked.append(draw.wording(ABOUT).format(row.noun))
        if sort == "date":
            asked += [f"When is {row.noun}?"] * 2
    questions = tuple(cap(each.format(**slots)) for each in asked)
    return Fact(
        kind,
        draw.wording(row.told).format(**slots),
        questions,
        cap(row.answer.format(**slots)),
        row.key.format(**slots),
        value,
    )


def facts(draw: Draw, n: int, *, but: Sequence[Fact] = ()) -> list[Fact]:
    """So many facts, no two about the same, and none about the same as one of `but`."""
    used = {name for each in but for name in each.names}
    found: list[Fact] = []
    while len(found) < n:
        new = fact(draw)
        if used.isdisjoint(new.names):
            used |= new.names
            found.append(new)
    return found


def near(draw: Draw, known: Sequence[Fact]) -> Fact:
    """A fact that is not among those that are known; often of the kind of one of them."""
    used = {name for each in known for name in each.names} | {each.key.split()[0] for each in known}
    while True:
        new = fact(draw, draw.pick(known).kind if known and draw.often(0.5) else "")
        if used.isdisjoint(new.names) and new.key.split()[0] not in used:
            return new


def statement(draw: Draw, each: Fact, wordings: Sequence[str] = (*TELLING, *TOLD_TO_REMEMBER)) -> str:
    return draw.wording(wordings).format(c=each.clause, C=cap(each.clause))


def together(each: Sequence[Fact]) -> str:
    """Several facts in one message."""
    return " ".join(f"{cap(one.clause)}." for one in each)


def acknowledgement(draw: Draw, each: Fact) -> str:
    return draw.of(f"Got it. {each.answer}", f"Noted. {each.answer}")


def question(draw: Draw, each: Fact) -> str:
    asked = draw.pick(each.questions)
    style = draw.weighted((("plain", 68), ("small", 14), ("open", 8), ("before", 7), ("thanks", 3)))
    if style == "small":
        return asked[0].lower() + asked[1:]
    if style == "open":
        return asked.rstrip("?.")
    if style == "before":
        return draw.wording(BEFORE) + asked
    return f"{asked} Thanks." if style == "thanks" else asked
