"""A model's file in memory in large pages, before the library maps it. Linux only; other systems do as they do.

A processor reads all weights for each token. In pages of 4 KiB it spends a part of that time finding the pages: a model
of 0.5B in Q8_0 writes 1.2 to 1.4 times as fast from pages of 2 MiB (bench/models/pages.py). Linux keeps a file that it
reads from the disk in large pages, where the file system can (XFS, and ext4 from Linux 6.16 on). A file that a program
has written in pieces, as `cp` or a download does, stays in pages of that size while it is in memory. It is read again.

    in memory? ─no──────────────▶ the library reads it from the disk
        │ yes, in small pages
    a trial of 8 MiB ─no large ones, or slow──▶ stays as it is
        │
    dropped from memory, and read in large pages; what another process has mapped stays
"""

from __future__ import annotations

import ctypes
import functools
import logging
import mmap
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

LEAST_BYTES = 64 << 20
"""A smaller file is in the caches of many processors."""
MOST_S = 10.0
"""Reading a file again may take so long, at the speed of the trial."""
TRIAL_PAGES = 4
_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_HUGE = 14
"""`MADV_HUGEPAGE`."""


def read_in_large_pages(path: Path) -> bool:
    """Read a file again whose pages in memory are small; whether that was done. Any failure leaves it as it is."""
    if sys.platform != "linux":
        return False
    try:
        large = int(_SIZE.read_text())
        with path.open("rb") as file:
            is_read_again = _read_again(file.fileno(), large)
    except (OSError, ValueError) as error:
        logger.debug("the pages of %s stay as they are: %s", path.name, error)
        return False
    if is_read_again:
        logger.info("%s was in memory in small pages, and has been read again in large ones", path.name)
    return is_read_again


def _read_again(file: int, large: int) -> bool:
    facts = os.fstat(file)
    size = facts.st_size
    # Of others' files, the system does not say what is in memory.
    if size < max(LEAST_BYTES, 2 * TRIAL_PAGES * large) or facts.st_uid != os.geteuid():
        return False
    n_held, n_large = _held(file, size, large)
    if n_held < size / 2 or n_large > n_held / 2 or psutil.virtual_memory().available < size:
        return False
    os.fdatasync(file)  # only what is on the disk can leave memory
    part = TRIAL_PAGES * large
    began_s = time.perf_counter()
    n_large = _load(file, size // 2 // large * large, part, large)
    expected_s = (time.perf_counter() - began_s) * size / part
    if n_large < part / 2 or expected_s > MOST_S:
        return False
    _load(file, 0, size, large)
    return True


def _held(file: int, size: int, large: int) -> tuple[int, int]:
    """How many bytes of a file are in memory, and how many of them in large pages, by the first page of each."""
    with _mapped(file, 0, size) as address:
        held = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        if _libc().mincore(address, size, held) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        starts = [at for at in range(0, size - large + 1, large) if held[at // mmap.PAGESIZE] & 1]
        _touch(address, starts)
        return len(starts) * large, _n_large(address)


def _load(file: int, start: int, size: int, large: int) -> int:
    """Drop a part of a file from memory, and read it; how many bytes are in large pages then."""
    os.posix_fadvise(file, start, size, os.POSIX_FADV_DONTNEED)
    with _mapped(file, start, size) as address:
        if _libc().madvise(address, size, _HUGE) != 0:
            raise OSError(ctypes.get_errno(), "madvise")
        _touch(address, range(0, size, large))
        return _n_large(address)


def _touch(address: int, offsets: Iterable[int]) -> None:
    for at in offsets:
        ctypes.c_ubyte.from_address(address + at).value  # noqa: B018 - it is read


def _n_large(address: int) -> int:
    """The bytes of a mapping that are in large pages."""
    is_it = False
    with Path("/proc/self/smaps").open() as lines:
        for line in lines:
            if line.startswith(f"{address:x}-"):
                is_it = True
            elif is_it and line.startswith("FilePmdMapped:"):
                return int(line.split()[1]) << 10
    raise OSError("smaps does not tell of it")


@contextmanager
def _mapped(file: int, start: int, size: int) -> Iterator[int]:
    """The address of a part of a file. Python's own `mmap` does not tell it."""
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file, start)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        yield address
    finally:
        libc.munmap(address, size)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return libc
