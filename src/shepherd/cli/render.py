"""All that the commands write: the only place in Shepherd that prints.

A `View` is where a conversation is shown, on a terminal or into a pipe; the answers themselves are in `answer.py`. The
functions below it are for the commands that print a result and leave. Not here: what is worth saying.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from shepherd.agent.session import Returned
from shepherd.cli.answer import Answer, JsonAnswer, PlainAnswer, bar, clean
from shepherd.cli.screen import Screen
from shepherd.core import Event, Evicted, Finished, ReasoningDelta, ShepherdError, Started, StopReason, TextDelta, Usage

if TYPE_CHECKING:
    from rich.console import Console

    from shepherd.app import Facts, Loading

EMBEDDED_NOTE = "This is a tiny embedded model; better: shepherd MODEL.gguf, shepherd models list"
_STAGES = {"selftest": "Testing the native library", "weights": "Loading {}", "context": "Making room for {}"}


class View(Protocol):
    """Where a conversation is shown."""

    screen: Screen | None
    """The terminal that may have live lines at its end; None without one."""

    def load(self, loading: Loading) -> None:
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


class TerminalView:
    """A person at a terminal: markdown, colours, live lines."""

    def __init__(self, *, show_thinking: bool = True) -> None:
        self.console = _console(sys.stdout)
        self.screen: Screen | None = Screen(self.console)
        self._show_thinking = show_thinking

    def load(self, loading: Loading) -> None:
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
        from shepherd.cli.live import MarkdownAnswer

        assert self.screen is not None
        return MarkdownAnswer(self.screen, show_thinking=self._show_thinking)


class PipeView:
    """A program, a file or a plain terminal: text alone, and nothing of ours among it but what `say` is told."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        # A person may still be watching the errors while the answer goes into a file.
        self.screen: Screen | None = Screen(_console(sys.stderr)) if is_terminal(sys.stderr) else None

    def load(self, loading: Loading) -> None:
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


def _show_loading(screen: Screen | None, loading: Loading) -> None:
    if screen is None:
        return
    what = _STAGES[loading.stage].format(loading.name)
    line = f"{what} {bar(loading.fraction, 1)} {loading.fraction:.0%}" if loading.stage == "weights" else f"{what} ..."
    screen.update([], [line[: screen.console.width - 1]])


# -- lines of a conversation ------------------------------------------------------------------------------------------


def banner(facts: Facts, version: str, n_tools: int = 0) -> list[str]:
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
    """Measures one answer as it comes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first = self._last = 0.0
        self._usage = Usage()
        self._n_evicted = 0
        self._reason: StopReason = "end"

    def feed(self, event: Event | Returned) -> None:
        match event:
            case Started(usage=usage):
                self._usage = usage
            case Finished(reason=reason, usage=usage):
                self._usage = usage
                self._reason = reason
                self._last = time.monotonic()
            case TextDelta() | ReasoningDelta():
                self._first = self._first or time.monotonic()
            case Evicted(tokens=n_tokens) if self._first:
                self._n_evicted += n_tokens  # those before are not in the prompt's count

    def line(self, n_ctx: int) -> str:
        """Speed, cache and context of the answer; empty when it did not finish."""
        if not self._last:
            return ""
        usage = self._usage
        parts = [f"{usage.output} tokens"]
        if usage.output > 1 and self._last > self._first > 0:
            rate = (usage.output - 1) / (self._last - self._first)
            parts.append(f"{rate:.{0 if rate >= 100 else 1}f} tokens/s")
        if self._first:
            parts.append(f"first {self._first - self._began:.2f} s")
        parts.append(f"{usage.prompt - usage.cache_read} new + {usage.cache_read} cached")
        parts.append(context_line(usage.total - self._n_evicted, n_ctx))
        if self._reason == "length":
            parts.append("cut off by the limit")
        return " · ".join(parts)


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


def show_tools() -> None:
    """The tools that exist, by group."""
    from shepherd.tools.groups import GROUPS

    click.echo(f"{sum(map(len, GROUPS.values()))} tools available")
    for group, specs in GROUPS.items():
        click.echo(f"{group}:")
        width = max(len(spec.name) for spec in specs)
        for spec in specs:
            click.echo(f"  {spec.name:<{width}}  {spec.description}")


def write_error_event(error: ShepherdError) -> None:
    """The last line of `--json` when there is no answer, or not all of it."""
    write(json.dumps({"event": "error", "code": error.code, "message": error.message}, ensure_ascii=False) + "\n")


def show_marked(mark: str, colour: str, text: str) -> None:
    """One line with a mark before it, which alone is coloured."""
    click.echo(f"{click.style(mark, fg=colour) if colours_wanted() else mark} {text}")
