"""The last lines of a terminal: live lines, questions in front of them, and a new width."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.cli.small_terminal import Terminal

from shepherd.cli.terminal.screen import Screen


class Window:
    """A terminal whose size can change, as people change it: rows that are too long then wrap."""

    def __init__(self, width: int = 40, height: int = 10) -> None:
        self.terminal = Terminal(width, height)
        self.console = Console(file=self.terminal, force_terminal=True, width=width, height=height)  # type: ignore[arg-type]  # what a console needs of a file
        self.screen = Screen(self.console)

    @property
    def lines(self) -> list[str]:
        return self.terminal.lines

    def resize(self, width: int) -> None:
        self.console.width = self.terminal.width = width
        rows = [row[at : at + width] for row in self.terminal.rows[:-1] for at in range(0, max(1, len(row)), width)]
        self.terminal.rows = [*rows, []]
        self.terminal.row = len(rows)


def test_who_has_the_front_is_alone_on_the_screen_and_the_rest_comes_behind() -> None:
    window = Window()
    window.screen.update(["above"], ["live"])
    with window.screen.front() as show:
        assert window.lines == ["above"]
        show(["a question"], ["keys"])
        window.screen.update(["finished meanwhile"], ["live again"])
        window.screen.interject("a record of the log")
        assert window.lines == ["above", "a question", "keys"]
        show(["the answer"])
        assert window.lines == ["above", "a question", "the answer"]
    told = ["above", "a question", "the answer", "", "finished meanwhile", "a record of the log", "live again"]
    assert window.lines == told
    window.screen.update(["over"])
    assert window.lines == [*told[:-1], "over"]


def test_what_was_live_comes_back_where_nothing_has_changed_it() -> None:
    window = Window()
    window.screen.update([], ["live"])
    with window.screen.front() as show:
        show(["a question"])
    assert window.lines == ["a question", "", "live"]
    with window.screen.front() as show:
        window.screen.update(["", "a block"])
    assert window.lines == ["a question", "", "", "a block"]


def test_the_front_is_given_back_after_an_error() -> None:
    window = Window()
    try:
        with window.screen.front() as show:
            show([], ["keys"])
            window.screen.update(["meanwhile"])
            raise KeyError
    except KeyError:
        pass
    window.screen.update(["later"])
    assert window.lines == ["", "meanwhile", "later"]


def test_live_lines_of_another_width_do_not_come_back() -> None:
    window = Window(width=20)
    window.screen.update([], ["x" * 20])
    with window.screen.front() as show:
        show(["a question"])
        window.resize(10)
    assert window.lines == ["a question"]


def test_a_narrower_terminal_keeps_nothing_of_the_live_lines() -> None:
    window = Window(width=20)
    window.screen.update(["done"], ["\x1b[31m" + "x" * 20 + "\x1b[0m", "z" * 14])
    window.resize(7)
    window.screen.update([], ["y"])
    assert window.lines == ["done", "y"]


def test_a_live_line_that_is_too_wide_is_taken_away_whole() -> None:
    window = Window(width=10)
    window.screen.update([], ["x" * 25, "y"])
    window.screen.update(["done"])
    assert window.lines == ["done"]


LINES = st.lists(st.text("ab", max_size=9), max_size=4)


@given(st.lists(st.tuples(LINES, LINES), max_size=6))
def test_the_picture_is_what_was_finished_and_the_last_live_lines(updates: list[tuple[list[str], list[str]]]) -> None:
    window = Window(height=30)
    for finished, live in updates:
        window.screen.update(finished, live)
    wanted = [line for finished, _ in updates for line in finished] + (updates[-1][1] if updates else [])
    assert window.lines == wanted


def test_threads_do_not_tear_each_others_lines() -> None:
    window = Window(width=40, height=30)
    names = "abcd"

    def write(name: str) -> None:
        for n in range(50):
            window.screen.interject(f"{name}{n}")
            window.screen.update([], [name * 8])

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    window.screen.update([])
    assert sorted(window.lines) == sorted(f"{name}{n}" for name in names for n in range(50))
