"""The tests of `tests/unit/cli/test_trust_command.py` that start programs."""

from __future__ import annotations

import os
import sys

import pytest
from tests.unit.cli.conftest import Home
from tests.unit.cli.test_trust_command import (
    clone,  # noqa: F401 - fixtures
    started,
)


@pytest.mark.model
def test_the_file_counts_once_it_is_trusted_and_a_change_is_asked_for_again(clone: Home) -> None:
    done = clone.run("trust")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{clone.folder / 'shepherd.toml'} is trusted now:"
    assert lines[1].startswith("  mcp_servers[0] starts a program, or connects to a server: evil: ")
    assert lines[2].startswith("  tools.files runs Python code: [")
    assert started(clone) == []
    assert clone.run("tools").returncode == 0
    assert started(clone) == ["started", "imported"]
    (clone.folder / "planted.py").write_text("1 / 0")
    assert "changed, will be asked again" in clone.run("trust", "--list").stdout
    assert "is not trusted" in clone.run("mcp", "test").stderr


@pytest.mark.model
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_in_a_terminal_the_question_comes_before_anything_starts_and_only_once(clone: Home) -> None:
    from tests.process.cli.test_terminal import Person

    def asked(answer: str | None) -> str:
        person = Person(clone, "mcp", "test")
        try:
            if answer is not None:
                seen = person.waits_for(r"Trust it\? \[y/N\]: ")
                assert "mcp_servers[0] starts a program" in seen
                assert started(clone) == []
                person.types(answer)
            person.waits_for_the_end()
            return " ".join(person.seen.split())
        finally:
            person.leaves()

    assert "is not trusted" in asked("\n")
    assert started(clone) == []
    asked("y\n")
    assert "started" in started(clone)
    os.unlink(clone.folder.parent / "started")
    assert "Trust it?" not in asked(None)
    assert "started" in started(clone)
