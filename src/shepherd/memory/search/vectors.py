"""Vectors of messages: stored in the file, searched in memory, computed in the background.

    passage ─▶ embedder ─▶ vector ─▶ bits: its signs               all in memory, for the first pass
                                   └▶ q8: a scale, int8 numbers    in the file, for the few that are close

The bits select the closest vectors, and the int8 numbers order them. Together they take a little more than a quarter of
the space of the vectors, and find 99 of 100 messages that the vectors would find (all-MiniLM-L6-v2, ten of 3,000).
Nothing is trained, and nothing is rebuilt.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import apsw
import numpy as np
import numpy.typing as npt

from shepherd.core import BackendError
from shepherd.core.dataclasses import dataclass
from shepherd.memory.archive import index as tables
from shepherd.memory.records import Embedder

logger = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int64]
Nearest = Callable[[str, int], Sequence[tuple[int, float]]]
"""A question and how many -> ids of messages with their cosines, best first."""
T = TypeVar("T")


class Passage(NamedTuple):
    id: int
    body: str
    before: str | None = None
    """The message before it, where the vector includes that."""


class Transaction(Protocol):
    """`MemoryStore.read` or `.write`: runs the function in one transaction."""

    def __call__(self, job: Callable[[apsw.Connection], T], /) -> T: ...


N_RESCORED = 200
"""Of one search: the closest by bits that are scored by numbers, at least."""
PER_ASKED = 4
"""And for each requested result."""
PASSAGE_CHARS = 8_000
"""Of a message: more than current embedders read."""
BEFORE = 0.35
"""Weight of the message before a short one in its vector: enough to find "Rex" by "what is my dog called", and not so
much that chatter before a statement hides it (1.0, the mean, loses a tenth of the results)."""
N_AT_ONCE = 32
"""Messages of one step of `backfill`: one commit, and the longest wait for `stop`."""
_N_SCANNED = 1 << 15
"""Vectors that are compared at once, so that intermediate results stay in the processor's cache."""
_N_LOADED = 1 << 14


# -- in the file ---------------------------------------------------------------------------------------------------

_PASSAGES = """
    SELECT m.id, substr(m.body, 1, :chars), b.body FROM message m
    LEFT JOIN message b
        ON b.id = m.before1 AND b.role IN ('user', 'assistant')
        AND length(b.body) < :short AND length(m.body) < :short AND trim(b.body, char(9, 10, 13, 32)) <> ''
"""
"""Each message, with the one before it if both are short: a short message is often an answer. A long one needs no
context, and would hide the other as context."""
_WANTED = "WHERE m.id < :below AND trim(m.body, char(9, 10, 13, 32)) <> ''"
_FIRST = "(m.role = 'user' OR m.id IN (SELECT source FROM fact WHERE source IS NOT NULL))"
_MISSING = "NOT EXISTS (SELECT 1 FROM vector v WHERE v.message = m.id AND +v.embedder = :embedder)"
_TIERS = {False: f"AND {_FIRST} AND {_MISSING}", True: f"AND m.role = 'assistant' AND NOT {_FIRST} AND {_MISSING}"}
"""By `assistants`. The plus prevents the use of the index that begins with the embedder."""
_VALUES = {"short": tables.SHORT_CHARS, "chars": PASSAGE_CHARS, "below": (1 << 63) - 1}


def register(connection: apsw.Connection, embedder: Embedder) -> int:
    """The id of an embedder in this file, assigned on first use."""
    row = (embedder.name, embedder.dim)
    connection.execute("INSERT INTO embedder(name, dim) VALUES(?, ?) ON CONFLICT DO NOTHING", row)
    number = find_embedder(connection, embedder)
    assert number is not None  # else two embedders have the same name
    return number


def find_embedder(connection: apsw.Connection, embedder: Embedder) -> int | None:
    row = (embedder.name, embedder.dim)
    found: int | None = connection.execute("SELECT id FROM embedder WHERE name = ? AND dim = ?", row).get
    return found


def add(connection: apsw.Connection, embedder: int, ids: Sequence[int], vectors: Vectors) -> None:
    """Store the vectors ([len(ids), dim], rows of length 1) of these messages, and replace older ones."""
    assert vectors.ndim == 2
    assert len(ids) == len(vectors)
    rows = zip(ids, itertools.repeat(embedder), _signs(vectors), _quantised(vectors), strict=False)
    connection.executemany("INSERT OR REPLACE INTO vector(message, embedder, bits, q8) VALUES(?, ?, ?, ?)", rows)


def missing(
    connection: apsw.Connection, embedder: int, limit: int, *, assistants: bool = False, below: int = _VALUES["below"]
) -> list[Passage]:
    """The messages with an id `below` and without a vector of this embedder, newest first.

    These are users' messages and sources of facts; with `assistants`, assistants' messages instead.
    """
    rows: Iterable[Any] = connection.execute(
        f"{_PASSAGES} {_WANTED} {_TIERS[assistants]} ORDER BY m.id DESC LIMIT :limit",
        {**_VALUES, "below": below, "embedder": embedder, "limit": limit},
    )
    return [Passage(*row) for row in rows]


def n_missing(connection: apsw.Connection, embedder: int, *, assistants: bool = False) -> int:
    """How many messages `missing` would return without a limit. It scans all messages."""
    query = f"SELECT count(*) FROM message m {_WANTED} {_TIERS[assistants]}"
    return int(connection.execute(query, {**_VALUES, "embedder": embedder}).get)


def backfill(
    read: Transaction,
    write: Transaction,
    embedder: Embedder,
    *,
    assistants: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> int:
    """Compute the missing vectors, those of the newest messages first; how many were computed.

    It scans the messages once, in steps of `N_AT_ONCE`. Each step is kept, and the next run continues there. Vectors of
    other embedders are deleted at the end. `on_progress` gets how many are done and how many there are; `stop` is
    called before each step.

    Raises: `EngineError` of the embedder, and the errors of `read` and `write`.
    """
    number = write(partial(register, embedder=embedder))
    tiers = (False, True) if assistants else (False,)
    total = sum(read(partial(n_missing, embedder=number, assistants=tier)) for tier in tiers)
    done = made = 0
    for tier in tiers:
        below = _VALUES["below"]
        while True:
            if on_progress is not None:
                on_progress(done, max(done, total))
            if stop is not None and stop():
                return made
            look = partial(missing, embedder=number, limit=N_AT_ONCE, assistants=tier, below=below)
            if not (found := read(look)):
                break
            vectors = _embedded(embedder, found)
            made += write(partial(_add_unchanged, embedder=number, found=found, vectors=vectors))
            done += len(found)
            below = found[-1].id
    while write(partial(_drop_others, embedder=number)):
        if stop is not None and stop():
            break
    return made


def _embedded(embedder: Embedder, passages: Sequence[Passage]) -> Vectors:
    """[len(passages), dim], rows of length 1."""
    texts = list(dict.fromkeys(text for passage in passages for text in passage[1:] if text is not None))
    made = embedder.embed(texts)
    at = {text: index for index, text in enumerate(texts)}
    vectors: Vectors = made[[at[passage.body] for passage in passages]]
    for index, passage in enumerate(passages):
        if passage.before is not None:
            vectors[index] += np.float32(BEFORE) * made[at[passage.before]]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, 1e-12)
    return unit


def _add_unchanged(connection: apsw.Connection, embedder: int, found: Sequence[Passage], vectors: Vectors) -> int:
    """Store the vectors whose passages have not changed: some may have been forgotten or pruned meanwhile."""
    query = f"{_PASSAGES} {_WANTED} AND m.id IN (SELECT value FROM json_each(:ids))"
    rows: Iterable[Any] = connection.execute(query, {**_VALUES, "ids": json.dumps([passage.id for passage in found])})
    now = {Passage(*row) for row in rows}
    kept = [index for index, passage in enumerate(found) if passage in now]
    add(connection, embedder, [found[index].id for index in kept], vectors[kept])
    return len(kept)


def _drop_others(connection: apsw.Connection, embedder: int) -> int:
    """Delete some vectors of other embedders; how many."""
    some = "SELECT seq FROM vector WHERE embedder IN (SELECT id FROM embedder WHERE id <> ?) LIMIT 1000"
    connection.execute(f"DELETE FROM vector WHERE seq IN ({some})", (embedder,))
    return connection.changes()


def _signs(vectors: Vectors) -> list[bytes]:
    return [row.tobytes() for row in np.packbits(vectors > 0, axis=1, bitorder="little")]


def _quantised(vectors: Vectors) -> list[bytes]:
    scales = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-12).astype("<f4") / np.float32(127)
    numbers = np.rint(vectors / scales[:, None]).astype(np.int8)
    return [scale.tobytes() + row.tobytes() for scale, row in zip(scales, numbers, strict=True)]


# -- in memory -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SignTable:
    """The signs of the first `n` vectors. The arrays have room for more; it is filled before `n` is raised."""

    embedder: int | None
    last: int
    """The highest `seq` that was read."""
    n: int
    ids: Ids
    words: Words
    """[n_words, room]: the first words of all vectors, then the second words, and so on: the order of comparison."""


class VectorIndex:
    """The signs of all vectors of one embedder, and the search in them. Any thread.

    A message of 384 dimensions takes 56 bytes; a million are compared in some ten milliseconds. Every search first
    reads the vectors that any process has written since the last one. A deleted vector is noticed when it is a result.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._n_words = -(-embedder.dim // 64)
        self._lock = threading.Lock()
        self._held = self._empty(None)

    def __len__(self) -> int:
        """Vectors in memory; deleted and replaced ones may be among them."""
        return self._held.n

    def searcher(self, connection: apsw.Connection) -> Nearest:
        """Searches for a question in words; finds nothing where no provider makes vectors. It raises `EngineError`."""

        def near(question: str, k: int) -> list[tuple[int, float]]:
            try:
                vector = self._embedder.embed([question])[0]
            except BackendError as error:
                logger.warning("this search is by words only: %s", error)
                return []
            return self.nearest(connection, vector, k)

        return near

    def nearest(self, connection: apsw.Connection, vector: Vectors, k: int) -> list[tuple[int, float]]:
        """Up to `k` messages and their cosines with this vector ([dim], length 1), best and newest first."""
        for _ in range(2):
            self.refresh(connection)
            held = self._held
            ids = self._closest(held, vector, max(N_RESCORED, PER_ASKED * k))
            scored = self._scored(connection, held, ids, vector)
            if 2 * len(scored) >= len(ids):
                break
            with self._lock:  # many vectors in memory have been deleted or replaced: read all of them again
                if self._held is held:
                    self._held = self._empty(None)
        return sorted(scored, key=lambda found: (-found[1], -found[0]))[:k]

    def refresh(self, connection: apsw.Connection) -> None:
        """Read the vectors written since the last call; the first call takes some 0.8 s for a million."""
        with self._lock:
            held = self._held
            number = find_embedder(connection, self._embedder) if held.embedder is None else held.embedder
            if number is None:
                return
            if held.embedder is None:
                held = self._empty(number)
            n_bytes = -(-self._embedder.dim // 8)
            rows: Iterator[Any] = iter(
                connection.execute(
                    "SELECT seq, message, bits FROM vector WHERE embedder = ? AND seq > ? AND length(bits) = ?"
                    " ORDER BY seq",
                    (number, held.last, n_bytes),
                )
            )
            while some := list(itertools.islice(rows, _N_LOADED)):
                held = self._with(held, some, n_bytes)
            self._held = held

    def _empty(self, number: int | None) -> _SignTable:
        return _SignTable(number, 0, 0, np.empty(0, np.int64), np.empty((self._n_words, 0), np.uint64))

    def _with(self, held: _SignTable, rows: Sequence[tuple[int, int, bytes]], n_bytes: int) -> _SignTable:
        n = held.n + len(rows)
        ids, words = held.ids, held.words
        if n > len(ids):  # running searches keep the old arrays
            room = max(n, len(ids) + len(ids) // 2)
            ids, words = np.empty(room, np.int64), np.empty((self._n_words, room), np.uint64)
            ids[: held.n], words[:, : held.n] = held.ids[: held.n], held.words[:, : held.n]
        ids[held.n : n] = [message for _, message, _ in rows]
        words[:, held.n : n] = self._as_words(b"".join(bits for _, _, bits in rows), n_bytes)
        return _SignTable(held.embedder, rows[-1][0], n, ids, words)

    def _as_words(self, bits: bytes, n_bytes: int) -> Words:
        """Signs as 64-bit words, [n_words, n]."""
        signs = np.frombuffer(bits, np.uint8).reshape(-1, n_bytes)
        padded = np.zeros((len(signs), 8 * self._n_words), np.uint8)
        padded[:, :n_bytes] = signs
        return padded.view(np.uint64).T

    def _closest(self, held: _SignTable, vector: Vectors, n: int) -> Ids:
        """Ids of the `n` messages whose signs differ least from those of the vector, and of all that are as close."""
        signs = _signs(np.asarray(vector, np.float32)[None])[0]
        differences = _differences(held.words[:, : held.n], self._as_words(signs, len(signs))[:, 0])
        return held.ids[_least(differences, n)]

    def _scored(
        self, connection: apsw.Connection, held: _SignTable, ids: Ids, vector: Vectors
    ) -> list[tuple[int, float]]:
        """The messages that still have a vector, with their cosines."""
        if held.embedder is None or len(ids) == 0:
            return []
        dim = self._embedder.dim
        rows: list[Any] = connection.execute(
            "SELECT message, q8 FROM vector"
            " WHERE message IN (SELECT value FROM json_each(?)) AND +embedder = ? AND length(q8) = ?",
            (json.dumps(ids.tolist()), held.embedder, 4 + dim),
        ).fetchall()
        if not rows:
            return []
        stored = np.frombuffer(b"".join(q8 for _, q8 in rows), np.uint8).reshape(len(rows), 4 + dim)
        scales = stored[:, :4].copy().view("<f4")[:, 0]
        cosines = scales * (stored[:, 4:].view(np.int8).astype(np.float32) @ vector)
        # Rounded, since equal vectors must have equal cosines in any order of the sum: then the newest is first.
        return [(message, round(float(cosine), 5)) for (message, _), cosine in zip(rows, cosines, strict=True)]


def _differences(words: Words, question: Words) -> Iterable[tuple[int, npt.NDArray[np.uint16]]]:
    """The number of different signs of each vector, piece by piece: the start of a piece, and its numbers."""
    n = words.shape[1]
    for start in range(0, n, _N_SCANNED):
        piece = words[:, start : start + _N_SCANNED]
        total = np.zeros(piece.shape[1], np.uint16)
        for word, wanted in zip(piece, question, strict=True):
            total += np.bitwise_count(word ^ wanted)
        yield start, total


def _least(pieces: Iterable[tuple[int, npt.NDArray[np.uint16]]], n: int) -> npt.NDArray[np.int64]:
    """The positions of the `n` least values, and of all that equal the greatest of them, in no order.

    After the first piece hardly any value is among the `n` least so far, so a comparison is all that most pieces cost.
    """
    at, values = np.empty(0, np.int64), np.empty(0, np.uint16)
    limit = np.iinfo(np.uint16).max
    for start, piece in pieces:
        close = np.flatnonzero(piece <= limit)
        at, values = np.concatenate((at, close + start)), np.concatenate((values, piece[close]))
        if len(values) > n:
            limit = np.partition(values, n - 1)[n - 1]
            kept = values <= limit
            at, values = at[kept], values[kept]
    return at
