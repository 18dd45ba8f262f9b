"""The JSON tools: read it, check it, write it neatly, take parts out of it.

    text ─▶ `check`: depth, NaN, with line and column ─▶ `read`: numbers keep their digits ─▶ `write`

Numbers keep their form: an integer of any length, 1.10, 1e400. Schemas and paths are applied in a child process
(`process/isolated.py`), since their patterns may never end; a `$ref` to another document is never fetched.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from shepherd.core.encoding import json_fault
from shepherd.process.isolated import WorkFailed, run_isolated
from shepherd.tools.base import Result, ToolError
from shepherd.tools.signature import tool

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MOST_DEPTH = 200
"""Of nesting: reader and writer are recursive."""
MOST_ERRORS = 50
MOST_INDENT = 16
LINE_CHARS = 500
MOST_DIGITS = 4000
"""Of an integer that Python reads as a number; a longer one stays text."""
JsonText = Annotated[str, "JSON text"]


@tool(category="json", effect="read", aliases=("parse_json",), argument_aliases={"text": "json", "data": "json"})
def json_parse(json: JsonText) -> Result:
    """Check JSON and show its value."""
    value, notes = read(json)
    return Result("\n".join([format_value(value), *notes]), summary=kind_of(value))


@tool(category="json", effect="read", aliases=("validate_json",), argument_aliases={"data": "json", "text": "json"})
def json_validate(json: JsonText, schema: Annotated[Any, "JSON Schema"] = None) -> Result:
    """Check JSON, also against a schema."""
    try:
        value, notes = read(json)
    except ToolError as error:
        return verdict([error.message])
    if notes or schema is None or schema == "":
        return verdict(notes)
    if isinstance(schema, str):
        try:
            read(schema)
        except ToolError as error:
            raise ToolError(f"schema: {error.message}") from error
    else:
        schema = write(schema)
    return verdict(apart("problems", write(value), schema))


@tool(category="json", effect="read", aliases=("serialize_json", "format_json"), argument_aliases={"text": "json"})
def json_format(json: JsonText | None = None, data: Annotated[Any, "or a value"] = None, indent: int = 2) -> Result:
    """Pretty-print JSON."""
    if not 0 <= indent <= MOST_INDENT:
        raise ToolError(f"indent must be 0 (all on one line) to {MOST_INDENT}, not {indent}")
    if json is None and data is None:
        raise ToolError("nothing to print: give json (a text) or data (a value)")
    value, notes = (data, []) if json is None else read(json)
    return Result("\n".join([write(value, indent), *notes]), summary=kind_of(value))


@tool(
    category="json", effect="read", aliases=("query_json",),
    argument_aliases={"data": "json", "text": "json", "query": "path", "expression": "path"},
)  # fmt: skip
def json_path(json: JsonText, path: Annotated[str, "such as $.items[?@.price < 10].name"]) -> Result:
    """Take values out of JSON by JSONPath."""
    value, notes = read(json)
    found = apart("matches", write(value), rooted(path.strip()))
    text = "\n".join([found["text"], *notes])
    return Result(text, summary=f"{found['n']} match{'' if found['n'] == 1 else 'es'}")


def apart(function: str, *task: str) -> Any:
    """What this function of this module returns, in a child process. Raises: `ToolError`."""
    try:
        return run_isolated(f"shepherd.tools.builtin.json_tools:{function}", task)
    except WorkFailed as error:
        raise ToolError(error.message) from error


def rooted(path: str) -> str:
    """The path from the root, which models leave out."""
    return path if path[:1] in {"$", "^"} else "$" + ("" if path[:1] in {"", ".", "["} else ".") + path


def verdict(errors: list[str]) -> Result:
    text = write({"valid": not errors, "errors": errors})
    return Result(text, summary=f"{len(errors)} error{'' if len(errors) == 1 else 's'}" if errors else "valid")


def kind_of(value: Any) -> str:
    match value:
        case dict():
            return f"an object with {len(value)} key{'' if len(value) == 1 else 's'}"
        case list():
            return f"a list of {len(value)}"
    return write(value)[:80]


# -- reading ----------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*\\?(?:"|\Z)|[\[\]{}]|-?(?:NaN|Infinity)', re.DOTALL)
"""A string without an end goes to the end of the text: to look for another beginning in it takes quadratic time."""


class Digits(float):
    """A number with its digits as written."""

    def __init__(self, text: str) -> None:
        self.text = text


def read(text: str) -> tuple[Any, list[str]]:
    """The value, and a sentence for each key that occurs twice. Raises: `ToolError` with line and column."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise ToolError("the JSON text is empty")
    check(text)
    twice: dict[str, None] = {}

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice.update(dict.fromkeys(key for key, n in Counter(key for key, _ in pairs).items() if n > 1))
        return value

    def as_integer(digits: str) -> int | Digits:
        return int(digits) if len(digits) <= MOST_DIGITS else Digits(digits)

    try:
        value = json.loads(text, object_pairs_hook=as_object, parse_float=Digits, parse_int=as_integer)
    except json.JSONDecodeError as error:
        wrong = json_fault(error)
        raise ToolError(f"{where(text, error.pos)}: {wrong[:1].lower()}{wrong[1:]}{hint(text, error.pos)}") from error
    return value, [f"(the key {write(key)[:80]} comes twice in one object; the last one counts)" for key in twice]


def check(text: str) -> None:
    """Raises: `ToolError` for NaN, and for too deep nesting."""
    depth = 0
    for token in TOKEN.finditer(text):
        match token[0][0]:
            case "[" | "{":
                depth += 1
                if depth > MOST_DEPTH:
                    raise ToolError(f"{where(text, token.start())}: nested more than {MOST_DEPTH} levels deep")
            case "]" | "}":
                depth -= 1
            case "-" | "N" | "I":
                raise ToolError(f"{where(text, token.start())}: {token[0]} is not JSON; use null or text")


def where(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def hint(text: str, position: int) -> str:
    """What stands there, and what may be wrong with it."""
    rest = text[position:].lstrip()
    before = text[:position].rstrip()[-1:]
    if not rest:
        return "; the text ends here"
    if rest[0] == "'":
        return "; strings have double quotes"
    if rest[:2] in {"//", "/*"} or rest[0] == "#":
        return "; JSON has no comments"
    if before == "," and rest[0] in "]}":
        return "; there is one comma too many"
    return f" at {rest[:20]!r}"


# -- writing ----------------------------------------------------------------------------------------------------------


def format_value(value: Any) -> str:
    """On one line if that is readable."""
    line = write(value)
    return line if len(line) <= LINE_CHARS else write(value, 1)


def write(value: Any, indent: int = 0) -> str:
    """JSON text; on one line where `indent` is 0. Raises: `ToolError`."""
    try:
        return "".join(pieces(value, indent, "\n" if indent else ""))
    except RecursionError as error:
        raise ToolError(f"nested more than {MOST_DEPTH} levels deep") from error


def pieces(value: Any, indent: int, line: str) -> Iterator[str]:
    """`line`: the beginning of a line of the surrounding level."""
    match value:
        case Digits():
            yield value.text
        case dict() | list() if value:
            inner = line + " " * indent
            between = "," + (inner or " ")
            opening, closing = "{}" if isinstance(value, dict) else "[]"
            yield opening + inner
            for n, item in enumerate(value):
                yield between if n else ""
                if isinstance(value, dict):
                    yield text_of(str(item)) + ": "
                    item = value[item]
                yield from pieces(item, indent, inner)
            yield line + closing
        case str():
            yield text_of(value)
        case int() if not isinstance(value, bool) and value.bit_length() > 3 * MOST_DIGITS:
            raise ToolError(f"a number has more than {MOST_DIGITS} digits; send it inside JSON text")
        case float() if not math.isfinite(value):
            raise ToolError(f"{value} is not JSON; use null or text")
        case _:
            yield json.dumps(value)


def text_of(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character needs an escape
        return json.dumps(value)
    return text


# -- in a child process -----------------------------------------------------------------------------------------------


def problems(task: list[str]) -> list[str]:
    """The errors of a value against a schema, both as text. Raises: `ToolError` for an invalid schema."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - only the child needs it
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415

    (value, _), (schema, _) = map(read, task)
    if not isinstance(schema, dict | bool):
        raise ToolError(f"schema: it must be an object, not {kind_of(schema)}")
    draft: Any = validators.validator_for(schema, default=Draft202012Validator)
    rules = {"registry": EMPTY_REGISTRY, "format_checker": draft.FORMAT_CHECKER}  # the default one fetches from the net
    wrong = sentences(draft(draft.META_SCHEMA, **rules).iter_errors(schema))
    if wrong:
        raise ToolError(f"schema: {'; '.join(wrong[:5])}")
    try:
        return sentences(draft(schema, **rules).iter_errors(value))
    except Unresolvable as error:
        raise ToolError(
            f"schema: a $ref leads to {str(error.ref)[:200]!r}, which is not in the schema; other documents are not "
            "fetched, so put the definition under $defs"
        ) from error


def sentences(errors: Iterator[ValidationError]) -> list[str]:
    """One sentence for each error, in the order of the value."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    found = []
    for error in sorted(errors, key=lambda error: [str(step) for step in error.absolute_path]):
        found.append(f"{error.json_path}: {short(error.message)}")
        nearest = best_match([error])
        if nearest is not None and nearest is not error:  # of several allowed forms
            found[-1] += f" (nearest: {nearest.json_path}: {short(nearest.message)})"
    n_more = len(found) - MOST_ERRORS
    return found if n_more <= 0 else [*found[:MOST_ERRORS], f"and {n_more} more errors"]


def short(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:120]} … {message[-160:]}"


def matches(task: list[str]) -> dict[str, Any]:
    """The matches of a path in a value: their number, and the list as text. Raises: `ToolError` for a wrong path."""
    from jsonpath import JSONPathEnvironment  # noqa: PLC0415
    from jsonpath.exceptions import JSONPathError  # noqa: PLC0415
    from jsonpath.function_extensions import Match, Search  # noqa: PLC0415

    text, path = task
    paths = JSONPathEnvironment()
    paths.max_recursion_depth = 2 * MOST_DEPTH
    # Wrong patterns raise; by default they match nothing.
    paths.function_extensions |= {"match": Match(debug=True), "search": Search(debug=True)}
    try:
        found = paths.findall(path, read(text)[0])
    except JSONPathError as error:
        at = f" at column {error.token.index + 1}" if error.token and error.token.index >= 0 else ""
        raise ToolError(f"path: {error.message}{at} of {short(path)!r}") from error
    return {"n": len(found), "text": format_value(found)}
