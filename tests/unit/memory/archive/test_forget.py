"""Forgetting: what is found to be forgotten, what goes with it, and that no byte of it is left in any file."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from shepherd.core import InvalidRequest
from shepherd.memory import schema
from shepherd.memory.archive import check, facts, forget, retention
from shepherd.memory.archive import history as archive
from shepherd.memory.records import Call, Entry

SECRET = "My locker at the Quibblesnorting museum opens with 4711"
HISTORY = [
    Entry("system", "You are helpful."),
    Entry("user", SECRET),
    Entry("assistant", "Noted: the Quibblesnorting museum."),
    Entry("user", "And what is the weather?"),
    Entry("assistant", "", calls=(Call("c1", "web", '{"query": "weather \\"Straße\\" caf\\u00e9"}'),)),
    Entry("tool", "Rain in the evening.", tool="web", call_id="c1"),
    Entry("assistant", "Rain."),
]


def stored(db: apsw.Connection, history: Sequence[Entry] = HISTORY, **options: Any) -> list[int]:
    ids: list[int] = []
    with db:
        ids += archive.archive(db, history, **options)
    return ids


def rows(db: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    return list(db.execute(sql, values))


def found(db: apsw.Connection, word: str) -> list[int]:
    both = " UNION ALL ".join(
        f"SELECT rowid FROM {table} WHERE {table} MATCH ?1" for table in ("fts_user", "fts_other")
    )
    return sorted(id for (id,) in db.execute(both, (f'"{word}"',)))


def bytes_of(path: Path) -> bytes:
    return b"".join(Path(f"{path}{end}").read_bytes() for end in ("", "-wal", "-shm"))


@pytest.mark.parametrize(
    ("phrase", "places"),
    [
        ("quibblesnorting MUSEUM", [1, 2]),
        ("Quibblesnorting\n  museum", [1, 2]),
        ("snorting mus", [1, 2]),
        ("RAIN.", [6]),
        ("strasse", [4]),
        ("café", [4]),
        ("web", [4, 5]),
        ("helpful", [0]),
        ("museum weather", []),
    ],
)
def test_a_phrase_is_found_in_texts_and_calls_in_any_case(db: apsw.Connection, phrase: str, places: list[int]) -> None:
    ids = stored(db)
    assert forget.find(db, matching=phrase) == [ids[place] for place in places]


def test_what_is_asked_for_must_all_be_so(db: apsw.Connection) -> None:
    old = stored(db, [Entry("user", "old tea", created_ms=1000), Entry("assistant", "old cup", created_ms=2000)])
    new = stored(db, [Entry("user", "new tea", created_ms=9000)])
    (uuid,) = rows(db, "SELECT uuid FROM conversation WHERE id = 1")[0]
    assert forget.find(db, conversation=uuid) == old
    assert forget.find(db, before_ms=2000) == old[:1]
    assert forget.find(db, conversation=uuid, matching="tea") == old[:1]
    assert forget.find(db, messages=[*new, 99], matching="tea", before_ms=10_000) == new
    assert forget.find(db, conversation="nobody") == []


@pytest.mark.parametrize("asked", [{}, {"messages": ()}, {"matching": ""}, {"matching": " \n"}])
def test_forgetting_nothing_in_particular_is_refused(db: apsw.Connection, asked: dict[str, Any]) -> None:
    stored(db)
    with pytest.raises(InvalidRequest):
        forget.find(db, **asked)


def test_a_message_goes_with_its_vector_its_title_its_fact_and_its_quotations(db: apsw.Connection) -> None:
    ids = stored(db)
    db.execute("INSERT INTO embedder(id, name, dim) VALUES(1, 'm', 8)")
    db.execute("INSERT INTO vector(message, embedder, bits, q8) VALUES(?, 1, x'00', x'00')", (ids[1],))
    facts.set_fact(db, "locker", "4711", source=ids[1])
    facts.set_fact(db, "said", SECRET.upper())
    kept = facts.set_fact(db, "tea", "green")
    assert found(db, "museum")[:3] == ids[1:4], "the message, its answer, and the question that quotes them"
    assert rows(db, "SELECT title FROM conversation") == [(SECRET,)]
    with db:
        removed = forget.remove(db, ids[1:3])
    assert (removed.n_messages, removed.n_facts) == (2, 2)
    assert set(removed.shas) == {HISTORY[1].sha, HISTORY[2].sha}
    assert found(db, "museum") == []
    assert found(db, "weather")[:2] == [ids[3], ids[4]]
    assert rows(db, "SELECT id FROM message ORDER BY id") == [(id,) for id in ids if id not in ids[1:3]]
    assert rows(db, "SELECT title FROM conversation") == [("",)]
    assert rows(db, "SELECT count(*) FROM vector") == [(0,)]
    assert facts.facts(db) == [kept]
    assert check.check(db, deep=True) == []


def test_a_quotation_stays_where_only_the_other_one_was_forgotten(db: apsw.Connection) -> None:
    first, second, third = stored(db, [Entry("user", "apples"), Entry("assistant", "pears"), Entry("user", "and?")])
    with db:
        forget.remove(db, [second])
    assert found(db, "apples") == [first, third]
    assert found(db, "pears") == []


def test_a_branch_does_not_quote_what_was_forgotten_in_the_conversation_that_it_left(db: apsw.Connection) -> None:
    ids = stored(db, [Entry("user", "xylophones"), Entry("assistant", "yes"), Entry("user", "one")], session="s")
    other = stored(db, [Entry("user", "xylophones"), Entry("assistant", "yes"), Entry("user", "two")], session="s")
    assert other[:2] == ids[:2]
    assert found(db, "xylophones") == [*ids, other[2]]
    with db:
        forget.remove(db, ids[:1])
    assert found(db, "xylophones") == []


def test_facts_and_titles_that_say_the_phrase_go_with_it(db: apsw.Connection) -> None:
    stored(db, [Entry("user", "About the Hovercraft")])
    facts.set_fact(db, "vehicle", "a HOVERCRAFT full of eels")
    facts.set_fact(db, "hovercraft_owner", "Ann")
    facts.set_fact(db, "tea", "green")
    with db:
        removed = forget.remove(db, [], matching="hovercraft")
    assert removed.n_facts == 2
    assert [fact.key for fact in facts.facts(db)] == ["tea"]
    assert rows(db, "SELECT title FROM conversation") == [("",)]


def test_a_fact_stays_when_a_message_only_shares_a_word_with_it(db: apsw.Connection) -> None:
    ids = stored(db, [Entry("user", "green is my colour"), Entry("assistant", "ok")])
    facts.set_fact(db, "tea", "green")
    facts.set_fact(db, "look", "a book of tokens")
    with db:
        assert forget.remove(db, ids).n_facts == 0


def test_a_history_that_is_sent_again_does_not_bring_back_what_was_forgotten(db: apsw.Connection) -> None:
    history = [Entry("user", SECRET), Entry("assistant", "Noted, it is in the museum of the town where you live.")]
    ids = stored(db, history, session="s")
    db.execute("UPDATE message SET pinned = 1")
    with db:
        forget.remove(db, ids)
    again = stored(db, [*history, Entry("user", "Thanks")], session="s")
    assert [id > 0 for id in again] == [False, False, True]
    assert rows(db, "SELECT count(*) FROM message") == [(1,)]


def test_a_conversation_goes_with_its_last_message_but_not_from_under_a_branch(db: apsw.Connection) -> None:
    stored(db, [Entry("user", "xylophones"), Entry("assistant", "yes"), Entry("user", "one")])
    stored(db, [Entry("user", "xylophones"), Entry("assistant", "yes"), Entry("user", "two")])
    stored(db, [Entry("user", "alone")])
    with db:
        forget.remove(db, [id for (id,) in rows(db, "SELECT id FROM message WHERE conversation <> 2")])
    assert rows(db, "SELECT id FROM conversation ORDER BY id") == [(1,), (2,)]
    assert rows(db, "SELECT body FROM message") == [("two",)]


def test_many_are_forgotten_at_once(db: apsw.Connection) -> None:
    history = [Entry("user", f"message number {n}") for n in range(forget.BULK + 50)]
    ids = stored(db, history)
    with db:
        assert forget.remove(db, ids[:-20]).n_messages == len(ids) - 20
    assert found(db, "message") == ids[-20:]
    assert rows(db, "SELECT context FROM message WHERE id = ?", ids[-20])[0][0].count("\n") == 0
    assert check.check(db, deep=True) == []


class Talk:
    """Messages of long words that occur nowhere else, so that eleven letters in a row tell where they come from."""

    N_LETTERS = 11

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words: dict[int, list[str]] = {}
        self.history: list[Entry] = []

    def word(self) -> str:
        return "".join(self.random.choices("bcdfghklmnpqrtvwxz", k=20))

    def goes_on(self, db: apsw.Connection, n: int) -> None:
        for _ in range(n):
            words = [self.word() for _ in range(self.random.choice([1, 3, 30, 200]))]
            self.history.append(Entry(self.random.choice(("user", "assistant", "tool")), " ".join(words)))
            ids = stored(db, self.history, session="talk")
            self.words[ids[-1]] = words

    def traces(self, path: Path, ids: Sequence[int]) -> list[str]:
        """The words of these messages of which something is left in the files."""
        n = self.N_LETTERS
        runs = re.findall(rb"[bcdfghklmnpqrtvwxz]{%d,}" % n, bytes_of(path))
        parts = {run[i : i + n] for run in runs for i in range(len(run) - n + 1)}
        words = {word: word.encode() for id in ids for word in self.words[id]}
        return [word for word, raw in words.items() if any(raw[i : i + n] in parts for i in range(len(raw) - n + 1))]


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("seed", "n"), [(0, 90), (1, 90), (2, 90), (3, forget.BULK + 20)])
def test_no_byte_is_left_of_what_was_forgotten(db: apsw.Connection, path: Path, seed: int, n: int) -> None:
    talk = Talk(seed)
    talk.goes_on(db, 150)
    reader = schema.open_file(path, readonly=True)
    assert rows(reader, "SELECT count(*) FROM message") == [(150,)]
    with db:  # what was given up before it was forgotten must not be left either
        db.execute("UPDATE message SET state = 1 WHERE id <= 60")
        assert retention.step(db, path, 1000) > 0
    talk.goes_on(db, 50)
    first = next(id for id, entry in zip(talk.words, talk.history, strict=True) if entry.role == "user")
    fact_words = [talk.word() for _ in range(3)]
    for word in fact_words:  # a chain of values
        facts.set_fact(db, "secret", word, source=first)
    talk.words[first] += fact_words
    forgotten = [first, *talk.random.sample(sorted(talk.words), n)]
    kept = [id for id in talk.words if id not in forgotten]
    assert len(talk.traces(path, forgotten)) > 100
    with db:
        forget.remove(db, forgotten)
    assert forget.scrub(db)
    assert talk.traces(path, forgotten) == []
    assert len(talk.traces(path, kept)) > 100
    assert check.check(db, deep=True) == []
    reader.close()


def test_no_byte_is_left_of_words_that_are_indexed_otherwise_than_written(db: apsw.Connection, path: Path) -> None:
    stored(db, [Entry("user", f"filler about {n} things") for n in range(200)])
    text = "我的保险箱密码 in the Quibblesnorting Überseemuseum"
    ids = stored(db, [Entry("user", text), Entry("assistant", f"I see: {text}"), Entry("user", "go on")])
    left = ["quibblesnor", "Quibble", "berseemus", "保险", "保  险", "箱", "密"]
    assert [word for word in left if word.encode() not in bytes_of(path)] == []
    with db:
        forget.remove(db, forget.find(db, matching="quibblesnorting"))
    assert forget.scrub(db)
    assert [word for word in left if word.encode() in bytes_of(path)] == []
    assert rows(db, "SELECT term FROM terms_user WHERE term > 'z' OR term LIKE 'quib%'") == []
    assert rows(db, "SELECT id FROM message WHERE id >= ?", ids[0]) == [(ids[2],)]


def test_a_scrub_returns_false_while_a_reader_keeps_an_old_state(db: apsw.Connection, path: Path) -> None:
    ids = stored(db)
    db.set_busy_timeout(0)
    reader = schema.open_file(path, readonly=True)
    reader.execute("BEGIN")
    assert rows(reader, "SELECT count(*) FROM message") == [(len(ids),)]
    with db:
        forget.remove(db, ids[1:3])
    assert not forget.scrub(db)
    reader.execute("COMMIT")
    assert forget.scrub(db)
    assert b"snorting" not in bytes_of(path)
    reader.close()
