"""The framing of server-sent events."""

from typing import Any

import pytest

from shepherd.wire.sse import DONE, PING, encode_event


@pytest.mark.parametrize(
    ("body", "event", "encoded"),
    [
        ({"a": 1}, None, b'data: {"a":1}\n\n'),
        ({"a": "x\n\r\ny"}, "error", b'event: error\ndata: {"a":"x\\n\\r\\ny"}\n\n'),
        ({"a": "é\u2028\x85"}, None, b'data: {"a":"\\u00e9\\u2028\\u0085"}\n\n'),
    ],
)
def test_an_event_is_one_ascii_line_of_data(body: Any, event: str | None, encoded: bytes) -> None:
    assert encode_event(body, event) == encoded


@pytest.mark.costly
def test_a_ping_is_a_comment_and_the_end_has_its_word() -> None:
    assert (PING[:1], PING[-2:]) == (b":", b"\n\n")
    assert DONE == b"data: [DONE]\n\n"
