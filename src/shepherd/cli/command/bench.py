"""`shepherd bench`: the standard figures of a model on this machine, in about a minute; compared, if asked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import platformdirs
from rich.table import Table

from shepherd.app.providers import limits_of
from shepherd.cli import measuring, render, signals
from shepherd.cli.command import bench_server
from shepherd.cli.command.replay import listening
from shepherd.cli.command.server_client import find_address
from shepherd.cli.text import json_text
from shepherd.core.dataclasses import dataclass, replace
from shepherd.measure import http, report
from shepherd.measure.metrics import METRICS, Measured, Metric
from shepherd.measure.session import Other, Session
from shepherd.measure.statistics import Change, paired, spread
from shepherd.measure.subject import subject_of

_COLOURS = {"better": "green", "worse": "red", "same": "dim"}
_WORDS = {"better": "better", "worse": "worse", "same": "within the noise"}
_OURS, _THEIRS = "#2a7", "#89b"


def run(
    options: Mapping[str, Any],
    *,
    budget: str,
    json_file: Path | None,
    svg_file: Path | None,
    compare: Path | None,
    against: str | None,
    against_model: str | None,
) -> int:
    if compare is not None and against is not None:
        raise click.UsageError("--compare and --against exclude each other: measure twice.")
    if against_model is not None and against is None:
        raise click.UsageError("--against-model needs --against URL.")
    budget_s = measuring.budget_s(budget)
    measuring.check_writable(json_file, svg_file)
    old = report.read(compare) if compare is not None else None
    config, named = measuring.model_config(options)
    other = None
    if against is not None:
        address = find_address(config, against, tuple(options.get("api_keys") or ()))
        other = Other(address.url, against_model, address.key, limits_of(config.network, http.DEADLINES)[0])
    cache_folder, status = Path(platformdirs.user_cache_dir("shepherd")), 0
    subject = subject_of(config, named)
    signed: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**report.machine(), "load": report.load()},
        "build": report.build(),
        "model": report.model(subject),
        "settings": report.settings(subject),
    }
    if busy := report.busy(signed):
        render.show_warning(f"this machine is busy: {busy}; the figures are worse than they could be")
    with _temporary(cache_folder) as folder:
        session = Session(
            config, subject, budget_s=budget_s, folder=folder, cache_folder=cache_folder, served=listening
        )
        view = View(session, other, old)
        with measuring.show_states(lambda _: view.table(), lambda _: f"measuring: {session.phase}") as show:
            session.on_step = lambda: show(session)
            try:
                if other is not None:
                    factory = partial(bench_server.running, options, folder=folder, cache_folder=cache_folder)
                    signals.run(session.run_against(other, factory, env=os.environ))
                else:
                    signals.run(session.run())
            except SystemExit as left:  # Ctrl-C; what is known is shown all the same
                status = int(left.code or 0)
    if not session.found.samples:
        render.show_error("stopped before anything was measured")
        return status
    signed |= {"complete": status == 0, "budget_s": budget_s}
    signed["machine"]["load_after"] = report.load()
    if old is not None and (why := report.busy(old) or report.busy(signed)):
        when = "when the earlier report was made" if report.busy(old) else "now"
        render.show_warning(f"no verdict on changes: the machine was busy {when} ({why})")
        view = replace(view, is_busy=True)
    if other is not None:
        signed["against"] = {"url": other.url, "model": session.other_model}
    new = report.made(session.found, signed, against=session.other if other else None)
    for line in report.differences(old, new) if old else ():
        render.show_warning(f"not the same as in the earlier report: {line}")
    render.console().print(view.table())
    for line in view.notes():
        render.show_note(line)
    if json_file is not None:
        measuring.save(json_file, json_text(new, indent=2) + "\n")
    if svg_file is not None:
        measuring.save(svg_file, view.svg())
    return status


@contextmanager
def _temporary(cache_folder: Path) -> Iterator[Path]:
    """A folder on the user's own disk, where the memory usually is: a folder for temporary files may be in memory."""
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="bench-", dir=cache_folder)
    except OSError:
        folder = tempfile.TemporaryDirectory(prefix="shepherd-bench-")
    with folder as path:
        yield Path(path)


# -- what is shown ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """What a session has measured so far, as a table and as a picture."""

    session: Session
    other: Other | None = None
    old: Mapping[str, Any] | None = None
    is_busy: bool = False
    """Other programs have had the machine: a change of two runs may be theirs."""

    def table(self) -> Table:
        found = self.session.found
        table = Table(title=self._title(), title_justify="left")
        for name in self._head():
            table.add_column(name, justify="left" if name in ("FIGURE", "UNIT", "CHANGE", "RATIO") else "right")
        compared = report.compared(self.old, self.session.found) if self.old is not None else {}
        for metric in self._metrics():
            first, n = found.title(metric), str(len(found.samples.get(metric.name, ())))
            if self.other is not None:
                changed, theirs = self._ratio(metric), _middle(self.session.other, metric)
                cells = (_middle(found, metric), theirs, metric.unit, _change(changed), n)
                table.add_row(first, *cells, style=_style(changed))
                continue
            alone = (_middle(found, metric), metric.unit, _interval(found, metric), n)
            if self.old is None:
                table.add_row(first, *alone)
            else:
                row = compared.get(metric.name)
                changed = row.change if row else None
                words = (row.problem if row else "") or _change(changed, judged=not self.is_busy)
                style = None if self.is_busy else _style(changed)
                table.add_row(first, *alone, _number(_earlier_median(self.old, metric)), words, style=style)
        return table

    def notes(self) -> Iterator[str]:
        """Why metrics are missing, and how the table is read."""
        for measured, name in (
            (self.session.found, "Shepherd: " if self.other else ""),
            (self.session.other, "other: "),
        ):
            for metric in self._metrics():
                if why := measured.missing.get(metric.name):
                    yield f"{name}{measured.title(metric)}: {why}"
        if self.other is not None:
            yield "ratio: Shepherd to the other server; 'better' and 'worse' are about Shepherd"
        yield "medians; the true one is in the interval with 95 % confidence, or all samples are, where n is below 6"

    def svg(self) -> str:
        """A bar for each metric, or two where something is compared; the longest of a unit is as long as there is
        room."""
        bars = []
        for metric in self._metrics():
            values = [(self._names()[0], _OURS, _median(self.session.found, metric))]
            if self.other is not None:
                values.append((self._names()[1], _THEIRS, _median(self.session.other, metric)))
            elif self.old is not None:
                values.append(("earlier", _THEIRS, _earlier_median(self.old, metric)))
            most = self._most(metric) if len(values) == 1 else max((value or 0.0 for *_, value in values), default=0.0)
            for name, colour, value in values:
                label = self.session.found.title(metric)
                if value is not None:
                    part = value / most if most > 0 else 0.0
                    text = f"{_number(value)} {metric.unit}"
                    bars.append(measuring.Bar(f"{label} ({name})" if len(values) > 1 else label, part, text, colour))
        return measuring.to_svg(self._title(), bars, note="medians")

    def _names(self) -> Sequence[str]:
        return ("Shepherd", self.session.other_name) if self.other is not None else ("now",)

    def _most(self, metric: Metric) -> float:
        values = (_median(self.session.found, each) for each in self._metrics() if each.unit == metric.unit)
        return max((value for value in values if value is not None), default=0.0)

    def _title(self) -> str:
        subject = self.session.subject
        threads = f"{subject.start.n_threads} threads" if subject.start.n_threads != 1 else "1 thread"
        return f"{subject.name} ({subject.header.file_type}), {threads}: {self.session.phase}"

    def _head(self) -> Sequence[str]:
        if self.other is not None:
            return ("FIGURE", *(name.upper() for name in self._names()), "UNIT", "RATIO", "N")
        head = ("FIGURE", "MEDIAN", "UNIT", "INTERVAL", "N")
        return head if self.old is None else (*head, "EARLIER", "CHANGE")

    def _metrics(self) -> list[Metric]:
        known = {*self.session.found.samples, *self.session.found.missing}
        return [metric for metric in METRICS if metric.name in known]

    def _ratio(self, metric: Metric) -> Change | None:
        ours, theirs = (each.samples.get(metric.name, []) for each in (self.session.found, self.session.other))
        return paired(metric, theirs, ours)


def _median(found: Measured, metric: Metric) -> float | None:
    samples = found.samples.get(metric.name)
    return spread(samples).median if samples else None


def _middle(found: Measured, metric: Metric) -> str:
    return _number(_median(found, metric))


def _interval(found: Measured, metric: Metric) -> str:
    samples = found.samples.get(metric.name)
    if not samples:
        return "-"
    low, _, high, _ = spread(samples)
    return f"{_number(low)} to {_number(high)}"


def _earlier_median(old: Mapping[str, Any], metric: Metric) -> float | None:
    value = next((each.get("median") for each in old["figures"] if each["name"] == metric.name), None)
    return float(value) if isinstance(value, int | float) else None


def _change(change: Change | None, *, judged: bool = True) -> str:
    if change is None:
        return "-"
    sign, times = ("", "×") if change.is_ratio else ("+", "")
    middle, low, high = (f"{each:{sign}.2f}" for each in (change.middle, change.low, change.high))
    return f"{times}{middle} ({low} to {high})" + (f", {_WORDS[change.verdict]}" if judged else "")


def _style(change: Change | None) -> str | None:
    return _COLOURS[change.verdict] if change is not None and change.verdict != "same" else None


def _number(value: float | None) -> str:
    """With three digits that count."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"
