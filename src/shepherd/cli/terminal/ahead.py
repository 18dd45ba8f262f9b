"""What a person types during an answer: whole lines wait their turn, the open line is the next prompt's beginning.

    the answer, as it comes
      waits: /context                        Draft.waiting, in their order; Up takes back the newest
    > And what about▌                        Draft.text
    lamb · ask · ~/work · 397/4096           the status line

Escape stops the answer, as Ctrl-C does. Neither loses a line: what waits goes back into the open line. Enter means what
it means at the prompt. The lines are the foot of the screen, which a question to the person hides; its keys are
`keyboard.py`'s. Not here: the prompt itself (`editor.py`). Import it late: rich is heavy.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyPress
from rich.text import Text

from shepherd.cli.terminal import call_view, markdown
from shepherd.cli.terminal.reader import PROMPT
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import clean, cut, n_columns

ESCAPE_S = 0.2
"""After so long, an Escape is one, and not the beginning of another key or of Alt+Enter."""
WAITING_ROWS = 4
LEAST_HEIGHT = 8
"""Rows of a terminal below which only what is typed is shown."""
_PASTES = "\x1b[?2004h", "\x1b[?2004l"
"""The terminal marks what is pasted, and no longer."""
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)


def is_unfinished(text: str) -> bool:
    """Whether Enter starts a new line."""
    return text.endswith("\\") or len(_FENCE.findall(text)) % 2 == 1


class Draft:
    """The typed lines, by the keys that were pressed. Pure."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        """The next lines, the oldest first."""
        self.text = ""
        """The open line."""
        self.is_over = False
        """Ctrl-D: the chat ends behind the lines that wait."""

    def press(self, key: str, typed: str) -> None:
        """`key`: its name in prompt_toolkit, or a character; `typed`: what it types."""
        match key:
            case "c-m" | "c-j" if is_unfinished(self.text):
                self.text = f"{self.text.removesuffix(chr(92))}\n"
            case "c-m" | "c-j":
                if self.text.strip():
                    self.waiting.append(self.text)
                self.text = ""
            case "up":
                if self.is_over:
                    self.is_over = False
                elif self.waiting:
                    self.text = "\n".join(filter(None, (self.waiting.pop(), self.text)))
            case "c-d":
                self.is_over = not self.text
            case "c-h":
                self.text = self.text[:-1]
            case "c-w":
                self.text = re.sub(r"\S*\s*\Z", "", self.text)
            case "c-u":
                self.text = self.text[: self.text.rfind("\n") + 1]
            case "<bracketed-paste>":
                self.text += typed.replace("\r\n", "\n").replace("\r", "\n")
            case _ if len(key) == 1 and key.isprintable():
                self.text += typed

    def take_back(self) -> None:
        """Nothing waits any more: all of it is in the open line, for the next prompt."""
        self.text = "\n".join(filter(None, (*self.waiting, self.text)))
        self.waiting, self.is_over = [], False

    def rows(self, width: int) -> list[tuple[str, str]]:
        """Rows of at most `width` columns with the style of each; none where nothing is typed."""
        shown = [("dim", cut(f"  waits: {_flat(line)}", width)) for line in self.waiting[-WAITING_ROWS:]]
        if (n_more := len(self.waiting) - len(shown)) > 0:
            shown.insert(0, ("dim", f"  … {n_more} more wait"))
        if self.is_over:
            shown.append(("dim", cut("  then: leaves the chat (Ctrl-D)", width)))
        if self.waiting and not self.text:
            shown.append(("dim", cut("  Up takes it back, Esc stops the answer", width)))
        if self.text:
            shown.append(("", f"{PROMPT}{_end(_flat(self.text), width - len(PROMPT) - 2)}▌"))
        return shown


def _flat(text: str) -> str:
    return clean(text.replace("\n", "⏎ ").expandtabs(1))


def _end(text: str, width: int) -> str:
    """The end of `text` that `width` columns have room for."""
    if n_columns(text) <= width:
        return text
    start = len(text)
    while start and n_columns(text[start - 1 :]) < width:
        start -= 1
    return f"…{text[start:]}"


class Ahead:
    """The keyboard during one answer. On the event loop only."""

    def __init__(
        self,
        source: Input,
        screen: Screen,
        draft: Draft,
        keys: Mapping[str, Callable[[], None]],
        status: Callable[[int], str],
        *,
        touched: Callable[[], None] = lambda: None,
    ) -> None:
        """`keys`: what other keys do, by their names, such as `escape`. `status`: the line below, of so many
        columns. `touched`: hears that a key was pressed."""
        self.screen = screen
        self._source = source
        self._draft = draft
        self._keys = keys
        self._status = status
        self._touched = touched
        self._escape: asyncio.TimerHandle | None = None
        self._open: ExitStack | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within the block, the keys come here, and the foot of the screen shows them."""
        self._start()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within the block, which may stand in any other, the keys and the screen are free."""
        was_open = self._open is not None
        self._end()
        try:
            yield
        finally:
            if was_open:
                self._start()

    def _start(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self.screen.with_foot(self._rows, *_PASTES))
            stack.enter_context(self._source.attach(self._read))
            self._open = stack.pop_all()
        self._take([])

    def _end(self) -> None:
        if self._open is None:
            return
        if self._escape is not None:
            self._escape.cancel()
        self._take([])
        self._open.close()
        self._open = None

    def _read(self) -> None:
        self._take(self._source.read_keys())
        if self._escape is not None:
            self._escape.cancel()
        self._escape = asyncio.get_running_loop().call_later(ESCAPE_S, lambda: self._take(self._source.flush_keys()))

    def _take(self, presses: Sequence[KeyPress]) -> None:
        """Also the keys that a question has left over, which come first."""
        pressed = [(str(getattr(press.key, "value", press.key)), press.data)
                   for press in (*get_typeahead(self._source), *presses)]  # fmt: skip
        if pressed:
            self._touched()
        while pressed:
            key, typed = pressed.pop(0)
            if key == "escape" and pressed:  # Alt and another key
                key, typed = pressed.pop(0)
                if key in {"c-m", "c-j"}:
                    self._draft.press("<bracketed-paste>", "\n")
            elif (act := self._keys.get(key)) is not None:
                act()
            else:
                self._draft.press(key, typed)
        self.screen.refresh()

    def _rows(self, width: int, height: int) -> list[str]:
        rows = self._draft.rows(width)
        if height >= LEAST_HEIGHT:
            rows.append(("dim", self._status(width)))
        rows = rows[-max(1, height // 3) :]  # the answer has the rest; more than the terminal cannot be redrawn
        texts = [call_view.row(text, style) if text else Text() for style, text in rows]
        return [line for text in texts for line in markdown.to_rows(text, self.screen.console)]
