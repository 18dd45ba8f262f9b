"""The inputs of bodies without messages: a text, its tokens, or an array of texts and arrays of tokens.

    "a"   [1, 2]   [1, "a", 2]   {"prompt_string": "a"}   {"content": [{"type": "text", "text": "a"}]}     one input
    ["a", [1, 2], [1, "a"], {"prompt_string": "a"}]                                                        four inputs

An array that holds a number is one input. The objects are llama-server's.
"""

from __future__ import annotations

from typing import Any

from shepherd.core import TextOrTokens
from shepherd.core.limit import INT32_MAX
from shepherd.wire.base import Fields, field_error, shown, wrong
from shepherd.wire.table import OBJECTS, STRING, Field, body_schema

TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_MIXED = {"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 0}, STRING.schema]}}
_OBJECT = body_schema(Field("prompt_string", STRING), Field("content", OBJECTS, "Parts of type text."))
_ARRAY = {"type": "array", "minItems": 1, "items": {"anyOf": [STRING.schema, _MIXED, _OBJECT]}}
TEXTS = {"anyOf": [STRING.schema, _MIXED, _OBJECT, _ARRAY]}
_EXPECTED = "a string, an array of tokens, or an array of these"


def decode_texts(body: Fields, key: str, hint: str) -> tuple[TextOrTokens, ...]:
    """The inputs in a field, at least one. Raises: `InvalidRequest`, with the hint if there are none."""
    match value := body.find_any(key):
        case None:
            raise field_error(key, f"is missing; {hint}")
        case []:
            raise field_error(key, f"is an empty array; {hint}")
        case [*_] if not any(isinstance(one, int | float) for one in value):
            return tuple(_decode_input(one, f"{key}[{at}]") for at, one in enumerate(value))
        case _:
            return (_decode_input(value, key),)


def check_inputs(n: int, path: str, most: int) -> None:
    """Raises: `InvalidRequest` for more than `most` of them in one body."""
    if n > most:
        raise field_error(path, f"has {n} elements; at most {most} are taken at a time: send several requests")


def _decode_input(value: Any, path: str) -> TextOrTokens:
    match value:
        case str():
            return value
        case [*_] if any(isinstance(one, str) for one in value):
            check_tokens([0 if isinstance(one, str) else one for one in value], path)
            return tuple(value)
        case [*_]:
            return check_tokens(value, path)
        case {}:
            return _decode_object(Fields(value, path))
        case _:
            raise wrong(path, _EXPECTED, value)


def refuse_media(given: Fields) -> None:
    """Raises: `InvalidRequest` for images and recordings; older clients of llama-server send an empty `image_data`."""
    why = "is not supported: a bare prompt takes no images or audio; send them in the messages of a chat"
    for key in ("multimodal_data", "image_data"):
        if given.find_any(key):
            raise given.error(key, why)


def _decode_object(given: Fields) -> str:
    refuse_media(given)
    if not given.has("content"):
        return given.get_text("prompt_string")
    texts = []
    for part in given.objects("content"):
        if (kind := part.get_string("type")) != "text":
            raise part.error("type", f"is {shown(kind)}; models here read text only: send text")
        texts.append(part.get_text("text"))
    return "".join(texts)


def check_tokens(values: list[Any], path: str) -> tuple[int, ...]:
    """`values` as token ids; the model checks the upper limit. Raises: `InvalidRequest`."""
    for at, value in enumerate(values):
        if not (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT32_MAX):
            raise wrong(f"{path}[{at}]", "a token: an integer of at least 0", value)
    return tuple(values)
