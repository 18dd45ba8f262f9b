"""Lines of a server's output as messages, in pieces of every size and with every content."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.tools.mcp.framing import EDGE_BYTES, Lines, TooLong, decode


def split(data: bytes, cuts: list[int], limit: int) -> list[bytes | TooLong]:
    lines = Lines(limit)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found = [line for start, end in pairwise(edges) for line in lines.feed(data[start:end])]
    return [*found, lines.finish()]


@settings(deadline=None)
@given(st.binary(max_size=4000) | st.text("ab\n", max_size=4000).map(str.encode), st.lists(st.integers(0, 5000)))
def test_lines_are_the_same_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    assert split(data, cuts, 10**6) == data.split(b"\n")


@settings(deadline=None)
@given(st.text("ab\n", max_size=4000).map(str.encode), st.lists(st.integers(0, 5000)), st.integers(0, 3000))
def test_of_lines_that_are_too_long_the_ends_are_kept(data: bytes, cuts: list[int], limit: int) -> None:
    for line, whole in zip(split(data, cuts, limit), data.split(b"\n"), strict=True):
        if len(whole) <= limit:
            assert line == whole
        else:
            assert isinstance(line, TooLong)
            assert whole.startswith(line.head)
            assert whole.endswith(line.tail)
            assert len(line.head) + len(line.tail) <= 2 * EDGE_BYTES


ANSWER = '{"jsonrpc": "2.0", "id": 7, "result": {"a": 1}}'
MESSAGES: list[tuple[str | bytes, list[str]]] = [
    ("", []),
    ("   \r", []),
    (ANSWER, ["JSONRPCResponse"]),
    (b"\xef\xbb\xbf" + ANSWER.encode() + b"\r", ["JSONRPCResponse"]),
    (f"[{ANSWER}, {ANSWER}]", ["JSONRPCResponse", "JSONRPCResponse"]),
    ('{"jsonrpc": "2.0", "method": "x"}', ["JSONRPCNotification"]),
    ('{"jsonrpc": "2.0", "id": 7, "result": {"a": "\\ud83d"}}', ["JSONRPCResponse"]),
    (b'{"jsonrpc": "2.0", "id": 7, "result": {"a": "\xff"}}', ["JSONRPCResponse"]),
    ('{"jsonrpc": "2.0", "id": 7, "result": null}', ["JSONRPCError"]),
    ('{"id": 7, "result": {}}', ["JSONRPCError"]),
    ('{"jsonrpc": "2.0", "id": 7, "error": "no"}', ["JSONRPCError"]),
]


@pytest.mark.parametrize(("line", "kinds"), MESSAGES, ids=[str(each[0])[:40] for each in MESSAGES])
def test_what_can_be_understood_is(line: str | bytes, kinds: list[str]) -> None:
    messages = decode(line.encode() if isinstance(line, str) else line)
    assert [type(each).__name__ for each in messages] == kinds
    assert {each.id for each in messages if hasattr(each, "id")} <= {7}


@pytest.mark.parametrize(
    "line", ["hello", "{", "{}", "[1]", "7", '"x"', "null", "[" * 100_000, '{"a":' * 100_000, '{"id": 1}', "\0"]
)
def test_what_is_no_message_is_refused_with_a_value_error(line: str) -> None:
    with pytest.raises(ValueError):
        decode(line.encode())


@pytest.mark.parametrize(
    "form",
    [
        '{"jsonrpc": "2.0", "id": 7, "result": {"text": "%s"}}',
        '{"result": {"text": "%s", "id": 8}, "jsonrpc": "2.0", "id":7}',
        '{"result": {"text": "%s"}, "id": 7, "jsonrpc":"2.0"}',
    ],
)
def test_an_answer_that_is_too_long_is_one_that_says_so(form: str) -> None:
    (line,) = split((form % ("x" * 5000)).encode(), [10, 100, 1000], limit=2000)
    (message,) = decode(line)
    answer = json.loads(message.model_dump_json())
    assert (answer["id"], answer["error"]["message"]) == (7, "the answer is longer than 128 MiB")


def test_a_line_that_is_too_long_and_answers_nothing_is_refused() -> None:
    with pytest.raises(ValueError):
        decode(TooLong(b"x" * 512, b"y" * 512))
