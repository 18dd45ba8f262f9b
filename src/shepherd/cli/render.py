"""Prints the results of commands: lines, tables, JSON, errors and warnings.

Not here: the conversation (`terminal/view.py`), and how values are spelled (`text.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from shepherd.cli.text import clean, field_lines

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from shepherd.core.status import ActiveModel

EMBEDDED_NOTE = "This is a tiny embedded model; better: shepherd MODEL.gguf, shepherd models list"


def is_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal that understands escape codes."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def colours_wanted(stream: Any = None) -> bool:
    """Whether to write colours to `stream`, standard output by default."""
    return is_terminal(stream or sys.stdout) and not os.environ.get("NO_COLOR")


def write(text: str) -> None:
    """Write `text` unchanged to standard output, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def show(text: str = "", *, colour: str | None = None, bold: bool = False) -> None:
    """Print one line of a result; colours on a terminal only."""
    click.secho(text, fg=colour if colours_wanted() else None, bold=bold and colours_wanted())


def show_marked(mark: str, colour: str, text: str) -> None:
    """Print one line behind a mark; only the mark has a colour."""
    click.echo(f"{click.style(mark, fg=colour) if colours_wanted() else mark} {text}")


def show_fields(fields: Mapping[str, str]) -> None:
    """Print one `Name: value` line for each field, the values in one column."""
    for line in field_lines(fields):
        show(clean(line))


def show_error(text: str) -> None:
    """Print one sentence on standard error."""
    click.secho(f"shepherd: {text}", fg="red" if colours_wanted(sys.stderr) else None, err=True)


def show_warning(text: str) -> None:
    """Print one sentence on standard error; the command continues."""
    click.secho(f"shepherd: {text}", fg="yellow" if colours_wanted(sys.stderr) else None, err=True)


def show_note(text: str) -> None:
    """Print one dim sentence on standard error, about progress."""
    click.secho(f"shepherd: {text}", dim=colours_wanted(sys.stderr), err=True)


def show_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], none: str = "") -> None:
    """Print columns as wide as their cells, or `none` where there are no rows; in a pipe no cell is cut off."""
    if none and not rows:
        show(none)
        return
    from rich.table import Table
    from rich.text import Text

    terminal = is_terminal(sys.stdout)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=not terminal, min_width=4 if index else 10)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console().print(table)


def console(stream: TextIO | None = None) -> Console:
    """`stream`, standard output by default, for what rich draws; in a pipe no line is cut off."""
    from rich.console import Console

    terminal = is_terminal(stream or sys.stdout)
    width = None if terminal else 10_000
    return Console(file=stream or sys.stdout, force_terminal=terminal, highlight=False, width=width)


def banner(facts: ActiveModel, version: str, n_tools: int = 0, memory: Path | None = None) -> list[str]:
    """The first lines of a chat or a server; `n_tools` counts the tools offered to the model. `memory`: where the
    memory is, if not at the usual place."""
    lines = [
        f"Shepherd LLM System v{version}",
        f"Backend: {facts.backend}",
        f"Model: {facts.model}",
        f"Context: {facts.n_ctx} tokens",
        f"Tools: {n_tools} available",
        *([f"Memory: {clean(str(memory))}"] if memory else []),
    ]
    return [*lines, EMBEDDED_NOTE] if facts.embedded else lines
