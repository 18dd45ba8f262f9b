"""What is promised of every dialect, over outputs made of its own markers, calls, fragments of them, and junk."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import SEED, amount
from tests.unit.dialects.outputs import (
    ALL,
    CHECKS,
    TOOLS,
    WORDS,
    Check,
    Options,
    accounts,
    calls_of,
    cut_alike,
    declared_markers,
    held_back,
    lost,
    makes_sense,
    markers,
    markers_of,
    pieces,
    spelled_blocks,
)
from tests.unit.dialects.streams import counted, events_of

from shepherd.core import CallEnded, CallStarted, Event, TextDelta, ToolCall
from shepherd.dialects.base import Keep
from shepherd.dialects.families import PLAIN
from shepherd.dialects.parse.markup import MAX_BLANKS, Block
from shepherd.dialects.parse.tags import TagDialect

EXAMPLES = amount(8, 300)
"""For each of some forty dialects and each property, always the same; `tests/search/fuzz` looks for new ones."""

OPENED = ("Hello", "Hello.\n", "<|start|>assistant", "<|begin|>assistant")
"""What prompts may have begun, besides a marker."""


def n_examples(name: str) -> int:
    return EXAMPLES * (8 if name == "hermes" else 1)  # the plainest one: what fails here fails in the scanner


names = pytest.mark.parametrize("name", sorted(ALL))
KEEPS: tuple[Keep, ...] = ("split", "keep")
modes: st.SearchStrategy[Keep] = st.sampled_from(KEEPS)
options: st.SearchStrategy[Options] = st.fixed_dictionaries(
    {"reasoning": modes, "tools": st.sampled_from([(), TOOLS]), "truncated": st.booleans()}
)
chances = st.integers(0, 99).map(random.Random)


def outputs(name: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces(name)) | st.text(max_size=3), max_size=14).map("".join)


@names
def test_the_events_are_the_same_for_every_cutting(name: str) -> None:
    @settings(max_examples=n_examples(name), deadline=None, derandomize=SEED is None)
    @given(outputs(name), options, chances)
    def holds(text: str, given: Options, chance: random.Random) -> None:
        assert not cut_alike(text, ALL[name], given, chance)

    holds()


@names
def test_a_prompt_that_has_begun_the_answer_is_continued_alike_for_every_cutting(name: str) -> None:
    @settings(max_examples=n_examples(name), deadline=None, derandomize=SEED is None)
    @given(st.sampled_from((*markers(name), *OPENED)), outputs(name), options, chances)
    def holds(opened: str, text: str, given: Options, chance: random.Random) -> None:
        assert not cut_alike(text, ALL[name], {**given, "opened": opened}, chance)

    holds()


@names
def test_reading_never_fails_and_visible_text_is_never_an_empty_message(name: str) -> None:
    @settings(max_examples=n_examples(name), deadline=None, derandomize=SEED is None)
    @given(outputs(name), options, chances)
    def holds(text: str, given: Options, chance: random.Random) -> None:
        assert not makes_sense(text, ALL[name], given, chance)

    holds()


@names
def test_every_character_is_in_one_event_or_in_markup_or_a_blank_beside_it(name: str) -> None:  # SCN-20
    @settings(max_examples=n_examples(name), deadline=None, derandomize=SEED is None)
    @given(outputs(name), options, chances)
    def holds(text: str, given: Options, chance: random.Random) -> None:
        assert not accounts(text, ALL[name], given, chance)

    holds()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("name", "text"), [("harmony", "<|channel|>final<|message|<|channel|>analysis<|message|>")])
def test_what_a_search_has_found_holds(name: str, text: str, check: Check) -> None:
    assert not check(text, ALL[name], {"reasoning": "split", "tools": (), "truncated": False}, random.Random(0))


@names
def test_plain_text_is_held_back_by_less_than_the_longest_marker(name: str) -> None:  # SCN-17
    longest = max(map(len, markers(name)), default=1)
    plain = [word for word in WORDS if not any(word in marker or marker in word for marker in markers(name))]
    near = [marker[:length] for marker in markers(name) for length in range(1, len(marker))]

    @settings(max_examples=n_examples(name), deadline=None, derandomize=SEED is None)
    @given(st.lists(st.sampled_from((*plain, *plain, *near)), min_size=1, max_size=12))
    def holds(words: list[str]) -> None:
        text = "".join(f"{word}Zebra." for word in words)
        if not any(marker in text for marker in markers(name)):
            assert held_back(text, ALL[name]) < longest
            assert "".join(said(event) for event in events_of([text], ALL[name])) == text

    holds()


@pytest.mark.parametrize("dialect", [*ALL.values(), PLAIN.fitted("<think>")], ids=[*ALL, "plain with thoughts"])
def test_blanks_wait_exactly_where_something_that_may_follow_takes_them(dialect: TagDialect) -> None:
    """What follows is tried: every marker of the family alone, at the end of a line, with text behind it; and calls."""
    calls = [next(calls_of(block)) for block in spelled_blocks(dialect)]
    for tools, reasoning in itertools.product(((), TOOLS), KEEPS):
        declared = [tag for block in dialect.markup.declared(tools) for tag in (block.opener, *block.closers)]
        own = (*markers_of(dialect.markup), *declared)
        tails = [*calls, *(marker + more for marker in own for more in ("", "\n", "{", "\nZebra"))]
        for before, blanks in itertools.product(("Zebra.", "Zebra one\n\ntwo"), (" ", "\n\n", "  \n")):
            text = before + blanks
            parser = dialect.parser(tools=tools, reasoning=reasoning, ids=counted())
            told = "".join(said(event) for char in text for event in parser.feed(char))
            wholes = (events_of([text + tail], dialect, tools=tools, reasoning=reasoning) for tail in tails)
            is_taken = any(not "".join(map(said, whole)).startswith(text) for whole in wholes)
            assert told == (before if is_taken else text), (tools, reasoning, text)


def said(event: Event) -> str:
    return event.text if isinstance(event, TextDelta) else ""


BLOCKS = [
    pytest.param(dialect, block, id=f"{name}:{block.opener!r}")
    for name, dialect in sorted(ALL.items())
    for block in spelled_blocks(dialect)
]


@pytest.mark.parametrize(("dialect", "block"), BLOCKS)
def test_a_call_as_the_family_spells_it_is_read_whole_with_text_around_it(dialect: TagDialect, block: Block) -> None:
    before = "" if block.where == "start" else "Zebra one.\n"
    for number, call in enumerate(calls_of(block)):
        raw = f"{before}{call}"
        whole = events_of([raw], dialect, tools=TOOLS)
        assert not cut_alike(raw, dialect, {"tools": TOOLS}, random.Random(number))
        (ended,) = [event.call for event in whole if isinstance(event, CallEnded)]
        assert isinstance(ended, ToolCall)
        assert ended.name == ("weather", "now")[number // 2]
        assert json.loads(ended.arguments) == (wanted(number % 2 == 0) if ended.name == "weather" else {})
        assert "".join(map(said, whole)).strip() == before.strip()
        behind = "".join(map(said, events_of([f"{raw}\nZebra two."], dialect, tools=TOOLS)))
        assert behind.replace("\n", "") == f"{before}Zebra two.".replace("\n", "")


@pytest.mark.parametrize(("dialect", "block"), BLOCKS)
def test_blanks_before_a_call_belong_to_it(dialect: TagDialect, block: Block) -> None:
    if block.where == "start":
        return  # behind text it is no call
    for blanks in (" ", "\n\n", "  \n", "\n" * (MAX_BLANKS - 1)):
        whole = events_of([f"Zebra.{blanks}{next(calls_of(block))}"], dialect, tools=TOOLS)
        text = "".join(map(said, whole))
        assert text == "Zebra." or (block.where == "line" and "\n" not in blanks), "in a line it may be no call"
        assert any(isinstance(event, CallEnded) for event in whole) == (text == "Zebra.")


def wanted(full: bool) -> dict[str, object]:
    optional = {"days": 12345678901234567890, "tags": ["a </x> {", None]}
    return {"city": "Rome", **(optional if full else {})}


@pytest.mark.parametrize(("dialect", "block"), BLOCKS)
def test_a_call_that_is_cut_off_leaks_nothing_and_is_never_empty(dialect: TagDialect, block: Block) -> None:  # S9
    call = next(calls_of(block))
    sure = block.opener not in declared_markers(dialect.name)  # what no tag declares may be text
    # Of a marker that has only just begun nobody can know.
    for end in range(len(block.opener) + 1, len(call)):
        events = events_of([call[:end]], dialect, tools=TOOLS, truncated=True)
        assert not sure or len("".join(map(said, events)).strip()) < 2
        for event in events:
            if isinstance(event, CallEnded) and isinstance(event.call, ToolCall):
                assert json.loads(event.call.arguments).get("city") == "Rome"


@names
def test_a_call_is_told_when_it_is_complete_and_never_before(name: str) -> None:  # SCN-18
    for block in spelled_blocks(ALL[name]):
        parser = ALL[name].parser(tools=TOOLS, ids=counted())
        events = [event for char in next(calls_of(block)) for event in parser.feed(char)]
        kinds = [type(event).__name__ for event in (*events, *parser.close())]
        assert kinds == ["CallStarted", "CallDelta", "CallEnded"]
        assert all(event.name == "weather" for event in events if isinstance(event, CallStarted))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cohere", "<co:Zebra."),
        ("cohere-2", "It </co:日本"),
        ("kimi-k3", "<|open|>responseZebra."),
        ("kimi-k3", "<|open|>toolsc"),
        ("muse", "<|start|>s<|message|>Zebra."),
        ("minimax-m3", "]<]minimax[>[<tool_call]<]minimax[>[<<>"),
        ("command-r", "Action:```json}Action:```json"),
        ("qwen-xml", "<function=w<tool_call>n"),
        ("qwen-xml", "<tool_call></function>```\n<tool_call><function"),
        ("hermes", "<tool_call>[]</tool_call>"),
    ],
)
def test_what_the_fuzzer_has_found_stays_found(name: str, text: str) -> None:
    for tools in ((), TOOLS):
        for check in CHECKS:
            assert not check(text, ALL[name], {"tools": tools}, random.Random(0))
    assert events_of([text], ALL[name])


def test_what_is_checked_can_fail() -> None:
    chance = random.Random(0)
    hermes = ALL["hermes"]
    assert lost("Hello <tool_call> world", [TextDelta("Hello")], "hermes", False) == "world"
    assert lost("Hello", [TextDelta("Hello Hello")], "hermes", False)
    assert not lost("<think>Hello</think> you", [TextDelta("Hello you")], "hermes", False)
    assert held_back("x" * 10 + "<tool_call", hermes) == len("<tool_call")
    assert cut_alike("ab", Fickle("hermes", hermes.markup), {}, chance)
    assert accounts("Zebra one", Fickle("hermes", hermes.markup), {}, chance)
    assert makes_sense("Zebra.", Fickle("hermes", hermes.markup), {}, chance)


class Fickle(TagDialect):
    """Reads with a fault."""

    __slots__ = ()

    def parser(self, **given: object) -> Lossy:  # type: ignore[override]  # a fault on purpose
        return Lossy()


class Lossy:
    """A parser that loses the first character of whatever it gets, and all of it when that is six."""

    def feed(self, text: str) -> list[Event]:
        return [TextDelta(text[1:])] if len(text) not in (1, 6) else []

    def close(self, *, truncated: bool = False) -> list[Event]:
        return []
