"""Prints the results of commands: lines, tables, JSON, errors and warnings.

All text on a terminal passes `write`, the `show` functions or a `console`, which clean it: names of files, and texts of
models, servers and saved conversations, must not steer the terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from shepherd.cli.text import clean, field_lines, json_text, n_columns, table_lines, wrapped

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from shepherd.core.status import ActiveModel

EMBEDDED_NOTE = (
    "A tiny model, for trying things out; better: shepherd models suggest, shepherd pull, shepherd MODEL.gguf"
)


def is_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal that understands escape codes."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def colours_wanted(stream: Any = None) -> bool:
    """Whether to write colours to `stream`, standard output by default."""
    return is_terminal(stream or sys.stdout) and not os.environ.get("NO_COLOR")


def write(text: str, stream: TextIO | None = None) -> None:
    """Write `text` to `stream`, standard output by default, at once: clean to a terminal, unchanged elsewhere."""
    out = stream or sys.stdout
    out.write(text if text.isprintable() or not out.isatty() else clean(text))
    out.flush()


def show(text: str = "", *, colour: str | None = None, bold: bool = False, stream: TextIO | None = None) -> None:
    """Print one line of a result, on standard output by default; colours on a terminal only."""
    _show(text, stream or sys.stdout, fg=colour, bold=bold or None)


def show_marked(mark: str, colour: str, text: str) -> None:
    """Print one line behind a mark; only the mark has a colour."""
    first, *rest = wrapped(f"{mark} {clean(text)}", width_of(sys.stdout), n_columns(mark) + 1)
    click.echo(first.replace(mark, click.style(mark, fg=colour), 1) if colours_wanted() else first)
    for line in rest:
        click.echo(line)


def show_fields(fields: Mapping[str, str]) -> None:
    """Print a `Name: value` line for each field, the values in one column."""
    for line in field_lines({name: clean(value) for name, value in fields.items()}, width_of(sys.stdout)):
        show(line)


def show_error(text: str) -> None:
    _show(f"shepherd: {text}", sys.stderr, fg="red")


def show_warning(text: str) -> None:
    _show(f"shepherd: {text}", sys.stderr, fg="yellow")


def show_note(text: str) -> None:
    """Print one dim sentence on standard error, about progress."""
    _show(f"shepherd: {text}", sys.stderr, dim=True)


def _show(text: str, stream: TextIO, **style: Any) -> None:
    for line in wrapped(clean(text), width_of(stream)):
        _show_line(line, stream, **style)


def _show_line(line: str, stream: TextIO, **style: Any) -> None:
    line = clean(line)
    click.echo(click.style(line, **style) if any(style.values()) and colours_wanted(stream) else line, stream)


def width_of(stream: TextIO) -> int | None:
    """The columns of the terminal that `stream` is; None for a pipe or a file, where no line is broken."""
    if not stream.isatty():
        return None
    with contextlib.suppress(OSError, ValueError):  # no real terminal
        return int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def show_json(value: Any) -> None:
    click.echo(json_text(value, indent=2))


def show_done(done: Mapping[str, Any], *lines: str, as_json: bool) -> None:
    """Print what a command has done: for programs as one object, or its lines for people."""
    if as_json:
        show_json(done)
    for line in () if as_json else lines:
        show(line)


def agreed(question: str, done: str, *, yes: bool) -> bool:
    """Whether a person says yes, here or with `yes`; without a terminal, an error says that nothing was `done`."""
    if not yes and not sys.stdin.isatty():
        show_error(f"nothing was {done}: there is no terminal on which to ask; add --yes")
        return False
    return yes or click.confirm(question, err=True)


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], none: str = "", stream: TextIO | None = None
) -> None:
    """Print a table as wide as the terminal, or `none` where there are no rows."""
    if none and not rows:
        show(none)
        return
    out = stream or sys.stdout
    for line, is_head in table_lines(columns, rows, width_of(out)):
        _show_line(line, out, bold=is_head or None)


def console(stream: TextIO | None = None) -> Console:
    """`stream`, standard output by default, for what rich draws; in a pipe no line is cut off."""
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, *args: Any, **settings: Any) -> Iterator[Segment]:
            for each in super().render(*args, **settings):  # a segment with a `control` is the program's own
                is_clean = each.control or each.text.isprintable()
                yield each if is_clean else Segment(clean(each.text), each.style)

    terminal = is_terminal(stream or sys.stdout)
    width = None if terminal else 10_000
    return CleanConsole(file=stream or sys.stdout, force_terminal=terminal, highlight=False, width=width)


def banner(
    facts: ActiveModel, version: str, n_tools: int = 0, memory: Path | None = None, instructions: str = ""
) -> list[str]:
    """The first lines of a chat or a server; `n_tools` counts the tools offered to the model. `memory`: where the
    memory is, if not at the usual place. `instructions`: the files of the folder that the model has got."""
    from shepherd.core.status import WAYS

    lines = [
        f"Shepherd LLM System v{version}",
        f"Backend: {facts.backend}",
        f"Model: {facts.model}",
        *([f"Provider: {facts.cache}, {WAYS[facts.is_away]}"] if facts.is_provider else []),
        f"Context: {f'{facts.n_ctx} tokens' if facts.n_ctx else 'not known'}",
        f"Tools: {n_tools} available",
        *([f"Memory: {clean(str(memory))}"] if memory else []),
        *([clean(instructions)] if instructions else []),
    ]
    return [*lines, EMBEDDED_NOTE] if facts.embedded else lines
