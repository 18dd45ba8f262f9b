"""Is the file sound: every kind of damage is told, what can be mended is, and nothing is told of a sound file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from shepherd.memory import schema
from shepherd.memory.archive import check, facts, forget, history, index, retention
from shepherd.memory.records import Entry


@pytest.fixture
def db(path: Path) -> Iterator[apsw.Connection]:
    connection = schema.open_file(path)
    with connection:
        for n in range(20):
            history.archive(
                connection,
                [
                    Entry("system", "Be kind."),
                    Entry("user", f"question {n} about 茶"),
                    Entry("assistant", f"answer {n} " + "word " * 200),
                    Entry("tool", f"result {n} " + "text " * 500, tool="x", call_id="1"),
                    Entry("tool", "secret", tool="search_memory", call_id="2", recalled=True),
                    Entry("user", "thanks"),
                ],
            )
        facts.set_fact(connection, "tea", "green", source=2)
        facts.set_fact(connection, "tea", "black")
    yield connection
    connection.close()


def test_a_sound_memory_has_no_problems_after_any_operation(db: apsw.Connection, path: Path) -> None:
    assert check.check(db) == check.check(db, deep=True) == []
    with db:
        db.execute("UPDATE message SET state = 1 WHERE id < 60")
        for _ in range(4):
            retention.step(db, path, 1000)
        forget.remove(db, [70, 71, 90])
    assert check.check(db, deep=True) == []
    assert forget.scrub(db)
    assert check.check(db, deep=True) == []
    with db:
        assert check.repair(db) == []


DAMAGE = {
    "INSERT INTO vector(message, embedder, bits, q8) VALUES(999, 7, x'00', x'00')": ("orphan", True),
    "INSERT INTO alias(chain, message, tip) VALUES(x'01', 999, 1)": ("orphan", True),
    "UPDATE fact SET source = 999": ("orphan", True),
    "UPDATE message SET before1 = 999 WHERE id = 6": ("orphan", True),
    "UPDATE message SET before2 = 999 WHERE id = 6": ("orphan", True),
    "UPDATE message SET conversation = 999 WHERE id = 6": ("orphan", False),
    "UPDATE message SET seq = 9 WHERE id = 6": ("gap", False),
    "DELETE FROM fts_user_docsize WHERE id = 2": ("index", True),
    "DELETE FROM fts_other_data WHERE id > 100": ("index", True),
    "INSERT INTO fts_user(rowid, body, context) VALUES(777, 'x', '')": ("index", True),
    "INSERT INTO fts_other(rowid, body, context) VALUES(2, 'x', '')": ("index", True),
    "INSERT INTO fts_user(fts_user, rank) VALUES('secure-delete', 0)": ("index", True),
    "PRAGMA application_id = 7": ("damage", False),
    "PRAGMA user_version = 77": ("damage", False),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_reported_and_repaired_where_possible(db: apsw.Connection, damage: str) -> None:
    kind, can_repair = DAMAGE[damage]
    db.execute(damage)
    found = check.check(db)
    assert (kind, can_repair) in {(problem.kind, problem.can_repair) for problem in found}
    assert all(problem.text for problem in found)
    with db:
        left = check.repair(db)
    assert (kind in {problem.kind for problem in left}) == (not can_repair)
    assert left == check.check(db, deep=True)


def test_two_current_values_of_a_key_are_reported(db: apsw.Connection) -> None:
    db.execute("DROP INDEX fact_current")
    db.execute("UPDATE fact SET status = 'current'")
    assert [problem.text for problem in check.check(db)] == ["'tea' has 2 current values"]


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_file_that_others_can_read_is_reported_and_closed_to_them(db: apsw.Connection, path: Path, end: str) -> None:
    os.chmod(f"{path}{end}", 0o644)
    (problem,) = check.check(db)
    assert (problem.kind, problem.can_repair) == ("file", True)
    assert f"{path}{end} may be read or written by others (mode 644)" in problem.text
    with db:
        assert check.repair(db) == []
    assert os.stat(f"{path}{end}").st_mode & 0o777 == 0o600


def test_overwritten_pages_are_reported_without_a_traceback(db: apsw.Connection, path: Path) -> None:
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'message'")
    db.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xa5" * 4096)
    broken = schema.open_file(path)
    assert "damage" in {problem.kind for problem in check.check(broken)}
    broken.close()


def test_rebuilt_indexes_find_the_same(db: apsw.Connection) -> None:
    def findings() -> list[list[Any]]:
        queries = ["question", '"茶"', "answer OR thanks", "word", "kind"]
        return [
            sorted(db.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,)))
            for table in dict.fromkeys(index.TABLE_OF_ROLE.values())
            for query in queries
        ]

    before = findings()
    assert any(before)
    with db:
        check.repair(db)
    assert findings() == before
