"""The arguments of a call: read, renamed, converted to their types, then checked.

    text ─▶ JSON object ─▶ names (aliases, cases) ─▶ types ("5" ─▶ 5) ─▶ JSON Schema ─▶ dict

A mistake becomes one sentence that names the argument, its type and its value, so that the model can correct it.
Patterns are not checked: a foreign one may never end, and its server checks it, too.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from shepherd.tools.base import ToolError
from shepherd.tools.tool import Tool

if TYPE_CHECKING:
    from jsonschema import ValidationError

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]

WRAPPERS = frozenset({"arguments", "parameters", "args", "input", "kwargs"})
"""Names under which models put all arguments once more."""
SHOWN_CHARS = 60
"""Of a wrong value, in a sentence."""
SHOWN_PROBLEMS = 3
MOST_REFERENCES = 32
"""`$ref`s that are followed from one to the next."""
MOST_STEPS = 2_000
"""References that are followed to check one value; beyond, only its server checks it."""
MOST_DEPTH = 64
"""To which values are converted; deeper ones are only checked."""
EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})
"""Values without content: under an unknown name, they are no mistake."""


def read_arguments(text: str, tool: Tool) -> dict[str, Any]:
    """The arguments of a call, as the model wrote them, as the tool takes them. Raises: `ToolError`."""
    try:
        given = parse(text.strip() or "{}")
        if isinstance(given, str):  # encoded twice
            given = parse(given.strip() or "{}")
    except ValueError as error:
        raise ToolError(f"the arguments are not JSON ({error}); send one object") from error
    except RecursionError as error:
        raise ToolError("the arguments are nested too deeply; send a flat object") from error
    if not isinstance(given, dict):
        raise ToolError("the arguments must be one JSON object, with the names of the parameters as keys")
    return coerce_arguments(given, tool)


def coerce_arguments(given: Json, tool: Tool) -> dict[str, Any]:
    """The arguments as the tool takes them; optional ones that are null are left out. Raises: `ToolError`."""
    schema = tool.parameters
    try:
        arguments = SchemaCoercer(schema).coerce(rename(unwrap(given, _fields(schema)), tool), schema)
        problems = list(dict.fromkeys((*SchemaCoercer(schema).check(arguments, schema), *lone_surrogates(arguments))))
    except RecursionError as error:
        raise ToolError("the arguments are nested too deeply; send a flatter object") from error
    if problems:
        raise ToolError("; ".join(problems[:SHOWN_PROBLEMS]))
    assert isinstance(arguments, dict)
    return arguments


def parse(text: str) -> Any:
    """JSON, as the standard has it: no NaN, and no number that is too large for one. Raises: `ValueError`."""
    return json.loads(text, parse_constant=_number, parse_float=_number)


def _number(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:40]} is not a number")
    return number


# -- names ------------------------------------------------------------------------------------------------------------


def unwrap(given: Json, fields: Json) -> Json:
    """The arguments out of `{"arguments": {...}}`, unless the tool has such a parameter."""
    if len(given) == 1:
        ((name, inner),) = given.items()
        if fields and name in WRAPPERS and name not in fields and (inside := _to_object(inner)) is not None:
            return inside
    return given


def rename(given: Json, tool: Tool) -> dict[str, Any]:
    """The arguments under the names of the parameters, for aliases and other spellings; the parameter's own name wins.
    Raises: `ToolError` for an unknown name, unless its value is in `EMPTY_VALUES` or the tool takes no arguments.
    """
    fields = _fields(tool.parameters)
    meant = {**{_plain(name): name for name in fields}, **{_plain(n): p for n, p in tool.argument_aliases.items()}}
    # A schema that lists properties lists all of them, unless it says otherwise.
    more = tool.parameters.get("additionalProperties", "properties" not in tool.parameters)
    is_open = more is not False or "patternProperties" in tool.parameters
    named: dict[str, Any] = {}
    for name, value in given.items():
        own = name if name in fields else meant.get(_plain(name))
        if own is None and is_open:
            named[name] = value
        elif own is None and fields and value not in EMPTY_VALUES:
            takes = ", ".join(fields)
            raise ToolError(f"there is no argument {_format_value(name)}; {tool.name} takes: {takes}")
        elif own and (named.get(own) is None or name == own):
            named[own] = value
    return named


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).casefold()


# -- the schema -------------------------------------------------------------------------------------------------------


class SchemaCoercer:
    """A schema, and how many references may still be followed: a foreign one may refer to itself without end."""

    def __init__(self, schema: Json) -> None:
        self.root = schema
        self.n_left = MOST_STEPS

    def coerce(self, value: Any, schema: Any, depth: int = 0) -> Any:
        """The value with its parts in the types of the schema, where that loses nothing. What cannot be converted
        stays, for `check` to refuse; unwanted null is left out of objects."""
        schema = self.resolved(schema)
        if depth > MOST_DEPTH:
            return value
        if branches := _branches(schema):
            return self.coerce_to_one(value, [self.resolved(each) for each in branches], depth)
        value = _converted(value, schema)
        match value:
            case dict():
                fields, rest = _fields(schema), schema.get("additionalProperties")
                return {
                    key: self.coerce(each, fields.get(key, rest), depth + 1)
                    for key, each in value.items()
                    if each is not None or key not in fields or self.takes_null(fields[key])
                }
            case list():
                return [self.coerce(each, schema.get("items"), depth + 1) for each in value]
        return value

    def coerce_to_one(self, value: Any, branches: Sequence[Json], depth: int) -> Any:
        """Converted for the branch that takes it as it is, else for one of its kind, else for the first possible one.
        Only one branch is entered: to try all on all levels takes exponential time."""
        for branch in branches:
            if not self.check(value, branch):
                return _converted(value, branch)
        for branch in branches:
            of_a_kind = any(_is_a(value, kind) for kind in _kinds(branch))
            if of_a_kind and not (isinstance(value, dict) and set(_names(branch.get("required"))) - set(value)):
                return self.coerce(value, branch, depth + 1)
        for branch in branches:
            turned = _converted(value, branch)
            if turned is not value and not self.check(turned, branch):
                return turned
        return value

    def takes_null(self, schema: Any) -> bool:
        waiting, seen = [self.resolved(schema)], set()
        while waiting:
            schema = waiting.pop()
            if id(schema) in seen:  # one that contains itself
                continue
            seen.add(id(schema))
            if branches := _branches(schema):
                waiting += map(self.resolved, branches)
                continue
            kinds, choices = _kinds(schema), schema.get("enum")
            if "null" in kinds or (isinstance(choices, list) and None in choices) or not (kinds or choices):
                return True
        return False

    def resolved(self, schema: Any) -> Json:
        """The schema to which a reference leads."""
        for _ in range(MOST_REFERENCES):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str) or not reference.startswith("#"):
                break
            schema = self.root
            for step in filter(None, reference[1:].split("/")):
                schema = schema.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
        return schema if isinstance(schema, Mapping) else {}

    def check(self, value: Any, schema: Json) -> list[str]:
        """One sentence for each thing that is wrong with the value."""
        if schema is not self.root:  # a part, whose references are to the whole
            schema = {**{key: self.root[key] for key in ("$defs", "definitions") if key in self.root}, **schema}
        try:
            errors = sorted(self.validator(schema).iter_errors(value), key=_where)
            return [sentence for wrong in errors for sentence in sentences_about(wrong)]
        except RecursionError:
            raise
        except Exception as error:  # a foreign schema may be anything; its server checks, too
            logger.debug("a tool's schema cannot be used: %s: %s", type(error).__name__, error)
            return []

    def validator(self, schema: Json) -> Any:
        """One that reads nothing outside the schema, runs no pattern, and ends."""
        from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - takes 0.1 s, only for a call
        from referencing import Registry  # noqa: PLC0415

        draft: Any = validators.validator_for(self.root, default=Draft202012Validator)
        nowhere: Registry[Any] = Registry()
        FOLLOWING.set(self)
        return careful(draft)(schema, registry=nowhere)


REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

FOLLOWING: ContextVar[SchemaCoercer] = ContextVar("FOLLOWING")
"""The schema that is being checked, which counts its references."""


@cache
def careful(draft: Any) -> Any:
    """The draft's validator without its patterns, which might not end. Made once: making one takes a millisecond."""
    from jsonschema import validators  # noqa: PLC0415

    def counted(follow: Callable[..., Any]) -> Callable[..., Any]:
        def rule(*about: Any) -> Any:
            coercer = FOLLOWING.get()
            coercer.n_left -= 1
            if coercer.n_left < 0:
                raise OverflowError("it refers to itself too often")
            return follow(*about)

        return rule

    extend: Any = validators.extend  # it has no types
    rules: dict[str, Any] = dict.fromkeys(("pattern", "patternProperties", "format"), lambda *_about: None)
    return extend(draft, rules | {key: counted(draft.VALIDATORS[key]) for key in REFERENCES if key in draft.VALIDATORS})


def sentences_about(wrong: ValidationError) -> Iterator[str]:
    """What is wrong, and what to do."""
    where, rule = _whole(_where(wrong)), wrong.validator
    limit: Any = wrong.validator_value  # whose type follows from the rule
    value: Any = wrong.instance
    the = f"the argument {where!r}" if where else "the arguments object"
    match rule:
        case "required":
            prefix = f"{where}." if where else ""
            for name in limit:  # each of them has an error of its own, and all look the same
                if name not in value:
                    about = _fields(wrong.schema).get(name)
                    text = about.get("description") if isinstance(about, Mapping) else None
                    yield f"the argument {prefix + name!r} is missing" + (f": {text}" if text else "")
            return
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            wanted = f"be {' or '.join(KINDS.get(kind, kind) for kind in kinds)}"
        case "enum" | "const":
            choices = limit if rule == "enum" else [limit]
            wanted = f"be one of {', '.join(_format_value(each) for each in choices[:20])}"
        case "anyOf" | "oneOf":
            found = dict.fromkeys(kind for branch in limit if isinstance(branch, Mapping) for kind in _kinds(branch))
            wanted = f"be {' or '.join(KINDS[kind] for kind in found) or 'one of the forms that its description names'}"
        case str() if rule in LIMITS:
            wanted = LIMITS[rule].format(limit)
        case _:
            yield f"{the} does not fit: {_whole(wrong.message[:200])}"
            return
    yield f"{the} must {wanted}, not {_format_value(value)}"


KINDS: Mapping[str, str] = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip
LIMITS: Mapping[str, str] = {
    "minimum": "be at least {}", "maximum": "be at most {}",
    "exclusiveMinimum": "be more than {}", "exclusiveMaximum": "be less than {}",
    "minLength": "have at least {} characters", "maxLength": "have at most {} characters",
    "minItems": "have at least {} items", "maxItems": "have at most {} items",
    "multipleOf": "be a multiple of {}",
}  # fmt: skip


def lone_surrogates(arguments: Any) -> Iterator[str]:
    """A sentence for each argument with half a character in it, which no file and no address can contain."""
    for name, value in arguments.items() if isinstance(arguments, dict) else ():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield f"the argument {_whole(name)!r} contains half of a character (\\ud83d alone); send whole characters"


def _where(wrong: ValidationError) -> str:
    """Such as `edits[2].old`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in wrong.absolute_path)
    return "".join(steps).removeprefix(".")


def _format_value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else _whole(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def _whole(text: str) -> str:
    """The text without halves of characters, which no prompt can hold."""
    return text.encode(errors="replace").decode()


# -- types ------------------------------------------------------------------------------------------------------------


def _converted(value: Any, schema: Json) -> Any:
    """The value as one of the types that the schema names, and as one of its choices."""
    kinds = _kinds(schema)
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        value = next((turned for kind in kinds if (turned := CONVERT[kind](value)) is not None), value)
    choices = schema.get("enum")
    if isinstance(choices, list) and isinstance(value, str) and value not in choices:
        word = value.strip().casefold()
        return next((each for each in choices if isinstance(each, str) and each.casefold() == word), value)
    return value


TYPES: Mapping[str, Any] = {
    "string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip


def _is_a(value: Any, kind: str) -> bool:
    """As JSON Schema has it, but for 5.0, which is to become a whole number of Python."""
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False, "on": True, "off": False}


def _to_integer(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,400}(\.0{1,20})?\s*", value, re.ASCII):
        return int(value.strip().partition(".")[0])
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _to_number(value: Any) -> float | int | None:
    if not isinstance(value, str) or not re.fullmatch(r"\s*[+-]?[\d.]{1,400}(e[+-]?\d{1,4})?\s*", value, re.A | re.I):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    whole = _to_integer(value)
    return whole if whole is not None else number if math.isfinite(number) else None


def _to_object(value: Any) -> dict[str, Any] | None:
    inside = value if isinstance(value, dict) else _parsed(value)
    return inside if isinstance(inside, dict) else None


def _parsed(value: Any) -> Any:
    """JSON that was sent as text."""
    if not isinstance(value, str) or value.lstrip()[:1] not in {"[", "{"}:
        return None
    try:
        return parse(value)
    except (ValueError, RecursionError):
        return None


CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": lambda value: BOOLEANS.get(str(value).strip().casefold()) if isinstance(value, str | int) else None,
    "array": lambda value: inside if isinstance(inside := _parsed(value), list) else None if value is None else [value],
    "object": _to_object,
    "string": lambda value: None if value is None else json.dumps(value, ensure_ascii=False),
    "null": lambda value: None,
}
"""A value as another type; None = it cannot be converted."""


# A foreign schema may contain anything anywhere: what does not have its form is ignored.


def _fields(schema: Any) -> Json:
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    return fields if isinstance(fields, Mapping) else {}


def _names(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _branches(schema: Json) -> list[Any]:
    """Alternatives."""
    return next((found for key in ("anyOf", "oneOf") if isinstance(found := schema.get(key), list) and found), [])


def _kinds(schema: Json) -> list[str]:
    found = schema.get("type")
    kinds = found if isinstance(found, list) else [found]
    return [kind for kind in kinds if isinstance(kind, str) and kind in TYPES]
