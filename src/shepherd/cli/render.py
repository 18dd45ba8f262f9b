"""All that the commands write: the only place in Shepherd that prints.

A `View` is where a conversation is shown, on a terminal or into a pipe; the answers themselves are in
`cli/terminal/answer.py`. The functions below it are for the commands that print a result and leave. Not here: what is
worth saying.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from shepherd.agent.turn import TurnEvent
from shepherd.cli.terminal.answer import Answer, JsonAnswer, PlainAnswer, bar, clean
from shepherd.cli.terminal.screen import Screen
from shepherd.core import (
    CallDelta,
    CallEnded,
    CallStarted,
    Evicted,
    Finished,
    Progress,
    ReasoningDelta,
    ShepherdError,
    Started,
    StopReason,
    TextDelta,
    Usage,
)

if TYPE_CHECKING:
    from rich.console import Console

    from shepherd.app.conversations import ActiveModel
    from shepherd.app.loading import LoadProgress
    from shepherd.tools.base import Form, Person, Question, Verdict

EMBEDDED_NOTE = "This is a tiny embedded model; better: shepherd MODEL.gguf, shepherd models list"
_STAGES = {
    "selftest": "Testing the native library",
    "trial": "Checking {}",
    "weights": "Loading {}",
    "context": "Making room for {}",
}


class View(Protocol):
    """Where a conversation is shown."""

    screen: Screen | None
    """The terminal that may have live lines at its end; None without one."""

    def load(self, loading: LoadProgress) -> None:
        """Show how far loading is; from any thread."""
        ...

    def loaded(self) -> None:
        """Take the progress of loading away."""
        ...

    def say(self, text: str, *, style: str = "") -> None:
        """A line of ours, not of the model's."""
        ...

    def fail(self, error: ShepherdError) -> None:
        """An error that the conversation survives."""
        ...

    def answer(self) -> Answer: ...

    def person(self) -> Person | None:
        """Whoever can be asked; None where nobody is there."""
        ...


class TerminalView:
    """A person at a terminal: markdown, colours, live lines."""

    def __init__(self, *, show_thinking: bool = True) -> None:
        self.console = _console(sys.stdout)
        self.screen: Screen | None = Screen(self.console)
        self._show_thinking = show_thinking

    def load(self, loading: LoadProgress) -> None:
        _show_loading(self.screen, loading)

    def loaded(self) -> None:
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
    """Whoever sits at a terminal. How they are asked is imported when there is something to ask: most conversations
    begin without."""

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
    """A program, a file or a plain terminal: text alone, and nothing of ours among it but what `say` is told."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        # A person may still be watching the errors while the answer goes into a file.
        self.screen: Screen | None = Screen(_console(sys.stderr)) if is_terminal(sys.stderr) else None

    def load(self, loading: LoadProgress) -> None:
        _show_loading(self.screen, loading)

    def loaded(self) -> None:
        if self.screen is not None:
            self.screen.update([])

    def say(self, text: str, *, style: str = "") -> None:
        write(text + "\n")

    def fail(self, error: ShepherdError) -> None:
        show_error(error.message)

    def answer(self) -> Answer:
        if self._as_json:
            return JsonAnswer(write)
        return PlainAnswer(write, lambda text: click.echo(text, nl=False, err=True), safe=sys.stdout.isatty())

    def person(self) -> Person | None:
        return None


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, force_terminal=True, highlight=False)


def is_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal that understands escape codes."""
    import os

    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    """Text as it is, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _show_loading(screen: Screen | None, loading: LoadProgress) -> None:
    if screen is None:
        return
    what = _STAGES[loading.stage].format(loading.name)
    line = f"{what} {bar(loading.fraction, 1)} {loading.fraction:.0%}" if loading.stage == "weights" else f"{what} ..."
    screen.update([], [line[: screen.console.width - 1]])


# -- lines of a conversation ------------------------------------------------------------------------------------------


def banner(facts: ActiveModel, version: str, n_tools: int = 0) -> list[str]:
    """What a chat opens with; `n_tools` are those offered to the model."""
    lines = [
        f"Shepherd LLM System v{version}",
        f"Backend: {facts.backend}",
        f"Model: {facts.model}",
        f"Context: {facts.n_ctx} tokens",
        f"Tools: {n_tools} available",
    ]
    return [*lines, EMBEDDED_NOTE] if facts.embedded else lines


class Meter:
    """Measures one turn as it comes: one answer, or several with calls between them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        """When the first piece of the turn came."""
        self._answer_began = self._began
        """When the prompt of this answer had been read, as far as is known."""
        self._answer_first: float | None = None
        """When the first piece of this answer came."""
        self._n_pieces = 0
        """Of this answer."""
        self._seconds = 0.0
        """From the first piece of an answer to its end, together; tools do not count."""
        self._n_timed = 0
        """Tokens that came in those."""
        self._n_output = self._n_computed = 0
        self._n_cached: int | None = None
        """Of the first prompt: what is cached of the later ones, this turn has computed itself."""
        self._last = Usage()
        self._n_evicted = 0
        self._n_calls = self._n_rounds = 0
        self._has_calls = False
        self._reason: StopReason | None = None

    def feed(self, event: TurnEvent) -> None:
        match event:
            case Started(usage=usage):
                self._last, self._n_evicted = usage, 0
                self._answer_began, self._answer_first = self._clock(), None
                self._n_pieces, self._has_calls = 0, False
            case Progress():
                self._answer_began = self._clock()
            case TextDelta() | ReasoningDelta() | CallStarted() | CallDelta():
                now = self._clock()
                self._answer_first = now if self._answer_first is None else self._answer_first
                self._first = now if self._first is None else self._first
                self._n_pieces += 1
            case CallEnded():
                self._n_calls += 1
                self._n_rounds += not self._has_calls
                self._has_calls = True
            case Evicted(tokens=n_tokens) if self._answer_first is not None:
                self._n_evicted += n_tokens  # those before are not in the prompt's count
            case Finished(reason=reason, usage=usage):
                self._reason = reason
                self._end(usage)
            case _:
                pass

    def _end(self, usage: Usage) -> None:
        self._last = usage
        self._n_output += usage.output
        self._n_computed += usage.prompt - usage.cache_read
        self._n_cached = usage.cache_read if self._n_cached is None else self._n_cached
        if self._answer_first is not None and usage.output > 1:
            # Calls are held back until they can be read: then the first piece comes when most tokens have been made.
            is_late = self._n_pieces < usage.output / 2
            self._seconds += self._clock() - (self._answer_began if is_late else self._answer_first)
            self._n_timed += usage.output - 1

    def line(self, n_ctx: int, max_rounds: int | None = None) -> str:
        """Speed, cache, context and calls of the turn; empty when no answer of it finished."""
        if self._reason is None:
            return ""
        parts = [f"{self._n_output} tokens"]
        if self._seconds > 0:
            rate = self._n_timed / self._seconds
            parts.append(f"{rate:.{0 if rate >= 100 else 1}f} tokens/s")
        if self._first is not None:
            parts.append(f"first {self._first - self._began:.2f} s")
        parts.append(f"{self._n_computed} new + {self._n_cached} cached")
        parts.append(context_line(self._last.total - self._n_evicted, n_ctx))
        if self._n_calls:
            parts.append(calls_line(self._n_calls, self._n_rounds, max_rounds))
        if self._reason == "length":
            parts.append("cut off by the limit")
        return " · ".join(parts)


def calls_line(n_calls: int, n_rounds: int, max_rounds: int | None = None) -> str:
    """What a turn has used of its rounds, such as `3 calls in 2 of 32 rounds`."""
    calls = f"{n_calls} call{'' if n_calls == 1 else 's'}"
    if max_rounds is None:
        return f"{calls} in {n_rounds} round{'' if n_rounds == 1 else 's'}"
    return f"{calls} in {n_rounds} of {max_rounds} round{'' if max_rounds == 1 else 's'}"


def context_line(n_held: int, n_ctx: int) -> str:
    """How full the context is."""
    return f"{bar(n_held, n_ctx, 8)} {n_held}/{n_ctx}"


# -- results ----------------------------------------------------------------------------------------------------------


def show(text: str = "", *, colour: str | None = None, bold: bool = False) -> None:
    """One line of a result; colours on a terminal only."""
    click.secho(text, fg=colour if colours_wanted() else None, bold=bold and colours_wanted())


def show_error(text: str) -> None:
    """One sentence on standard error."""
    click.secho(f"shepherd: {text}", fg="red" if colours_wanted(sys.stderr) else None, err=True)


def show_warning(text: str) -> None:
    """One sentence on standard error that does not end anything."""
    click.secho(f"shepherd: {text}", fg="yellow" if colours_wanted(sys.stderr) else None, err=True)


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def colours_wanted(stream: Any = None) -> bool:
    import os

    return is_terminal(stream or sys.stdout) and not os.environ.get("NO_COLOR")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; in a pipe nothing is cut off."""
    from rich.table import Table
    from rich.text import Text

    terminal = is_terminal(sys.stdout)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=not terminal, min_width=4 if index else 10)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    result_console().print(table)


def result_console() -> Console:
    """Standard output for results that rich draws; in a pipe nothing is cut off."""
    from rich.console import Console

    terminal = is_terminal(sys.stdout)
    return Console(file=sys.stdout, force_terminal=terminal, highlight=False, width=None if terminal else 10_000)


def write_error_event(error: ShepherdError) -> None:
    """The last line of `--json` when there is no answer, or not all of it."""
    write(json.dumps({"event": "error", "code": error.code, "message": error.message}, ensure_ascii=False) + "\n")


def show_marked(mark: str, colour: str, text: str) -> None:
    """One line with a mark before it, which alone is coloured."""
    click.echo(f"{click.style(mark, fg=colour) if colours_wanted() else mark} {text}")
