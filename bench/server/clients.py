"""Throughput and the gaps between tokens with 1, 2, 4 and 8 clients, and with one long prompt, against llama-server.

    uv run python -m bench.server.clients [--model 0.5B] [--rounds N] [--quick]

Two parts. *Clients*: all ask at once and read the same number of tokens; tokens/s are those of all of them from the
first request to the last token, prompts included. *A long prompt*: one client reads a stream when another one comes
with a prompt of some thousand tokens; what counts is how long the first one waits between its tokens until the other
one has its first. llama-server prefills up to 2,048 tokens at once; a variant with -b 128 shows what it could do for
the stream.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.rig.dialogue import DRAWN, FREE, SEVEN, spoken, text
from bench.rig.sides import Setup, in_turn, running
from bench.rig.traffic import Flight, Reply, Traffic
from bench.rig.verdict import Options, Verdict, quantile, run
from rich.console import Console

PROMPT_TOKENS = 60
RUNNING = 24
"""Arrivals after which a stream is taken to be running evenly."""
SMALL_BATCH = ("-b", "128", "-ub", "128")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked for."""

    n_ctx: int
    clients: tuple[int, ...]
    answer_tokens: int
    long_prompt: int
    stream_tokens: int
    """Of the stream beside the long prompt: more than a server writes while it reads that."""
    words: bool = False
    """The crowd asks in words, and the model writes what it likes at temperature 1; else it writes sevens."""


SIZES = {
    "0.5B": Size(8192, (1, 2, 4, 8), 48, 4000, 600),
    "embedded": Size(4096, (1, 2, 4, 8), 128, 3000, 900),
}
QUICK = {"0.5B": Size(4096, (1, 4), 12, 600, 100), "embedded": Size(4096, (1, 2, 4, 8), 64, 2000, 900)}


def crowd(port: int, seed: int, n_clients: int, size: Size) -> list[Reply]:
    """The answers of clients that all ask at once."""
    rnd = random.Random(f"{seed} {n_clients}")
    write, sampling = (spoken, FREE) if size.words else (text, DRAWN)
    bodies = [
        {"messages": [{"role": "user", "content": write(rnd, PROMPT_TOKENS)}], "max_tokens": size.answer_tokens,
         "seed": n, **sampling}
        for n in range(n_clients)
    ]  # fmt: skip
    with Traffic(port) as traffic:
        flights = [traffic.send(body) for body in bodies]
        traffic.until(lambda: all(flight.landed for flight in flights))
    return [_checked(flight) for flight in flights]


def stall(port: int, seed: int, size: Size) -> tuple[list[float], float, float]:
    """A stream's gaps while a long prompt is prefilled, that prompt's time to its first token, and the usual gap.

    In ms. A gap that is still open when the prompt has its token counts up to then. A server that lets the prompt wait
    until the stream has ended shows it in the prompt's time.
    """
    rnd = random.Random(seed)
    with Traffic(port) as traffic:
        stream = traffic.send(_body(rnd, PROMPT_TOKENS, size.stream_tokens))
        traffic.until(lambda: len(stream.arrivals) > RUNNING)
        other = traffic.send(_body(rnd, size.long_prompt, 1))
        traffic.until(lambda: other.landed)
    first, long = stream.reply(), _checked(other)
    before = [time for time in first.times if time <= other.started]
    during = [before[-1], *(time for time in first.times if other.started < time < long.times[0])]
    if not stream.landed or first.times[-1] > long.times[0]:
        during.append(long.times[0])
    gaps = [(b - a) * 1000 for a, b in pairwise(during)]
    usual = statistics.median((b - a) * 1000 for a, b in pairwise(before))
    return gaps, long.ttft_s * 1000, usual


def _body(rnd: random.Random, prompt: int, answer: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text(rnd, prompt)}], "max_tokens": answer, **SEVEN}


def _checked(flight: Flight) -> Reply:
    reply = flight.reply()
    if reply.status != 200 or reply.error or not reply.times:
        raise RuntimeError(f"status {reply.status}: {reply.error[:500]}")
    return reply


def note_crowd(verdict: Verdict, side: str, n_clients: int, replies: list[Reply]) -> None:
    gaps = [gap * 1000 for reply in replies for gap in reply.gaps_s]
    took = max(reply.times[-1] for reply in replies) - min(reply.started for reply in replies)
    total = sum(reply.n_generated for reply in replies)
    name = f"{n_clients} client{'s' if n_clients > 1 else ''}"
    verdict.add(f"{name}: all tokens", side, total / took, unit="tokens/s", better="more")
    verdict.add(f"{name}: gap, median", side, statistics.median(gaps))
    verdict.add(f"{name}: gap, 95 %", side, quantile(gaps, 0.95))
    verdict.add(f"{name}: gap, longest", side, max(gaps))
    first = statistics.median(reply.ttft_s * 1000 for reply in replies)
    verdict.add(f"{name}: first token, median", side, first)


def note_stall(verdict: Verdict, name: str, measured: tuple[list[float], float, float]) -> None:
    gaps, first, usual = measured
    verdict.add("long prompt beside: usual gap of the stream", name, usual)
    verdict.add("long prompt beside: gap, median", name, statistics.median(gaps))
    verdict.add("long prompt beside: gap, 99 %", name, quantile(gaps, 0.99))
    verdict.add("long prompt beside: gap, longest", name, max(gaps))
    verdict.add("long prompt beside: its first token", name, first)


def measure(model: str, path: Path, options: Options, console: Console) -> dict[str, Any]:
    """All rounds over one model."""
    size = (QUICK if options.quick else SIZES)[model]
    setup = Setup(path, size.n_ctx, options.threads, sequences=max(size.clients), flash_attn=options.flash_attn)
    verdict = Verdict()
    for round_ in range(options.rounds):
        for side in in_turn(round_):
            console.print(f"{model}, round {round_ + 1}: {side}")
            with running(side, setup) as server:
                crowd(server.port, -1, 1, size)  # warm-up
                for n_clients in size.clients:
                    note_crowd(verdict, side, n_clients, crowd(server.port, round_, n_clients, size))
                note_stall(verdict, side, stall(server.port, round_, size))
        with running("llama-server", replace(setup, llama=SMALL_BATCH)) as server:
            crowd(server.port, -1, 1, size)
            note_stall(verdict, "llama-server -b 128", stall(server.port, round_, size))
    verdict.show(console, f"clients, {model}, {options.threads} thread(s)")
    return {"size": asdict(size), "results": verdict.results()}


if __name__ == "__main__":
    run("clients", __doc__, {"0.5B": 2, "embedded": 5}, measure)
