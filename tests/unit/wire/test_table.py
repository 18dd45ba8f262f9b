"""Tables of fields: one row is what a decoder reads and what /docs shows."""

import pytest

from shepherd.core import InvalidRequest
from shepherd.wire.base import Fields
from shepherd.wire.table import BOOLEAN, STRING, Field, body_schema, inside, integer, one_of, read_fields

TABLE = (
    Field("n", integer(1, 16), "Choices.", default=1),
    Field("limit", integer(0), also=("max", "most")),
    Field("mode", one_of("fast", "slow", "safe")),
    Field("options", inside(Field("usage", BOOLEAN, default=False), Field("name", STRING))),
)


def test_absent_fields_have_their_defaults() -> None:
    empty = {"n": 1, "limit": None, "mode": None, "options": {"usage": False, "name": None}}
    assert read_fields(Fields({}), TABLE) == empty
    assert read_fields(Fields({"n": None, "options": {}, "other": 3}), TABLE) == empty


def test_the_first_name_that_is_present_counts() -> None:
    assert read_fields(Fields({"max": 0, "most": 5}), TABLE)["limit"] == 0
    assert read_fields(Fields({"limit": 7, "max": 0}), TABLE)["limit"] == 7


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"n": 17}, "n", "n must be an integer from 1 to 16, not 17"),
        ({"limit": 1, "most": -1}, "most", "most must be an integer of at least 0, not -1"),
        ({"mode": "x"}, "mode", 'mode must be one of fast, slow, safe, not "x"'),
        ({"options": {"usage": 1}}, "options.usage", "options.usage must be true or false, not 1"),
        ({"options": 1}, "options", "options must be an object, not 1"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_field(body: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_fields(Fields(body), TABLE)
    assert (caught.value.field, caught.value.message) == (field, words)


def test_the_schema_says_what_is_read() -> None:
    assert body_schema(*TABLE, required=["n"], example={"n": 2}) == {
        "type": "object",
        "required": ["n"],
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 16, "description": "Choices.", "default": 1},
            "limit": {"type": "integer", "minimum": 0},
            "max": {"type": "integer", "minimum": 0, "description": "Another name of limit."},
            "most": {"type": "integer", "minimum": 0, "description": "Another name of limit."},
            "mode": {"enum": ["fast", "slow", "safe"]},
            "options": {
                "type": "object",
                "properties": {"usage": {"type": "boolean", "default": False}, "name": {"type": "string"}},
            },
        },
        "example": {"n": 2},
    }
