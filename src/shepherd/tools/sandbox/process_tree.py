"""A process and all that it has started, so that all of it can be ended.

Found are its process group, its session, its descendants, and whoever has the mark that it had in its environment,
which daemons inherit. Not found is a program that has both left the family (a daemon) and wiped or overwritten its
environment, and one of another user (`sudo`).

Not here: what the processes say (`tools/builtin/shell.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psutil

T = TypeVar("T")

MARK = "SHEPHERD_COMMAND"
"""The variable that families are known by: a word for each one that a process belongs to, since a command may run a
Shepherd that runs commands."""
GRACE_S = 2.0
"""From TERM to KILL, and from KILL to giving up."""
STEP_S = 0.02
CLOCK_S = 5.0


class Family:
    """A process that leads a session, and its kin. The process must not be reaped before `end`: as long as it is there,
    nobody else gets its number, and a signal to its group meets no stranger."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        """`mark`: a word of the variable `MARK` that the process was started with."""
        self.pid = process.pid
        self.mark = mark
        # Times of birth are reckoned from the time of the start, which moves when the clock is set.
        self.born = ask(lambda: psutil.Process(process.pid).create_time() - CLOCK_S, 0.0)

    def end(self, pause: Callable[[float], object]) -> list[str]:
        """End everybody, first politely; the command lines of those who were there besides the first process.

        `pause` waits so many seconds and reads their output meanwhile: who cannot write cannot say goodbye.
        """
        members = self.frozen()
        names = [name_of(each) for each in members if each.pid != self.pid]
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_S
            while members and time.monotonic() < deadline:
                if number == signal.SIGKILL:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(self.pid, number)  # at one blow: faster than they can fork
                for each in members:
                    ask(partial(each.send_signal, number), None)
                    if number == signal.SIGTERM:
                        ask(each.resume, None)  # who is stopped hears nothing
                while any(map(is_alive, members)) and time.monotonic() < deadline:
                    pause(STEP_S)
                members = self.members()  # who has come meanwhile
        return names

    def frozen(self) -> list[psutil.Process]:
        """Everybody, at a standstill. Who is ended while it forks leaves a child that nobody can find any more."""
        deadline, seen = time.monotonic() + GRACE_S, set[int]()
        while (fresh := [each for each in self.members() if each.pid not in seen]) and time.monotonic() < deadline:
            for each in fresh:
                ask(each.suspend, None)
            seen.update(each.pid for each in fresh)
        return self.members()

    def members(self) -> list[psutil.Process]:
        """Who is alive, of this family."""
        young = [each for each in map(find, psutil.pids()) if each and ask(each.create_time, 0.0) >= self.born]
        parents = {each.pid: ask(each.ppid, 0) for each in young}
        found = {each.pid for each in young if self.is_kin(each)}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return [each for each in young if each.pid in found and is_alive(each)]

    def is_kin(self, process: psutil.Process) -> bool:
        with contextlib.suppress(OSError):
            if self.pid in {process.pid, os.getpgid(process.pid), os.getsid(process.pid)}:
                return True
        return self.mark in ask(lambda: process.environ().get(MARK, ""), "").split()


def ask(question: Callable[[], T], otherwise: T) -> T:
    """What a process answers that may have gone meanwhile, or belongs to somebody else."""
    try:
        return question()
    except (psutil.Error, OSError):
        return otherwise


def find(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and ask(process.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def name_of(process: psutil.Process) -> str:
    return " ".join(ask(process.cmdline, []))[:80] or ask(process.name, f"process {process.pid}")
