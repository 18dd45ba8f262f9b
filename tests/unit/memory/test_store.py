"""The store: what is acknowledged is on the disk, jobs fail alone, readers see whole states, and it ends in order."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest
from tests.in_time import PATIENCE_S, becomes_true

from shepherd.core import InvalidRequest, MemoryFailure
from shepherd.memory.records import Entry, State, Trust
from shepherd.memory.schema import open_file
from shepherd.memory.store import READERS, MemoryStore
from shepherd.memory.writer import GROUP, Writer


def talk(n: int) -> list[Entry]:
    return [Entry("user", f"question {n} about word{n}"), Entry("assistant", f"answer {n}")]


def insert(name: str) -> Callable[[apsw.Connection], object]:
    return lambda connection: connection.execute("INSERT INTO about(name, value) VALUES(?, 1)", (name,))


def names(store: MemoryStore) -> set[str]:
    rows = store.read(lambda connection: connection.execute("SELECT name FROM about").fetchall())
    return {str(name) for (name,) in rows} - {"user", "key", "gone"}


# ---- the writer


def test_jobs_that_wait_together_share_a_commit_and_fail_alone(store: MemoryStore) -> None:
    gate: Future[None] = Future()
    commits = list[int]()

    def committed() -> bool:
        commits.append(1)
        return False

    def hold(connection: apsw.Connection) -> None:
        connection.set_commit_hook(committed)
        gate.result()

    held = store.submit(hold)
    jobs = [insert("a"), insert("a"), lambda _connection: 1 / 0, insert("b")]
    waiting = [store.submit(job) for job in jobs]
    gate.set_result(None)
    held.result()
    errors = [future.exception() for future in waiting]
    assert [type(error) for error in errors] == [type(None), MemoryFailure, ZeroDivisionError, type(None)]
    assert names(store) == {"a", "b"}
    assert len(commits) == 1
    assert names(store) == {"a", "b"}


def test_more_jobs_than_a_group_has_room_for_are_all_done(store: MemoryStore) -> None:
    waiting = [store.submit(insert(str(n))) for n in range(2 * GROUP + 3)]
    for future in waiting:
        future.result()
    assert len(names(store)) == 2 * GROUP + 3


def test_an_answer_comes_after_the_commit(store: MemoryStore) -> None:
    seen: Future[set[str]] = Future()
    store.submit(insert("a")).add_done_callback(lambda _future: seen.set_result(names(store)))
    assert seen.result(10) == {"a"}


def test_a_job_that_was_called_off_is_not_done(store: MemoryStore) -> None:
    gate: Future[None] = Future()
    store.submit(lambda _connection: gate.result())
    future = store.submit(insert("a"))
    assert future.cancel()
    gate.set_result(None)
    store.write(insert("b"))
    assert names(store) == {"b"}
    with pytest.raises(CancelledError):
        future.result()


def test_a_job_that_ends_its_transaction_takes_nothing_with_it(store: MemoryStore) -> None:
    with pytest.raises(MemoryFailure):
        store.write(lambda connection: connection.execute("COMMIT; SELECT * FROM nowhere"))
    store.write(insert("a"))
    assert names(store) == {"a"}


def test_what_sqlite_refuses_is_one_sentence(store: MemoryStore) -> None:
    with pytest.raises(MemoryFailure, match=r"^the memory .*memory\.db failed: .*nowhere") as refused:
        store.read(lambda connection: connection.execute("SELECT * FROM nowhere"))
    assert isinstance(refused.value.__cause__, apsw.SQLError)
    assert (refused.value.status, refused.value.code) == (500, "memory_error")
    with pytest.raises(MemoryFailure, match="cannot be written"):
        store.read(lambda connection: connection.execute("DELETE FROM message"))


def test_a_failure_of_the_upkeep_is_logged_and_does_not_stop_the_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def rest(connection: apsw.Connection, _waited: bool) -> None:
        connection.execute("BEGIN IMMEDIATE")
        raise apsw.IOError("planted")

    writer = Writer(open_file(tmp_path / "w.db"), name="w.db", rest=rest)
    with caplog.at_level(logging.WARNING):
        for name in "abc":
            writer.submit(insert(name)).result()
        assert becomes_true(lambda: "upkeep of the memory w.db: planted" in caplog.text)
        writer.submit(insert("d")).result()
    writer.close()


def test_a_removed_file_does_not_stop_the_writer(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.db", max_size_bytes=2**18) as store:
        (tmp_path / "memory.db").unlink()
        for n in range(5):
            assert store.submit_archive(talk(n), session=str(n)).exception(60) is None


def test_the_upkeep_knows_whether_a_job_waits(tmp_path: Path) -> None:
    told, gate = list[bool](), Future[None]()

    def rest(_connection: apsw.Connection, waited: bool) -> None:
        told.append(waited)

    def hold(_connection: apsw.Connection) -> None:
        gate.result()
        told.clear()

    writer = Writer(open_file(tmp_path / "w.db"), name="w", rest=rest)
    writer.submit(hold)
    writer.submit(lambda _connection: None, is_bare=True)
    writer.submit(lambda _connection: None)
    gate.set_result(None)
    writer.close()
    assert told[0] is True


# ---- readers


def test_a_reader_sees_one_state_while_others_write(store: MemoryStore) -> None:
    def job(connection: apsw.Connection) -> list[object]:
        count = "SELECT count(*) FROM about"
        before = connection.execute(count).get
        store.write(insert("a"))
        return [before, connection.execute(count).get]

    before, after = store.read(job)
    assert before == after
    assert names(store) == {"a"}


def test_more_threads_than_readers_are_served(store: MemoryStore) -> None:
    store.archive(talk(1))
    barrier = threading.Barrier(READERS)
    found = list[object]()

    def job(connection: apsw.Connection) -> object:
        barrier.wait(PATIENCE_S)
        return connection.execute("SELECT count(*) FROM message").get

    threads = [threading.Thread(target=lambda: found.append(store.read(job))) for _ in range(3 * READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 3 * READERS


def test_a_reader_that_fails_is_used_again(store: MemoryStore) -> None:
    for _ in range(3 * READERS):
        with pytest.raises(ZeroDivisionError):
            store.read(lambda _connection: 1 / 0)
    assert store.stats().messages == 0


# ---- its end


def test_closing_writes_what_waits_and_brings_the_log_home(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory.db")
    futures = [store.submit_archive(talk(n), session=str(n)) for n in range(50)]
    store.close()
    store.close()
    assert all(future.result() for future in futures)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]
    for ask in (store.stats, lambda: store.archive(talk(1))):
        with pytest.raises(MemoryFailure, match="closed"):
            ask()


def test_a_store_without_references_closes_itself(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory.db")
    store.submit_archive(talk(1))
    del store
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]


# ---- what it offers


def test_messages_are_marked_and_pruned_ones_stay_so(store: MemoryStore) -> None:
    ids = store.archive(talk(1), session="s")
    store.mark(ids, State.EVICTED)
    assert store.states([*ids, 99]) == dict.fromkeys(ids, State.EVICTED)
    store.write(lambda connection: connection.execute("UPDATE message SET state = 2 WHERE id = ?", (ids[0],)))
    store.submit_mark(ids, State.LIVE).result()
    assert store.states(ids) == {ids[0]: State.PRUNED, ids[1]: State.LIVE}
    with pytest.raises(InvalidRequest, match="state"):
        store.mark(ids, State.PRUNED)


def test_the_newest_turn_is_the_question_and_its_answers(store: MemoryStore) -> None:
    assert store.newest_turn("s") == []
    ids = store.archive([*talk(1), Entry("user", "and now?"), Entry("assistant", "this")], session="s")
    assert store.newest_turn("s") == ids[2:]
    store.archive([Entry("user", "elsewhere")], session="t")
    assert store.newest_turn("s") == ids[2:]


def test_conversations_are_found_by_uuid_or_the_beginning_of_it(store: MemoryStore) -> None:
    for n in range(40):
        store.archive(talk(n), session=str(n), model="m")
    newest = store.conversations(limit=3)
    assert [each.title for each in newest] == [f"question {n} about word{n}" for n in (39, 38, 37)]
    assert store.conversations(limit=1, before=newest[2].id)[0].title == "question 36 about word36"
    assert (newest[0].n_messages, newest[0].model) == (2, "m")
    assert store.conversation(newest[0].uuid) == newest[0] == store.conversation(newest[0].uuid[:20])
    assert store.conversation("nothing like it") is None is store.conversation("")
    digits = [each.uuid[0] for each in store.conversations()]
    with pytest.raises(InvalidRequest, match="several"):
        store.conversation(max(digits, key=digits.count))
    assert [m.body for m in store.messages(newest[0].uuid, after_seq=0, limit=5)] == ["answer 39"]
    assert store.messages("nothing like it") == []


def test_titles_and_pins(store: MemoryStore) -> None:
    ids = store.archive(talk(1))
    (conversation,) = store.conversations()
    store.set_title(conversation.uuid, "  a  better one\nnot this")
    assert store.conversations()[0].title == "a better one"
    store.pin(ids[0])
    assert [message.pinned for message in store.stored(ids)] == [True, False]
    store.pin(ids[0], False)
    assert not store.stored(ids)[0].pinned
    with pytest.raises(InvalidRequest, match="there is no message 99"):
        store.pin(99)
    with pytest.raises(InvalidRequest, match="there is no 'nothing'"):
        store.set_title("nothing", "x")


def test_a_note_replaces_the_one_with_the_same_question(store: MemoryStore) -> None:
    store.set_fact("answer", "purple")
    store.remember("What is  the answer?", "purple")
    other = store.remember("what else?", "nothing")
    ids = store.remember(" what IS the answer? ", "green")
    asked, answered = store.stored(ids)
    assert (asked.trust, answered.trust, answered.state) == (Trust.MODEL, Trust.MODEL, State.EVICTED)
    (notes,) = store.conversations()
    assert (notes.uuid, notes.source, notes.n_messages) == ("notes", "notes", 4)
    assert [hit.assistant_response for hit in store.search("the answer", 1)] == ["green"]
    assert store.search("purple") == []
    assert [fact.value for fact in store.facts()] == ["purple"]
    assert store.clear_memory("WHAT is the answer?")
    assert not store.clear_memory("What is the answer?")
    assert [message.id for message in store.messages("notes")] == other
    with pytest.raises(InvalidRequest, match="question"):
        store.remember(" ", "x")


def test_what_is_forgotten_is_not_in_the_file_and_not_archived_again(store: MemoryStore, tmp_path: Path) -> None:
    history = [Entry("user", "my word is xylophone"), Entry("assistant", "noted, xylophone")]
    store.archive([*history, *talk(1)], session="s")
    assert store.find(matching="XYLOPHONE") == [1, 2]
    assert store.forget(matching="xylophone").n_messages == 2
    store.archive([*history, *talk(1)], session="s")
    assert store.search("xylophone") == []
    for path in tmp_path.iterdir():
        assert b"xylophon" not in path.read_bytes().lower(), path


def test_the_log_is_emptied_later_when_a_reader_keeps_an_old_state(store: MemoryStore, tmp_path: Path) -> None:
    store.archive([Entry("user", "my word is xylophone"), *talk(1)], session="s")
    reader = open_file(tmp_path / "memory.db", readonly=True)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM message").fetchall()
    store.write(lambda connection: connection.set_busy_timeout(50))
    store.forget(matching="xylophone")
    reader.execute("ROLLBACK")
    reader.close()
    store.write(insert("something"))
    assert becomes_true(lambda: not any(b"xylophon" in path.read_bytes() for path in tmp_path.iterdir()))


def test_a_small_limit_is_kept_while_far_more_is_stored(tmp_path: Path) -> None:
    limit, path, history = 2**20, tmp_path / "memory.db", list[Entry]()
    with MemoryStore(path, max_size_bytes=limit) as store:
        store.set_fact("favorite_color", "blue")
        for n in range(40):
            history += [Entry("user", f"turn {n} " + "some words " * 400), Entry("assistant", f"answer {n} " * 4_000)]
            ids = store.archive(history, session="s")
            store.mark([id for id in ids[:-4] if id], State.EVICTED)
        store.prune()
        stats = store.stats()
        assert stats.size_bytes <= limit
        assert sum(file.stat().st_size for file in tmp_path.iterdir() if not file.name.endswith("-shm")) <= limit
        assert [(fact.key, fact.value) for fact in store.facts()] == [("favorite_color", "blue")]
        assert stats.pruned or stats.messages < len(history)
        assert store.check(deep=True) == []


@contextmanager
def an_old_state_being_read(path: Path) -> Iterator[None]:
    """For the length of the block the log cannot be emptied, and every page that is written makes it longer."""
    with closing(open_file(path, readonly=True)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchall()
        yield


def test_a_log_that_a_reader_keeps_long_is_no_reason_to_give_anything_up(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryStore(path, max_size_bytes=2**20) as store:
        store.archive(talk(0))
        with an_old_state_being_read(path):
            for n in range(1, 100):
                store.archive(talk(n))
            assert store.stats().log_bytes > 2 * 2**20, "the log alone is above the limit"
        assert store.stats().messages == 200
        assert store.stats().pruned == 0


def test_a_full_memory_prunes_no_more_than_it_must_while_a_reader_keeps_an_old_state(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with MemoryStore(path, max_size_bytes=2**19) as store:
        for n in range(150):
            store.archive([Entry("user", f"question {n} " + "word " * 400), Entry("assistant", f"answer {n}")])
        n_kept = store.stats().messages
        with an_old_state_being_read(path):
            for n in range(150, 180):
                store.archive([Entry("user", f"question {n} " + "word " * 400), Entry("assistant", f"answer {n}")])
        assert store.stats().messages >= 0.8 * n_kept


def test_a_limit_too_small_for_an_empty_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="max_size_bytes is 1000; give at least"):
        MemoryStore(tmp_path / "memory.db", max_size_bytes=1000)


def test_pruning_on_request_goes_below_the_size_that_is_asked_for(store: MemoryStore) -> None:
    history = [entry for n in range(60) for entry in (talk(n)[0], Entry("assistant", f"a long answer {n} " * 600))]
    ids = store.archive(history, session="s")
    store.mark(ids, State.EVICTED)
    done = store.prune(2**19)
    assert done.n_messages > 0
    assert store.stats().size_bytes <= 2**19
    assert store.prune(2**19).n_messages == 0
    assert store.archive(history, session="s") == ids
    assert store.find(matching="question 7 about word7")
    with pytest.raises(InvalidRequest, match="to_bytes is 0; give at least"):
        store.prune(0)


def test_stats_count_what_is_there(store: MemoryStore) -> None:
    assert (store.stats().oldest_ms, store.stats().newest_ms) == (None, None)
    ids = store.archive([Entry("user", "old", created_ms=1_000), Entry("user", "new", created_ms=2_000)])
    store.mark(ids[:1], State.EVICTED)
    store.pin(ids[0])
    store.set_fact("a", "b")
    stats = store.stats()
    assert (stats.conversations, stats.messages, stats.evicted, stats.pruned, stats.facts) == (1, 2, 1, 0, 1)
    assert (stats.oldest_ms, stats.newest_ms, stats.limit_bytes) == (1_000, 2_000, 10 * 2**30)
    assert 0 < stats.size_bytes <= stats.file_bytes + stats.log_bytes + 2**20
