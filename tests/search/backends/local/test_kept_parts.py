"""The tests of `tests/unit/backends/local/test_kept_parts.py` that take long."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from tests.unit.backends.local.test_kept_parts import continued, request, spoken

from shepherd.backends.local.kept_prefix import KeptAnswers, KeptPrompts
from shepherd.core import Message
from shepherd.dialects import Piece, Prompt, Segment


def short_answers() -> KeptAnswers:
    answers = KeptAnswers(limit_bytes=LIMIT_BYTES)
    for n in range(5_000):
        answers.keep(request(Message.user(str(n))), spoken(Message.assistant(f"It is {n}."), f"It is {n}."))
    return answers


def short_prompts() -> KeptPrompts:
    prompts = KeptPrompts(limit_bytes=LIMIT_BYTES)
    for n in range(5_000):
        pieces = (Piece("<|user|>", None), Piece(f"What is {n}?", 0), Piece("<|end|>", None))
        size = sum(len(piece.text) for piece in pieces)
        continued(prompts, request(Message.user(str(n))), Prompt(pieces, "", (), (Segment(0, size, 0),)))
    return prompts


def long_prompts() -> KeptPrompts:
    """Of many messages, in letters that take four bytes each."""
    prompts = KeptPrompts(limit_bytes=LIMIT_BYTES)
    for n in range(50):
        text = f"{n} " + "\U0001f411" * 1000
        messages = [Message.user(text)] * 10
        pieces = tuple(Piece(f"{text} {at}", at) for at in range(10))
        segments = tuple(Segment(at * 1000, at * 1000 + 1000, at) for at in range(10))
        continued(prompts, request(*messages), Prompt(pieces, "", (), segments))
    return prompts


LIMIT_BYTES = 500_000


@pytest.mark.parametrize("fill", [short_answers, short_prompts, long_prompts])
def test_what_is_remembered_takes_no_more_memory_than_its_limit_however_short_it_is(
    fill: Callable[[], KeptAnswers | KeptPrompts],
) -> None:
    tracemalloc.start()
    try:
        kept = fill()
        gc.collect()
        n_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    del kept
    assert 0.3 * LIMIT_BYTES < n_bytes < 1.3 * LIMIT_BYTES
