"""Shows the progress of loading models, with log records above it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shepherd.cli import logs
from shepherd.cli.text import bar, one_line

if TYPE_CHECKING:
    from shepherd.app.loading import LoadProgress
    from shepherd.cli.terminal.screen import Screen

_STAGES = {
    "selftest": "Testing the native library",
    "trial": "Checking {}",
    "weights": "Loading {}",
    "context": "Making room for {}",
    "library": "Starting TensorRT-LLM for {}",
}


@contextmanager
def progress_shown(screen: Screen | None) -> Iterator[Callable[[LoadProgress], None]]:
    """Yields a function that shows progress, from any thread; the progress disappears at the end of the block."""

    def show(loading: LoadProgress) -> None:
        if screen is not None:
            what = _STAGES[loading.stage].format(one_line(loading.name))
            is_measured = loading.stage == "weights"
            line = f"{what} {bar(loading.fraction, 1)} {loading.fraction:.0%}" if is_measured else f"{what} ..."
            screen.update([], [line[: screen.console.width - 1]])

    with logs.above(screen):
        try:
            yield show
        finally:
            if screen is not None:
                screen.update([])
