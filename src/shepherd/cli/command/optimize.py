"""`shepherd optimize`: finds the fastest settings of a model on this machine, shows the proof, and may write them."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import platformdirs
import tomlkit
from rich.table import Table

from shepherd import config as configuration
from shepherd.cli import measuring, render, trust
from shepherd.cli.command import mcp_file
from shepherd.cli.text import format_size
from shepherd.config.layers import read_bytes
from shepherd.core import ConfigError
from shepherd.core.encoding import text_of
from shepherd.engine.llamacpp import selftest
from shepherd.measure import store, trial
from shepherd.measure.space import OF_CACHES, Candidate, Goal
from shepherd.measure.subject import Subject, subject_of
from shepherd.measure.trial import Run, Workload
from shepherd.measure.tuning import Measure, Progress, stage_name, tune

_UNSET: Mapping[str, Any] = {
    "cache_type_k": "f16", "cache_type_v": "f16", "repack": True, "mmap": True, "mlock": False, "override_tensor": [],
}  # fmt: skip
"""What a setting that was taken back is in a file."""
_QUALITY = 32
"""Tokens whose probabilities a quantised cache must keep."""
_SHOWN = 12
"""Rows of the table on the terminal."""


def run(
    options: Mapping[str, Any],
    *,
    budget: str,
    goal: Goal,
    apply: bool,
    fresh: bool,
    text: Path | None,
    json_file: Path | None,
    svg_file: Path | None,
) -> int:
    budget_s = measuring.budget_s(budget)
    measuring.check_writable(json_file, svg_file)
    config, named = measuring.model_config(options)
    file = _file(options) if apply else None
    cache_folder = Path(platformdirs.user_cache_dir("shepherd"))
    subject = subject_of(config, named, goal)
    if file is not None:
        changed(file, subject, {})  # a file of an unusual form fails before the work, not behind it
    kept = store.file_of(cache_folder, subject.header, goal, text)
    known = None if fresh else store.load(kept, subject.start)
    progress, status = known or Progress(subject.start, Workload()), 0

    with tempfile.TemporaryDirectory(prefix="shepherd-optimize-") as folder, _view(goal) as show:

        def step(now: Progress) -> None:
            nonlocal progress
            progress = now
            store.save(kept, now)
            show(now)

        try:
            progress = tune(
                subject.start, subject.facts, goal, _measure(subject, Path(folder), cache_folder, text),
                budget_s=budget_s, known=known, on_step=step,
            )  # fmt: skip
        except KeyboardInterrupt:
            status = 130
    if not progress.runs:
        return status
    _show_end(progress, goal, subject.name)
    render.write(to_toml(subject, progress))
    if json_file is not None:
        measuring.save(json_file, json.dumps(report(subject.name, progress, goal), indent=2) + "\n")
    if svg_file is not None:
        measuring.save(svg_file, to_svg(progress, goal))
    if file is not None and status == 0:
        changes = _settings(progress)
        if changes:
            write_settings(file, subject, changes)
        else:
            render.show_note(f"{file} stays as it is: nothing is proved to be better.")
    return status


# -- what is measured -------------------------------------------------------------------------------------------------


def _measure(subject: Subject, folder: Path, cache_folder: Path, text: Path | None) -> Measure:
    verdict = selftest.verdict(cache_folder)

    def measured(candidate: Candidate, workload: Workload, *, timeout_s: float) -> Run:
        reference = folder / f"reference-{workload.depth}.npy"

        def child(each: Candidate, work: Workload, left_s: float) -> Run:
            (run,) = trial.measure(
                subject.path, each, work, timeout_s=left_s, reference=reference, text=text,
                use_extra_bufts=verdict.use_extra_bufts,
            )  # fmt: skip
            return run

        if not candidate.lossy:
            return child(candidate, workload, timeout_s)
        work, spent_s = replace(workload, n_quality=_QUALITY), 0.0
        if not reference.exists():
            spent_s = child(replace(candidate, cache_type_k=None, cache_type_v=None), work, timeout_s).took_s
        done = child(candidate, work, max(0.1, timeout_s - spent_s))
        return replace(done, took_s=done.took_s + spent_s)

    return measured


# -- what is shown ----------------------------------------------------------------------------------------------------


def described(candidate: Candidate, start: Candidate) -> str:
    """The settings that differ from those at the start, in words."""
    changes = candidate.changes(start)
    return ", ".join(f"{name} = {_toml_value(name, value)}" for name, value in changes.items()) or "as it is"


def rows(progress: Progress, goal: Goal) -> list[dict[str, Any]]:
    """A row for each combination, the best first: what was measured, as medians, or why there is nothing."""
    found = []
    for candidate in dict.fromkeys(each for each, _ in progress.runs):
        done = progress.of(candidate)
        row: dict[str, Any] = {"settings": described(candidate, progress.start), "runs": len(done)}
        if done:
            score = statistics.median(run.score(goal) or 0.0 for run in done)
            speeds = {
                name: round(statistics.median(getattr(run, name) for run in done), 2)
                for name in ("prompt", "empty", "deep", "parallel")
            }
            row |= {"score": score, **speeds, "memory_bytes": max(run.memory_bytes for run in done)}
            if any(differences := [run.divergence for run in done if run.divergence is not None]):
                row["divergence"] = max(differences)
        else:
            row |= {"problem": progress.failures.get(candidate, "")}
        found.append(row)
    return sorted(found, key=lambda row: -row.get("score", 0.0))


def _table(progress: Progress, goal: Goal) -> Table:
    title = f"{stage_name(progress)}: {len(progress.runs)} runs, {progress.spent_s:.0f} s"
    table = Table(title=title, title_justify="left", caption=f"best so far: {_best(progress)}", caption_justify="left")
    found = rows(progress, goal)
    speeds = {"PROMPT": "prompt", "EMPTY": "empty", f"{progress.workload.depth} DEEP": "deep"}
    if progress.workload.parallel:
        speeds["TOGETHER"] = "parallel"
    differs = ("DIFFERS",) if any("divergence" in row for row in found) else ()
    for name in ("SETTINGS", *speeds, *differs, "MEMORY", "RUNS"):
        table.add_column(name, justify="left" if name == "SETTINGS" else "right")
    for row in found[:_SHOWN]:
        if "problem" in row:
            table.add_row(row["settings"], *("-",) * (len(speeds) + len(differs) + 1), row["problem"][:40])
            continue
        nats = (f"{row['divergence']:.4f}" if "divergence" in row else "" for _ in differs)
        figures = (f"{row[name]:.1f}" for name in speeds.values())
        table.add_row(row["settings"], *figures, *nats, format_size(row["memory_bytes"]), str(row["runs"]))
    return table


def _best(progress: Progress) -> str:
    return described(progress.best, progress.start)


def _view(goal: Goal) -> AbstractContextManager[Callable[[Progress], None]]:
    """A function that shows each state, as a table that stays in place or as a line for each new best."""
    return measuring.show_states(lambda now: _table(now, goal), lambda now: f"best so far: {_best(now)}")


def _show_end(progress: Progress, goal: Goal, name: str) -> None:
    render.console(sys.stderr).print(_table(progress, goal))
    gain = progress.gain
    if progress.best == progress.start:
        render.show_note(f"No settings are proved to be better for {name} ({goal}) than those that it has.")
        return
    if gain is None:
        render.show_note(
            f"{name} ({goal}): better in each comparison of the search; there was no time left to compare it with the "
            "settings at the start. The next run goes on; give it a larger --budget."
        )
        return
    low, middle, high = ((each - 1) * 100 for each in gain)
    if not progress.final:
        render.show_note("There was no time left to compare again at the end; the next run goes on.")
    render.show_note(f"{name} ({goal}): {middle:+.1f} % with 95 % confidence between {low:+.1f} % and {high:+.1f} %")


def report(name: str, progress: Progress, goal: Goal) -> dict[str, Any]:
    gain = progress.gain
    return {
        "model": name,
        "goal": goal,
        "start": asdict(progress.start),
        "best": asdict(progress.best),
        "settings": _settings(progress),
        "gain": gain._asdict() if gain is not None else None,
        "spent_s": round(progress.spent_s, 1),
        "workload": asdict(progress.workload),
        "combinations": rows(progress, goal),
    }


def to_svg(progress: Progress, goal: Goal) -> str:
    found = [row for row in rows(progress, goal) if "score" in row]
    most = max((row["score"] for row in found), default=1.0)
    best = _best(progress)
    bars = [
        measuring.Bar(row["settings"], part, f"{100 * part:.0f} %", "#2a7" if row["settings"] == best else "#89b")
        for row in found
        for part in (row["score"] / most,)
    ]
    return measuring.to_svg(f"Score for {goal}, by settings; longer is better", bars)


# -- what is written --------------------------------------------------------------------------------------------------


def _settings(progress: Progress) -> dict[str, Any]:
    changes = progress.best.changes(progress.start)
    return {
        name: _UNSET.get(name) if value is None else list(value) if isinstance(value, tuple) else value
        for name, value in changes.items()
    }


def _toml_value(name: str, value: Any) -> str:
    return json.dumps(_UNSET.get(name, "auto") if value is None else value)


def to_toml(subject: Subject, progress: Progress) -> str:
    changes = _settings(progress)
    of_model = {name: value for name, value in changes.items() if name not in OF_CACHES}
    of_cache = {name: value for name, value in changes.items() if name in OF_CACHES}
    tables: dict[str, Any] = {"models": {subject.name: of_model}} if of_model else {}
    if of_cache:
        tables["caches"] = {subject.cache: {"model": subject.name, **of_cache}}
    return tomlkit.dumps(tables) if tables else f"# models.{subject.name}: nothing to change\n"


def _file(options: Mapping[str, Any]) -> Path:
    """The configuration file that `--apply` changes. Raises: `ConfigError`."""
    named = options.get("config")
    paths = [Path(named)] if named else configuration.search_paths(Path.cwd(), trust.user_dir())
    file = next((path for path in paths if path.is_file()), None)
    if file is None:
        raise ConfigError("--apply needs a configuration file; name one with --config")
    if file.suffix == ".json":
        raise ConfigError("--apply changes TOML files only; copy the keys that it prints by hand", file=str(file))
    return file


def changed(file: Path, subject: Subject, changes: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of a file with other settings of a model, and what it means then; comments and other keys stay.

    Raises: `ConfigError`.
    """
    model = subject.name
    document: Any = tomlkit.parse(text_of(read_bytes(file)))
    models = document.get("models")
    if not isinstance(models, Mapping) or not isinstance(models.get(model), Mapping):
        raise ConfigError(
            f"there is no table [models.{model}] to write to; add it, with path = ..., and run the command again",
            key="models",
            file=str(file),
        )
    for name, value in changes.items():
        # A cache that has its own type keeps no other: the key of the cache counts before that of the model.
        own: list[Any] = [
            cache
            for cache in (document.get("caches") or {}).values()
            if isinstance(cache, Mapping) and name in cache and cache.get("model", model) == model
        ]
        if name in OF_CACHES:
            caches = document.setdefault("caches", tomlkit.table(is_super_table=True))
            own = [caches.setdefault(subject.cache, {"model": model})]
        for table in own or [models[model]]:
            table[name] = value
    return tomlkit.dumps(document), document.unwrap()


def write_settings(file: Path, subject: Subject, changes: Mapping[str, Any]) -> None:
    """Change the settings of a model in a file, and keep the file before. Raises: `ConfigError`."""
    text, after = changed(file, subject, changes)
    backup = file.with_name(f"{file.name}.bak")
    mcp_file.write(file, after, text, f"change [models.{subject.name}] by hand", key="models", backup=backup)
    render.show_note(f"Wrote {', '.join(changes)} of [models.{subject.name}] to {file}; the file before is {backup}.")
