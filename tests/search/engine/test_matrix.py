"""The tests of `tests/process/engine/test_matrix.py` that take long."""

from __future__ import annotations

import pytest
from tests.process.engine.test_matrix import (
    EXACT,
    Teller,
    tell,  # noqa: F401 - fixtures
)

pytestmark = pytest.mark.model


@pytest.mark.parametrize("name", ["plain", "gemma3", "mrope", "recurrent", "hybrid"])
def test_nothing_that_can_be_asked_ends_the_process(tell: Teller, name: str) -> None:
    told = tell(kind=name, story="refuse")
    assert len(told["facts"]) == 20
    assert {what: answer for what, answer in told["facts"].items() if answer} == {}
    assert told["errors"]["after all that"] < EXACT
