"""A back end with a memory beside it: what is archived when, and what is put in front of the model."""

import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.agent.scripted import Playing, answering, play

from shepherd.agent.archiving import Archiving
from shepherd.agent.with_memory import EntryCache, MemoryBackend, entry_of
from shepherd.backends.local.window import Window, WindowRow
from shepherd.core import (
    Audio,
    BadCall,
    ContextFull,
    Event,
    Evicted,
    Finished,
    Image,
    InvalidRequest,
    MemoryFailure,
    Message,
    Reasoning,
    Recalled,
    Request,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    fold,
)
from shepherd.memory.records import Entry, State
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import LOCAL, UserStores


class Room(Playing):
    """A back end that plays a script, remembers what it was asked, and counts words as tokens."""

    n_ctx = 2000
    seen: Callable[[], None] = staticmethod(lambda: None)
    """Called when a request arrives."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def count(self, request: Request) -> int:
        return sum(self.count_tokens(message.text) for message in request.messages)

    async def render(self, request: Request) -> str:
        return "".join(message.text for message in request.messages)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.seen()
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[UserStores]:
    made = UserStores(tmp_path / "memory.db")
    yield made
    made.close()


@pytest.fixture
def store(shelf: UserStores) -> MemoryStore:
    found = shelf.find_store(LOCAL)
    assert found is not None
    return found


def request(*said: str | Message, **fields: object) -> Request:
    """Messages by turns, the first and the last by the user; archived and recalled unless `fields` say otherwise."""
    roles = (Message.user, Message.assistant)
    messages = tuple(roles[n % 2](text) if isinstance(text, str) else text for n, text in enumerate(said))
    made = Request("m", messages, session="s", user=LOCAL, archive=True, recall=True)
    return replace(made, **fields)  # type: ignore[arg-type]  # each test names its own


async def run(memory: MemoryBackend, asked: Request, stop_after: int | None = None) -> list[Event]:
    return await play(memory.stream(asked), stop_after)


def bodies(store: MemoryStore) -> list[str]:
    ids = store.read(lambda connection: [id for (id,) in connection.execute("SELECT id FROM message ORDER BY id")])
    return [message.body for message in store.stored(ids)]


async def test_a_question_is_in_the_archive_before_its_answer_begins(shelf: UserStores, store: MemoryStore) -> None:
    room = Room(answering("Four."))
    known: list[list[str]] = []
    room.seen = lambda: known.append(bodies(store))
    await run(MemoryBackend(room, shelf), request("What is two and two?"))
    assert known == [["What is two and two?"]]
    assert bodies(store) == ["What is two and two?", "Four."]


async def test_a_history_that_comes_again_is_stored_once(shelf: UserStores, store: MemoryStore) -> None:
    memory = MemoryBackend(Room(answering("Yes.")), shelf)
    await run(memory, request("One?"))
    await run(memory, request("One?", "Yes.", "Two?"))
    await run(memory, request("One?", "Yes.", "Two?", "Yes.", "Three?"))
    assert bodies(store) == ["One?", "Yes.", "Two?", "Yes.", "Three?", "Yes."]


async def test_a_stopped_answer_is_archived_as_far_as_it_came(shelf: UserStores, store: MemoryStore) -> None:
    script: list[Event] = [
        Started("m"),
        TextDelta("The first "),
        TextDelta("half"),
        TextDelta(" never"),
        Finished("end"),
    ]
    await run(MemoryBackend(Room(lambda _: script), shelf), request("Tell me."), stop_after=3)
    store.write(lambda connection: None)  # whatever waits is written by then
    assert bodies(store) == ["Tell me.", "The first half"]


@pytest.mark.parametrize(
    "fields",
    [{"user": None}, {"user": " "}, {"archive": None, "recall": None}, {"archive": False, "recall": False}],
)
async def test_who_is_unknown_or_does_not_want_it_has_no_memory(
    shelf: UserStores, store: MemoryStore, fields: dict[str, object]
) -> None:
    store.remember("What is the code?", "The code is 4711.")
    room = Room(answering("I do not know."))
    asked = request("What is the code?", **fields)
    await run(MemoryBackend(room, shelf), asked)
    assert room.requests == [asked]
    assert bodies(store) == ["What is the code?", "The code is 4711."]


async def test_what_was_said_in_another_conversation_stands_before_the_question(
    shelf: UserStores, store: MemoryStore
) -> None:
    room = Room(answering("Got it."))
    memory = MemoryBackend(room, shelf)
    await run(memory, request("My hamster is called Ziggurat.", session="yesterday"))
    await run(memory, request("What is my hamster called?", session="today"))
    block, question = room.requests[-1].messages[0].parts
    assert isinstance(block, Text)
    assert block.aside
    assert "My hamster is called Ziggurat." in block.text
    assert question == Text("What is my hamster called?")
    assert bodies(store).count("What is my hamster called?") == 1
    assert not any("quoted" in body for body in bodies(store)), "quotes are not archived again (M9)"


def started(events: list[Event]) -> Started:
    (found,) = [event for event in events if isinstance(event, Started)]
    return found


async def test_what_is_recalled_is_reported_with_its_count_its_time_and_its_tokens(
    shelf: UserStores, store: MemoryStore
) -> None:
    room = Room(answering("Got it."))
    memory = MemoryBackend(room, shelf)
    told = await run(memory, request("My hamster is called Ziggurat.", session="yesterday"))
    assert (started(told).recalled, started(told).usage.recalled) == (None, 0)
    asked = request("What is my hamster called?")
    events = await run(memory, asked)
    block = room.requests[-1].messages[0].parts[0]
    assert isinstance(block, Text)
    n = room.count_tokens(block.text)
    times = [message.created_ms / 1000 for message in store.stored([1])]
    assert started(events).recalled == Recalled(1, n, times[0], times[0])
    assert (started(events).usage.recalled, fold(events).usage.recalled) == (n, n)
    assert started(await run(memory, asked)).recalled is not None, "another answer to the same question has it, too"
    call = Message("assistant", (ToolCall("1", "look", "{}"),))
    result = Message("tool", (ToolResult("1", (Text("nothing"),), "look"),))
    for later in (request(*asked.messages, call, result), request(*asked.messages, "Got it.", "Thanks!")):
        events = await run(memory, later)
        assert (started(events).recalled, started(events).usage.recalled) == (None, n), "it is there from before"
    store.mark([3], State.EVICTED)
    assert started(events := await run(memory, later)).usage.recalled == 0, "the quote has left with its question"
    assert fold(events).usage.recalled == 0


async def test_what_is_recalled_stays_where_it_is_so_that_every_prompt_begins_like_the_one_before(
    shelf: UserStores, store: MemoryStore
) -> None:
    room = Room(answering("It is Ziggurat."))
    memory = MemoryBackend(room, shelf)
    await run(memory, request("My hamster is called Ziggurat.", session="yesterday"))
    said = ["What is my hamster called?"]
    for text in ("And who are you?", "Tell me about the weather in Lisbon.", "Which hamster do I have?"):
        await run(memory, request(*said))
        said += ["It is Ziggurat.", text]
    await run(memory, request(*said))
    prompts = [[message.text for message in asked.messages] for asked in room.requests[1:]]
    assert len(prompts) == 4
    for shorter, longer in itertools.pairwise(prompts):
        assert longer[: len(shorter)] == shorter
    assert "".join(prompts[-1]).count("My hamster is called Ziggurat.") == 1, "what is in the context is not told twice"


async def test_what_is_still_in_the_context_is_not_recalled_and_comes_back_once_it_has_left(
    shelf: UserStores, store: MemoryStore
) -> None:
    evicting: list[Event] = [Started("m"), Evicted(2, 9, gone=(0, 1)), TextDelta("Got it."), Finished("end")]
    room = Room(answering("Got it."))
    memory = MemoryBackend(room, shelf)
    told = ["My hamster is called Ziggurat.", "Got it.", "What is my hamster called?"]
    await run(memory, request(told[0]))
    await run(memory, request(*told))
    assert room.requests[-1].messages[2].parts == (Text(told[2]),)

    room.script = lambda asked: evicting
    later = [*told, "Got it.", "Tell me about the weather in Lisbon."]
    await run(memory, request(*later))
    store.write(lambda connection: None)
    ids = store.archive([entry_of(message) for message in request(*later).messages], session="s")
    assert store.states(ids) == dict(zip(ids, [State.EVICTED] * 2 + [State.LIVE] * 3, strict=True))

    await run(memory, request(*later, "Got it.", "How did I call that hamster of mine?"))
    assert "Ziggurat" in room.requests[-1].messages[-1].text


async def test_one_user_never_sees_what_another_one_said(shelf: UserStores) -> None:
    room = Room(answering("Got it."))
    memory = MemoryBackend(room, shelf)
    await run(memory, request("My hamster is called Ziggurat.", user="ada"))
    await run(memory, request("What is my hamster called?", user="bob", session="t"))
    assert "Ziggurat" not in room.requests[-1].messages[0].text
    await run(memory, request("What is my hamster called?", user="ada", session="t"))
    assert "Ziggurat" in room.requests[-1].messages[0].text


async def test_the_profile_stands_at_the_end_of_the_system_prompt(shelf: UserStores, store: MemoryStore) -> None:
    fact = store.propose("Always answer in French.", "instruction")
    assert fact is not None
    room = Room(answering("Oui."))
    memory = MemoryBackend(room, shelf)
    await run(memory, request("Hello"))
    assert len(room.requests[-1].messages) == 1, "nobody has confirmed it"
    store.confirm(fact.id)
    await run(memory, request("Hello"))
    await run(memory, replace(request("Hello"), messages=(Message.system("Be kind."), Message.user("Hello"))))
    alone, behind = (asked.messages[0] for asked in room.requests[-2:])
    assert alone.role == behind.role == "system"
    assert "Always answer in French." in alone.text
    assert behind.text.startswith("Be kind.\n\n")
    assert "Always answer in French." in behind.text
    assert not any("French" in body for body in bodies(store))


async def test_evictions_are_counted_from_the_clients_messages_not_from_ours(
    shelf: UserStores, store: MemoryStore
) -> None:
    fact = store.propose("Always answer in French.", "instruction")
    assert fact is not None
    store.confirm(fact.id)
    script: list[Event] = [Started("m"), Evicted(1, 9, gone=(1,)), TextDelta("Oui."), Finished("end")]
    asked = request("One.", "Un.", "Two.")  # the profile is message 0 of what the model reads, so "One." is message 1
    await run(MemoryBackend(Room(lambda _: script), shelf), asked)
    store.write(lambda connection: None)
    ids = store.archive([entry_of(message) for message in asked.messages], session="s")
    assert list(store.states(ids).values()) == [State.EVICTED, State.LIVE, State.LIVE]


# -- a conversation that is looked at, or comes back -------------------------------------------------------------------


class Cache(Room):
    """One that can say what it holds, and lets messages leave when it is told to."""

    rows: tuple[WindowRow, ...] = ()

    async def window(self, request: Request) -> Window:
        self.requests.append(request)
        return Window(self.n_ctx, 0, self.rows)

    async def evict(self, request: Request, n_turns: int) -> Evicted:
        self.requests.append(request)
        return Evicted(2, 9, gone=(1, 2))

    async def recognise(self, request: Request, began: datetime | None = None) -> None:
        self.requests.append(request)


async def remembered(shelf: UserStores, store: MemoryStore) -> tuple[Cache, MemoryBackend, Request]:
    """A conversation with a profile, which is message 0 of what the model reads, and with something recalled."""
    fact = store.propose("Always answer in French.", "instruction")
    assert fact is not None
    store.confirm(fact.id)
    cache = Cache(answering("Ziggurat."))
    memory = MemoryBackend(cache, shelf)
    await run(memory, request("My hamster is called Ziggurat.", session="yesterday"))
    asked = request("What is my hamster called?")
    await run(memory, asked)
    return cache, memory, replace(asked, messages=(*asked.messages, Message.assistant("Ziggurat.")))


async def test_what_is_looked_at_is_what_the_model_reads(shelf: UserStores, store: MemoryStore) -> None:
    cache, memory, told = await remembered(shelf, store)
    n_archived = len(bodies(store))
    await memory.window(told)
    await memory.recognise(told)
    for looked in cache.requests[-2:]:
        assert looked.messages[:2] == cache.requests[-3].messages
        assert looked.messages[2] == told.messages[1]
    assert len(bodies(store)) == n_archived, "to look at it stores nothing"


async def test_what_is_recalled_has_a_row_of_its_own_in_the_window(shelf: UserStores, store: MemoryStore) -> None:
    cache, memory, told = await remembered(shelf, store)
    n = memory.quotes(told)[0].n_tokens
    system = WindowRow("system", 0, ("system",), "", 9, 9, "cached", True)
    for state, n_held, states in (
        ("cached", n + 30, ["cached", "cached"]),
        ("partly", n + 10, ["cached", "partly"]),
        ("partly", n - 1, ["partly", "partly"]),
        ("new", 0, ["new", "new"]),
        ("evicted", 0, ["evicted"]),
    ):
        turn = WindowRow("turn", 1, ("user", "assistant"), "What is my hamster called?", n + 30, n_held, state, False)  # type: ignore[arg-type]
        cache.rows = (system, turn)
        first, *rows = (await memory.window(told)).rows
        assert (first, rows[-1].kind, [row.state for row in rows]) == (system, "turn", states)
        assert (sum(row.n_tokens for row in rows), sum(row.n_held for row in rows)) == (n + 30, n_held)
        if len(rows) == 2:
            assert (rows[0].kind, rows[0].n_tokens) == ("memory", n)
            assert rows[0].excerpt.endswith('user: "My hamster is called Ziggurat."')


async def test_what_is_sent_away_by_hand_is_marked_and_can_be_recalled(shelf: UserStores, store: MemoryStore) -> None:
    _, memory, told = await remembered(shelf, store)
    assert (await memory.evict(told, 1)).messages == 2
    store.write(lambda connection: None)
    ids = store.archive([entry_of(message) for message in told.messages], session="s")
    assert list(store.states(ids).values()) == [State.EVICTED, State.EVICTED]


async def test_what_was_recalled_is_carried_from_one_process_to_the_next(shelf: UserStores, store: MemoryStore) -> None:
    _, memory, told = await remembered(shelf, store)
    quotes = memory.quotes(told)
    assert "Ziggurat" in quotes[0].text
    later = replace(told, messages=(*told.messages, Message.user("Tell me about the weather in Lisbon.")))
    prompts = []
    for carries in (True, False):
        other = MemoryBackend(cache := Cache(answering("Oui.")), shelf)
        if carries:
            other.quote(told, quotes)
        await run(other, later)
        prompts.append("".join(message.text for message in cache.requests[-1].messages))
    assert ["[MEMORY" in prompt for prompt in prompts] == [True, False]


async def test_a_back_end_that_holds_nothing_is_not_asked_what_it_holds(shelf: UserStores, store: MemoryStore) -> None:
    memory = MemoryBackend(Room(answering("Hi.")), shelf)
    await memory.recognise(request("Hello"))
    with pytest.raises(InvalidRequest, match="does not show its window"):
        await memory.window(request("Hello"))
    with pytest.raises(InvalidRequest, match="does not show its window"):
        await memory.evict(request("Hello"), 1)


def test_a_message_is_archived_as_it_was_said() -> None:
    call = ToolCall("c1", "read_file", '{"path": "a.txt"}')
    notice = Text("[NOTICE: 2 messages evicted from context]\n\n", aside=True)
    table = {
        Message("user", (notice, Text("Hello"))): ("user", "Hello"),
        Message("assistant", (Reasoning("hm"), Text("I look."), call)): ("assistant", "I look."),
        Message("assistant", (BadCall("<tool_call>{", "cut off"),)): ("assistant", "<tool_call>{"),
        Message("user", (Text("See "), Image("image/png", b"x"))): ("user", "See [image 2d711642: image/png, 1 bytes]"),
        Message("user", (Text("Hi "), Audio("audio/wav", b"x"))): (
            "user",
            "Hi [audio 2d711642: audio/wav, 1 bytes]",
        ),
        Message("user", (Image(url="data:image/png;base64,AAAA"),)): ("user", "[image: data]"),
        Message("tool", (ToolResult("c1", (Text("42"),), "read_file"),)): ("tool", "42"),
        Message("user", (ToolResult("c1", (Text("42"),)), Text("Go on."))): ("tool", "42\nGo on."),
    }
    for message, told in table.items():
        entry = entry_of(message)
        assert (entry.role, entry.text) == told
    assert [c.name for c in entry_of(Message("assistant", (call,))).calls] == ["read_file"]


@pytest.mark.parametrize("tool", ["search_memory", "get_fact"])
def test_what_came_out_of_the_memory_does_not_go_into_it_again(tool: str) -> None:
    entry = entry_of(Message("tool", (ToolResult("c1", (Text("Result 1: the secret"),), tool),)))
    assert entry.recalled
    assert entry.text == ""


@given(st.lists(st.lists(st.sampled_from(["yes", "no", "Tell me more.", ""]), max_size=6), min_size=1, max_size=5))
def test_a_history_that_is_known_is_read_as_a_new_one_would_be(turns: list[list[str]]) -> None:
    known = EntryCache()
    for said in turns:
        for fields in ({}, {"session": None}, {"user": "ada"}):
            asked = request(*said, **fields)
            assert known.of(asked) == EntryCache().of(asked)
    known.clear()
    assert known.of(request("yes")) == EntryCache().of(request("yes"))


# ---- a disk that is full


def fill(store: MemoryStore) -> None:
    """From now on the file may not grow: SQLite refuses as on a full disk."""
    store.write(lambda connection: connection.pragma("max_page_count", 1))


def empty(store: MemoryStore) -> None:
    store.write(lambda connection: connection.pragma("max_page_count", 2**30))


LONG = "It is long. " * 20_000


async def test_a_full_disk_is_reported_and_fails_no_answer(
    shelf: UserStores, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    archiving = Archiving()
    memory = MemoryBackend(Room(answering("Hi.")), shelf, archiving)

    async def archived(text: str) -> bool:
        events = await run(memory, request(text, recall=False))
        assert fold(events).message.text == "Hi."
        return [event.archived for event in events if isinstance(event, Started)] == [True]

    assert await archived("one")
    fill(store)
    assert not await archived(f"two {LONG}")
    assert not await archived(f"three {LONG}")
    assert "its disk is full" in archiving.failure
    assert archiving.n_failed >= 2
    assert caplog.text.count("messages are not archived") == 1, "one warning, not one for each turn"
    empty(store)
    assert await archived(f"four {LONG}")
    assert (archiving.failure, caplog.text.count("messages are archived again")) == ("", 1)
    assert [body[:4] for body in bodies(store)] == ["one", "Hi.", "four", "Hi."]


async def test_where_the_memory_is_required_a_full_disk_refuses_the_request_before_it_is_computed(
    shelf: UserStores, store: MemoryStore
) -> None:
    room, archiving = Room(answering("Hi.")), Archiving(required=True)
    memory = MemoryBackend(room, shelf, archiving)
    fill(store)
    with pytest.raises(MemoryFailure, match=r"memory\.required is true: .*its disk is full"):
        await run(memory, request(LONG))
    assert room.requests == []
    for other in (request(LONG, archive=False), request(LONG, user=None)):  # these archive nothing
        await run(memory, other)
    empty(store)
    await run(memory, request(LONG))
    assert archiving.failure == ""


async def test_where_the_memory_is_required_an_answer_that_is_not_archived_does_not_finish(
    shelf: UserStores, store: MemoryStore
) -> None:
    room = Room(answering(LONG))
    room.seen = lambda: fill(store)  # the request itself is archived
    with pytest.raises(MemoryFailure, match="its disk is full"):
        await run(MemoryBackend(room, shelf, Archiving(required=True)), request("Hello!"))


async def test_a_memory_that_cannot_be_opened_is_reported_and_may_be_required(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"no database" * 100)
    with UserStores(tmp_path / "memory.db") as shelf:
        archiving = Archiving()
        events = await run(MemoryBackend(Room(answering("Hi.")), shelf, archiving), request("Hello!"))
        assert not next(event for event in events if isinstance(event, Started)).archived
        assert archiving.failure
        with pytest.raises(MemoryFailure, match=r"memory\.required"):
            await run(MemoryBackend(Room(answering("Hi.")), shelf, Archiving(required=True)), request("Hello!"))


async def test_an_answer_that_a_client_stops_and_a_full_disk_loses_is_counted(
    shelf: UserStores, store: MemoryStore
) -> None:
    archiving = Archiving()
    script: list[Event] = [Started("m"), TextDelta(LONG), TextDelta("more")]
    room = Room(lambda _: script)
    room.seen = lambda: fill(store)
    await run(MemoryBackend(room, shelf, archiving), request("Tell me.", recall=False), stop_after=2)
    store.write(lambda _: None)  # behind the job of the answer
    assert (archiving.n_failed, "its disk is full" in archiving.failure) == (1, True)


# -- a small context ---------------------------------------------------------------------------------------------------


class Full(Room):
    """It refuses what has more words than its context."""

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        if (n := await self.count(request)) > self.n_ctx:
            raise ContextFull(needed=n, limit=self.n_ctx)
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event


async def test_what_fits_without_quotes_only_is_answered_without(shelf: UserStores, store: MemoryStore) -> None:
    store.archive([Entry("user", "My hamster Bertram lives in the blue cage."), Entry("assistant", "Nice.")])
    store.archive([Entry("user", "My parrot Polly sits on the red chair."), Entry("assistant", "Nice.")])
    room = Full(answering("Yes."))
    memory = MemoryBackend(room, shelf)

    async def ask(*said: str) -> list[str]:
        await run(memory, request(*said))
        return [message.text for message in room.requests[-1].messages]

    said = ["Where does my hamster Bertram live?", "Yes.", "Where does my parrot Polly sit?"]
    (with_quote,) = await ask(said[0])
    assert "blue cage" in with_quote
    room.n_ctx = len(with_quote.split()) + 10
    assert await ask(*said) == [with_quote, *said[1:]], "the newest question has no quote, the older one keeps its own"
    with pytest.raises(ContextFull):
        await ask(*said, "Yes.", "so " * 2_000)
    assert memory.quotes(request(*said))[0].text, "what never fits costs no quote"
    room.n_ctx -= 5
    assert await ask(*said, "Yes.", "Okay.") == [*said, "Yes.", "Okay."]
