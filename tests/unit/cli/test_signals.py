"""A signal ends the program in order at any moment."""

import asyncio
import os
import signal
from contextlib import ExitStack

import pytest

from shepherd.cli import signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_also_where_somebody_guards_against_leaving_it(number: signal.Signals) -> None:
    tidied: list[str] = []

    async def body() -> None:
        try:
            try:
                os.kill(os.getpid(), number)  # its handler has run when this returns
            except SystemExit:  # as around a tool that calls `sys.exit`
                tidied.append("taken for the tool's")
            await asyncio.Event().wait()
        finally:
            tidied.append("in order")

    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as left:
        signals.run(body())
    assert left.value.code == 128 + number
    assert tidied == ["in order"]
    assert signal.getsignal(number) is before


def test_what_the_program_returns_or_raises_comes_through() -> None:
    async def answer() -> int:
        return 42

    async def stop() -> None:
        raise asyncio.CancelledError

    assert signals.run(answer()) == 42
    with pytest.raises(asyncio.CancelledError):
        signals.run(stop())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_blocks_of_a_command_in_order(number: signal.Signals) -> None:
    tidied: list[int] = []
    before = signal.getsignal(number)

    def command() -> None:
        with signals.in_order(), ExitStack() as stack:
            stack.callback(tidied.append, number)
            os.kill(os.getpid(), number)

    with pytest.raises(SystemExit) as left:
        command()
    assert (left.value.code, tidied) == (128 + number, [number])
    assert signal.getsignal(number) is before


def test_no_signal_ends_a_block_that_holds_them() -> None:
    sent = [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGTERM]
    with signals.held() as came:
        for number in sent:
            os.kill(os.getpid(), number)
    assert came == sent


def test_a_hang_up_that_is_to_be_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.held() as came, signals.in_order():
            os.kill(os.getpid(), signal.SIGHUP)
        assert came == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
