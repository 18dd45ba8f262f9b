"""Draws the result files of the server benchmarks: a PNG beside each.

    uv run python -m bench.rig.plot bench/results/many-1t-0.5B-2026-11-21.json

What is drawn is in the file alone, so that old results can be drawn again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

Result = dict[str, Any]

COLOURS = {
    "shepherd": "#1b7f5c",
    "shepherd, no disk": "#86c5ac",
    "llama-server": "#c2571a",
    "llama-server -b 128": "#e5a677",
    "llama-server, slot saved by hand": "#e5a677",
}
GREY = "#666666"
LABELS = {"shepherd": "Shepherd", "shepherd, no disk": "Shepherd, no disk"}


def draw(path: Path) -> Path:
    """Draw one result file; the path of the picture."""
    result = json.loads(path.read_text())
    panels = PANELS[result["bench"]]
    figure = Figure(figsize=(6.2 * len(panels), 4.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes, result)
        axes.grid(True, axis="y", which="major", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    facts = result.get("machine", {})
    about = [f"{result['model']} model", f"{result['threads']} thread(s)", facts.get("cpu"), facts.get("date")]
    figure.suptitle(f"{result['bench']}: " + ", ".join(filter(None, about)), fontsize=11)
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=110)
    return target


def _label(side: str) -> str:
    return LABELS.get(side, side)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _logarithmic(axes: Axes, label: str) -> None:
    """A logarithmic axis with numbers that people write."""
    axes.set_yscale("log")
    axes.set_ylabel(label)
    low, high = axes.get_ylim()
    steps = (1, 2, 3, 5, 7) if high / low < 30 else (1, 2, 5) if high / low < 1000 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _rows(result: Result) -> dict[str, Result]:
    return {row["measured"]: row for row in result["results"]}


# -- conversation --------------------------------------------------------------------------------------------------


def _fits(axes: Axes, result: Result) -> None:
    for side, turns in result["turns"]["fits"].items():
        later = turns["ttft_ms"][1:]
        axes.plot(range(2, len(later) + 2), later, "o-", color=COLOURS[side], label=_label(side), markersize=3)
    n = result["fits"]["turns"]
    floor = result["floor"]["ms"]
    axes.plot([2, n], [floor[0], floor[-1]], "--", color=GREY, label="decoding the new tokens alone (llama-bench)")
    _logarithmic(axes, "time to the first token, ms")
    axes.set_xlabel("turn")
    axes.set_title(f"all fits; system prompt of {result['fits']['system_tokens']:,} tokens", fontsize=10)


def _full(axes: Axes, result: Result) -> None:
    for side, turns in result["turns"]["full"].items():
        later = turns["ttft_ms"][1:]
        axes.plot(range(2, len(later) + 2), later, "o-", color=COLOURS[side], label=_label(side), markersize=3)
        refused = [(n + 1, turns["ttft_ms"][n]) for n, count in enumerate(turns["refused"]) if count and n]
        if refused:
            axes.plot(*zip(*refused, strict=True), "x", color=COLOURS[side], markersize=9,
                      label=f"{_label(side)} refused, the client dropped turns")  # fmt: skip
    _logarithmic(axes, "time to the first token, ms")
    axes.set_xlabel("turn")
    axes.set_title(f"overflowing a context of {result['full']['n_ctx']:,} tokens", fontsize=10)


# -- clients -------------------------------------------------------------------------------------------------------


def _throughput(axes: Axes, result: Result) -> None:
    counts, rows = result["size"]["clients"], _rows(result)
    for offset, side in ((-0.2, "shepherd"), (0.2, "llama-server")):
        values = [rows[f"{_clients(n)}: all tokens"][side] for n in counts]
        bars = axes.bar([n + offset for n in range(len(counts))], values, 0.38, color=COLOURS[side], label=_label(side))
        axes.bar_label(bars, fmt=_plain, fontsize=8)
    axes.set_xticks(range(len(counts)), [str(n) for n in counts])
    axes.set_xlabel("clients")
    axes.set_ylabel("tokens/s of all clients")
    axes.set_title("throughput", fontsize=10)


def _gaps(axes: Axes, result: Result) -> None:
    counts, rows = result["size"]["clients"], _rows(result)
    for side in ("shepherd", "llama-server"):
        for what, style in (("median", "o-"), ("95 %", "s--"), ("longest", "^:")):
            values = [rows[f"{_clients(n)}: gap, {what}"][side] for n in counts]
            axes.plot(counts, values, style, color=COLOURS[side], label=f"{_label(side)}, {what}", markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.set_xlabel("clients")
    _logarithmic(axes, "gap between tokens of one stream, ms")
    axes.set_title("gaps", fontsize=10)


def _stall(axes: Axes, result: Result) -> None:
    rows = _rows(result)
    measured = ("usual gap of the stream", "gap, median", "gap, 99 %", "gap, longest")
    sides = list(rows[f"long prompt beside: {measured[0]}"]["rounds"])
    width = 0.8 / len(sides)
    for n, side in enumerate(sides):
        values = [rows[f"long prompt beside: {what}"][side] for what in measured]
        at = [x + (n - (len(sides) - 1) / 2) * width for x in range(len(measured))]
        first = rows["long prompt beside: its first token"][side]
        label = f"{_label(side)} (first token of the prompt: {first / 1000:.2f} s)"
        axes.bar_label(axes.bar(at, values, width, color=COLOURS[side], label=label), fmt=_plain, fontsize=8)
    axes.set_xticks(range(len(measured)), ["without the prompt", "median", "99 %", "longest"])
    _logarithmic(axes, "gap between tokens of the stream, ms")
    axes.set_title(f"a stream while a prompt of {result['size']['long_prompt']:,} tokens is read", fontsize=10)


def _clients(n: int) -> str:
    return f"{n} client{'s' if n > 1 else ''}"


# -- many ----------------------------------------------------------------------------------------------------------


def _prefilled(axes: Axes, result: Result) -> None:
    for side, turns in result["turns"].items():
        axes.plot(range(1, len(turns["prefilled"]) + 1), turns["prefilled"], **_dots(side))
    new = result["turns"]["shepherd"]["new"]
    axes.plot(range(1, len(new) + 1), new, "-", color=GREY, linewidth=1, label="new tokens", drawstyle="steps-mid")
    _logarithmic(axes, "prompt tokens computed")
    _by_turn(axes, result)


def _wall(axes: Axes, result: Result) -> None:
    for side, turns in result["turns"].items():
        axes.plot(range(1, len(turns["wall_ms"]) + 1), turns["wall_ms"], **_dots(side))
    _logarithmic(axes, "whole turn, ms")
    _by_turn(axes, result)


def _dots(side: str) -> dict[str, Any]:
    """Rings and dots, so that both are seen where they lie on each other."""
    hollow = {"markersize": 7, "markerfacecolor": "none"} if side == "shepherd" else {"markersize": 3}
    return {"marker": "o", "linestyle": "none", "color": COLOURS[side], "label": _label(side), **hollow}


def _by_turn(axes: Axes, result: Result) -> None:
    n = result["size"]["conversations"]
    axes.set_xlabel(f"requests; {n} conversations taken in turn")
    axes.set_title(f"a context of {result['size']['n_ctx']:,} tokens holds five of {n}", fontsize=10)


# -- restart -------------------------------------------------------------------------------------------------------


def _after_restart(axes: Axes, result: Result) -> None:
    rows = _rows(result)
    times = rows["first turn after the restart, first token"]
    prefilled = rows["prefilled in that turn"]
    sides = list(times["rounds"])
    bars = axes.bar(range(len(sides)), [times[side] for side in sides], 0.6, color=[COLOURS[side] for side in sides])
    axes.bar_label(bars, [f"{times[side]:,.4g} ms\n{prefilled[side]:,.4g} tokens" for side in sides], fontsize=8)
    axes.set_xticks(range(len(sides)), [_label(side).replace(", ", ",\n") for side in sides], fontsize=8)
    _logarithmic(axes, "first turn after the restart: time to the first token, ms")
    axes.set_ylim(top=axes.get_ylim()[1] * 2)
    axes.set_title(
        f"system prompt of {result['size']['system_tokens']:,} tokens; below the time: prefilled", fontsize=10
    )


# -- quality -------------------------------------------------------------------------------------------------------

ARMS = {
    "gap": ("#1b7f5c", "o", "hole (Shepherd)"),
    "shift": ("#c2571a", "s", "shift"),
    "gap, no sinks": ("#7a4fa3", "v", "hole, first tokens gone too"),
    "full": ("#2f6db3", "D", "nothing evicted"),
    "nothing kept": ("#999999", "x", "nothing kept"),
    "keys not turned": ("#333333", "+", "planted fault: keys not turned"),
}


def _perplexity(axes: Axes, result: Result) -> None:
    marks = result["size"]["marks"]
    for offset, (arm, (colour, marker, label)) in enumerate(ARMS.items()):
        found = [(n, result["holes"][f"{mark} left"].get(arm)) for n, mark in enumerate(marks)]
        at = [n + (offset - 2.5) * 0.1 for n, here in found if here]
        ppl = [here["ppl"] for _, here in found if here]
        _with_doubt(axes, at, ppl, color=colour, marker=marker, label=label, linestyle="none", markersize=5)
    axes.axhspan(-1, 1, color="#1b7f5c", alpha=0.12, linewidth=0)
    axes.set_yscale("symlog", linthresh=2)
    axes.set_yticks([-2, -1, 0, 1, 2, 10, 100, 1000])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+,.10g}" if value else "0"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(len(marks)), [str(mark) for mark in marks])
    axes.set_xlabel("turns evicted")
    axes.set_ylabel("perplexity of the next turns, % above re-prefill's")
    axes.set_title("the same histories; green: the rule's 1 %", fontsize=10)


def _by_hole(axes: Axes, result: Result) -> None:
    base = {(row["conversation"], row["mark"]): row for row in result["scores"] if row["arm"] == "re-prefill"}
    for after, colour in ((False, "#86c5ac"), (True, "#7a4fa3")):
        rows = [row for row in result["scores"] if row["arm"] == "gap" and (row["n_rebases"] > 0) == after]
        changes = [100 * (row["nll"] - base[row["conversation"], row["mark"]]["nll"]) / row["n"] for row in rows]
        name = "after" if after else "before"
        axes.plot([row["hole"] for row in rows], changes, ".", color=colour, label=f"{name} the first rebase")
    axes.axhspan(-1, 1, color="#1b7f5c", alpha=0.12, linewidth=0)
    axes.set_xlabel("empty positions between the system prompt and the oldest turn that is left")
    axes.set_ylabel("100 x nats per token above re-prefill's")
    axes.set_title("hole, one point per measurement", fontsize=10)


def _canary(axes: Axes, result: Result) -> None:
    cases = list(result["canary"])
    ranks = [result["canary"][case]["rank"] for case in cases]
    _with_doubt(axes, list(range(len(cases))), ranks, color="#1b7f5c", marker="o", linestyle="none")
    axes.axhline(50.5, color=GREY, linestyle="--", linewidth=1, label="chance")
    axes.set_xticks(range(len(cases)), [case.replace(", ", ",\n") for case in cases], fontsize=8)
    axes.set_ylim(0, 101)
    axes.set_ylabel("mean rank among 100 strings")
    axes.set_title("a string that only an evicted message had", fontsize=10)


# -- eviction ------------------------------------------------------------------------------------------------------

WAYS = {"hole": ("#1b7f5c", "hole (Shepherd)"), "shift": ("#c2571a", "shift"), "nothing": (GREY, "nothing: the noise")}


def _cost(axes: Axes, result: Result) -> None:
    lengths = list(result["lengths"])
    at = [int(length) for length in lengths]
    again = [1000 * result["reprefill"][length]["s"] for length in lengths]
    axes.plot(at, again, "^-", color="#999999", label="re-prefill")
    for way, (colour, label) in WAYS.items():
        for share, style in (("p50", "o-"), ("p99", "s:")):
            values = [result["lengths"][length][way]["more_ms"][share] for length in lengths]
            axes.plot(at, values, style, color=colour, label=f"{label}, {share}", markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [f"{length:,}" for length in at])
    axes.set_xlabel("resident tokens")
    _around_one_ms(axes, "eviction and next decode, ms above a plain decode")
    axes.set_title(f"a turn of {result['turn']} tokens leaves", fontsize=10)


def _cost_of_processor(axes: Axes, result: Result) -> None:
    lengths = list(result["lengths"])
    for n, (way, (colour, label)) in enumerate(WAYS.items()):
        samples = [result["lengths"][length][way]["samples_cpu_ms"] for length in lengths]
        at = [x + (n - 1) * 0.25 for x in range(len(lengths))]
        black = {"color": "black"}
        boxes = axes.boxplot(
            samples, positions=at, widths=0.2, whis=(1, 99), sym="", patch_artist=True, medianprops=black
        )
        for box in boxes["boxes"]:
            box.set_facecolor(colour)
        axes.plot([], [], "s", color=colour, label=label)
    axes.set_xticks(range(len(lengths)), [f"{int(length):,}" for length in lengths])
    axes.set_xlabel("resident tokens; boxes 25 to 75 %, lines 1 to 99 %")
    _around_one_ms(axes, "processor time above a plain decode, ms")
    axes.set_title("the same, of processor time", fontsize=10)


def _around_one_ms(axes: Axes, label: str) -> None:
    """An axis that is linear up to the goal of 1 ms, and logarithmic beyond."""
    axes.set_yscale("symlog", linthresh=1)
    axes.axhline(1, color="#1b7f5c", linewidth=0.8)
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _with_doubt(axes: Axes, at: list[float], estimates: list[Result], **style: Any) -> None:
    """Points with their 95 % intervals."""
    middle = [estimate["value"] for estimate in estimates]
    below = [estimate["value"] - estimate["low"] for estimate in estimates]
    above = [estimate["high"] - estimate["value"] for estimate in estimates]
    axes.errorbar(at, middle, yerr=[below, above], elinewidth=1, capsize=2, **style)


PANELS: dict[str, tuple[Callable[[Axes, Result], None], ...]] = {
    "conversation": (_fits, _full),
    "clients": (_throughput, _gaps, _stall),
    "many": (_prefilled, _wall),
    "restart": (_after_restart,),
    "eviction": (_cost, _cost_of_processor),
    "quality": (_perplexity, _by_hole, _canary),
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(draw(Path(name)))
