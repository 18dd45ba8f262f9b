"""Log records on standard error, as `[INFO ] ...` or one JSON object each, above the live lines of a terminal.

A record is always one line, also when it quotes line ends.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shepherd.cli.text import clean

if TYPE_CHECKING:
    from shepherd.cli.terminal.screen import Screen

LOADING = "shepherd.loading"
"""Its records are for people and are shown at every level; where INFO is shown anyway, they have their level."""
_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = _CONTROL.sub(lambda found: repr(found[0])[1:-1], record.getMessage())
        if record.name != LOADING or logging.getLogger("shepherd").isEnabledFor(logging.INFO):
            text = f"[{_level(record):<5}] {text}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _JsonFormat(logging.Formatter):
    """For programs: the facts of a request are fields (`server/observe/record.py`)."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": round(record.created, 3), "level": _level(record).lower(), "logger": record.name}
        facts: dict[str, Any] | None = getattr(record, "facts", None)
        fields |= {"message": record.getMessage()} if facts is None else facts
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelno, record.levelname)


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that forge another record or steer the terminal."""


class Handler(logging.Handler):
    """Writes to standard error; above the live lines of `screen` where there is one."""

    screen: Screen | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = clean(self.format(record))
            if self.screen is not None:
                self.screen.interject(text)
            else:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()
        except Exception:  # logging must never end the program
            self.handleError(record)


def set_up(options: Mapping[str, Any]) -> Handler:
    """Install the handler for `options`: `--debug`, `--log-level`, `--verbose`, `--log-json`. By default a server logs
    one line for each request, and a chat shows warnings only."""
    level = logging.INFO if options.get("server") else logging.WARNING
    if options.get("verbose"):
        level = logging.INFO
    if options.get("log_level"):
        level = logging.getLevelNamesMapping()[options["log_level"].upper()]
    if options.get("debug"):
        level = logging.DEBUG
    handler = Handler()
    handler.setFormatter(_JsonFormat() if options.get("log_json") else _Format())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Other libraries' records are noise to a user below WARNING, even when ours are wanted.
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("shepherd").setLevel(level)
    # Prompts and answers are in no log, except with --debug.
    logging.getLogger("shepherd.content").setLevel(logging.DEBUG if options.get("debug") else logging.WARNING)
    logging.getLogger(LOADING).setLevel(min(level, logging.INFO))
    return handler


@contextmanager
def above(screen: Screen | None) -> Iterator[None]:
    """Within the block, records are written above the live lines of `screen`, where there is one."""
    handler = next(handler for handler in logging.getLogger().handlers if isinstance(handler, Handler))
    before, handler.screen = handler.screen, screen
    try:
        yield
    finally:
        handler.screen = before
