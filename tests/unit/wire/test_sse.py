"""The framing of server-sent events."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.wire.sse import DONE, PING, EventReader, LineReader, NdjsonReader, RecordTooLong, encode_event


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


def test_a_ping_is_a_comment_and_the_end_has_its_word() -> None:
    assert (PING[:1], PING[-2:]) == (b":", b"\n\n")
    assert DONE == b"data: [DONE]\n\n"


EVENTS = 'event: a\ndata: {"x": "\u2028\u0085"}\n\n: ping\n\ndata: 1\r\ndata: 2\r\n\r\nerror: {}\n\rdata: last'.encode()


@given(st.lists(st.integers(0, len(EVENTS)), max_size=6).map(sorted))
def test_events_are_the_same_however_their_bytes_are_cut(cuts: list[int]) -> None:
    reader = EventReader()
    found: list[tuple[str, bytes]] = []
    for start, end in zip([0, *cuts], [*cuts, len(EVENTS)], strict=True):
        found += reader.feed(EVENTS[start:end])
    found += reader.close()
    first = '{"x": "\u2028\u0085"}'.encode()
    assert found == [("a", first), ("", b"1\n2"), ("error", b"{}"), ("", b"last")]


@given(st.binary(max_size=64), st.lists(st.integers(0, 64), max_size=5).map(sorted))
def test_lines_end_at_lf_crlf_and_cr_only(data: bytes, cuts: list[int]) -> None:
    reader = LineReader()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        found += reader.feed(data[start:end])
    found.append(reader.close())
    assert found == data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def test_a_record_without_end_is_refused() -> None:
    with pytest.raises(RecordTooLong):
        list(LineReader(limit=100).feed(b"x" * 101))
    reader = EventReader(limit=100)
    with pytest.raises(RecordTooLong):
        list(reader.feed(b"data: 1234567890\n" * 20))


@pytest.mark.parametrize("line", [b"\n", b"\r", b":\n", b": x\r\n", b"data\n\n"])
def test_a_flood_of_short_lines_takes_time_in_proportion_to_its_bytes(line: bytes) -> None:
    """A search for the next end of a line that begins again at every line would take minutes here."""
    flood = line * (2**19 // len(line))
    assert sum(1 for _ in EventReader().feed(flood)) == flood.count(b"data")
    assert sum(1 for _ in NdjsonReader().feed(flood)) == (flood.count(line.strip()) if line.strip() else 0)


def test_an_event_of_empty_lines_of_data_without_end_is_refused() -> None:
    reader = EventReader(limit=100)
    with pytest.raises(RecordTooLong, match="an event has more than 100 bytes"):
        list(reader.feed(b"data\n" * 101))
