"""The program of every rank in test_ranks.py: rank 0 connects to the test and does what it orders."""

import contextlib
import os
import sys
import time
from multiprocessing.connection import Client
from typing import Any

from shepherd.engine.trtllm.launch import RANK
from shepherd.engine.trtllm.ranks import WRONG_LAUNCH, Ranks, run

ADDRESS = "RANKS_TEST_ADDRESS"
LIBRARY = "tests.process.engine.trtllm.standin"


def host(ranks: Ranks) -> int:
    library = sys.modules[LIBRARY]
    session: Any = None
    with Client(os.environ[ADDRESS], "AF_UNIX") as connection, contextlib.ExitStack() as stack:
        stack.callback(lambda: log("the host ends"))
        connection.send(("ready", os.getpid(), ranks.n_ranks))
        while True:
            try:
                order, *arguments = connection.recv()
            except EOFError:
                return 0
            match order:
                case "end":
                    return int(arguments[0])
                case "exit":
                    raise SystemExit(arguments[0])
                case "raise":
                    raise RuntimeError("rank 0 fails")
                case "die":
                    os._exit(arguments[0])
                case "session":
                    session = ranks.session(library.Session) or library.Pool(2)
                    connection.send("session")
                case "broken session":
                    with contextlib.suppress(ZeroDivisionError):
                        ranks.session(lambda comm, n: 1 // 0)
                    return 0
                case "shutdown":
                    session.shutdown()
                    connection.send("shutdown")
                case "task":
                    name, *values = arguments
                    connection.send([each.result() for each in session.submit(getattr(library, name), *values)])
                case "start":
                    name, *values = arguments
                    session.submit(getattr(library, name), *values)
                    connection.send("started")
                case "sleep":
                    time.sleep(arguments[0])


def log(words: str) -> None:
    os.write(2, f"[rank {os.environ.get(RANK, '0')}] {words}\n".encode())


if __name__ == "__main__":
    status = run(host, library=LIBRARY, leave_s=float(sys.argv[1]))
    if status != WRONG_LAUNCH:
        log(f"leaves with {status}")
    sys.exit(status)
