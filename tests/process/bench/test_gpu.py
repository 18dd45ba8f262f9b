"""`bench.gpu.run` as a person starts it: what cannot go on is a sentence, a stamp and a line of the table."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from bench.gpu import plan, run
from tests.in_time import becomes_true
from tests.places import ROOT

SH = "trap '' TERM; sleep 1000 & echo started; wait"


def started(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.gpu.run", "--cpu", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str | Path, ...]:
    """Options for a pack of two empty archives, for another Python than this one."""
    pack = tmp_path / "pack"
    pack.mkdir()
    sums = {name: hashlib.sha256(b"").hexdigest() for name in (run.SOURCE, run.SITE)}
    for name in sums:
        (pack / name).touch()
    (pack / run.CONTENTS).write_text(json.dumps({"python": [3, 1], "key": "a key", "sha256": sums}))
    return ("--pack", pack, "--work", tmp_path / "work")


def test_without_a_pack_a_run_says_how_one_is_made(tmp_path: Path) -> None:
    done = started("--pack", tmp_path, "--work", tmp_path / "work")
    assert done.returncode == 1
    assert "make it on a machine with a network, with `python -m bench.gpu.pack`" in done.stderr
    assert not (tmp_path / "work").exists()


def test_a_machine_that_lacks_something_ends_the_run_before_anything_is_unpacked(
    folders: tuple[str | Path, ...], tmp_path: Path
) -> None:
    done = started(*folders, "--results", tmp_path / "results")
    assert (done.returncode, done.stderr) == (1, "")
    assert "== facts" in done.stdout
    assert "== unpack" not in done.stdout
    stamps = plan.read(tmp_path / "work" / "steps")
    assert [stamp.state for stamp in stamps.values()] == ["failed"]
    assert "the packages in the carried archive are for Python 3.1" in stamps["facts"].why
    assert {path.name for path in (tmp_path / "results").iterdir()} >= {"table.txt", "logs.tar.gz"}


def test_a_torn_archive_is_a_sentence(folders: tuple[str | Path, ...], tmp_path: Path) -> None:
    be_done(tmp_path, "facts")
    (tmp_path / "pack" / run.SITE).write_text("torn")
    done = started(*folders, "--step", "unpack")
    assert (done.returncode, done.stderr) == (1, "")
    assert "site.tar.xz is not the file that was packed: copy it again" in done.stdout


def test_a_step_without_time_is_left_out_and_one_that_fails_shows_its_last_line(
    folders: tuple[str | Path, ...], tmp_path: Path
) -> None:
    be_done(tmp_path, "facts", "unpack")
    late = started(*folders, "--step", "build", "--minutes", "1")
    assert late.returncode == 0
    assert "it may take 1500 s, and 60 of 60 s are left" in late.stdout
    gone = started(*folders, "--step", "build")
    assert gone.returncode == 1
    assert "python is gone: run the step unpack again" in gone.stdout
    (tmp_path / "work" / "env" / "bin").mkdir(parents=True)
    (tmp_path / "work" / "env" / "bin" / "python").symlink_to(sys.executable)  # without the packages
    failed = started(*folders, "--step", "build")
    assert failed.returncode == 1
    assert "it ended with status 1: ModuleNotFoundError" in plan.read(tmp_path / "work" / "steps")["build"].why


def be_done(folder: Path, *names: str) -> None:
    for name in names:
        plan.write(folder / "work" / "steps", name, plan.Stamp("done", 0, "a key"))


def test_what_a_step_has_started_ends_with_it_although_it_will_not() -> None:
    with subprocess.Popen(["sh", "-c", SH], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        run.end(child, grace_s=0.1)
        # What was killed ends when the system comes to it.
        assert becomes_true(lambda: _members(child.pid) == []), _members(child.pid)


def _members(group: int) -> list[psutil.Process]:
    alive = (each for each in psutil.process_iter(["status"]) if each.info["status"] != psutil.STATUS_ZOMBIE)
    return [each for each in alive if _group(each.pid) == group]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
