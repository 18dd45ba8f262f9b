"""Tools that training makes up, so that a model reads descriptions instead of remembering names.

    offer(draw) ─▶ Offered: a description, and ask(draw) ─▶ a request for it, and the call

Of each family's requests, those that training never draws (`draw.py`) are asked in the evaluation, about nouns of
`HELD_OUT_NOUNS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from training.chat import Called, Spec
from training.draw import Draw, cap
from training.families import FAMILIES, LOOKED_UP, WELL_KNOWN, WITHOUT_ARGUMENTS, Family
from training.words import ADJECTIVES, COMMON, FAMILY, NOUNS, VERBS

HELD_OUT_NOUNS = tuple("tide pollen oven drone locker parcel voucher lantern fountain elevator archive pigeon".split())
"""What tools are about only in the evaluation."""
PREPOSITIONS = ("in", "for", "of", "at")
POLITE = (
    "", "", "", "", "", "", "Please ", "Can you ", "Could you ", "I want you to ", "Now ", "Could you please ", "Hey, ",
    "Would you ", "please ", "Ok, ", "Lamb, ", "I would like you to ", "Go ahead and ", "Kindly ", "Next, ", "Quickly ",
)  # fmt: skip
FLAGS = ("force", "verbose", "urgent", "silent", "recursive", "private")
PARAMETERS = (
    "name", "id", "date", "city", "query", "amount", "text", "title", "user", "email", "color", "size", "path", "url",
    "message",
    "number", "location", "start", "end", "count",
)  # fmt: skip


Ask = Callable[[Draw], tuple[str, Called]]


class Offered(NamedTuple):
    spec: Spec
    ask: Ask
    """What is said for a call of it; each time with other words and values."""

    @property
    def name(self) -> str:
        return str(self.spec["function"]["name"])


def offer(draw: Draw, *, family: str = "") -> Offered:
    """`family`: of the tool; one that is asked for by its name has none."""
    if family or draw.often(0.7):
        return natural(draw, family)
    return by_name(draw)


def some_noun(draw: Draw) -> str:
    if draw.held_out:
        return draw.pick(HELD_OUT_NOUNS)
    while True:
        noun = draw.weighted((
            (lambda: draw.pick(NOUNS), 50), (lambda: draw.pick(COMMON), 20),
            (lambda: f"{draw.pick(ADJECTIVES)} {draw.pick(NOUNS)}", 15), (draw.invented, 15),
        ))()  # fmt: skip
        if noun not in HELD_OUT_NOUNS:
            return noun


def natural(draw: Draw, family: str = "") -> Offered:
    """A tool of a family, and requests that do not name it."""
    if not family and not draw.held_out and draw.often(0.05):
        return without_arguments(draw)
    known = ""
    if not family and not draw.held_out and draw.often(0.2):
        known, family, noun = draw.pick(WELL_KNOWN)
    else:
        family = family or draw.pick(tuple(FAMILIES))
        noun = (
            draw.pick(LOOKED_UP) if family == "look up" and draw.often(0.5) and not draw.held_out else some_noun(draw)
        )
    row = FAMILIES[family]
    verb, preposition = draw.pick(VERBS) if draw.often(0.7) else draw.invented(), draw.pick(PREPOSITIONS)

    def filled(text: str) -> str:
        text = re.sub(r"\bN\b", noun, text.replace("PREP", preposition))
        return re.sub(r"\bV(s|ed)?\b", lambda found: verb + (found[1] or ""), text)

    name = known or draw.identifier(filled(draw.pick(row.names)), *([draw.word()] if draw.often(0.1) else []))
    if not known and draw.often(0.05):
        name = draw.identifier(draw.word(), draw.word())
    parameters, slots = chosen_slots(draw, row, is_plain=bool(known))
    flag = draw.pick(FLAGS) if draw.often(0.05) and not known else ""
    flag = "" if flag in parameters else flag
    if flag:
        parameters[flag] = {"type": "boolean"}
    description = cap(filled(draw.pick(row.descriptions)).replace(" R", f" {row.slots[0].names[0]}"))

    def ask(draw: Draw) -> tuple[str, Called]:
        values = {letter: VALUES[slot.value](draw) for letter, slot in zip("abc", row.slots, strict=False)}
        arguments: dict[str, Any] = {
            each: int(values[letter]) if parameters[each]["type"] == "integer" else values[letter]
            for each, letter in slots.items()
        }
        said = worded(draw, filled(draw.wording(row.requests)), values)
        if flag:
            arguments[flag] = draw.often(0.5)
            said = f"{said.rstrip('.?')}{draw.of(', ', ' with ', ' and ')}{flag} {json.dumps(arguments[flag])}"
        return said, Called(name, arguments)

    return Offered(described(draw, name, description, parameters), ask)


def chosen_slots(draw: Draw, row: Family, *, is_plain: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Parameters with their schemas, and the letters that they have in the wordings."""
    parameters: dict[str, Any] = {}
    letters: dict[str, str] = {}
    for letter, slot in zip("abc", row.slots, strict=False):
        usual = draw.pick(slot.names)
        name = draw.pick(slot.names[:3]) if is_plain else usual
        while (draw.often(0.1) and not is_plain) or name in parameters:
            name = draw.identifier(usual if draw.often(0.5) else draw.word(), draw.word())
        schema = {"type": draw.pick(slot.types)}
        if draw.often(0.35) or name not in slot.names:
            schema["description"] = f"The {usual}"
        parameters[name], letters[name] = schema, letter
    return parameters, letters


def worded(draw: Draw, request: str, values: dict[str, str]) -> str:
    """The request with its values. Behind a value stands nothing: that could belong to it; at the beginning it keeps
    its letters."""
    is_open, is_capital = request.endswith("}"), not request.startswith("{") and draw.often(0.85)
    if not request.startswith("!"):
        said = cap(request.format(**values)) if is_capital else request.format(**values)
        return said if is_open or said[-1] in "?.!" else said + draw.of("", "", ".")
    polite = draw.pick(POLITE)
    said = (polite + request[1:]).format(**values)
    said = cap(said) if is_capital else said
    if is_open:
        return said
    return said + (
        "?" if polite.startswith(("Can", "Could")) else draw.of("", "", "", ".", " please", " for me", " now")
    )


def without_arguments(draw: Draw) -> Offered:
    name, description, requests = draw.pick(WITHOUT_ARGUMENTS)
    noun = some_noun(draw)
    name = draw.identifier(name.replace("_N", f" {noun}").replace("_", " "))

    def ask(draw: Draw) -> tuple[str, Called]:
        return re.sub(r"\bN\b", noun, draw.pick(requests)), Called(name, {})

    return Offered(described(draw, name, re.sub(r"\bN\b", noun, description), {}), ask)


def by_name(draw: Draw) -> Offered:
    """Requests that name the tool, or its parameters with their values."""
    verb, noun = draw.pick(VERBS) if draw.often(0.6) else draw.word(), some_noun(draw)
    name = draw.identifier(verb, noun) if draw.often(0.9) else draw.identifier(draw.word(), draw.word())
    parameters: dict[str, Any] = {}
    for _ in range(draw.weighted(((1, 38), (2, 34), (3, 18), (4, 10)))):
        n_words = draw.weighted(((0, 55), (1, 30), (2, 15)))
        each = draw.identifier(*(draw.word() for _ in range(n_words))) if n_words else draw.pick(PARAMETERS)
        kind = draw.weighted((("string", 68), ("integer", 24), ("boolean", 8)))
        parameters[each] = {"type": kind} | ({"description": f"The {each}"} if draw.often(0.3) else {})

    def ask(draw: Draw) -> tuple[str, Called]:
        arguments = {each: _argument(draw, each, schema["type"]) for each, schema in parameters.items()}
        return said_by_name(draw, name, verb, noun, arguments), Called(name, arguments)

    description = draw.of(f"{cap(verb)} the {noun}.", f"{cap(verb)} a {noun}", f"{cap(verb)}s {noun}.", "")
    return Offered(described(draw, name, description, parameters), ask)


def _argument(draw: Draw, name: str, kind: str) -> str | int | bool:
    if kind == "boolean":
        return draw.often(0.5)
    if kind == "integer":
        return int(_amount(draw))
    if draw.often(0.12):  # text that looks like a number: the schema says what it is
        return draw.of(
            _amount(draw), f"{draw.whole(1, 100)}%", f"{draw.whole(0, 999)}.{draw.whole(1, 99)}", draw.date()
        )
    return {"path": draw.path, "url": draw.url, "email": draw.email, "date": draw.date}.get(name, draw.value)()


def said_by_name(draw: Draw, name: str, verb: str, noun: str, arguments: dict[str, Any]) -> str:
    shown = {each: value if isinstance(value, str) else json.dumps(value) for each, value in arguments.items()}

    def pairs(between: str, form: str) -> str:
        return between.join(form.format(*each) for each in shown.items())

    def any_pairs() -> str:
        between, form = draw.of(
            (" and ", "{} {}"), (", ", "{} {}"), (", ", "{} = {}"), (" and ", "{} set to {}"), (", ", "{}: {}"),
            (", ", "{}={}"), (" and ", "{} {}"), (", ", 'the {} "{}"'), (" and ", "the {} {}"),
        )  # fmt: skip
        return pairs(between, form)

    said = draw.wording((
        f"{draw.of('', 'Please ', 'Can you ')}{verb} the {noun} with {pairs(' and ', '{} {}')}",
        f"Use {name} with {pairs(draw.of(' and ', ', '), draw.of('{} {}', '{} = {}', '{} set to {}'))}",
        f"Call {name}: {pairs(', ', draw.of('{} = {}', '{}: {}'))}",
        f"{verb} {noun}: {pairs(', ', '{} {}')}",
        f"Run {name} for me, {pairs(', ', '{} {}')}",
        f"{name}({pairs(', ', '{}={}')})",
        f"{verb} the {noun}, {pairs(', ', '{}: {}')}",
        f"Invoke {name} with {pairs(' and ', '{} = {}')}",
        f"Run {name} with {any_pairs()}",
        f"Please use the tool {name} with {any_pairs()}",
        f"Run {name}: {any_pairs()}",
        f"{name} with {any_pairs()}",
        f"{name}: {any_pairs()}",
        f"Could you call {name} with {any_pairs()}",
        f"I want you to {verb} the {noun}: {any_pairs()}",
        f"Execute {name} with {any_pairs()}",
        f"Try {name}, {any_pairs()}",
        f"{draw.word()} {name} with {any_pairs()}",
        f"{draw.word()} {name}, {any_pairs()}",
        f"With {any_pairs()}, call {name}",
        f"Use {name}: {any_pairs()}",
        f"Use the {noun} tool with {any_pairs()}",
        f"Start {name}, {any_pairs()}",
        f"Do {name} for me with {any_pairs()}",
        f"I need {name} with {any_pairs()}",
        f"run {name} {any_pairs()}",
        f"Call the tool {name} and give it {any_pairs()}",
        f"{name} please: {any_pairs()}",
        f"now {name}, {any_pairs()}",
        f"Make a call of {name} with {any_pairs()}",
        f"Let us {verb} the {noun} with {any_pairs()}",
        f"{verb} my {noun}, {any_pairs()}",
    ))  # fmt: skip
    return said if said.startswith(name) else cap(said)


def described(draw: Draw, name: str, description: str, parameters: dict[str, Any]) -> Spec:
    """A description, in one of the orders and with one of the omissions that clients have."""
    schema: dict[str, Any] = {"type": "object", "properties": parameters}
    if draw.often(0.88):
        schema["required"] = list(parameters)
    function = {"name": name} | ({"description": description} if description else {}) | {"parameters": schema}
    if draw.often(0.15):
        function = dict(draw.shuffled(list(function.items())))
    spec: Spec = {"type": "function", "function": function}
    return json.loads(json.dumps(spec, sort_keys=True)) if draw.often(0.06) else spec


def _amount(draw: Draw) -> str:
    return str(draw.of(draw.whole(0, 20), draw.whole(0, 100), draw.whole(0, 9999)))


def _thing(draw: Draw) -> str:
    return draw.made(
        draw.word, lambda: draw.phrase(3), draw.name, lambda: f"{draw.pick(ADJECTIVES)} {draw.pick(NOUNS)}"
    )


VALUES: dict[str, Callable[[Draw], str]] = {
    "place": lambda draw: draw.place(),
    "room": lambda draw: draw.of(
        "kitchen", "bedroom", "garage", "hall", "attic", "office", "garden", draw.word(), draw.word()
    ),
    "amount": _amount,
    "minutes": lambda draw: str(draw.whole(1, 120)),
    "few": lambda draw: str(draw.whole(1, 60)),
    "unit": lambda draw: draw.of(
        "kilometres", "miles", "euros", "dollars", "grams", "litres", "celsius", "minutes", draw.word()
    ),
    "who": lambda draw: draw.made(draw.name, draw.person, draw.email, lambda: f"my {draw.pick(FAMILY)}"),
    "message": lambda draw: draw.made(
        draw.sentence, lambda: draw.phrase(4), lambda: f"I will be late at {draw.whole(1, 12)}"
    ),
    "thing": _thing,
    "label": lambda draw: draw.made(draw.code, draw.word, draw.name, lambda: _thing(draw)),
    "date": lambda draw: draw.date(),
    "sum": lambda draw: f"{draw.whole(1, 999)} {draw.of('+', '-', '*', '/')} {draw.whole(1, 99)}",
    "percent": lambda draw: str(draw.whole(1, 100)),
    "priority": lambda draw: draw.of("low", "medium", "high", "urgent"),
    "code": lambda draw: draw.code(),
    "email": lambda draw: draw.email(),
    "url": lambda draw: draw.url(),
    "path": lambda draw: draw.path(),
    "idnumber": lambda draw: str(draw.whole(10, 999_999)),
    "topic": lambda draw: " ".join(draw.sample(COMMON, draw.whole(1, 2))),
    "environment": lambda draw: draw.of("staging", "production", "test", "dev"),
    "service": lambda draw: draw.word(),
    "channel": lambda draw: f"#{draw.word()}",
    "sentence": lambda draw: draw.sentence(),
    "language": lambda draw: draw.of(
        "German", "French", "Finnish", "Italian", "Spanish", "Dutch", "Greek", "Polish", draw.name()
    ),
}
