"""The conversation that the /commands work on, and what a command is.

    repl.py ─▶ commands.py, *_commands.py ─▶ state.py

`Chat` has the session, the view and the saved conversations, and plays a turn. Not here: where lines come from
(`repl.py`), the table of commands (`commands.py`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shepherd.cli import logs
from shepherd.cli.chat import attach
from shepherd.cli.chat.stats import ChatStats, TurnStats
from shepherd.cli.terminal.view import TerminalView, View
from shepherd.core import Image, ShepherdError, Text

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.agent.turn import TurnEvent
    from shepherd.app.app import App
    from shepherd.cli.terminal.answer import Answer
    from shepherd.cli.terminal.reader import Reader

_TICK_S = 1 / 15
_PATIENCE_S = 2.0
"""How long a completion waits for an MCP server."""

T = TypeVar("T")


class Chat:
    """One conversation: its session, where it is shown, where it is saved."""

    def __init__(
        self, app: App, session: Session, view: View, reader: Reader, *, max_rounds: int | None = None
    ) -> None:
        """`max_rounds`: the most rounds that a turn may have, for the line below an answer."""
        self.app = app
        self.session = session
        self.view = view
        self.reader = reader
        self.memory = app.memory(session.user)
        """The memory of the user; None without one."""
        self.saves = app.tools.saves()
        self.name = ""
        """The name of its saved file; empty before it is saved."""
        self.stats = ChatStats()
        self.attached: list[Text] = []
        """Resources to send with the next message."""
        self.switched_tools: dict[str, bool] = {}
        """Tools that the user switched on or off in this conversation."""
        self.is_over = False
        self.has_failed = False
        """A message could not be answered."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """While lines are read."""
        self._max_rounds = max_rounds
        self._cannot_save = False
        self._thread = threading.get_ident()

    # turns

    def read_parts(self, text: str) -> tuple[Text | Image, ...]:
        """`text` and the files that it names. Reads files: not on the event loop.

        Raises: `InvalidRequest` for a file that cannot be attached.
        """
        return attach.parts(text, self.app, self.session.n_ctx)

    async def play(self, happenings: AsyncGenerator[TurnEvent, None]) -> bool:
        """Show a turn or its error, and save the conversation; whether there is an answer."""
        turn = TurnStats()
        try:
            with logs.above(self.view.screen):
                await self._show(happenings, turn)
        except ShepherdError as error:
            self.has_failed = True
            self.view.fail(error)
            return False
        finally:
            turn.end()
            self.stats.add(turn)
            await self.save()
        if self.reader.is_person and (line := turn.line(self.session.n_ctx, self._max_rounds)):
            self.note(line)
        return True

    async def _show(self, happenings: AsyncGenerator[TurnEvent, None], turn: TurnStats) -> None:
        answer = self.view.answer()
        try:
            async with aclosing(happenings), _ticking(answer):
                async for happening in happenings:
                    turn.feed(happening)
                    answer.feed(happening)
        finally:
            answer.close()

    async def save(self) -> None:
        """Save the conversation; the first failure is shown, later ones are not."""
        if self.saves is None or not self.session.messages:
            return
        try:
            self.name = await asyncio.to_thread(self.saves.save, self.session.to_saved(), self.name)
        except (ShepherdError, OSError) as error:
            if not self._cannot_save:
                self.say(f"This conversation cannot be saved: {error}", "yellow")
            self._cannot_save = True

    def reset(self) -> None:
        """Forget the name, the statistics and the attachments: another conversation begins."""
        self.stats = ChatStats()
        self.attached = []
        self.name = ""

    def last_question(self) -> str | None:
        """The last message of the user, without what was attached to it."""
        for message in reversed(self.session.messages):
            if message.role == "user":
                return message.own_text
        return None

    # lines

    def say(self, text: str = "", style: str = "") -> None:
        """Show a line of the program."""
        self.view.say(text, style=style)

    def note(self, text: str) -> None:
        """Show a line that matters less."""
        self.view.say(text, style="dim")

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        """Show a line of pieces, each with its style."""
        if isinstance(self.view, TerminalView):
            from rich.text import Text as Styled

            self.view.console.print(Styled.assemble(*line, no_wrap=True), soft_wrap=True)
        else:
            self.view.say("".join(text for text, _ in line).rstrip())

    def say_fields(self, fields: Iterable[tuple[str, str]]) -> None:
        """Show one `Name: value` line for each field, the values in one column."""
        rows = list(fields)
        width = max((len(name) for name, _ in rows), default=0) + 1
        for name, value in rows:
            self.say(f"{name + ':':<{width}} {value}")

    @property
    def width(self) -> int:
        """Columns that a line may have."""
        return self.view.console.width if isinstance(self.view, TerminalView) else 100

    @property
    def is_plain(self) -> bool:
        """Whether to draw with ASCII only: a pipe may lead anywhere."""
        return not isinstance(self.view, TerminalView)

    @contextmanager
    def loading(self, name: str) -> Iterator[None]:
        """Within the block, log records appear above the progress of loading the model `name`."""
        if name and not logging.getLogger("shepherd").isEnabledFor(logging.INFO):  # else the log has this line
            sys.stderr.write(f"Loading provider: {name}\n")
            sys.stderr.flush()
        with logs.above(self.view.screen):
            try:
                yield
            finally:
                self.view.hide_loading()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, for a thread that completes the typed text; None when it fails or takes too long."""
        if self.loop is None or self._thread == threading.get_ident():  # the loop's own thread cannot wait for it
            work.close()
            return None
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(_PATIENCE_S)
        except (ShepherdError, TimeoutError):
            future.cancel()
            return None


@dataclass(frozen=True, slots=True)
class Command:
    """One /command."""

    help: str
    run: Callable[[Chat, str], Awaitable[None]]
    """Gets the text behind the name. Raises: `ShepherdError`, for a person."""
    argument: str = ""
    """The argument as /help shows it."""
    details: str = ""
    """More lines for `/help NAME`."""
    complete: Callable[[Chat, tuple[str, ...], str], Iterable[tuple[str, str]]] | None = None
    """The words before the cursor and the one being typed -> its completions, with a note each. Called from a
    thread."""


@asynccontextmanager
async def _ticking(answer: Answer) -> AsyncIterator[None]:
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
