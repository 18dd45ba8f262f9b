"""Bodies to JSON: every way in which a body can be wrong is one sentence that says where."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import InvalidRequest
from shepherd.wire.base import MAX_DEPTH, Fields, Range, decode_json, shown


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b" \n\t", "the body is empty"),
        (b'{"a": "\xff"}', "not valid UTF-8: byte 7 is 0xff"),
        (b'{"a": "\xed\xa0\xbd"}', "not valid UTF-8: byte 7 is 0xed"),
        ('{"a": 1}'.encode("utf-16"), "not valid UTF-8: byte 0 is 0xff"),
        (b'{"a": 1,\n "b" 2}', "line 2, column 6"),
        (b'{"a": 1} x', "line 1, column 10"),
        (b'{"a": "b\x00c"}', "not valid JSON: line 1, column 9: Invalid control character"),
        (b'{"a": "b', "not valid JSON: line 1, column 7: Unterminated string"),
        (b"[]", "must be a JSON object, not an empty array"),
        (b"null", "must be a JSON object, not null"),
        (b'"text"', 'must be a JSON object, not "text"'),
        (b"true", "must be a JSON object, not true"),
        (b'{"a": NaN}', "NaN is not a JSON value"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON value"),
        (b'{"a": ' + b"[" * 100_000, f"deeper than {MAX_DEPTH} levels"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", f"deeper than {MAX_DEPTH} levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, f"deeper than {MAX_DEPTH} levels"),
        (b'{"a": ' + b"9" * 5000 + b"}", "more than 4300 digits"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_with_the_place(body: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match="the body") as caught:
        decode_json(body)
    assert said in caught.value.message
    assert not caught.value.message.endswith(" at"), "the place is in front"


def test_a_byte_order_mark_is_skipped() -> None:
    assert decode_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_the_deepest_allowed_body_is_taken() -> None:
    body = '{"a":' * (MAX_DEPTH - 1) + "{}" + "}" * (MAX_DEPTH - 1)
    assert decode_json(body.encode()) == json.loads(body)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        (r"\ud83d\ude00", "\U0001f600"),
        (r"cut \ud83d", "cut \ufffd"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\uD83D \uDE00", "\ufffd \ufffd"),
        (r"\\ud83d", "\\ud83d"),
    ],
)
def test_half_an_emoji_becomes_the_replacement_character_wherever_it_is(text: str, decoded: str) -> None:
    body = decode_json(f'{{"key{text}": ["{text}", {{"deep": "{text}"}}]}}'.encode())
    assert body == {f"key{decoded}": [decoded, {"deep": decoded}]}


@given(st.binary())
def test_any_bytes_are_an_object_or_an_invalid_request(body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(decode_json(body), dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=6), children, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON))
def test_every_json_object_survives(body: dict[str, Any]) -> None:
    assert decode_json(json.dumps(body).encode()) == body


@given(JSON)
def test_every_value_has_a_short_picture_of_one_line(value: Any) -> None:
    picture = shown(value)
    assert 0 < len(picture) < 300
    assert "\n" not in picture


@pytest.mark.parametrize(
    ("value", "allowed", "read"),
    [(3, Range(), 3), (3.0, Range(), 3), (-1, Range(-1, 5), -1), (1e15, Range(), 10**15), (None, Range(1), None)],
)
def test_an_integer_may_be_written_as_a_float(value: Any, allowed: Range, read: int | None) -> None:
    assert Fields({"k": value}).find_integer("k", allowed) == read


@pytest.mark.parametrize("value", [True, False, "3", 3.5, [3], {"a": 3}, 1e999, -2, 6])
def test_what_is_no_integer_in_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^k must be an integer from -1 to 5, not ") as caught:
        Fields({"k": value}).find_integer("k", Range(-1, 5))
    assert caught.value.field == "k"


@pytest.mark.parametrize("value", [True, "1", [], 1e999, float("nan"), 10**400, -0.001])
def test_what_is_no_finite_number_in_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^a\.k must be a number of at least 0, not ") as caught:
        Fields({"k": value}, "a").find_number("k", Range(low=0))
    assert caught.value.field == "a.k"
