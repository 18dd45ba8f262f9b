"""Starts a program in a session of its own, and ends it with everything that it has started.

    start(arguments, ..., mark) ─▶ process ─▶ ProcessTree(process.pid, mark) ─▶ members()
                                     └─ ending(): stop all ─▶ TERM ─ grace ─▶ KILL ─ grace ─▶ nothing is left

Every child of this program starts and ends this way: `child.py` drives it for work and engines, commands
(`tools/builtin/shell.py`) and MCP servers (`tools/mcp/process.py`) read their pipes themselves. `ending` is a generator
of pauses, so that a thread and an event loop can both drive it.

A member is a process of the same group or session, a descendant, a process that was a member before, or one with the
mark of the tree in its environment, which daemons inherit. Not found are a daemon that has wiped its environment, and
a process of another user (`sudo`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from signal import SIGTERM, Signals
from typing import IO, TypeVar

import psutil

T = TypeVar("T")

SIGKILL = Signals.SIGTERM if sys.platform == "win32" else Signals.SIGKILL
"""Windows has no other way to end a process."""

MARK = "SHEPHERD_COMMAND"
"""The environment variable of the marks, one word for each tree: a command may run a Shepherd that runs commands."""
GRACE_S = 2.0
"""From TERM to KILL, and from KILL to giving up."""
STEP_S = 0.02
CLOCK_S = 5.0


def start(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    mark: str = "",
    leads_session: bool = True,
) -> subprocess.Popen[bytes]:
    """A process that leads a session of its own: Ctrl-C in the terminal does not reach it. It inherits three
    descriptors. `env`: all of its environment, to which a mark is added. Raises: `OSError`, `ValueError`.
    """
    if mark:
        env = {**env, MARK: f"{env.get(MARK, '')} {mark}".lstrip()}
    return subprocess.Popen(
        arguments, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0,
        start_new_session=leads_session,
    )  # fmt: skip


def exit_code_of(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code, negative for a signal; None = it still runs.

    The process is left unreaped where the system allows that (see `ProcessTree`).
    """
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll()
    try:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # something else in this program reaps all children
        return process.poll()
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


class ProcessTree:
    """A process that leads a session, and everything that it has started. For one thread at a time.

    The process must not be reaped before `ending` is over: as long as it is there, no other process gets its number,
    and a signal to its group reaches only its own.
    """

    def __init__(self, pid: int, mark: str = "") -> None:
        """`mark`: a word of the variable `MARK` that the process was started with; empty = it has none."""
        self.pid = pid
        self.mark = mark
        self.background: list[str] = []
        """The command lines of the other processes when `ending` began."""
        # Start times count from the start of the system, which moves when the clock is set.
        self._not_before = or_else_gone(lambda: psutil.Process(pid).create_time() - CLOCK_S, 0.0)
        self._seen: set[psutil.Process] = set()

    def ending(self, term_s: float = GRACE_S, kill_s: float = GRACE_S) -> Iterator[float]:
        """End all members: TERM, after `term_s` KILL, and give up after `kill_s`. Yields pauses in seconds, in which
        the caller reads the outputs: a process that cannot write cannot end by itself.
        """
        members = self._suspended()
        self.background = [name_of(each) for each in members if each.pid != self.pid]
        for number, grace_s in ((SIGTERM, term_s), (SIGKILL, kill_s)):
            deadline = time.monotonic() + grace_s
            while members and time.monotonic() < deadline:
                self._send(number, members)
                while any(map(is_alive, members)) and time.monotonic() < deadline:
                    yield STEP_S
                members = self.members()  # with those that were started meanwhile

    def end(self, term_s: float = GRACE_S, kill_s: float = GRACE_S) -> bool:
        """Whether all members have ended. Blocks, while something else reads the outputs."""
        for pause_s in self.ending(term_s, kill_s):
            time.sleep(pause_s)
        return not self.members()

    def kill(self) -> None:
        """KILL to all members, without waiting."""
        if members := self.members():
            self._send(SIGKILL, members)

    def members(self) -> list[psutil.Process]:
        """Those that are alive, also one seen before that has left its group and its parent."""
        young = [
            each
            for each in map(find, psutil.pids())
            if each and or_else_gone(each.create_time, 0.0) >= self._not_before
        ]
        parents = {each.pid: or_else_gone(each.ppid, 0) for each in young}
        found = {each.pid for each in young if each in self._seen or self._is_own(each)}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        members = [each for each in young if each.pid in found and is_alive(each)]
        self._seen.update(members)
        return members

    def is_running(self) -> bool:
        """Whether a member computes, waits for a processor or for a disk; not one that sleeps, or waits for input."""
        states = (or_else_gone(member.status, psutil.STATUS_DEAD) for member in self.members())
        return any(state in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP} for state in states)

    def _suspended(self) -> list[psutil.Process]:
        """All members, suspended: one that is killed while it forks would leave a child that is not found."""
        deadline, seen = time.monotonic() + GRACE_S, set[int]()
        while (fresh := [each for each in self.members() if each.pid not in seen]) and time.monotonic() < deadline:
            for each in fresh:
                or_else_gone(each.suspend, None)
            seen.update(each.pid for each in fresh)
        return self.members()

    def _send(self, number: Signals, members: Sequence[psutil.Process]) -> None:
        if number == SIGKILL and sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)  # all in one call: faster than they can fork
        for each in members:
            or_else_gone(partial(each.send_signal, number), None)
            if number == SIGTERM:
                or_else_gone(each.resume, None)  # a suspended process does not react

    def _is_own(self, process: psutil.Process) -> bool:
        if process.pid == self.pid:
            return True
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                if self.pid in {os.getpgid(process.pid), os.getsid(process.pid)}:
                    return True
        return bool(self.mark) and self.mark in or_else_gone(lambda: process.environ().get(MARK, ""), "").split()


def or_else_gone(question: Callable[[], T], otherwise: T) -> T:
    """The answer about a process; `otherwise` if it has ended meanwhile or belongs to another user."""
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
    return process.is_running() and or_else_gone(process.status, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def name_of(process: psutil.Process) -> str:
    return " ".join(or_else_gone(process.cmdline, []))[:80] or or_else_gone(process.name, f"process {process.pid}")
