"""What a suite of another project found, as JSON beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

RESULTS = Path(__file__).parent / "results"


@dataclass
class Row:
    """One case of a suite."""

    case: str
    outcome: Literal["passed", "failed", "not applicable"]
    why: str = ""


@dataclass
class Report:
    """One run of a suite."""

    name: str
    version: str
    rows: list[Row]


def write(report: Report) -> Path:
    """Keep a report, and return its file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{report.name}.json"
    path.write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
