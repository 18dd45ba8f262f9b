"""The tests of `tests/unit/test_suite_of_llama.py` that start programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.in_time import becomes_true
from tests.places import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal for a closed socket")
def test_a_forked_server_ends_with_the_client_that_asked_for_it(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; from suites.fork_server import serve\n"
        "def main(words):\n    open(words[0], 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
        "serve(sys.argv[1], main)"
    )
    place, note = tmp_path / "socket", tmp_path / "pid"
    server = subprocess.Popen([sys.executable, "-c", script, str(place)], cwd=ROOT)
    try:
        assert becomes_true(place.exists)
        client = subprocess.Popen([sys.executable, "-S", str(ROOT / "suites" / "fork_server.py"), place, str(note)])
        assert becomes_true(lambda: note.exists() and note.read_text() != "")
        child = int(note.read_text())
        assert _runs(child)
        client.kill()
        client.wait()
        assert becomes_true(lambda: not _runs(child))
    finally:
        server.kill()
        server.wait()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
