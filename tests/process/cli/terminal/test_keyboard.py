"""The tests of `tests/unit/cli/terminal/test_keyboard.py` that start programs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.cli.terminal.test_keyboard import PATIENCE_S

SCRIPT = """\
import asyncio, fcntl, os, select, signal, sys, termios, tty
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
tty.setcbreak(0)  # as the conversation has it between two prompts
before = termios.tcgetattr(0)

async def main():
    from prompt_toolkit import PromptSession
    from shepherd.cli.terminal.view import TerminalView
    from shepherd.tools.base import Form, Question

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(task.cancel))
    person = TerminalView().person()
    if "early" in sys.argv:
        print("type", flush=True)
        select.select([0], [], [])
    try:
        if "form" in sys.argv:
            fields = {"properties": {"city": {"type": "string", "default": "Graz"}}, "required": ["city"]}
            said = await person.fill(Form("weather", "Where?", fields))
        else:
            said = await person.allow(Question("execute_command", {"command": "ls"}, "run", "ls"))
    except asyncio.CancelledError:
        said = "cancelled"
    print("said", said, flush=True)
    await person.settled()
    if "prompt" in sys.argv:
        print("line", repr(await PromptSession().prompt_async("> ")), flush=True)

asyncio.run(main())
print("left", "as before" if termios.tcgetattr(0) == before else "otherwise", flush=True)
"""


class Typist:
    """Someone at a pseudo-terminal in which the script runs."""

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        os.close(inner)

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def waits_for(self, pattern: str) -> str:
        """The first match; what came before it is taken away."""
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} did not appear in {self.seen!r}"
            try:
                raw = os.read(self._terminal, 65536)
            except OSError:  # Linux's way of saying that the other end is closed
                raw = b""
            assert raw, f"the program ended before {pattern!r} appeared: {self.seen!r}"
            self.seen += re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])|\r", "", raw.decode("utf-8", "replace"))
        self.seen = self.seen[match.end() :]
        return match[0]

    def leave(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@contextmanager
def typing(*arguments: str) -> Iterator[Typist]:
    typist = Typist(*arguments)
    try:
        yield typist
    finally:
        typist.leave()


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("key", "verdict"), [("y", "once"), ("\r", "no"), ("\x04", "no")])
def test_a_key_answers_at_once_and_the_terminal_is_as_before(key: str, verdict: str) -> None:
    with typing() as typist:
        typist.waits_for("Enter: no")
        typist.types(key)
        typist.waits_for(f"said {verdict}\n")
        typist.waits_for("left as before")


def test_what_was_typed_before_the_question_stays_for_the_next_prompt() -> None:
    with typing("early", "prompt") as typist:
        typist.waits_for("type")
        typist.types("y a")
        typist.waits_for("Enter: no")
        typist.types("n")
        typist.waits_for("said no")
        typist.waits_for("y a")
        typist.types("!\r")
        typist.waits_for("line 'y a!'")


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("argument", "key"), [("question", "\x03"), ("form", "\x03"), ("question", "\x1b")])
def test_ctrl_c_stops_the_turn_and_so_does_escape_at_a_question(argument: str, key: str) -> None:
    with typing(argument) as typist:
        typist.waits_for("Enter: no|city: Graz")
        typist.types(key)
        typist.waits_for("Not answered.")
        typist.waits_for("said cancelled")
        typist.waits_for("left as before")


@pytest.mark.grid(0.2)
@pytest.mark.parametrize("end", ["ter2\r", "\x15\x04", "\x03"])
def test_what_is_typed_into_a_form_that_is_withdrawn_reaches_no_other_prompt(end: str) -> None:
    with typing("form", "prompt") as typist:
        typist.waits_for("city: Graz")
        typist.types("hun")
        typist.waits_for("hun")
        typist.process.send_signal(signal.SIGUSR1)  # as the cancellation of the server does
        typist.waits_for("said cancelled")
        typist.waits_for("This is no longer asked for, and is not sent. Enter: continue  Grazhun")
        typist.types(end)
        typist.waits_for("Not answered.")
        typist.waits_for(">")
        typist.types("hello\r")
        typist.waits_for("line 'hello'")
        typist.waits_for("left as before")


@pytest.mark.parametrize(
    ("keys", "said"), [("\x15Wiän日\x7f\x1b[D\x7f\x7fe\r", r"\{'city': 'Wen'\}"), ("\x15\x04", "None")]
)
def test_a_form_has_a_line_editor_and_ctrl_d_refuses_it(keys: str, said: str) -> None:
    with typing("form") as typist:
        typist.waits_for("city: Graz")
        typist.types(keys)
        typist.waits_for(f"said {said}")
        typist.waits_for("left as before")
