"""The store of answers behind `previous_response_id`.

Each answer is stored with its own input and the id of the answer before it. A body that names an answer continues the
chain of answers up to it. Two bodies may continue the same answer.

Every answer has an owner, the `Caller.owner` of its request. For any other caller it does not exist. The owner of an
open server's answers is the empty text.

Bounded by bytes: the chain that was least recently used leaves first. In memory, or in a file of SQLite that outlives
the server. What is deleted is overwritten.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from shepherd.memory.database import FileKind, open_database, transaction
from shepherd.wire.base import Json, shown
from shepherd.wire.openai.responses.codec import N_STORED, UnknownResponse, message_of
from shepherd.wire.openai.responses.stream import StoredResponse

logger = logging.getLogger(__name__)

LIMIT_BYTES = 128 * 2**20
"""Ten thousand conversations of a few pages, or some of agents that repeat it all in every turn."""

_TABLES = """
CREATE TABLE response(
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- greater than that of the answer before it
    id TEXT NOT NULL UNIQUE,
    previous TEXT,
    body TEXT NOT NULL,          -- JSON, without its output
    n_bytes INTEGER NOT NULL,    -- of the body and the items
    used INTEGER NOT NULL,       -- grows; the same along a chain that was just continued
    owner TEXT NOT NULL DEFAULT ''  -- of the whole chain
) STRICT;
CREATE INDEX response_used ON response(used, number);
CREATE TABLE item(
    response INTEGER NOT NULL,
    is_output INTEGER NOT NULL,
    place INTEGER NOT NULL,
    id TEXT NOT NULL,
    body TEXT NOT NULL,          -- JSON
    PRIMARY KEY(response, is_output, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_id ON item(id, response);
CREATE TRIGGER response_gone AFTER DELETE ON response BEGIN
    DELETE FROM item WHERE response = old.number;
END;
"""

FILE = FileKind(
    "answers",
    "server.responses_file",
    0x53485052,  # SHPR
    2,
    _TABLES,
    {1: "ALTER TABLE response ADD COLUMN owner TEXT NOT NULL DEFAULT '';"},
)
_FIND = "SELECT number, body FROM response WHERE id = ? AND owner = ?"
_FIND_ITEM = """
SELECT item.body FROM item JOIN response ON response.number = item.response WHERE item.id = ? AND owner = ?
ORDER BY item.response IN (SELECT value FROM json_each(?)) DESC, item.response DESC LIMIT 1
"""
"""The newest item of this id, in the answers of a chain or else in all others."""
_CHAIN = """
WITH RECURSIVE chain(number, id, previous) AS (
    SELECT number, id, previous FROM response WHERE id = ? AND owner = ?
    UNION ALL
    SELECT response.number, response.id, response.previous
    FROM response JOIN chain ON response.id = chain.previous
)
SELECT number, previous, id FROM chain ORDER BY number
"""


class ResponseStore:
    """The stored answers. Every call takes milliseconds at most, on any thread."""

    def __init__(self, path: Path | None = None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """`path`: the file, made if it is not there, readable by its owner alone; None = in memory.

        Raises: `ConfigError` for a file that cannot be opened or holds something else.
        """
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._file = open_database(path, FILE)
        held, used = self._file.execute("SELECT coalesce(sum(n_bytes), 0), coalesce(max(used), 0) FROM response").get
        self.n_bytes: int = held
        """The size of all stored answers."""
        self._used: int = used

    def close(self) -> None:
        """Close the file; answers in memory are lost."""
        with self._lock:
            self._file.close()

    # ---- for bodies

    def resolve(self, body: Json, *, owner: str = "") -> Json:
        """The body with the items of the answers before it, and of the items to which it only refers.

        An id that two items have means that of the chain; without it, the newest. Raises: `UnknownResponse`.
        """
        previous, items = body.get("previous_response_id"), body.get("input")
        chain: list[int] = []
        before: list[Json] = []
        if isinstance(previous, str) and previous:
            chain, before = self._continue(previous, owner)
            items = [message_of(items)] if isinstance(items, str) else [] if items is None else items
        if not isinstance(items, list):  # a plain text, or a value that the codec refuses
            return {**body, N_STORED: 0}
        return {
            **body,
            "input": [*before, *(self._item_meant(item, owner, chain) for item in items)],
            N_STORED: len(before),
        }

    def _continue(self, id: str, owner: str) -> tuple[list[int], list[Json]]:
        """The chain up to an answer, which counts as used now, and all items in it. Raises: `UnknownResponse`."""
        with self._lock:
            chain = self._chain(id, owner)
            self._used += 1
            self._file.executemany("UPDATE response SET used = ? WHERE number = ?", [(self._used, n) for n in chain])
            return chain, self._items(chain, with_output_of=chain)

    def _item_meant(self, item: Any, owner: str, chain: Sequence[int]) -> Any:
        """The item of a reference, if it is stored; any other item unchanged."""
        match item:
            case {"id": str() as id} if item.keys() == {"id"} or item.get("type", "") in ("item_reference", None):
                with self._lock:
                    found = self._file.execute(_FIND_ITEM, (id, owner, json.dumps(chain))).get
            case _:
                return item
        return item if found is None else json.loads(found)

    # ---- for answers

    def store(self, encoder: Any, *, owner: str = "") -> None:
        """Store the answer that an encoder of the protocol has finished, unless the request has `store: false`."""
        stored: StoredResponse | None = encoder.stored
        if stored is None:
            return
        rows = [(True, at, item["id"], json.dumps(item)) for at, item in enumerate(stored.response["output"])]
        rows += [(False, at, *_named(item, at, stored.id)) for at, item in enumerate(stored.items)]
        body = json.dumps({key: value for key, value in stored.response.items() if key != "output"})
        n_bytes = len(body) + sum(len(item) for *_, item in rows)
        if n_bytes > self._limit_bytes:
            logger.warning("%s is not stored: %d bytes, of %d for all", stored.id, n_bytes, self._limit_bytes)
            return
        with self._lock:
            try:
                self._add(stored, owner, body, n_bytes, rows)
            except apsw.Error as error:  # the answer itself is not affected
                logger.warning("%s could not be stored: %s", stored.id, error)

    def _add(
        self, stored: StoredResponse, owner: str, body: str, n_bytes: int, rows: Sequence[tuple[bool, int, str, str]]
    ) -> None:
        self._used += 1
        with transaction(self._file):
            add = "INSERT INTO response(id, previous, body, n_bytes, used, owner) VALUES(?, ?, ?, ?, ?, ?)"
            self._file.execute(add, (stored.id, stored.previous, body, n_bytes, self._used, owner))
            number = self._file.last_insert_rowid()
            add = "INSERT INTO item(response, is_output, place, id, body) VALUES(?, ?, ?, ?, ?)"
            self._file.executemany(add, [(number, *row) for row in rows])
            held = self.n_bytes + n_bytes
            while held > self._limit_bytes:
                oldest = "SELECT number, n_bytes FROM response ORDER BY used, number LIMIT 1"
                leaving, freed = self._file.execute(oldest).get
                self._file.execute("DELETE FROM response WHERE number = ?", (leaving,))
                held -= freed
        self.n_bytes = held

    # ---- for people

    def find(self, id: str, *, owner: str = "") -> Json | None:
        with self._lock:
            found = self._file.execute(_FIND, (id, owner)).get
            if found is None:
                return None
            number, body = found
            outputs = "SELECT body FROM item WHERE response = ? AND is_output ORDER BY place"
            output = [json.loads(item) for (item,) in self._file.execute(outputs, (number,))]
        return {**json.loads(body), "output": output}

    def find_input(self, id: str, *, owner: str = "") -> list[Json] | None:
        """The whole input of the answer of this id, in order.

        Raises: `UnknownResponse` when something of it is no longer kept.
        """
        with self._lock:
            if self._file.execute(_FIND, (id, owner)).get is None:
                return None
            *before, number = self._chain(id, owner)
            return self._items([*before, number], with_output_of=before)

    def forget(self, id: str, *, owner: str = "") -> bool:
        """Delete an answer and its input; False when there is none. Answers after it can no longer be continued."""
        with self._lock:
            delete = "DELETE FROM response WHERE id = ? AND owner = ? RETURNING n_bytes"
            found = self._file.execute(delete, (id, owner)).get
            self.n_bytes -= found or 0
        return found is not None

    # ---- the chain

    def _chain(self, id: str, owner: str) -> list[int]:
        """The numbers of the answers up to that of this id, in order. Raises: `UnknownResponse`."""
        rows: list[Any] = self._file.execute(_CHAIN, (id, owner)).fetchall()
        if not rows:
            raise UnknownResponse(
                f"previous_response_id names {shown(id)}, which is not stored: it is too old, deleted, was made with "
                "store: false, or by another API key; send the whole conversation as input"
            )
        _, missing, first = rows[0]
        if missing is not None:
            via = "" if first == id else f"continues {shown(first)}, which "
            raise UnknownResponse(
                f"previous_response_id names {shown(id)}, which {via}continues {shown(missing)}, which is not stored "
                "any more; send the whole conversation as input"
            )
        return [number for number, _, _ in rows]

    def _items(self, chain: Sequence[int], *, with_output_of: Sequence[int]) -> list[Json]:
        found = []
        for number in chain:
            n_kinds = 2 if number in with_output_of else 1
            items = "SELECT body FROM item WHERE response = ? AND is_output < ? ORDER BY is_output, place"
            found += [json.loads(item) for (item,) in self._file.execute(items, (number, n_kinds))]
        return found


_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def _named(item: Json, place: int, id: str) -> tuple[str, str]:
    """The id of an item of the input, and the item in full: clients may omit fields with their default."""
    kind = item.get("type") or "message"
    known = item.get("id")
    own = (
        known if isinstance(known, str) and known else f"{_PREFIXES.get(kind, 'item')}_{id.rpartition('_')[2]}_i{place}"
    )
    full = {"type": kind, **item, "id": own}
    if kind == "message" and isinstance(text := item.get("content"), str):
        part = "output_text" if item.get("role") == "assistant" else "input_text"
        full["content"] = [{"type": part, "text": text}]
    return own, json.dumps(full)
