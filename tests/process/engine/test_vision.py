"""The tests of `tests/unit/engine/test_vision.py` that start programs."""

from __future__ import annotations

import asyncio
from array import array

import pytest
from tests.unit.engine import kinds

from shepherd.engine.base import Admitted, Job, Media
from shepherd.engine.media import tokens_of

pytestmark = pytest.mark.model


async def test_images_cross_into_a_child() -> None:
    """Its runtime checks that the tokens of each image are those of its key."""
    media = Media(b"an image", 5, b"its file")
    tokens = array("i", [1, 2, *tokens_of(media), 3])
    engine = kinds.child(kinds.Setup())
    try:
        job = Job(tokens, 3, media={2: media})
        answers = [[step async for steps in engine.submit(job).batches() for step in steps] for _ in range(2)]
    finally:
        assert await asyncio.to_thread(engine.close)
    assert [answer[0] for answer in answers] == [Admitted(0, 8), Admitted(7, 1)]
    assert len([step for step in answers[0] if isinstance(step, int)]) == 3
