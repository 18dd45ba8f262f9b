"""Out of the archive and into it: exact copies, copies that went on differently, and lines that are wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import InvalidRequest
from shepherd.memory import Entry, MemoryStore
from shepherd.memory.archive import facts, forget
from shepherd.memory.records import Call, State, StoredMessage, Trust
from shepherd.memory.transfer.export import PAGE, lines
from shepherd.memory.transfer.importer import import_stream

PARIS = "What is the capital of France?"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path / "other.db") as opened:
        yield opened


def take(store: MemoryStore, *objects: Any) -> Any:
    """Import objects as JSON Lines."""
    return import_stream(store, io.BytesIO("".join(json.dumps(each) + "\n" for each in objects).encode()))


def copy(store: MemoryStore, into: MemoryStore, conversation: str | None = None) -> Any:
    return import_stream(into, io.BytesIO("".join(lines(store, conversation)).encode()))


def rows(store: MemoryStore, sql: str) -> list[Any]:
    return store.read(lambda connection: connection.execute(sql).fetchall())


def said(store: MemoryStore) -> list[tuple[str, str]]:
    return [(role, body) for role, body in rows(store, "SELECT role, body FROM message ORDER BY conversation, seq")]


def everything(store: MemoryStore) -> list[StoredMessage]:
    return store.stored([id for (id,) in rows(store, "SELECT id FROM message ORDER BY conversation, seq")])


# -- exact copies -----------------------------------------------------------------------------------------------------


def fill(store: MemoryStore) -> None:
    """Some of everything that an archive can hold."""
    call = Call("c1", "read_file", '{"path": "a.txt"}')
    talk = [
        Entry("system", "Be brief."),
        Entry("user", PARIS, created_ms=1_700_000_000_123),
        Entry("assistant", "", calls=(call,)),
        Entry("tool", "Paris\0 \u8bbe\u5907", tool="read_file", call_id="c1"),
        Entry("tool", "what was found", tool="search_memory", call_id="c2", recalled=True),
        Entry("assistant", "Paris."),
    ]
    ids = store.archive(talk, session="s1", model="lamb")
    store.archive([*talk[:2], Entry("assistant", "Another answer: it is Paris.")], session="s2")
    store.archive([*talk, Entry("user", "Edited \U0001f600")])
    store.archive([*talk, Entry("user", "Edited otherwise, so that it is a branch of what was said before")])
    store.mark(ids[:3], State.EVICTED)
    store.write(lambda connection: connection.execute("UPDATE message SET pinned = 1 WHERE id = ?", (ids[1],)))
    store.write(
        lambda connection: connection.execute("UPDATE message SET state = 2, body = 'Pa' WHERE id = ?", (ids[5],))
    )
    store.write(lambda connection: facts.set_fact(connection, "city", "Rome"))
    store.write(lambda connection: facts.set_fact(connection, "city", "Paris", source=ids[1]))
    store.write(lambda connection: facts.propose(connection, "Call me Ann", "instruction"))
    store.write(lambda connection: facts.reject(connection, facts.adopt(connection, "Never use tables").id))


def test_an_archive_that_is_exported_and_imported_is_the_same(store: MemoryStore, other: MemoryStore) -> None:
    fill(store)
    done = copy(store, other)
    assert list(lines(other)) == list(lines(store))
    assert (done.n_problems, done.known) == (0, 0)
    assert done.messages == len(everything(store))
    # What was pruned is known by what it said before: a client that sends its history again brings nothing back.
    n_stored = len(everything(other))
    other.archive([Entry("user", PARIS, created_ms=1_700_000_000_123)], session="s1")
    assert len(everything(other)) == n_stored


def test_what_was_imported_is_found_by_its_words(store: MemoryStore, other: MemoryStore) -> None:
    fill(store)
    copy(store, other)
    indexed = "SELECT rowid FROM fts_user WHERE fts_user MATCH 'capital' UNION SELECT rowid FROM fts_other('capital')"
    assert len(rows(other, indexed)) == len(rows(store, indexed)) > 0


def test_the_same_import_twice_stores_nothing_new(store: MemoryStore, other: MemoryStore) -> None:
    fill(store)
    first, second = copy(store, other), copy(store, other)
    assert (second.conversations, second.messages, second.facts) == (0, 0, 0)
    assert second.known >= first.messages
    assert list(lines(other)) == list(lines(store))


WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
SESSIONS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["user", "assistant", "tool", "system"]),
    WORDS,
    st.lists(st.builds(Call, WORDS, WORDS, WORDS), max_size=2).map(tuple),
    created_ms=st.none() | st.integers(0, 4_000_000_000_000),
    trust=st.none() | st.sampled_from(Trust),
)


@settings(deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories=st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=6), SESSIONS), max_size=4))
def test_any_archive_survives_the_round_trip(
    histories: list[tuple[list[Entry], str | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("round")
    with MemoryStore(folder / "a.db") as store, MemoryStore(folder / "b.db") as other:
        for history, session in histories:
            store.archive(history, session=session)
        assert copy(store, other).n_problems == 0
        assert list(lines(other)) == list(lines(store))


def test_an_archive_of_more_than_a_page_is_read_in_pages(store: MemoryStore, other: MemoryStore) -> None:
    talk = [Entry("user" if i % 2 else "assistant", f"message {i}") for i in range(2 * PAGE + 1)]
    store.archive(talk)
    assert copy(store, other).messages == len(talk)
    assert said(other) == [(entry.role, entry.body) for entry in talk]


def test_one_conversation_is_exported_with_what_it_branched_off(store: MemoryStore, other: MemoryStore) -> None:
    begin = [Entry("user", "the beginning"), Entry("assistant", "shared by both")]
    store.archive([*begin, Entry("user", "one way")])
    store.archive([*begin, Entry("user", "the other way")])
    store.archive([Entry("user", "something else")])
    (branch,) = [each for each in store.conversations() if each.parent is not None]
    copy(store, other, branch.uuid)
    assert said(other) == [("user", "the beginning"), ("assistant", "shared by both"), ("user", "the other way")]


def test_a_conversation_that_is_not_there_is_an_error_before_the_first_line(store: MemoryStore) -> None:
    with pytest.raises(InvalidRequest, match="none is called 'nowhere'"):
        lines(store, "nowhere")


def test_copies_that_went_on_differently_both_stay(store: MemoryStore, other: MemoryStore) -> None:
    begin = [Entry("user", "the beginning"), Entry("assistant", "shared by both")]
    store.archive(begin)
    copy(store, other)
    store.archive([*begin, Entry("user", "said here"), Entry("assistant", "and answered here")])
    other.archive([*begin, Entry("user", "said there")])
    for _ in range(2):
        copy(store, other)
    assert sorted(body for _, body in said(other)) == sorted(
        ["the beginning", "shared by both", "said here", "and answered here", "said there"]
    )
    (branch,) = [each for each in other.conversations() if each.parent is not None]
    assert (branch.parent_seq, branch.n_messages) == (1, 2)
    store.archive([*begin, Entry("user", "said here"), Entry("assistant", "and answered here"), Entry("user", "more")])
    assert copy(store, other).messages == 1
    assert [each.n_messages for each in other.conversations() if each.parent is not None] == [3]


def test_notes_of_two_memories_become_one_collection(store: MemoryStore, other: MemoryStore) -> None:
    store.remember("Where is the key?", "Under the mat.")
    store.remember("Who has the car?", "Ann.")
    other.remember("When is the train?", "At nine.")
    for _ in range(2):
        copy(store, other)
    assert [one.n_messages for one in other.conversations()] == [6]
    other.remember("where is the KEY?", "In the drawer.")
    assert [body for _, body in said(other)][1::2] == ["At nine.", "Ann.", "In the drawer."]
    assert other.search("who has the car")[0].assistant_response == "Ann."


def test_lines_that_are_there_twice_are_stored_once(store: MemoryStore, other: MemoryStore) -> None:
    fill(store)
    twice = "".join(line * 2 for line in lines(store)) + "".join(lines(store))
    assert import_stream(other, io.BytesIO(twice.encode())).n_problems == 0
    assert list(lines(other)) == list(lines(store))


def test_a_single_message_without_its_conversation_is_stored_and_known_again(store: MemoryStore) -> None:
    line = {"type": "message", "uuid": "lost", "seq": 7, "role": "user", "time": "2026-01-01", "body": "alone"}
    assert [take(store, line).messages for _ in range(2)] == [1, 0]
    assert [(one.uuid, one.title, one.n_messages) for one in store.conversations()] == [("lost", "alone", 1)]


def test_of_two_values_of_a_fact_the_later_is_current(store: MemoryStore, other: MemoryStore) -> None:
    times = {"Rome": "2026-01-01", "Paris": "2026-03-01", "Oslo": "2026-02-01"}
    for value, time in times.items():
        take(store, {"type": "fact", "key": "city", "value": value, "time": time})
    now = rows(store, "SELECT value, status FROM fact ORDER BY created_ms")
    assert now == [("Rome", "past"), ("Oslo", "past"), ("Paris", "current")]


def test_what_was_forgotten_does_not_come_back(store: MemoryStore, other: MemoryStore) -> None:
    secret = "the number of the safe is four seven one one, and nobody may know it"
    store.archive([Entry("user", secret), Entry("assistant", "I will tell nobody.")])
    (found,) = [each.id for each in everything(store) if each.body == secret]
    before = list(lines(store))
    store.write(lambda connection: forget.remove(connection, [found]))
    done = import_stream(store, io.BytesIO("".join(before).encode()))
    assert (done.forgotten, done.messages) == (1, 0)
    assert secret not in "".join(lines(store))


def test_a_conversation_of_which_all_was_forgotten_does_not_come_back_as_a_title(store: MemoryStore) -> None:
    store.archive([Entry("user", "My password is swordfish"), Entry("assistant", "I would not have said that.")])
    before = "".join(lines(store))
    store.forget([message.id for message in everything(store)])
    import_stream(store, io.BytesIO(before.encode()))
    assert list(lines(store)) == []
    assert rows(store, "SELECT * FROM conversation") == []


def test_a_title_that_quotes_what_was_forgotten_does_not_come_back(store: MemoryStore, other: MemoryStore) -> None:
    talk = [Entry("user", "My password is swordfish"), Entry("assistant", "I would not have said that.")]
    store.archive(talk[:1])
    copy(store, other)
    other.forget(matching="swordfish")
    assert other.conversations() == []
    store.archive(talk)
    copy(store, other)
    assert said(other) == [("assistant", "I would not have said that.")]
    assert "swordfish" not in "".join(lines(other))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"role": "robot"}, 'role must be one of system, user, assistant, tool, not "robot"'),
        ({"seq": -1}, "seq must be an integer from 0 to 4611686018427387903, not -1"),
        ({"seq": "4"}, 'not "4"'),
        ({"seq": True}, "not true"),
        ({"seq": 2**70}, "seq must be an integer from 0"),
        ({"body": 4}, "body must be a string, not 4"),
        ({"time": "soon"}, 'time must be a time such as 2026-03-02T10:00:00.000Z, not "soon"'),
        ({"time": None}, "not null"),
        ({"uuid": None}, "uuid must be a string, not null"),
        ({"sha": "zz"}, 'sha must be 32 hexadecimal digits, not "zz"'),
        ({"chain": "00"}, "chain must be 32 hexadecimal digits"),
        ({"trust": "full"}, "trust must be one of user, model, untrusted"),
        ({"state": 7}, "state must be a string, not 7"),
        ({"meta": []}, "meta must be an object, not an empty array"),
        ({"meta": {"calls": [{"id": "x"}]}}, "meta.calls"),
        ({"meta": {"calls": 4}}, "meta.calls"),
    ],
)
def test_a_wrong_line_of_ours_names_its_field_and_the_rest_goes_in(
    store: MemoryStore, wrong: dict[str, Any], says: str
) -> None:
    good = {"type": "message", "uuid": "u", "seq": 0, "role": "user", "time": "2026-01-01", "body": "good"}
    done = take(store, {**good, "seq": 1, "body": "bad", **wrong}, good)
    assert [str(problem).partition(": ")[2] for problem in done.problems] == [done.problems[0].what]
    assert says in done.problems[0].what
    assert done.problems[0].where == "line 1"
    assert said(store) == [("user", "good")]


def test_a_fact_from_an_untrusted_message_is_refused(store: MemoryStore) -> None:
    tool = {"type": "message", "uuid": "u", "seq": 0, "role": "tool", "time": 0, "body": "x", "trust": "untrusted"}
    fact = {"type": "fact", "key": "k", "value": "v", "time": 0, "source": {"uuid": "u", "seq": 0}}
    assert "cannot be a fact" in str(take(store, tool, fact).problems[0])
    assert rows(store, "SELECT * FROM fact") == []
