"""The tests of `tests/unit/memory/test_users.py` that start programs."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_imports_neither_numpy_nor_sqlite() -> None:
    program = (
        "import sys, shepherd.memory; assert not {'numpy', 'apsw'} & {*sys.modules}; "
        "assert all(getattr(shepherd.memory, name) for name in shepherd.memory.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
