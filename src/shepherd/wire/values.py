"""The values in what a provider sends, each read by its type; calls and schemas in the forms that providers take."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from shepherd.core import BadCall, InvalidRequest, ToolCall
from shepherd.wire.arguments import plain
from shepherd.wire.base import Json, check_values, parse_object


class BrokenAnswer(Exception):
    """The answer breaks the protocol, or ends before its end. The message says where; it holds no text of a user."""


def record_of(data: bytes) -> Json:
    """A record; its texts may begin or end with half of a character.

    Raises: `BrokenAnswer`, for what is no JSON object, or has more values than memory should hold.
    """
    try:
        check_values(data, "a record")
    except InvalidRequest as error:
        raise BrokenAnswer(error.message.partition(";")[0]) from error
    try:
        record = json.loads(str(data, "utf-8", "surrogatepass"))  # of bytes, it would find out the encoding first
    except (ValueError, RecursionError) as error:
        raise BrokenAnswer("a record is not JSON") from error
    if not isinstance(record, dict):
        raise BrokenAnswer("a record is no JSON object")
    return record


def object_in(record: Json, key: str) -> Json:
    """Raises: `BrokenAnswer`, where there is none."""
    value = record.get(key)
    if not isinstance(value, dict):
        raise BrokenAnswer(f"a record has no {key}")
    return dict(value)


def objects_in(value: Any) -> list[Json]:
    """The objects of an array; none where there is no array."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def object_at(record: Json, key: str) -> Json:
    """The object of a field; an empty one where there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def text_in(record: Json, key: str) -> str:
    """The text of a field, empty where there is none."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def texts_in(value: Any) -> str:
    """The text of a content: a text, an object that has one, or a list of both."""
    match value:
        case str():
            return value
        case dict():
            return text_in(value, "text") or text_in(value, "content")
        case list():
            return "".join(map(texts_in, value)) if not any(isinstance(each, list) for each in value) else ""
        case _:
            return ""


MOST_TOKENS = 2**53
"""Of one count: above it, a number is none."""


def whole_number(value: Any) -> int | None:
    """A number that is written as 7, 7.0 or "7", as gateways do; None for what is none."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and abs(number) <= MOST_TOKENS else None


def count_in(record: Any, key: str) -> int:
    """A number of tokens, 0 where there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return max(0, whole_number(value) or 0)


def index_in(record: Json, key: str) -> int | None:
    return whole_number(record.get(key))


def count_of(body: Json, key: str, what: str = "count") -> int:
    """The answer to a question for the tokens of a prompt. Raises: `BrokenAnswer`."""
    n = whole_number(body.get(key))
    if n is None or n < 0:
        raise BrokenAnswer(f"the {what} has no {key}")
    return n


def parsed_call(id: str, name: str, arguments: str) -> ToolCall | BadCall:
    """A call as the provider wrote its arguments, in any of the forms of `arguments.plain`."""
    arguments = plain(arguments)
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        reason = "it ends before its end" if arguments.count("{") > arguments.count("}") else str(error)
        return BadCall(arguments, f"the arguments are not valid JSON: {reason[:120]}.", id, name)
    if not isinstance(value, dict):
        return BadCall(arguments, "the arguments must be a JSON object.", id, name)
    return ToolCall(id, name, arguments)


def ended_call(id: str, name: str, arguments: str) -> ToolCall | BadCall:
    """As `parsed_call`; one without a name is bad."""
    if not name:
        return BadCall(arguments, "the call names no tool.", id)
    return parsed_call(id, name, arguments)


def same_arguments(one: str, other: str) -> bool:
    """Whether two texts are the same arguments, however they are spaced."""
    try:
        return one == other or json.loads(plain(one)) == json.loads(plain(other))
    except (ValueError, RecursionError):
        return False


def object_of(arguments: str) -> Json:
    """The arguments of a call as an object; what is none is kept under one name, so that nothing is lost."""
    value = parse_object(arguments or "{}")
    return value if value is not None else {"INVALID_JSON": arguments}


def closed(schema: Mapping[str, Any]) -> Json:
    """A schema whose objects allow no other properties than those they name, as strict modes demand."""

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(each) for each in value]
        if not isinstance(value, dict):
            return value
        made = {key: walk(each) if key not in _VALUES else each for key, each in value.items()}
        if isinstance(value.get("properties"), dict):
            made.setdefault("additionalProperties", False)
        return made

    made: Json = walk(dict(schema))
    return made


_VALUES = frozenset({"const", "enum", "default", "examples"})
