"""What a suite found, as JSON beside it, and the page of all of them.

    run() ─▶ Report ─ write ─▶ results/NAME.json ─ page ─▶ docs/conformance.md: tests of other projects
                                                                                cases of ours

`make suites` runs all that can be had. Not here: how a suite is fetched and run (one file each).
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "conformance.md"
Whose = Literal["theirs", "ours"]
Outcome = Literal["passed", "failed", "not applicable"]
_CONTROL = "llama-server"
_TITLES = {"failed": "fails", "not applicable": "does not apply"}
_TABLES: dict[Whose, tuple[str, str]] = {
    "theirs": (
        "Tests of other projects",
        """\
Other projects wrote these tests. Shepherd runs them with settings and models of its own. No file of them is in this
repository. `openapi` is Schemathesis: it makes requests from Shepherd's OpenAPI document, and checks the answers by it.
The column *llama-server* is the control: what llama-server passes of the same cases, with the same models on the same
machine. It is empty where llama-server does not run. In `langchain` it lacks the cases of Ollama's protocol.""",
    ),
    "ours": (
        "Cases of ours, driven by others' client libraries",
        """\
This repository holds these cases (`suites/`). Each calls a client library of another project, which calls Shepherd.
They show that the libraries work with Shepherd. They are not tests of those projects.""",
    ),
}
"""The title and the sentences of each table."""


@dataclass
class Row:
    """One case of a suite."""

    case: str
    outcome: Outcome
    why: str = ""
    reference: str = ""
    """The outcome of the same case against llama-server, if it ran there too."""


@dataclass
class Report:
    """One run of a suite."""

    name: str
    whose: Whose
    """Whose cases these are: those of another project, or ours, which call its client library."""
    version: str
    rows: list[Row]
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")
    """Of the run."""


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
    return Report(body["name"], body["whose"], body["version"], [Row(**row) for row in body["rows"]], body["date"])


def stored() -> list[Report]:
    """The reports that are kept, by name."""
    return [read(path) for path in sorted(RESULTS.glob("*.json"))]


def page(reports: list[Report]) -> str:
    """The documentation of all reports, generated."""
    lines = [
        "# Conformance",
        "",
        "`make suites` runs all suites and writes this page. A case that does not apply is neither passed nor failed.",
        "Below the tables are the cases that fail, each with its reason, and the reasons of those that do not apply,",
        "with their number; their names are in [suites/results](../suites/results/).",
    ]
    for whose, (title, sentences) in _TABLES.items():
        lines += ["", f"## {title}", "", sentences, ""]
        lines += _table([report for report in reports if report.whose == whose])
    for report in reports:
        for outcome, title in _TITLES.items():
            by_reason: dict[str, list[str]] = {}
            for row in report.rows:
                if row.outcome == outcome:
                    by_reason.setdefault(row.why or "no reason is given", []).append(row.case)
            if by_reason:
                lines += ["", f"## {report.name}: what {title}", ""]
            if outcome == "failed":
                for why, cases in by_reason.items():
                    lines += [f"* {_plain(why)}", *(f"  * `{_plain(case)}`" for case in cases)]
            else:
                lines += [f"* {_plain(why)} ({n})" for why, n in _in_short(by_reason).items()]
    return "\n".join(lines) + "\n"


def _in_short(by_reason: Mapping[str, list[str]]) -> Counter[str]:
    """How many cases have each reason; reasons that begin alike, up to a colon, are one."""
    beginnings = Counter(why.partition(": ")[0] for why in by_reason)
    counted: Counter[str] = Counter()
    for why, cases in by_reason.items():
        beginning = why.partition(": ")[0]
        counted[beginning if beginnings[beginning] > 1 else why] += len(cases)
    return counted


def _table(reports: list[Report]) -> list[str]:
    """One line for each suite, and one for all of them."""
    has_control = any(row.reference for report in reports for row in report.rows)
    columns = [*([_CONTROL] if has_control else []), "passed", "failed", "not applicable"]
    lines = [f"| suite | version | run on | {' | '.join(columns)} |", "| --- | --- | --- |" + " ---: |" * len(columns)]
    together: Counter[str] = Counter()
    for report in reports:
        n: Counter[str] = Counter(row.outcome for row in report.rows)
        together += n
        if any(row.reference for row in report.rows):
            n[_CONTROL] = sum(row.reference == "passed" for row in report.rows)
        lines.append(_line((report.name, report.version, report.date), n, columns))
    return [*lines, _line(("**together**", "", ""), together, columns)]


def _line(names: tuple[str, str, str], n: Mapping[str, int], columns: list[str]) -> str:
    counts = (str(n.get(column, "" if column == _CONTROL else 0)) for column in columns)
    return f"| {' | '.join(names)} | {' | '.join(counts)} |"


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
    target.write_text(page(stored()), encoding="utf-8")
    if missing:
        sys.exit(f"not run, so that their results are those of an earlier run: {', '.join(missing)}")


if __name__ == "__main__":
    main(sys.argv[1:])
