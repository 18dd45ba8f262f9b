"""The file: who may read it, which files are taken, and which are refused."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from shepherd.core import ConfigError, MemoryFailure
from shepherd.memory import schema
from shepherd.memory.records import Entry
from shepherd.memory.schema import APPLICATION_ID, VERSION, open_file
from shepherd.memory.store import MemoryStore


def test_a_new_file_and_those_beside_it_are_for_their_owner_alone(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "folder" / "m.db") as store:
        store.archive([Entry("user", "a secret")])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "folder").iterdir()}
        assert modes == {"m.db": 0o600, "m.db-wal": 0o600, "m.db-shm": 0o600}
        assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["m.db"]


def test_a_file_has_its_application_id_and_keeps_its_content(tmp_path: Path) -> None:
    connection = open_file(tmp_path / "m.db")
    pragmas = {
        name: connection.pragma(name) for name in ("application_id", "user_version", "journal_mode", "auto_vacuum")
    }
    assert pragmas == {
        "application_id": APPLICATION_ID,
        "user_version": VERSION,
        "journal_mode": "wal",
        "auto_vacuum": 2,
    }
    assert (connection.pragma("synchronous"), connection.pragma("secure_delete")) == (2, 1)
    strict = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND NOT strict"
    assert not [name for (name,) in connection.execute(strict) if not name.startswith(("sqlite_", "fts_", "terms_"))]
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO message(conversation) VALUES('one')")
    connection.close()


def test_the_map_of_the_file_is_as_large_as_asked_for(tmp_path: Path) -> None:
    open_file(tmp_path / "m.db").close()
    for size in (0, 1 << 20):
        connection = open_file(tmp_path / "m.db", mmap_size=size, readonly=True)
        assert connection.pragma("mmap_size") == size
        connection.close()


def test_two_may_make_a_file_at_once_whenever_the_one_overtakes_the_other(tmp_path: Path) -> None:
    """The second opens the file whole just before a statement of the first, each one in turn."""

    def overtaken(path: Path, at: int) -> bool:
        """Whether the first got as far as its statement `at`."""
        n_seen = 0

        def before(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
            nonlocal n_seen
            n_seen += 1
            if n_seen - 1 == at and not cursor.connection.in_transaction:
                apsw.connection_hooks.remove(hook)
                open_file(path).close()
            return True

        def hook(connection: apsw.Connection) -> None:
            connection.exec_trace = before

        apsw.connection_hooks.append(hook)
        try:
            open_file(path).close()
        finally:
            if hook in apsw.connection_hooks:
                apsw.connection_hooks.remove(hook)
        with MemoryStore(path) as store:
            assert store.check(deep=True) == []
        return n_seen > at

    at = 0
    while overtaken(tmp_path / f"{at}.db", at):
        at += 1
    assert at > 6


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    open_file(path).close()
    before = path.read_bytes()
    open_file(path).close()
    assert path.read_bytes() == before


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes(text)")
    connection.close()


def newer(path: Path) -> None:
    connection = open_file(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("hello, I am a letter and no database " * 50), "is not a memory of Shepherd"),
    "another program's": (foreign, "is a database, but not a memory of Shepherd"),
    "a newer version's": (newer, "was written by a newer Shepherd (version 2 of the file, this one knows 1)"),
    "another user's": (lambda path: open_file(path, user="eve").close(), "is the memory of another user"),
    "a folder": (lambda path: path.mkdir(), "cannot be opened: Is a directory"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    make, says = REFUSED[kind]
    path = tmp_path / "m.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigError) as refused:
        MemoryStore(path)
    assert says in refused.value.message
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_an_empty_file_becomes_a_memory(tmp_path: Path) -> None:
    (tmp_path / "m.db").touch()
    with MemoryStore(tmp_path / "m.db") as store:
        assert store.archive([Entry("user", "hello")]) == [1]


def test_a_damaged_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    open_file(path).close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996
    path.write_bytes(content)
    with pytest.raises(MemoryFailure, match="its file is damaged"):
        MemoryStore(path)


def test_the_tables_are_made_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = open_file(path)
    tables = sorted(name for (name,) in connection.execute("SELECT name FROM sqlite_schema"))
    connection.close()
    assert {"message", "conversation", "fact", "vector", "erased", "alias", "about", "embedder"} <= {*tables}
    assert schema.VERSION == 1


def test_ids_are_never_given_twice(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.db") as store:
        first = store.archive([Entry("user", "one")], session="a")
        store.forget(first)
        assert store.archive([Entry("user", "two")], session="a") > first
