"""Whether a server answers at every moment, and whether a stream of it stands still: seen from a process of its own.

    python -m bench.rig.pulse URL MODEL SERVER_PID CHILD_PID      until its standard input ends; then a line of JSON

    /health every 10 ms ─▶ how long each answer takes          one stream of MODEL after the other ─▶ gaps in it

The benchmarks and the server share a few cores with other work. So beside these times it notes how long the threads in
question have waited for a processor (/proc/PID/task/*/schedstat), and what is longer than it may be without that is
`slow`: the server's main thread, the busiest thread of the child whose stream it is, and this process itself.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import sys
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.rig.traffic import Flight
from bench.rig.verdict import quantile

EVERY_S = 0.01
SAMPLE_S = 0.02
MOST_S = 0.1
"""What neither an answer of /health nor a gap may exceed."""
SILENCE_S = 30.0
PIECES = 400
"""Tokens of one stream."""
TEXT = re.compile(rb'"content": ?"[^"]')
SHOWN = 20
"""Slow ones that are told with their moment."""


class Waits:
    """How long threads have waited for a processor, sampled all the time."""

    def __init__(self, server: int, child: int) -> None:
        self._server, self._child = server, child
        self._times_s: list[float] = []
        self._waited: list[tuple[float, Mapping[str, float], Mapping[str, float]]] = []

    def run(self, ended: threading.Event) -> None:
        main = str(self._server)
        while not ended.wait(SAMPLE_S):
            server = waited(self._server, only=main).get(main, 0.0)
            self.note(time.perf_counter(), server, waited(self._child), waited(os.getpid()))

    def note(self, at_s: float, server: float, child: Mapping[str, float], own: Mapping[str, float]) -> None:
        """Keep a sample: the server's main thread, and the threads of the child and of this process."""
        self._times_s.append(at_s)
        self._waited.append((server, child, own))

    def between(self, start_s: float, stop_s: float, *, with_child: bool) -> float:
        """Seconds that they have waited from just before `start_s` to just behind `stop_s`, one behind the other."""
        if not self._times_s:
            return 0.0
        before = self._waited[max(0, bisect_right(self._times_s, start_s) - 1)]
        after = self._waited[min(len(self._times_s) - 1, bisect_left(self._times_s, stop_s))]
        found = after[0] - before[0] + _most(before[2], after[2])
        return found + (_most(before[1], after[1]) if with_child else 0.0)


def _most(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    return max((seconds - before.get(thread, seconds) for thread, seconds in after.items()), default=0.0)


def waited(pid: int, only: str | None = None) -> dict[str, float]:
    """By thread, the seconds that it was ready to run and did not; empty where the system does not tell."""
    found = {}
    with contextlib.suppress(OSError):
        for thread in [only] if only else os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[thread] = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return found


class Pulse:
    """What is measured of one server."""

    def __init__(self, url: str, model: str, server: int, child: int) -> None:
        self._port = int(url.rsplit(":", 1)[1])
        self._model = model
        self.waits = Waits(server, child)
        self.ended = threading.Event()
        self.failures: list[str] = []
        self.health: tuple[array[float], array[float]] = (array("d"), array("d"))
        """When each answer was asked for, and how many seconds it took."""
        self.gaps: tuple[array[float], array[float]] = (array("d"), array("d"))
        self.firsts_s = array("d")

    def poll(self) -> None:
        """Ask for /health again and again."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SILENCE_S)
        while not self.ended.wait(EVERY_S):
            begun = time.perf_counter()
            try:
                connection.request("GET", "/health")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException) as error:
                if not self.ended.is_set():
                    self._fail(f"/health: {error!r}")
                connection.close()
                continue
            self.health[0].append(begun)
            self.health[1].append(time.perf_counter() - begun)

    def stream(self) -> None:
        """Read one stream after the other."""
        number = 0
        while not self.ended.is_set():
            number += 1
            body = {"model": self._model, "messages": [{"role": "user", "content": f"Tell me of day {number}."}],
                    "stream": True, "max_tokens": PIECES, "temperature": 1, "seed": number,
                    "ignore_eos": True}  # fmt: skip
            try:
                self._follow(Flight(self._port, body, "/v1/chat/completions"))
            except OSError as error:
                if not self.ended.is_set():
                    self._fail(f"the stream: {error!r}")
                    self.ended.wait(1.0)

    def _follow(self, flight: Flight) -> None:
        flight.socket.settimeout(SILENCE_S)
        last, tail = 0.0, b""
        with flight.socket:
            while not flight.landed and not self.ended.is_set():
                flight.receive()
                at, arrived = flight.arrivals.pop()
                tail = (tail + arrived)[-400:]
                if not TEXT.search(arrived):
                    continue
                if last:
                    self.gaps[0].append(last)
                    self.gaps[1].append(at - last)
                else:
                    self.firsts_s.append(at - flight.started)
                last = at
        if b"[DONE]" not in tail and not self.ended.is_set():
            self._fail(f"the stream ends with {tail[-300:]!r}")

    def _fail(self, what: str) -> None:
        if len(self.failures) < SHOWN:
            self.failures.append(what)

    def result(self) -> dict[str, Any]:
        return {
            "health": self._judged(*self.health, with_child=False),
            "gaps": self._judged(*self.gaps, with_child=True) | {"first_ms_p50": _ms(self.firsts_s, 0.5)},
            "failures": self.failures,
        }

    def _judged(self, times: Sequence[float], seconds: Sequence[float], *, with_child: bool) -> dict[str, Any]:
        long = [(at, took) for at, took in zip(times, seconds, strict=True) if took > MOST_S]
        told = [
            {"at_s": round(at - times[0], 2), "ms": round(1000 * took),
             "waited_ms": round(1000 * self.waits.between(at, at + took, with_child=with_child))}
            for at, took in long
        ]  # fmt: skip
        slow = [each for each in told if each["ms"] - each["waited_ms"] > 1000 * MOST_S]
        return {
            "n": len(seconds),
            **{f"ms_p{100 * share:g}": _ms(seconds, share) for share in (0.5, 0.9, 0.99, 0.999)},
            "ms_most": round(1000 * max(seconds, default=0.0), 2),
            "above": len(long),
            "slow": len(slow),
            "told": (slow + [each for each in told if each not in slow])[:SHOWN],
        }


def _ms(seconds: Sequence[float], share: float) -> float:
    return round(1000 * quantile(seconds, share), 2)


def main() -> None:
    url, model, *pids = sys.argv[1:]
    pulse = Pulse(url, model, *map(int, pids))
    work = [threading.Thread(target=pulse.waits.run, args=(pulse.ended,))]
    work += [threading.Thread(target=each) for each in (pulse.poll, pulse.stream)]
    for thread in work:
        thread.start()
    sys.stdin.read()
    pulse.ended.set()
    for thread in work:
        thread.join()
    print(json.dumps(pulse.result()))


if __name__ == "__main__":
    main()
