"""The tests of `tests/unit/cli/test_signals.py` that start programs."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys, threading, time
from shepherd.cli import signals

number = signal.Signals[sys.argv[1]]

def send(is_asleep):
    is_asleep.wait()
    time.sleep(0.2)
    os.kill(os.getpid(), number)

async def body():
    is_asleep = threading.Event()
    threading.Thread(target=send, args=[is_asleep], daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})  # after the start: the system gives it to the other thread
    asyncio.get_running_loop().call_soon(is_asleep.set)
    await asyncio.Event().wait()

signals.run(body(), stopped="stopped")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_does_not_interrupt_the_sleep_of_the_loop_ends_the_program_too(name: str) -> None:
    line = [sys.executable, "-c", PROGRAM, name]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (128 + signal.Signals[name], "shepherd: stopped\n")
