"""What finds the message that answers a question: full text as it comes, full text with care, vectors, both, and mem0.

The questions are those of `memory_text.cases`, or of a LoCoMo, BEAM or LongMemEval file. Every arm has the same
messages and is scored by `bench/memory_quality.py`. Two arms have a reranker that is no model, but named for what
it is: one knows the evidence, which is the most that any reranker can reach, one counts shared words. mem0 runs in an
environment of its own, with no language model (`infer=False`) and the same vectors: it is made here and kept in the
cache folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import apsw
import numpy as np
from bench import memory_quality
from bench.memory.corpus import several
from bench.memory.datasets import Case
from bench.memory_quality import Open, Report, Retrieve
from bench.rig.llama_tools import folder

from shepherd.memory.records import Embedder
from shepherd.memory.search import vectors
from shepherd.memory.search.reranking import TEXT_CHARS, Reranking

Vector = np.ndarray[Any, np.dtype[np.float32]]
MEM0 = ("mem0ai==2.2.1", "qdrant-client==1.20.0")
STOP_WORDS = frozenset(
    several(
        "a an and are as at be but by did do does for from had has have he her his how i if in is it me my of on or "
        "our she that the their them they this to was we were what when where which who whose why will with you your"
    )
)


class Once:
    """An embedder that computes no text twice, whichever arm asks."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dim = embedder.name, embedder.dim
        self._embedder = embedder
        self._known: dict[str, Vector] = {}

    def embed(self, texts: list[str]) -> Vector:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        self._known.update(zip(new, self._embedder.embed(new) if new else (), strict=True))
        return np.stack([self._known[text] for text in texts])


# -- full text as it comes -----------------------------------------------------------------------------------------


def plain(*, any_word: bool, stop_words: bool, lanes: bool) -> Open:
    """FTS5 with its own bm25. `any_word`: OR, else all words must be there. `lanes`: what users say and the rest apart,
    four to one; else everything is one list by score."""

    def opened(connection: apsw.Connection) -> Retrieve:
        def retrieve(question: str, limit: int) -> list[int]:
            words = dict.fromkeys(re.findall(r"\w+", question.casefold()))
            kept = [word for word in words if not (stop_words and word in STOP_WORDS)] or list(words)
            match = (" OR " if any_word else " ").join(f'"{word}"' for word in kept)
            weights = (1.0, 0.4) if lanes else (1.0, 0.0)
            users, others = (_by_bm25(connection, lane, match, weights, limit) for lane in ("fts_user", "fts_other"))
            if lanes:
                return list(_dealt([id for _, id in users], [id for _, id in others]))
            return [id for _, id in sorted(users + others)]

        return retrieve

    return opened


def _by_bm25(
    connection: apsw.Connection, lane: str, match: str, weights: tuple[float, float], limit: int
) -> list[tuple[float, int]]:
    """Scores, lower is better, with ids."""
    rows = connection.execute(
        f"SELECT bm25({lane}, ?, ?), rowid FROM {lane} WHERE {lane} MATCH ? ORDER BY 1, rowid DESC LIMIT ?",
        (*weights, match, limit),
    )
    return cast("list[tuple[float, int]]", rows.fetchall())


def _dealt(users: Sequence[int], others: Sequence[int]) -> Iterator[int]:
    """Four of one, one of the other, until both are used up."""
    for n in range(max(len(users), 4 * len(others))):
        yield from users[4 * n : 4 * n + 4]
        yield from others[n : n + 1]


def by_meaning(embedder: Embedder) -> Open:
    """Vectors alone, of the messages of both roles."""

    def opened(connection: apsw.Connection) -> Retrieve:
        run = memory_quality.on(connection)
        vectors.backfill(run, run, embedder, assistants=True)
        nearest = vectors.VectorIndex(embedder).searcher(connection)
        return lambda question, limit: [id for id, _ in nearest(question, limit)]

    return opened


def rerankers(cases: Sequence[Case]) -> dict[str, Reranking]:
    """What stands for a model; each has all the time that it wants."""
    evidence: dict[str, set[str]] = {}
    for case in cases:
        body = {said.id: said.entry.text for part in case.sessions for said in part}
        for question in case.questions:
            evidence.setdefault(question.text, set()).update(body[name][:TEXT_CHARS] for name in question.evidence)

    def knows(question: str, texts: Sequence[str]) -> list[float]:
        return [float(text in evidence[question]) for text in texts]

    def shares_words(question: str, texts: Sequence[str]) -> list[float]:
        asked = set(re.findall(r"\w+", question.casefold())) - STOP_WORDS
        found = [set(re.findall(r"\w+", text.casefold())) for text in texts]
        return [len(asked & words) / (1 + len(words)) ** 0.5 for words in found]

    return {
        "reranked by shared words (a fake)": Reranking(shares_words, "words", budget_s=60),
        "reranked by an oracle (the bound)": Reranking(knows, "oracle", budget_s=60),
    }


def arms(embedder: Embedder | None, cases: Sequence[Case]) -> dict[str, Open]:
    """What is compared, the least first."""
    made = {
        "FTS5 as it comes (all words)": plain(any_word=False, stop_words=False, lanes=False),
        "FTS5, any word": plain(any_word=True, stop_words=False, lanes=False),
        "FTS5, any word, stop-words, lanes": plain(any_word=True, stop_words=True, lanes=True),
        "Shepherd": memory_quality.ranked(),
    }
    if embedder is not None:
        made["vectors alone"] = by_meaning(embedder)
        made["Shepherd, hybrid"] = memory_quality.ranked(embedder)
    for name, reranking in rerankers(cases).items():
        made[f"Shepherd, {name}"] = memory_quality.ranked(embedder, reranking)
    return made


def compared(cases: Sequence[Case], embedder: Embedder | None, say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Name of the arm -> `Report.as_json`."""
    results = {}
    for name, opened in arms(embedder, cases).items():
        results[name] = memory_quality.score(cases, opened).as_json()
        say(f"{name:>36}: {figures(results[name])}")
    return results


def figures(found: dict[str, Any]) -> str:
    return "  ".join(f"{key} {found[key]:.3f}" for key in ("R@1", "R@5", "R@10", "MRR"))


# -- mem0 ----------------------------------------------------------------------------------------------------------

_SIDE = """
import json, os, sys
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=sys.argv[2], OPENAI_API_KEY="none")
from mem0 import Memory
work = json.load(open(sys.argv[1]))
for n, case in enumerate(work["cases"]):
    memory = Memory.from_config({
        "vector_store": {"provider": "qdrant", "config": {
            "path": f"{sys.argv[2]}/{n}", "collection_name": "bench", "embedding_model_dims": work["dim"]}},
        "embedder": {"provider": "openai", "config": {"openai_base_url": work["url"], "model": "same"}},
        "llm": {"provider": "openai", "config": {"openai_base_url": work["url"]}},
        "history_db_path": f"{sys.argv[2]}/{n}.db",
    })
    for name, role, text in case["messages"]:
        if text.strip():
            memory.add([{"role": role, "content": text}], user_id="u", infer=False, metadata={"name": name})
    found = []
    for question in case["questions"]:
        rows = memory.search(question, top_k=work["limit"], filters={"user_id": "u"}, threshold=0.0)["results"]
        found.append([row["metadata"]["name"] for row in rows])
    print(json.dumps(found), flush=True)
"""


def mem0(cases: Sequence[Case], embedder: Embedder, *, limit: int = memory_quality.CUT) -> dict[str, Any]:
    """What mem0 finds, by the same measures. Raises: `OSError` or `CalledProcessError` where it cannot be installed."""
    python = _installed()
    with tempfile.TemporaryDirectory() as scratch, _serving(embedder) as url:
        work = {
            "url": url,
            "dim": embedder.dim,
            "limit": limit,
            "cases": [
                {
                    "messages": [
                        (said.id, said.entry.role, said.entry.body) for part in case.sessions for said in part
                    ],
                    "questions": [question.text for question in case.questions],
                }
                for case in cases
            ],
        }
        path = Path(scratch, "work.json")
        path.write_text(json.dumps(work))
        environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
        command = [str(python), "-c", _SIDE, str(path), scratch]
        lines = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ).stdout.splitlines()
    report = Report()
    for case, line in zip(cases, (line for line in lines if line.startswith("[[")), strict=True):
        found = dict(zip((question.text for question in case.questions), json.loads(line), strict=True))
        memory_quality.ask(report, case, _told(found))
    return {name: value for name, value in report.as_json().items() if not name.startswith(("archive", "search"))}


def _told(found: dict[str, list[str]]) -> Callable[[str, int], list[str]]:
    return lambda question, limit: found[question][:limit]


def _installed() -> Path:
    """The interpreter of mem0's own environment."""
    home = folder() / "mem0"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        subprocess.run(["uv", "venv", "--quiet", "--clear", str(home)], check=True)
        subprocess.run(["uv", "pip", "install", "--quiet", "--python", str(python), *MEM0], check=True)
        (home / "done").touch()
    return python


@contextmanager
def _serving(embedder: Embedder) -> Iterator[str]:
    """The embedder behind OpenAI's protocol, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            texts = [asked] if isinstance(asked, str) else asked
            found = embedder.embed(texts).tolist()
            rows = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(found)]
            usage = {"prompt_tokens": 0, "total_tokens": 0}
            body = json.dumps({"object": "list", "data": rows, "model": "same", "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
