"""Where checkpoints are saved, and which of them stay: values in, values out."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest

from shepherd.engine.base import Job, Span
from shepherd.engine.kv.marks import LEAST_GAP, pins, planned, thinned

SYSTEM = 1000


def conversation(*sizes: int, n_system: int = SYSTEM, kept: int = 1, head: int = 3) -> Job:
    """A system prompt, then messages of these sizes in turns of two; the last `kept` of them never leave."""
    spans, at = [Span(0, n_system, 0, 0, keep=True, label="system")], n_system
    for index, size in enumerate(sizes, 1):
        spans.append(Span(at, at + size, index, (index + 1) // 2, keep=index > len(sizes) - kept))
        at += size
    return Job(array("i", [7] * (at + head)), 1, spans=tuple(spans), n_system=n_system)


@pytest.mark.parametrize(
    ("job", "start", "held", "marks"),
    [
        (conversation(60), 0, [], [512, 1000, 1060]),
        (conversation(60), 1000, [512, 1000], [1000, 1060]),
        (conversation(60, 80, 50), 1140, [1000, 1060], [1140, 1190]),
        (conversation(60, 80, 50), 1143, [1000, 1060], [1190]),
        # Short messages are not worth a mark, but for the newest and for the first that an eviction removes.
        (conversation(10, 10, 10, 10, 10), 0, [], [512, 1000, 1040, 1050]),
        (conversation(60, 80, 50, 70, 40), 0, [], [512, 1000, 1060, 1140, 1190, 1260, 1300]),
        # Without a system prompt, and without messages.
        (conversation(600, n_system=0), 0, [], [512, 600]),
        (Job(array("i", [7] * 300), 1), 0, [], [299]),
        (Job(array("i", [7] * 1100), 1), 0, [], [512, 1024, 1099]),
        (Job(array("i", [7]), 1), 0, [], []),
    ],
)
def test_marks_stand_behind_the_system_prompt_and_at_messages(
    job: Job, start: int, held: list[int], marks: list[int]
) -> None:
    assert planned(job, start, held, 32) == marks


def test_no_prompt_gets_more_marks_than_there_is_room_for() -> None:
    job = conversation(*[100] * 301)
    for n_most in (1, 2, 3, 8, 32):
        marks = planned(job, 0, [], n_most)
        assert len(marks) == n_most
        assert SYSTEM in marks
        assert n_most < 2 or marks[-1] == SYSTEM + 30_100, "behind the newest message"
        assert n_most < 3 or SYSTEM + 30_000 in marks, "and before it"
    gaps = [b - a for a, b in pairwise(marks[1:])]
    assert gaps[0] > 4 * gaps[-2], "old marks stand further apart"


def test_a_long_text_gets_coarse_marks_by_its_length_and_by_the_room() -> None:
    for n, n_most, distance in ((6000, 32, 512), (40_000, 32, 2560), (40_000, 8, 10_240), (400, 32, 512)):
        marks = planned(conversation(50, n_system=n), 0, [], n_most)
        coarse = [at for at in marks if at < n]
        assert coarse == list(range(distance, n, distance))
        assert len(marks) <= n_most


def test_a_mark_stands_shortly_before_the_place_where_prompts_part() -> None:
    job = conversation(60)
    assert planned(job, 512, [512], 32, fork=907) == [512, 896, 1000, 1060]
    assert LEAST_GAP > 907 - 896
    assert planned(job, 896, [512, 896], 32, fork=907) == [1000, 1060], "there is one already"


def test_the_order_in_which_marks_leave() -> None:
    job = conversation(300, 300, 300, 300, 300)
    lengths = [512, 1000, 1300, 1600, 1900, 2200, 2500]
    left = [thinned(lengths, n, n_system=job.n_system, spans=job.spans) for n in range(7, 0, -1)]
    assert left[0] == lengths
    assert [min(set(a) - set(b)) for a, b in pairwise(left)] == [1300, 512, 1900, 1600, 2200, 2500]
    assert left[-1] == [1000]


def test_what_an_agent_may_lose_first_is_behind_its_task() -> None:
    """The task is kept; the calls behind it leave. Going back to before them needs its own mark."""
    job = conversation(500, 100, 100, 100)
    spans = tuple(Span(s.start, s.stop, s.message, s.turn, keep=s.message in {0, 1, 4}) for s in job.spans)
    assert pins(SYSTEM, spans) == {1000, 1500}
    assert pins(0, spans[:2]) == set()
