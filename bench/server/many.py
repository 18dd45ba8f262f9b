"""Twenty conversations taken in turn, in a context that holds five of them: what each turn prefills, and takes.

    uv run python -m bench.server.many [--model 0.5B] [--rounds N] [--quick]

Between two turns of a conversation nineteen others were there, so its cells are gone; where the server kept a copy of
them, the turn costs its new tokens, and where not, the whole conversation. Prefilled tokens are those that the server
reports; new ones are counted by the client. Both keep copies in host memory, as they do by themselves.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.rig.dialogue import Dialogue, Turn
from bench.rig.sides import SIDES, Setup, in_turn, running
from bench.rig.verdict import Options, Verdict, quantile, run
from rich.console import Console

USER_TOKENS = 24
ANSWER_TOKENS = 8
HELD = 5
"""Conversations that fit into the context, at their longest."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many conversations there are, and how long they get."""

    n_ctx: int
    conversations: int
    system_tokens: int
    turns: int


def _size(conversations: int, system_tokens: int, turns: int) -> Size:
    longest = system_tokens + 20 + turns * (USER_TOKENS + ANSWER_TOKENS + 20)  # 20: what a template may put around
    return Size(HELD * longest, conversations, system_tokens, turns)


SIZES = {"0.5B": _size(20, 1000, 3), "embedded": _size(20, 600, 4)}
"""The embedded model was trained for 4,096 positions, and five times a thousand is more than some servers allow it."""
QUICK = {"0.5B": _size(7, 100, 3), "embedded": _size(20, 300, 4)}


def visit(port: int, size: Size, round_: int) -> list[list[Turn]]:
    """Turns by conversation, after taking all conversations in turn, again and again."""
    dialogues = [
        Dialogue(1000 * round_ + n, size.system_tokens, user_tokens=USER_TOKENS, answer_tokens=ANSWER_TOKENS)
        for n in range(size.conversations)
    ]
    by_turn = [[dialogue.ask(port) for dialogue in dialogues] for _ in range(size.turns)]
    return [list(turns) for turns in zip(*by_turn, strict=True)]


def note(verdict: Verdict, side: str, conversations: list[list[Turn]]) -> None:
    later = [turn for turns in conversations for turn in turns[1:]]
    new = sum(turn.n_new for turn in later)
    prefilled = sum(turn.n_prefilled for turn in later)
    wall = [turn.wall_s * 1000 for turn in later]
    first = [turn.ttft_s * 1000 for turn in later]
    verdict.add("prefilled per turn: mean", side, prefilled / len(later), unit="tokens")
    verdict.add("prefilled per turn: most", side, max(turn.n_prefilled for turn in later), unit="tokens")
    verdict.add("new per turn: mean", side, new / len(later), unit="tokens")
    verdict.add("prefilled / new", side, prefilled / new, unit="")
    verdict.add("first token: median", side, statistics.median(first))
    verdict.add("first token: 95 %", side, quantile(first, 0.95))
    verdict.add("whole turn: median", side, statistics.median(wall))
    verdict.add("whole turn: 95 %", side, quantile(wall, 0.95))
    verdict.add("whole turn: mean", side, statistics.mean(wall))


def measure(model: str, path: Path, options: Options, console: Console) -> dict[str, Any]:
    """All rounds over one model."""
    size = (QUICK if options.quick else SIZES)[model]
    setup = Setup(path, size.n_ctx, options.threads, sequences=HELD, flash_attn=options.flash_attn)
    verdict = Verdict()
    seen: dict[str, list[Turn]] = {}
    for round_ in range(options.rounds):
        for side in in_turn(round_):
            console.print(f"{model}, round {round_ + 1}: {side}")
            with running(side, setup) as server:
                conversations = visit(server.port, size, round_)
            note(verdict, side, conversations)
            # in the order in which they were asked; the last round's, for the plot
            seen[side] = [turn for turns in zip(*conversations, strict=True) for turn in turns]
    verdict.show(console, f"{size.conversations} conversations, {model}, {options.threads} thread(s)")
    return {
        "size": asdict(size),
        "results": verdict.results(),
        "turns": {
            side: {
                "prefilled": [turn.n_prefilled for turn in seen[side]],
                "new": [turn.n_new for turn in seen[side]],
                "wall_ms": [round(turn.wall_s * 1000, 2) for turn in seen[side]],
            }
            for side in SIDES
        },
    }


if __name__ == "__main__":
    run("many", __doc__, {"0.5B": 1, "embedded": 3}, measure)
