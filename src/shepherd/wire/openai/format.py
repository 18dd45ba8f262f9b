"""The form of the visible answer in OpenAI-like bodies: `response_format` and its cousins, at most one of them.

The cousins are llama.cpp's (`grammar`, `json_schema`) and vLLM's (`structured_outputs`, `guided_*`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from shepherd.core import Grammar, InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import Fields, Json, decode_json, shown, wrong
from shepherd.wire.table import Field, FieldKind

ANY_OBJECT: Json = {"type": "object"}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Format:
    """At most one of a schema and a grammar."""

    path: str = ""
    """Of the field with it; empty = none."""
    schema: Json | None = None
    grammar: Grammar | None = None
    strict: bool = False
    """What of the schema cannot be kept to is refused, not left out."""


def decode_format(body: Fields, key: str = "response_format") -> Format:
    """The form that the answer must have, from the field `key` or a cousin of it. Raises: `InvalidRequest`."""
    found = [*_formats(body, key)]
    if len(found) > 1:
        first, second = found[0].path, found[1].path
        message = f"{first} and {second} both say what the answer must look like; send one of them"
        raise InvalidRequest(message, field=second)
    return found[0] if found else Format()


def _formats(body: Fields, key: str) -> Iterator[Format]:
    if (response_format := body.find_object(key)) is not None:
        yield from _read_response_format(response_format)
    if (outputs := body.find_object("structured_outputs")) is not None:
        yield from _read_each(outputs, _FORMS)
    yield from _read_each(body, _LLAMA_CPP)
    yield from _read_each(body, {f"guided_{name}": read for name, read in _FORMS.items()})


Read = Callable[[Fields, str], Format | None]


def _read_each(fields: Fields, forms: Mapping[str, Read]) -> Iterator[Format]:
    for key, read in forms.items():
        if fields.has(key) and (found := read(fields, key)) is not None:
            yield found


def _read_response_format(given: Fields) -> Iterator[Format]:
    kind = given.get_string("type")
    if kind == "json_object" and not given.has("schema"):
        yield Format(given.path, ANY_OBJECT)
    elif kind in ("json_schema", "json_object"):
        inner = given
        if kind == "json_schema" and given.has("json_schema"):
            inner = given.get_object("json_schema")
            name = inner.find_string("name")
            if name is not None and not NAME.fullmatch(name):
                raise wrong(inner.at("name"), "1 to 64 letters, digits, - and _", name)
        elif not given.has("schema"):  # llama.cpp's clients leave OpenAI's wrapper out
            raise given.error("json_schema", "is missing")
        schema = inner.get_object("schema")
        yield Format(schema.path, schema.body, strict=inner.find_boolean("strict") is True)
    elif kind != "text":
        raise given.error("type", f'is {shown(kind)}; it must be "text", "json_object" or "json_schema"')


def _read_json(fields: Fields, key: str) -> Format:
    value, path = fields.find_any(key), fields.at(key)
    if isinstance(value, str):
        try:
            value = decode_json(value.encode())
        except InvalidRequest as error:
            raise InvalidRequest(error.message.replace("the body", path, 1), field=path) from error
    if not isinstance(value, dict):
        raise wrong(path, "a JSON schema: an object", value)
    return Format(path, value)


def _read_choice(fields: Fields, key: str) -> Format:
    choices = fields.find_strings(key)
    if not choices:
        raise wrong(fields.at(key), "an array of at least one string", fields.find_any(key))
    rule = "start: " + " | ".join(map(json.dumps, choices))
    return Format(fields.at(key), grammar=Grammar("lark", rule))


def _read_grammar(fields: Fields, key: str) -> Format | None:
    text = fields.find_string(key)
    if not text:
        return None  # llama.cpp's clients send their default along
    if "::=" not in text:
        raise wrong(fields.at(key), 'a grammar in GBNF, with a rule such as root ::= "yes"', text)
    return Format(fields.at(key), grammar=Grammar("gbnf", text))


def _refuse(fields: Fields, key: str) -> None:
    if fields.find_any(key):
        raise fields.error(key, "is not available; leave the field out")


_FORMS: dict[str, Read] = {
    "json": _read_json,
    "json_object": lambda fields, key: Format(fields.at(key), ANY_OBJECT) if fields.find_boolean(key) else None,
    "regex": lambda fields, key: Format(fields.at(key), grammar=Grammar("regex", fields.get_string(key))),
    "choice": _read_choice,
    "grammar": _read_grammar,
    "structural_tag": _refuse,
}
"""In `structured_outputs`, and with `guided_` before them in the body."""

_LLAMA_CPP: dict[str, Read] = {"grammar": _read_grammar, "json_schema": _read_json, "grammar_lazy": _refuse}

_KINDS = "text, json_object, or json_schema."
RESPONSE_FORMAT = Field("response_format", FieldKind(decode_format, {"type": "object"}), _KINDS)
