"""The line editor of the chat: keys, history, a menu and a status line. Import it late: prompt_toolkit is heavy.

    > /ctx                                   the line
    › /context  Show the content of ...      what fits (`choices.py`), while a command or an @file is typed
    lamb · ask · ~/work · 397/4096           the status line

Enter sends, unless the text is unfinished: it ends with a backslash, or a ``` fence is open.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, to_filter
from prompt_toolkit.formatted_text import HTML, StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from rich.text import Text

from shepherd.cli.terminal import choices
from shepherd.cli.terminal.ahead import ESCAPE_S, LEAST_HEIGHT, Ahead, Draft, is_unfinished
from shepherd.cli.terminal.reader import PROMPT, Suggest, Suggestion
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import clean

PLACEHOLDER = "Type a message; /help shows the commands"
STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "",
        "marked": "bold ansicyan",
        "note": "ansibrightblack",
        "status": "ansibrightblack",
    }
)
MENU_ROWS = 10
MOST_OFFERED = 100


class TerminalReader:
    is_person = True
    has_editor = True

    def __init__(self, unfold: Callable[[], None] = lambda: None, touched: Callable[[], None] = lambda: None) -> None:
        """`unfold`: what Ctrl-O does. `touched`: hears of a key during an answer, and of a line that was sent."""
        self._touched = touched
        self.status: Callable[[int], str] = lambda width: ""
        """The status line of at most so many columns."""
        self.keys: dict[str, Callable[[], None]] = {}
        """What keys do at the prompt and during an answer, by their names; `bind` adds one."""
        self.draft = Draft()
        self.menu = Menu(lambda before: ())
        self._bindings = _keys(self)
        self.bind("c-o", unfold, prints=True)
        self._session: PromptSession[str] = PromptSession(
            [("ansigreen", PROMPT)],  # coloured, because prompt_toolkit draws no space that has no style
            history=_history(),
            multiline=True,
            key_bindings=self._bindings,
            prompt_continuation=lambda width, line_number, is_soft_wrap: " " * width,
            bottom_toolbar=self._below,
            style=STYLE,
        )
        self._session.app.timeoutlen = self._session.app.ttimeoutlen = ESCAPE_S
        # The rows below follow the line at once, and are not at the end of the screen.
        self._session.layout.current_window.dont_extend_height = to_filter(True)
        buffer = self._session.default_buffer
        buffer.on_text_insert += lambda _: self._look(begins=True)
        buffer.on_text_changed += lambda _: self._look()
        buffer.on_cursor_position_changed += lambda _: self._look()
        self._ahead: Ahead | None = None
        self._placeholder: HTML | str = HTML(f"<style fg='ansibrightblack'>{PLACEHOLDER}</style>")

    def bind(self, key: str, act: Callable[[], None], *, prints: bool = False) -> None:
        """Let a key do something at the prompt and during an answer. `prints`: it shows lines, above the prompt."""
        self.keys[key] = act

        @self._bindings.add(key)
        def _act(event: KeyPressEvent) -> None:
            if prints:
                run_in_terminal(act)
            else:
                act()

    async def read(self, suggest: Suggest) -> str | None:
        """The next message or command: one that waits, or else a new one. None at the end. Raises: `KeyboardInterrupt`
        after Ctrl-C at an empty prompt."""
        if self.draft.waiting:
            return self._take_waiting(self.draft.waiting.pop(0))
        if self.draft.is_over and not self.draft.text:
            return None
        begun, self.draft.text, self.draft.is_over = self.draft.text, "", False
        self.menu = Menu(suggest)

        def offer() -> None:
            self._look(begins=bool(begun))  # as for a text that is typed now

        try:
            text = await self._session.prompt_async(
                placeholder=self._placeholder, default=begun, handle_sigint=False, pre_run=offer
            )
        except EOFError:
            return None
        self._placeholder = ""
        self._touched()
        return text

    @contextmanager
    def ahead(self, screen: Screen, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block an answer comes; what is typed waits. `stop`: for Escape, and Ctrl-C right behind Enter."""
        keys = {**self.keys, "escape": stop, "c-c": stop}
        self._ahead = Ahead(self._session.input, screen, self.draft, keys, self.status, touched=self._touched)
        with self._ahead.listening():
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within the block, which is in one of `ahead`, another program or list has the terminal."""
        assert self._ahead is not None
        with self._ahead.paused():
            yield

    def _take_waiting(self, line: str) -> str:
        assert self._ahead is not None
        self._session.history.append_string(line)
        self._ahead.screen.console.print(Text.assemble((PROMPT, "green"), clean(line)), soft_wrap=True)
        return line

    # the menu

    def _look(self, *, begins: bool = False) -> None:
        """The text or the cursor has changed; `begins`: something was typed, which may begin the menu."""
        before = self._session.default_buffer.document.text_before_cursor
        if self.menu.follow(before, begins=begins):
            self._session.app.create_background_task(self._search(self.menu, before))

    async def _search(self, menu: Menu, before: str) -> None:
        found = await asyncio.to_thread(menu.search, before)
        menu.offer(before, found)
        self._session.app.invalidate()

    def _below(self) -> StyleAndTextTuples:
        size = self._session.output.get_size()
        n_typed = self._session.default_buffer.document.line_count
        has_status = size.rows >= LEAST_HEIGHT
        room = max(1, min(MENU_ROWS, size.rows - n_typed - has_status - 1))
        offered = [(clean(each.text.rstrip(" ")), clean(each.note)) for each in self.menu.offered]
        lines = choices.rows(offered, self.menu.marked, width=size.columns - 1, room=room)
        if has_status:
            lines.append([("class:status", self.status(size.columns - 1))])
        return [*choices.joined(lines)]


class Menu:
    """What is offered for the text before the cursor, and the marked row. Pure, except for `search`."""

    def __init__(self, suggest: Suggest) -> None:
        self.offered: Sequence[Suggestion] = ()
        self.marked: int | None = None
        self.suggest = suggest
        self._before = ""
        self._is_open = False
        self._closed: str | None = None
        """The text for which Escape has closed it; more text leaves it closed."""
        self._turn: tuple[Document, Sequence[Suggestion], int, Document] | None = None
        """After Tab: the text before, what was offered, which of it was taken, and the text now."""

    def follow(self, before: str, *, begins: bool = False) -> bool:
        """Offer what fits the text `before` the cursor; True: it must be searched in a thread, and then `offer`ed."""
        is_new = before != self._before or (begins and not self._is_open)
        self._before = before
        if self._closed is not None and not before.startswith(self._closed):
            self._closed = None
        is_command = before.startswith("/") and "\n" not in before
        can_offer = self._closed is None and (is_command or "@" in before)
        self._is_open = can_offer and (begins or self._is_open)
        if not is_new:
            return False
        self.offered, self.marked = (), None
        if self._is_open and is_command and " " not in before:  # the table of commands: no disk, no server
            self.offer(before, self.search(before))
            return False
        return self._is_open

    def search(self, before: str) -> Sequence[Suggestion]:
        """May read folders."""
        return [*islice(self.suggest(before), MOST_OFFERED)]

    def offer(self, before: str, found: Sequence[Suggestion]) -> None:
        if before == self._before and self._is_open:
            self.offered = found
            self.marked = 0 if found and before.startswith("/") and " " not in before else None

    def move(self, step: int) -> None:
        n = len(self.offered)
        self.marked = (0 if step > 0 else n - 1) if self.marked is None else (self.marked + step) % n

    def close(self) -> None:
        self.offered, self.marked, self._is_open, self._closed = (), None, False, self._before

    def take_marked(self, buffer: Buffer) -> bool:
        """Put the marked row into the line; whether Enter still has to send the line."""
        if self.marked is None or not self.offered or buffer.document.text_after_cursor.strip():
            return True
        found = self.offered[self.marked]
        typed = self._before[len(self._before) - found.n_replaced :]
        if typed.rstrip(" ") != found.text.rstrip(" "):
            self._take(buffer, found)
            return found.is_whole
        return True

    def tab(self, buffer: Buffer) -> None:
        """Take the marked row, or the only one, or the common beginning of all, or each in turn."""
        if self._turn is not None and self._turn[3] == buffer.document and len(self._turn[1]) > 1:
            start, offered, at, _ = self._turn
            buffer.document = start
            self._take(buffer, offered[(at + 1) % len(offered)])
            self._turn = start, offered, (at + 1) % len(offered), buffer.document
            return
        before = buffer.document.text_before_cursor
        offered = self.offered or self.search(before)  # at once, for fast typists
        if not offered:
            return
        at = self.marked if self.marked and offered is self.offered else 0
        if not at and (common := _common(before, offered)):
            buffer.insert_text(common)
            return
        start = buffer.document
        self._take(buffer, offered[at])
        self._turn = start, offered, at, buffer.document

    def _take(self, buffer: Buffer, found: Suggestion) -> None:
        has_blank = buffer.document.current_char == " "
        buffer.delete_before_cursor(found.n_replaced)
        buffer.insert_text(found.text.rstrip(" ") if has_blank else found.text)


def _common(before: str, offered: Iterable[Suggestion]) -> str:
    """What those that begin with the typed text all go on with; empty for a single one, which is taken whole."""
    rests = [each.text.removeprefix(typed) for each in offered
             if each.text.startswith(typed := before[len(before) - each.n_replaced :])]  # fmt: skip
    alike = (column[0] for column in takewhile(lambda column: len({*column}) == 1, zip(*rests, strict=False)))
    return "".join(alike) if len(rests) > 1 else ""


def _keys(reader: TerminalReader) -> KeyBindings:
    keys = KeyBindings()
    has_menu = Condition(lambda: bool(reader.menu.offered))

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not reader.menu.take_marked(buffer):
            return
        if not is_unfinished(buffer.text):
            buffer.validate_and_handle()
        else:
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
            buffer.insert_text("\n")

    @keys.add("tab")
    def _complete(event: KeyPressEvent) -> None:
        reader.menu.tab(event.current_buffer)

    @keys.add("down", filter=has_menu)
    @keys.add("c-n", filter=has_menu)
    def _next(event: KeyPressEvent) -> None:
        reader.menu.move(1)

    @keys.add("up", filter=has_menu)
    @keys.add("c-p", filter=has_menu)
    def _previous(event: KeyPressEvent) -> None:
        reader.menu.move(-1)

    @keys.add("escape", filter=has_menu)
    def _close(event: KeyPressEvent) -> None:
        reader.menu.close()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _discard(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.reset(append_to_history=True)  # Up brings it back
            reader.menu = Menu(reader.menu.suggest)
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def _history() -> History:
    """The typed lines, in a file that only its owner can read; in memory where no file can be written."""
    file = Path(platformdirs.user_data_dir("shepherd")) / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
