"""What holds for every family, for the tests of the families: each law takes a way to write calls, and tries it.

Not here: the ways to write calls, and what families do with slips.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence

from hypothesis import strategies as st
from tests.unit.dialects.outputs import chopped
from tests.unit.dialects.streams import cuts, events_of

from shepherd.core import BadCall, CallEnded, Event, TextDelta, ToolCall, ToolSpec
from shepherd.dialects.base import Keep
from shepherd.dialects.parse.tags import TagDialect

Calls = Sequence[tuple[str, str]]
"""Names and the text of arguments objects."""
Write = Callable[[Calls], str]

DICE = ToolSpec(
    "roll", "", {"type": "object", "properties": {"sides": {"type": "integer"}, "note": {"type": "string"}}}
)
NOW = ToolSpec("now")
TOOLS = (DICE, NOW, ToolSpec("roll_all", "", {"type": "object", "properties": {"dice": {}}, "required": ["dice"]}))


def assert_alike(
    raw: str, dialect: TagDialect, places: Sequence[int] = (), *, reasoning: Keep = "split", truncated: bool = False
) -> list[Event]:
    """The events of an output, the same for two ways of cutting it."""
    whole = events_of([raw], dialect, tools=TOOLS, reasoning=reasoning, truncated=truncated)
    for chunks in (chopped(raw, places), list(raw)):
        assert events_of(chunks, dialect, tools=TOOLS, reasoning=reasoning, truncated=truncated) == whole
    return whole


def calls_of(raw: str, dialect: TagDialect, tools: Sequence[ToolSpec] = TOOLS) -> list[tuple[str, str]]:
    """Name and arguments of every call ("bad" if it is), the same for every way of cutting the output."""
    whole = events_of([raw], dialect, tools=tools)
    for chunks in cuts(raw):
        assert events_of(chunks, dialect, tools=tools) == whole
    return [
        (event.call.name, event.call.arguments if isinstance(event.call, ToolCall) else "bad")
        for event in whole
        if isinstance(event, CallEnded)
    ]


def text_of(raw: str, dialect: TagDialect, tools: Sequence[ToolSpec] = TOOLS) -> str:
    """The visible text of an output."""
    events = events_of([raw], dialect, tools=tools)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


FRAMES = (("Let me see.\n\n", "\n\nI will report back."),)
ALL_FRAMES = tuple(itertools.product(("", "\n\n", FRAMES[0][0]), ("", "\n", FRAMES[0][1])))
"""What may stand before and behind calls."""


def assert_calls_stand_between_text(
    write: Write, dialect: TagDialect, calls: Calls, frames: Sequence[tuple[str, str]] = FRAMES
) -> None:
    """Well-formed calls come out as they were written, and nothing of them is in the text around them."""
    written = write(calls)
    for before, after in frames:
        raw = before + written + after
        events = assert_alike(raw, dialect, range(3, len(raw), 7))
        assert calls_of_events(events) == list(calls), raw
        said = " ".join(event.text for event in events if isinstance(event, TextDelta))
        assert said.split() == f"{before} {after}".split(), raw


def calls_of_events(events: Sequence[Event]) -> list[tuple[str, str]]:
    ended = (event.call for event in events if isinstance(event, CallEnded))
    return [(call.name, call.arguments if isinstance(call, ToolCall) else "bad") for call in ended]


def assert_cut_calls_never_leak(write: Write, dialect: TagDialect, calls: Calls) -> None:
    """Wherever a limit ends the output, a call is whole and right or bad, and never text."""
    raw = write(calls)
    for stop in range(len(raw)):
        events = events_of([raw[:stop]], dialect, tools=TOOLS, truncated=True)
        ended = [event.call for event in events if isinstance(event, CallEnded)]
        for call, (name, arguments) in zip(ended, calls, strict=False):
            assert isinstance(call, BadCall) or (call.name, call.arguments) == (name, arguments), raw[:stop]
        assert len(ended) <= len(calls), raw[:stop]
        said = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert len(said.strip()) <= 2, raw[:stop]  # a bracket that may be anything


def nested() -> st.SearchStrategy[object]:
    """JSON values."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=12),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
        max_leaves=6,
    )


def arguments() -> st.SearchStrategy[str]:
    """The text of arguments objects."""
    objects = st.dictionaries(st.text(max_size=6), nested(), max_size=3)
    return st.builds(lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only), objects, st.booleans())


def hard_arguments(*markers: str) -> Iterator[str]:
    """Arguments that break careless parsers; `markers` are the family's own."""
    yield '{"n": 12345678901234567890123, "x": 1.10, "y": -1e400, "b": -0}'
    yield '{"b": 1, "a": 2,   "a": 3}'
    yield '{"t": "{{}} [] `x` ```json\\n{}\\n``` \\"q\\" \\u00e9 \\ud83d\\ude00 \\\\"}'
    yield '{"t": "it\'s </tool_call> <think>"}'
    yield '{"deep": [[{"x": null}], {}], "t": true}'
    yield "{}"
    yield json.dumps({"t": "".join(markers)}, ensure_ascii=False)


def assert_linear(write: Callable[[str], str], dialect: TagDialect, tools: Sequence[ToolSpec] = ()) -> None:
    """A call whose argument is ten times as long costs about ten times as much, whatever stands in it (S18)."""

    def seconds(size: int) -> float:
        raw = write("ab{<[" * (size // 5))
        parser = dialect.parser(tools=tools)
        start = time.process_time()
        for at in range(0, len(raw), 16):
            parser.feed(raw[at : at + 16])
        parser.close()
        return time.process_time() - start

    seconds(20_000)
    assert seconds(200_000) < 40 * max(seconds(20_000), 0.001)
