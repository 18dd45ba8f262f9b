"""The tests of `tests/unit/engine/test_matrix.py` that start programs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.test_matrix import (
    LIVES,
    Teller,
    model,
    named,
    tell,  # noqa: F401 - fixtures
)

pytestmark = pytest.mark.model

CLOSE = 0.02
"""Between the two best logits, in standard deviations: nearer ones may change places with the rounding."""


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("name", "chosen"), [life[:2] for life in LIVES], ids=named)
def test_the_engine_answers_on_every_model_like_a_cold_one(tell: Teller, name: str, chosen: dict[str, Any]) -> None:
    told = tell(**model(name), **chosen, story="schedule")
    assert told["errors"]["choices"] <= CLOSE, "a choice that was not close went wrong"
    assert told["facts"]["the next turn"] == 105, "all but the last token of the answer, which was never decoded"
    if told["memory"]["share"]:
        assert told["facts"]["an edit"] == 80
    assert told["facts"]["evicted"] > 200
