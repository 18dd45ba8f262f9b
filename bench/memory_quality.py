"""Measures how well the memory finds the evidence of the questions of a public data set: its recall and its rank.

    python bench/memory_quality.py FILE [--embedder GGUF] [--reranker GGUF]

    FILE ─▶ memory/datasets.py ─▶ Case ─▶ archive, search ─▶ ranks of the evidence ─▶ Report, as JSON

FILE is a file or a folder of LoCoMo, BEAM or LongMemEval, which you download yourself. *Case*: one archive and its
questions. *Evidence*: the messages that answer a question. *Rank*: the place of an evidence among the results, from 1.
Every case has its own archive in a file, stored and indexed by the production code; every question is one search over
all of it. No model judges: a message is evidence or it is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from shepherd.cli import render
from shepherd.cli.command.memory import embedding, reranking_by
from shepherd.core import InvalidRequest, ShepherdError
from shepherd.memory import schema
from shepherd.memory.archive.history import archive
from shepherd.memory.records import Embedder
from shepherd.memory.search import ranking, vectors
from shepherd.memory.search.reranking import Reranking

sys.path.append(str(Path(__file__).resolve().parents[1]))  # so that it also runs by its path, from any folder
from bench.memory import datasets
from bench.memory.datasets import Case

T = TypeVar("T")
Retrieve = Callable[[str, int], Sequence[int]]
"""From a question and a limit to the ids of messages, best first."""
Open = Callable[[apsw.Connection], Retrieve]
"""From a complete archive to its search."""

CUT = 100
"""Evidence below this rank counts as not found."""
MEASURES = ("R@1", "R@5", "R@10", "hit@5", "MRR", "session R@5")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question, and the ranks of its evidence."""

    kind: str
    headline: bool
    ranks: tuple[int, ...]
    """From 1, ascending, of the evidence found."""
    n_evidence: int
    session_ranks: tuple[int, ...]
    """The same for the sessions that hold evidence, each at its first message."""
    n_sessions: int

    @property
    def measures(self) -> tuple[float, ...]:
        """In the order of `MEASURES`."""
        found = {k: sum(rank <= k for rank in self.ranks) for k in (1, 5, 10)}
        return (
            *(found[k] / self.n_evidence for k in (1, 5, 10)),
            float(found[5] > 0),
            1 / self.ranks[0] if self.ranks else 0.0,
            sum(rank <= 5 for rank in self.session_ranks) / self.n_sessions,
        )


@dataclass(slots=True)
class Report:
    """The results of all cases."""

    outcomes: list[Outcome] = field(default_factory=list)
    n_cases: int = 0
    n_messages: int = 0
    n_without: int = 0
    """Questions without evidence, which are not asked."""
    archive_s: float = 0.0
    search_s: list[float] = field(default_factory=list)

    def __getitem__(self, measure: str) -> float:
        """One of `MEASURES` over the headline questions; 0.0 when there is none."""
        return _means([each for each in self.outcomes if each.headline])[measure]

    def as_json(self) -> dict[str, Any]:
        """`MEASURES` of the headline questions, then of each kind, then the counts and times."""
        counted = [each for each in self.outcomes if each.headline]
        return {
            **_means(counted),
            "kinds": _by_kind(counted),
            "apart": _by_kind([each for each in self.outcomes if not each.headline]),
            "conversations": self.n_cases,
            "messages": self.n_messages,
            "without_evidence": self.n_without,
            "archive_s": round(self.archive_s, 3),
            "search_s": round(sum(self.search_s), 3),
            "search_p50_ms": round(statistics.median(self.search_s) * 1000, 3) if self.search_s else 0.0,
        }


def run(path: Path | str, *, embedder: Embedder | None = None, reranking: Reranking | None = None) -> dict[str, Any]:
    """Ask all questions of a LoCoMo, BEAM or LongMemEval file or folder: `Report.as_json`.

    With an `embedder` the search is hybrid; `reranking` orders what it finds.

    Raises: `InvalidRequest` for a file that is none of these, or in which no question has evidence.
    """
    report = score(datasets.load(path), ranked(embedder, reranking))
    if not report.outcomes:
        raise InvalidRequest(f"no question of {path} names a message as its evidence", field="file")
    return report.as_json()


def ranked(embedder: Embedder | None = None, reranking: Reranking | None = None) -> Open:
    """The search of the memory itself; with an embedder it is hybrid, over vectors of all user messages; `reranking`
    orders what it finds."""

    def opened(connection: apsw.Connection) -> Retrieve:
        nearest = None
        if embedder is not None:
            vectors.backfill(on(connection), on(connection), embedder)
            nearest = vectors.VectorIndex(embedder).searcher(connection)

        def retrieve(question: str, limit: int) -> list[int]:
            found = ranking.rank(connection, question, limit=limit, vectors=nearest, reranking=reranking)
            return [each.id for each in found]

        return retrieve

    return opened


def on(connection: apsw.Connection) -> vectors.Transaction:
    """What runs work on this connection, in a transaction. After a failure the connection can only be closed."""

    def run(work: Callable[[apsw.Connection], T], /) -> T:
        connection.execute("BEGIN IMMEDIATE")
        done = work(connection)
        connection.execute("COMMIT")
        return done

    return run


def score(cases: Iterable[Case], opened: Open, *, limit: int = CUT) -> Report:
    """Archive each case into a file of its own and ask its questions."""
    report = Report()
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="shepherd-eval-") as folder:
            connection = schema.open_file(Path(folder) / "case.db")
            try:
                started = time.perf_counter()
                names = store(connection, case)
                retrieve = _named(opened(connection), names)
                report.archive_s += time.perf_counter() - started
                ask(report, case, retrieve, limit)
            finally:
                connection.close()
    return report


def _named(retrieve: Retrieve, names: Mapping[int, str]) -> Callable[[str, int], list[str]]:
    return lambda question, limit: [names[id] for id in retrieve(question, limit)]


def store(connection: apsw.Connection, case: Case) -> dict[int, str]:
    """Archive a case, each session as a conversation; the names of its messages by their ids."""
    names: dict[int, str] = {}
    for n, session in enumerate(case.sessions):
        ids = on(connection)(partial(archive, history=[message.entry for message in session], session=str(n)))
        names.update(zip(ids, (message.id for message in session), strict=True))
    return names


def ask(report: Report, case: Case, retrieve: Callable[[str, int], Sequence[str]], limit: int = CUT) -> None:
    """Ask the questions of a case; `retrieve` returns the names of messages, best first."""
    report.n_cases += 1
    report.n_messages += sum(map(len, case.sessions))
    session_of = {message.id: n for n, session in enumerate(case.sessions) for message in session}
    for question in case.questions:
        if not question.evidence:
            report.n_without += 1
            continue
        started = time.perf_counter()
        found = list(dict.fromkeys(retrieve(question.text, limit)))[:limit]
        report.search_s.append(time.perf_counter() - started)
        evidence = set(question.evidence)
        sessions = {session_of[name] for name in evidence}
        outcome = Outcome(
            question.kind,
            question.headline,
            tuple(rank for rank, name in enumerate(found, 1) if name in evidence),
            len(evidence),
            tuple(rank for rank, n in enumerate(dict.fromkeys(session_of[name] for name in found), 1) if n in sessions),
            len(sessions),
        )
        report.outcomes.append(outcome)


def _by_kind(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    kinds = sorted({each.kind for each in outcomes})
    return {kind: _means([each for each in outcomes if each.kind == kind]) for kind in kinds}


def _means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Each measure over some questions, and `n`, how many they are."""
    columns = zip(*(each.measures for each in outcomes), strict=True) if outcomes else [(0.0,)] * len(MEASURES)
    means = {name: round(statistics.fmean(column), 4) for name, column in zip(MEASURES, columns, strict=True)}
    return {**means, "n": len(outcomes)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", metavar="FILE", help="LoCoMo, BEAM or LongMemEval: a file or a folder")
    parser.add_argument("--embedder", metavar="GGUF", help="an embedding model, to search by meaning as well")
    parser.add_argument("--reranker", metavar="GGUF", help="a reranker, which orders what is found")
    said = parser.parse_args(arguments)
    try:
        with embedding(said.embedder) as embedder, reranking_by(said.reranker) as reranking:
            render.show_json(run(said.file, embedder=embedder, reranking=reranking))
    except ShepherdError as error:
        render.show_error(error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
