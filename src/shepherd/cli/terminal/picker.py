"""A list from which a person chooses one row: arrows move, typing filters, Enter takes it, Escape leaves.

    Continue which conversation? 2 of 14
    > llama
    › What is a llama?      5 min  4 messages  ~/work
      Llamas and alpacas    3 days  12 messages  ~
    And do they spit?                                   the preview of the marked row
    Enter takes it, Esc leaves; typing filters

Import it late: prompt_toolkit is heavy. Not here: the conversations (`cli/chat/saved_commands.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from shepherd.cli.terminal import choices
from shepherd.cli.terminal.ahead import ESCAPE_S
from shepherd.cli.terminal.editor import STYLE
from shepherd.cli.terminal.reader import PROMPT
from shepherd.cli.text import cut, one_line
from shepherd.core.dataclasses import dataclass, field

MOST_ROWS = 15
_AROUND = 4
"""Rows above and below the list."""
KEYS = "Enter takes it, Esc leaves; typing filters"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    """What `pick` returns."""
    title: str
    note: str
    words: str
    """Where typing looks, besides these."""
    preview: str = ""


@dataclass(slots=True)
class List:
    """The rows, what is typed, and the marked one. Pure."""

    title: str
    rows: Sequence[Row]
    typed: str = ""
    at: int = 0
    found: Sequence[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.found = self.rows

    @property
    def marked(self) -> Row | None:
        return self.found[self.at] if self.found else None

    def type(self, typed: str) -> None:
        """Keep the rows that have every typed word."""
        words = typed.casefold().split()
        self.typed, self.at = typed, 0
        self.found = [row for row in self.rows if all(word in _searched(row) for word in words)]

    def move(self, step: int) -> None:
        """As far as the ends."""
        self.at = min(max(0, self.at + step), max(0, len(self.found) - 1))

    def draw(self, width: int, height: int) -> list[choices.Line]:
        """At most `height` rows of at most `width` columns."""
        room = max(1, min(MOST_ROWS, height - _AROUND - 1))
        n = f"{len(self.found)} of {len(self.rows)}" if self.typed else str(len(self.rows))
        offered = [(one_line(row.title), one_line(row.note)) for row in self.found]
        lines = choices.rows(offered, self.at, width=width, room=room)
        preview = one_line(self.marked.preview) if self.marked else "None has these words."
        head: list[choices.Line] = [
            [("", cut(f"{self.title} ", width)), (choices.NOTE, cut(n, max(0, width - len(self.title) - 1)))],
            [("ansigreen", PROMPT), ("", cut(one_line(self.typed), width - len(PROMPT) - 1)), ("", "▌")],
        ]
        tail: list[choices.Line] = [[(choices.NOTE, cut(preview, width))], [(choices.NOTE, cut(KEYS, width))]]
        return [*head, *lines, *tail]


def _searched(row: Row) -> str:
    return f"{row.name} {row.title} {row.note} {row.words}".casefold()


async def pick(title: str, rows: Sequence[Row]) -> str | None:
    """The name of the chosen row; None when the person leaves the list."""
    shown = List(title, rows)

    def text() -> StyleAndTextTuples:
        size = app.output.get_size()
        return [*choices.joined(shown.draw(size.columns - 1, size.rows))]

    window = Window(FormattedTextControl(text), dont_extend_height=True)
    app: Application[str | None] = Application(
        Layout(window), key_bindings=_keys(shown), style=STYLE, erase_when_done=True
    )
    app.timeoutlen = app.ttimeoutlen = ESCAPE_S
    return await app.run_async(handle_sigint=False)


def _keys(shown: List) -> KeyBindings:
    keys = KeyBindings()

    def add(act: Callable[[KeyPressEvent], None], *names: str | Keys) -> None:
        for name in names:
            keys.add(name)(act)

    def leave(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    def choose(event: KeyPressEvent) -> None:
        if shown.marked is not None:
            event.app.exit(result=shown.marked.name)

    add(leave, "escape", "c-c", "c-d")
    add(choose, "enter")
    add(lambda _: shown.move(-1), "up", "c-p")
    add(lambda _: shown.move(1), "down", "c-n", "tab")
    add(lambda _: shown.move(-MOST_ROWS), "pageup")
    add(lambda _: shown.move(MOST_ROWS), "pagedown")
    add(lambda _: shown.move(-len(shown.found)), "home")
    add(lambda _: shown.move(len(shown.found)), "end")
    add(lambda _: shown.type(shown.typed[:-1]), "backspace")
    add(lambda _: shown.type(""), "c-u")
    add(lambda event: shown.type(shown.typed + one_line(event.data)), Keys.BracketedPaste)
    add(lambda event: shown.type(shown.typed + event.data) if event.data.isprintable() else None, Keys.Any)
    return keys
