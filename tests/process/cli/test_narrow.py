"""On a terminal of 60 or 80 columns nothing breaks inside a word: tables, lists, sentences, all that a chat shows."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.cases import amount
from tests.process.cli.test_terminal import Start, start  # noqa: F401 - fixtures
from tests.process.cli.test_tmux import Opened, opened  # noqa: F401
from tests.unit.cli.test_widths import too_wide, words

from shepherd.cli.chat.commands import COMMANDS

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Home

WIDE = 500
SILENT = {"/exit", "/quit", "/edit", "/continue", "/retry", "/resume", "/rewind"}
"""Commands that end the chat, open an editor or a list, or ask the model."""


@pytest.mark.grid(0.2)
@pytest.mark.model
@pytest.mark.parametrize(
    ("line", "width"),
    [
        *(
            (line, 60)
            for line in ("models list", "models info lamb", "tools show read_file", "doctor", "provider list")
        ),
        *((line, width) for line in ("models suggest", "tools", "nonsense --what") for width in (60, 80)),
    ],
)
def test_no_command_breaks_a_word(home: Home, start: Start, line: str, width: int) -> None:
    done = home.run(*line.split())
    person = start(*line.split(), width=width)
    person.waits_for_the_end()
    shown = person.seen.splitlines()
    assert too_wide(shown, width) == []
    whole = {word.strip(":") for word in words([done.stdout, done.stderr])}
    assert [word for word in words(shown) if word.strip(":") not in whole and not re.search(r"\d", word)] == []


def played(opened: Opened, width: int) -> list[str]:
    """All that a chat shows while a person asks something and looks at everything."""
    looks = [name for name in COMMANDS if name not in SILENT]
    # The tests' own process may have these variables, with the size of another terminal.
    with opened("--temperature", "0", width=width, height=40, COLUMNS=f"{width}", LINES="40") as pane:
        pane.enters("Hello.", r"tokens/s")
        for line in (*(f"/help {name}" for name in COMMANDS), *looks, "/exit"):
            pane.types(line)
            pane.presses("Enter")
        assert pane.waits_for_the_end() == 0
        return pane.shows(history=True).splitlines()


@pytest.mark.model
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_no_command_of_a_chat_breaks_a_word(opened: Opened) -> None:
    whole = set(words(played(opened, WIDE)))
    for width in amount((60,), (60, 80)):
        shown = played(opened, width)
        assert too_wide(shown, width) == []
        assert [word for word in words(shown) if word not in whole and not re.search(r"\d|…|[▕▏░█▓]", word)] == []
