"""The conversation in the terminal: reads a line, runs it, and again.

    Reader ─▶ line ─▶ /command ─────────────▶ commands ─▶ Chat
                   ├▶ !command ─────────────▶ shell_command ─▶ Chat.attached
                   └▶ message, its files ─▶ Session.chat ─▶ Chat.play ─▶ View, saved

A person and a pipe take the same path between two lines. Ctrl-C or Escape stops the answer, the tool or the command
that runs, never the program.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterable
from contextlib import closing, nullcontext
from typing import Any

from shepherd.agent import modes
from shepherd.cli import logs
from shepherd.cli.chat import commands, completion, saved_commands, shell_command, status_line
from shepherd.cli.chat.state import Chat
from shepherd.cli.signals import handling
from shepherd.cli.terminal import mode
from shepherd.cli.terminal.reader import Suggestion
from shepherd.core import ShepherdError
from shepherd.memory.recall.profile import candidates


class Repl:
    """Reads lines for one conversation until the input ends or `/exit`."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._busy: asyncio.Task[None] | None = None
        self._facts = status_line.Facts()

    async def run(self) -> int:
        """Converse; the exit status: 1 when a message of a pipe could not be answered."""
        chat = self._chat
        chat.loop = loop = asyncio.get_running_loop()
        # Keys typed during an answer are not echoed; the next prompt gets them. The mode lasts for the whole
        # conversation: between an answer and a prompt, the terminal's own line editor would take the keys.
        quiet = mode.reading(keys=True) if chat.editor is not None else nullcontext()
        if chat.editor is not None:
            chat.editor.status = lambda width: status_line.line(self._facts, modes.LABELS[chat.mode], width)
            chat.editor.bind("s-tab", lambda: chat.set_mode(modes.following(chat.mode)))
        with handling(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(self._stop)), quiet:
            while not chat.is_over:
                await chat.view.settled()
                if chat.editor is not None:
                    self._facts = await asyncio.to_thread(status_line.gather, chat)
                try:
                    line = await chat.reader.read(self._suggest)
                except KeyboardInterrupt:
                    if not chat.reader.is_person:
                        raise
                    chat.note("Ctrl-D or /quit leaves.")
                    continue
                if line is None:
                    break
                await self._take(line)
        if chat.name and chat.reader.is_person:
            chat.note_pieces(("To continue this conversation:", f"shepherd --resume {chat.name}"), " ")
        return int(chat.has_failed and not chat.reader.is_person)

    def _suggest(self, before: str) -> Iterable[Suggestion]:
        return completion.suggestions(self._chat, commands.COMMANDS, before)

    def _stop(self) -> None:
        """Ctrl-C or Escape: once per answer. A second one must not interrupt the cleanup, nor end the program. Lines
        that wait are not sent, and not lost."""
        if (editor := self._chat.editor) is not None:
            editor.draft.take_back()
        if self._busy is not None:
            self._busy.cancel()
            self._busy = None

    async def _take(self, line: str) -> None:
        if not line.strip():
            return
        is_command, work = self._work(line)
        self._busy = task = asyncio.create_task(self._after_changes(work))
        editor, screen = self._chat.editor, self._chat.view.screen
        try:
            with logs.above(screen), editor.ahead(screen, self._stop) if editor and screen else nullcontext():
                await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise  # the program ends, not only the answer
            self._chat.say("[stopped]", "yellow")
        except ShepherdError as error:
            if is_command:  # the output of the command
                self._chat.say(error.message, "red")
            else:
                self._chat.has_failed = True
                self._chat.view.fail(error)
        finally:
            self._busy = None

    async def _after_changes(self, work: Coroutine[Any, Any, None]) -> None:
        with closing(work):
            await saved_commands.read_again(self._chat)
            await work

    def _work(self, line: str) -> tuple[bool, Coroutine[Any, Any, None]]:
        """What a line does, and whether it is a command."""
        if commands.is_command(line):
            return True, commands.run(self._chat, line)
        if shell_command.is_one(line):
            return self._chat.reader.is_person, shell_command.run(self._chat, line)
        return False, self._send(line.strip())

    async def _send(self, text: str) -> None:
        """Send `text` with the files that it names, and show the answer. Raises: as `attach.parts`."""
        chat = self._chat
        parts = await chat.read_parts(text)
        if await chat.play(chat.session.chat(chat.asked((*chat.attached, *parts)))):
            chat.attached = []
            await self._propose_instructions(text)

    async def _propose_instructions(self, text: str) -> None:
        """Store what looks like a standing instruction as a proposal, which the user may confirm."""
        chat = self._chat
        if chat.memory is None or not chat.reader.is_person:
            return
        try:
            for found in candidates(text):
                proposal = await asyncio.to_thread(chat.memory.propose, found.value, found.kind)
                if proposal is not None:
                    chat.note(f"Keep “{proposal.value}” for all conversations?")
                    chat.note(
                        f"/profile keep {proposal.id} adds it to their system prompt; without it nothing changes."
                    )
        except ShepherdError as error:
            chat.view.fail(error)
