"""What branches of a conversation cost: edits, retries, side requests, sub-agents, new chats, a restart.

    uv run python -m bench.server.sessions --branches [--rounds N] [--before SRC]

One client plays the same session to each server, over HTTP: eight turns behind a system prompt of 6,005 tokens, then
the branches, and after each of them the conversation goes on. The models have random weights: two hybrids, whose state
cannot be cut back (gated delta nets as in Qwen3.5; Mamba2 beside attention), and a dense one. *New* are the tokens of
a request that no request before it had computed as a part of the same beginning; the client counts them. *Processor* is
the time that the server's process computed for a request; neighbours of the machine disturb it less than a first token.
Afterwards every prompt is answered again at temperature 0, in the same order, by one warm cache and by one that is
cleared before each request: the answers must be equal. (Plain turns in a row are left out of this comparison.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
from bench.rig import machine
from bench.rig.dialogue import SEVEN, text
from bench.rig.sides import Server, Setup, Side, in_turn, running
from bench.rig.traffic import ask
from bench.rig.verdict import WIDTH, Verdict
from rich.console import Console
from tests.recorded_sessions import playing, write_model

KINDS = {"delta": "gated delta nets, hybrid", "mamba2": "Mamba2 hybrid", "plain": "dense"}
SYSTEM, USER, ANSWER, TURNS = 6005, 60, 8, 8
N_CTX, N_VOCAB, SEQUENCES = 24_576, 32_000, 4
Messages = list[dict[str, str]]


@dataclass
class Step:
    """One request of the session: the kind of branch, its messages, and what is new in it."""

    kind: str
    messages: Messages
    n_new: int


def length(messages: Messages) -> int:
    """Tokens of messages in our template; the vocabulary has no words, so that each byte of a role is a token."""
    return sum(len(one["role"]) + len(one["content"]) + (6 if one["role"] == "system" else 4) for one in messages)


HEAD = len("assistant") + 2
"""Tokens of the head of an answer."""
LAST = 3
"""Of an answer: its last token is drawn but not decoded, and the template closes it with two more."""


@dataclass
class Session:
    """Makes the requests one after the other; answers are sevens, on every server."""

    random: random.Random
    system: dict[str, str] = field(init=False)
    main: Messages = field(init=False)

    def __post_init__(self) -> None:
        self.system = {"role": "system", "content": text(self.random, SYSTEM)}
        self.main = [self.system]

    def question(self, n: int = USER) -> dict[str, str]:
        return {"role": "user", "content": text(self.random, n)}

    def turns(self, kind: str, chat: Messages, n: int) -> Iterator[Step]:
        """The next turns of a conversation, all of which has been computed but for the end of its last answer."""
        for _ in range(n):
            chat.append(self.question())
            new = length(chat[-1:]) + HEAD
            is_first = len(chat) == 2
            yield Step(
                kind, list(chat), new + (length(chat[:1]) if is_first and kind == "cold" else 0 if is_first else LAST)
            )
            chat.append({"role": "assistant", "content": "7" * ANSWER})
            kind = "turn" if kind == "cold" else kind

    def branch(self, kind: str, n_shared: int, n: int = USER) -> Step:
        """Another question behind the first `n_shared` messages."""
        question = self.question(n)
        return Step(kind, [*self.main[:n_shared], question], length([question]) + HEAD)

    def steps(self) -> Iterator[Step]:
        """The session up to the restart."""
        main = self.main
        yield from self.turns("cold", main, TURNS)
        yield Step("retry", main[:-1], HEAD)
        yield from self.turns("goes on", main, 1)
        yield self.branch("edit last", len(main) - 2)
        yield from self.turns("goes on", main, 1)
        yield self.branch("edit earlier", 7)
        yield from self.turns("goes on", main, 1)
        side: Messages = [{"role": "system", "content": text(self.random, 200)}, self.question(300)]
        yield Step("side request", side, length(side) + HEAD)
        yield from self.turns("goes on", main, 1)
        for _ in range(2):
            yield from self.turns("sub-agent", [self.system], 3)
            yield from self.turns("goes on", main, 1)
        for _ in range(3):
            yield from self.turns("new chat", [self.system], 2)
        yield from self.turns("goes on", main, 1)

    def after_restart(self) -> Iterator[Step]:
        yield from self.turns("restart, goes on", self.main, 1)
        yield from self.turns("restart, new chat", [self.system], 1)


def play(server: Server, steps: Iterator[Step], side: str, verdict: Verdict, seen: list[Step]) -> None:
    """Play steps to a server, one after the other, and note each kind's tokens and times."""
    tokens: dict[str, list[int]] = {}
    times: dict[str, list[float]] = {}
    work: dict[str, list[float]] = {}
    new: dict[str, int] = {}
    for step in steps:
        before = server.processor_s
        reply = ask(server.port, {"messages": step.messages, "max_tokens": ANSWER, **SEVEN})
        if reply.status != 200 or reply.error or not reply.times:
            raise RuntimeError(f"{side}, {step.kind}: status {reply.status}: {reply.error[:300]}")
        assert reply.n_prompt == length(step.messages) + HEAD, (reply.n_prompt, length(step.messages) + HEAD)
        tokens.setdefault(step.kind, []).append(reply.n_prefilled)
        times.setdefault(step.kind, []).append(reply.ttft_s * 1000)
        new[step.kind] = new.get(step.kind, 0) + step.n_new
        seen.append(step)
        time.sleep(0.1)  # both servers tidy up behind an answer
        work.setdefault(step.kind, []).append((server.processor_s - before) * 1000)
    for kind, computed in tokens.items():
        verdict.add(f"{kind}: new", side, new[kind], unit="tokens")
        verdict.add(f"{kind}: computed", side, sum(computed), unit="tokens")
        verdict.add(f"{kind}: first token, median", side, statistics.median(times[kind]))
        verdict.add(f"{kind}: processor, mean", side, statistics.mean(work[kind]))


def session(side: Side, name: str, setup: Setup, seed: int, verdict: Verdict) -> list[Step]:
    """The whole session on one server."""
    made, seen = Session(random.Random(seed)), list[Step]()
    with running(side, setup) as server:
        play(server, made.steps(), name, verdict, seen)
    return seen


def slots(server: Server, action: str) -> None:
    """What llama-server's client has to do around a restart, for every slot: it cannot know what is in which."""
    for slot in range(SEQUENCES):
        with contextlib.suppress(RuntimeError):  # an empty one has no file
            server.post(f"/slots/{slot}?action={action}", {"filename": f"slot-{slot}"})


def restart(side: Side, name: str, setup: Setup, seed: int, verdict: Verdict) -> list[Step]:
    """A conversation, a restart of the server with what it has on disk, and what follows."""
    made, seen = Session(random.Random(seed)), list[Step]()
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-kv-") as folder:
        kept = replace(setup, kv_folder=Path(folder))
        with running(side, kept) as server:
            play(server, made.turns("before the restart", made.main, TURNS), name, verdict, seen)
            if side == "llama-server":
                slots(server, "save")
        with running(side, kept) as server:
            if side == "llama-server":
                slots(server, "restore")
            play(server, made.after_restart(), name, verdict, seen)
    return seen


async def answers(model: Path, steps: list[Step], *, cold: bool) -> list[str]:
    """What our own cache answers to each prompt at temperature 0; `cold`: cleared before each request."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        async with playing(model, Path(folder), n_ctx=N_CTX, sequences=SEQUENCES) as (app, client):
            for step in steps:
                if cold:
                    await app.clear("main")
                body = {"model": "tiny", "messages": step.messages, "max_tokens": ANSWER, "temperature": 0}
                reply = await client.post("/v1/chat/completions", json=body)
                assert reply.status_code == httpx2.codes.OK, reply.text
                cached = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert not (cold and cached), "the cold cache was warm"
                found.append(reply.json()["choices"][0]["message"]["content"])
    return found


def main(rounds: int, before: Path | None, *, quick: bool) -> None:
    """Measure all models and keep the figures."""
    console = Console(width=None if os.isatty(1) else WIDTH)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, title in list(KINDS.items())[:: 3 if quick else 1]:
            path = Path(folder) / f"{kind}.gguf"
            write_model(path, ("qz",), kind=kind, n_vocab=N_VOCAB)
            setup, verdict, seen = Setup(path, N_CTX, sequences=SEQUENCES), Verdict(), list[Step]()
            for round_ in range(1 if quick else rounds):
                for part in (session, restart):
                    played = [part(side, side, setup, round_, verdict) for side in in_turn(round_)]
                    seen = [*seen, *played[0]] if not round_ else seen
                    if before is not None:
                        part("shepherd", "before", replace(setup, source=before), round_, verdict)
            verdict.show(console, f"branches, {title}, 1 thread")
            seen = [step for step in seen if step.kind not in {"turn", "before the restart"}]
            warm = asyncio.run(answers(path, seen, cold=False))
            cold = asyncio.run(answers(path, seen, cold=True))
            n_equal = sum(a == b for a, b in zip(warm, cold, strict=True))
            console.print(f"{n_equal} of {len(cold)} answers of the warm cache are those of a cold one")
            result[title] = {"results": verdict.results(), "answers": len(cold), "equal to a cold cache": n_equal}
            console.print(str(machine.save("branches", result, quick=quick)))  # the next model takes minutes
