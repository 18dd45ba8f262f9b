"""The first turn after the server was restarted: with and without the disk tier, against llama-server.

    uv run python -m bench.server.restart [--model 0.5B] [--rounds N] [--quick]

A conversation has three turns, the server is stopped by SIGTERM and started again, and the client asks its fourth.
Shepherd runs with `[kv] disk = true` and without. llama-server has no disk tier of its own; in its second variant the
client saves the slot before the stop and restores it after the start, which it must know to do, and which is counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.rig.dialogue import Dialogue, Turn
from bench.rig.sides import Server, Setup, Side, running
from bench.rig.verdict import Options, Verdict, run
from rich.console import Console

USER_TOKENS = 24
ANSWER_TOKENS = 8
TURNS_BEFORE = 3


@dataclass(frozen=True, slots=True)
class Size:
    """How long the conversation is."""

    n_ctx: int
    system_tokens: int


SIZES = {"0.5B": Size(8192, 4000), "embedded": Size(4096, 3000)}
QUICK = {"0.5B": Size(1024, 300), "embedded": Size(4096, 1500)}


def save(server: Server) -> None:
    """What llama-server's client has to do before the stop."""
    server.post("/slots/0?action=save", {"filename": "conversation"})


def restore(server: Server) -> None:
    """And after the start."""
    server.post("/slots/0?action=restore", {"filename": "conversation"})


@dataclass(frozen=True, slots=True)
class Variant:
    """A server, and what is done around the restart."""

    side: Side
    disk: bool = False
    before: Callable[[Server], None] = lambda _: None
    after: Callable[[Server], None] = lambda _: None


VARIANTS = {
    "shepherd": Variant("shepherd", disk=True),
    "shepherd, no disk": Variant("shepherd"),
    "llama-server": Variant("llama-server"),
    "llama-server, slot saved by hand": Variant("llama-server", True, save, restore),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured in one variant."""

    first: Turn
    """The very first turn, before the restart."""
    last: Turn
    """The one after it."""
    restored_s: float
    """What the client had to do after the start."""
    ready_s: float
    disk_bytes: int


def restart(variant: Variant, setup: Setup, system_tokens: int, seed: int) -> Outcome:
    """One conversation with a restart in it."""
    dialogue = Dialogue(seed, system_tokens, user_tokens=USER_TOKENS, answer_tokens=ANSWER_TOKENS)
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-kv-") as folder:
        kept = replace(setup, kv_folder=Path(folder)) if variant.disk else setup
        with running(variant.side, kept) as server:
            first, *_ = [dialogue.ask(server.port) for _ in range(TURNS_BEFORE)]
            variant.before(server)
        disk_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        with running(variant.side, kept) as server:
            started = time.perf_counter()
            variant.after(server)
            restored_s = time.perf_counter() - started
            last = dialogue.ask(server.port)
    return Outcome(first, last, restored_s, server.ready_s, disk_bytes)


def note(verdict: Verdict, name: str, outcome: Outcome) -> None:
    last = outcome.last
    verdict.add("first turn after the restart, first token", name, (last.ttft_s + outcome.restored_s) * 1000)
    verdict.add("the same, and the start of the server", name,
                (last.ttft_s + outcome.restored_s + outcome.ready_s) * 1000)  # fmt: skip
    verdict.add("prefilled in that turn", name, last.n_prefilled, unit="tokens")
    verdict.add("new in that turn", name, last.n_new, unit="tokens")
    verdict.add("for comparison: very first turn, first token", name, outcome.first.ttft_s * 1000)
    verdict.add("on disk", name, outcome.disk_bytes / 1e6, unit="MB")


def measure(model: str, path: Path, options: Options, console: Console) -> dict[str, Any]:
    """All rounds over one model."""
    size = (QUICK if options.quick else SIZES)[model]
    setup = Setup(path, size.n_ctx, options.threads, flash_attn=options.flash_attn)
    verdict = Verdict()
    for round_ in range(options.rounds):
        names = list(VARIANTS) if round_ % 2 == 0 else list(VARIANTS)[::-1]
        for name in names:
            outcome = restart(VARIANTS[name], setup, size.system_tokens, round_)
            note(verdict, name, outcome)
            console.print(f"{model}, round {round_ + 1}: {name}: {outcome.last.n_prefilled} tokens prefilled")
    verdict.show(console, f"restart, {model}, {options.threads} thread(s)")
    return {"size": asdict(size), "results": verdict.results()}


if __name__ == "__main__":
    run("restart", __doc__, {"0.5B": 2, "embedded": 5}, measure)
