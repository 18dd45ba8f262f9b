"""The conversation in the terminal: takes a line, streams the answer, says how it went.

    Reader ─▶ line ─▶ /command ─────────────▶ Session, Host
                   └▶ message, its files ─▶ Session.chat ─▶ happenings ─▶ View, Figures ─▶ saved

What happens between two lines is the same for a person and for a pipe. Ctrl-C stops whatever is being done, an answer,
a tool or a command, and never the program. Not here: the /commands (`commands.py`), how answers look
(`cli/terminal/answer.py`, `cli/render.py`) and what a conversation is (`agent/session.py`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shepherd.cli import logs, render
from shepherd.cli.chat import attach, commands, completion
from shepherd.cli.chat.stats import Figures
from shepherd.cli.signals import handling
from shepherd.core import Image, Message, ShepherdError, Text

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.agent.storage import ConversationStore
    from shepherd.agent.turn import TurnEvent
    from shepherd.app.conversations import ActiveModel, ModelChoice
    from shepherd.cli.chat.completion import Offer
    from shepherd.cli.terminal.answer import Answer
    from shepherd.cli.terminal.reader import Reader
    from shepherd.core.status import Health, ModelCard
    from shepherd.memory.store import MemoryStore
    from shepherd.tools.mcp.servers import Servers

_TICK_S = 1 / 15
_PATIENCE_S = 2.0
"""How long a completion waits for an MCP server."""

T = TypeVar("T")


class Host(Protocol):
    """What a conversation needs of the program around it: `App`."""

    @property
    def servers(self) -> Servers | None:
        """The MCP servers; None without any."""
        ...

    def facts(self) -> ActiveModel: ...

    def health(self) -> Health: ...

    def models(self) -> Sequence[ModelCard]: ...

    def choices(self) -> Sequence[ModelChoice]:
        """What can be switched to."""
        ...

    async def switch(self, session: Session, name: str) -> ActiveModel:
        """Unload what answers now, load what has this name, and go on with it.

        Raises: `UnknownModel`; `ConfigError`, `EngineError` when it cannot be loaded.
        """
        ...

    def saves(self) -> ConversationStore | None:
        """Where conversations are kept; None = they are not."""
        ...

    def memory(self, user: str | None) -> MemoryStore | None: ...


class Repl:
    """One session between a reader and a view, until the input ends or `/exit`."""

    def __init__(
        self, host: Host, session: Session, view: render.View, reader: Reader, *, max_rounds: int | None = None
    ) -> None:
        """`max_rounds`: how many a turn may have, to be told beside those that it had."""
        self.host = host
        self.session = session
        self.view = view
        self.reader = reader
        self.memory = host.memory(session.user)
        """What is kept of this and other conversations; None = nothing is."""
        self.saves = host.saves()
        self.name = ""
        """Under which it is saved; empty before it is."""
        self.figures = Figures()
        self.beside: list[Text] = []
        """What goes along with the next message: resources that were asked for."""
        self.turned: dict[str, bool] = {}
        """Tools that were switched on or off in this conversation."""
        self.is_over = False
        self._has_failed = False
        self._max_rounds = max_rounds
        self._busy: asyncio.Task[None] | None = None
        self._cannot_save = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()

    async def run(self) -> int:
        """Converse; the exit status: 1 when a message of a pipe could not be answered."""
        self._loop = loop = asyncio.get_running_loop()
        person = self.reader.is_person
        quiet = _quiet_keyboard(self.reader.has_editor)
        with handling(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(self._stop)), quiet:
            while not self.is_over:
                try:
                    line = await self.reader.read(self.offers)
                except KeyboardInterrupt:
                    if not person:
                        raise
                    self.view.say("Ctrl-D or /quit leaves.", style="dim")
                    continue
                if line is None:
                    break
                await self._take(line)
        return int(self._has_failed and not person)

    def _stop(self) -> None:
        """Ctrl-C. Once per answer: a second one must not break into the tidying up, nor end the program."""
        if self._busy is not None:
            self._busy.cancel()
            self._busy = None

    async def _take(self, line: str) -> None:
        """Do what a line says, whatever comes of it."""
        if not line.strip():
            return
        is_command = commands.is_command(line)
        self._busy = task = asyncio.create_task(commands.run(self, line) if is_command else self.say(line.strip()))
        try:
            await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # not the answer is to end but the program
            self.view.say("[stopped]", style="yellow")
        except ShepherdError as error:
            if is_command:  # it is what the command has to say
                self.tell(error.message, "red")
            else:
                self._has_failed = True
                self.view.fail(error)
        finally:
            self._busy = None

    def offers(self, before: str) -> Iterable[Offer]:
        """What Tab offers behind this text."""
        return completion.offers(self, commands.COMMANDS, before)

    # turns

    async def say(self, text: str) -> None:
        """Say `text`, with the files that it names, and show the answer.

        Raises: `InvalidRequest` for a file that cannot go along.
        """
        parts = await asyncio.to_thread(self.parts, text)
        if await self.play(self.session.chat((*self.beside, *parts))):
            self.beside = []
            await self._offer_to_keep(text)

    def parts(self, text: str) -> tuple[Text | Image, ...]:
        """`text` and the files that it names. Raises: `InvalidRequest` for one that cannot go along."""
        return attach.parts(text, self.host, self.session.n_ctx)

    async def play(self, happenings: AsyncGenerator[TurnEvent, None]) -> bool:
        """Show a turn as it happens, its error as well, and save the conversation; whether there is an answer."""
        meter = render.Meter()
        handler = logs.current()
        handler.screen = self.view.screen
        self.figures.begin()
        try:
            await self._show(happenings, meter)
        except ShepherdError as error:
            self._has_failed = True
            self.view.fail(error)
            return False
        finally:
            self.figures.end()
            handler.screen = None
            await self.keep()
        if self.reader.is_person and (line := meter.line(self.session.n_ctx, self._max_rounds)):
            self.view.say(line, style="dim")
        return True

    async def _show(self, happenings: AsyncGenerator[TurnEvent, None], meter: render.Meter) -> None:
        answer = self.view.answer()
        try:
            async with aclosing(happenings), _ticking(answer):
                async for happening in happenings:
                    meter.feed(happening)
                    self.figures.feed(happening)
                    answer.feed(happening)
        finally:
            answer.close()

    async def keep(self) -> None:
        """Save the conversation; what does not work is said once."""
        if self.saves is None or not self.session.messages:
            return
        try:
            self.name = await asyncio.to_thread(self.saves.save, self.session.to_saved(), self.name)
        except (ShepherdError, OSError) as error:
            if not self._cannot_save:
                self.view.say(f"This conversation cannot be saved: {error}", style="yellow")
            self._cannot_save = True

    async def change(self, text: str) -> None:
        """Ask `text` in place of the last question. Raises: `InvalidRequest` for a file that cannot go along."""
        await self.play(self.session.edit(await asyncio.to_thread(self.parts, text)))

    @contextmanager
    def loading(self, name: str) -> Iterator[None]:
        """Within the block, records of the log do not tear what shows how far loading is."""
        if name and not logging.getLogger("shepherd").isEnabledFor(logging.INFO):  # else the log tells it
            sys.stderr.write(f"Loading provider: {name}\n")
            sys.stderr.flush()
        handler = logs.current()
        handler.screen = self.view.screen
        try:
            yield
        finally:
            self.view.loaded()
            handler.screen = None

    def begin_anew(self) -> None:
        """Nothing is known any more of the conversation before: it is another one now."""
        self.figures = Figures()
        self.beside = []
        self.name = ""

    async def _offer_to_keep(self, text: str) -> None:
        """What sounds like a standing instruction is noted, and kept if the user says so."""
        from shepherd.memory.recall.profile import candidates

        if self.memory is None or not self.reader.is_person:
            return
        try:
            for found in candidates(text):
                noted = await asyncio.to_thread(self.memory.propose, found.value, found.kind)
                if noted is not None:
                    self.view.say(f"Keep for good: “{noted.value}”? /profile keep {noted.id}", style="dim")
        except ShepherdError as error:
            self.view.fail(error)

    # what commands need

    def tell(self, text: str = "", style: str = "") -> None:
        """A line of ours."""
        self.view.say(text, style=style)

    def note(self, text: str) -> None:
        """A line of ours that matters less."""
        self.view.say(text, style="dim")

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        """A line of pieces, each with its style."""
        if isinstance(self.view, render.TerminalView):
            from rich.text import Text as Styled

            self.view.console.print(Styled.assemble(*line, no_wrap=True), soft_wrap=True)
        else:
            self.view.say("".join(text for text, _ in line).rstrip())

    @property
    def width(self) -> int:
        """Columns that a line may have."""
        return self.view.console.width if isinstance(self.view, render.TerminalView) else 100

    @property
    def is_plain(self) -> bool:
        """Whether only ASCII is drawn: nobody knows who reads it."""
        return not isinstance(self.view, render.TerminalView)

    def wait_for(self, asked: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it, for a thread that completes what is typed; None when that takes too long or fails."""
        if self._loop is None or self._thread == threading.get_ident():  # the loop's own thread cannot wait for it
            asked.close()
            return None
        future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return future.result(_PATIENCE_S)
        except (ShepherdError, TimeoutError):
            future.cancel()
            return None

    def last_question(self) -> str | None:
        """What the user said last, in his own words."""
        for message in reversed(self.session.messages):
            if message.role == "user":
                return words_of(message)
        return None


def words_of(message: Message) -> str:
    """What somebody said, without what was put beside it."""
    return "".join(part.text for part in message.parts if isinstance(part, Text) and not part.aside)


@asynccontextmanager
async def _ticking(answer: Answer) -> AsyncIterator[None]:
    """Within the block the picture is kept fresh, also when no event comes."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            answer.tick()

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()


@contextmanager
def _quiet_keyboard(wanted: bool) -> Iterator[None]:
    """What is typed while an answer streams does not show up in it; the next prompt gets it. Ctrl-C stays alive.

    For the whole conversation: between answer and prompt, the terminal's own line editor would take the keys.
    """
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, termios.error):  # Windows, a pipe, or no standard input at all
        wanted = False
    if not wanted:
        yield
        return
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
