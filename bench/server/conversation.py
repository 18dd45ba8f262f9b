"""Time to the first token, turn by turn, of one conversation behind a long system prompt, against llama-server.

    uv run python -m bench.server.conversation [--model 0.5B] [--rounds N] [--quick]

Two parts. *Fits*: 50 turns in a context that holds them all; beside both servers stands the floor, the time in which
llama-bench decodes as many tokens as were new in the turn, behind as many as were cached, with the same library.
*Full*: the same in a context that overflows again and again. Shepherd evicts in place; llama-server runs with
--context-shift and --cache-reuse, and since it refuses prompts that do not fit, its client then drops the older half of
the turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.rig.dialogue import Dialogue, Turn
from bench.rig.llama_tools import llama_bench
from bench.rig.sides import SIDES, Setup, Side, in_turn, running
from bench.rig.verdict import Options, Verdict, quantile, run
from rich.console import Console

USER_TOKENS = 24
ANSWER_TOKENS = 8
FLOOR_REPEATS = 7


@dataclass(frozen=True, slots=True)
class Size:
    """How long a conversation is, and what it runs in."""

    n_ctx: int
    system_tokens: int
    turns: int


FITS = {"0.5B": Size(8192, 4000, 50), "embedded": Size(4096, 1500, 50)}
FULL = {"0.5B": Size(1024, 400, 30), "embedded": Size(2048, 800, 80)}
"""The embedded model was trained for 4,096 positions; a random one of 0.5B prefills some 200 tokens/s on one core."""
QUICK_FITS = {"0.5B": Size(1024, 300, 6), "embedded": Size(2048, 800, 12)}
QUICK_FULL = {"0.5B": Size(512, 128, 14), "embedded": Size(1024, 400, 40)}


def talk(side: Side, setup: Setup, size: Size, round_: int, console: Console) -> list[Turn]:
    """All turns of a conversation with a freshly started server."""
    with running(side, setup) as server:
        dialogue = Dialogue(round_, size.system_tokens, user_tokens=USER_TOKENS, answer_tokens=ANSWER_TOKENS)
        turns = [dialogue.ask(server.port) for _ in range(size.turns)]
    console.print(f"  {side}: first {turns[0].ttft_s:.2f} s, last {turns[-1].ttft_s * 1000:.1f} ms")
    return turns


@dataclass(slots=True)
class Floor:
    """How long the library alone takes for the new tokens of a turn: llama-bench, behind as many tokens as cached."""

    n_new: int = 0
    depths: tuple[int, int] = (0, 0)
    """Of the second and the last turn."""
    second: list[float] = field(default_factory=list)
    """ms, by round."""
    rise: float = 0.0
    """How many times as long the last turn takes, less 1; measured in the first round only, since it takes long."""

    def measure(self, setup: Setup, turns: list[Turn]) -> None:
        """Measure behind the second turn of `turns`, and behind the last one when that is still unknown."""
        second, last = turns[1], turns[-1]
        self.n_new, self.depths = second.n_new, (second.n_prompt - second.n_new, last.n_prompt - last.n_new)
        times = _library_ms(setup, self.n_new, self.depths[: 1 if self.second else 2])
        self.second.append(times[0])
        if len(times) > 1:
            self.rise = times[1] / times[0] - 1

    def of(self, round_: int, turn: int, n_turns: int) -> float:
        """ms of turn number `turn`, the second one being 0: a line from there to the last one."""
        return self.second[round_] * (1 + self.rise * turn / max(n_turns - 2, 1))


def _library_ms(setup: Setup, n_new: int, depths: tuple[int, ...]) -> list[float]:
    options = {
        "-p": n_new, "-n": 0, "-d": ",".join(map(str, depths)), "-t": setup.threads,
        "-fa": "on" if setup.flash_attn else "off", "-r": FLOOR_REPEATS,
    }  # fmt: skip
    return [statistics.median(row["samples_ns"]) / 1e6 for row in llama_bench(setup.model, options)]


def measure(model: str, path: Path, options: Options, console: Console) -> dict[str, Any]:
    """All rounds over one model."""
    fits, full = (QUICK_FITS, QUICK_FULL) if options.quick else (FITS, FULL)
    base = Setup(path, fits[model].n_ctx, options.threads, flash_attn=options.flash_attn)
    evicting = Setup(path, full[model].n_ctx, options.threads, evict=True, flash_attn=options.flash_attn)
    verdict, floor = Verdict(), Floor()
    rounds: dict[str, list[dict[Side, list[Turn]]]] = {"fits": [], "full": []}
    for round_ in range(options.rounds):
        console.print(f"{model}, round {round_ + 1}: everything fits")
        before, after = in_turn(round_)
        turns = {before: talk(before, base, fits[model], round_, console)}
        floor.measure(base, turns[before])
        console.print(f"  {floor.n_new} new tokens alone: {floor.second[-1]:.1f} ms")
        turns[after] = talk(after, base, fits[model], round_, console)
        note_fits(verdict, turns, floor, round_)
        rounds["fits"].append(turns)
        console.print(f"{model}, round {round_ + 1}: the context overflows")
        turns = {side: talk(side, evicting, full[model], round_, console) for side in in_turn(round_)}
        note_full(verdict, turns, full[model])
        rounds["full"].append(turns)
    verdict.show(console, f"one conversation, {model}, {options.threads} thread(s)")
    second = statistics.median(floor.second)
    return {
        "fits": asdict(fits[model]),
        "full": asdict(full[model]),
        "results": verdict.results(),
        "turns": {
            part: {side: medians([turns[side] for turns in runs]) for side in SIDES} for part, runs in rounds.items()
        },
        "floor": {"n_new": floor.n_new, "depths": floor.depths,
                  "ms": [round(second, 3), round(second * (1 + floor.rise), 3)]},
    }  # fmt: skip


def note_fits(verdict: Verdict, turns: Mapping[Side, list[Turn]], floor: Floor, round_: int) -> None:
    for side in SIDES:
        first, *later = turns[side]
        times = [turn.ttft_s * 1000 for turn in later]
        over = [ms / floor.of(round_, n, len(turns[side])) for n, ms in enumerate(times)]
        verdict.add("turn 1, first token", side, first.ttft_s * 1000)
        verdict.add("turn 2, first token", side, times[0])
        verdict.add("turn 2, times its floor", side, over[0], unit="")
        verdict.add("later turns, first token: median", side, statistics.median(times))
        verdict.add("later turns, times their floor: median", side, statistics.median(over), unit="")
        verdict.add("later turns, first token: worst", side, max(times))
        prefilled, new = sum(turn.n_prefilled for turn in later), sum(turn.n_new for turn in later)
        verdict.add("later turns, prefilled / new", side, prefilled / new, unit="")


def note_full(verdict: Verdict, turns: Mapping[Side, list[Turn]], size: Size) -> None:
    overflows = next((n for n, turn in enumerate(turns["llama-server"]) if turn.n_refused), size.turns // 2)
    for side in SIDES:
        later = [turn.ttft_s * 1000 for turn in turns[side][overflows:]]
        verdict.add("after overflow, first token: median", side, statistics.median(later))
        verdict.add("after overflow, first token: 95 %", side, quantile(later, 0.95))
        verdict.add("after overflow, first token: worst", side, max(later))
        prefilled = statistics.mean(turn.n_prefilled for turn in turns[side][overflows:])
        verdict.add("after overflow, prefilled per turn: mean", side, prefilled, unit="tokens")
        verdict.add("after overflow, requests refused", side, sum(turn.n_refused for turn in turns[side]), unit="")


def medians(runs: list[list[Turn]]) -> dict[str, list[float]]:
    """Per turn: the medians of the rounds."""
    by_turn = list(zip(*runs, strict=True))
    return {
        "ttft_ms": [round(statistics.median(turn.ttft_s for turn in turns) * 1000, 3) for turns in by_turn],
        "prefilled": [statistics.median(turn.n_prefilled for turn in turns) for turns in by_turn],
        "refused": [statistics.median(turn.n_refused for turn in turns) for turns in by_turn],
    }


if __name__ == "__main__":
    run("conversation", __doc__, {"0.5B": 2, "embedded": 5}, measure)
