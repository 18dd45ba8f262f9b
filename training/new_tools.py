"""Tools that training makes up, so that a model reads descriptions instead of remembering names.

    offer(draw) ─▶ Offered: a description, a request for it, and the call

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
POLITE = ("", "", "", "", "Please ", "Can you ", "Could you ", "I want you to ", "Now ", "Could you please ", "Hey, ")
FLAGS = ("force", "verbose", "urgent", "silent", "recursive", "private")
PARAMETERS = (
    "name", "id", "date", "city", "query", "amount", "text", "title", "user", "email", "color", "size", "path", "url",
    "message",
    "number", "location", "start", "end", "count",
)  # fmt: skip


class Offered(NamedTuple):
    spec: Spec
    said: str
    call: Called


def offer(draw: Draw, *, family: str = "") -> Offered:
    """`family`: of the tool; one that is asked for by its name has none."""
    if family or draw.often(0.66):
        return natural(draw, family)
    return by_name(draw)


def some_noun(draw: Draw) -> str:
    if draw.held_out:
        return draw.pick(HELD_OUT_NOUNS)
    while True:
        noun = draw.made(
            draw.invented, draw.invented, lambda: draw.pick(NOUNS),
            lambda: f"{draw.pick(ADJECTIVES)} {draw.pick(NOUNS)}",
            lambda: draw.pick(COMMON),
        )  # fmt: skip
        if noun not in HELD_OUT_NOUNS:
            return noun


def natural(draw: Draw, family: str = "") -> Offered:
    """A tool of a family, and a request that does not name it."""
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
    verb, preposition = draw.pick(VERBS) if draw.often(0.4) else draw.invented(), draw.pick(PREPOSITIONS)

    def filled(text: str) -> str:
        text = re.sub(r"\bN\b", noun, text.replace("PREP", preposition))
        return re.sub(r"\bV(s|ed)?\b", lambda found: verb + (found[1] or ""), text)

    name = known or draw.identifier(filled(draw.pick(row.names)), *([draw.word()] if draw.often(0.15) else []))
    if not known and draw.often(0.15):
        name = draw.identifier(draw.word(), draw.word())
    parameters, arguments, values = filled_slots(draw, row, is_plain=bool(known))
    said = worded(draw, filled(draw.wording(row.requests)), values)
    if draw.often(0.1) and not known:
        flag, is_on = draw.pick(FLAGS), draw.often(0.5)
        if flag not in parameters:
            parameters[flag], arguments[flag] = {"type": "boolean"}, is_on
            said = f"{said.rstrip('.?')}{draw.of(', ', ' with ', ' and ')}{flag} {json.dumps(is_on)}"
    description = cap(filled(draw.pick(row.descriptions)).replace(" R", f" {row.slots[0].names[0]}"))
    return Offered(described(draw, name, description, parameters), said, Called(name, arguments))


def filled_slots(draw: Draw, row: Family, *, is_plain: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Parameters with their schemas, arguments, and the values by the letters of the wordings."""
    parameters: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    values: dict[str, str] = {}
    for letter, slot in zip("abc", row.slots, strict=False):
        usual = draw.pick(slot.names)
        name = draw.pick(slot.names[:3]) if is_plain else usual
        while (draw.often(0.25) and not is_plain) or name in parameters:
            name = draw.identifier(usual if draw.often(0.5) else draw.word(), draw.word())
        kind, value = draw.pick(slot.types), VALUES[slot.value](draw)
        schema = {"type": kind}
        if draw.often(0.35) or name not in slot.names:
            schema["description"] = f"The {usual}"
        parameters[name], values[letter] = schema, value
        arguments[name] = int(value) if kind == "integer" else value
    return parameters, arguments, values


def worded(draw: Draw, request: str, values: dict[str, str]) -> str:
    if not request.startswith("!"):
        said = cap(request.format(**values))
        return said if said[-1] in "?.!" else said + draw.of("", "", ".")
    polite = draw.pick(POLITE)
    said = cap((polite + request[1:]).format(**values))
    if polite.startswith(("Can", "Could")):
        return said + "?"
    return said + draw.of("", "", "", ".", " please", " for me", " now")


def without_arguments(draw: Draw) -> Offered:
    name, description, requests = draw.pick(WITHOUT_ARGUMENTS)
    noun = some_noun(draw)
    name = draw.identifier(name.replace("_N", f" {noun}").replace("_", " "))
    said = draw.pick(requests).replace("N", noun) if "N" in description + requests[0] else draw.pick(requests)
    return Offered(described(draw, name, re.sub(r"\bN\b", noun, description), {}), said, Called(name, {}))


def by_name(draw: Draw) -> Offered:
    """A request that names the tool, or its parameters with their values."""
    verb, noun = draw.pick(VERBS) if draw.often(0.4) else draw.word(), some_noun(draw)
    name = draw.identifier(verb, noun) if draw.often(0.8) else draw.identifier(draw.word(), draw.word())
    parameters: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for _ in range(draw.weighted(((1, 38), (2, 34), (3, 18), (4, 10)))):
        each = draw.made(
            lambda: draw.identifier(draw.word()),
            lambda: draw.identifier(draw.word(), draw.word()),
            lambda: draw.pick(PARAMETERS),
        )
        kind = draw.weighted((("string", 68), ("integer", 24), ("boolean", 8)))
        parameters[each] = {"type": kind} | ({"description": f"The {each}"} if draw.often(0.3) else {})
        match kind:
            case "boolean":
                arguments[each] = draw.often(0.5)
            case "integer":
                arguments[each] = int(_amount(draw))
            case _:
                arguments[each] = {"path": draw.path, "url": draw.url, "email": draw.email, "date": draw.date}.get(
                    each, draw.value
                )()
    shown = {each: value if isinstance(value, str) else json.dumps(value) for each, value in arguments.items()}

    def pairs(between: str, form: str) -> str:
        return between.join(form.format(*each) for each in shown.items())

    said = draw.wording((
        f"{draw.of('', 'Please ', 'Can you ')}{verb} the {noun} with {pairs(' and ', '{} {}')}",
        f"Use {name} with {pairs(draw.of(' and ', ', '), draw.of('{} {}', '{} = {}', '{} set to {}'))}",
        f"Call {name}: {pairs(', ', draw.of('{} = {}', '{}: {}'))}",
        f"{verb} {noun}: {pairs(', ', '{} {}')}",
        f"Run {name} for me, {pairs(', ', '{} {}')}",
        f"{name}({pairs(', ', '{}={}')})",
        f"{verb} the {noun}, {pairs(', ', '{}: {}')}",
        f"Invoke {name} with {pairs(' and ', '{} = {}')}",
    ))  # fmt: skip
    said = said if said.startswith(f"{name}(") else cap(said)
    description = draw.of(f"{cap(verb)} the {noun}.", f"{cap(verb)} a {noun}", f"{cap(verb)}s {noun}.", "")
    return Offered(described(draw, name, description, parameters), said, Called(name, arguments))


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
    "language": lambda draw: draw.of(
        "German", "French", "Finnish", "Italian", "Spanish", "Dutch", "Greek", "Polish", draw.name()
    ),
}
