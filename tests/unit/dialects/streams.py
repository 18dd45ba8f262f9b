"""How the tests of this package read a parser: with counted ids, with neighbouring deltas joined, under any cutting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from shepherd.core import CallStarted, Event, Message, ReasoningDelta, TextDelta, ToolSpec, fold
from shepherd.core.events import Finished, Started
from shepherd.dialects import get
from shepherd.dialects.base import Keep
from shepherd.dialects.families.hermes import HERMES
from shepherd.dialects.parse.tags import TagDialect


def dialect(name: str) -> TagDialect:
    """The dialect of this name, fitted to no template."""
    return get(name)


def counted() -> Callable[[], str]:
    """A source of the ids call_0, call_1, ..."""
    numbers = itertools.count()
    return lambda: f"call_{next(numbers)}"


def events_of(
    chunks: Iterable[str],
    dialect: TagDialect = HERMES,
    *,
    opened: str = "",
    reasoning: Keep = "split",
    tools: Sequence[ToolSpec] = (),
    truncated: bool = False,
) -> list[Event]:
    """All events of an output that comes in these chunks, neighbouring deltas joined."""
    parser = dialect.parser(opened=opened, reasoning=reasoning, tools=tools, ids=counted())
    events: list[Event] = []
    for event in itertools.chain(*map(parser.feed, chunks), parser.close(truncated=truncated)):
        match events[-1] if events else None, event:
            case TextDelta(text), TextDelta(more):
                events[-1] = TextDelta(text + more)
            case ReasoningDelta(thought), ReasoningDelta(more):
                events[-1] = ReasoningDelta(thought + more)
            case _:
                events.append(event)
    return events


def message_of(raw: str, dialect: TagDialect = HERMES, *, opened: str = "", reasoning: Keep = "split") -> Message:
    """The message that an output spells."""
    events = events_of([raw], dialect, opened=opened, reasoning=reasoning)
    return fold([Started("test"), *events, Finished("end")]).message


def cuts(text: str) -> Iterable[list[str]]:
    """The text in two at every place, and in single characters."""
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
    yield list(text)


def names(events: Iterable[Event]) -> list[str]:
    """The names of the calls that were started."""
    return [event.name for event in events if isinstance(event, CallStarted)]
