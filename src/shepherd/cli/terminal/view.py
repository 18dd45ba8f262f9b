"""Where a conversation is shown: on a terminal, or in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from shepherd.cli import render
from shepherd.cli.terminal.answer import JsonAnswer, PlainAnswer
from shepherd.cli.terminal.bell import Bell, Notify
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import broken, clean, wrapped
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.cli.terminal.call_view import Folds
    from shepherd.cli.terminal.consent import TerminalPerson
    from shepherd.cli.terminal.live import MarkdownAnswer


class TerminalView:
    is_plain = False
    """Whether to draw with ASCII only: a pipe may lead anywhere."""

    def __init__(
        self,
        *,
        show_thinking: bool = True,
        can_unfold: bool = False,
        notify: Notify = "off",
        notify_after_s: float = 20.0,
    ) -> None:
        """`can_unfold`: there is a prompt, at which Ctrl-O shows what was folded. `notify`: as in `Bell`."""
        self.console = render.console(sys.stdout)
        self.screen = Screen(self.console)
        self._show_thinking = show_thinking
        self._can_unfold = can_unfold
        self._folds: Folds | None = None
        self._bell = Bell(self.screen.send, notify=notify, after_s=notify_after_s)
        self.touch = self._bell.touch
        self._person: TerminalPerson | None = None

    @property
    def width(self) -> int:
        return self.console.width

    def say(self, text: str, *, style: str = "") -> None:
        """Show lines of the program, not of the model."""
        self._interject([("\n".join(wrapped(text, self.width)), style)])

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        """Show a line of pieces, each with its style. Where it is too long, the last piece goes on below itself, or
        from the next line on where the others leave no room."""
        for row in broken(line, self.width):
            self._interject(row)

    def _interject(self, line: Sequence[tuple[str, str]]) -> None:
        from rich.text import Text

        with self.console.capture() as captured:
            pieces = [(clean(text), style) for text, style in line]
            self.console.print(Text.assemble(*pieces, no_wrap=True), soft_wrap=True)
        self.screen.interject(captured.get())

    def fail(self, error: ShepherdError) -> None:
        """Show an error after which the conversation continues."""
        self.say(error.message, style="red")

    def answer(self) -> MarkdownAnswer:
        from shepherd.cli.terminal.live import MarkdownAnswer

        if self._can_unfold and self._folds is None:
            from shepherd.cli.terminal.call_view import Folds

            self._folds = Folds()
        return MarkdownAnswer(self.screen, show_thinking=self._show_thinking, folds=self._folds)

    def call_back(self) -> None:
        """A turn has ended: call a person who has left meanwhile."""
        self._bell.ring("the answer is ready")

    def unfold(self) -> None:
        """Show the newest of what was folded whole; called again, the one before."""
        from shepherd.cli.terminal.markdown import to_rows

        lines = self._folds.take() if self._folds is not None else []
        rows = [row for line in lines for row in to_rows(line, self.console)]
        self.screen.interject("\n".join([*rows, "", ""]) if rows else "Nothing is folded.")

    def person(self) -> TerminalPerson | None:
        """The person at the terminal, for questions; None without a person."""
        from shepherd.cli.terminal.consent import TerminalPerson

        self._person = self._person or TerminalPerson(self.screen, bell=self._bell)
        return self._person

    async def settled(self) -> None:
        """Wait until no question to the person is open: it has the keyboard."""
        if self._person is not None:
            await self._person.settled()


class PipeView:
    """A program, a file or a simple terminal: the text of the answers, and the lines given to `say`."""

    is_plain = True
    width = 100

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        # A person may watch standard error while the answer goes into a file.
        self.screen = Screen(render.console(sys.stderr)) if render.is_terminal(sys.stderr) else None

    def say(self, text: str, *, style: str = "") -> None:
        render.write(text + "\n")

    def draw(self, line: Sequence[tuple[str, str]]) -> None:
        self.say("".join(text for text, _ in line).rstrip())

    def fail(self, error: ShepherdError) -> None:
        render.show_error(error.message)

    def answer(self) -> JsonAnswer | PlainAnswer:
        if self._as_json:
            return JsonAnswer(render.write)
        return PlainAnswer(render.write, lambda text: click.echo(text, nl=False, err=True))

    def call_back(self) -> None:
        pass

    def person(self) -> TerminalPerson | None:
        return None

    async def settled(self) -> None:
        pass


View = TerminalView | PipeView
