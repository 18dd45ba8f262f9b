"""The report: a JSON object with all samples and what they were measured on; read back, and compared with another.
It is signed with the machine, the build, the model and the settings.

Measured, facts ─ made ─▶ {format, machine, build, model, settings, figures} ─ file ─▶ read ─▶ compared
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import shepherd
from shepherd.core import ConfigError
from shepherd.core.dataclasses import asdict, dataclass
from shepherd.engine.llamacpp import library, selftest
from shepherd.engine.llamacpp.machine import hardware
from shepherd.measure.metrics import METRICS, Measured, Metric
from shepherd.measure.statistics import Change, change, spread
from shepherd.measure.subject import Subject

FORMAT, VERSION = "shepherd bench", 1
_COMPARED = (
    ("machine", "cpu"), ("machine", "processors"), ("machine", "memory_bytes"), ("machine", "gpus"),
    ("build", "shepherd"), ("build", "library"), ("model", "name"), ("model", "type"), ("model", "digest"),
)  # fmt: skip
"""Facts whose difference is named above a comparison, besides all settings."""


def made(found: Measured, facts: Mapping[str, Any], *, against: Measured | None = None) -> dict[str, Any]:
    """A report. `facts`: date, machine, build, model, settings, whether it is complete."""
    report = {"format": FORMAT, "version": VERSION, **facts, "figures": _metrics(found)}
    if against is not None:
        report["against"] = {**facts["against"], "figures": _metrics(against)}
    return report


def _metrics(found: Measured) -> list[dict[str, Any]]:
    rows = []
    for metric in METRICS:
        row: dict[str, Any] = {
            "name": metric.name,
            "title": found.title(metric),
            "unit": metric.unit,
            "better": "higher" if metric.more_is_better else "lower",
            "workload": _workload(found, metric),
        }
        if samples := found.samples.get(metric.name):
            low, median, high, n = spread(samples)
            row |= {"n": n, "median": median, "low": low, "high": high, "samples": samples}
        elif metric.name in found.missing:
            row["missing"] = found.missing[metric.name]
        else:
            continue
        rows.append(row)
    return rows


def _workload(found: Measured, metric: Metric) -> dict[str, Any]:
    return {name: found.workload.get(name) for name in ("through", *metric.workload)}


def read(file: Path) -> dict[str, Any]:
    """An earlier report. Raises: `ConfigError` for a file that is none, or has another version."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "is no report: it is no JSON; 'shepherd bench --json FILE' writes one", file=str(file)
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ConfigError("is no report of shepherd bench; 'shepherd bench --json FILE' writes one", file=str(file))
    if found.get("version") != VERSION:
        raise ConfigError(
            f"is a report of version {found.get('version')}, and this Shepherd compares version {VERSION}; measure "
            "again with one of the two programs",
            file=str(file),
        )
    try:
        for row in found["figures"]:
            if not isinstance(row["name"], str) or not isinstance(row["workload"], dict):
                raise TypeError(row)
            [float(each) for each in row.get("samples", ())]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError("is a damaged report: its figures cannot be read; measure again", file=str(file)) from error
    return found


def busy(report: Mapping[str, Any]) -> str:
    """How busy other programs kept the machine, as the end of a sentence; empty where each process had a processor."""
    machine, threads = _part(report, "machine"), _part(report, "settings").get("n_threads") or 1
    before, after, n = (machine.get(name) or 0.0 for name in ("load", "load_after", "processors"))
    if before <= n and after - threads <= n:
        return ""
    return f"{max(before, after):.1f} processes want its {n} processors"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What else has changed, a phrase each: the machine, the build, the model, the settings."""
    names = [*_COMPARED, *(("settings", name) for name in sorted({*_part(old, "settings"), *_part(new, "settings")}))]
    pairs = ((part, name, _part(old, part).get(name), _part(new, part).get(name)) for part, name in names)
    return [f"{part} {name}: {before} → {now}" for part, name, before, now in pairs if before != now]


def _part(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = report.get(name)
    return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Compared:
    metric: Metric
    change: Change | None
    problem: str = ""


def compared(old: Mapping[str, Any], new: Measured) -> dict[str, Compared]:
    """By name, every metric of `new`, against an earlier report."""
    before = {row["name"]: row for row in old["figures"]}
    found = {}
    for metric in METRICS:
        if not (samples := new.samples.get(metric.name)):
            continue
        row = before.get(metric.name, {})
        workload, earlier = _workload(new, metric), row.get("workload")
        if not row.get("samples"):
            found[metric.name] = Compared(metric, None, "not in the earlier report")
        elif workload != earlier:
            changed = ", ".join(f"{name} {(earlier or {}).get(name)} → {workload[name]}" for name in workload
                                if (earlier or {}).get(name) != workload[name])  # fmt: skip
            found[metric.name] = Compared(metric, None, f"not comparable: {changed}")
        else:
            found[metric.name] = Compared(metric, change(metric, [*map(float, row["samples"])], samples))
    return found


# -- what a report is signed with -------------------------------------------------------------------------------------


def load() -> float:
    """Processes that wanted a processor, as the mean of the last minute."""
    return round(psutil.getloadavg()[0], 2)


def machine() -> dict[str, Any]:
    """The facts that stay the same between two runs, and an id of them."""
    return {
        "id": hardware(),
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False),
        "processors": os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": list(library.devices()),
        "system": platform.platform(),
    }


def build() -> dict[str, Any]:
    return {
        "shepherd": shepherd.__version__,
        "llama-cpp-python": version("llama-cpp-python"),
        "library": selftest.build_id(),
        "python": platform.python_version(),
    }


def model(subject: Subject) -> dict[str, Any]:
    header = subject.header
    return {
        "name": subject.name,
        "file": header.path.name,
        "digest": header.digest()[:16],
        "architecture": header.architecture,
        "type": header.file_type,
        "params": header.n_params,
        "size_bytes": header.size_bytes,
    }


def settings(subject: Subject) -> dict[str, Any]:
    """How the model runs; None = what the library chooses."""
    return asdict(subject.start)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
