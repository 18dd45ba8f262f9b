"""How many processors a process may use: by its affinity, and by the quotas of control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd.engine.llamacpp import machine

V1 = {"quota": "cpu.cfs_quota_us", "period": "cpu.cfs_period_us"}


def groups(folder: Path, own: str, files: dict[str, str]) -> float:
    """The quota for a process with this /proc/self/cgroup, in a tree with these files."""
    for name, text in files.items():
        file = folder / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "tree").mkdir(exist_ok=True)
    (folder / "own").write_text(own)
    return machine._quota(folder / "own", folder / "tree")


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, float("inf")),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "150000 100000\n"}, 0.5),
        ("0::/docker/x\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/../x\n", {"cpu.max": "300000 100000\n"}, 3.0),
        (
            "4:cpu,cpuacct:/d\n",
            {f"cpu,cpuacct/{V1['quota']}": "200000\n", f"cpu,cpuacct/{V1['period']}": "100000"},
            2.0,
        ),
        ("4:cpu,cpuacct:/d\n", {f"cpu/d/{V1['quota']}": "400000\n", f"cpu/d/{V1['period']}": "100000"}, 4.0),
        ("4:cpu,cpuacct:/d\n", {f"cpu/{V1['quota']}": "-1\n", f"cpu/{V1['period']}": "100000"}, float("inf")),
        ("3:memory:/m\n", {"memory/m/cpu.max": "100000 100000"}, float("inf")),
        ("0::/\n", {"cpu.max": "nonsense\n"}, float("inf")),
        ("0::/\n", {"cpu.max": "100000 0\n"}, float("inf")),
        ("0::/\n", {}, float("inf")),
        ("", {"cpu.max": "100000 100000"}, float("inf")),
    ],
)
def test_the_smallest_quota_on_the_way_to_the_root_counts(
    own: str, files: dict[str, str], quota: float, tmp_path: Path
) -> None:
    assert groups(tmp_path, own, files) == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert machine._quota(tmp_path / "none", tmp_path) == float("inf")


def test_a_process_uses_no_processor_that_it_may_not_run_on() -> None:
    assert 1 <= machine.n_processors() <= len(machine.processors()) <= (os.cpu_count() or 1)
