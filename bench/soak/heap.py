"""What a process has allocated, as it knows itself: apart from what its allocators keep for later.

    watch(file), in the server ─▶ {"in use": bytes, "blocks": n, "tasks": n} every second ─▶ read(file), in the soak

A process that holds more and more memory from the system may leak, or its heap may have holes. `in use` rises in the
first case only: the bytes that glibc's malloc has given out (mallinfo2(3): heaps and mapped blocks). Python's small
objects are not among them: `blocks` counts those; `tasks` counts asyncio's. Standard library only, since it runs in the
server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

EVERY_S = 1.0
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def allocated() -> dict[str, int]:
    """What this process has allocated now; without glibc the blocks of Python alone."""
    found = {"blocks": sys.getallocatedblocks(), "tasks": n_tasks()}
    with contextlib.suppress(AttributeError, OSError):
        mallinfo2 = ctypes.CDLL(None).mallinfo2
        mallinfo2.restype = _MallInfo2
        info = mallinfo2()
        found["in use"] = int(info.uordblks + info.hblkhd)
    return found


def n_tasks() -> int:
    """Tasks of all event loops, ended ones that something still holds included; asked from another thread."""
    known: Any = getattr(asyncio.tasks, "_scheduled_tasks", None) or getattr(asyncio.tasks, "_all_tasks", ())
    return len(known)


def watch(file: str) -> None:
    """Write what this process has allocated to a file, again and again, from a thread of its own."""

    def write() -> None:
        while True:
            with contextlib.suppress(OSError):
                Path(f"{file}.new").write_text(json.dumps(allocated()))
                os.replace(f"{file}.new", file)
            time.sleep(EVERY_S)

    threading.Thread(target=write, name="soak-heap", daemon=True).start()


def read(file: Path) -> dict[str, float]:
    """What a process has written last; empty before the first time."""
    try:
        return {name: float(level) for name, level in json.loads(file.read_text()).items()}
    except (OSError, ValueError):
        return {}
