"""Compactions around a back end: what an item stands for, what stands around it, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.agent.scripted import play
from tests.unit.agent.test_storage import MESSAGES

from shepherd.agent.compaction import CompactingBackend
from shepherd.agent.compaction_store import CompactionStore
from shepherd.agent.extract import extract
from shepherd.agent.with_memory import MemoryBackend, entry_of
from shepherd.core import (
    EngineError,
    Event,
    Finished,
    InvalidRequest,
    Message,
    Native,
    Opaque,
    OpaqueBlock,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    fold,
    replay,
)
from shepherd.core.edits import COMPACTION, WHOLE, AppliedEdit, Edit, Edited, Place
from shepherd.memory.users import UserStores
from shepherd.wire.history import CLEARED, plain, without

NOW = (Edit("compact", trigger_tokens=0, pause=True),)


class FakeCells:
    """A fake of the seam: a message is a token, and a compaction clears all but the newest two messages and the
    system's."""

    n_ctx = 8_192

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def edit(self, request: Request, edits: Sequence[Edit]) -> Edited:
        n = len(request.messages) - len(request.cleared)
        cleared, applied = request.cleared, list[AppliedEdit]()
        for edit in edits:
            if n > (edit.trigger_tokens or 0):
                old = enumerate(request.messages[:-2])
                cleared |= {(at, WHOLE) for at, message in old if message.role != "system"}
                applied.append(AppliedEdit("compact", len(cleared - request.cleared), len(cleared - request.cleared)))
        return Edited(cleared, tuple(applied), n, len(request.messages) - len(cleared), model="m")

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        yield Started("m", usage=Usage(input=len(request.messages) - len(request.cleared)))
        yield TextDelta("Yes.")
        yield Finished("end")

    async def count(self, request: Request) -> int:
        return len(request.messages) - len(request.cleared)

    async def render(self, request: Request) -> str:
        return repr(request.messages)

    async def search_left(self, request: Request, query: str) -> str:
        return "\n".join(message.text for message in request.messages if query in message.text)

    def count_tokens(self, text: str) -> int:
        return len(text.split())


async def events_of(backend: CompactingBackend, request: Request) -> list[Event]:
    return await play(backend.stream(request))


async def compacted(backend: CompactingBackend, *messages: Message, **fields: object) -> Message:
    """The message with the item that stands for these."""
    events = await events_of(backend, Request("m", messages, edits=NOW, **fields))  # type: ignore[arg-type]
    assert [type(event) for event in events] == [Started, OpaqueBlock, Finished]
    return fold(events).message


def item_in(message: Message) -> Opaque:
    (item,) = (part for part in message.parts if isinstance(part, Opaque))
    return item


def dialogue(*texts: str) -> tuple[Message, ...]:
    return tuple(Message.assistant(text) if at % 2 else Message.user(text) for at, text in enumerate(texts))


SYSTEM = Message.system("Be brief.")
OLD = (SYSTEM, *dialogue("a", "b", "c", "d"))
NEW = Message.user("new")


def made(store: CompactionStore | None = None) -> tuple[CompactingBackend, FakeCells]:
    cells = FakeCells()
    return CompactingBackend(cells, store or CompactionStore()), cells


# -- what an item stands for -------------------------------------------------------------------------------------------


async def test_the_next_request_has_all_messages_again_with_marks_and_what_is_new() -> None:
    backend, cells = made()
    item = await compacted(backend, *OLD)
    await events_of(backend, Request("m", (SYSTEM, item, NEW)))
    (asked,) = cells.requests
    assert asked.messages == (*OLD, NEW)
    assert asked.cleared == {(1, WHOLE), (2, WHOLE)}
    assert asked.edits == ()


async def test_a_compaction_over_a_threshold_comes_in_front_of_the_answer_and_the_answer_goes_on() -> None:
    backend, cells = made()
    events = await events_of(backend, Request("m", (*OLD, NEW), edits=(Edit("compact", trigger_tokens=3),)))
    assert [type(event) for event in events] == [Started, OpaqueBlock, TextDelta, Finished]
    assert isinstance(events[0], Started)
    assert events[0].edits == (AppliedEdit("compact", 3, 3),)
    assert cells.requests[0].cleared == {(at, WHOLE) for at in (1, 2, 3)}
    answer = fold(events).message
    await events_of(backend, Request("m", (SYSTEM, answer, Message.user("more"))))
    assert cells.requests[1].messages == (*OLD, NEW, Message("assistant", (Text("Yes."),)), Message.user("more"))
    assert cells.requests[1].cleared == cells.requests[0].cleared


async def test_a_prompt_below_the_threshold_is_left_alone() -> None:
    backend, cells = made()
    events = await events_of(backend, Request("m", OLD, edits=(Edit("compact", trigger_tokens=50),)))
    assert [type(event) for event in events] == [Started, TextDelta, Finished]
    assert not cells.requests[0].cleared


@given(st.lists(MESSAGES, min_size=1, max_size=6).map(tuple), st.sets(st.tuples(st.integers(0, 5), st.integers(-1, 3))))
def test_what_is_stored_comes_back_exactly_with_its_marks(messages: tuple[Message, ...], cleared: set[Place]) -> None:
    store = CompactionStore()
    word = store.keep(messages, cleared)
    for reader in (store, _read_again(store)):
        found = reader.open(word)
        assert (found.messages, found.cleared) == (messages, frozenset(cleared))


def _read_again(store: CompactionStore) -> CompactionStore:
    """The same without what it has read."""
    store._read.clear()
    return store


@given(st.lists(MESSAGES, min_size=1, max_size=6).map(plain).filter(bool), st.lists(MESSAGES, max_size=2).map(plain))
def test_any_conversation_comes_back_whole_through_its_item(old: tuple[Message, ...], new: tuple[Message, ...]) -> None:
    async def run() -> None:
        backend, cells = made()
        events = await events_of(backend, Request("m", old, edits=NOW))
        await events_of(backend, Request("m", (fold(events).message, *new)))
        assert cells.requests[0].messages == (*old, *new)
        assert cells.requests[0].cleared == (await FakeCells().edit(Request("m", old), NOW)).cleared

    asyncio.run(run())


@given(st.integers(1, 6), st.data())
def test_compacting_again_and_again_is_the_conversation_itself(n_rounds: int, data: st.DataObject) -> None:
    """However a client chains its requests: what the back end reads is the whole conversation, in order."""

    async def run() -> None:
        backend, cells = made()
        whole: list[Message] = [SYSTEM]
        sent: list[Message] = [SYSTEM]
        for n in range(n_rounds):
            question = Message.user(f"question {n}")
            whole, sent = [*whole, question], [*sent, question]
            if data.draw(st.booleans()):
                item = await compacted(backend, *sent)
                kept = data.draw(st.sampled_from(["nothing", "users", "everything"]))
                before = [m for m in sent if kept == "everything" or (kept == "users" and m.role == "user")]
                sent = [*([] if kept == "everything" else [SYSTEM]), *before, item]
            events = await events_of(backend, Request("m", tuple(sent)))
            assert cells.requests[-1].messages == tuple(whole)
            answer = Message("assistant", fold(events).message.parts)
            whole, sent = [*whole, answer], [*sent, answer]

    asyncio.run(run())


# -- what stands around it ---------------------------------------------------------------------------------------------


async def test_messages_that_the_client_sends_again_are_not_there_twice_and_new_ones_stand_behind() -> None:
    backend, cells = made()
    item = await compacted(backend, *OLD)
    environment = Message.user("<environment>today</environment>")
    await events_of(backend, Request("m", (SYSTEM, environment, Message.user("a"), Message.user("c"), item, NEW)))
    assert cells.requests[0].messages == (*OLD, environment, NEW)


async def test_instructions_of_this_request_take_the_place_of_the_old_ones_and_marks_move_along() -> None:
    backend, cells = made()
    developer = Message.system("You may use tools.")
    item = await compacted(backend, SYSTEM, developer, *OLD[1:])
    other = Message.system("Be long.")
    for sent, systems in (
        ((), (SYSTEM, developer)),
        ((SYSTEM,), (SYSTEM, developer)),
        ((SYSTEM, developer), (SYSTEM, developer)),
        ((other,), (other, developer)),
        ((other, developer, SYSTEM), (other, developer, SYSTEM)),
    ):
        await events_of(backend, Request("m", (*sent, item, NEW)))
        assert cells.requests[-1].messages == (*systems, *OLD[1:], NEW)
        assert cells.requests[-1].cleared == {(len(systems) + at, WHOLE) for at in (0, 1)}


async def test_of_two_items_the_newest_counts_wherever_they_stand() -> None:
    backend, cells = made()
    first = await compacted(backend, *OLD)
    second = await compacted(backend, SYSTEM, first, *dialogue("e", "f"))
    whole = (*OLD, *dialogue("e", "f"), NEW)
    for sent in ((first, second, NEW), (second, first, NEW), (first, *dialogue("e", "f"), second, second, NEW)):
        await events_of(backend, Request("m", (SYSTEM, *sent)))
        assert cells.requests[-1].messages == whole, sent


async def test_items_of_two_branches_are_refused() -> None:
    backend, _ = made()
    one = await compacted(backend, *OLD, Message.user("one way"))
    other = await compacted(backend, *OLD, Message.user("the other"), Message.assistant("x"))
    with pytest.raises(InvalidRequest, match="two branches") as error:
        await events_of(backend, Request("m", (SYSTEM, one, other, NEW)))
    assert error.value.field == "compaction"


async def test_a_count_is_that_of_the_whole_conversation_behind_its_edits() -> None:
    backend, _ = made()
    item = await compacted(backend, *OLD)
    assert await backend.count(Request("m", (SYSTEM, item, NEW))) == 4
    assert await backend.count(Request("m", (SYSTEM, item, NEW), edits=NOW)) == 3
    assert repr(OLD[1]) in await backend.render(Request("m", (SYSTEM, item, NEW)))


# -- providers ---------------------------------------------------------------------------------------------------------


async def test_a_provider_that_compacts_by_itself_gets_its_own_clients_requests_as_they_came() -> None:
    cells, store = FakeCells(), CompactionStore()
    backend = CompactingBackend(cells, store, protocol="openai.responses")
    foreign = Opaque(COMPACTION, json.dumps({"type": "compaction", "encrypted_content": elsewhere()}))
    native = Native("openai.responses", {})
    request = Request("m", (Message("user", (foreign, Text("new"))),), edits=NOW, native=native)
    assert [type(event) for event in await events_of(backend, request)] == [Started, TextDelta, Finished]
    (asked,) = cells.requests
    assert asked.edits == NOW
    assert asked.messages == (Message("user", (Opaque("openai.responses", foreign.body), Text("new"))),)
    with pytest.raises(InvalidRequest, match="another installation"):
        await events_of(backend, replace(request, native=None))


def elsewhere() -> str:
    """A word of another installation."""
    return CompactionStore().keep(OLD, ())


def test_what_is_cleared_is_left_out_in_whole_pairs() -> None:
    call, other = ToolCall("1", "read", '{"path": "x"}'), ToolCall("2", "read", '{"path": "y"}')
    results = Message("tool", (ToolResult("1", (Text("one"),)), ToolResult("2", (Text("two"),))))
    messages = (NEW, Message("assistant", (Text("I look."), call, other)), results, Message.assistant("Done."))
    assert without(messages, {(1, WHOLE)}) == (NEW, Message.assistant("Done."))
    assert without(messages, {(2, WHOLE)}) == (NEW, Message.assistant("I look."), Message.assistant("Done."))
    note = ToolResult("1", (Text(CLEARED),))
    bare = replace(call, arguments="{}")
    assert without(messages, {(2, 0), (1, 1), (1, 0)}) == (
        NEW, Message("assistant", (bare, other)), Message("tool", (note, results.parts[1])), messages[3],
    )  # fmt: skip
    assert without(messages, frozenset()) == messages


# -- the memory beside it ----------------------------------------------------------------------------------------------


async def test_places_are_those_of_the_clients_messages_when_the_memory_adds_its_own(tmp_path: Path) -> None:
    cells = FakeCells()
    with UserStores(tmp_path / "memory.db") as stores:
        store = stores.find_store("ann")
        assert store is not None
        fact = store.propose("Always answer in French.", "instruction")
        assert fact is not None
        store.confirm(fact.id)
        backend = CompactingBackend(MemoryBackend(cells, stores), CompactionStore())
        chat = OLD[1:]
        item = await compacted(backend, *chat, user="ann", recall=True, archive=True)
        await events_of(backend, Request("m", (item, NEW), user="ann", recall=True, archive=True))
        (asked,) = cells.requests
        assert asked.messages[0].role == "system"  # the profile
        assert asked.cleared == {(1, WHOLE), (2, WHOLE)}
        assert asked.messages[1:3] == chat[:2]


async def test_what_a_compaction_clears_is_quoted_when_it_is_asked_for(tmp_path: Path) -> None:
    cells, memory = FakeCells(), {"user": "ann", "archive": True, "recall": True}
    fact = Message.user("The launch code of the lighthouse is 4711.")
    with UserStores(tmp_path / "memory.db") as stores:
        backend = CompactingBackend(MemoryBackend(cells, stores), CompactionStore())
        chat = (fact, Message.assistant("Noted."), *dialogue("c", "d"))
        item = await compacted(backend, *chat, **memory)
        question = Message.user("What is the launch code of the lighthouse?")
        await events_of(backend, Request("m", (item, question), **memory))  # type: ignore[arg-type]
        (asked,) = cells.requests
        assert asked.cleared == {(0, WHOLE), (1, WHOLE)}
        assert asked.messages[:-1] == chat
        quote, own = asked.messages[-1].parts
        assert isinstance(quote, Text)
        assert quote.aside
        assert "4711" in quote.text
        assert own == Text(question.text)
        # The quote stays, and places behind it are still those of the client's messages.
        again = await compacted(backend, item, question, Message.assistant("4711."), **memory)
        await events_of(backend, Request("m", (again, NEW), **memory))  # type: ignore[arg-type]
        assert cells.requests[-1].messages[-3].parts == (quote, own)
        assert cells.requests[-1].cleared == {(at, WHOLE) for at in range(4)}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_every_wrong_word_says_what_is_wrong_with_it() -> None:
    store = CompactionStore()
    word = store.keep(OLD, (), caller="key 1")
    middle = len(word) // 2
    forged = word[:middle] + ("A" if word[middle] != "A" else "B") + word[middle + 1 :]
    for wrong, reason in (
        ("", "damaged"),
        ("shp1.", "damaged"),
        ("shp1.é", "damaged"),
        (word[:-4], "damaged"),
        ("gAAAAABo", "damaged"),
        (elsewhere(), "another installation"),
        (forged, "was changed"),
    ):
        with pytest.raises(InvalidRequest, match=reason) as error:
            store.open(wrong, caller="key 1")
        assert error.value.field == "compaction"
    with pytest.raises(InvalidRequest, match="another API key"):
        store.open(word, caller="key 2")
    assert store.open(word, caller="key 1").messages == OLD


def test_every_changed_letter_is_noticed() -> None:
    store = CompactionStore()
    word = store.keep(OLD, ())
    for at in range(len("shp1."), len(word)):
        with pytest.raises(InvalidRequest):
            store.open(word[:at] + ("A" if word[at] != "A" else "B") + word[at + 1 :])


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"encrypted_content": 7}', "\ud800"])
async def test_an_item_without_a_word_is_refused(body: str) -> None:
    backend, _ = made()
    with pytest.raises(InvalidRequest, match="damaged"):
        await events_of(backend, Request("m", (Message("user", (Opaque(COMPACTION, body),)),)))


# -- the store ---------------------------------------------------------------------------------------------------------


def growing(n: int) -> list[tuple[Message, ...]]:
    texts = [f"{at} {'word ' * 200}" for at in range(2 * n)]
    return [dialogue(*texts[: 2 * (at + 1)]) for at in range(n)]


def test_forty_compactions_of_a_conversation_store_it_once(tmp_path: Path) -> None:
    store = CompactionStore(tmp_path / "compactions.db")
    words = [store.keep(messages, {(0, WHOLE)}) for messages in growing(40)]
    store.close()
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 3 * len(repr(growing(40)[-1]))
    again = CompactionStore(tmp_path / "compactions.db")
    for word, messages in zip(words, growing(40), strict=True):
        assert again.open(word).messages == messages
    again.close()


def test_conversations_of_different_callers_share_nothing() -> None:
    store = CompactionStore()
    mine = store.keep(OLD, (), caller="a")
    theirs = store.keep((*OLD, NEW), (), caller="b", user="bob")
    store.forget("bob")
    assert store.open(mine, caller="a").messages == OLD
    with pytest.raises(InvalidRequest, match="no longer stored"):
        store.open(theirs, caller="b")


def test_the_conversation_that_was_least_recently_used_leaves_first() -> None:
    first, second, third = (dialogue(name * 4000) for name in "abc")
    store = CompactionStore(limit_bytes=10_000)
    words = [store.keep(each, ()) for each in (first, second)]
    assert store.open(words[0]).messages == first
    assert store.keep(third, ()) is not None
    assert store.open(words[0]).messages == first
    with pytest.raises(InvalidRequest, match="no longer stored"):
        store.open(words[1])


async def test_a_conversation_that_is_larger_than_the_store_is_refused_and_costs_no_other_its_place() -> None:
    store = CompactionStore(limit_bytes=1_000)
    word = store.keep(OLD, ())
    backend, _ = made(store)
    for edits in (NOW, (Edit("compact", trigger_tokens=1),)):
        with pytest.raises(InvalidRequest, match="larger than the 1000 bytes") as error:
            await events_of(backend, Request("m", dialogue("x" * 2_000, "b", "c"), edits=edits))
        assert error.value.field == "context_management"
    assert store.open(word).messages == OLD


def test_a_file_outlives_the_program_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "compactions.db"
    store = CompactionStore(path)
    assert not path.exists()  # nothing is compacted yet
    word = store.keep(OLD, {(1, 0)})
    store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    again = CompactionStore(path)
    assert again.open(word).cleared == {(1, 0)}
    again.close()


def test_forgetting_messages_makes_the_items_useless_that_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "compactions.db"
    store = CompactionStore(path)
    secret = Message.user("The password is swordfish.")
    before, held, other = OLD, (*OLD, secret), dialogue("else")
    words = [store.keep(each, (), user="ann") for each in (before, held, (*held, *dialogue("x", "y")), other)]
    assert store.forget("bob", {entry_of(secret).sha}) == 0
    assert store.forget("ann", {entry_of(secret).sha}) == 2
    assert store.open(words[0]).messages == before
    assert store.open(words[3]).messages == other
    for word in words[1:3]:
        with pytest.raises(InvalidRequest, match="no longer stored"):
            store.open(word)
    assert not any(b"swordfish" in file.read_bytes() for file in tmp_path.iterdir())
    store.close()


def test_another_process_that_forgets_is_noticed_at_once(tmp_path: Path) -> None:
    server, tool = (CompactionStore(tmp_path / "compactions.db") for _ in range(2))
    word = server.keep(OLD, (), user="ann")
    assert tool.forget("ann") == 1
    with pytest.raises(InvalidRequest, match="no longer stored"):
        server.open(word)
    server.close()
    tool.close()


def test_a_file_that_cannot_be_used_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"no database " * 100)
    for path in (tmp_path / "other.db", tmp_path):
        with pytest.raises(EngineError, match="compactions cannot be read or stored"):
            CompactionStore(path).keep(OLD, ())


def test_many_threads_and_processes_store_at_once(tmp_path: Path) -> None:
    stores = [CompactionStore(tmp_path / "compactions.db") for _ in range(2)]
    many = [dialogue(f"conversation {n}", "a", "b", *map(str, range(n))) for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        words = list(threads.map(lambda n: stores[n % 2].keep(many[n], ()), range(40)))
        read = list(threads.map(lambda n: stores[(n + 1) % 2].open(words[n]).messages, range(40)))
    assert read == many
    for store in stores:
        store.close()


# -- the extract -------------------------------------------------------------------------------------------------------


def test_an_extract_names_the_task_the_files_the_commands_and_what_is_open() -> None:
    calls = (
        ("read", {"file_path": "src/a.py"}),
        ("bash", {"command": "make   test"}),
        ("read", {"path": "src/b.py"}),
        ("update_plan", {"plan": [{"step": "old", "status": "in_progress"}]}),
        ("read", {"file_path": "src/a.py"}),
        ("shell", {"command": ["git", "diff"]}),
        ("todo", {"todos": [{"content": "done", "status": "completed"}, {"content": "mend b", "status": "pending"}]}),
    )
    asked = [
        Message("assistant", (ToolCall(str(n), name, json.dumps(given)),)) for n, (name, given) in enumerate(calls)
    ]
    text = extract((SYSTEM, Message.user("Mend the tests.\nAll of them."), *asked, Message.user("Go on.")))
    assert text == (
        "10 earlier messages are stored word for word.\n\n"
        "Task:\nMend the tests.\nAll of them.\n\n"
        "Files:\nsrc/b.py\nsrc/a.py\n\n"
        "Commands:\nmake test\ngit diff\n\n"
        "Open:\n- mend b"
    )


@given(st.lists(MESSAGES, max_size=6))
def test_any_conversation_has_a_short_extract(messages: list[Message]) -> None:
    assert len(extract(messages)) < 8_000
    assert extract(messages) == extract(messages)


def test_a_long_session_has_a_short_extract() -> None:
    given = [
        {"path": f"src/{n}.py", "command": f"run {n} {'x' * 500}", "plan": [f"{n} {'y' * 300}"] * 99} for n in range(99)
    ]
    calls = [Message("assistant", (ToolCall("1", "f", json.dumps(each)),)) for each in given]
    text = extract((Message.user("task " * 9_000), *calls))
    assert len(text) < 6_000
    assert all(a != b for a, b in pairwise(text.splitlines()) if a.startswith("src/"))


def test_an_answer_with_an_item_is_a_message_like_others() -> None:
    item = Opaque(COMPACTION, "{}", (Text("extract"),))
    message = Message("assistant", (item, Text("Yes.")))
    assert fold(replay(message)).message == message


async def test_what_an_item_stands_for_can_be_searched() -> None:
    backend, _ = made()
    item = await compacted(backend, *dialogue("The code word is Bluebird.", "I see.", "Go on."))
    assert "Bluebird" in await backend.search_left(Request("m", (item, NEW)), "code word")
