"""What a new conversation costs when others are there: a short common beginning, nothing in common, a system prompt.

    uv run python -m bench.server.sessions --newcomers [--rounds N] [--before SRC] [--only 0.5B] [--threads 2]

All servers run at once and requests take turns, one server after the other, in changing order: an idle one computes
nothing, and what disturbs the machine disturbs all. What counts is the time to the first token, and the processor time
of the server's threads for a request and for what it tidies up behind it. Ratios are those of pairs: the requests of
one round, one right after the other. *Computed* are the prompt tokens that the server reports as computed. Answers
have one token, which leaves no share to decoding.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.dialogue import SEVEN, text
from bench.rig.sides import MODELS, SIDES, Server, Setup, model_path, running
from bench.rig.traffic import ask
from bench.rig.verdict import WIDTH, Verdict
from rich.console import Console

ROUNDS = {"embedded": 40, "0.5B": 8}
WARM = 3
"""Rounds before those that count: the first one loads pages, templates and the common beginnings."""
N_CTX, SEQUENCES = 4096, 4
SYSTEM, USER = 1500, 60
SETTLE_S = 0.15
"""Both servers tidy up behind an answer."""

Messages = list[dict[str, str]]


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def scenes(rnd: random.Random) -> dict[str, list[Messages]]:
    """By name, the requests of one round; digits, so that their sizes are exact."""
    short, long = said("system", "4" * 17), said("system", text(random.Random(5), SYSTEM))
    chat = [long, said("user", text(rnd, USER))]
    return {
        "short beginning": [[short, said("user", text(rnd, 15))]],
        "first turn of 540": [[said("user", text(rnd, 532))]],
        "new chat, turn 1": [chat],
        "new chat, turn 2": [[*chat, said("assistant", "7"), said("user", text(rnd, USER))]],
    }


def play(servers: dict[str, Server], rounds: int, verdict: Verdict) -> None:
    """All scenes on all servers; each scene by itself, turns 1 and 2 of a chat behind each other."""
    for names in (["short beginning"], ["first turn of 540"], ["new chat, turn 1", "new chat, turn 2"]):
        for round_ in range(WARM + rounds):
            for side in list(servers)[:: 1 if round_ % 2 else -1]:
                made = scenes(random.Random(1000 + round_))
                for name in names:
                    for messages in made[name]:
                        before = servers[side].processor_s
                        reply = ask(servers[side].port, {"messages": messages, "max_tokens": 1, **SEVEN})
                        if reply.status != 200 or reply.error or not reply.times:
                            raise RuntimeError(f"{side}, {name}: status {reply.status}: {reply.error[:300]}")
                        time.sleep(SETTLE_S)
                        if round_ >= WARM:
                            spent = servers[side].processor_s - before
                            verdict.add(f"{name}: computed", side, reply.n_prefilled, unit="tokens")
                            verdict.add(f"{name}: processor", side, spent * 1000)
                            verdict.add(f"{name}: first token", side, reply.ttft_s * 1000)


def main(rounds: int | None, before: Path | None, *, only: str, threads: int, quick: bool) -> None:
    """Measure the models and keep the figures."""
    console = Console(width=WIDTH)
    models = [only] if only else list(ROUNDS)[: 1 if quick else None]
    result: dict[str, Any] = {"threads": threads}
    for model in models:
        n_rounds = 2 if quick else rounds or ROUNDS.get(model, min(ROUNDS.values()))
        setup, verdict = Setup(model_path(model), N_CTX, threads=threads, sequences=SEQUENCES), Verdict()
        with ExitStack() as stack:
            servers: dict[str, Server] = {side: stack.enter_context(running(side, setup)) for side in SIDES}
            if before is not None:
                servers["before"] = stack.enter_context(running("shepherd", replace(setup, source=before)))
            play(servers, n_rounds, verdict)
        verdict.show(console, f"newcomers, {model}, threads: {threads}")
        result[model] = {"rounds": n_rounds, "results": verdict.results()}
    name = "-".join(["newcomers", f"{threads}t", *([only if only in MODELS else Path(only).stem] if only else [])])
    console.print(str(machine.save(name, result, quick=quick)))
