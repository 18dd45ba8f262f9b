"""Whose memory: paths, users that see nothing of each other, and the store that is there by default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.core import ConfigError, MemoryFailure
from shepherd.memory import users as scope
from shepherd.memory.location import default_path, unusual_path
from shepherd.memory.records import Entry
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import LOCAL, DefaultStore, UserStores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[UserStores]:
    with UserStores(tmp_path / "memory.db") as made:
        yield made


def get(stores: UserStores, user: str) -> MemoryStore:
    store = stores.find_store(user)
    assert store is not None
    return store


@pytest.mark.parametrize("user", [None, "", " ", "\t\n"])
def test_who_is_not_known_has_no_memory(stores: UserStores, tmp_path: Path, user: str | None) -> None:
    assert stores.find_store(user) is None
    assert list(tmp_path.iterdir()) == []


def test_users_see_nothing_of_each_other_and_may_say_the_same(stores: UserStores) -> None:
    users = (LOCAL, "ann", "bob", "../../etc", "Ann", "名前", "half \ud83d")
    for user in users:
        get(stores, user).archive([Entry("user", "the same words")])
        get(stores, user).set_fact("name", user.encode("utf-8", "replace").decode())
    for user in users:
        store = get(stores, user)
        assert store.stats().messages == 1
        assert [fact.value for fact in store.facts()] == [user.encode("utf-8", "replace").decode()]
    assert len({stores.path_of(user) for user in users}) == len(users)


def test_the_owner_has_the_file_and_others_have_files_beside_it(stores: UserStores, tmp_path: Path) -> None:
    get(stores, LOCAL)
    get(stores, "ann")
    assert sorted(path.name for path in tmp_path.glob("*") if "-" not in path.suffix) == ["memory-users", "memory.db"]
    (theirs,) = (tmp_path / "memory-users").glob("*.db")
    assert "ann" not in theirs.name
    with pytest.raises(ConfigError, match="another user"):
        MemoryStore(theirs)


def test_blanks_around_an_id_say_nothing(stores: UserStores) -> None:
    assert stores.find_store(" ann ") is stores.find_store("ann")


def test_a_forgotten_user_leaves_no_file(stores: UserStores, tmp_path: Path) -> None:
    store = get(stores, "ann")
    store.archive([Entry("user", "a secret")])
    get(stores, LOCAL).archive([Entry("user", "kept")])
    assert stores.forget_user("ann")
    assert list((tmp_path / "memory-users").iterdir()) == []
    assert not stores.forget_user("ann")
    with pytest.raises(MemoryFailure, match="closed"):
        store.stats()
    assert get(stores, "ann").stats().messages == 0
    assert get(stores, LOCAL).stats().messages == 1


def test_a_store_in_use_outlives_its_release(stores: UserStores) -> None:
    first = get(stores, "user 0")
    for n in range(1, scope.MAX_OPEN + 2):
        get(stores, f"user {n}")
    assert first.archive([Entry("user", "still here")]) == [1]
    assert get(stores, "user 0").stats().messages == 1


def test_closed_stores_give_nothing_away(stores: UserStores) -> None:
    store = get(stores, "ann")
    stores.close()
    stores.close()
    for ask in (lambda: stores.find_store("ann"), store.stats):
        with pytest.raises(MemoryFailure, match="closed"):
            ask()


def test_the_default_path_is_what_the_environment_says_or_the_users_and_never_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_path({"RAG_DB_PATH": "~/x.db"}) == Path.home() / "x.db"
    for blank in ({}, {"RAG_DB_PATH": " "}):
        assert default_path(blank).name == "memory.db"
        assert default_path(blank).parent.name == "shepherd"
    (tmp_path / "shepherd_memory.db").touch()
    assert default_path({}).name == "memory.db"
    assert default_path({"RAG_DB_PATH": "y.db"}) == Path("y.db")
    assert unusual_path(None, {}) is unusual_path(str(default_path({})), {}) is None
    assert unusual_path(None, {"RAG_DB_PATH": "y.db"}) == Path("y.db")


def test_the_default_store_is_opened_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = DefaultStore()
    monkeypatch.setenv("RAG_DB_PATH", str(tmp_path / "one.db"))
    assert not (tmp_path / "one.db").exists()
    manager.archive([Entry("user", "What is the capital of France?"), Entry("assistant", "Paris.")])
    (hit,) = manager.search("capital of France", max_results=5)
    assert (hit.user_message, hit.assistant_response) == ("What is the capital of France?", "Paris.")
    assert 0.9 <= hit.score <= 1
    monkeypatch.setenv("RAG_DB_PATH", str(tmp_path / "two.db"))
    assert manager.search("capital of France") == []
    manager.close()
