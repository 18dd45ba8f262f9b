"""Where log records go: standard error, as `[INFO ] ...`, without tearing what a terminal shows live."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shepherd.cli.screen import Screen

_NAMES = {logging.WARNING: "WARN", logging.CRITICAL: "ERROR"}


class _Format(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"[{_NAMES.get(record.levelno, record.levelname):<5}] {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class Handler(logging.Handler):
    """Writes to the standard error of the moment; above the live lines of `screen` where there is one."""

    screen: Screen | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if self.screen is not None:
                self.screen.interject(text)
            else:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()
        except Exception:  # logging must never end the program; its own way of saying so
            self.handleError(record)


def set_up(options: Mapping[str, Any]) -> Handler:
    """Install the handler that `options` ask for: `--debug`, `--log-level`, `--verbose`, else what suits the command.

    A server tells of every request in one line; a chat shows warnings only.
    """
    level = logging.INFO if options.get("server") else logging.WARNING
    if options.get("verbose"):
        level = logging.INFO
    if options.get("log_level"):
        level = logging.getLevelNamesMapping()[options["log_level"].upper()]
    if options.get("debug"):
        level = logging.DEBUG
    handler = Handler()
    handler.setFormatter(_Format())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Other libraries' records are noise to a user below WARNING, even when ours are wanted.
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("shepherd").setLevel(level)
    # Prompts and answers are quoted in no log unless somebody asks for exactly that.
    logging.getLogger("shepherd.content").setLevel(logging.DEBUG if options.get("debug") else logging.WARNING)
    return handler


def current() -> Handler:
    """The installed handler."""
    return next(handler for handler in logging.getLogger().handlers if isinstance(handler, Handler))
