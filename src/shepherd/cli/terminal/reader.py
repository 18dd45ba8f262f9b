"""Where the lines of a conversation come from.

    TerminalReader   a line editor: `editor.py`, imported late, because prompt_toolkit is heavy
    PipeReader       a pipe, a file, or a terminal that is too simple for the editor

Both wait without blocking the event loop, which serves the MCP servers meanwhile.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable

from shepherd.cli import render
from shepherd.cli.signals import handling
from shepherd.core.dataclasses import dataclass
from shepherd.core.encoding import readable, text_encoding

PROMPT = "> "
_CHUNK = 65_536
HEAD_BYTES = 4
"""So many show the encoding, where the first line is not shorter."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    text: str
    n_replaced: int
    """Characters before the cursor that it replaces."""
    note: str = ""
    is_whole: bool = False
    """A command that begins like the typed text and takes no argument: Enter sends it."""


Suggest = Callable[[str], Iterable[Suggestion]]
"""Text before the cursor -> its completions; called from a thread."""


class PipeReader:
    """One message per line of standard input, with any line ends, in UTF-8 or UTF-16, with or without a mark."""

    has_editor = False
    """Whether lines are edited here, not by the terminal."""

    def __init__(self) -> None:
        self.is_person = sys.stdin.isatty()
        """Whether a person reads hints and presses Ctrl-C."""
        self._descriptor = sys.stdin.fileno()
        self._lines = Lines(sys.stdin.encoding or "utf-8")

    async def read(self, suggest: Suggest) -> str | None:
        """The next message or command; None at the end. Raises: `KeyboardInterrupt` after Ctrl-C at an empty prompt."""
        render.write(PROMPT)
        while (line := self._lines.take()) is None and not self._lines.at_end:
            self._lines.feed(await self._more())
        if line is None:
            render.write("\n")
        return line

    async def _more(self) -> bytes:
        """Some bytes; none at the end."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None = None) -> None:
            if not arrived.done():
                arrived.set_exception(error) if error else arrived.set_result(None)

        try:
            loop.add_reader(self._descriptor, settle)
        except (OSError, NotImplementedError, ValueError):  # a file, which never blocks; or Windows
            with handling(signal.SIGINT, signal.default_int_handler):
                return self._bytes()
        try:
            with handling(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(settle, KeyboardInterrupt())):
                await arrived
        finally:
            loop.remove_reader(self._descriptor)
        return self._bytes()

    def _bytes(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError:  # the terminal is closed
            return b""


def read_pipe() -> str:
    """The whole text of standard input, with any line ends, in the encoding that its beginning shows."""
    return piped_text(sys.stdin.buffer.read())


def piped_text(raw: bytes) -> str:
    return readable(raw, sys.stdin.encoding or "utf-8")


class Lines:
    """Splits bytes into lines as they come. The last line needs no end."""

    def __init__(self, encoding: str) -> None:
        self.at_end = False
        self._encoding = encoding
        self._decoder: io.IncrementalNewlineDecoder | None = None
        self._head = b""
        self._text = ""

    def feed(self, raw: bytes) -> None:
        """Take the next bytes; empty = the end."""
        self.at_end = not raw
        if self._decoder is None:
            raw = self._head = self._head + raw
            if 0 < len(raw) < HEAD_BYTES and not self.at_end and b"\n" not in raw:
                return
            encoding = text_encoding(raw) or self._encoding
            if codecs.lookup(encoding).name == "utf-8":
                encoding = "utf-8-sig"
            decoder = codecs.getincrementaldecoder(encoding)("replace")
            self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._text += self._decoder.decode(raw, final=self.at_end)

    def take(self) -> str | None:
        """The next line without its end; None when no line is complete."""
        line, end, rest = self._text.partition("\n")
        if not end and not (self.at_end and line):
            return None
        self._text = rest
        return line
