"""Drafts of the answer: what a body says of them, in the words of this server, of llama-server and of OpenAI.

"speculative": false                                             ─▶ speculate = 0
"speculative": 8      "speculative.n_max": 8                     ─▶ speculate = 8
"prediction": {"type": "content", "content": "def area(r): …"}   ─▶ predicted = ("def area(r): …",)
"""

from __future__ import annotations

from shepherd.core import InvalidRequest, Usage, limit
from shepherd.wire.base import Fields, Json, wrong
from shepherd.wire.table import OBJECTS, STRING, Field, FieldKind, body_schema, inside, integer, number, one_of

_N_MAX = integer(0, limit.MAX_DRAFT)
_PARTS = (
    Field("n_max", _N_MAX, "Tokens of a draft at most; 0 = no drafts (llama-server)."),
    Field("n_min", integer(0, limit.INT32_MAX), "Without effect: what drafts cost and save decides."),
    Field("p_min", number(0, 1), "Without effect: what drafts cost and save decides."),
)
_OBJECT = inside(*_PARTS)


def _decode_switch(body: Fields, key: str) -> int | None:
    """Tokens of a draft at most."""
    value = body.find_any(key)
    match value:
        case bool():
            return limit.MAX_DRAFT if value else 0
        case dict():
            most: int | None = _OBJECT.read(body, key)["n_max"]
            return most
    try:
        return _N_MAX.read(body, key)  # type: ignore[no-any-return] # the kind of a number
    except InvalidRequest as error:
        expected = f"true, false, or a whole number from 0 to {limit.MAX_DRAFT}: the tokens of a draft at most"
        raise wrong(body.at(key), expected, value) from error


def _decode_prediction(body: Fields, key: str) -> tuple[str, ...]:
    found = body.find_object(key)
    if found is None:
        return ()
    _KIND.read(found, "type")
    match found.find_any("content"):
        case None:
            raise found.error("content", "is missing: the expected text")
        case str() as text:
            texts: tuple[str, ...] = (text,)
        case list():
            texts = tuple(_text_of(part) for part in found.objects("content", limit.MAX_PREDICTED))
        case other:
            raise wrong(found.at("content"), "a string, or an array of parts of type text", other)
    limit.check_predicted(texts, found.at("content"))
    return texts


def _text_of(part: Fields) -> str:
    _TEXT_KIND.read(part, "type")
    return part.get_text("text")


_KIND, _TEXT_KIND = one_of("content"), one_of("text")
_CONTENT: Json = {"anyOf": [STRING.schema, OBJECTS.schema]}
_PREDICTION = body_schema(
    Field("type", _KIND), Field("content", FieldKind(Fields.find_any, _CONTENT)), required=["content"]
)
_SWITCH: Json = {"anyOf": [{"type": "boolean"}, _N_MAX.schema, _OBJECT.schema]}
SPECULATIVE = Field(
    "speculative",
    FieldKind(_decode_switch, _SWITCH, is_plain=True),
    "Draft what the conversation may repeat, or not; a number = the tokens of a draft at most.",
)
SPECULATION = (SPECULATIVE, *(Field(f"speculative.{each.name}", each.kind, each.about) for each in _PARTS))
PREDICTION = Field(
    "prediction",
    FieldKind(_decode_prediction, _PREDICTION, is_plain=True),
    "A text that the answer is expected to repeat in large parts, such as a file before an edit.",
    default=(),
)


def speculation_of(given: Json) -> Json:
    """Arguments of `Request`, from the values of a table that holds the rows above."""
    most, n_max = given["speculative"], given["speculative.n_max"]
    # A switch that is on says nothing of the length.
    is_open = most is None or most == limit.MAX_DRAFT
    return {"speculate": n_max if is_open and n_max is not None else most, "predicted": given["prediction"]}


def encode_drafts(usage: Usage) -> Json:
    """OpenAI's details of the tokens of an answer, where there were drafts."""
    if not usage.drafted:
        return {}
    return {
        "accepted_prediction_tokens": usage.accepted,
        "rejected_prediction_tokens": usage.drafted - usage.accepted,
    }
