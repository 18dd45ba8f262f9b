"""The conversations that compactions name, and the sealed words that name them.

    messages, marks ─ keep ─▶ record ─▶ word `shp1.…` ─ client ─▶ open ─▶ messages, marks

A word holds the id of a record, its number of messages and a digest of them, sealed with a key of this installation
and bound to the caller that it was made for. A record holds only the messages behind those of its parent, the longest
conversation that is stored and that it begins with: many compactions of one conversation store it once.

A record may have a digest, which the model has written of it later (`digest`), and the messages that it stands with.

Bounded by bytes: the conversation that was least recently used leaves first. In memory, or in a file of SQLite, with
the key, that outlives the program. What is deleted is overwritten.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import json
import secrets
import struct
import threading
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw

from shepherd.agent.storage import message_to_json, read_message
from shepherd.agent.with_memory import entry_of
from shepherd.core import ConfigError, EngineError, InvalidRequest, Message
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.edits import SEAL, Place
from shepherd.core.lru import LruCache
from shepherd.memory.database import FileKind, open_database, transaction
from shepherd.wire.base import Fields

LIMIT_BYTES = 256 * 2**20
"""A hundred conversations of a million tokens without images."""
READ_BYTES = 64 * 2**20
"""Of the conversations that were read last, and need not be parsed again."""
MOST_PLACES = 16
"""Messages that one digest stands with: one for each branch of its conversation; then the oldest is dropped."""
_FIELD = "compaction"

_DIGESTS = """
CREATE TABLE digest(
    number INTEGER PRIMARY KEY REFERENCES record(number) ON DELETE CASCADE,
    text TEXT NOT NULL,
    places TEXT NOT NULL          -- JSON: the messages that it stands with, the oldest first
) STRICT;
"""
_FILE = FileKind(
    "compactions",
    "memory.database_path",
    0x53485043,  # SHPC
    2,
    f"""
CREATE TABLE secret(key BLOB NOT NULL) STRICT;
CREATE TABLE record(
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- greater than that of its parent
    id BLOB NOT NULL UNIQUE,
    parent INTEGER REFERENCES record(number) ON DELETE CASCADE,
    n_messages INTEGER NOT NULL,  -- with those of all parents
    digest TEXT NOT NULL,         -- of these messages
    cleared TEXT NOT NULL,        -- JSON: places
    caller TEXT NOT NULL,
    user TEXT NOT NULL,           -- of the memory; empty = none
    n_bytes INTEGER NOT NULL,
    used INTEGER NOT NULL         -- grows; the same along a chain that was just used
) STRICT;
CREATE TABLE content(
    number INTEGER PRIMARY KEY REFERENCES record(number) ON DELETE CASCADE,
    messages TEXT NOT NULL        -- behind those of the parent: JSON, a line each
) STRICT;
CREATE INDEX record_digest ON record(digest);
CREATE INDEX record_parent ON record(parent);
CREATE INDEX record_used ON record(used, number);
{_DIGESTS}
""",
    {1: _DIGESTS},
)
_CHAIN = """
WITH RECURSIVE chain(number, parent) AS (
    SELECT number, parent FROM record WHERE number = ?
    UNION ALL SELECT record.number, record.parent FROM record JOIN chain ON record.number = chain.parent
)
SELECT json_group_array(number) FROM chain
"""
"""A record and its parents."""
_USE = "UPDATE record SET used = (SELECT max(used) + 1 FROM record) WHERE number IN (SELECT value FROM json_each(?))"
_READ = "SELECT messages FROM content WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
_DIGESTS_OF = """
SELECT number, text, places FROM digest WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number
"""
_ADD_DIGEST = "INSERT OR IGNORE INTO digest(number, text, places) SELECT number, ?, '[]' FROM record WHERE id = ?"
_FIND = "SELECT number, caller, cleared, used < (SELECT max(used) FROM record) FROM record WHERE id = ?"
_PARENT = """
SELECT number, n_messages FROM record
WHERE digest IN (SELECT value FROM json_each(?)) AND caller = ? AND user = ? ORDER BY n_messages DESC LIMIT 1
"""
_WORD = struct.Struct(">6s16sI8s")
"""The beginning of the key's digest, and of the messages', around the record's id and number of messages."""
_MAC_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """What the model has written of a conversation."""

    number: int
    """Grows with the conversation."""
    text: str
    places: tuple[str, ...]
    """The messages that it stands with, in words of the caller's."""


@dataclass(frozen=True, slots=True)
class Compacted:
    messages: tuple[Message, ...]
    cleared: frozenset[Place]
    """What of them had left."""
    known: frozenset[Message]
    digests: tuple[str, ...]
    """For each message one of it and all before it."""
    written: tuple[StoredDigest, ...] = ()
    """Of it and of the conversations that it begins with, the oldest first."""

    def has(self, other: Compacted) -> bool:
        """Whether it begins with all of the other."""
        return self.digests[len(other.digests) - 1 : len(other.digests)] == other.digests[-1:]


class ForeignItem(InvalidRequest):
    """A compaction that another installation has made."""


class CompactionStore:
    """The compacted conversations of one program; opens its file at first use. Any thread."""

    def __init__(self, path: Path | None = None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """`path`: the file, readable by its owner alone; None = in memory."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._file: apsw.Connection | None = None
        self._key = b""
        self._read: LruCache[Compacted] = LruCache(READ_BYTES)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def keep(self, messages: Sequence[Message], cleared: Collection[Place], *, caller: str = "", user: str = "") -> str:
        """Store a conversation; the word that names it. Raises: `InvalidRequest` for one that is larger than
        everything, `EngineError`."""
        lines = [json.dumps(message_to_json(message), separators=(",", ":")) for message in messages]
        digests = _digests(lines)
        marks = json.dumps(sorted(cleared), separators=(",", ":"))
        id = secrets.token_bytes(16)
        with self._opened() as file:
            with transaction(file):
                found: Any = file.execute(_PARENT, (json.dumps(digests), caller, user)).fetchall()
                parent, n_known = found[0] if found else (None, 0)
                own = "\n".join(lines[n_known:])
                row = (id, parent, len(lines), digests[-1], marks, caller, user, len(own) + len(marks))
                add = (
                    "INSERT INTO record(id, parent, n_messages, digest, cleared, caller, user, n_bytes, used) "
                    "VALUES(?, ?, ?, ?, ?, ?, ?, ?, 0)"
                )
                file.execute(add, row)
                number = file.last_insert_rowid()
                file.execute("INSERT INTO content(number, messages) VALUES(?, ?)", (number, own))
                file.execute(_USE, (file.execute(_CHAIN, (number,)).get,))
                self._make_room(file, number)
            word = self._word(id, len(lines), digests[-1], caller)
        self._remember(id, Compacted(tuple(messages), frozenset(cleared), frozenset(messages), digests), lines)
        return word

    def open(self, word: str, *, caller: str = "") -> Compacted:
        """The conversation that a word names. Raises: `ForeignItem`, `InvalidRequest` that says why there is none;
        `EngineError`."""
        packed = _unpacked(word)
        with self._opened() as file:
            key_id, id, n_messages, digest = _WORD.unpack(packed[: _WORD.size])
            if key_id != self._key_id:
                raise ForeignItem(
                    "the compaction item was made by another installation of Shepherd, or before a restart of one that "
                    "keeps nothing on the disk; send the messages themselves",
                    field=_FIELD,
                )
            rows: Any = file.execute(_FIND, (id,)).fetchall()
            number, owner, marks, is_older = rows[0] if rows else (0, caller, "[]", False)
            if not self._is_sealed(packed, caller):
                if owner != caller and self._is_sealed(packed, owner):
                    raise _refused("was made with another API key; use that key, or send the messages themselves")
                raise _refused("was changed after it was made; send it back as it came, or the messages themselves")
            if not rows:
                raise _refused(
                    "names a conversation that is no longer stored: it was forgotten, or newer ones took its room; "
                    "send the messages themselves"
                )
            chain: Any = file.execute(_CHAIN, (number,)).get
            if is_older:
                with contextlib.suppress(apsw.Error):  # of a full disk: it can be read all the same
                    file.execute(_USE, (chain,))
            rows = file.execute(_DIGESTS_OF, (chain,)).fetchall()
            written = tuple(StoredDigest(number, text, tuple(json.loads(places))) for number, text, places in rows)
            if (known := self._read.find(id)) is not None:
                return replace(known, written=written)
            texts: Any = file.execute(_READ, (chain,)).fetchall()
        lines = [line for (text,) in texts for line in text.split("\n") if line]
        messages = tuple(read_message(Fields(json.loads(line))) for line in lines)
        digests = _digests(lines)
        assert (len(messages), digests[-1][:16]) == (n_messages, digest.hex())
        cleared = frozenset((at, part) for at, part in json.loads(marks))
        return replace(
            self._remember(id, Compacted(messages, cleared, frozenset(messages), digests), lines), written=written
        )

    def add_digest(self, word: str, text: str) -> bool:
        """Store what was written of the conversation that a word of `keep` names; False where it is forgotten, or has
        one. Raises: `EngineError`."""
        _, id, _, _ = _WORD.unpack(_unpacked(word)[: _WORD.size])
        with self._opened() as file, transaction(file):
            file.execute(_ADD_DIGEST, (text, id))
            if is_new := bool(file.changes()):
                file.execute("UPDATE record SET n_bytes = n_bytes + ? WHERE id = ?", (len(text.encode()), id))
        return is_new

    def place_digest(self, number: int, place: str) -> None:
        """From now on, a digest stands with this message, too. Raises: `EngineError`."""
        with self._opened() as file, transaction(file):
            found: Any = file.execute("SELECT places FROM digest WHERE number = ?", (number,)).get
            places = json.dumps([*json.loads(found or "[]"), place][-MOST_PLACES:])
            file.execute("UPDATE digest SET places = ? WHERE number = ?", (places, number))

    def forget(self, user: str, shas: Collection[bytes] | None = None) -> int:
        """Delete the conversations of a user that hold a message with one of these digests of the memory's, and those
        that begin with them; None: all of the user's. How many. Raises: `EngineError`."""
        if self._path is not None and not self._path.exists():
            return 0
        gone = 0
        with self._opened() as file:
            with transaction(file):
                find = "SELECT number, messages FROM record JOIN content USING (number) WHERE user = ?"
                rows: Any = file.execute(find, (user,)).fetchall()
                for number, text in rows:
                    if shas is None or any(_sha(line) in shas for line in text.split("\n") if line):
                        before: Any = file.execute("SELECT count(*) FROM record").get
                        file.execute("DELETE FROM record WHERE number = ?", (number,))
                        gone += before - file.execute("SELECT count(*) FROM record").get
            if gone and self._path is not None:
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the log keeps old pages
            self._read.clear()
        return gone

    # ---- the file

    @contextlib.contextmanager
    def _opened(self) -> Iterator[apsw.Connection]:
        """The file, for one thread at a time. Raises: `EngineError`."""
        with self._lock:
            try:
                if self._file is None:
                    file = open_database(self._path, _FILE)
                    made = "INSERT INTO secret(key) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM secret)"
                    file.execute(made, (secrets.token_bytes(32),))
                    key: Any = file.execute("SELECT key FROM secret").get
                    self._file, self._key = file, key
                yield self._file
            except (apsw.Error, ConfigError) as error:
                raise EngineError(f"compactions cannot be read or stored: {error}") from error

    def _make_room(self, file: apsw.Connection, number: int) -> None:
        """A record leaves before its parent: it was never used later than that. Raises: `InvalidRequest` where this one
        would have to leave."""
        held: Any = file.execute("SELECT sum(n_bytes) FROM record").get
        while held > self._limit_bytes:
            oldest = "SELECT number, n_bytes FROM record ORDER BY used, number DESC LIMIT 1"
            leaving, freed = file.execute(oldest).get
            if leaving == number:  # what has left for it comes back
                raise InvalidRequest(
                    f"the conversation cannot be compacted: it is larger than the {self._limit_bytes} bytes that are "
                    "kept of all compactions; leave context_management out, or send less",
                    field="context_management",
                )
            file.execute("DELETE FROM record WHERE number = ?", (leaving,))
            held -= freed

    def _remember(self, id: bytes, compacted: Compacted, lines: Sequence[str]) -> Compacted:
        self._read.keep(id, compacted, sum(map(len, lines)))
        return compacted

    # ---- the words

    @property
    def _key_id(self) -> bytes:
        return blake2b(self._key, digest_size=6, person=b"key id").digest()

    def _word(self, id: bytes, n_messages: int, digest: str, caller: str) -> str:
        packed = _WORD.pack(self._key_id, id, n_messages, bytes.fromhex(digest[:16]))
        return SEAL + base64.urlsafe_b64encode(packed + self._mac(packed, caller)).decode("ascii")

    def _mac(self, packed: bytes, caller: str) -> bytes:
        return hmac.digest(self._key, packed + caller.encode("utf-8", "surrogatepass"), "sha256")

    def _is_sealed(self, packed: bytes, caller: str) -> bool:
        return hmac.compare_digest(packed[_WORD.size :], self._mac(packed[: _WORD.size], caller))


def _unpacked(word: str) -> bytes:
    try:
        packed = base64.b64decode(word.removeprefix(SEAL), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        packed = b""
    if not word.startswith(SEAL) or len(packed) != _WORD.size + _MAC_BYTES:
        raise _refused("is damaged, or no item of Shepherd; send it back as it came, or the messages themselves")
    return packed


def _digests(lines: Sequence[str]) -> tuple[str, ...]:
    link = b""
    return tuple((link := blake2b(link + line.encode("ascii"), digest_size=16).digest()).hex() for line in lines)


def _sha(line: str) -> bytes:
    return entry_of(read_message(Fields(json.loads(line)))).sha


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"the compaction item {why}", field=_FIELD)
