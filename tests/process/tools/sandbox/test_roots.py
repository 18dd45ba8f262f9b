"""The tests of `tests/unit/tools/sandbox/test_roots.py` that start programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.tools.sandbox.test_roots import roots, top  # noqa: F401 - fixtures

from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.roots import Roots

FLIP = """
import ctypes, sys
swap, (one, other) = ctypes.CDLL(None).renameat2, map(str.encode, sys.argv[1:])
print("go", flush=True)
while swap(-100, one, -100, other, 2) == 0: pass
"""


@contextmanager
def flipping(folder: Path, outside: Path) -> Iterator[None]:
    """A folder and a link to the outside are swapped, in one step each time, as fast as it goes.

    In a process of its own: threads of one interpreter hardly ever get in between two calls of the system.
    """
    link = folder.with_name("link")
    link.symlink_to(outside)
    with subprocess.Popen([sys.executable, "-c", FLIP, str(folder), str(link)], stdout=subprocess.PIPE) as flipper:
        assert flipper.stdout
        flipper.stdout.readline()
        try:
            yield
        finally:
            flipper.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="two names are swapped in one step on Linux only")
def test_a_folder_that_is_swapped_all_the_time_never_lets_a_call_out(top: Path, roots: Roots) -> None:
    (top / "project/src/secret").write_text("inside\n")
    n_read = 0
    with flipping(top / "project/src", top / "outside"):
        for number in range(1000):
            try:
                with roots.find("src/secret") as place:
                    handle = place.folder.open(place.name)
                    content = os.read(handle, 100)
                    os.close(handle)
                    assert content == b"inside\n"
                    n_read += 1
                with roots.find(f"src/new/{number % 3}/x", make=True) as place:
                    place.folder.replace(place.name, b"x")
                with roots.find("src/secret", follow=False) as place:
                    place.folder.unlink(place.name)
                    place.folder.replace(place.name, b"inside\n")
            except ToolError:
                continue
    assert n_read
    assert [(path.name, path.read_text()) for path in (top / "outside").iterdir()] == [("secret", "secret\n")]
