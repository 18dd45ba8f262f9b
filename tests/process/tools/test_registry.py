"""The tests of `tests/unit/tools/test_registry.py` that start programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.tools.test_registry import write

from shepherd.tools.registry import (
    OURS,
)


def test_packages_have_their_tools_and_one_that_is_broken_gives_one_warning(tmp_path: Path) -> None:
    packages = {
        "die": ("@tool\ndef roll(sides: int = 6) -> int:\n    return sides\n", "die"),
        "broken": ("import no_such\n", "broken"),
        "rival": ("@tool\ndef set_fact(key: str) -> str:\n    return key\n", "rival:set_fact"),
        "gone": ("", "gone_away"),
    }
    for name, (text, point) in packages.items():
        write(tmp_path, f"{name}.py", f"from shepherd.tools import tool\n{text}")
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        write(tmp_path, f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        write(tmp_path, f"{name}-1.0.dist-info/entry_points.txt", f"[shepherd.tools]\n{name} = {point}\n")
    looked = (
        "from shepherd.tools.registry import Registry\nr = Registry.found()\nimport json\n"
        "print(json.dumps([{t.name: r.group_of(t.name) for t in r.tools()}, r.failures]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", looked],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    groups, failures = json.loads(done.stdout)
    assert (groups["roll"], groups["set_fact"], groups["set_fact_2"]) == ("die", OURS, "rival")
    assert failures == [
        "the tools of the package broken (broken) cannot be used: ModuleNotFoundError: No module named 'no_such'",
        "the tools of the package gone (gone_away) cannot be used: ModuleNotFoundError: No module named 'gone_away'",
    ]
    assert done.stderr.splitlines() == [
        failures[0],
        failures[1],
        "the tool 'set_fact' of rival gets the name 'set_fact_2': shepherd has a tool of that name",
    ]
