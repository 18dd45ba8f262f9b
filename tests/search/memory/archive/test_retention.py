"""The tests of `tests/unit/memory/archive/test_retention.py` that take long."""

from pathlib import Path

import apsw
import pytest
from tests.unit.memory.archive.test_retention import MIB, given_up, rows, stored, text

from shepherd.memory.archive import check, facts, retention
from shepherd.memory.records import Entry, State


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(
    ("state", "n_chars", "times"), [(State.LIVE, 1500, 5), (State.EVICTED, 1500, 5), (State.EVICTED, 120, 1)]
)
def test_several_times_the_limit_stays_within_the_limit_and_one_batch(
    db: apsw.Connection, path: Path, state: State, n_chars: int, times: int
) -> None:
    limit, batch = MIB // 4, 40 * n_chars
    pages = retention.log_pages(limit)
    db.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchall()
    db.execute(f"PRAGMA journal_size_limit = {pages * 4096}").fetchall()
    facts.set_fact(db, "tea", "green")
    said, largest, n = 0, 0, 0
    while said < times * limit:
        turns = [
            Entry(role, f"turn {n} {role} {text(n_chars, n + i)}") for i in range(10) for role in ("user", "assistant")
        ]
        stored(db, turns, state)
        said, n = said + sum(len(entry.body) for entry in turns), n + 1
        given_up(db, path, limit)
        largest = max(largest, sum(Path(f"{path}{end}").stat().st_size for end in ("", "-wal")))
    assert largest <= limit + batch + pages * 4096
    fact = facts.get_fact(db, "tea")
    assert fact is not None
    assert rows(db, "SELECT count(*) FROM message WHERE body LIKE 'turn 0 %'") == [(0,)]
    assert rows(db, "SELECT count(*) FROM message WHERE body LIKE ?", f"turn {n - 1} user%")[0][0] >= 2
    assert rows(db, "SELECT rowid FROM fts_user WHERE fts_user MATCH 'turn'") != []
    assert check.check(db, deep=True) == []
