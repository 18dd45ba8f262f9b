"""What a suite of somebody else's found, as JSON beside it, and the page of all of them.

    run() ─▶ Report ─ write ─▶ results/NAME.json ─ page ─▶ docs/conformance.md

`make suites` runs all that can be had. Not here: how a suite is fetched and run (one file each).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
_TITLES = {"failed": "fails", "comes later": "comes later", "not applicable": "does not apply"}
PAGE = FOLDER.parent / "docs" / "conformance.md"


@dataclass
class Row:
    """One case of a suite."""

    case: str
    outcome: Literal["passed", "failed", "comes later", "not applicable"]
    why: str = ""
    reference: str = ""
    """What the program came to for which the suite was made, if it ran too."""


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
    body = asdict(report)
    for row in body["rows"]:
        if not row["reference"]:
            del row["reference"]
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Report:
    body = json.loads(path.read_text(encoding="utf-8"))
    return Report(body["name"], body["version"], [Row(**row) for row in body["rows"]])


def page(reports: list[Report]) -> str:
    """The documentation of all reports, generated."""
    lines = [
        "# Conformance",
        "",
        "Tests of other projects, run against Shepherd. `make suites` runs them and writes this page.",
        "A case that does not apply is not counted; its reason is below. *Original* counts what the program passes for",
        "which the suite was made, on the same machine with the same models. No file of a suite is in this repository.",
        "",
        "| suite | version | original | passed | failed | comes later | not applicable |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for report in reports:
        n = Counter(row.outcome for row in report.rows)
        counts = f"{n['passed']} | {n['failed']} | {n['comes later']} | {n['not applicable']}"
        original = sum(row.reference == "passed" for row in report.rows) or ""
        lines.append(f"| {report.name} | {report.version} | {original} | {counts} |")
    for report in reports:
        for outcome, title in _TITLES.items():
            by_reason: dict[str, list[str]] = {}
            for row in report.rows:
                if row.outcome == outcome:
                    by_reason.setdefault(row.why or "no reason is given", []).append(row.case)
            if by_reason:
                lines += ["", f"## {report.name}: what {title}", ""]
            for why, cases in by_reason.items():
                lines += [f"* {_plain(why)}", *(f"  * `{_plain(case)}`" for case in cases)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """One line of text for a list of Markdown."""
    return " ".join(text.replace("`", "'").replace("|", "/").split())[:300]


def all_suites() -> list[str]:
    """The files here that run a suite: not what only the environment of a suite can import."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8"))


def main(names: list[str], target: Path = PAGE) -> None:
    """Run these suites, or all; write their results and the page. Raises: `SystemExit` if one cannot be run."""
    missing = []
    for name in names or all_suites():
        try:
            report = importlib.import_module(f"suites.{name}").run()
        except Exception as error:
            print(f"{name}: cannot be run here: {error}", file=sys.stderr)
            missing.append(name)
            continue
        print(write(report), Counter(row.outcome for row in report.rows), flush=True)
    target.write_text(page([read(path) for path in sorted(RESULTS.glob("*.json"))]), encoding="utf-8")
    if missing:
        sys.exit(f"not run, so that their results are those of an earlier run: {', '.join(missing)}")


if __name__ == "__main__":
    main(sys.argv[1:])
