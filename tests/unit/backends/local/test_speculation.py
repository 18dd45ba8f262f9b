"""Drafts of an answer through the back end: what turns them on, and what is counted of them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from tests.fake_engine import FakeRuntime, SteadyCost, drafts_by, in_process
from tests.unit.backends.local.serving import Make, reply

from shepherd.backends.local.backend import LocalBackend
from shepherd.core import Message, Reply, Request
from shepherd.engine.scheduler import EngineOptions
from shepherd.engine.speculation import Speculator
from shepherd.engine.window import Turn

FILE = "def area(radius):\n    return 3.14159 * radius * radius\n"
ANSWER = FILE.replace("3.14159", "pi")
CHEAP = 0.01
"""What a further token of a decode costs, as a part of the first."""


def drafting(make: Make, *answers: str, speculate: bool = False) -> tuple[LocalBackend, FakeRuntime]:
    """A back end on a machine whose drafts pay, whatever else runs on it."""
    backend, runtime = make(*answers, engine_options=EngineOptions(speculate=speculate))
    scheduler = in_process(backend.engine)._scheduler  # its thread waits for the first job
    drafts_by(scheduler, speculator=Speculator(SteadyCost(CHEAP)))
    return backend, runtime


def asking(text: str = "Write it with pi.", **fields: Any) -> Request:
    return Request("fake", (Message.user(text),), **fields)


def longest_draft(runtime: FakeRuntime, answer: Reply) -> int:
    """Of the decodes behind the prompt."""
    sizes = [len(chunk.tokens) for batch in runtime.batches for chunk in batch]
    n_prompt = answer.usage.input
    while n_prompt > 0:
        n_prompt -= sizes.pop(0)
    return max(sizes) - 1


@pytest.mark.parametrize(
    ("speculate", "fields", "has_drafts"),
    [
        (False, {}, False),
        (False, {"speculate": 16}, True),
        (False, {"predicted": (FILE,)}, True),
        (False, {"predicted": ("", FILE)}, True),
        (False, {"predicted": (FILE,), "speculate": 0}, False),
        (True, {}, True),
        (True, {"speculate": 0}, False),
    ],
)
async def test_the_cache_says_whether_there_are_drafts_where_the_request_does_not(
    make: Make, speculate: bool, fields: dict[str, Any], has_drafts: bool
) -> None:
    backend, _ = drafting(make, ANSWER, speculate=speculate)
    # Without the text in its prompt only what the client expects can be drafted.
    text = "Go on." if "predicted" in fields else FILE
    answer = await reply(backend, asking(text, **fields))
    assert answer.message.text == ANSWER
    assert (answer.usage.accepted > len(FILE) // 2) == has_drafts
    assert (answer.usage.drafted >= answer.usage.accepted > 0) == has_drafts
    assert answer.usage.output == len(ANSWER) + 1


@pytest.mark.parametrize("most", [1, 5])
async def test_no_draft_is_longer_than_the_request_allows(make: Make, most: int) -> None:
    backend, runtime = drafting(make, ANSWER)
    answer = await reply(backend, asking(FILE, speculate=most))
    assert longest_draft(runtime, answer) == most


@pytest.mark.parametrize("stop", ["radius *", "area"])
async def test_a_stop_string_within_a_draft_cuts_what_was_accepted_behind_it(make: Make, stop: str) -> None:
    backend, _ = drafting(make, ANSWER)
    answer = await reply(backend, asking(predicted=(ANSWER,), stop=(stop,)))
    before = ANSWER.partition(stop)[0]
    assert (answer.reason, answer.stop, answer.message.text) == ("stop", stop, before)
    assert answer.usage.output == len(before + stop)
    assert 0 < answer.usage.accepted <= answer.usage.output
    assert answer.usage.drafted >= answer.usage.accepted


async def test_the_figures_of_an_answer_are_those_of_its_cache(make: Make) -> None:
    backend, _ = drafting(make, ANSWER, speculate=True)
    feed = backend.engine.watch()
    usage = (await reply(backend, asking(FILE))).usage
    stats = backend.engine.stats()
    (sequence,) = stats.sequences
    assert (stats.drafted_tokens, stats.accepted_tokens) == (usage.drafted, usage.accepted)
    assert (sequence.drafted, sequence.accepted) == (usage.drafted, usage.accepted)
    async with aclosing(feed.batches()) as batches:
        turn = await anext(fact async for batch in batches for fact in batch if isinstance(fact, Turn))
    assert (turn.drafted, turn.accepted) == (usage.drafted, usage.accepted)
    backend.engine.unwatch(feed)
