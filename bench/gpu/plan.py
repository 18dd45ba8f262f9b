"""The steps of a GPU run: what each may take, which one is next, and the table at the end. Pure; standard library only.

    facts ─ unpack ─ build ─ small ─ middle ─ eviction ─ prefix ─ clients ─ isolation ─ large
    └──── all others need these ──┘

A machine with a GPU is lent by the minute: a step starts only where its budget still fits, into the whole run and into
the call. A step that is done has a stamp, and the next call goes on behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

TOTAL_S, TOTAL_CPU_S = 780.0, 3600.0
"""Of all steps together: 15 minutes of a machine, less two for its start and the copies."""
CALL_S = 570.0
"""Of one call: those that lend machines end a command after ten minutes."""
STEP_S = 590.0
"""No step takes longer on a GPU."""

State = Literal["done", "failed", "left out"]


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a run."""

    name: str
    what: str
    gpu_s: float
    """Its budget: what it takes when all goes well, and some."""
    cpu_s: float
    """The same for the dry run on two cores."""
    needed: bool = False
    """Whether no other step can run when this one fails."""

    def budget_s(self, *, cpu: bool) -> float:
        return self.cpu_s if cpu else self.gpu_s


STEPS = (
    Step("facts", "what the machine has, and whether that is enough", 10, 10, needed=True),
    Step("unpack", "the carried archives", 20, 60, needed=True),
    Step("build", "llama.cpp, llama-bench, llama-server", 240, 1500, needed=True),
    Step("small", "prefill and decode of a 1B shape in F16, Q8_0, Q4_0", 45, 90),
    Step("middle", "prefill and decode of an 8B shape in F16, Q8_0, Q4_0", 100, 90),
    Step("eviction", "the oldest turns leave a large cache", 60, 90),
    Step("prefix", "turns of one conversation, with and without what is cached", 60, 90),
    Step("clients", "several clients, and a stream beside a long prompt", 70, 120),
    Step("isolation", "owners share nothing of their prompts", 40, 60),
    Step("large", "prefill and decode of a 70B shape in Q4_0", 120, 90),
)
BY_NAME = {step.name: step for step in STEPS}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What became of a step; a file in the working folder."""

    state: State
    seconds: float
    """Of all attempts."""
    pack: str
    """The archives that it was made from."""
    why: str = ""
    """A sentence, where it is not done."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """As `bench.rig.verdict` makes them."""
    promises: list[dict[str, str]] = field(default_factory=list)
    """`id`, `what`, `promised`, `measured`."""
    notes: list[str] = field(default_factory=list)


def write(folder: Path, name: str, stamp: Stamp) -> None:
    """Whole or not at all: a call may be ended at any moment."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{name}.new"
    new.write_text(json.dumps(asdict(stamp), indent=2) + "\n", encoding="utf-8")
    new.replace(folder / f"{name}.json")


def read(folder: Path) -> dict[str, Stamp]:
    """The stamps by step; a file that is none is as good as missing."""
    found: dict[str, Stamp] = {}
    for step in STEPS:
        try:
            found[step.name] = Stamp(**json.loads((folder / f"{step.name}.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
    return found


@dataclass(frozen=True, slots=True)
class Clock:
    """What is left, in seconds."""

    total_s: float
    spent_s: float
    """By all steps of all calls."""
    call_left_s: float

    @property
    def left_s(self) -> float:
        return self.total_s - self.spent_s


@dataclass(frozen=True, slots=True)
class Go:
    """Run it, for so long at most."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class Pass:
    """Do not run it, now or at all."""

    why: str
    later: bool = False
    """Whether the next call runs it."""


def decide(
    step: Step, stamps: Mapping[str, Stamp], clock: Clock, pack: str, *, cpu: bool, again: bool = False
) -> Go | Pass:
    """Whether a step runs. `again`: although it is done."""

    def is_done(name: str) -> bool:
        return name in stamps and (stamps[name].state, stamps[name].pack) == ("done", pack)

    budget_s = step.budget_s(cpu=cpu)
    if is_done(step.name) and not again:
        return Pass("done")
    missing = [each.name for each in STEPS[: STEPS.index(step)] if each.needed and not is_done(each.name)]
    if missing:
        return Pass(f"it needs {', '.join(missing)} first")
    if budget_s > clock.left_s:
        return Pass(f"it may take {budget_s:.0f} s, and {max(clock.left_s, 0):.0f} of {clock.total_s:.0f} s are left")
    if cpu:
        return Go(clock.left_s)
    if budget_s > clock.call_left_s:
        return Pass(
            f"it may take {budget_s:.0f} s, and this call has {max(clock.call_left_s, 0):.0f} s left", later=True
        )
    return Go(min(2 * budget_s, clock.left_s, clock.call_left_s, STEP_S))


# -- the table -----------------------------------------------------------------------------------------------------


def report(stamps: Mapping[str, Stamp], *, cpu: bool) -> str:
    """Everything that was measured, what was promised beside it, and what became of each step."""
    parts = []
    if cpu:
        parts.append("A dry run on the CPU: it shows that the script works. Its figures say nothing about a GPU.")
    rows = [_row(row) for stamp in stamps.values() for row in stamp.rows]
    if rows:
        parts.append(table(("measured", "unit", "Shepherd", "against", "ratio"), rows))
        parts.append("Medians; a ratio above 1: Shepherd is better.")
    promises = [promise for stamp in stamps.values() for promise in stamp.promises]
    if promises:
        names = ("id", "what", "promised", "measured")
        parts.append(table(names, [[promise[name] for name in names] for promise in promises]))
    steps = []
    for step in STEPS:
        stamp = stamps.get(step.name)
        seconds = f"{stamp.seconds:.0f}" if stamp else ""
        budget = f"{step.budget_s(cpu=cpu):.0f}"
        steps.append((step.name, stamp.state if stamp else "not yet", seconds, budget, stamp.why if stamp else ""))
    parts.append(table(("step", "state", "s", "budget", "why"), steps))
    parts += [f"{name}: {note}" for name, stamp in stamps.items() for note in stamp.notes]
    return "\n\n".join(parts)


def _row(row: Mapping[str, Any]) -> list[str]:
    others = [name for name in row["rounds"] if name != "shepherd"]
    against = ", ".join(f"{name} {row[name]:g}" for name in others)
    ratio = ", ".join(f"{value:.2f}" for value in row["ratio"].values())
    return [row["measured"], row["unit"], f"{row['shepherd']:g}" if "shepherd" in row else "", against, ratio]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
