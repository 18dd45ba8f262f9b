"""What a `!command` prints is shown as it comes."""

from __future__ import annotations

from shepherd.cli.chat.shell_command import Shown


def test_lines_that_come_together_are_shown_together_and_each_as_a_terminal_shows_it() -> None:
    told: list[str] = []
    shown = Shown(1024, told.append)
    shown.take(b"y\n" * 1000 + b"half\rwho")
    assert told == ["\n".join("y" * 1000)]
    shown.take(b"le\n\xff\nend")
    assert told[1:] == ["whole\n\ufffd"]
    shown.end()
    assert told[2:] == ["end"]
