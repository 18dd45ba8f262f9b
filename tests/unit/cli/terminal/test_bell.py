"""The bell rings for a person that has been away, once, and in the way of the terminal."""

from __future__ import annotations

import asyncio

import pytest

from shepherd.cli.terminal.bell import Bell, Notify, notification


class Away:
    """A bell with a clock that stands until it is set."""

    def __init__(self, notify: Notify = "bell", after_s: float = 20.0) -> None:
        self.now = 0.0
        self.rung: list[str] = []
        self.bell = Bell(self.rung.append, notify=notify, after_s=after_s, env={}, clock=lambda: self.now)


@pytest.mark.parametrize(("seconds", "rung"), [(19.9, []), (20.0, ["\a"])])
def test_only_a_person_without_a_key_for_long_is_called(seconds: float, rung: list[str]) -> None:
    away = Away()
    away.now = 100.0
    away.bell.touch()
    away.now += seconds
    away.bell.ring("the answer is ready")
    assert away.rung == rung


def test_off_is_off_and_desktop_is_a_notification() -> None:
    for notify, rung in (("off", []), ("desktop", ["\x1b]9;Shepherd: ready\x1b\\"])):
        away = Away(notify, 0.0)  # type: ignore[arg-type]  # a word of the table
        away.bell.ring("ready")
        assert away.rung == rung


async def test_a_question_rings_once_and_its_answer_is_a_key() -> None:
    away = Away()
    away.now = 20.0
    with away.bell.waiting("a question"):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert away.rung == ["\a"]
        away.now = 30.0
    away.now = 49.9
    away.bell.ring("the answer is ready")
    assert away.rung == ["\a"]


async def test_a_question_that_is_answered_at_once_does_not_ring() -> None:
    away = Away(after_s=3600.0)
    with away.bell.waiting("a question"):
        pass
    assert away.rung == []


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"TERM": "xterm-256color"}, "\x1b]9;Shepherd: hi\x1b\\"),
        ({"TERM": "foot-extra"}, "\x1b]777;notify;Shepherd;hi\x1b\\"),
        ({"TERM": "rxvt-unicode"}, "\x1b]777;notify;Shepherd;hi\x1b\\"),
        ({"TERM": "linux"}, "\a"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, "\x1bPtmux;\x1b\x1b]9;Shepherd: hi\x1b\x1b\\\x1b\\"),
    ],
)
def test_a_notification_is_in_the_words_of_the_terminal(env: dict[str, str], code: str) -> None:
    assert notification("hi", env) == code
