"""Tokens of streams: pieces count until the exact number is known."""

from __future__ import annotations

from shepherd.core import Finished, Progress, ReasoningDelta, Started, TextDelta, Usage
from shepherd.core.events import Measured


def test_an_answer_counts_its_pieces_until_it_has_finished() -> None:
    measured = Measured()
    measured.feed(Started("m", usage=Usage(input=5)))
    measured.feed(Progress(1, 5))
    assert measured.usage == Usage(input=5)
    measured.feed(ReasoningDelta("Hm."))
    measured.feed(TextDelta("Yes"))
    assert measured.usage == Usage(input=5, output=2, reasoning=1)
    measured.feed(Finished("end", Usage(input=5, output=9, reasoning=4)))
    assert measured.usage == measured.total == Usage(input=5, output=9, reasoning=4)


def test_the_answers_of_a_turn_add_up() -> None:
    measured = Measured()
    for n in (1, 2):
        measured.feed(Started("m", usage=Usage(input=n)))
        measured.feed(Finished("tool_calls", Usage(input=n, output=10)))
    measured.feed(Started("m", usage=Usage(input=7)))
    assert measured.total == Usage(input=3, output=20)
    assert measured.usage == Usage(input=7)
