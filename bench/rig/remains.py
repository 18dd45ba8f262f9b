"""What a program and all that it has started hold on this machine, and leave behind: processes, zombies, shared memory,
temporary files.

    MARK=word in a program's environment ─ inherited ─▶ marked(word)        Held.of(process, folder), now and later

Of Linux's /proc and /dev/shm alone; a process of another user counts as none.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "BENCH_MARK"
"""The variable that a program and all that it has started have in their environment."""
SHARED = Path("/dev/shm")
_MAPPED = re.compile(r" (\d+) +/(memfd:.*|dev/shm/.*)$", re.MULTILINE)
"""The number and the name of what is mapped without a file on a disk."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds at one moment."""

    rss: int
    handles: int
    threads: int
    memory_files: int
    """Anonymous files in memory (memfd), open or mapped."""
    shared: int
    """Files in /dev/shm that it has open or mapped."""
    files: int
    """In the folder of its temporary files."""

    @classmethod
    def of(cls, process: psutil.Process, folder: Path) -> Held:
        """Raises: `psutil.Error` when it has ended."""
        in_memory = _in_memory(process.pid)
        return cls(
            process.memory_info().rss, process.num_fds(), process.num_threads(),
            sum(name.startswith("memfd:") for _, name in in_memory),
            sum(name.startswith("dev/shm/") for _, name in in_memory),
            sum(1 for _ in folder.rglob("*")),
        )  # fmt: skip


def marked(word: str) -> list[psutil.Process]:
    """The processes that have this word as their mark and run; neither zombies nor this process."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            is_marked = process.pid != os.getpid() and process.environ().get(MARK) == word
            if is_marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def zombies(process: psutil.Process) -> set[psutil.Process]:
    """What it and its descendants have started, and not taken notice of that it has ended; a stopped one cannot."""
    found = set()
    with contextlib.suppress(psutil.Error):
        for each in process.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                parent = each.parent()
                is_stopped = parent is not None and parent.status() == psutil.STATUS_STOPPED
                if each.status() == psutil.STATUS_ZOMBIE and not is_stopped:
                    found.add(each)
    return found


def shared_names() -> set[str]:
    """The names in /dev/shm; the memory behind them stays until they are removed."""
    return {each.name for each in SHARED.iterdir()} if SHARED.is_dir() else set()


def orphaned(names: set[str]) -> set[str]:
    """Those of names in /dev/shm that no process has open or mapped."""
    left = names & shared_names()
    for pid in psutil.pids() if left else ():
        left -= {name.removeprefix("dev/shm/") for _, name in _in_memory(pid)}
    return left


def _in_memory(pid: int) -> set[tuple[str, str]]:
    """The number and the name of each file in memory that a process has open or mapped; as far as it may be seen."""
    found: set[tuple[str, str]] = set()
    with contextlib.suppress(OSError):
        found.update(_MAPPED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    with contextlib.suppress(OSError):
        for handle in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                name = os.readlink(handle.path).removeprefix("/")
                if name.startswith(("memfd:", "dev/shm/")):
                    found.add((str(os.stat(handle.path).st_ino), name))
    return found
