"""Lines from a pipe: whatever their ends, their encoding and the pieces in which they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.cli.terminal.reader import Lines


def lines(raw: bytes, *, size: int = 1, encoding: str = "utf-8") -> list[str]:
    """All lines of `raw`, fed in pieces of `size`."""
    found: list[str] = []
    reader = Lines(encoding)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    for piece in [*pieces, b""]:
        reader.feed(piece)
        while (line := reader.take()) is not None:
            found.append(line)
    assert reader.at_end
    assert reader.take() is None
    return found


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\rtwo", ["one", "two"]),
        (b"one\n\ntwo", ["one", "", "two"]),
        (b"no end", ["no end"]),
        (b"\xef\xbb\xbf/help\r\n", ["/help"]),
        ("Grüße\n".encode(), ["Grüße"]),
        (b"bad \xff byte\n", ["bad � byte"]),
        (b"cut \xe2\x82", ["cut �"]),
        (b"form\x0cfeed\x0b\x1c\xc2\x85\xe2\x80\xa8is no end\n", ["form\x0cfeed\x0b\x1c\x85\u2028is no end"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_in_whatever_pieces_they_come(raw: bytes, expected: list[str], size: int) -> None:
    assert lines(raw, size=size) == expected


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_what_windows_calls_unicode_is_read(encoding: str) -> None:
    raw = "\ufeffGrüße\r\n/exit\r\n".encode(encoding)
    assert lines(raw, size=2) == lines(raw, size=1000) == ["Grüße", "/exit"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_utf_16_is_read_with_and_without_its_mark_in_whatever_pieces(encoding: str, mark: str, size: int) -> None:
    assert lines(f"{mark}Hi, Grüße\r\n/exit\r\n".encode(encoding), size=size) == ["Hi, Grüße", "/exit"]


def test_another_encoding_of_the_terminal_is_taken() -> None:
    assert lines("Grüße\n".encode("latin-1"), encoding="latin-1") == ["Grüße"]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)))
def test_any_text_comes_back_line_by_line(said: list[str]) -> None:
    if said and said[0].startswith("\ufeff"):
        said[0] = said[0].lstrip("\ufeff") or "x"
    for end in ("\n", "\r\n"):
        assert lines(end.join(said).encode(), size=7) == said
