"""The chats of the server: saved conversations that clients read, continue and watch over HTTP.

    Chats ─ owner ─▶ ChatShelf: one folder of conversations ─ id ─▶ Chat: a Session, its file, its events
                                                                     │
    send, retry, edit, resume ─▶ a task of the server ─▶ events ─▶ EventLog ─▶ any number of readers
                                                             └─▶ saved at the end of each answer

A turn runs to its end whether a client reads or not. While it runs, `Chat.messages` are those in front of what it
writes, and its events spell the rest. The terminal uses the same files: a file that another program has changed is read
again before the next turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from shepherd.agent import modes
from shepherd.agent.session import Session
from shepherd.agent.storage import (
    ConversationStore,
    SavedConversation,
    SavedListing,
    SaveError,
    Stamp,
    given_sampling,
)
from shepherd.agent.turn import CallReturned, TurnEvent
from shepherd.app.chats.event_log import EventLog
from shepherd.app.chats.person import ChatPerson
from shepherd.app.chats.view import put_event, shown_loading, shown_message, shown_usage
from shepherd.app.commands.tools import restore_switches
from shepherd.app.commands.turn_files import TurnFiles
from shepherd.app.conversations import Conversations, Target
from shepherd.app.loading import LoadProgress
from shepherd.app.toolset import Toolset
from shepherd.config import Config, instructions
from shepherd.config.trust import FolderFile
from shepherd.core import (
    Audio,
    CallDelta,
    CallStarted,
    Finished,
    Image,
    InvalidRequest,
    Message,
    NotAllowed,
    ReasoningDelta,
    ShepherdError,
    Started,
    Text,
    TextDelta,
    Usage,
)
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.status import ModelCard
from shepherd.memory.records import digest
from shepherd.memory.store import MemoryStore
from shepherd.memory.users import LOCAL
from shepherd.process.files import working_folder
from shepherd.process.pools import in_pool
from shepherd.tools.permission import MODES, Mode
from shepherd.wire.base import public_error, shown

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Attached = Text | Image | Audio
Action = Literal["send", "retry", "edit", "resume"]

MOST_OPEN = 64
"""Chats of one owner that are held in memory; beyond that, the one that was used longest ago is closed."""
MOST_RUNNING = 16
"""Turns that run at the same time, of all owners; they hold no connection that admission would count."""
MOST_OF_GUEST = 4
"""Of them by one guest, who leaves room for the others."""
MOST_NAMES = 1_000
"""Former ids of chats that still find them."""
MOST_READERS = 64
"""Of the events of one chat."""


Count = Callable[[], Callable[[], None]]
"""Counts a turn against what its sender may run at a time, and returns what ends that. Raises: `RateLimited`."""


def uncounted() -> Callable[[], None]:
    """A `Count` without a limit."""
    return lambda: None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose chats they are, and what their tools may do."""

    user: str = LOCAL
    """Of the memory."""
    cells: str = ""
    """The owner of what they leave in a cache, as that of a request."""
    is_guest: bool = False
    """One user among others: the chats are in a folder of the user, and its tools are those of HTTP clients."""


class Busy(InvalidRequest):
    """The chat is in a state that does not take the request now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=409)


class NoSuchChat(InvalidRequest):
    def __init__(self, id: str) -> None:
        super().__init__(
            f"there is no chat {shown(id)}; GET /v1/chats lists those that there are", field="id", status=404
        )


class UnreadableChat(InvalidRequest):
    """The file of a chat is damaged, or another program has removed it this moment."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(
            f"the chat {shown(id)} cannot be read: {reason}; mend its file, or delete the chat", field="id", status=409
        )


class Chats:
    """All chats of one program. One event loop."""

    def __init__(
        self,
        config: Config,
        conversations: Conversations,
        tools: Toolset,
        *,
        env: Mapping[str, str],
        memory: Callable[[str | None], MemoryStore | None],
        models: Callable[[], Sequence[ModelCard]],
    ) -> None:
        """`env`: may say that the files of the working folder are trusted. `memory`: that of a user, not on the event
        loop. `models`: those that a request can name."""
        self.env = env
        self.memory = memory
        self.models = models
        self.config = config
        self.conversations = conversations
        self.tools = tools
        self._shelves: dict[Owner, ChatShelf] = {}
        self.asked: dict[asyncio.Task[None], ChatPerson] = {}
        """By running turn, the person at its chat; those of guests are asked nothing."""
        self.running: set[asyncio.Task[None]] = set()
        self.loading: set[asyncio.Task[None]] = set()
        """They load the model of a chat in front of its next turn."""
        self.refused: set[FolderFile] = set()
        """Files of the folder that a person has not trusted."""

    def of(self, owner: Owner) -> ChatShelf:
        if owner not in self._shelves:
            self._shelves[owner] = ChatShelf(self, owner)
        return self._shelves[owner]

    async def aclose(self) -> None:
        """Stop the turns that run, and save what they have."""
        await asyncio.sleep(0)  # a task that is cancelled before its first step would never end its turn
        running = self.running | self.loading
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for shelf in self._shelves.values():
            shelf.close()


class ChatShelf:
    def __init__(self, chats: Chats, owner: Owner) -> None:
        self.chats = chats
        self.owner = owner
        self.saves = _saves(chats.tools, owner)
        """None = conversations are not saved, and last as long as the program."""
        self._open: OrderedDict[str, Chat] = OrderedDict()
        """By id, the one that was used last at the end."""
        self._renamed: OrderedDict[str, str] = OrderedDict()
        """By former id."""
        self._listings: dict[str, tuple[Stamp, SavedListing]] = {}
        """By name, with the stamp of the file that was read."""

    async def page(self, cursor: str | None, limit: int) -> Json:
        """The newest chats first, those behind the chat `cursor`. Raises: `InvalidRequest`, `SaveError`."""
        saves = self.saves
        names = [] if saves is None else await in_pool("files", saves.names)
        begun = [chat for chat in reversed(self._open.values()) if chat.is_running or chat.is_unsaved]
        unsaved = [chat.id for chat in begun if chat.id not in names]
        ids = [*unsaved, *names]
        if cursor is not None:
            if (at := self._renamed.get(cursor, cursor)) not in ids:
                raise InvalidRequest(
                    f"cursor names no chat: {shown(cursor)}; take next of the page before", field="cursor"
                )
            ids = ids[ids.index(at) + 1 :]
        page = ids[:limit]
        listed = await in_pool("files", lambda: {id: self._listed(id) for id in {*page} & {*names}})
        rows = [self._row(id, listed.get(id)) for id in page]
        return {"chats": rows} | ({"next": page[-1]} if len(ids) > limit else {})

    async def create(self, model: str | None, system: str | None) -> Chat:
        """A new chat; it has no file before its first answer. Raises: `InvalidRequest` for an unknown model."""
        chat = await self._made(f"new-{secrets.token_hex(6)}", self.chats.conversations.active_target)
        if model:
            await chat.move(model)
        if system is not None:
            chat.session.system = system
        self._keep(chat)
        return chat

    async def draft(self) -> Chat:
        """A new chat that no list has: it shows what one may do."""
        return await self._made("draft", self.chats.conversations.active_target)

    async def search(self, query: str, limit: int) -> list[Json]:
        """The exchanges of all conversations that answer a query, as the memory finds them; `chat` where the
        conversation is saved. Raises: `InvalidRequest`, `MemoryFailure`."""
        store = await self.store()
        if store is None:
            raise InvalidRequest("this server has no memory: it is switched off in the configuration", status=404)
        hits = await in_pool("memory", store.search, query, limit)
        sessions = await in_pool("memory", store.sessions, {hit.conversation for hit in hits})
        saves = self.saves
        names = [] if saves is None else await in_pool("files", saves.names)
        listed = await in_pool("files", lambda: [self._listed(name) for name in names])
        by_session = {each.id: each.name for each in listed if each.id}
        read: dict[str, tuple[Message, ...]] = {}
        found: list[Json] = []
        for hit in hits:
            row: Json = {
                "title": hit.title,
                "role": hit.role,
                "excerpt": hit.snippet,
                "ids": [hit.message_id],
                "time": hit.timestamp.timestamp(),
            }
            if (name := by_session.get(sessions.get(hit.conversation, ""))) is not None:
                if name not in read:
                    try:  # a closed one stays closed
                        read[name] = (await (self.get(name) if name in self._open else self.loaded(name))).messages
                    except (NoSuchChat, UnreadableChat):  # since a moment ago
                        continue
                row["chat"] = name
                wanted = hit.user_message.strip()
                asked = (at for at, each in enumerate(read[name]) if each.is_input)
                row["at"] = next((at for at in asked if read[name][at].own_text.strip() == wanted), None)
            found.append(row)
        return found

    async def store(self) -> MemoryStore | None:
        """The memory of the owner; None without one. Raises: `MemoryFailure`."""
        return await in_pool("memory", self.chats.memory, self.owner.user)

    async def get(self, id: str) -> Chat:
        """The chat of this id, as its file is now. Raises: `NoSuchChat`, `UnreadableChat`, `SaveError`."""
        id = self._renamed.get(id, id)
        if (chat := self._open.get(id)) is not None:
            self._open.move_to_end(id)
            await chat.read_again()
            if chat.is_gone:
                raise NoSuchChat(id)
            return chat
        names = () if self.saves is None else await in_pool("files", self.saves.names)
        if self.saves is None or id not in names:
            raise NoSuchChat(id)
        stamp = self.saves.stamp(id)
        saved = await self.loaded(id)
        if (chat := self._open.get(id)) is not None:  # another request was faster
            return chat
        here = self.chats.conversations
        wanted = _answering(saved)
        target = await here.find_target(wanted, is_guest=self.owner.is_guest) if wanted else None
        chat = await self._made(id, target or here.active_target)
        chat.missing_model = wanted if target is None else ""
        if (other := self._open.get(id)) is not None:
            return other
        chat.restore(saved, stamp)
        self._keep(chat)
        return chat

    async def remove(self, id: str) -> None:
        """Delete a chat and its file. Raises: `NoSuchChat`, `Busy`, `SaveError`."""
        id = self._renamed.get(id, id)
        try:
            chat = await self.get(id)
        except UnreadableChat:
            held = self._open.get(id)
            if held is None:
                assert self.saves is not None
                await in_pool("files", self.saves.remove, id)
                return
            chat = held
        chat.refuse_if_running("delete it")
        self.drop(chat)
        await chat.remove()

    async def loaded(self, id: str) -> SavedConversation:
        """What the file of this id holds. Raises: `UnreadableChat`."""
        assert self.saves is not None
        try:
            return await in_pool("files", self.saves.load, id)
        except SaveError as error:
            raise UnreadableChat(id, error.message) from error

    @property
    def n_running(self) -> int:
        return sum(chat.is_running for chat in self._open.values())

    def holds(self, chat: Chat) -> bool:
        """Whether it is the chat of its id; one that was closed, or deleted, is not."""
        return self._open.get(chat.id) is chat

    def drop(self, chat: Chat) -> None:
        """Nothing finds it any more."""
        if self.holds(chat):
            del self._open[chat.id]
            chat.files.close()

    def close(self) -> None:
        for chat in self._open.values():
            chat.files.close()

    def rename(self, chat: Chat, id: str, *, is_copy: bool) -> None:
        """The chat has another id from now on. The former one still finds it, or if it `is_copy`, the other one."""
        former, chat.id = chat.id, id
        if self._open.pop(former, None) is not None:
            self._open[id] = chat
        for earlier, to in self._renamed.items():
            if to == former:
                self._renamed[earlier] = id
        if not is_copy:
            self._renamed[former] = id
        while len(self._renamed) > MOST_NAMES:
            self._renamed.popitem(last=False)

    def _keep(self, chat: Chat) -> None:
        self._open[chat.id] = chat
        idle = [
            id for id, each in self._open.items() if not each.is_running and not each.log.n_readers and each != chat
        ]
        for id in idle[: max(0, len(self._open) - MOST_OPEN)]:
            self.drop(self._open[id])

    async def _made(self, id: str, target: Target) -> Chat:
        chats, owner, log = self.chats, self.owner, EventLog(time.time_ns() // 1_000_000)
        person = ChatPerson(log)
        allows_tools = chats.config.server.use_tools or not owner.is_guest
        journal = None if owner.is_guest else chats.tools.journal()
        session = await in_pool(
            "memory",
            lambda: chats.conversations.chat(
                target,
                user=owner.user,
                owner=owner.cells,
                person=None if owner.is_guest else person,
                journal=journal,
                tools=allows_tools,
            ),
        )
        return Chat(self, id, session, target, log=log, person=person, files=TurnFiles(session, journal))

    def _listed(self, name: str) -> SavedListing:
        assert self.saves is not None
        stamp = self.saves.stamp(name)
        known = self._listings.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        listed = self.saves.listing(name)
        if stamp is not None:
            self._listings[name] = stamp, listed
        return listed

    def _row(self, id: str, listed: SavedListing | None) -> Json:
        chat = self._open.get(id)
        row: Json = {"id": id, "running": chat is not None and chat.is_running}
        if listed is not None:
            return row | {
                "session": listed.id or None,
                "title": listed.title,
                "model": listed.model,
                "changed": listed.changed.timestamp(),
                "n_messages": listed.n_messages,
                "first": listed.first,
                "last": listed.last,
            } | ({"error": listed.error} if listed.error else {})  # fmt: skip
        assert chat is not None
        return row | {
            "session": chat.session.id,
            "title": chat.session.title,
            "model": chat.session.model,
            "changed": chat.used_s,
            "n_messages": len(chat.session.messages),
            "first": "",
            "last": "",
        }


@dataclass(slots=True)
class _Turn:
    index: int
    """Of the first message that it writes; those in front of it stay."""
    begun: tuple[Message, ...]
    """What stands there at its start: the question, or the answer that is continued."""
    number: int
    task: asyncio.Task[None] | None = None


class Chat:
    """One chat. Its session has one turn at a time."""

    def __init__(
        self,
        shelf: ChatShelf,
        id: str,
        session: Session,
        target: Target,
        *,
        log: EventLog,
        person: ChatPerson,
        files: TurnFiles,
    ) -> None:
        self.id = id
        self.session = session
        self.target = target
        self.log = log
        self.person = person
        self.files = files
        self.attached: list[Text] = []
        """Resources to send with the next message."""
        self.switched_tools: dict[str, bool] = {}
        self.used_s = time.time()
        """When its last turn began or ended."""
        self.stamp: Stamp | None = None
        """Of its file, as it was read or written last; None without a file."""
        self.mode: Mode = "ask"
        self.is_gone = False
        """It is deleted."""
        self.missing_model = ""
        """What the file says that answers, where it is not there any more; another one answers the next turn."""
        self.shelf = shelf
        self._file = asyncio.Lock()
        """While its file is read or written: its own change must not look like another program's."""
        self._is_held = False
        """A command or a change runs: no turn may begin with half of it."""
        self._has_open_files = False
        self._loading: set[Target] = set()
        """What loads for it, so that its readers hear of it."""
        self._turn: _Turn | None = None
        self._n_turns = 0
        self._saved: SavedConversation | None = None
        """As it was read or written last."""
        self._model: object = None
        """The loaded model that has recognised the conversation."""
        self._files: instructions.Found | None = None
        """The AGENTS.md of the folder; None = not read yet."""
        self._is_fitted = False
        """Its model has got them as they were read."""
        self.instructions = instructions.Given()
        self._results: dict[str, Json] = {}
        """By call, what its result shows besides; of the turns since it was opened."""
        self._stats: dict[int, Json] = {}
        """By index of the answer, as `_results`."""

    # what it is

    @property
    def is_running(self) -> bool:
        return self._turn is not None

    @property
    def is_unsaved(self) -> bool:
        """Whether it has messages, and has never had a file."""
        return self.stamp is None and bool(self.session.messages)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages; while a turn runs, those in front of what it writes, and what it began with."""
        if (turn := self._turn) is not None:
            return (*self.session.messages[: turn.index], *turn.begun)
        return self.session.messages

    def refuse_if_running(self, purpose: str) -> None:
        """Raises: `Busy`."""
        if self.is_running:
            raise Busy(f"a turn of this chat is running; stop it before you {purpose}, or wait for its end")
        if self._is_held:
            raise Busy("a command of this chat is running, or its model is being changed; send the request again")

    @contextlib.contextmanager
    def held(self, purpose: str) -> Iterator[None]:
        """No turn begins, and nothing else changes the chat, within the block. Raises: `Busy`."""
        self.refuse_if_running(purpose)
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def shown(self, before: int | None, limit: int) -> Json:
        session, messages = self.session, self.messages
        end = len(messages) if before is None else min(before, len(messages))
        begin = max(0, end - limit)
        return {
            "id": self.id,
            "session": session.id,
            "title": session.title,
            "model": session.model,
            "system": session.system,
            "sampling": given_sampling(session.sampling),
            "instructions": {"given": self.instructions.line, "left_out": [*self.instructions.left_out]},
            "mode": self.mode,
            "n_messages": len(messages),
            "messages": self._shown(messages[begin:end], begin),
            "running": self.is_running,
            "can_resume": not self.is_running and session.can_resume,
            "last_event": self.log.number,
            "missing_model": self.missing_model or None,
            "questions": self.person.questions,
            "branches": [
                {"at": at, "count": n, "current": current} for at, (n, current) in sorted(session.branches.items())
            ],
            "usage": {
                **shown_usage(session.usage),
                "prompt": session.usage.prompt,
                "n_ctx": self.shelf.chats.conversations.describe(self.target.cache).n_ctx or None,  # no assumption
            },
        }

    def _shown(self, messages: Sequence[Message], begin: int) -> list[Json]:
        found = []
        for at, message in enumerate(messages, start=begin):
            row = shown_message(message, at, self.id, self._results)
            if at in self._stats:
                row["stats"] = self._stats[at]
            found.append(row)
        return found

    # turns

    def send(self, parts: Sequence[Attached], count: Count = uncounted) -> int:
        """Ask a question; the number of the turn, which runs from now on. Raises: `Busy`, `InvalidRequest`, and what
        `count` raises."""
        self.refuse_if_running("send another message")
        parts = (*modes.notices(self.mode, self.session.messages), *self.attached, *parts)
        n = len(self.session.messages)
        number = self._begin("send", n, (Message("user", tuple(parts)),), lambda: self.session.chat(parts), count)
        self.attached.clear()
        return number

    def resume(self, count: Count = uncounted) -> int:
        """Continue an interrupted turn; as `send`."""
        self.refuse_if_running("continue the last one")
        self.session.check_can_resume()
        messages = self.session.messages
        begun = messages[-1:] if messages[-1].role == "assistant" else ()
        return self._begin("resume", len(messages) - len(begun), begun, self.session.resume, count)

    def retry(self, at: int | None = None, count: Count = uncounted) -> int:
        """Answer the last question again, or the one that is message `at`; as `send`."""
        self.refuse_if_running("ask again")
        at = self.session.question_at(at, "try again")
        return self._begin("retry", at, self.session.messages[at : at + 1], lambda: self.session.retry(at), count)

    def edit(self, parts: Sequence[Attached], at: int | None = None, count: Count = uncounted) -> int:
        """Replace the last question, or the one that is message `at`, and answer it; as `send`."""
        self.refuse_if_running("change its question")
        at = self.session.question_at(at, "change")
        parts = (*modes.notices(self.mode, self.session.messages[:at]), *parts)
        return self._begin("edit", at, (Message("user", tuple(parts)),), lambda: self.session.edit(parts, at), count)

    # changes between turns

    async def switch(self, at: int, place: int) -> None:
        """Continue with another version of the question that is message `at`. Raises: `Busy`, `InvalidRequest`."""
        self.refuse_if_running("change to another branch")
        self.session.switch(at, place)
        self._stats = {index: each for index, each in self._stats.items() if index < at}
        await self.changed("messages")

    async def move(self, name: str) -> None:
        """Let another model answer from now on; it begins to load. Raises: `Busy`, `InvalidRequest`."""
        with self.held("change the model"):
            await self.take_model(name)

    async def take_model(self, name: str) -> None:
        """As `move`, in a chat that is held."""
        here = self.shelf.chats.conversations
        if self.shelf.owner.is_guest and here.find_choice(name) is None:
            known = ", ".join(each.name for each in here.choices())
            raise InvalidRequest(f"model must be one of {known}, not {shown(name)}", field="model")
        target = await here.target(name, self.target)
        await in_pool("memory", here.move_chat, self.session, target)
        self.target, self._model, self.missing_model = target, None, ""
        self.set_mode(self.mode)
        restore_switches(self.session, self.switched_tools, enables=not self.shelf.owner.is_guest)
        await self.changed("model")
        if not here.is_loaded(target):
            task = asyncio.create_task(self._load())
            self.shelf.chats.loading.add(task)
            task.add_done_callback(self.shelf.chats.loading.discard)

    async def _load(self) -> None:
        with contextlib.suppress(ShepherdError):  # its readers have heard it; the next turn tries again
            async with self._loaded():
                pass

    @contextlib.asynccontextmanager
    async def _loaded(self) -> AsyncIterator[object]:
        """Its model, loaded for the length of the block; readers hear how far it is. Raises: what loading raises."""
        here, target, model = self.shelf.chats.conversations, self.target, self.session.model
        if here.is_loaded(target) or target in self._loading:
            async with here.kept_loaded(target) as found:
                yield found
            return

        def tell(loading: LoadProgress) -> None:
            if target in self._loading:
                self.log.put("loading", {"model": model, **shown_loading(loading)}, replaces=True)

        self._loading.add(target)
        self.log.put("loading", {"model": model, **shown_loading(None)})
        async with contextlib.AsyncExitStack() as stack:
            try:
                with here.hearing(target, tell):
                    found = await stack.enter_async_context(here.kept_loaded(target))
            except ShepherdError as error:
                self.log.put("loaded", {"model": model, "error": error.message})
                raise
            finally:
                self._loading.discard(target)
            failed = {} if here.is_loaded(target) else {"error": "it cannot be loaded, and another one answers"}
            self.log.put("loaded", {"model": model} | failed)
            yield found

    @property
    def modes(self) -> dict[Mode, str]:
        own = ("edits",) if self.shelf.owner.is_guest else ()  # a guest allows nothing on this machine
        return {name: does for name, does in MODES.items() if name not in own}

    def check_mode(self, mode: Mode) -> None:
        """Raises: `NotAllowed`."""
        if mode not in self.modes:
            raise NotAllowed(
                f"this API key may not let tools change files without a question (mode {mode}); the modes are "
                f"{', '.join(self.modes)}",
                status=403,
            )

    def set_mode(self, mode: Mode) -> None:
        """What runs without a question from now on, also in the turn that runs. Raises: `NotAllowed`."""
        self.check_mode(mode)
        self.mode = mode
        modes.apply(mode, self.session)

    async def changed(self, *what: str) -> None:
        """Save the chat, and tell its readers. Raises: `SaveError`, `Busy`."""
        await self.save()
        self.log.put("changed", {"what": list(what)})

    @property
    def confirm(self) -> Callable[[str], Awaitable[bool]] | None:
        """Asks the person at the chat; None where no client reads its events, and for guests."""
        return None if self.shelf.owner.is_guest or not self.log.n_readers else self.person.confirm

    async def open_files(self) -> None:
        """Read what the tools have changed in files, once for each conversation that the session is."""
        if not self._has_open_files:
            self._has_open_files = True
            await in_pool("files", self.files.open)

    async def stop(self) -> bool:
        """Stop the turn that runs, and wait for its end; False where none runs."""
        task = self._turn.task if self._turn is not None else None
        if task is None:
            return False
        await asyncio.sleep(0)  # as in `Chats.aclose`
        task.cancel()
        await asyncio.wait((task,))
        return True

    def _begin(
        self,
        action: Action,
        index: int,
        begun: tuple[Message, ...],
        stream: Callable[[], AsyncGenerator[TurnEvent, None]],
        count: Count,
    ) -> int:
        self.refuse_if_running("begin another one")
        if not self.shelf.holds(self):
            raise Busy("this chat was closed meanwhile to make room for others; send the request again")
        running = self.shelf.chats.running
        if len(running) >= MOST_RUNNING:
            raise InvalidRequest(
                f"{len(running)} turns are running on this server, and that is the most; try again when one has ended",
                status=429,
            )
        if self.shelf.owner.is_guest and self.shelf.n_running >= MOST_OF_GUEST:
            raise InvalidRequest(
                f"{MOST_OF_GUEST} turns of this API key's user are running, and that is the most; try again when one "
                "has ended",
                status=429,
            )
        end_turn = count()
        self._n_turns += 1
        self.used_s = time.time()
        self._turn = turn = _Turn(index, begun, self._n_turns)
        self.log.begin()
        self.log.put("turn", {"action": action, "index": index, "messages": self._shown(begun, index)})
        turn.task = asyncio.create_task(self._play(turn, stream))
        running.add(turn.task)
        turn.task.add_done_callback(running.discard)
        turn.task.add_done_callback(lambda _: end_turn())
        if not self.shelf.owner.is_guest:
            self.shelf.chats.asked[turn.task] = self.person
            turn.task.add_done_callback(self.shelf.chats.asked.pop)
        return turn.number

    async def _play(self, turn: _Turn, stream: Callable[[], AsyncGenerator[TurnEvent, None]]) -> None:
        reason, problem = "done", None
        timing = _Timing()
        try:
            if self.missing_model:
                self.log.put("missing_model", {"model": self.missing_model, "instead": self.session.model})
            await self.open_files()
            await self._read_instructions()
            async with self._loaded() as model:
                self._instruct(model)
                self._recognise(model)
                async with aclosing(stream()) as events:
                    async for event in events:
                        await self._take(event, timing)
        except asyncio.CancelledError:  # a client has stopped it, or the server stops: what there is, is saved
            reason = "stopped"
        except ShepherdError as error:
            reason, problem = "error", {"code": error.code, "message": public_error(error)[1]}
        except Exception as error:  # the wall: the turn has no caller
            logger.exception("a turn of a chat failed unexpectedly")
            reason, problem = "error", {"code": "server_error", "message": public_error(error)[1]}
        try:
            await in_pool("files", self.files.begin_turn)
            await self.save()
        except asyncio.CancelledError:
            reason = "stopped"
        except ShepherdError as error:
            problem = problem or {"code": error.code, "message": error.message}
            reason = "error"
        finally:
            self._turn = None
            self.used_s = time.time()
            self._stats = {at: each for at, each in self._stats.items() if at < turn.index}
            self._stats |= timing.by_answer(self.session.messages, turn.index)
            end: Json = {"reason": reason, "index": turn.index, "can_resume": self.session.can_resume}
            usage = self.session.usage
            logger.info(
                "chat turn model=%s session=%s in=%d cached=%d out=%d stop=%s",
                self.session.model, self.session.id, usage.prompt, usage.cache_read, usage.output, reason,
            )  # fmt: skip
            if notices := self.files.take_notices():
                end["notices"] = notices
            end["messages"] = self._shown(self.session.messages[turn.index :], turn.index)
            self.log.put("end", end | ({"error": problem} if problem else {}))

    async def _take(self, event: TurnEvent, timing: _Timing) -> None:
        shown = timing.take(event)
        if isinstance(event, Started):
            self.missing_model = ""
        if isinstance(event, CallReturned):
            extra = {"summary": event.summary, "diff": event.diff}
            self._results[event.result.call_id] = {name: value for name, value in extra.items() if value}
        elif isinstance(event, Finished):  # its calls run after this event
            await in_pool("files", self.files.begin_turn)
        put_event(self.log, event, timing.call, shown)
        if isinstance(event, Finished) and event.reason == "tool_calls":
            with contextlib.suppress(SaveError):  # the end of the turn tries again, and reports it
                await self.save()

    async def _read_instructions(self) -> None:
        """Read the AGENTS.md of the folder, until the first answer. A person is asked about a file that is new, or has
        changed; once in this program."""
        chats = self.shelf.chats
        if self.shelf.owner.is_guest or not chats.config.chat.instructions:
            return
        if self._files is None or not self.session.messages:
            confirm, refused = self.confirm, chats.refused
            found = await instructions.read(working_folder(), chats.env, confirm, refused)
            if confirm is not None:
                refused.update(each.file for each in found.all if each not in found.files)
            self._is_fitted = self._is_fitted and self._files == found
            self._files = found

    def _instruct(self, model: object) -> None:
        """Give the model what was read; fitted to each model."""
        if self._files is None or (self._is_fitted and model is self._model):
            return
        self._is_fitted, chats = True, self.shelf.chats
        count = chats.conversations.tokens_for(self.target)
        given = instructions.given(self._files.files, self.session.n_ctx, count)
        given = replace(given, left_out=(*self._files.left_out, *given.left_out))
        self.session.instructions = given.text
        if given != self.instructions:
            self.instructions = given
            self.log.put("changed", {"what": ["instructions"]})

    def _recognise(self, model: object) -> None:
        """A model that was loaded since the last turn recognises what is saved of the conversation."""
        if model is not self._model and self._saved is not None and self._saved.messages == self.session.messages:
            self.session.restore(self._saved)
        self._model = model

    # its file

    def restore(self, saved: SavedConversation, stamp: Stamp | None) -> None:
        self.session.restore(saved)
        self._saved, self.stamp = saved, stamp
        self._has_open_files = False

    async def read_again(self) -> None:
        """Read its file, if another program has changed it; without its file it is gone. Raises: `UnreadableChat`."""
        saves = self.shelf.saves
        if saves is None or self.stamp is None or self._is_busy():
            return
        async with self._file:
            stamp = await in_pool("files", saves.stamp, self.id)
            if stamp == self.stamp or self.is_gone:
                return
            saved = None if stamp is None else await self.shelf.loaded(self.id)
            if self._is_busy():  # since a moment ago
                return
            if saved is not None:
                self.restore(saved, stamp)
        if saved is None:
            self.shelf.drop(self)
            self._be_gone()
        else:
            self.log.put("changed", {"what": ["messages", "title", "system"]})

    async def remove(self) -> None:
        """Delete its file. Raises: `SaveError`."""
        async with self._file:
            if self.shelf.saves is not None and self.stamp is not None:
                await in_pool("files", self.shelf.saves.remove, self.id)
            self._be_gone()

    def _is_busy(self) -> bool:
        return self.is_running or self._is_held

    def _be_gone(self) -> None:
        self.is_gone = True
        self.log.put("changed", {"what": ["deleted"]})

    async def save(self) -> None:
        """Write its file. A file that another program has written meanwhile stays, and the chat gets one of its own.
        A caller that is cancelled waits for its end: a file whose stamp is not noted looks like another program's.

        Raises: `SaveError`, `Busy`.
        """
        if (saves := self.shelf.saves) is None:
            return
        saving = asyncio.create_task(self._save(saves))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait((saving,))
            if not saving.cancelled():
                saving.exception()  # so that it is not reported
            raise

    async def _save(self, saves: ConversationStore) -> None:
        async with self._file:
            if not self.is_gone and (self.stamp is not None or self.session.messages):
                await self._write(saves)

    async def _write(self, saves: ConversationStore) -> None:
        name = "" if self.stamp is None else self.id
        conflict = saves.is_changed(self.id, self.stamp)
        if conflict:
            await self.open_files()
            self.session.detach()
            await in_pool("files", self.files.forked)
            name = ""
        saved = self._to_saved()
        name = await in_pool("files", saves.save, saved, name)
        self.stamp, self._saved = saves.stamp(name), saved
        if self._has_open_files:
            await in_pool("files", self.files.saved)
        if name != self.id:
            self.shelf.rename(self, name, is_copy=conflict)
            self.log.put("saved", {"id": name, "title": self.session.title})
        if conflict:
            raise Busy("another program has changed this conversation meanwhile; this turn is in a copy of it")

    def _to_saved(self) -> SavedConversation:
        model = self.missing_model or self.shelf.chats.conversations.name_of(self.target, self.session.model)
        made = replace(self.session.to_saved(), folder=str(working_folder()), model=model)
        before = self._saved
        if not made.quotes and before is not None:  # a model that is not loaded knows of none
            quotes = {
                at: quote for at, quote in before.quotes.items() if made.messages[: at + 1] == before.messages[: at + 1]
            }
            made = replace(made, quotes=quotes)
        return made


class _Timing:
    """The times of the answers of one turn, and whose arguments come."""

    def __init__(self) -> None:
        self.call = ""
        """The id of the call whose arguments come."""
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._finished: list[Json] = []

    def take(self, event: TurnEvent) -> Json:
        """What the event of a finished answer shows besides."""
        match event:
            case Started():
                self._began_s, self._first_s = time.monotonic(), None
            case TextDelta() | ReasoningDelta() | CallStarted() | CallDelta():
                self._first_s = time.monotonic() if self._first_s is None else self._first_s
                if isinstance(event, CallStarted):
                    self.call = event.id
            case Finished(usage=usage):
                timing = self._of(usage)
                self._finished.append({**shown_usage(usage), **timing})
                return timing
            case _:
                pass
        return {}

    def by_answer(self, messages: Sequence[Message], index: int) -> dict[int, Json]:
        """The figures of each answer, by its index; the newest belong to the last answers."""
        answers = [at for at in range(index, len(messages)) if messages[at].role == "assistant"]
        return dict(zip(answers, self._finished, strict=False))

    def _of(self, usage: Usage) -> Json:
        if self._first_s is None:
            return {}
        seconds = time.monotonic() - self._first_s
        speed = (usage.output - 1) / seconds if usage.output > 1 and seconds > 0 else 0.0
        return {"first_token_s": round(self._first_s - self._began_s, 3), "tokens_per_s": round(speed, 1)}


def _saves(tools: Toolset, owner: Owner) -> ConversationStore | None:
    saves = tools.saves()
    if saves is None or not owner.is_guest:
        return saves
    return tools.saves(f"users/{digest(owner.user.encode('utf-8', 'replace')).hex()}")


def _answering(saved: SavedConversation) -> str:
    """The name of what answers it. The terminal saves the model of a provider alone; its answers name the provider."""
    origins = (each.origin for each in reversed(saved.messages) if each.role == "assistant" and each.origin)
    provider, _, model = next(origins, "").partition(":")
    return f"{provider}/{model}" if model and model == saved.model and provider != "local" else saved.model
