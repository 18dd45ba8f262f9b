"""The conversation of the terminal, which plays turns and which the /commands work on: a session, a view, a file."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from shepherd.agent import modes
from shepherd.agent.attachment import Attached
from shepherd.agent.session import Session
from shepherd.agent.storage import ConversationStore, SavedConversation, Stamp
from shepherd.agent.turn import TurnEvent
from shepherd.app.app import App
from shepherd.app.commands.command import wait_for
from shepherd.app.commands.tools import restore_switches
from shepherd.app.commands.turn_files import TurnFiles
from shepherd.cli.chat import attach
from shepherd.cli.chat.instructions import FolderInstructions
from shepherd.cli.chat.stats import PART, TurnStats
from shepherd.cli.loading import progress_shown
from shepherd.cli.terminal.answer import JsonAnswer, PlainAnswer, call_line, eviction_line, fallback_line
from shepherd.cli.terminal.reader import PipeReader
from shepherd.cli.terminal.view import View
from shepherd.cli.text import cut, field_lines, format_count, one_line, packed
from shepherd.core import Audio, BadCall, Evicted, Finished, Image, ShepherdError, Text, ToolCall
from shepherd.core.status import WAYS, ActiveModel, ModelChoice
from shepherd.memory.store import MemoryStore
from shepherd.process.files import working_folder
from shepherd.tools.permission import MODES, Mode

if TYPE_CHECKING:
    from shepherd.cli.terminal.editor import TerminalReader
    from shepherd.cli.terminal.live import MarkdownAnswer
    from shepherd.tools.sandbox.journal import FileJournal

    Reader = TerminalReader | PipeReader

_TICK_S = 1 / 15

T = TypeVar("T")


class Chat:
    hints = (
        "/help NAME shows more. @path in a message attaches a file. Tab completes commands, names and paths.",
        "!COMMAND runs a command in your shell; the model gets its output with your next message.",
        "Enter sends. Alt+Enter, a backslash at the end, or an open ``` fence starts a new line.",
        "Shift+Tab changes the mode. A line typed during an answer waits; Up takes it back.",
        "Esc or Ctrl-C stops an answer, Ctrl-D leaves.",
    )
    is_guest = False
    modes = MODES

    def __init__(
        self,
        app: App,
        session: Session,
        view: View,
        reader: Reader,
        *,
        max_rounds: int | None = None,
        instructions: FolderInstructions | None = None,
        journal: FileJournal | None = None,
    ) -> None:
        """`max_rounds`: the most rounds that a turn may have, for the line below an answer. `instructions`: None = the
        model gets none. `journal`: what its tools change in files; None = nothing is kept.
        """
        self.app = app
        self.session = session
        self.view = view
        self.instructions = instructions
        self.files = TurnFiles(session, journal)
        self.reader = reader
        self.memory = app.memory(session.user)
        """The memory of the user; None without one."""
        self.saves = app.tools.saves()
        self.name = ""
        """The name of its saved file; empty before it is saved."""
        self.stamp: Stamp | None = None
        """Of that file, as it was read or written last."""
        self.turns: list[TurnStats] = []
        """The turns since the conversation began or was loaded."""
        self.is_measured = False
        """The last of them says what the context holds: nothing was taken back since, and no other model has come."""
        self.attached: list[Text] = []
        """Resources to send with the next message."""
        self.switched_tools: dict[str, bool] = {}
        self.is_over = False
        self.has_failed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """While lines are read."""
        self.mode: Mode = "ask"
        """What runs without a question; `set_mode` changes it."""
        self._max_rounds = max_rounds
        self._cannot_save = False
        self._thread = threading.get_ident()
        self.files.open()

    @property
    def editor(self) -> TerminalReader | None:
        """The line editor; None where a terminal or a pipe edits the lines."""
        return cast("TerminalReader", self.reader) if self.reader.has_editor else None

    def set_mode(self, mode: Mode) -> None:
        self.mode = mode
        modes.apply(mode, self.session)

    # turns

    def asked(self, parts: Sequence[Attached], *, instead: bool = False) -> tuple[Attached, ...]:
        """A message with the notices that the model needs before it; `instead`: of the last question."""
        before = self.session.messages
        if instead:
            at = next((at for at in range(len(before) - 1, -1, -1) if before[at].is_input), 0)
            before = before[:at]
        return (*modes.notices(self.mode, before), *parts)

    async def read_parts(self, text: str) -> tuple[Attached, ...]:
        """As `attach.parts`; shows a line for each file."""
        notes: list[tuple[str, Attached | None]] = []
        parts = await asyncio.to_thread(
            attach.parts, text, self.app, self.session.n_ctx, lambda line, part: notes.append((line, part))
        )
        for line, part in notes:
            n = await self.app.conversations.tokens_of(part) if isinstance(part, Image | Audio) else None
            self.note(line if n is None else f"{line.removesuffix(')')}, {format_count(n, 'token')})")
        return parts

    async def play(self, events: AsyncGenerator[TurnEvent, None]) -> bool:
        """Show a turn or its error, and save the conversation; whether there is an answer."""
        turn = TurnStats()
        instead = ""
        try:
            with closing(self.view.answer()) as answer:
                async with aclosing(events), ticking(answer):
                    async for event in events:
                        if isinstance(event, Finished):  # its calls run after this event
                            self.files.begin_turn()
                        instead = fallback_line(event) or instead
                        turn.feed(event)
                        answer.feed(event)
        except ShepherdError as error:
            self.has_failed = True
            self.view.fail(error)
            self._call_back()
            return False
        finally:
            turn.end()
            self.turns.append(turn)
            self.is_measured = True
            self.files.begin_turn()
            await self.save()
        if instead:
            self.note(instead)
        for line in self.files.take_notices():
            self.say(line, "yellow")
        if self.reader.is_person and (line := turn.line(self.facts.n_ctx, self._max_rounds)):
            active = self.app.conversations.active
            away = f"{PART}{active.cache}, {WAYS[True]}" if active.is_away else ""
            self.note_pieces(f"{line}{away}".split(PART), PART)
        self._call_back()
        if self.instructions is not None and (line := await asyncio.to_thread(self.instructions.find_change)):
            self.note(line)
        return True

    def _call_back(self) -> None:
        """Call the person, unless a line that waits goes on without one."""
        if self.editor is None or not self.editor.draft.waiting:
            self.view.call_back()

    async def read_instructions(self, *, again: bool = True) -> None:
        """Give the model the instructions of the folder, read `again` or as they were: the context may have changed."""
        if self.instructions is None:
            return
        before = self.instructions.line
        left_out = await self.instructions.read() if again else []
        left_out += self.instructions.give(self.session, self.app.conversations.tokens_of_text)
        for line in left_out:
            self.say(line, "yellow")
        if self.instructions.line != before:
            self.note(self.instructions.line or "AGENTS.md is not in the prompt any more.")

    async def save(self) -> None:
        """Save the conversation; the first failure is shown, later ones are not."""
        if self.saves is None or not self.session.messages:
            return
        try:
            await self.keep(self.saves)
        except (ShepherdError, OSError) as error:
            if not self._cannot_save:
                self.say(f"This conversation cannot be saved: {error}", "yellow")
            self._cannot_save = True

    async def keep(self, saves: ConversationStore, name: str = "") -> str:
        """Write the file of the conversation, from now on under this name if one is given; its name before. Where
        another program has written that file, it stays, and this is a copy without a former name. Raises:
        `SaveError`."""
        changed = self.name if saves.is_changed(self.name, self.stamp) else ""
        if changed:
            self.session.detach()
            self.files.forked()
            self.name = ""
        before = self.name
        self.name = await asyncio.to_thread(saves.save, self.to_saved(), name or before)
        self.stamp = saves.stamp(self.name)
        self.files.saved()
        if changed:
            self.say(
                f"Another program has changed {changed} meanwhile. It stays as it is; you are in a copy: {self.name}.",
                "yellow",
            )
        return before

    def to_saved(self) -> SavedConversation:
        return replace(self.session.to_saved(), folder=str(working_folder()))

    def reset(self) -> None:
        """Forget the name, the statistics and the attachments: another conversation begins."""
        self.turns, self.attached = [], []
        self.name, self.stamp = "", None
        self.files.open()

    def last_question(self) -> str | None:
        """The last message of the user, without what was attached to it."""
        for message in reversed(self.session.messages):
            if message.role == "user":
                return "".join(part.text for part in message.parts if isinstance(part, Text) and not part.aside)
        return None

    def last_answer(self) -> str:
        """The text that answers the last message of the user; empty without an answer."""
        answers = itertools.takewhile(lambda message: message.role != "user", reversed(self.session.messages))
        return "\n".join(message.text for message in [*answers][::-1] if message.role == "assistant" and message.text)

    # what commands need

    @property
    def facts(self) -> ActiveModel:
        return self.app.conversations.active

    def choices(self) -> Sequence[ModelChoice]:
        return self.app.conversations.choices()

    async def store(self) -> MemoryStore | None:
        return self.memory

    def senses(self) -> frozenset[type[Image | Audio]]:
        return attach.senses(self.app)

    async def ask(self, parts: Sequence[Attached]) -> None:
        await self.play(self.session.chat(self.asked(parts)))

    async def move(self, name: str) -> bool:
        found = self.app.conversations.find_choice(name)
        if found is not None and found.current:
            return False
        with progress_shown(self.view.screen):
            try:
                await self.app.conversations.switch(self.session, name)
            finally:
                self.set_mode(self.mode)
                restore_switches(self.session, self.switched_tools, enables=True)
        self.is_measured = False
        await self.read_instructions(again=False)
        await self.save()
        return True

    async def changed(self, what: str) -> None:
        self.is_measured = self.is_measured and what != "messages"
        await self.save()

    @property
    def confirm(self) -> Callable[[str], Awaitable[bool]] | None:
        person = self.view.person()
        return None if person is None else person.confirm

    @property
    def choose(self) -> Callable[[str, Sequence[str]], Awaitable[int | None]] | None:
        return None if self.editor is None else self._choose

    async def _choose(self, title: str, rows: Sequence[str]) -> int | None:
        from shepherd.cli.terminal import picker

        assert self.editor is not None
        newest_first = [picker.Row(f"{n}", row, "", "") for n, row in reversed([*enumerate(rows)])]
        with self.editor.aside():
            name = await picker.pick(title, newest_first)
        return None if name is None else int(name)

    def say_evicted(self, evicted: Evicted) -> None:
        self.note(eviction_line(evicted))
        if self.turns:
            self.turns[-1].feed(evicted)

    def short(self, text: str, width: int = 60) -> str:
        return cut(one_line(text), width)

    def call_line(self, call: ToolCall | BadCall) -> str:
        return call_line(call)

    # lines

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        self.view.draw(line)

    def say(self, text: str = "", style: str = "") -> None:
        self.view.say(text, style=style)

    def note(self, text: str) -> None:
        self.view.say(text, style="dim")

    def say_fields(self, fields: Iterable[tuple[str, str]]) -> None:
        for line in field_lines(dict(fields), None if self.view.is_plain else self.view.width):
            self.say(line)

    def note_pieces(self, pieces: Iterable[str], mark: str) -> None:
        """`note` for a line that is broken between its pieces only."""
        for line in packed(pieces, mark, None if self.view.is_plain else self.view.width):
            self.note(line)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T | None:
        if self.loop is None or self._thread == threading.get_ident():  # the loop's own thread cannot wait for it
            work.close()
            return None
        return wait_for(work, self.loop)


@asynccontextmanager
async def ticking(answer: MarkdownAnswer | JsonAnswer | PlainAnswer) -> AsyncIterator[None]:
    """Within the block the answer is redrawn regularly, also when no event comes."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            answer.tick()

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()
