"""Several answers at once, as one stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from shepherd.core import EngineError, Event, Finished, Progress, Started, TextDelta
from shepherd.server.http.choices import merge_choices


class Played:
    """A stream that waits for a gate before its first word, and tells what became of it."""

    def __init__(self, *events: Event | Exception) -> None:
        self.events = events
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.closed = False

    async def stream(self) -> AsyncGenerator[Event, None]:
        self.begun.set()
        try:
            for event in self.events:
                if isinstance(event, TextDelta | Exception):
                    await self.gate.wait()
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True


def answer(word: str) -> tuple[Event, ...]:
    return Started("m"), Progress(1, 2), TextDelta(word), Finished("end")


async def test_every_event_comes_with_the_index_of_its_choice_and_in_its_order() -> None:
    played = [Played(*answer(word)) for word in "abc"]
    for each in played:
        each.gate.set()
    async with aclosing(merge_choices([each.stream() for each in played])) as events:
        told = [(choice, event) async for choice, event in events]
    assert [[event for at, event in told if at == choice] for choice in range(3)] == [list(answer(c)) for c in "abc"]


async def test_the_others_begin_when_the_first_has_read_its_prompt() -> None:
    first, second = Played(*answer("a")), Played(*answer("b"))
    async with aclosing(merge_choices([first.stream(), second.stream()])) as events:
        assert await anext(events) == (0, Started("m"))
        assert await anext(events) == (0, Progress(1, 2))
        assert not second.begun.is_set()
        first.gate.set()
        assert await anext(events) == (0, TextDelta("a"))
        await second.begun.wait()


@pytest.mark.parametrize("failing", [0, 1])
async def test_one_error_ends_them_all(failing: int) -> None:
    played = [Played(*answer("a")), Played(*answer("b"))]
    played[failing].events = (Started("m"), EngineError("broken"))
    for each in played:
        each.gate.set()
    events = merge_choices([each.stream() for each in played])
    with pytest.raises(EngineError, match="broken"):
        _ = [event async for event in events]
    assert all(each.closed for each in played if each.begun.is_set())


@pytest.mark.parametrize("n", [1, 3])
async def test_leaving_cancels_them_all(n: int) -> None:
    played = [Played(*answer("a")) for _ in range(n)]
    played[0].gate.set()
    async with aclosing(merge_choices([each.stream() for each in played])) as events:
        async for choice, event in events:
            if isinstance(event, TextDelta):
                assert choice == 0
                break
        for each in played:
            await each.begun.wait()
    assert all(each.closed for each in played)
