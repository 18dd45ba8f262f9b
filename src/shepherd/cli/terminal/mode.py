"""The mode of the terminal at standard input. Without one (a pipe, or Windows) nothing changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reading(*, keys: bool) -> Iterator[bool]:
    """Within the block, standard input gives single `keys` without an echo, or else edited lines with an echo; Ctrl-C
    stays a signal. Yields whether there is a terminal."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield False
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    input_modes, local_modes = termios.ICRNL, termios.ECHO | termios.ICANON
    wanted = [*before]
    wanted[0] = before[0] & ~input_modes if keys else before[0] | input_modes
    wanted[3] = before[3] & ~local_modes if keys else before[3] | local_modes
    termios.tcsetattr(descriptor, termios.TCSADRAIN, wanted)
    try:
        yield True
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
