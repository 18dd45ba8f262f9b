"""The chat in a real terminal: a person at a pseudo-terminal, the embedded model behind it."""

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.scripted_service import ScriptedService, saying

from shepherd.core.status import Health

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.unit.cli.conftest import Home

    Listening = Callable[..., AbstractContextManager[int]]

pytestmark = pytest.mark.model

OWN_TERMINAL = """\
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the terminal of the new session, so that Ctrl-C there is a signal, and becomes the program.
Whoever starts the tests may ignore that signal, and children inherit it; no terminal does that to its programs."""


class Person:
    """A person that types into a pseudo-terminal and reads what appears there."""

    def __init__(self, home: Home, *arguments: str, width: int = 100) -> None:
        self.seen = ""
        self.raw = ""
        """All that was written, codes included."""
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *home.command, *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=home.folder,
            env=home.env,
            start_new_session=True,
        )
        os.close(inner)
        self._timeout_s = home.timeout_s

    def leaves(self) -> None:
        """Whatever became of the program, it ends now."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def sends(self, number: int) -> None:
        self._process.send_signal(number)

    def echoes_and_lines(self) -> bool:
        """Whether the terminal is as a shell wants it: it echoes, and hands over whole lines."""
        return self._modes & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON

    def waits_for(self, pattern: str) -> str:
        """What appeared up to the first match; it is taken away."""
        deadline = time.monotonic() + self._timeout_s
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, f"{pattern!r} did not appear in {self.seen!r}"
            assert self._reads(deadline), f"the program ended before {pattern!r} appeared: {self.seen!r}"
        before, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return before

    def reads(self) -> bool:
        """Wait for the next bytes; whether any came."""
        return self._reads(time.monotonic() + self._timeout_s)

    def waits_for_the_end(self) -> int:
        deadline = time.monotonic() + self._timeout_s
        while self._reads(deadline):
            pass
        self._modes: int = termios.tcgetattr(self._terminal)[3]
        os.close(self._terminal)
        self._terminal = -1
        return self._process.wait(self._timeout_s)

    def _reads(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        try:
            raw = os.read(self._terminal, 65536) if ready else b""
        except OSError:  # Linux's way of saying that the other end is closed
            return False
        text = raw.decode("utf-8", "replace")
        self.raw += text
        self.seen += re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])|\r", "", text)
        return bool(raw)


Start = Callable[..., Person]


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """`start(*arguments)` - a person that has started the program, and leaves when the test ends."""
    with ExitStack() as stack:

        def started(*arguments: str, width: int = 100) -> Person:
            person = Person(home, *arguments, width=width)
            stack.callback(person.leaves)
            return person

        yield started


def test_a_first_chat_in_the_terminal(home: Home, start: Start) -> None:
    person = start("--temperature", "0")
    assert re.search(home.banner, person.waits_for("> "))
    person.types("Hello\r")
    person.waits_for(r"Hello! .*\n")
    assert re.search(r"\d+ tokens · .* new \+ 0 cached · ▕.*▏ \d+/4096", person.waits_for("/4096"))
    person.waits_for("> ")
    person.types("\x04")
    assert person.waits_for_the_end() == 0
    history = home.folder / ".local" / "share" / "shepherd" / "history"
    assert "+Hello\n" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(home: Home, start: Start) -> None:
    home.never_ending()
    person = start("-c", "32k")
    person.waits_for("> ")
    person.types("Hello\r")
    person.waits_for("How can I help")
    person.types("\x03\x03")  # twice, as impatient people do
    person.waits_for(r"\[stopped\]")
    person.waits_for("> ")
    person.types("/context\r")
    person.waits_for("2 messages")
    person.waits_for("> ")
    person.types("\x03")
    person.waits_for("Ctrl-D or /quit leaves")
    person.waits_for("> ")
    person.types("half a message\x03")
    person.types("\x04")
    assert person.waits_for_the_end() == 0


def test_sigterm_at_the_prompt_leaves_the_terminal_in_order(start: Start) -> None:
    person = start()
    person.waits_for("> ")
    person.sends(signal.SIGTERM)
    assert person.waits_for_the_end() == 143
    assert person.echoes_and_lines()


def test_what_is_typed_during_an_answer_goes_to_the_next_prompt(home: Home, start: Start) -> None:
    home.never_ending()
    person = start("--max-tokens", "600")
    person.waits_for("> ")
    person.types("Hello\r")
    person.waits_for("How can I help")
    person.types("/context\r\x04")
    assert "2 messages" not in person.waits_for("cut off by the limit")
    person.waits_for("> /context")
    person.waits_for("2 messages")
    assert person.waits_for_the_end() == 0
    assert person.echoes_and_lines()


# -- shepherd top -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_top_is_left_by_a_key_and_the_terminal_is_in_order(start: Start, listening: Listening, key: str) -> None:
    with listening(ScriptedService(saying("Hi"))) as port:
        person = start("top", "--url", f"127.0.0.1:{port}")
        person.waits_for(r"main .* 17/4096 cells")
        person.waits_for("q quits")
        person.types("x")
        person.types(key)
        assert person.waits_for_the_end() == 0
    assert person.echoes_and_lines()
    assert "Traceback" not in person.seen


def test_top_waits_for_a_model_that_is_loading(start: Start, listening: Listening) -> None:
    loading = Health("loading", "llamacpp", "m.gguf")
    with listening(ScriptedService(saying("Hi"), health=loading, stats={})) as port:
        person = start("top", "--url", f"127.0.0.1:{port}")
        person.waits_for(r"still loading(.|\n)*trying\s+again")
        person.types("q")
        assert person.waits_for_the_end() == 0


# -- text of others ---------------------------------------------------------------------------------------------------
