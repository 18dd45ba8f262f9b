"""Vectors in the file and in memory, held against sums over all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.memory import schema
from shepherd.memory.archive import history
from shepherd.memory.archive.index import SHORT_CHARS
from shepherd.memory.records import Embedder, Entry
from shepherd.memory.search import vectors
from shepherd.memory.search.vectors import Passage, VectorIndex, backfill, missing, n_missing, register

Values = npt.NDArray[np.float32]
T = TypeVar("T")


class Letters:
    """An embedder that knows how often each letter is there; it notes what it was given."""

    def __init__(self, name: str = "letters", before: Callable[[], None] | None = None) -> None:
        self.name = name
        self.dim = 26
        self.given: list[str] = []
        self._before = before

    def embed(self, texts: Sequence[str]) -> Values:
        if self._before is not None:
            self._before()
        self.given += texts
        counts = np.array([[text.count(chr(97 + at)) + 0.01 for at in range(self.dim)] for text in texts], np.float32)
        counts -= counts.mean(axis=1, keepdims=True) - 0.001
        unit: Values = counts / np.linalg.norm(counts, axis=1, keepdims=True)
        return unit


class Numbered:
    """An embedder of so many dimensions whose vectors are made by the test."""

    def __init__(self, dim: int) -> None:
        self.name = f"numbered-{dim}"
        self.dim = dim

    def embed(self, texts: list[str]) -> Values:
        return drawn(np.random.default_rng(len(texts[0])), len(texts), self.dim)


_proof: tuple[type[Embedder], type[Embedder]] = (Letters, Numbered)


def drawn(random: np.random.Generator, n: int, dim: int) -> Values:
    values = random.standard_normal((n, dim)).astype(np.float32)
    unit: Values = values / np.linalg.norm(values, axis=1, keepdims=True)
    return unit


class Archive:
    """One conversation in a file, and the two calls of a store that this module needs."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        self.connection = schema.open_file(path)
        self._conversation = history.add_conversation(self.connection)
        self._said: list[tuple[int, str]] = []

    def say(self, *said: tuple[str, str]) -> list[int]:
        """Add messages (role, body); their ids."""
        for role, body in said:
            n, (ids, texts) = len(self._said), list(zip(*self._said, strict=True)) or ((), ())
            new = history.NewMessage(Entry(role, body), n, n, n.to_bytes(16, "big"), texts, ids)  # type: ignore[arg-type]
            (id,) = history.add_messages(self.connection, self._conversation, [new])
            self._said.append((id, body))
        return [id for id, _ in self._said[-len(said) :]]

    def forget(self, id: int) -> None:
        self.connection.execute("DELETE FROM message WHERE id = ?", (id,))
        self.connection.execute("DELETE FROM vector WHERE message = ?", (id,))

    def run(self, work: Callable[[apsw.Connection], T], /) -> T:
        self.connection.execute("BEGIN IMMEDIATE")
        done = work(self.connection)
        self.connection.execute("COMMIT")
        return done

    def rows(self) -> dict[int, str]:
        """Message -> name of the embedder of its vector."""
        query = "SELECT message, name FROM vector JOIN embedder ON embedder.id = embedder"
        found: list[Any] = self.connection.execute(query).fetchall()
        return dict(found)

    def fill(self, embedder: Embedder, **options: Any) -> int:
        return backfill(self.run, self.run, embedder, **options)


# -- the search ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(40))
@given(
    n=st.integers(0, 150),
    dim=st.sampled_from([1, 7, 8, 63, 64, 65, 384]),
    k=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_what_is_found_is_what_a_sum_over_all_vectors_finds(n: int, dim: int, k: int, seed: int) -> None:
    connection, embedder = schema.open_file(":memory:"), Numbered(dim)
    stored = drawn(np.random.default_rng(seed), n, dim)
    question = drawn(np.random.default_rng(seed + 1), 1, dim)[0]
    ids = [3 * at + 1 for at in range(n)]
    vectors.add(connection, register(connection, embedder), ids, stored)
    found = VectorIndex(embedder).nearest(connection, question, k)
    expected = dict(zip(ids, (stored @ question).tolist(), strict=True))
    assert len(found) == min(k, n)
    assert [cosine for _, cosine in found] == pytest.approx(sorted(expected.values(), reverse=True)[:k], abs=0.02)
    assert [cosine for _, cosine in found] == pytest.approx([expected[id] for id, _ in found], abs=0.02)


def test_among_many_the_signs_find_nearly_all_that_are_closest() -> None:
    random = np.random.default_rng(2)
    connection, embedder = schema.open_file(":memory:"), Numbered(256)
    centres = drawn(random, 400, 256)
    stored = np.repeat(centres, 20, axis=0) + drawn(random, 8000, 256) * 0.8
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    vectors.add(connection, register(connection, embedder), range(8000), stored)
    index = VectorIndex(embedder)
    shares = []
    for at in range(50):
        question = stored[at * 20]
        best = set(np.argsort(-(stored @ question))[:10].tolist())
        shares.append(len(best & {id for id, _ in index.nearest(connection, question, 10)}) / 10)
    assert np.mean(shares) > 0.95


@given(values=st.lists(st.integers(0, 30), max_size=60), size=st.integers(1, 20), n=st.integers(1, 25))
def test_the_least_of_many_pieces_are_those_of_the_whole(values: list[int], size: int, n: int) -> None:
    whole = np.array(values, np.uint16)
    pieces = ((start, whole[start : start + size]) for start in range(0, len(whole), size))
    found = vectors._least(pieces, n).tolist()
    limit = sorted(values)[min(n, len(values)) - 1] if values else 0
    assert sorted(found) == [at for at, value in enumerate(values) if value <= limit]


def test_pieces_of_a_scan_meet_without_a_gap() -> None:
    words = np.random.default_rng(1).integers(0, 2**63, (2, 70_000), np.uint64)
    question = words[:, 69_999].copy()
    pieces = list(vectors._differences(words, question))
    assert [start for start, _ in pieces] == [0, 1 << 15, 1 << 16]
    whole = np.concatenate([piece for _, piece in pieces])
    assert len(whole) == 70_000
    assert whole[69_999] == 0
    assert whole[5] == sum(int(a ^ b).bit_count() for a, b in zip(words[:, 5], question, strict=True))


def test_equal_messages_come_newest_first() -> None:
    held = Archive()
    ids = held.say(("user", "same words"), ("user", "x" * SHORT_CHARS), ("user", "same words"))
    embedder = Letters()
    vectors.add(held.connection, register(held.connection, embedder), ids, embedder.embed(["abc", "xyz", "abc"]))
    found = VectorIndex(embedder).searcher(held.connection)("abc", 2)
    assert [id for id, _ in found] == [ids[2], ids[0]]
    assert found[0][1] == pytest.approx(1, abs=0.01)


# -- following the file --------------------------------------------------------------------------------------------


def test_an_index_follows_all_writers_in_any_order(tmp_path: Path) -> None:
    ours, theirs = schema.open_file(tmp_path / "a.db"), schema.open_file(tmp_path / "a.db")
    embedder = Numbered(64)
    stored = drawn(np.random.default_rng(4), 100, 64)
    index = VectorIndex(embedder)
    assert index.nearest(ours, stored[0], 1) == []
    for ids in (range(50, 100), range(50)):
        vectors.add(theirs, register(theirs, embedder), ids, stored[ids.start : ids.stop])
        for id in (ids.start, ids.stop - 1):
            assert index.nearest(ours, stored[id], 1)[0][0] == id
    assert len(index) == 100


def test_a_vector_that_was_replaced_is_found_by_its_new_value_alone() -> None:
    connection, embedder = schema.open_file(":memory:"), Numbered(64)
    stored = drawn(np.random.default_rng(5), 300, 64)
    number = register(connection, embedder)
    index = VectorIndex(embedder)
    vectors.add(connection, number, range(300), stored)
    index.refresh(connection)
    vectors.add(connection, number, [17], -stored[17:18])
    assert [id for id, cosine in index.nearest(connection, -stored[17], 1) if cosine > 0.99] == [17]
    assert 17 not in {id for id, _ in index.nearest(connection, stored[17], 10)}
    ids = [id for id, _ in index.nearest(connection, stored[0], 50)]
    assert len(ids) == len(set(ids)) == 50


def test_deleted_vectors_are_not_found_and_leave_no_gap() -> None:
    connection, embedder = schema.open_file(":memory:"), Numbered(32)
    stored = drawn(np.random.default_rng(6), 1000, 32)
    vectors.add(connection, register(connection, embedder), range(1000), stored)
    index = VectorIndex(embedder)
    closest = [id for id, _ in index.nearest(connection, stored[0], 900)]
    assert len(closest) == 900
    for id in closest[:600]:
        connection.execute("DELETE FROM vector WHERE message = ?", (id,))
    found = [id for id, _ in index.nearest(connection, stored[0], 20)]
    assert len(found) == 20
    assert not set(found) & set(closest[:600])
    assert found == [id for id, _ in VectorIndex(embedder).nearest(connection, stored[0], 20)]
    connection.execute("DELETE FROM vector")
    assert index.nearest(connection, stored[0], 20) == []


def test_damaged_rows_are_passed_over() -> None:
    connection, embedder = schema.open_file(":memory:"), Numbered(32)
    stored = drawn(np.random.default_rng(7), 3, 32)
    vectors.add(connection, register(connection, embedder), range(3), stored)
    connection.execute("UPDATE vector SET bits = x'00' WHERE message = 0; UPDATE vector SET q8 = x'' WHERE message = 1")
    assert [id for id, _ in VectorIndex(embedder).nearest(connection, stored[0], 3)] == [2]


def test_vectors_of_another_embedder_are_not_compared() -> None:
    held = Archive()
    ids = held.say(("user", "aaa"), ("user", "bbb" * SHORT_CHARS))
    one, other = Letters("one"), Letters("other")
    held.fill(one)
    assert VectorIndex(other).searcher(held.connection)("aaa", 5) == []
    assert held.fill(other) == 2
    assert held.rows() == dict.fromkeys(ids, "other")
    assert VectorIndex(one).searcher(held.connection)("aaa", 5) == []
    assert VectorIndex(other).searcher(held.connection)("aaa", 1)[0][0] == ids[0]


def test_threads_search_while_vectors_are_written(tmp_path: Path) -> None:
    writer, embedder = schema.open_file(tmp_path / "a.db"), Numbered(64)
    number = register(writer, embedder)
    stored = drawn(np.random.default_rng(8), 3000, 64)
    index = VectorIndex(embedder)
    done = threading.Event()
    wrong: list[object] = []

    def search() -> None:
        reader = schema.open_file(tmp_path / "a.db", readonly=True)
        try:
            while not done.is_set():
                for id, cosine in index.nearest(reader, stored[5], 10):
                    if abs(cosine - float(stored[id] @ stored[5])) > 0.02:
                        wrong.append((id, cosine))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(0, 3000, 100):
        with writer:
            vectors.add(writer, number, range(start, start + 100), stored[start : start + 100])
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index.nearest(writer, stored[2999], 1)[0][0] == 2999
    assert len(index) == 3000


# -- what is embedded ----------------------------------------------------------------------------------------------

LONG = "long " * SHORT_CHARS


def test_users_messages_come_first_newest_first_then_those_of_assistants_only() -> None:
    held = Archive()
    system, old, answer, tool, blank, new, source = held.say(
        ("system", "be kind"), ("user", LONG), ("assistant", LONG), ("tool", "42"), ("user", " \n\t"), ("user", LONG),
        ("assistant", LONG),
    )  # fmt: skip
    held.connection.execute(
        "INSERT INTO fact(key, value, kind, status, created_ms, source) VALUES('k', 'v', 'fact', 'current', 0, ?)",
        (source,),
    )
    number = register(held.connection, Letters())

    def ids(**options: Any) -> list[int]:
        return [passage.id for passage in missing(held.connection, number, 10, **options)]

    assert ids() == [source, new, old]
    assert ids(assistants=True) == [answer]
    assert ids(below=new) == [old]
    assert [passage.id for passage in missing(held.connection, number, 2)] == [source, new]
    assert n_missing(held.connection, number) == 3
    assert n_missing(held.connection, number, assistants=True) == 1
    assert held.fill(Letters(), assistants=True) == 4
    assert set(held.rows()) == {old, new, source, answer}
    assert not {system, tool, blank} & set(held.rows())


@pytest.mark.parametrize(
    ("before", "said", "counts"),
    [
        (("assistant", "What is its name?"), "Rex", True),
        (("user", "I have a dog."), "It is called Rex.", True),
        (("assistant", LONG), "Rex", False),
        (("assistant", "What is its name?"), LONG, False),
        (("tool", "42"), "Rex", False),
        (("system", "Be kind."), "Rex", False),
        (("assistant", "  "), "Rex", False),
    ],
)
def test_a_short_message_before_a_short_one_counts(before: tuple[str, str], said: str, counts: bool) -> None:
    held = Archive()
    _, id = held.say(before, ("user", said))
    assert missing(held.connection, 1, 1) == [Passage(id, said[: vectors.PASSAGE_CHARS], before[1] if counts else None)]


def test_the_message_before_counts_less_than_the_message_itself() -> None:
    held, embedder = Archive(), Letters()
    question, answer = held.say(("user", "dddd oooo gggg"), ("user", "rrrr eeee xxxx"))
    assert held.fill(embedder) == 2
    near = VectorIndex(embedder).searcher(held.connection)
    own, before = dict(near("rrrr eeee xxxx", 2))[answer], dict(near("dddd oooo gggg", 2))[answer]
    assert dict(near("dddd oooo gggg", 2))[question] > 0.99 > own > before > 0.2
    assert embedder.given[:2] == ["rrrr eeee xxxx", "dddd oooo gggg"], "each text once"


def test_a_very_long_message_is_embedded_by_its_beginning() -> None:
    held = Archive()
    held.say(("user", "ab" * 100_000))
    assert missing(held.connection, 1, 1)[0].body == "ab" * (vectors.PASSAGE_CHARS // 2)


# -- back-filling --------------------------------------------------------------------------------------------------


def test_what_is_missing_is_filled_once_and_progress_ends_at_the_end() -> None:
    held = Archive()
    ids = held.say(*[("user", f"{LONG} {at}") for at in range(70)])
    told: list[tuple[int, int]] = []
    embedder = Letters()
    assert held.fill(embedder, on_progress=lambda done, total: told.append((done, total))) == 70
    assert told == [(0, 70), (32, 70), (64, 70), (70, 70)]
    assert held.rows() == dict.fromkeys(ids, "letters")
    assert held.fill(embedder) == 0
    assert len(embedder.given) == 70
    (newest,) = held.say(("user", LONG))
    assert held.fill(embedder) == 1
    assert newest in held.rows()


def test_a_stop_keeps_the_vectors_so_far_and_the_next_run_continues() -> None:
    held = Archive()
    held.say(*[("user", f"{LONG} {at}") for at in range(100)])
    asked = iter([False, False, True])
    assert held.fill(Letters(), stop=lambda: next(asked)) == 64
    assert len(held.rows()) == 64
    assert held.fill(Letters()) == 36
    assert len(held.rows()) == 100


def test_what_fails_keeps_what_is_done() -> None:
    held = Archive()
    held.say(*[("user", f"{LONG} {at}") for at in range(50)])
    calls = iter([False, True])

    def fail() -> None:
        if next(calls):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        held.fill(Letters(before=fail))
    assert len(held.rows()) == 32


def test_what_is_forgotten_or_changed_while_it_is_embedded_gets_no_vector() -> None:
    held = Archive()
    gone, kept, pruned, quoted, quoting = held.say(
        ("user", LONG), ("user", LONG), ("user", LONG), ("assistant", "my secret is Rex"), ("user", "yes")
    )

    def meanwhile() -> None:
        held.forget(gone)
        held.forget(quoted)
        held.connection.execute("UPDATE message SET body = 'long' WHERE id = ?", (pruned,))

    assert held.fill(Letters(before=meanwhile)) == 1
    assert set(held.rows()) == {kept}
    again = Letters()
    assert held.fill(again) == 2
    assert set(held.rows()) == {kept, pruned, quoting}
    assert not any("secret" in passage for passage in again.given)


def test_an_archive_without_messages_has_nothing_to_fill_and_nothing_to_find() -> None:
    held = Archive()
    told: list[tuple[int, int]] = []
    assert held.fill(Letters(), on_progress=lambda done, total: told.append((done, total))) == 0
    assert told == [(0, 0)]
    assert VectorIndex(Letters()).searcher(held.connection)("anything", 5) == []
