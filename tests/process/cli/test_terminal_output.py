"""What the chat shows in a real terminal beside the answers: instructions of the folder, folds, rewinding, bells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.process.cli.test_terminal import Start, start  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

pytestmark = pytest.mark.model


def test_agents_md_is_asked_for_once_and_stands_in_the_banner(home: Home, start: Start) -> None:
    del home.env["SHEPHERD_TRUST"]
    (home.folder / "AGENTS.md").write_text("Be brief.\n")
    person = start()
    person.waits_for(r"AGENTS.md \(1 line\) is new here(.|\n)*Trust it\?")
    person.types("y")
    person.waits_for(r"AGENTS.md: \d+ tokens")
    person.waits_for("> ")
    person.types("/context\r")
    person.waits_for(r"Of the system prompt, AGENTS.md: \d+ tokens")
    person.waits_for("> ")
    person.types("\x04")
    assert person.waits_for_the_end() == 0
    again = start()
    assert "Trust it?" not in again.waits_for(r"AGENTS.md: \d+ tokens")
    again.waits_for("> ")
    again.types("\x04")
    assert again.waits_for_the_end() == 0
    without = start("--no-agents-file")
    assert "AGENTS.md" not in without.waits_for("> ")
    without.types("\x04")
    assert without.waits_for_the_end() == 0
