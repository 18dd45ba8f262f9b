"""The conversation in the terminal: reads a line, streams the answer, says how it went.

`TerminalReader` edits lines with prompt_toolkit (imported late: it is heavy); `PipeReader` takes them from a pipe. What
happens between two lines is the same for both. Not here: the /commands (`commands.py`), how answers look
(`answer.py`, `render.py`) and what a conversation is (`agent/session.py`).
"""

from __future__ import annotations

import asyncio
import difflib
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

from shepherd.cli import logs, render
from shepherd.cli.commands import COMMANDS
from shepherd.cli.signals import handling
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.agent.session import Session
    from shepherd.app import Facts
    from shepherd.cli.answer import Answer
    from shepherd.memory.store import MemoryStore

PROMPT = "> "
_TICK_S = 1 / 15


class Reader(Protocol):
    """Where the user's lines come from."""

    is_person: bool
    """Whether someone is there who reads hints and presses Ctrl-C."""

    async def read(self) -> str | None:
        """The next message or command; None at the end of input.

        Raises: `KeyboardInterrupt` when the user broke off at an empty prompt.
        """
        ...


class PipeReader:
    """One message per line of standard input."""

    is_person = False

    async def read(self) -> str | None:
        render.write(PROMPT)
        # Nothing else runs meanwhile, so this may block; Ctrl-C must then come through as it does everywhere.
        with handling(signal.SIGINT, signal.default_int_handler):
            line = sys.stdin.readline()
        if not line:
            render.write("\n")
            return None
        return line.rstrip("\r\n")


class TerminalReader:
    """A line editor with history and completion."""

    is_person = True

    def __init__(self) -> None:
        from shepherd.cli import editor

        self._session = editor.make_session(PROMPT, {name: command.help for name, command in COMMANDS.items()})
        self._placeholder: str | None = editor.PLACEHOLDER

    async def read(self) -> str | None:
        from prompt_toolkit.formatted_text import HTML

        placeholder = HTML(f"<style fg='ansibrightblack'>{self._placeholder}</style>") if self._placeholder else ""
        try:
            text = await self._session.prompt_async(placeholder=placeholder, handle_sigint=False)
        except EOFError:
            return None
        self._placeholder = None
        return text


class Repl:
    """One session between a reader and a view, until the input ends or `/quit`."""

    def __init__(
        self,
        facts: Facts,
        session: Session,
        view: render.View,
        reader: Reader,
        *,
        n_held: Callable[[], int],
        memory: MemoryStore | None = None,
    ) -> None:
        self.facts = facts
        self.n_held = n_held
        """How many tokens the cache holds now."""
        self.session = session
        self.memory = memory
        """What is kept of this and other conversations; None = nothing is."""
        self.view = view
        self.is_over = False
        self._reader = reader
        self._has_failed = False
        self._answering: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Converse; the exit status: 1 when a message of a pipe could not be answered."""
        loop = asyncio.get_running_loop()
        person = self._reader.is_person
        with handling(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(self._stop_answer)), _quiet_keyboard(person):
            while not self.is_over:
                try:
                    line = await self._reader.read()
                except KeyboardInterrupt:
                    if not person:
                        raise
                    self.view.say("Ctrl-D or /quit leaves.", style="dim")
                    continue
                if line is None:
                    break
                await self._take(line)
        return int(self._has_failed and not person)

    def _stop_answer(self) -> None:
        """Ctrl-C. Once per answer: a second one must not break into the tidying up, nor end the program."""
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None

    async def _take(self, line: str) -> None:
        if not line.strip():
            return
        word, _, argument = line.partition(" ")
        if not re.fullmatch(r"/[a-z?]+", word):  # a path such as /etc/hosts is a message
            await self.turn(line.strip())
        elif word in COMMANDS:
            try:
                await COMMANDS[word].run(self, argument.strip())
            except ShepherdError as error:
                self.view.fail(error)
        else:
            near = difflib.get_close_matches(word, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "/help lists them."
            self.view.say(f"There is no command {word}; {hint}", style="red")

    async def turn(self, text: str) -> None:
        """Say `text` and show the answer; Ctrl-C stops the answer, not the program."""
        meter = render.Meter()
        self._answering = task = asyncio.create_task(self._stream(text, meter))
        handler = logs.current()
        handler.screen = self.view.screen
        try:
            await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # not the answer is to end but the program
            self.view.say("[stopped]", style="yellow")
            return
        except ShepherdError as error:
            self._has_failed = True
            self.view.fail(error)
            return
        finally:
            self._answering = None
            handler.screen = None
        if not self._reader.is_person:
            return
        if line := meter.line(self.session.n_ctx):
            self.view.say(line, style="dim")
        await self._offer_to_keep(text)

    async def _offer_to_keep(self, text: str) -> None:
        """What sounds like a standing instruction is noted, and kept if the user says so."""
        from shepherd.memory.injection.profile import candidates

        if self.memory is None:
            return
        try:
            for found in candidates(text):
                noted = await asyncio.to_thread(self.memory.propose, found.value, found.kind)
                if noted is not None:
                    self.view.say(f"Keep for good: “{noted.value}”? /profile keep {noted.id}", style="dim")
        except ShepherdError as error:
            self.view.fail(error)

    async def _stream(self, text: str, meter: render.Meter) -> None:
        answer = self.view.answer()
        try:
            async with aclosing(self.session.chat(text)) as events, _ticking(answer):
                async for event in events:
                    meter.feed(event)
                    answer.feed(event)
        finally:
            answer.close()


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
