"""The inputs of bodies without messages: a text, its tokens, or an array of texts and arrays of tokens."""

from __future__ import annotations

from typing import Any

from shepherd.core import InvalidRequest
from shepherd.core.limit import INT32_MAX
from shepherd.wire.base import Fields, wrong

TextOrTokens = str | tuple[int, ...]

TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_ARRAY = {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, TOKENS]}}
TEXTS = {"anyOf": [{"type": "string"}, TOKENS, _ARRAY]}


def decode_texts(body: Fields, key: str, hint: str) -> tuple[TextOrTokens, ...]:
    """The inputs in a field, at least one. Raises: `InvalidRequest`, with the hint if there are none."""
    match value := body.find_any(key):
        case None:
            raise InvalidRequest(f"{key} is missing; {hint}", field=key)
        case str():
            return (value,)
        case []:
            raise InvalidRequest(f"{key} is an empty array; {hint}", field=key)
        case [int() | float(), *_]:
            return (check_tokens(value, key),)
        case [*_]:
            return tuple(_decode_text(one, f"{key}[{at}]") for at, one in enumerate(value))
        case _:
            raise wrong(key, "a string, an array of tokens, or an array of these", value)


def _decode_text(value: Any, path: str) -> TextOrTokens:
    if isinstance(value, list):
        return check_tokens(value, path)
    if not isinstance(value, str):
        raise wrong(path, "a string or an array of tokens", value)
    return value


def check_tokens(values: list[Any], path: str) -> tuple[int, ...]:
    """`values` as token ids; the model checks the upper limit. Raises: `InvalidRequest`."""
    for at, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
            raise wrong(f"{path}[{at}]", "a token: an integer of at least 0", value)
    return tuple(values)
