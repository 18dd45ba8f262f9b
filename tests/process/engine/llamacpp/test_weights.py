"""How weights are mapped and locked, in a process that maps and locks nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

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


SEEN = """
import json, re, resource, sys
from pathlib import Path
from shepherd.engine.llamacpp.weights import Weights

def mapped():
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(sys.argv[1])]
    ends = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    return sum(stop - start for start, stop in ends)

def locked():
    return int(re.search(r"VmLck:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

found = []
for asked in json.loads(sys.argv[2]):
    assert mapped() == 0
    before = locked()
    weights = Weights.load(Path(sys.argv[1]), **asked, use_extra_bufts=False)
    found.append((mapped(), locked() - before))
    weights.close()
print(json.dumps(found))
"""


@linux
def test_the_file_is_mapped_and_the_weights_are_locked_as_asked(lamb: Path) -> None:
    import resource  # of POSIX

    n_bytes, allowed = lamb.stat().st_size, resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    is_limited = 0 <= allowed < 2 * n_bytes and os.geteuid() != 0
    asked = [
        {"mmap": mmap, "mlock": mlock} for mmap in (None, True, False) for mlock in (False, True)[: 2 - is_limited]
    ]
    command = (sys.executable, "-c", SEEN, str(lamb), json.dumps(asked))
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for each, (mapped, locked) in zip(asked, found, strict=True):
        assert (mapped > 0.9 * n_bytes) == (each["mmap"] is not False), each
        assert (locked > 0.9 * n_bytes) == each["mlock"], each
    if is_limited:
        pytest.skip(f"this system lets a program lock {allowed:,} bytes only")


@linux
def test_a_system_that_does_not_lock_so_much_is_told_of(lamb: Path) -> None:
    command = (sys.executable, "-c", LIMITED, str(lamb))
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{lamb.name} is not locked in memory as mlock = true asks for: the system allows less" in ended.stderr
