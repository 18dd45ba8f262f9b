"""The tests of `tests/unit/engine/test_scheduler.py` that take long."""

from __future__ import annotations

from tests.cases import amount
from tests.fake_engine import PLAIN
from tests.unit.engine.test_scheduler import RAM, Day


def test_these_days_are_eventful() -> None:
    """The test above is only as good as what happens in it."""
    happened = dict.fromkeys(
        ("evictions", "preemptions", "rebases", "dropped", "saved", "restored", "spliced", "cancelled", "kept to"), 0
    )
    for seed in range(30, amount(48, 60)):
        day = Day(seed, PLAIN, RAM, reuse_tail=True)
        day.pass_by(150)
        for name in happened:
            happened[name] += getattr(day.scheduler.pool.totals, name, 0)
        happened["spliced"] += day.scheduler.pool.n_spliced
        happened["cancelled"] += sum(sent.ticket.cancelled for sent in day.sent)
        happened["kept to"] += sum(sent.job.grammar is not None and len(sent.answer) > 6 for sent in day.sent)
    assert min(happened.values()) > amount(0, 2), happened
