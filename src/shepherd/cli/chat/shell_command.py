"""`!command`: runs a line in the shell of the user, shows its output, and attaches both to the next message.

    > !git status
    On branch main                           as it comes
    exit code 0; the model gets the command and its output with your next message

It is the user's own command: no rule and no mode of tools is about it. It has no input and no terminal; Ctrl-C ends it
with everything that it has started (`tools/builtin/shell.py`). The model gets the beginning and the end of a long
output.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable

from shepherd.agent import attachment
from shepherd.cli.chat.state import Chat
from shepherd.core import InvalidRequest, Text
from shepherd.tools.builtin import shell
from shepherd.tools.toolbox import ConversationToolbox

SIGN = "!"
MOST_BYTES = 16 * 1024
"""Of the output that the model gets; in a small context half as many as it has tokens, so that any text fits."""
LONGEST_LINE = 64 * 1024
"""Bytes after which a line without an end is shown."""
_MERGED = 'exec "$0" -c "$1" 2>&1'
"""Both outputs in the order in which they come, in any shell."""


def is_one(line: str) -> bool:
    return line.startswith(SIGN)


async def run(chat: Chat, line: str) -> None:
    """Run the command of a line. Raises: `InvalidRequest` where none may run; `ToolError` when it cannot start."""
    command = line.removeprefix(SIGN).strip()
    _check(chat, command)
    arguments = ["/bin/sh", "-c", _MERGED, os.environ.get("SHELL") or "/bin/sh", shell.shell_line(command)[-1]]
    most = min(MOST_BYTES, chat.session.n_ctx // 2) or MOST_BYTES
    stop = threading.Event()
    shown = Shown(most, lambda text: None if stop.is_set() else chat.say(text))  # much may be on its way

    def work() -> shell.FinishedCommand:
        return shell.run(
            arguments, None, os.environ, timeout_s=math.inf, max_bytes=0, stop=stop, tell=lambda line: None,
            keep=lambda _: shown,
        )  # fmt: skip

    running = asyncio.ensure_future(asyncio.to_thread(work))
    how = "stopped by the user"
    try:
        ended = await asyncio.shield(running)
        how = ended.how(math.inf)
        if ended.left:
            how += f"; these background processes were ended: {', '.join(dict.fromkeys(ended.left))}"
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise
    finally:
        if running.done() and running.exception() is None:
            shown.end()
            _attach(chat, command, shown, most, how)


def _attach(chat: Chat, command: str, shown: Shown, most: int, how: str) -> None:
    said = attachment.fenced(f"$ {command}\n{shown.text}")
    chat.attached.append(Text(f"The user ran a command:\n{said}\n{how}\n\n", aside=True))
    part = "the command and its output"
    if shown.n_bytes > most:
        part = f"the command and {most:,} of the {shown.n_bytes:,} bytes of its output"
    chat.note(f"{how}; the model gets {part} with your next message")


def _check(chat: Chat, command: str) -> None:
    """Raises: `InvalidRequest`."""
    box = chat.session.toolbox
    if not chat.reader.is_person:
        why = "a line with ! runs a command for a person at a terminal only; put a space before such a message"
    elif not command:
        why = "write !COMMAND, such as !git status"
    elif isinstance(box, ConversationToolbox) and (box.permission.read_only or box.permission.dry_run):
        key = "read_only" if box.permission.read_only else "dry_run"
        why = f"no command runs here, because tools.{key} is set; run it in another terminal"
    else:
        return
    raise InvalidRequest(why, field="message")


class Shown(shell.HeadAndTail):
    """The output of a command, whose lines are shown as they come, many at once. From one thread at a time."""

    def __init__(self, max_bytes: int, show: Callable[[str], None]) -> None:
        super().__init__(max_bytes)
        self._show = show
        self._open = b""

    def take(self, chunk: bytes) -> None:
        super().take(chunk)
        *lines, self._open = (self._open + chunk).split(b"\n")
        if lines:
            self._show("\n".join(map(shell.readable, lines)))
        if len(self._open) > LONGEST_LINE:
            self.end()

    def end(self) -> None:
        """Show the line that has no end."""
        line, self._open = self._open, b""
        if line:
            self._show(shell.readable(line))
