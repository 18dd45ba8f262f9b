"""The tests of `tests/unit/memory/test_store.py` that start programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shepherd.memory.store import MemoryStore


def test_a_program_that_ends_without_closing_has_written_all(tmp_path: Path) -> None:
    program = (
        "import sys; from shepherd.memory import Entry, MemoryStore; store = MemoryStore(sys.argv[1])\n"
        "for n in range(50): store.submit_archive([Entry('user', f'question {n}')], session=str(n))"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "memory.db"], check=True)
    with MemoryStore(tmp_path / "memory.db") as store:
        assert store.stats().messages == 50
