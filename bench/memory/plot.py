"""Draws a result of `memory.py`: search by size, storing a turn, and what is found.

uv run python -m bench.memory.plot bench/results/memory-2026-11-21.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

Result = dict[str, Any]
GREEN, LIGHT, ORANGE, GREY = "#1b7f5c", "#86c5ac", "#c2571a", "#666666"


def draw(path: Path) -> Path | None:
    """The path of the picture, beside the result; None when it has nothing that is drawn."""
    result = json.loads(path.read_text())
    panels = [panel for name, panel in PANELS.items() if name in result]
    if not panels:
        return None
    figure = Figure(figsize=(6.4 * len(panels), 5.0), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes, result)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    facts = result["machine"]
    figure.suptitle(f"memory: {facts['cpu']}, load {facts['load']}, {facts['date']}", fontsize=11)
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=110)
    return target


def _search(axes: Axes, result: Result) -> None:
    sizes = list(result["search"])
    at = [int(size.replace(",", "")) for size in sizes]
    for point, style in (("p50", "o-"), ("p95", "s--"), ("p99", "^:")):
        values = [next(iter(result["search"][size]["kinds"].values()))[point] for size in sizes]
        axes.plot(at, values, style, color=GREEN, label=f"Shepherd, all questions, {point}")
    bare = [[ms["p50"] for ms in result["search"][size]["FTS5, any word"].values()] for size in sizes]
    axes.plot(at, [max(values) for values in bare], "o-", color=ORANGE, label="FTS5, any word: slowest kind, p50")
    for name in ("search p50, ms", "search p95, ms"):
        axes.axhline(result["goals"][name], color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(at)
    axes.set_xlabel("messages")
    axes.set_ylabel("ms")
    axes.set_title("search; dotted: the goals for p50 and p95 at a million", fontsize=10)


def _archive(axes: Axes, result: Result) -> None:
    size = list(result["archive"])[-1]
    found = result["archive"][size]["ms"]
    for offset, point, colour in ((-0.2, "p50", GREEN), (0.2, "p99", LIGHT)):
        bars = axes.bar([n + offset for n in range(len(found))], [ms[point] for ms in found.values()], 0.38,
                        color=colour, label=point)  # fmt: skip
        axes.bar_label(bars, fmt=lambda value: f"{value:.3g}", fontsize=8)
    axes.set_xticks(
        range(len(found)), [arm.replace(" with ", "\nwith ").replace(" and ", "\nand ") for arm in found], fontsize=9
    )
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    axes.set_title(f"a turn on the disk, behind {size} messages", fontsize=10)


def _retrieval(axes: Axes, result: Result) -> None:
    arms = result["retrieval"]["arms"]
    names = list(arms)[::-1]
    for offset, measure, colour in ((0.2, "R@1", LIGHT), (-0.2, "R@5", GREEN)):
        values = [arms[name][measure] for name in names]
        bars = axes.barh([n + offset for n in range(len(names))], values, 0.38, color=colour, label=measure)
        axes.bar_label(bars, fmt=lambda value: f"{value:.2f}", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlim(0, 1.1)
    n = next(iter(arms.values()))["n"]
    axes.set_title(f"the evidence of {n} questions is among the first 1 and 5", fontsize=10)


PANELS = {"search": _search, "archive": _archive, "retrieval": _retrieval}


if __name__ == "__main__":
    for file in sys.argv[1:]:
        print(draw(Path(file)))
