"""Stands in for Shepherd in tests: starts two ranks that compute without end, over our `ChildEngine` or a socket of the
tests, and counts Ctrl-C.
"""

import asyncio
import os
import signal
import subprocess
import sys
from array import array
from multiprocessing.connection import Listener
from pathlib import Path

from tests.process.engine.trtllm.group import accept, command

from shepherd.engine.base import Job
from shepherd.engine.trtllm import launch
from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program

UNTIL = "RANKS_TEST_UNTIL"
"""The file that ends the computation."""


def main() -> int:
    planned = launch.plan((1, 2, 1), os.environ.get("RANKS_TEST_WISH", "auto"))  # type: ignore[arg-type] # a test's word
    if "RANKS_TEST_CHILD" in os.environ:
        return asyncio.run(over_child(planned))
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    with (
        Listener(os.environ["RANKS_TEST_ADDRESS"], "AF_UNIX") as listener,
        open(Path(os.environ["RANKS_TEST_ADDRESS"]).parent / "errors", "wb") as errors,
    ):
        process = subprocess.Popen(
            command(planned, float(os.environ.get("RANKS_TEST_LEAVE_S", "60"))), env=planned.environment,
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
        )  # fmt: skip
        connection = accept(listener, process)
        connection.recv()
        if os.environ.get("RANKS_TEST_IDLE"):
            print("idle", flush=True)
            connection.recv()
        connection.send(("session",))
        connection.recv()
        connection.send(("task", "compute", os.environ[UNTIL]))
        print("computing", flush=True)
        while not interrupts and not connection.poll(0.05):
            pass
        print("interrupted", len(interrupts), flush=True)
        print("computed", connection.recv(), flush=True)
        connection.send(("end", 0))
        return process.wait()


async def over_child(planned: launch.Launch) -> int:
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    factory = "tests.process.engine.trtllm.child_factory:make"
    program = Program(planned.command, factory, (2, ""), planned.environment)
    engine = ChildEngine(ModelProcess(program, title="cache 'main'"))
    batches = engine.submit(Job(array("i", [1]), 4000)).batches()
    await anext(batches)
    print("computing", flush=True)
    await interrupted.wait()
    print("interrupted 1", flush=True)
    await anext(batches)
    print("computed [True, True]", flush=True)
    return 0 if engine.close() else 1


if __name__ == "__main__":
    sys.exit(main())
