"""The machine as a computation sees it: the processors that it may use, and an id for results that hold here only."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CONTROLLED = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")


def processors() -> tuple[int, ...]:
    """The numbers of the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def n_processors() -> int:
    """How many processors this process may keep busy: those it may run on, or fewer by the quota of its container."""
    return max(1, int(min(len(processors()), _quota())))


def hardware() -> str:
    """A short id of this machine, beside its processor, which the id of the build covers: cores, those of them that
    may be used, memory, cards."""
    import psutil  # noqa: PLC0415 - only needed here

    from shepherd.engine.llamacpp.library import devices  # noqa: PLC0415 - loads the native library

    cores = (psutil.cpu_count(logical=False), psutil.cpu_count(), n_processors())
    facts = (*cores, psutil.virtual_memory().total >> 28, devices())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


def _quota(groups: Path = _GROUPS, root: Path = _CONTROLLED) -> float:
    """Processors' worth of time that the control groups of this process leave to it; infinite without a limit."""
    return min(_limits(groups, root), default=float("inf"))


def _limits(groups: Path, root: Path) -> Iterator[float]:
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, own = line.split(":", 2)
        old = "cpu" in controllers.split(",")  # version 1 has a tree for each controller
        if controllers and not old:
            continue
        tree = root / controllers if old and (root / controllers).is_dir() else root / "cpu" if old else root
        # Within a container, its own path may lead nowhere: there the root is its own group.
        path = PurePosixPath(own.lstrip("/"))
        for group in (path, *path.parents):
            yield from _limit(tree / group, old=old)


def _limit(group: Path, *, old: bool) -> Iterator[float]:
    try:
        if old:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        else:
            quota, period = (group / "cpu.max").read_text().split()
        if quota not in {"max", "-1"}:
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
