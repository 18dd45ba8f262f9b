"""The tests of `tests/unit/cli/test_signals.py` that start programs.

Each of them gives the signal to another thread, so that it does not interrupt the sleep of the main one: as if it came
just before that.
"""

import signal
import subprocess
import sys

import pytest
from tests.in_time import PATIENCE_S

NAMES = ["SIGINT", "SIGTERM", "SIGHUP"]

HEAD = """
import asyncio, os, signal, sys, threading, time
from shepherd.cli import signals

number = signal.Signals[sys.argv[1]]

def send(is_asleep):
    is_asleep.wait()
    time.sleep(0.2)
    os.kill(os.getpid(), number)

def sends():
    is_asleep = threading.Event()
    threading.Thread(target=send, args=[is_asleep], daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})  # the thread has begun without
    return is_asleep.set
"""
LOOP = """
async def body():
    asyncio.get_running_loop().call_soon(sends())
    await asyncio.Event().wait()

signals.run(body(), stopped="stopped")
"""
WORKER = """
from shepherd.cli.main import main
from shepherd.engine.llamacpp.rpc_worker import Worker

def serve(worker, serve=Worker.serve):
    sends()()
    serve(worker)

Worker.serve = serve
sys.argv[1:] = ["rpc-worker", "--port", "0", "--threads", "1"]
main()
"""


def ending(program: str, name: str) -> tuple[int, str]:
    """The exit status and the errors of a program to which a signal is sent."""
    line = [sys.executable, "-c", HEAD + program, name]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_that_does_not_interrupt_the_sleep_of_the_loop_ends_the_program_too(name: str) -> None:
    assert ending(LOOP, name) == (128 + signal.Signals[name], "shepherd: stopped\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_signal_that_does_not_interrupt_the_sleep_of_an_rpc_worker_ends_it_too(name: str) -> None:
    status, errors = ending(WORKER, name)
    assert (status, "Traceback" in errors) == (0, False), errors
