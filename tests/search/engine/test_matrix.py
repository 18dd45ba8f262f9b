"""The tests of `tests/process/engine/test_matrix.py` that take long."""

from __future__ import annotations

from typing import Any

import pytest
from tests.process.engine.test_matrix import (
    EXACT,
    LIVES,
    Teller,
    compare_drafts,
    named,
    tell,  # noqa: F401 - fixtures
)

pytestmark = pytest.mark.model


@pytest.mark.parametrize("name", ["plain", "gemma3", "mrope", "recurrent", "hybrid"])
def test_nothing_that_can_be_asked_ends_the_process(tell: Teller, name: str) -> None:
    told = tell(kind=name, story="refuse")
    assert len(told["facts"]) == 20
    assert {what: answer for what, answer in told["facts"].items() if answer} == {}
    assert told["errors"]["after all that"] < EXACT


@pytest.mark.parametrize(("name", "chosen", "gate"), [life[:3] for life in LIVES], ids=named)
def test_drafts_change_none_of_ten_thousand_answers_but_where_two_tokens_tie(
    tell: Teller, name: str, chosen: dict[str, Any], gate: tuple[bool, str, bool, bool, bool]
) -> None:
    """On all kinds of models together, with conversations that leave in between."""
    facts = compare_drafts(tell, name, chosen, gate, n=300)
    print(name, chosen, facts)
    assert facts["answers"] > 500
