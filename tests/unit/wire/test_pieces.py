"""Characters and arguments that come in pieces, and calls that come more than once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import CallDelta, CallStarted, Event, Message, ReasoningDelta, Request, TextDelta, ToolCall, fold
from shepherd.wire.anthropic import client as anthropic
from shepherd.wire.arguments import Arguments, plain
from shepherd.wire.client import MOST_WAITING, Choices, Endpoint
from shepherd.wire.gemini import client as gemini
from shepherd.wire.halves import Halves, may_have_halves, paired
from shepherd.wire.ollama import client as ollama
from shepherd.wire.openai import client as openai
from shepherd.wire.openai.call_decoder import Calls
from shepherd.wire.openai.responses import client as responses

ENDPOINT = Endpoint("m", "up:m")
ASK = Request("m", (Message.user("Hello."),))
HIGH, LOW = "\ud83d", "\ude00"

# -- characters


@given(st.lists(st.text(st.characters() | st.sampled_from([HIGH, LOW]), min_size=1, max_size=4), max_size=6))
@settings(max_examples=examples(200))
def test_the_pieces_of_a_text_are_its_whole_characters(pieces: list[str]) -> None:
    halves = Halves()
    events: list[Event] = [TextDelta(piece) for piece in pieces]
    made = list(halves.joined([*events, CallStarted("a", "look")]))
    text = "".join(event.text for event in made if isinstance(event, TextDelta))
    assert text == paired("".join(pieces))
    assert text.encode().decode() == text
    assert all(event.text for event in made if isinstance(event, TextDelta))


def test_half_a_character_waits_for_its_own_kind_only() -> None:
    def joined(*events: Event) -> list[Event]:
        return list(Halves().joined(events))

    assert joined(TextDelta(HIGH), ReasoningDelta(LOW)) == [TextDelta("\ufffd"), ReasoningDelta("\ufffd")]
    assert joined(TextDelta("a" + HIGH), TextDelta(LOW + "b")) == [TextDelta("a"), TextDelta("\U0001f600b")]
    assert joined(ReasoningDelta(HIGH), ReasoningDelta("", "c2ln")) == [ReasoningDelta("\ufffd", "c2ln")]
    assert joined(CallDelta(HIGH), CallDelta(LOW)) == [CallDelta("\U0001f600")]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rb'"\ud83d\ude00"', True), (rb'"\uDE00"', True), (b'"\xed\xa0\xbd\xed\xb8\x80"', True),
        ('"\ud55c\uae00 \U0001f600"'.encode(), False), (rb'"\u00e9"', False),
    ],
)  # fmt: skip
def test_halves_are_escapes_or_bytes_that_are_no_utf_8(data: bytes, expected: bool) -> None:
    assert may_have_halves(data) == expected


CODECS: dict[str, tuple[Any, list[bytes]]] = {
    "openai.chat": (openai, [b'{"choices":[{"delta":{"content":%s}}]}', b'{"choices":[{"finish_reason":"stop"}]}']),
    "anthropic": (
        anthropic,
        [
            b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}',
            b'{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
        ],
    ),
    "gemini": (
        gemini,
        [b'{"candidates":[{"content":{"parts":[{"text":%s}]}}]}', b'{"candidates":[{"finishReason":"STOP"}]}'],
    ),
    "ollama": (ollama, [b'{"message":{"content":%s}}', b'{"done":true,"done_reason":"stop"}']),
    "openai.responses": (
        responses,
        [
            b'{"type":"response.output_text.delta","output_index":0,"delta":%s}',
            b'{"type":"response.completed","response":{"status":"completed","output":[]}}',
        ],
    ),
}


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((rb'"a\ud83d"', rb'"\ude00b"'), "a\U0001f600b"),
        ((b'"a\xed\xa0\xbd"', b'"\xed\xb8\x80b"'), "a\U0001f600b"),
        ((rb'"a\ud83d"', rb'"b"'), "a\ufffdb"),
        ((rb'"a"', rb'"\ud83d"'), "a\ufffd"),
    ],
)
def test_halves_in_two_records_are_one_character(protocol: str, pieces: Sequence[bytes], text: str) -> None:
    codec, (record, end) = CODECS[protocol]
    decoder = codec.decoder(ASK, ENDPOINT)
    events = [event for piece in pieces for event in decoder.feed("", record % piece)]
    assert fold([*events, *decoder.feed("", end), *decoder.close()]).message.text == text


# -- arguments

_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["{", '"', "\\", '\\"', "}]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), _VALUES, max_size=3), st.booleans(), st.lists(st.integers(0, 99), max_size=9)
)
@settings(max_examples=examples(300))
def test_an_object_goes_out_as_it_comes_and_is_whole_at_its_end_only(
    value: dict[str, Any], is_ascii: bool, cuts: list[int]
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    edges = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    arguments, sent = Arguments(), ""
    for start, stop in itertools.pairwise(edges):
        assert not arguments.is_whole
        arguments.add(text[start:stop])
        sent += arguments.ready()
        assert sent == text[:stop]
    assert arguments.is_whole
    assert sent + arguments.end() == arguments.text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "{}"), (" \n", "{}"), ("null", "{}"), ("[]", "{}"), ('""', "{}"), ("None", "{}"), ('"null"', "{}"),
        (r'"{\"a\": 1}"', '{"a": 1}'), ('"a"', '"a"'), ("[1]", "[1]"), ('{"a":1}', '{"a":1}'), ("7", "7"), ('"', '"'),
    ],
)  # fmt: skip
def test_what_stands_for_no_arguments_is_an_empty_object(text: str, expected: str) -> None:
    assert plain(text) == expected
    for cut in range(len(text) + 1):
        arguments = Arguments()
        arguments.add(text[:cut])
        first = arguments.ready()
        arguments.add(text[cut:])
        assert first + arguments.ready() + arguments.end() == expected == arguments.text


# -- calls


def piece(index: int | None, id: str | None, name: str | None, text: str) -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": text}}


FULL = '{"at": 1}'
CALLS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, str]]]] = {
    "one id, other arguments": (
        [piece(0, "a", "look", FULL), piece(1, "a", "look", '{"at": 2}')],
        [("a", "look", FULL), ("new0", "look", '{"at": 2}')],
    ),
    "one id, another name": (
        [piece(0, "a", "look", FULL), piece(1, "a", "rest", FULL)],
        [("a", "look", FULL), ("new0", "rest", FULL)],
    ),
    "other ids, equal arguments": (
        [piece(0, "a", "look", FULL), piece(1, "b", "look", FULL)],
        [("a", "look", FULL), ("b", "look", FULL)],
    ),
    "a repetition that is spaced otherwise": (
        [piece(0, "a", "look", FULL), piece(0, "a", "look", '{"at":1}')],
        [("a", "look", FULL)],
    ),
    "a repetition in pieces": (
        [
            piece(0, "a", "look", FULL),
            piece(0, "a", "look", ""),
            piece(0, None, None, '{"at"'),
            piece(0, None, None, ": 1}"),
        ],
        [("a", "look", FULL)],
    ),
    "three times": (
        [piece(at, "a", "look", FULL) for at in (0, 1, 1)],
        [("a", "look", FULL)],
    ),
    "what is left of the arguments with an id and a name (vLLM)": (
        [piece(0, "a", "look", '{"at"'), piece(0, "a", "look", ": 1}")],
        [("a", "look", FULL)],
    ),
    "a call again behind the next one": (
        [piece(0, "a", "look", FULL), piece(1, "b", "rest", "{}"), piece(0, "a", "look", FULL)],
        [("a", "look", FULL), ("b", "rest", "{}")],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_repeated_comes_once_and_another_one_comes_too(name: str) -> None:
    pieces, expected = CALLS[name]
    decoder = openai.decoder(ASK, ENDPOINT, iter(f"new{n}" for n in range(9)).__next__)
    records = [{"choices": [{"delta": {"tool_calls": [each]}}]} for each in pieces]
    events = [event for each in [*records, {"choices": [{"finish_reason": "tool_calls"}]}]
              for event in decoder.feed("", json.dumps(each).encode())]  # fmt: skip
    message = fold([*events, *decoder.close()]).message
    assert all(isinstance(part, ToolCall) for part in message.parts)
    assert [(each.id, each.name, each.arguments) for each in message.calls] == expected


def test_names_in_every_piece_cost_no_more_than_the_arguments_length() -> None:
    calls = Calls(lambda id: id)
    pieces = (
        [piece(0, "a", "look", '{"x": "')] + [piece(0, "a", "look", "{" * 9)] * 20_000 + [piece(0, "a", "look", '"}')]
    )
    sent = [event for each in pieces for event in calls.feed(each)]
    assert len(sent) == len(pieces) + 1


# -- choices


def test_choices_wait_for_the_first_and_no_longer_than_a_few_records() -> None:
    choices = Choices("finish_reason")
    second, first = {"index": 1, "text": "b"}, {"index": 0, "text": "a"}
    assert [choices.take([each]) for each in (second, first, second, first)] == [[], [first], [], [first]]
    choices = Choices("finish_reason")
    taken = [choices.take([second | {"n": at}]) for at in range(MOST_WAITING + 2)]
    assert [len(each) for each in taken] == [0] * (MOST_WAITING - 1) + [MOST_WAITING, 1, 1]
    choices = Choices("finish_reason")
    assert choices.take([second]) == []
    assert choices.take([second | {"finish_reason": "stop"}]) == [second, second | {"finish_reason": "stop"}]
    choices = Choices("finish_reason")
    assert choices.take([{"index": 3}, {"index": 2}]) == []
    assert choices.rest() == [{"index": 2}]
