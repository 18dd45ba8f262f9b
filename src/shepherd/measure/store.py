"""What was measured, kept per model, build of the library and machine, so that a search continues where it stopped.

<cache folder>/optimize/<model>-<build>-<machine>-<goal>.json
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shepherd.engine.llamacpp.selftest import results_id
from shepherd.measure.search import State
from shepherd.measure.space import Candidate, Goal
from shepherd.measure.statistics import Interval
from shepherd.measure.trial import Run, Workload
from shepherd.measure.tuning import Progress
from shepherd.models import gguf
from shepherd.process import child


def file_of(cache_folder: Path, header: gguf.Header, goal: Goal, text: Path | None = None) -> Path:
    """Where the results of a model on this machine are kept, for a text by which quality was judged (None = ours)."""
    judged = "" if text is None else "-" + hashlib.sha256(text.read_bytes()).hexdigest()[:12]
    return cache_folder / "optimize" / f"{results_id(header)}-{goal}{judged}.json"


def save(file: Path, progress: Progress) -> None:
    """Keep the results; a folder that is not writable keeps none."""
    child.keep(file, to_json(progress))


def load(file: Path, start: Candidate) -> Progress | None:
    """The results of an earlier run that began with the same settings; None if there are none."""
    found = find(file)
    return found if found is not None and found.start == start else None


def find(file: Path) -> Progress | None:
    """The results in a file; None without one that this version has written."""
    stored = child.kept(file)
    try:
        return from_json(stored) if stored is not None else None
    except (KeyError, TypeError, ValueError):
        return None


def to_json(progress: Progress) -> dict[str, Any]:
    state = progress.state
    return {
        "start": asdict(progress.start),
        "workload": asdict(progress.workload),
        "runs": [[asdict(candidate), asdict(run)] for candidate, run in progress.runs],
        "finalist": None if progress.finalist is None else asdict(progress.finalist),
        "final": list(progress.final),
        "state": None
        if state is None
        else {
            "best": asdict(state.best),
            "stage": state.stage,
            "alive": [asdict(each) for each in state.alive],
            "ratios": [[asdict(each), list(logs)] for each, logs in state.ratios.items()],
            "noise": [list(each) for each in state.noise],
            "failed": [[asdict(each), why] for each, why in state.failed.items()],
            "adopted": [[asdict(each), list(found)] for each, found in state.adopted],
            "n_pairs": state.n_pairs,
        },
    }


def from_json(stored: Mapping[str, Any]) -> Progress:
    """The inverse of `to_json`. Raises: `KeyError`, `TypeError`, `ValueError` for anything else."""
    state = stored["state"]
    return Progress(
        start=Candidate(**stored["start"]),
        workload=Workload(**stored["workload"]),
        runs=tuple((Candidate(**candidate), Run(**run)) for candidate, run in stored["runs"]),
        finalist=None if stored["finalist"] is None else Candidate(**stored["finalist"]),
        final=tuple(map(float, stored["final"])),
        state=None
        if state is None
        else State(
            best=Candidate(**state["best"]),
            stage=int(state["stage"]),
            alive=tuple(Candidate(**each) for each in state["alive"]),
            ratios={Candidate(**each): tuple(map(float, logs)) for each, logs in state["ratios"]},
            noise=tuple((float(square), int(n)) for square, n in state["noise"]),
            failed={Candidate(**each): str(why) for each, why in state["failed"]},
            adopted=tuple((Candidate(**each), Interval(*map(float, found))) for each, found in state["adopted"]),
            n_pairs=int(state["n_pairs"]),
        ),
    )
