"""The tests of `tests/unit/cli/terminal/test_live.py` that take long."""

from __future__ import annotations

import pytest
from rich.console import Console

from shepherd.cli.terminal import markdown


@pytest.mark.parametrize(("line", "most"), [("x = 1  # {n}\n", 100), ('"""' + "\n", 100), ("words {n}\n", 1000)])
def test_a_picture_of_a_long_program_costs_no_more_than_one_of_a_short_one(line: str, most: int) -> None:
    opening = "```python\n" + ('"""\n' if most == 1000 else "")  # a string that does not end
    found = markdown.OpenFence.find(opening, Console(width=80, force_terminal=True, color_system="standard"))
    assert found is not None
    fence, rest = found
    fence.feed(rest)
    for n in range(1500):
        fence.feed(line.format(n=n))
        if n % 7 == 0:
            fence.picture()
            assert len(fence._lines) <= most
