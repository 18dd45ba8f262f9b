"""A chat beside other programs and other requests: nothing is lost, nothing comes back, and all get their turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.in_time import until
from tests.own_app import app_of, loaded

from shepherd.agent.storage import ConversationStore, SavedConversation
from shepherd.app.chats.chats import MOST_OF_GUEST, Busy, Chat, ChatShelf, NoSuchChat, Owner, UnreadableChat
from shepherd.core import InvalidRequest, Message, Text
from shepherd.process.pools import THREADS, Kind, in_pool

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SAVED = SavedConversation("s", (Message.user("Hello!"), Message.assistant("Hi.")))


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="owners")
async def shelf_of_the_owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChatShelf]:
    folder = tmp_path_factory.mktemp("chats")
    text = f'max_tokens = 8\n[chat]\nfolder = "{folder / "saved"}"\ninstructions = false\n[tools]\nenabled = []\n'
    async with loaded(app_of(folder, text, model="embedded")) as app:
        yield app.chats.of(Owner())


@pytest.fixture
def saves(owners: ChatShelf) -> ConversationStore:
    assert owners.saves is not None
    for name in owners.saves.names():
        owners.saves.remove(name)
    return owners.saves


@asynccontextmanager
async def held_up(kind: Kind) -> AsyncIterator[None]:
    """All threads of a kind are busy in the block."""
    gate = threading.Event()
    busy = [asyncio.create_task(in_pool(kind, gate.wait)) for _ in range(THREADS[kind])]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        gate.set()
        await asyncio.gather(*busy)


async def opened(shelf: ChatShelf, saves: ConversationStore) -> Chat:
    return await shelf.get(saves.save(SAVED))


async def test_a_copy_does_not_take_the_place_of_what_another_program_wrote(
    owners: ChatShelf, saves: ConversationStore
) -> None:
    chat = await opened(owners, saves)
    name = saves.save(replace(SAVED, title="In the terminal"), chat.id)
    with pytest.raises(Busy, match="in a copy"):
        await chat.changed("title")
    assert chat.id != name
    assert (await owners.get(name)).session.title == "In the terminal"
    await owners.remove(name)
    assert saves.names() == (chat.id,)


async def test_a_chat_whose_file_another_program_deletes_is_gone(owners: ChatShelf, saves: ConversationStore) -> None:
    chat = await opened(owners, saves)
    other = saves.save(replace(SAVED, id="other"), f"{chat.id}-and-more")
    saves.remove(chat.id)
    assert [row["id"] for row in (await owners.page(None, 10))["chats"]] == [other]
    with pytest.raises(NoSuchChat):
        await owners.remove(chat.id)
    assert [event.data for event in chat.log.since(0)] == [{"what": ["deleted"]}]
    with pytest.raises(Busy):
        chat.send([Text("Hello?")])
    await chat.changed("title")
    assert saves.names() == (other,)


async def test_what_is_written_while_a_chat_is_deleted_does_not_bring_it_back(
    owners: ChatShelf, saves: ConversationStore
) -> None:
    chat = await opened(owners, saves)
    removing = asyncio.create_task(owners.remove(chat.id))
    await until(lambda: not owners.holds(chat))
    await chat.changed("title")
    await removing
    assert saves.names() == ()


async def test_a_change_whose_client_goes_away_is_written_and_no_other_programs(
    owners: ChatShelf, saves: ConversationStore
) -> None:
    chat = await opened(owners, saves)
    chat.session.title = "Another"
    async with held_up("files"):
        changing = asyncio.create_task(chat.changed("title"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        changing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await changing
    assert saves.load(chat.id).title == "Another"
    await chat.changed("title")
    assert saves.names() == (chat.id,)


async def test_no_turn_begins_while_the_model_of_its_chat_is_changed(
    owners: ChatShelf, saves: ConversationStore
) -> None:
    chat = await opened(owners, saves)
    async with held_up("memory"):
        moving = asyncio.create_task(chat.move("lamb"))
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(Busy, match="is being changed"):
            chat.send([Text("Hello?")])
    await moving
    assert chat.send([Text("Hello?")]) == 1
    await chat.stop()


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_damaged_file_is_named_listed_and_deleted(
    owners: ChatShelf, saves: ConversationStore, is_open: bool
) -> None:
    name = saves.save(SAVED)
    if is_open:
        await owners.get(name)
    (saves.folder / f"{name}.json").write_text("{damaged")
    with pytest.raises(UnreadableChat) as caught:
        await owners.get(name)
    assert (caught.value.status, caught.value.message) == (
        409,
        f'the chat "{name}" cannot be read: the file is damaged: it is not JSON; mend its file, or delete the chat',
    )
    (row,) = (await owners.page(None, 10))["chats"]
    assert row["error"] == "the file is damaged: it is not JSON"
    await owners.remove(name)
    assert (saves.names(), (await owners.page(None, 10))["chats"]) == ((), [])


async def test_a_guest_leaves_turns_for_the_others(owners: ChatShelf) -> None:
    guests = owners.chats.of(Owner("ada", "ada", is_guest=True))
    chats = [await shelf.create(None, None) for shelf in (guests,) * (MOST_OF_GUEST + 1) + (owners,)]
    *begun, refused, own = chats
    for chat in (*begun, own):
        assert chat.send([Text("Hello?")]) == 1
    with pytest.raises(InvalidRequest, match="4 turns of this API key's user are running") as caught:
        refused.send([Text("Hello?")])
    assert caught.value.status == 429
    for chat in (*begun, own):
        await chat.stop()
    assert refused.send([Text("Hello?")]) == 1
    await refused.stop()
