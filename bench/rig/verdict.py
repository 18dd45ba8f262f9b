"""What was measured on both sides, and who is better by how much: rows of a table, and of a result file.

A ratio is made in each round, from two numbers measured shortly after one another; the median of the rounds counts,
with its 95 % interval, which takes six rounds (of fewer, the extremes stand there). Above 1 = Shepherd is better.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.rig import machine
from bench.rig.sides import MODELS, Side, model_path
from rich.console import Console
from rich.table import Column, Table

from shepherd.measure import statistics as intervals

Better = Literal["less", "more"]

WIDTH = 160
"""Of tables that go to a file."""


@dataclass(slots=True)
class Row:
    """One thing measured; the lists have a number per round."""

    measured: str
    unit: str
    better: Better
    rounds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By side, or by the name of a variant of one."""

    def ratios(self, rival: str) -> list[float]:
        """Of the rounds; empty when one side has not measured it, or measured nothing but zeros."""
        pairs = zip(self.rounds.get("shepherd", ()), self.rounds.get(rival, ()), strict=False)
        if self.better == "less":
            return [theirs / ours for ours, theirs in pairs if ours]
        return [ours / theirs for ours, theirs in pairs if theirs]


class Verdict:
    """The rows of one benchmark over one model, filled round by round."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    def add(self, measured: str, side: Side | str, value: float, *, unit: str = "ms", better: Better = "less") -> None:
        """Note what one round measured."""
        row = self._rows.setdefault(measured, Row(measured, unit, better))
        row.rounds[side].append(value)

    def results(self) -> list[dict[str, Any]]:
        """The rows for a result file: medians, and the rounds that they come from."""
        return [
            {
                "measured": row.measured,
                "unit": row.unit,
                "better": row.better,
                **{side: _rounded(statistics.median(values)) for side, values in row.rounds.items()},
                "ratio": {rival: _rounded(statistics.median(row.ratios(rival))) for rival in _rivals(row)},
                "rounds": {side: [_rounded(value) for value in values] for side, values in row.rounds.items()},
                "interval": {rival: _interval(row.ratios(rival)) for rival in _rivals(row)},
                "ratio_of_rounds": {rival: [_rounded(value) for value in row.ratios(rival)] for rival in _rivals(row)},
            }
            for row in self._rows.values()
        ]

    def show(self, console: Console, title: str) -> None:
        """Print the table: medians, with the least and the greatest of the rounds; ratios with their interval."""
        names = list(dict.fromkeys(name for row in self._rows.values() for name in row.rounds))
        rivals = list(dict.fromkeys(rival for row in self._rows.values() for rival in _rivals(row)))
        columns: list[Column | str] = [Column("measured", no_wrap=True), Column("unit", no_wrap=True), *names]
        table = Table(*columns, *(f"ratio to {rival}" for rival in rivals), title=title)
        for row in self._rows.values():
            cells = [spread(row.rounds.get(name, ())) for name in names]
            ratios = [_of_rounds(row.ratios(rival)) for rival in rivals]
            table.add_row(row.measured, row.unit, *cells, *ratios)
        console.print(table)


def _rivals(row: Row) -> list[str]:
    return [name for name in row.rounds if name.startswith(("llama-", "before", "without")) and row.ratios(name)]


def _interval(ratios: Sequence[float]) -> list[float]:
    found = intervals.spread(ratios)
    return [_rounded(found.low), _rounded(found.high)]


def _of_rounds(ratios: Sequence[float]) -> str:
    if len(ratios) <= 1:
        return spread(ratios)
    found = intervals.spread(ratios)
    return f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f})"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def spread(values: Iterable[float]) -> str:
    """The median, and the extremes in brackets when there are several."""
    ordered = sorted(values)
    if not ordered:
        return ""
    middle = f"{statistics.median(ordered):.4g}"
    return middle if len(ordered) == 1 else f"{middle} ({ordered[0]:.3g} to {ordered[-1]:.3g})"


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which `share` of them lie, 0 to 1; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    threads: int
    flash_attn: bool
    quick: bool
    rounds: int


Measure = Callable[[str, Path, Options, Console], dict[str, Any]]
"""All rounds over one model, given by name and file: what goes into the result file."""


def run(bench: str, doc: str | None, rounds: Mapping[str, int], measure: Measure) -> None:
    """A benchmark's command line: each model in turn, to a dated result file and its plot.

    `rounds` are those of each model, unless `--rounds` changes them.
    A quick run shows that the benchmark works; its result is no measurement and goes to a temporary folder.
    """
    from bench.rig import plot  # the rows alone need no Matplotlib

    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="only this model (default: both)")
    parser.add_argument("--rounds", type=int, help=f"both sides run in each, in turn (default: {dict(rounds)})")
    parser.add_argument("--threads", type=int, default=1, help="engine threads on both sides")
    parser.add_argument("--flash-attn", action="store_true", help="on both sides; off by default, as in Shepherd")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: shows that it works, no more")
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    for model in said.model or MODELS:
        n_rounds = said.rounds or (1 if said.quick else rounds[model])
        options = Options(said.threads, said.flash_attn, said.quick, n_rounds)
        started = time.monotonic()
        result = {
            "bench": bench, "model": model, "threads": options.threads, "flash_attn": options.flash_attn,
            **measure(model, model_path(model), options, console),
        }  # fmt: skip
        name = f"{bench}-{options.threads}t-{model}"
        path = machine.save(name, result, quick=options.quick)
        console.print(f"{time.monotonic() - started:.0f} s; written to {path} and {plot.draw(path)}")
