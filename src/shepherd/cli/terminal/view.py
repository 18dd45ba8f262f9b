"""Where a conversation is shown: on a terminal, or in a pipe.

    TerminalView    a person at a terminal: Markdown, colours, live lines
    PipeView        a program, a file or a simple terminal: text alone

Not here: how an answer looks (`answer.py`, `live.py`), the results of other commands (`cli/render.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import click

from shepherd.cli import render
from shepherd.cli.terminal.answer import Answer, JsonAnswer, PlainAnswer
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import bar, clean
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.app.loading import LoadProgress
    from shepherd.tools.base import Form, Person, Question, Verdict

_STAGES = {
    "selftest": "Testing the native library",
    "trial": "Checking {}",
    "weights": "Loading {}",
    "context": "Making room for {}",
}


class View(Protocol):
    """Where a conversation is shown."""

    screen: Screen | None
    """The terminal that can show live lines; None without one."""

    def show_loading(self, loading: LoadProgress) -> None:
        """Show the progress of loading a model; from any thread."""
        ...

    def hide_loading(self) -> None:
        """Remove the progress of loading."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """Show a line of the program, not of the model."""
        ...

    def fail(self, error: ShepherdError) -> None:
        """Show an error after which the conversation continues."""
        ...

    def answer(self) -> Answer:
        """What shows the next turn."""
        ...

    def person(self) -> Person | None:
        """The person at the terminal, for questions; None without a person."""
        ...


class TerminalView:
    """A person at a terminal: Markdown, colours, live lines."""

    def __init__(self, *, show_thinking: bool = True) -> None:
        self.console = render.terminal_console(sys.stdout)
        self.screen: Screen | None = Screen(self.console)
        self._show_thinking = show_thinking

    def show_loading(self, loading: LoadProgress) -> None:
        _show_loading(self.screen, loading)

    def hide_loading(self) -> None:
        assert self.screen is not None
        self.screen.update([])

    def say(self, text: str, *, style: str = "") -> None:
        from rich.text import Text

        self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def fail(self, error: ShepherdError) -> None:
        self.say(error.message, style="red")

    def answer(self) -> Answer:
        from shepherd.cli.terminal.live import MarkdownAnswer

        assert self.screen is not None
        return MarkdownAnswer(self.screen, show_thinking=self._show_thinking)

    def person(self) -> Person | None:
        return _LatePerson(self)


class _LatePerson:
    """The person at the terminal. The code that asks is imported for the first question: most chats have none."""

    def __init__(self, view: TerminalView) -> None:
        self._view = view

    @cached_property
    def _person(self) -> Person:
        from shepherd.cli.terminal.consent import TerminalPerson

        assert self._view.screen is not None
        return TerminalPerson(self._view.screen)

    async def allow(self, question: Question) -> Verdict:
        return await self._person.allow(question)

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        return await self._person.fill(form)


class PipeView:
    """A program, a file or a simple terminal: the text of the answers, and the lines given to `say`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        # A person may watch standard error while the answer goes into a file.
        self.screen: Screen | None = (
            Screen(render.terminal_console(sys.stderr)) if render.is_terminal(sys.stderr) else None
        )

    def show_loading(self, loading: LoadProgress) -> None:
        _show_loading(self.screen, loading)

    def hide_loading(self) -> None:
        if self.screen is not None:
            self.screen.update([])

    def say(self, text: str, *, style: str = "") -> None:
        render.write(text + "\n")

    def fail(self, error: ShepherdError) -> None:
        render.show_error(error.message)

    def answer(self) -> Answer:
        if self._as_json:
            return JsonAnswer(render.write)
        return PlainAnswer(render.write, lambda text: click.echo(text, nl=False, err=True), safe=sys.stdout.isatty())

    def person(self) -> Person | None:
        return None


def _show_loading(screen: Screen | None, loading: LoadProgress) -> None:
    if screen is None:
        return
    what = _STAGES[loading.stage].format(loading.name)
    line = f"{what} {bar(loading.fraction, 1)} {loading.fraction:.0%}" if loading.stage == "weights" else f"{what} ..."
    screen.update([], [line[: screen.console.width - 1]])
