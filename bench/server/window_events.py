"""What it costs to look: decode speed with 0, 1 and 4 listeners at `/v1/window/events`, in turn in one run.

    uv run python -m bench.server.window_events [--rounds 12] [--tokens 400] [--model EMBEDDED]

One server, one answer at a time. Each round asks once with each number of listeners, in changing order, so that a round
compares seconds next to each other. *wall*: tokens/s of the decode, as `/v1/caches` has them. *work*: processor time of
the server for each token. Neighbours on the machine make it larger, by half at times, and never smaller: so its lower
quartiles are compared, not its medians. Ratios above 1 mean that looking costs.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx2
from bench.rig import machine
from bench.rig.machine import EMBEDDED
from bench.rig.sides import Server, Setup, running

LISTENERS = (0, 1, 4)
TIMEOUT_S = 300.0


@dataclass
class Measured:
    wall: list[float] = field(default_factory=list)
    """Tokens per second."""
    work: list[float] = field(default_factory=list)
    """Microseconds of processor time for each token."""


@contextlib.contextmanager
def listening(base: str, n: int) -> Iterator[list[int]]:
    """`n` clients that read all events; how many bytes each has read so far."""
    read, begun = [0] * n, [threading.Event() for _ in range(n)]
    client = httpx2.Client(base_url=base, timeout=TIMEOUT_S)

    def follow(at: int) -> None:
        with contextlib.suppress(httpx2.HTTPError), client.stream("GET", "/v1/window/events") as answer:
            for piece in answer.iter_bytes():
                read[at] += len(piece)
                begun[at].set()
                if is_over.is_set():
                    return

    is_over = threading.Event()
    threads = [threading.Thread(target=follow, args=(at,), daemon=True) for at in range(n)]
    for thread, each in zip(threads, begun, strict=False):
        thread.start()
        each.wait(TIMEOUT_S)
    try:
        yield read
    finally:
        is_over.set()
        for thread in threads:
            thread.join(TIMEOUT_S)  # a ping, or the figures, end its wait
        client.close()


def asked(client: httpx2.Client, server: Server, n_tokens: int, seed: int) -> tuple[float, float]:
    """Tokens per second of one answer, and microseconds of processor time for each token."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": f"Count on from {seed}."}], "max_tokens": n_tokens,
        "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    headers = {"x-session-id": "measured"}
    before_s = server.processor_s
    client.post("/v1/chat/completions", json=body, headers=headers).raise_for_status()
    spent_s = server.processor_s - before_s
    (cache,) = client.get("/v1/caches").json()["caches"].values()
    sequence = next(each for each in cache["sequences"] if each["session"] == "measured")
    return sequence["tokens_per_s"], spent_s * 1e6 / sequence["generated"]


def measured(model: Path, rounds: int, n_tokens: int) -> dict[int, Measured]:
    found = {n: Measured() for n in LISTENERS}
    with running("shepherd", Setup(model, 4096)) as server:
        base = f"http://127.0.0.1:{server.port}"
        with httpx2.Client(base_url=base, timeout=TIMEOUT_S) as client:
            asked(client, server, n_tokens, 0)
            for number in range(rounds):
                for at in range(len(LISTENERS)):
                    n = LISTENERS[(at + number) % len(LISTENERS)]
                    with listening(base, n):
                        wall, work = asked(client, server, n_tokens, number)
                    found[n].wall.append(wall)
                    found[n].work.append(work)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    options = parser.parse_args()
    found = measured(options.model, options.rounds, options.tokens)
    result: dict[str, Any] = {"rounds": options.rounds, "tokens": options.tokens, "model": options.model.name}
    for n, each in found.items():
        wall = median(a / b for a, b in zip(found[0].wall, each.wall, strict=True))
        least, without = (quantiles(of, n=4)[0] for of in (each.work, found[0].work))
        row = {"tokens_per_s": median(each.wall), "us_per_token": least, "wall": wall, "work": least / without}
        result[f"{n} listeners"] = {name: round(value, 4) for name, value in row.items()}
        print(f"{n} listeners: {result[f'{n} listeners']}")
    print(machine.save("window_events", result))


if __name__ == "__main__":
    main()
