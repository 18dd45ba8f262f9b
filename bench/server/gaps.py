"""The gaps between streamed pieces, ours, llama-server's and those of an earlier commit, in turn request by request.

    uv run python -m bench.server.gaps [--rounds 20] [--clients 1,2,4] [--before FOLDER] [--realtime]
                                 [--model 0.5B] [--threads 2] [--in-process]
    uv run python -m bench.server.gaps --words --model SmolLM2-135M-Instruct.Q4_1.gguf --clients 1,2,4,8

All servers run on the same model, one is asked at a time: clients that ask at once and read 128 tokens each, as in
`clients.py`, with a prompt that no server has seen. `--words`: the model writes what it likes at temperature 1; else it
writes sevens, a piece each. Ratios of a round compare runs of the same second, which a machine with neighbours allows.
`--before`: the `src` of another checkout. `--in-process`: our model computes in the server's own process, not in a
child as by default. `--realtime` (Linux, as root): the server that is
asked and the client run before all other processes meanwhile; otherwise a full machine measures its own scheduler.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.rig import machine
from bench.rig.sides import MODELS, SIDES, Server, Setup, model_path, running
from bench.rig.verdict import WIDTH, Verdict, quantile
from bench.server.clients import SIZES, Size, crowd, note_crowd
from rich.console import Console

Crowd = tuple[int, int, Size]
"""Seed, number of clients, and what each asks for."""
REST_S = 0.3
"""Between two measurements: Linux stops real-time threads that take 95 % of a processor's second."""
MOVE_S = 0.4
"""Between two processors."""


@contextlib.contextmanager
def realtime(server: Server, computes: int) -> Iterator[None]:
    """For the length of the block the threads of this server and of the client run before all other processes. The one
    that `computes` runs behind the others, which need little, and changes the processor before Linux stops it."""
    tasks = [*server.spent_ns(), *(int(task.name) for task in Path("/proc/self/task").iterdir())]
    allowed = os.sched_getaffinity(computes)
    is_over = threading.Event()

    def move() -> None:
        for processor in itertools.cycle(allowed):
            os.sched_setaffinity(computes, {processor})
            if is_over.wait(MOVE_S):
                return

    mover = threading.Thread(target=move)
    try:
        for task in tasks:
            _schedule(task, os.SCHED_FIFO, 1 if task == computes else 2)
        mover.start()
        yield
    finally:
        is_over.set()
        mover.join()
        for task in tasks:
            _schedule(task, os.SCHED_OTHER, 0)
        os.sched_setaffinity(computes, allowed)


def _schedule(task: int, policy: int, priority: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # the thread has ended
        os.sched_setscheduler(task, policy, os.sched_param(priority))


def warmed_up(server: Server, size: Size) -> int:
    """The thread that has computed most of a first crowd."""
    before = server.spent_ns()
    crowd(server.port, -1, 1, size)
    return max((spent - before.get(task, 0), task) for task, spent in server.spent_ns().items())[1]


def note(verdict: Verdict, side: str, server: Server, crowd_of: Crowd, *, computes: int | None) -> None:
    """Measure one crowd of one server. `computes`: the thread that does, if the server has priority."""
    before_s = server.processor_s
    with contextlib.nullcontext() if computes is None else realtime(server, computes):
        replies = crowd(server.port, *crowd_of)
    cpu_s = server.processor_s - before_s
    time.sleep(REST_S)
    n_clients = len(replies)
    note_crowd(verdict, side, n_clients, replies)
    name = f"{n_clients} client{'s' if n_clients > 1 else ''}"
    gaps = [gap * 1000 for reply in replies for gap in reply.gaps_s]
    verdict.add(f"{name}: gap, 99 %", side, quantile(gaps, 0.99))
    verdict.add(f"{name}: processor per token", side, cpu_s * 1000 / sum(reply.n_generated for reply in replies))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", default="1,2,4")
    parser.add_argument("--before", type=Path, help="the src of another checkout")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--words", action="store_true", help="the model's own words at temperature 1")
    parser.add_argument("--model", default="embedded", help=f"{', '.join(MODELS)}, or a GGUF file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--in-process", action="store_true")
    options = parser.parse_args()
    size = replace(SIZES.get(options.model, SIZES["embedded"]), words=options.words)
    clients = [int(n) for n in options.clients.split(",")]
    console = Console(width=WIDTH)
    verdict = Verdict()
    ours = {"isolate": not options.in_process}
    setup = Setup(model_path(options.model), size.n_ctx, threads=options.threads, sequences=max(clients), ours=ours)
    with contextlib.ExitStack() as stack:
        named: dict[str, Server] = {side: stack.enter_context(running(side, setup)) for side in SIDES}
        if options.before:
            named["before"] = stack.enter_context(running("shepherd", replace(setup, source=options.before)))
        computing = {side: warmed_up(server, size) for side, server in named.items()}
        if options.realtime:
            for (
                side,
                server,
            ) in named.items():  # what a server has learnt of the machine's speed, it has from a busy one
                with realtime(server, computing[side]):
                    crowd(server.port, -2, max(clients), size)
        for round_ in range(options.rounds):
            for n in clients:
                for side in list(named) if round_ % 2 == 0 else reversed(named):
                    computes = computing[side] if options.realtime else None
                    note(verdict, side, named[side], (round_, n, size), computes=computes)
    name = options.model if options.model in MODELS else Path(options.model).stem
    verdict.show(console, f"gaps between pieces, {name} model, threads: {options.threads}")
    chosen = {"realtime": options.realtime, "words": options.words, "rounds": options.rounds, **ours}
    where = "-in-process" if options.in_process else ""
    saved = machine.save(f"gaps-{options.threads}t-{name}{where}", {**chosen, "results": verdict.results()})
    console.print(f"written to {saved}")


if __name__ == "__main__":
    main()
