"""`shepherd help` on a terminal: drawn, and in a pager where it is longer than the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest


@pytest.mark.parametrize(("n_rows", "is_paged"), [(10, True), (2000, False)])
def test_a_page_that_is_longer_than_the_screen_opens_in_the_pager(n_rows: int, is_paged: bool) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", n_rows, 60, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    with subprocess.Popen(
        [sys.executable, "-m", "shepherd", "help", "api"],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=kept | {"TERM": "xterm", "PAGER": "sed s/^/PAGED:/"},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = _all(ours)
        assert process.wait(60) == 0
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in shown.splitlines()]
    assert {line.startswith("PAGED:") for line in lines} == {is_paged}
    assert "\x1b[" in shown
    assert max(len(line.removeprefix("PAGED:")) for line in lines) <= 60


def _all(terminal: int) -> str:
    read = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # nobody has the other end any more
            more = b""
        if not more:
            os.close(terminal)
            return read.decode("utf-8")
        read += more
