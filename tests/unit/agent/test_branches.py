"""Versions of questions: whatever is edited or asked again, each transcript that there was can be switched back to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.unit.agent.scripted import Playing, play

from shepherd.agent.session import Session
from shepherd.agent.storage import MOST_VERSIONS, SavedConversation, SaveError, from_json, to_json
from shepherd.agent.turn import TurnEvent
from shepherd.core import Event, InvalidRequest, Message, Request, Sampling, Text, replay


def numbering() -> Session:
    """A conversation whose answers are numbered, so that no two are the same."""
    n = 0

    def answer(request: Request) -> list[Event]:
        nonlocal n
        n += 1
        return list(replay(Message.assistant(f"answer {n}"), model="m"))

    return Session(Playing(answer), model="m", n_ctx=100)


def texts(session: Session) -> tuple[str, ...]:
    return tuple(message.text for message in session.messages)


def saved_and_read(session: Session) -> None:
    """Put the conversation into a file and back."""
    saved = from_json(json.loads(json.dumps(to_json(session.to_saved()))))
    assert saved == session.to_saved()
    session.restore(saved)


def all_versions(session: Session, first: int = 0) -> set[tuple[str, ...]]:
    """Every transcript that can be switched to, by all ways; the session is as before then."""
    here = session.branches
    found = {texts(session)}
    for at in sorted(each for each in here if each >= first):
        n, current = here[at]
        for place in range(n):
            session.switch(at, place)
            found |= all_versions(session, at + 1)
        session.switch(at, current)
    return found


async def test_every_transcript_that_there_was_can_be_switched_back_to() -> None:
    session = numbering()
    seen = set()
    await play(session.chat("one"))
    await play(session.chat("two"))
    await play(session.chat("three"))
    seen.add(texts(session))
    steps: tuple[Callable[[], AsyncGenerator[TurnEvent, None]], ...] = (
        session.retry,
        lambda: session.edit("zwei", 2),
        lambda: session.chat("drei"),
        lambda: session.edit("DREI"),
        lambda: session.retry(2),
        lambda: session.edit("eins", 0),
        lambda: session.retry(0),
    )
    for step in steps:
        before = texts(session)
        await play(step())
        if texts(session)[: len(before)] == before:  # it has grown
            seen.discard(before)
        seen.add(texts(session))
        saved_and_read(session)
        now = texts(session)
        assert seen <= all_versions(session)
        assert texts(session) == now
    assert session.branches[0] == (3, 2)
    session.switch(0, 0)
    assert session.branches == {0: (3, 0), 2: (3, 2)}
    assert texts(session)[:3] == ("one", "answer 1", "zwei")


async def test_versions_keep_their_numbers_and_go_with_their_question() -> None:
    session = numbering()
    await play(session.chat("one"))
    await play(session.retry())
    await play(session.retry())
    assert session.branches == {0: (3, 2)}
    session.switch(0, 0)
    assert (texts(session), session.branches) == (("one", "answer 1"), {0: (3, 0)})
    session.switch(0, 0)
    assert session.branches == {0: (3, 0)}
    session.undo()
    assert (session.branches, session.to_saved().branches) == ({}, ())


async def test_a_version_without_an_answer_is_not_kept_and_one_that_fails_changes_nothing() -> None:
    session = numbering()
    await play(session.chat("one"), stop_after=1)  # stopped before the first word
    await play(session.chat("two"))
    await play(session.retry())
    before, branches = texts(session), session.branches
    await play(session.edit("three"), stop_after=1)
    assert (texts(session), session.branches) == (before, branches)
    for wrong in (-1, 1, 9):
        with pytest.raises(InvalidRequest, match="is no question"):
            await play(session.edit("x", wrong))
        with pytest.raises(InvalidRequest, match="version"):
            session.switch(wrong, 1)
    with pytest.raises(InvalidRequest, match="has 2 versions"):
        session.switch(0, 2)


async def test_no_more_versions_are_kept_than_a_file_may_have() -> None:
    session = numbering()
    await play(session.chat("one"))
    for _ in range(MOST_VERSIONS):
        await play(session.retry())
    saved_and_read(session)
    before = texts(session)
    with pytest.raises(InvalidRequest, match=f"has {MOST_VERSIONS + 1} versions"):
        await play(session.retry())
    assert texts(session) == before


async def test_sampling_is_saved_and_an_old_file_leaves_it_as_it_is() -> None:
    session = numbering()
    session.sampling = Sampling(temperature=0.5, seed=7)
    await play(session.chat("one"))
    saved_and_read(session)
    assert session.sampling == Sampling(temperature=0.5, seed=7)
    session.restore(SavedConversation("a", (Message.user("x"),)))
    assert session.sampling == Sampling(temperature=0.5, seed=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": 1, "place": 0},
        {"at": 0},
        {"at": 0, "place": 99},
        {"at": 0, "place": 2},
        {"at": 0, "place": 0, "messages": []},
        {"at": 0, "place": 0, "branches": [{"at": 0, "place": 0, "messages": "M"}]},
    ],
)
def test_a_file_with_wrong_branches_is_refused(wrong: dict[str, Any]) -> None:
    messages = (Message.user("a"), Message("assistant", (Text("b"),)))
    good = to_json(SavedConversation("x", messages))
    branch: dict[str, Any] = {"messages": good["messages"], **wrong}
    for inner in branch.get("branches", ()):
        inner["messages"] = good["messages"]
    with pytest.raises(SaveError):
        from_json({**good, "branches": [branch]})
    twice = {"at": 0, "place": 0, "messages": good["messages"]}
    assert from_json({**good, "branches": [twice]}).branches[0].place == 0
    with pytest.raises(SaveError, match="once each"):
        from_json({**good, "branches": [twice, twice]})
