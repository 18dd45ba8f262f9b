"""The tests of `tests/process/engine/test_matrix.py` that take long."""

from __future__ import annotations

from typing import Any

import pytest
from tests.process.engine.test_matrix import (
    EXACT,
    LIVES,
    Teller,
    compare_drafts,
    tell,  # noqa: F401 - fixtures
)

pytestmark = pytest.mark.model


@pytest.mark.parametrize("name", ["plain", "gemma3", "mrope", "recurrent", "hybrid"])
def test_nothing_that_can_be_asked_ends_the_process(tell: Teller, name: str) -> None:
    told = tell(kind=name, story="refuse")
    assert len(told["facts"]) == 20
    assert {what: answer for what, answer in told["facts"].items() if answer} == {}
    assert told["errors"]["after all that"] < EXACT


def test_drafts_change_none_of_ten_thousand_answers_but_where_two_tokens_tie(tell: Teller) -> None:
    """Of every kind of model, with conversations that leave in between. Printed: how many differ, and how far apart the
    two best tokens were where they do first."""
    counts: dict[str, Any] = {}
    for name, chosen, gate, _ in LIVES:
        facts = compare_drafts(tell, name, chosen, gate, n=260)
        counts[f"{name} {chosen.get('options', '')}"] = facts
        print(name, chosen, facts)
    assert sum(facts["answers"] for facts in counts.values()) > 10_000
    assert sum(facts["different"] for facts in counts.values()) <= 50
