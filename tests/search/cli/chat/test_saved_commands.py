"""The tests of `tests/unit/cli/chat/test_saved_commands.py` that take long."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home
from tests.unit.cli.chat.test_saved_commands import FLAGS, folder

pytestmark = pytest.mark.model


def test_a_conversation_goes_on_in_other_processes_with_and_without_a_terminal(home: Home) -> None:
    home.run_apart(*FLAGS, raw=b"My name is Ann.\n/save talk\n")
    home.run(*FLAGS, text="My name is Eve.\n/save other\n")
    apart = home.run_apart(*FLAGS, "--resume", "talk", "-p", "What is my name?")
    assert (apart.returncode, apart.stderr) == (0, b"")
    assert b"Ann" in apart.stdout
    done = home.run(*FLAGS, "--continue", "--json", "-p", "What is my name?")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = "".join(event["text"] for event in events if event["event"] == "text")
    assert "Ann" in said, "the last one that was written is the newest"
    assert events[-1]["event"] == "finished"
    done = home.run(*FLAGS, "--resume", "tal", text="/export talk.jsonl\n/load\n")
    assert "Continuing talk: 6 messages." in done.stdout
    rows = [json.loads(line) for line in (home.folder / "talk.jsonl").read_text().splitlines()]
    assert [row["role"] for row in rows] == ["user", "assistant"] * 3
    assert {file.stem for file in folder(home).iterdir()} == {"talk", "other"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder(home).iterdir())
