"""The tests of `tests/unit/engine/kv/test_tiers.py` that start programs."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import amount


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program that has this module's `snap` and a folder, in a process of its own."""

    def runner(program: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PREAMBLE + program, str(tmp_path)], capture_output=True, text=True, check=True
        )

    return runner


PREAMBLE = """
import logging, os, random, resource, signal, sys, threading
from array import array
from pathlib import Path
from shepherd.engine.base import Memory
from shepherd.engine.kv.tiers import Snapshot, Snapshots, file
PLAIN = Memory(hole=True, rollback="any", share=True, shift=True, checkpoint=False)
MANY = 1 << 20
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
folder = Path(sys.argv[1])

def snap(start, length, size=100):
    tokens = array("i", range(start, start + length))
    return Snapshot(tokens, ((0, length, 0),), (), 0, random.Random(start).randbytes(size), 1.0)

def check(folder, name="model"):
    "Read every file; what is half done must be gone."
    ready = threading.Event()
    store = Snapshots(name, PLAIN, MANY, ram_bytes=1 << 26, folder=folder, disk_bytes=1 << 26, on_ready=ready.set)
    assert store.flush(30)
    assert store.counts.damaged == 0, store.counts
    names = os.listdir(folder)
    assert all(name.endswith(".kv") for name in names), names
    lengths = {}
    for name in names:
        read = file.read(folder / name)
        assert read.state == random.Random(read.tokens[0]).randbytes(len(read.state))
        lengths[read.tokens[0]] = max(lengths.get(read.tokens[0], 0), len(read.tokens))
    store.close()
    return lengths
"""


def test_a_full_disk_is_one_warning_and_leaves_nothing_behind(
    tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = run("""
store = Snapshots("model", PLAIN, MANY, ram_bytes=1 << 24, folder=folder, disk_bytes=1 << 30)
store.put(snap(0, 10))
assert store.flush(30)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for start in range(1000, 9000, 1000):
    store.put(snap(start, 10, 100_000))
assert not store.flush(30)
assert all(store.find(array("i", range(start, start + 10)), holes=True).in_ram for start in range(0, 9000, 1000))
assert (store.counts.written, store.counts.on_disk) == (1, 1)
store.close()
small = Snapshots("model", PLAIN, MANY, ram_bytes=1000, folder=folder, disk_bytes=1 << 30)
small.put(snap(0, 20, 100_000))  # was on its way through
small.flush(30)
assert small.ram_bytes == 0
small.close()
assert list(check(folder)) == [0]
""")
    lines = done.stderr.splitlines()
    assert [line.partition(f" in {tmp_path}: ")[0] for line in lines] == ["WARNING no more conversations are saved"] * 2


def test_killed_after_any_line_nothing_is_broken_and_nothing_flushed_is_lost(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """A child is killed after every few lines that it runs in the package, until it comes to its end."""
    done = run(
        """
package = str(Path(file.__file__).parent)

def life(folder, last, say):
    left = last
    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(package):
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    threading.settrace(trace)
    store = Snapshots("model", PLAIN, MANY, ram_bytes=1 << 20, folder=folder, disk_bytes=1 << 20)
    for length in (5, 10):
        store.put(snap(0, length, 1000))
        assert store.flush(30)
        os.write(say, b"%d " % length)
    os._exit(0)

for last in range(0, 100_000, STEP):
    home = folder / str(last)
    home.mkdir()
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        life(home, last, say)
    os.close(say)
    _, status = os.waitpid(child, 0)
    flushed = os.read(hear, 100).split()
    os.close(hear)
    found = check(home).get(0, 0)
    assert found >= int((flushed or [0])[-1]), (last, flushed, found)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print(last)
""".replace("STEP", str(amount(11, 5)))
    )
    assert done.stderr == ""
    assert int(done.stdout) > 300


WRITER = """
store = Snapshots("model", PLAIN, MANY, ram_bytes=1 << 24, folder=folder, disk_bytes=1 << 24)
for round in range(10_000):
    store.put(snap(1000 * (round % 5), 1 + round // 5, 1 << 20))
    store.flush(30)
    print(round, flush=True)
"""


def test_killed_at_random_moments_nothing_is_broken(
    tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for _ in range(amount(2, 8)):
        with subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(random.randint(1, 6)):
                assert writer.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(random.random() / 50)
            writer.kill()
            assert writer.wait(30) == -signal.SIGKILL
    assert run("check(folder)").stderr == ""


def test_two_processes_in_one_folder_do_not_hurt_each_other(
    tmp_path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    program = """
ready = threading.Event()
chance = random.Random(sys.argv[2])
store = Snapshots("model", PLAIN, MANY, ram_bytes=20_000, folder=folder, disk_bytes=60_000, on_ready=ready.set)
for step in range(150):
    start = 1000 * chance.randrange(8)
    store.put(snap(start, chance.randrange(1, 20), 3000))
    if step % 10 == 0:
        assert store.flush(30)
    found = store.find(array("i", range(start, start + 20)), holes=True)
    if found and not found.in_ram:
        ready.clear()
        store.fetch(found.key)
        assert ready.wait(30)
    if found and (taken := store.take(found.key)):
        assert taken.state == random.Random(taken.tokens[0]).randbytes(3000)
    if step == 75:
        store.clear()
assert store.flush(30)
assert store.counts.damaged == 0
store.close()
"""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + program, str(tmp_path), seed], stderr=subprocess.PIPE, text=True
        )
        for seed in ("one", "two")
    ]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert [(process.returncode, error) for process, error in zip(both, errors, strict=True)] == [(0, "")] * 2
    assert run("print(check(folder))").stderr == ""
