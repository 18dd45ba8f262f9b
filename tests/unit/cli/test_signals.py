"""A signal ends the program in order at any moment."""

import asyncio
import os
import signal

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
