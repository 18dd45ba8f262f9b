"""What the commands that measure share: a budget of time, the files of the result, a view that stays in place, bars."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.live import Live
from rich.table import Table

from shepherd.cli import configure, render
from shepherd.config import Config
from shepherd.config.kinds import seconds
from shepherd.core import ConfigError, InvalidRequest
from shepherd.process.files import writing

T = TypeVar("T")
DRAW_S = 0.2
"""Between two drawings, which take processor time from what is measured."""


def budget_s(text: str) -> float:
    """The seconds that a text such as `90s` or `5m` means. Raises: `InvalidRequest`."""
    try:
        found = seconds(text)
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        raise InvalidRequest(f"{text!r} is no budget; write seconds, or a text such as 90s or 5m", field="budget")
    return found


def model_config(options: Mapping[str, Any]) -> tuple[Config, str | None]:
    """The configuration, and the name of the model in it that `--model` gives; None for a file, and without the option:
    the first one. Raises: `ConfigError`."""
    named = options.get("model")
    config = configure.load_config({name: value for name, value in options.items() if name != "model"}, looks=True)
    if named and named not in {model.name for model in config.models}:
        return configure.read_config(options, looks=True), None
    return config, named


def check_writable(*files: Path | None) -> None:
    """Find out before the work whether its results can be written. Raises: `ConfigError`."""
    for file in filter(None, files):
        folder = file.absolute().parent
        problem = "it is a folder" if file.is_dir() else "its folder does not exist" if not folder.is_dir() else ""
        if not problem and not os.access(file if file.exists() else folder, os.W_OK):
            problem = "permission denied"
        if problem:
            raise ConfigError(f"cannot be written: {problem}", file=str(file))


def save(file: Path, text: str) -> None:
    """Write a result. Raises: `ConfigError`."""
    with writing(file):
        file.write_text(text, "utf-8")


@contextmanager
def show_states(table: Callable[[T], Table], line: Callable[[T], str]) -> Iterator[Callable[[T], None]]:
    """Yields a function that shows each state on standard error: as a table that stays in place, and is gone at the
    end of the block; where there is no terminal, as a line, when it is a new one."""
    if render.is_terminal(sys.stderr):
        with Live(console=render.console(sys.stderr), auto_refresh=False, transient=True) as live:
            drawn_s = 0.0

            def draw(state: T) -> None:
                nonlocal drawn_s
                if time.monotonic() - drawn_s > DRAW_S:
                    live.update(table(state), refresh=True)
                    drawn_s = time.monotonic()

            yield draw
        return
    said = ""

    def say(state: T) -> None:
        nonlocal said
        if (new := line(state)) != said:
            said = new
            render.show_note(new)

    yield say


class Bar(NamedTuple):
    label: str
    part: float
    """Of the longest one, from 0 to 1."""
    text: str
    """Behind the bar."""
    colour: str = "#89b"


def to_svg(title: str, bars: Sequence[Bar], *, note: str = "") -> str:
    """A picture: a bar for each row. `note`: a line below them."""
    width, left, right = 960, 430, 150
    height = 24 * len(bars) + 40 + (24 if note else 0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13" style="background:#fff"><text x="8" y="20">{escape(title)}</text>'
    ]
    for index, bar in enumerate(bars):
        y, length = 32 + 24 * index, (width - left - right) * min(1.0, max(0.0, bar.part))
        lines.append(
            f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(bar.label)}</text>'
            f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="18" fill="{bar.colour}"/>'
            f'<text x="{left + length + 6:.1f}" y="{y + 15}">{escape(bar.text)}</text>'
        )
    if note:
        lines.append(f'<text x="8" y="{height - 12}" fill="#666">{escape(note)}</text>')
    return "\n".join((*lines, "</svg>", ""))
