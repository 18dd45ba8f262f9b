"""The tests of `tests/unit/engine/llamacpp/test_weights.py` that start programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.engine.llamacpp.test_weights import linux

pytestmark = pytest.mark.model

LIMITED = """
import ctypes, logging, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
libc = ctypes.CDLL(None, use_errno=True)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc.capget(header, sets)
sets[0] &= ~(1 << 14)  # CAP_IPC_LOCK: root locks without limits
assert libc.capset(header, sets) == 0
logging.basicConfig(level=logging.WARNING)
from shepherd.engine.llamacpp.weights import Weights
Weights.load(Path(sys.argv[1]), mlock=True, use_extra_bufts=False).close()
"""


@linux
def test_a_system_that_does_not_lock_so_much_is_told_of(lamb: Path) -> None:
    command = (sys.executable, "-c", LIMITED, str(lamb))
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{lamb.name} is not locked in memory as mlock = true asks for: the system allows less" in ended.stderr
