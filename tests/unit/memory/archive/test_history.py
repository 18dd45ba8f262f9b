"""Histories into the archive: nothing is lost, nothing is stored twice, whatever clients do to their histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.core import Role
from shepherd.core.lru import LruCache
from shepherd.memory.archive import forget, queries
from shepherd.memory.archive.history import RECENT, align, archive, headline
from shepherd.memory.archive.names import NamedHistory
from shepherd.memory.records import Call, Entry, StoredMessage
from shepherd.memory.schema import open_file
from shepherd.memory.store import MemoryStore


def say(*texts: str) -> list[Entry]:
    """A conversation: user and assistant in turns."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return [Entry(roles[n % 2], text) for n, text in enumerate(texts)]


LONG = [f"message {n}, which is long enough to be known again anywhere" for n in range(20)]


@pytest.fixture
def file() -> Iterator[apsw.Connection]:
    connection = open_file(":memory:")
    yield connection
    connection.close()


def count(connection: apsw.Connection, table: str = "message") -> int:
    found = connection.execute(f"SELECT count(*) FROM {table}").get
    assert isinstance(found, int)
    return found


def bodies(connection: apsw.Connection, ids: Sequence[int]) -> list[str]:
    return [message.body for message in queries.stored(connection, ids)]


def messages(connection: apsw.Connection) -> list[StoredMessage]:
    return queries.stored(connection, [id for (id,) in connection.execute("SELECT id FROM message ORDER BY id")])


def test_a_history_that_grows_is_stored_once(file: apsw.Connection) -> None:
    history = [Entry("system", "be brief"), *say(*LONG[:7])]
    ids = [archive(file, history[:n], session="s") for n in range(1, len(history) + 1)]
    assert ids == [ids[-1][:n] for n in range(1, len(history) + 1)]
    assert bodies(file, ids[-1]) == [entry.body for entry in history]
    assert count(file) == len(history)
    assert [(message.seq, message.turn) for message in messages(file)][1:] == [(n, n // 2 + 1) for n in range(7)]


@pytest.mark.parametrize("session", [None, "s"])
def test_sent_again_a_history_or_a_part_of_it_stores_nothing(file: apsw.Connection, session: str | None) -> None:
    history = say(*LONG[:6])
    ids = archive(file, history, session=session)
    for n in range(7):
        assert archive(file, history[:n], session=session) == ids[:n]
    assert (count(file), count(file, "conversation")) == (6, 1)


@pytest.mark.parametrize("session", [None, "s"])
def test_an_edited_message_makes_a_branch_that_shares_what_is_before_it(
    file: apsw.Connection, session: str | None
) -> None:
    ids = archive(file, say(*LONG[:4]), session=session)
    edited = archive(
        file, [*say(*LONG[:2]), Entry("user", "something else"), Entry("assistant", "well")], session=session
    )
    assert edited[:2] == ids[:2]
    assert count(file) == 6
    newest, oldest = queries.conversations(file)
    assert (newest.parent, newest.parent_seq, newest.n_messages) == (oldest.id, 1, 2)
    line = queries.messages(file, newest.id, shared=True)
    assert [(message.id, message.seq) for message in line] == list(zip(edited, range(4), strict=True))
    assert [message.turn for message in line] == [1, 1, 2, 2]


def test_a_return_to_the_older_branch_continues_there(file: apsw.Connection) -> None:
    first, second = say(*LONG[:4]), [*say(*LONG[:2]), Entry("user", "something else")]
    archive(file, first, session="s")
    archive(file, second, session="s")
    ids = archive(file, [*first, Entry("user", "on with it")], session="s")
    assert count(file, "conversation") == 2
    assert queries.stored(file, ids[-1:])[0].conversation == queries.stored(file, ids[:1])[0].conversation


TOLD = [f"{word} {n}" for n in range(16) for word in ("so", "ok")]
"""Short messages, each once."""


@pytest.mark.parametrize(
    ("texts", "n_sent"), [(LONG, 2), *((texts, n) for texts in (LONG, TOLD) for n in (3, 4, 7, 8, 31))]
)
@pytest.mark.parametrize("system", [False, True])
def test_a_client_that_sends_only_the_tail_of_its_history_has_one_conversation(
    file: apsw.Connection, texts: list[str], n_sent: int, system: bool
) -> None:
    history, ids = say(*texts), list[int]()
    for n in range(1, len(history), 2):
        before = [Entry("system", f"It is {n} o'clock.")] if system else []
        archive(file, [*before, *history[max(0, n - n_sent) : n]])
        ids = archive(file, [*before, *history[max(0, n - n_sent) : n + 1]])
    found = [message for message in messages(file) if message.role != "system"]
    assert [message.body for message in found] == texts
    assert [message.turn for message in found] == [n // 2 + 1 for n in range(len(texts))]
    assert count(file, "conversation") == 1
    assert bodies(file, ids[-2:]) == texts[-2:]


@pytest.mark.parametrize("n_kept", [3, 4])
def test_a_client_that_leaves_out_the_middle_of_its_history_has_one_conversation(
    file: apsw.Connection, n_kept: int
) -> None:
    history = say(*LONG)
    for n in range(2, len(history) + 1, 2):
        archive(file, [*history[:2], *history[max(2, n - n_kept) : n]])
    assert [message.body for message in messages(file)] == LONG
    assert count(file, "conversation") == 1


def test_behind_a_question_that_was_stopped_and_asked_otherwise_the_middle_may_be_left_out(
    file: apsw.Connection,
) -> None:
    archive(file, say(*LONG[:4], "I stop this one"))
    talk = LONG[:10]
    known = archive(file, say(*talk))
    n = count(file)
    ids = archive(file, say(*talk[:2], *talk[4:], LONG[10]))
    assert count(file) == n + 1, "only the new message is stored"
    assert ids[:-1] == known[:2] + known[4:]


def test_tails_of_several_conversations_are_not_mixed_up(file: apsw.Connection) -> None:
    lines = [say(*(text if n % 3 == 1 else f"{text} of {name}" for n, text in enumerate(LONG))) for name in "abc"]
    for n in range(2, len(LONG) + 1, 2):
        for line in lines:
            archive(file, line[max(0, n - 5) : n])
    said = [[message.body for message in queries.messages(file, each.id)] for each in queries.conversations(file)]
    assert sorted(map(tuple, said)) == sorted(tuple(entry.body for entry in line) for line in lines)


def test_a_tail_that_was_changed_is_a_branch_of_its_conversation(file: apsw.Connection) -> None:
    history = say(*LONG[:10])
    archive(file, history)
    archive(file, [*history[4:8], Entry("user", "something else")])
    newest, oldest = queries.conversations(file)
    assert (newest.parent, newest.parent_seq, newest.n_messages, oldest.n_messages) == (oldest.id, 7, 1, 10)


@pytest.mark.parametrize(
    "history",
    [
        say(LONG[4], "something else"),  # one message of a user
        [Entry("assistant", "so"), Entry("user", "and now?")],  # one short message
        say("so", "ok", "and now?"),  # short ones, in the middle
        [Entry("assistant", LONG[3]), Entry("user", "and now?")],  # one in the middle
    ],
)
def test_what_is_too_little_to_recognise_a_conversation_by_begins_one(
    file: apsw.Connection, history: list[Entry]
) -> None:
    archive(file, [*say(*LONG[:4], "so", "ok", *LONG[4:6], "so"), Entry("assistant", "so")])
    archive(file, history)
    assert count(file, "conversation") == 2


def test_a_tail_without_a_session_is_no_part_of_a_session(file: apsw.Connection) -> None:
    archive(file, say(*LONG[:6]), session="s")
    archive(file, say(*LONG[:6])[2:])
    assert count(file, "conversation") == 2


def test_what_two_sessions_say_alike_belongs_to_both(file: apsw.Connection) -> None:
    one, other = (archive(file, say(*LONG[:2]), session=name) for name in "ab")
    assert not {*one} & {*other}
    assert count(file, "conversation") == 2


def test_a_compacted_history_stores_its_summary_and_what_is_new(file: apsw.Connection) -> None:
    system = Entry("system", "be brief")
    whole = [system, *say(*LONG[:10])]
    ids = archive(file, whole, session="s")
    compacted = [system, Entry("user", "a summary of all that was said"), *whole[7:], Entry("user", "and now?")]
    found = archive(file, compacted, session="s")
    assert found[0] == ids[0]
    assert found[2:-1] == ids[7:]
    assert (count(file), count(file, "conversation")) == (13, 1)
    grown = archive(file, [*compacted, Entry("assistant", "now this")], session="s")
    assert grown[:-1] == found
    assert (count(file), count(file, "conversation")) == (14, 1)


def test_after_a_compaction_that_kept_everything_else_the_next_turn_continues_at_once(file: apsw.Connection) -> None:
    whole = say(*LONG[:10])
    archive(file, whole, session="s")
    compacted = [Entry("user", "a summary of all that was said"), *whole[5:]]
    archive(file, compacted, session="s")
    before = count(file, "alias")
    archive(file, [*compacted, Entry("user", "and now?")], session="s")
    assert (count(file), count(file, "conversation"), count(file, "alias")) == (12, 1, before)


def test_without_a_session_a_compacted_history_is_another_conversation(file: apsw.Connection) -> None:
    whole = say(*LONG[:4])
    archive(file, whole)
    archive(file, [Entry("user", "a summary"), *whole[1:]])
    assert (count(file), count(file, "conversation")) == (8, 2)


def test_the_same_question_asked_again_is_another_message(file: apsw.Connection) -> None:
    history = say(LONG[0], "yes", LONG[0], "yes", LONG[0])
    assert len({*archive(file, history, session="s")}) == 5
    after = [
        Entry("user", "a summary of all that was said"),
        *history[3:],
        Entry("assistant", "no"),
        Entry("user", LONG[0]),
    ]
    ids = archive(file, after, session="s")
    assert len({*ids}) == len(after)


def test_cleared_results_are_the_results_they_were(file: apsw.Connection) -> None:
    call = Entry("assistant", "", calls=(Call("call_1", "read", '{"path": "a.txt"}'),))
    result = Entry("tool", "the whole text of the file " * 20, tool="read", call_id="call_1")
    history = [Entry("user", LONG[0]), call, result, Entry("assistant", LONG[1]), Entry("user", LONG[2])]
    ids = archive(file, history, session="s")
    cleared = [*history[:2], replace(result, body="[cleared]"), *history[3:], Entry("assistant", LONG[3])]
    assert archive(file, cleared, session="s")[:-1] == ids
    assert (count(file), count(file, "conversation")) == (6, 1)


def test_a_system_prompt_that_changes_every_turn_leaves_the_conversation_whole(file: apsw.Connection) -> None:
    history, recent = say(*LONG[:9]), LruCache[NamedHistory](RECENT)
    for n in range(1, 10):
        ids = archive(file, [Entry("system", f"it is {n} o'clock"), *history[:n]], session="s", recent=recent)
        assert all(ids)
    assert bodies(file, ids) == ["it is 9 o'clock", *LONG[:9]]
    assert (count(file), count(file, "conversation")) == (18, 1)


def test_a_system_prompt_twice_in_a_row_is_one_message(file: apsw.Connection) -> None:
    system = Entry("system", "be brief")
    one, other, _ = archive(file, [system, system, Entry("user", "hello")])
    assert one == other


def test_the_title_is_the_first_line_of_the_first_user_message(file: apsw.Connection) -> None:
    archive(file, [Entry("system", "be brief")], session="s")
    archive(file, [Entry("user", "\n  what   is\tthis?\nsecond line")], session="t")
    assert [conversation.title for conversation in queries.conversations(file)] == ["what is this?", ""]
    assert len(headline("word " * 40)) == 80


def test_calls_results_and_trust_come_back(file: apsw.Connection) -> None:
    call = Call("c1", "search", '{"q": "naïve\\u0000"}')
    ids = archive(file, [Entry("assistant", "", calls=(call,)), Entry("tool", "found", tool="search", call_id="c1")])
    asked, told = queries.stored(file, ids)
    assert asked.calls == (call,)
    assert (told.meta, told.trust.name) == ('{"tool":"search","call_id":"c1"}', "UNTRUSTED")


def test_text_that_sqlite_cannot_hold_is_made_fit(file: apsw.Connection) -> None:
    ids = archive(file, [Entry("user", "nul \0 and half \ud83d of a pair, 设备")])
    assert bodies(file, ids) == ["nul \ufffd and half ? of a pair, 设备"]
    assert archive(file, [Entry("user", "nul \0 and half \ud83d of a pair, 设备")]) == ids
    archive(file, say("x"), session="s \0 \ud83d", model="m \ud83d")
    assert queries.newest_turn(file, "s \0 \ud83d") == [2]
    assert queries.conversation(file, "\ud83d") is None


def test_what_came_out_of_the_memory_is_not_stored_again(file: apsw.Connection) -> None:
    (id,) = archive(file, [Entry("tool", "User: secret", tool="search_memory", call_id="c", recalled=True)])
    assert bodies(file, [id]) == [""]


@pytest.mark.parametrize("at", range(4))
def test_a_forgotten_message_does_not_come_back_and_the_others_continue(file: apsw.Connection, at: int) -> None:
    history = say(*LONG[:4])
    ids = archive(file, history, session="s")
    forget.remove(file, [ids[at]])
    left = [0 if n == at else id for n, id in enumerate(ids)]
    assert archive(file, history, session="s") == left
    grown = archive(file, [*history, Entry("user", LONG[5])], session="s")
    assert (grown[:-1], bool(grown[-1])) == (left, True)
    assert (count(file), count(file, "conversation")) == (4, 1)
    assert not file.execute("SELECT 1 FROM message WHERE context LIKE ?", (f"%{LONG[at][:9]},%",)).fetchall()


def test_a_short_message_that_was_forgotten_may_be_written_again(file: apsw.Connection) -> None:
    ids = archive(file, say("yes", LONG[0]), session="s")
    forget.remove(file, ids[:1])
    assert archive(file, say("yes", LONG[0]), session="s")[0] == 0
    assert archive(file, say(LONG[1], LONG[2], "yes"), session="s")[2] > 0
    assert archive(file, say(LONG[1], LONG[2], "yes", LONG[3], "yes"), session="s")[4] > 0
    assert archive(file, say("yes", LONG[0]), session="another")[0] == 0


def test_a_long_message_that_was_forgotten_stays_forgotten_at_every_place(file: apsw.Connection) -> None:
    forget.remove(file, archive(file, say(LONG[0], LONG[1]), session="s")[:1])
    assert archive(file, say(LONG[2], LONG[3], LONG[0]), session="t")[2] == 0


def test_short_messages_know_whom_they_quote(file: apsw.Connection) -> None:
    ids = archive(file, [Entry("system", "be brief"), *say("one", "two", "three")], session="s")
    quoted = file.execute("SELECT before1, before2 FROM message WHERE role <> 'system' ORDER BY id").fetchall()
    assert quoted == [(None, None), (ids[1], None), (ids[2], ids[1])]


def test_the_cache_of_histories_never_answers_for_the_file(file: apsw.Connection) -> None:
    recent, history = LruCache[NamedHistory](RECENT), say(*LONG[:4])
    file.execute("BEGIN")
    archive(file, history[:2], session="s", recent=recent)
    file.execute("ROLLBACK")
    ids = archive(file, history, session="s", recent=recent)
    assert bodies(file, ids) == LONG[:4]
    forget.remove(file, ids[:1])
    assert archive(file, history, session="s", recent=recent) == [0, *ids[1:]]


def test_the_cache_of_histories_is_bounded() -> None:
    recent = LruCache[NamedHistory](RECENT)
    for n in range(2 * RECENT):
        recent.keep(n, NamedHistory.of((), ""))
    assert [recent.find(n) is not None for n in (0, RECENT - 1, RECENT, 2 * RECENT - 1)] == [False, False, True, True]


@given(st.lists(st.integers(0, 12), max_size=30), st.lists(st.integers(0, 12), max_size=30))
@settings(deadline=None)
def test_aligned_blocks_are_equal_and_rise_in_both(new: list[int], old: list[int]) -> None:
    done_new = done_old = 0
    for start, at, length in align(new, old):
        assert length > 0
        assert start >= done_new
        assert at >= done_old
        assert new[start : start + length] == old[at : at + length]
        done_new, done_old = start + length, at + length


@given(st.lists(st.integers(0, 50), unique=True, max_size=30), st.data())
@settings(deadline=None)
def test_what_was_only_left_out_is_found_again(old: list[int], data: st.DataObject) -> None:
    new = [item for item in old if data.draw(st.booleans())]
    assert [n for start, _, length in align(new, old) for n in new[start : start + length]] == new


# ---- whatever a client does

CHANGES = st.sampled_from(("say", "say", "say", "retry", "edit", "compact", "clear", "repeat", "clock", "restart"))
WORDS = st.sampled_from(("yes", "go on", *LONG[:6], "x" * 500))


def changed(history: list[Entry], change: str, text: str, at: int) -> list[Entry]:
    """What a client sends next."""
    if change == "retry":
        return history[: max(1, len(history) - at % 3)] if history else []
    if change == "edit" and history:
        at %= len(history)
        return [*history[:at], replace(history[at], body=f"{text} edited")]
    if change == "compact" and len(history) > 2:
        return [Entry("user", f"summary: {text}"), *history[1 + at % (len(history) - 1) :]]
    if change == "clear":
        results = [n for n, entry in enumerate(history) if entry.role == "tool"]
        return [replace(e, body="[cleared]") if n in results[:-1] else e for n, e in enumerate(history)]
    if change == "clock":
        said = [entry for entry in history if entry.role != "system"]
        return [Entry("system", f"it is {at}"), *said]
    if change == "say":
        call = Call(f"call_{len(history)}_{at}", "run", "{}")
        tool = [Entry("assistant", "", calls=(call,)), Entry("tool", f"{text} " * 30, tool="run", call_id=call.id)]
        return [*history, Entry("user", text), *(tool if at % 3 == 0 else []), Entry("assistant", f"{text}! {at}")]
    return history


@given(st.lists(st.tuples(CHANGES, WORDS, st.integers(0, 40)), max_size=14), st.sampled_from((None, "s")))
@settings(deadline=None, max_examples=examples(60))
def test_no_message_of_any_history_is_lost_or_stored_twice(
    steps: list[tuple[str, str, int]], session: str | None
) -> None:
    connection, recent, history = open_file(":memory:"), LruCache[NamedHistory](RECENT), list[Entry]()
    cleared = ("[cleared]",)
    try:
        for change, text, at in steps:
            history = changed(history, change, text, at)
            recent = LruCache[NamedHistory](RECENT) if change == "restart" else recent
            ids = archive(connection, history, session=session, recent=recent)
            stored = {message.id: message for message in queries.stored(connection, ids)}
            for id, entry in zip(ids, history, strict=True):
                assert stored[id].role == entry.role
                assert stored[id].body == entry.body or entry.body in cleared
            n = count(connection)
            for part in (history, history[: len(history) // 2]):
                assert archive(connection, part, session=session, recent=recent) == ids[: len(part)]
                assert archive(connection, part, session=session) == ids[: len(part)]
            assert count(connection) == n
        chains = connection.execute("SELECT conversation, seq, count(*) FROM message GROUP BY 1, 2 HAVING count(*) > 1")
        assert not chains.fetchall()
        for table in ("fts_user", "fts_other"):
            connection.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 0)")
    finally:
        connection.close()


def test_half_a_character_in_a_call_is_stored_like_one_in_a_text(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "half.db") as store:
        call = Call("\ud800", "na\udfffme", '{"text": "\udc00 zebra\0"}')
        history = [
            Entry("user", "\ud800 go"),
            Entry("assistant", "", calls=(call,)),
            Entry("tool", "\udfff", call_id="\ud800"),
        ]
        ids = store.archive(history, session="\ud800", model="\ud800")
        assert all(ids)
        assert store.archive(history, session="\ud800") == ids
        assert [hit.message_id for hit in store.search("zebra")] == [ids[1]]
