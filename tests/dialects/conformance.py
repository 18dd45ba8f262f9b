"""The shared conformance data, read in place; None of it is part of this project."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("CONFORMANCE_DIR", Path(__file__).parents[3] / "shared" / "conformance"))
ABSENT = f"conformance data is not at {ROOT} (set CONFORMANCE_DIR)"

Json = dict[str, Any]


@cache
def cases(name: str) -> tuple[Json, ...]:
    """The cases of one file; none when the data is absent."""
    path = ROOT / f"{name}.jsonl"
    if not path.exists():
        return ()
    return tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


@cache
def templates() -> dict[str, str]:
    """The real templates by file name; none when the data is absent."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("templates/*.jinja"))}
