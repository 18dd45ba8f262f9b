"""Draws a result of `soak.py`: memory, handles, files, tokens and latencies over time.

uv run python -m bench.soak.plot bench/results/soak-120m-2026-11-22.json
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Result = dict[str, Any]
COLOURS = ("#1b7f5c", "#c2571a", "#86c5ac", "#666666")
MB = 2**20


def draw(path: Path) -> Path:
    """The path of the picture, beside the result."""
    result = json.loads(path.read_text())
    figure = Figure(figsize=(15, 8), layout="constrained")
    panels = (_memory, _counts, _files, _tokens, _work, _latency)
    for axes, panel in zip(figure.subplots(2, 3).flat, panels, strict=True):
        panel(axes, result)
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
        axes.grid(True, axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8.5)
    facts, plan = result["machine"], result["plan"]
    found = ", ".join(f"{count} {kind}" for kind, count in result["found"].items()) or "nothing found"
    figure.suptitle(
        f"soak, {plan['ran_s'] / 60:.0f} minutes, {result['requests']:,} requests of {plan['clients']} clients: {found}"
        f" ({facts['cpu']}, {facts['date']})", fontsize=11,
    )  # fmt: skip
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=90)
    return target


def _lines(axes: Axes, result: Result, names: tuple[str, ...], unit: float = 1.0) -> None:
    series = result["series"]
    minutes = [time_s / 60 for time_s in series["time_s"]]
    for name, colour in zip(names, COLOURS, strict=False):
        word = result["verdicts"].get(name, {}).get("word")
        axes.plot(minutes, [level / unit for level in series[name]], color=colour, linewidth=1.2,
                  label=f"{name}: {word}" if word else name)  # fmt: skip


def _memory(axes: Axes, result: Result) -> None:
    _lines(axes, result, ("rss", "private", "in use"), MB)
    axes.set_title("memory of the server, MB", fontsize=10)


def _counts(axes: Axes, result: Result) -> None:
    _lines(axes, result, ("handles", "threads", "children"))
    axes.set_title("open handles, threads, child processes", fontsize=10)


def _files(axes: Axes, result: Result) -> None:
    _lines(axes, result, ("memory files", "disk tier", "RAM tier", "responses file"), MB)
    axes.set_title("files and the tiers, MB", fontsize=10)


def _tokens(axes: Axes, result: Result) -> None:
    series = result["series"]
    minutes = [time_s / 60 for time_s in series["time_s"]]
    for name, colour in zip(("prefilled", "cached", "generated"), COLOURS, strict=False):
        axes.plot(minutes, [level / 1000 for level in series[name]], color=colour, label=name)
    axes.set_title("tokens, thousands", fontsize=10)


def _work(axes: Axes, result: Result) -> None:
    series = result["series"]
    minutes = [time_s / 60 for time_s in series["time_s"]]
    for name, colour in zip(("evictions", "saved", "restored", "archived"), COLOURS, strict=False):
        rates = [
            (b - a) / max(t - s, 1e-9) for (a, b), (s, t) in zip(pairwise(series[name]), pairwise(minutes), strict=True)
        ]
        axes.plot(minutes[1:], rates, color=colour, linewidth=0.9, label=f"{name} per minute")
    axes.set_title("what the server did", fontsize=10)


def _latency(axes: Axes, result: Result) -> None:
    minutes = [each["minute"] for each in result["minutes"]]
    for share, colour in (("p50", COLOURS[0]), ("p95", COLOURS[1])):
        axes.plot(minutes, [each[f"first_ms_{share}"] for each in result["minutes"]], color=colour,
                  label=f"first text, {share}")  # fmt: skip
    axes.set_title("latency, ms", fontsize=10)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(draw(Path(name)))
