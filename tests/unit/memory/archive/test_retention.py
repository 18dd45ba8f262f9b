"""Room: what is given up first, what never is, and that a memory stays within its limit whatever comes."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from shepherd.memory import schema
from shepherd.memory.archive import check, facts, retention
from shepherd.memory.archive import history as archive
from shepherd.memory.records import Call, Entry, State

MIB = 2**20
RANDOM = random.Random(5)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=RANDOM.randint(3, 9))) for _ in range(2000)]


def text(n_chars: int, seed: object) -> str:
    chosen = random.Random(repr(seed)).choices(WORDS, k=n_chars // 6)
    return " ".join(chosen)[:n_chars]


def stored(db: apsw.Connection, history: Sequence[Entry], state: State = State.EVICTED) -> list[int]:
    with db:
        ids = archive.archive(db, history)
        db.execute("UPDATE message SET state = ? WHERE id >= ?", (int(state), ids[0]))
    return ids


def rows(db: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    return list(db.execute(sql, values))


def given_up(db: apsw.Connection, path: Path, limit_bytes: int, n_steps: int = 1000) -> list[int]:
    """Take steps until there is nothing more to do; the size after each."""
    sizes = []
    for _ in range(n_steps):
        with db:
            done = retention.step(db, path, limit_bytes)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        sizes.append(sum(retention.sizes(db, path)))
        if not done:
            return sizes
    return sizes


def kinds(db: apsw.Connection) -> set[tuple[str, str]]:
    """What is left of the messages: role, and how much."""
    how = "CASE WHEN state <> 2 THEN 'whole' WHEN body = '' THEN 'place' ELSE 'ends' END"
    return set(rows(db, f"SELECT role, {how} FROM message"))


def conversations(n: int, n_chars: int = 3000) -> Iterator[list[Entry]]:
    for i in range(n):
        yield [
            Entry("user", f"question {i} " + text(200, (i, "u"))),
            Entry("assistant", "", calls=(Call(f"c{i}", "look", json.dumps({"path": text(900, (i, "c"))})),)),
            Entry("tool", text(n_chars, (i, "t")), tool="look", call_id=f"c{i}"),
            Entry("assistant", f"answer {i} " + text(1000, (i, "a"))),
        ]


def full(db: apsw.Connection, path: Path, n: int = 60) -> int:
    """A memory of evicted turns; its size."""
    for history in conversations(n):
        stored(db, history)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return sum(retention.sizes(db, path))


def test_nothing_is_pruned_below_nine_tenths_of_the_limit(db: apsw.Connection, path: Path) -> None:
    size = full(db, path, 10)
    assert retention.step(db, path, int(size / 0.89)) == 0
    assert {how for _, how in kinds(db)} == {"whole"}


def test_tool_results_are_pruned_before_answers_and_those_before_users_messages(
    db: apsw.Connection, path: Path
) -> None:
    """The limit is lowered little by little; each thing starts to go when all of the one before is gone."""
    size = full(db, path)
    newest = "id <= (SELECT max(id) - 4 FROM message)"
    seen: list[tuple[int, int, int]] = []
    for percent in range(105, 35, -5):
        given_up(db, path, size * percent // 100)
        (counts,) = rows(
            db,
            "SELECT total(role = 'tool' AND length(body) > 1200), total(role = 'assistant' AND state = 1), "
            f"total(role = 'user' AND state = 1) FROM message WHERE {newest}",
        )
        seen.append(counts)
    n_tools, n_answers, n_users = zip(*seen, strict=True)
    assert sorted(n_tools, reverse=True) == list(n_tools)
    assert n_tools[-1] == n_answers[-1] == 0
    assert n_users[-1] < 59
    for tools, answers, users in seen:
        assert answers == 118 or tools == 0
        assert users == 59 or answers == 0
    assert check.check(db, deep=True) == []


def test_of_a_result_both_ends_are_kept_and_found_the_middle_is_not(db: apsw.Connection, path: Path) -> None:
    body = f"alphastart {text(2000, 1)} middlemost {text(2000, 2)} omegaend 茶"
    (id,) = stored(db, [Entry("tool", body, tool="x", call_id="1")])
    stored(db, [Entry("user", f"{n}") for n in range(4)])
    given_up(db, path, 1000, n_steps=1)
    ((short, state),) = rows(db, "SELECT body, state FROM message WHERE id = ?", id)
    assert short.startswith(body[:500])
    assert short.endswith(body[-500:])
    assert f"[{len(body) - 1000} characters were given up here]" in short
    assert state == State.PRUNED
    assert [rows(db, "SELECT rowid FROM fts_other WHERE fts_other MATCH ?", w) for w in ("alphastart", "omegaend")] == [
        [(id,)],
        [(id,)],
    ]
    assert rows(db, "SELECT rowid FROM fts_other WHERE fts_other MATCH '\"茶\"'") == [(id,)]
    assert rows(db, "SELECT rowid FROM fts_other WHERE fts_other MATCH 'middlemost'") == []


def test_long_arguments_go_with_the_answer_that_calls(db: apsw.Connection, path: Path) -> None:
    calls = (Call("1", "write", json.dumps({"text": text(2000, 1)})), Call("2", "ls", '{"path": "."}'))
    (id,) = stored(db, [Entry("assistant", "I write", calls=calls)])
    stored(db, [Entry("user", f"{n}") for n in range(4)])
    given_up(db, path, 1000, n_steps=1)
    ((body, meta),) = rows(db, "SELECT body, meta FROM message WHERE id = ?", id)
    assert body == ""
    assert [call["arguments"] for call in json.loads(meta)["calls"]] == ["{}", '{"path": "."}']


def test_a_pruned_message_is_not_stored_again(db: apsw.Connection, path: Path) -> None:
    histories = list(conversations(12, n_chars=500))
    ids = [stored(db, history) for history in histories]
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    given_up(db, path, sum(retention.sizes(db, path)) * 9 // 10)
    assert ("assistant", "place") in kinds(db)
    assert [stored(db, history) for history in histories] == ids


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("limit", [0, 1000, 200_000])
def test_pinned_messages_notes_and_sources_of_facts_are_never_pruned(
    db: apsw.Connection, path: Path, limit: int
) -> None:
    pinned, sourced = stored(db, [Entry("user", text(2000, 1)), Entry("user", text(2000, 2))])
    notes = archive.add_conversation(db, uuid=archive.NOTES, source=archive.NOTES)
    (note,) = archive.add_messages(db, notes, [archive.NewMessage(Entry("user", text(2000, 3)), 0, 0, b"note")])
    db.execute("UPDATE message SET pinned = 1 WHERE id = ?", (pinned,))
    facts.set_fact(db, "tea", "green")
    facts.set_fact(db, "tea", "black", source=sourced)
    whole = rows(db, "SELECT id, body FROM message ORDER BY id")
    full(db, path, 30)
    given_up(db, path, limit)
    assert rows(db, "SELECT id, body FROM message WHERE id <= ? ORDER BY id", note) == whole
    assert [fact.value for fact in facts.history(db, "tea")] == ["black", "green"]
    assert check.check(db, deep=True) == []


def test_what_may_be_in_a_context_goes_last_oldest_first_and_only_above_the_limit(
    db: apsw.Connection, path: Path
) -> None:
    live = [id for history in conversations(20) for id in stored(db, history, State.LIVE)]
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    size = sum(retention.sizes(db, path))
    given_up(db, path, int(size * 1.05))
    assert [id for (id,) in rows(db, "SELECT id FROM message ORDER BY id")] == live
    given_up(db, path, int(size * 0.8))
    left = [id for (id,) in rows(db, "SELECT id FROM message WHERE state = 0 ORDER BY id")]
    assert left == live[-len(left) :]
    assert 4 < len(left) < len(live)
    given_up(db, path, 0)
    assert [id for (id,) in rows(db, "SELECT id FROM message")] == live[-4:]


def test_too_many_empty_rows_are_deleted_before_users_messages_are_pruned(db: apsw.Connection, path: Path) -> None:
    """Otherwise a small memory would end up with nothing but places of messages that it has no longer."""
    for i in range(300):
        stored(db, [Entry("user", f"{i} " + text(80, i)), Entry("assistant", f"{i} " + text(80, -i))])
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    limit = sum(retention.sizes(db, path)) * 8 // 10
    given_up(db, path, limit)
    ((n_places, n_users),) = rows(db, "SELECT sum(state = 2), sum(state = 1 AND role = 'user') FROM message")
    assert 0 < n_places * retention.EMPTY_ROW_BYTES <= 1.5 * retention.EMPTY_ROWS * limit
    assert n_users > 100


def test_the_log_counts(db: apsw.Connection, path: Path) -> None:
    stored(db, [Entry("user", text(50_000, 1))])
    log = Path(f"{path}-wal").stat().st_size
    assert log > 50_000
    before = sum(retention.sizes(db, path))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert sum(retention.sizes(db, path)) == before - log
    assert sum(retention.sizes(schema.open_file(":memory:"), ":memory:")) > 0


def test_a_log_that_is_too_long_counts_for_its_proper_length_only(db: apsw.Connection, path: Path) -> None:
    stored(db, [Entry("user", text(200_000, 1))])
    log, proper = Path(f"{path}-wal").stat().st_size, retention.log_pages(MIB) * 4096
    assert log > proper
    assert retention.weight_bytes(db, path, MIB) == sum(retention.sizes(db, path)) - log + proper
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert retention.weight_bytes(db, path, MIB) == sum(retention.sizes(db, path))


@pytest.mark.parametrize(("limit", "pages"), [(0, 8), (MIB, 8), (20 * MIB, 160), (10 * 2**30, 1000)])
def test_the_log_is_short_where_the_limit_is_small(limit: int, pages: int) -> None:
    assert retention.log_pages(limit) == pages


def test_the_place_of_a_message_is_not_found_by_what_stood_around_it(db: apsw.Connection, path: Path) -> None:
    (asked, answered) = stored(db, [Entry("user", "xylophones?"), Entry("assistant", "yes")])
    stored(db, [Entry("user", f"{n}") for n in range(4)])
    assert rows(db, "SELECT rowid FROM fts_other WHERE fts_other MATCH 'xylophones'") == [(answered,)]
    given_up(db, path, 1000, n_steps=1)
    assert rows(db, "SELECT state FROM message WHERE id IN (?, ?)", asked, answered) == [(1,), (2,)]
    assert rows(db, "SELECT rowid FROM fts_other WHERE fts_other MATCH 'xylophones'") == []


def test_pages_are_joined_when_their_rows_have_shrunk(db: apsw.Connection, path: Path) -> None:
    """SQLite does not do so by itself, and the room would not be there for anything else."""
    stored(db, [Entry("assistant", text(900, n)) for n in range(400)])
    pages = "SELECT count(*) FROM dbstat WHERE name = ?"
    before = [rows(db, pages, name)[0][0] for name in ("message", "fts_other_data")]
    given_up(db, path, 1000, n_steps=20)
    after = [rows(db, pages, name)[0][0] for name in ("message", "fts_other_data")]
    assert rows(db, "SELECT count(*) FROM message WHERE state = 2") == [(396,)]
    assert [now < then / 3 for now, then in zip(after, before, strict=True)] == [True, True]
