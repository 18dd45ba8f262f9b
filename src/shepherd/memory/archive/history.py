"""Stores histories: finds which messages of one are known, and where the others go.

A client sends its whole history with every request. Each message has a digest of its content (`sha`), and one of its
content and of everything before it (`chain`). The longest prefix of a history whose chain is stored decides where the
rest goes:

    history   s u a u a u          known up to here ─▶ behind that message, or a new branch if something else follows
              └───────┘ └ new

A session may send a compacted history, or one whose old tool results were cleared. Then the messages after the known
prefix are aligned with those that the session has stored, and only new ones are stored. The chains of the others become
aliases, so the next request finds its prefix at once.

A client without a session may send only the tail of its history, or leave out the middle. Then the first messages
behind the known prefix are looked for as a run of a recent conversation, which goes on with the others:

    stored    u a u a u a
    history           u a u       the run u a ─▶ the last u is new

System prompts are stored, but ignored here: many clients write the time into them.

Runs on the writer's connection, inside its transaction.
"""

from __future__ import annotations

import json
import re
import time
import uuid as uuids
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

import apsw

from shepherd.core import InvalidRequest
from shepherd.core.lru import LruCache
from shepherd.memory.archive import index
from shepherd.memory.archive.names import NamedHistory
from shepherd.memory.records import Entry, State, clean

SHORT_CHARS = 40
"""Shorter messages ("yes", "go on") are not recognised outside of their place."""
CLEARED = re.compile(
    r"\s*|(?=.{1,200}\Z).*\b(clear|remov|omitt|truncat|elid|prun|trimm|compact|dropp)\w*\b.*", re.IGNORECASE | re.DOTALL
)
"""Placeholders that clients put in place of a tool's result, to save room."""
RECENT = 16
"""Histories of a file that are kept between two requests, so that a longer one is not digested from its start."""
TAIL = 4
"""Messages that a request usually adds to a history, at most."""
TITLE_CHARS = 80
RUN_CONVERSATIONS = 32
"""The most recent ones, in which a run is looked for."""
RUN_IDS = 2_000
"""Of so many messages before the last one, the conversations are recent."""
RUN_ROWS = 10_000
"""Messages of all of them that are looked at, at most."""
RUN_STARTS = 8
"""Places of a conversation where the same message stands that are tried, the last ones."""
RUN_MARGIN = 8
"""Messages of a conversation that may follow a run; behind one that is not at the end is a branch."""
NOTES = "notes"
"""The uuid, and the `source`, of the conversation with the exchanges of `notes.py`."""


def add_conversation(
    connection: apsw.Connection,
    *,
    session: str | None = None,
    uuid: str | None = None,
    title: str = "",
    created_ms: int | None = None,
    model: str = "",
    source: str = "",
    parent: tuple[int, int] | None = None,
) -> int:
    """Insert a conversation; its id. `parent`: the conversation it branches off, and the last `seq` they share."""
    time_ms = now_ms() if created_ms is None else created_ms
    row = (uuid or str(uuids.uuid4()), session, clean(title), time_ms, clean(model), source, *(parent or (None, None)))
    connection.execute(
        "INSERT INTO conversation(uuid, session, title, created_ms, model, source, parent, parent_seq) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    return connection.last_insert_rowid()


class NewMessage(NamedTuple):
    entry: Entry
    seq: int
    turn: int
    chain: bytes
    before: Sequence[str] = ()
    """Texts of the messages before it. Its context quotes the ends of the last two."""
    before_ids: Sequence[int] = ()
    """Their ids; 0 = not stored."""
    sha: bytes | None = None
    """Of the entry; None = not computed yet."""


def add_messages(connection: apsw.Connection, conversation: int, new: Sequence[NewMessage]) -> range:
    """Insert messages and index them; their ids. Much cheaper than one by one."""
    first = next_id(connection)
    ids = range(first, first + len(new))
    now = now_ms()
    connection.executemany(
        "INSERT INTO message(id, conversation, seq, turn, role, body, spaced, context, before1, before2, meta, "
        "created_ms, trust, sha, chain) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_row(id, conversation, message, now) for id, message in zip(ids, new, strict=True)),
    )
    index.index_from(connection, first, {message.entry.role for message in new})
    return ids


def next_id(connection: apsw.Connection) -> int:
    sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'message'), 0) + 1"
    return int(connection.execute(sql).get)


def _row(id: int, conversation: int, new: NewMessage, now: int) -> tuple[object, ...]:
    entry = new.entry
    created_ms = now if entry.created_ms is None else entry.created_ms
    body, indexed = entry.text, index.indexed(entry)
    has_context = not entry.recalled and entry.role != "system"
    context = index.context(created_ms, body, new.before) if has_context else None
    quoted = new.before_ids[-2:] if has_context and len(body) < index.SHORT_CHARS else ()
    before = ([id or None for id in reversed(quoted)] + [None, None])[:2]
    text = (body, indexed if indexed != body else None, context, *before, entry.meta)
    place = (id, conversation, new.seq, new.turn, entry.role)
    return *place, *text, created_ms, int(entry.trusted), new.sha or entry.sha, new.chain


class _Position(NamedTuple):
    """A stored message, and where the conversation continues."""

    id: int
    conversation: int
    seq: int
    turn: int
    tip: int
    """The message at `seq`: the same, or for an alias the last message that was stored then."""


def archive(
    connection: apsw.Connection,
    history: Sequence[Entry],
    *,
    session: str | None = None,
    model: str = "",
    recent: LruCache[NamedHistory] | None = None,
) -> list[int]:
    """Store the new messages of a history; the ids of all its messages, in order. The same history stores nothing.

    The id 0 stands for a message that was forgotten, and is not stored again. `session` is the client's name for the
    conversation; without it, a changed history becomes a branch, and a tail continues its conversation. `recent` saves
    time only: its content is checked against the file, since a transaction may have been rolled back.
    """
    if not history:
        return []
    session = clean(session or "") or None
    n_deletions, may_forget = connection.execute(
        "SELECT value, EXISTS (SELECT 1 FROM erased) FROM about WHERE name = 'gone'"
    ).fetchone() or (0, 1)
    entries = tuple(history)
    key = session if session is not None else tuple((entry.role, entry.body) for entry in entries[:2])
    old = recent.find(key) if recent is not None else None
    named = NamedHistory.of(entries, session or "", n_deletions, old)
    place, n_known = _find(connection, named, is_whole=not n_deletions)
    rest = [i for i in range(n_known, len(entries)) if entries[i].role != "system"]
    end = _end(connection, place.conversation) if place else None
    is_followed = bool(place and end and end.seq > place.seq and _last_said(connection, end.conversation) != place.tip)
    kept: dict[int, int] = {}
    if session is not None and rest and (is_followed or not place):
        kept = _kept(connection, session, named, rest)
        ((newest,),) = connection.execute("SELECT max(id) FROM conversation WHERE session = ?", (session,))
        if newest and _last_said(connection, newest) in kept.values():  # only older messages were changed
            end, is_followed = _end(connection, newest), False
    elif rest and (is_followed or not place) and (run := _find_run(connection, named, rest, place)) is not None:
        place, kept = run
        end = _end(connection, place.conversation)
        is_followed = _last_said(connection, place.conversation) != place.id
    fresh = [*(i for i in named.systems if i < n_known), *range(n_known, len(entries))]
    fresh = [i for i in fresh if not named.ids[i] and i not in kept]
    if may_forget:
        fresh = [i for i in fresh if not _is_forgotten(connection, named, i, n_known)]
    places = {named.chains[i]: i for i in reversed(fresh)}
    new = sorted(places.values())  # a repeated system prompt is stored once
    if new or kept:
        title = title_of(entries[i] for i in new)
        if not end or (rest and is_followed):
            end = place or _Position(0, 0, -1, 0, 0)
            if new:
                branch = (place.conversation, place.seq) if place else None
                made = add_conversation(connection, session=session, model=model, title=title, parent=branch)
                end = end._replace(conversation=made)
        elif title and end.turn == 0:  # a conversation of system prompts only
            sql = "UPDATE conversation SET title = ? WHERE id = ? AND title = ''"
            connection.execute(sql, (title, end.conversation))
        _store(connection, end, named, new, kept)
        if new and session is not None:  # a conversation that continues is no longer set aside
            mine = "SELECT 'aside ' || id FROM conversation WHERE session = ?"
            connection.execute(f"DELETE FROM about WHERE name IN ({mine})", (session,))
        for i in fresh:
            named.ids[i] = named.ids[places[named.chains[i]]]
    if connection.execute("SELECT 1 FROM about WHERE name > 'undone ' AND name < 'undone!' LIMIT 1").fetchone():
        connection.execute(
            "DELETE FROM about WHERE name IN (SELECT 'undone ' || value FROM json_each(?))", (json.dumps(named.ids),)
        )
    if recent is not None:
        recent.keep(key, named)
    return named.ids.copy()


def _find(connection: apsw.Connection, named: NamedHistory, *, is_whole: bool) -> tuple[_Position | None, int]:
    """The end of the longest known prefix, and its length; the ids of its messages are written to `named`.

    `is_whole`: no message was ever deleted from the file, so no known message can follow an unknown one.
    """

    def look_up(i: int) -> _Position | None:
        row = connection.execute(_WITH_CHAIN, (named.chains[i],)).fetchone()
        return _Position(*row) if row else None

    systems = set(named.systems)
    chained = [i for i in range(len(named.entries)) if i not in systems]
    n_tail = min(len(chained), TAIL) if is_whole else len(chained)
    last, place = next(((i, found) for i in chained[: -n_tail - 1 : -1] if (found := look_up(i))), (-1, None))
    if place is None and (n := bisect_left(chained, True, hi=len(chained) - n_tail, key=lambda i: look_up(i) is None)):
        last, place = chained[n - 1], look_up(chained[n - 1])
    is_known = place is not None and named.ids[last] == place.id
    named.ids[last + 1 :] = [0] * (len(named.ids) - last - 1)
    # If the last id is still right, so are all before it, but for system prompts, which are not part of the chain.
    unsure = sorted(systems if is_known else systems.union(range(last + 1)))
    for i, id in zip(unsure, _ids(connection, [named.chains[i] for i in unsure]), strict=True):
        named.ids[i] = id
    return place, last + 1


def _ids(connection: apsw.Connection, chains: Sequence[bytes]) -> list[int]:
    """The ids of the messages with these chains, in their order; 0 = not stored."""
    if not chains:
        return []
    rows = connection.execute(
        "SELECT coalesce((SELECT id FROM message WHERE chain = unhex(value)), "
        "(SELECT message FROM alias WHERE chain = unhex(value)), 0) FROM json_each(?) ORDER BY key",
        (json.dumps([chain.hex() for chain in chains]),),
    )
    return [id for (id,) in rows]


_WITH_CHAIN = (
    "SELECT id, conversation, seq, turn, id FROM message WHERE chain = ?1 UNION ALL "
    "SELECT alias.message, conversation, seq, turn, tip FROM alias JOIN message ON id = tip WHERE alias.chain = ?1"
)
_LAST = "SELECT id, conversation, seq, turn, id FROM message WHERE conversation = ? {} ORDER BY seq DESC LIMIT 1"


def _end(connection: apsw.Connection, conversation: int) -> _Position | None:
    row = connection.execute(_LAST.format(""), (conversation,)).fetchone()
    return _Position(*row) if row else None


def _last_said(connection: apsw.Connection, conversation: int) -> int:
    """The id of the last message that is not a system prompt; 0 = none."""
    row = connection.execute(_LAST.format("AND role <> 'system'"), (conversation,)).fetchone()
    return row[0] if row else 0


def _kept(connection: apsw.Connection, session: str, named: NamedHistory, rest: Sequence[int]) -> dict[int, int]:
    """Of the indexes `rest`, those whose messages the session has stored elsewhere, with their ids."""
    known = {id for id in named.ids if id}
    stored = [
        row
        for row in connection.execute(
            "SELECT message.id, sha, iif(role = 'tool', meta ->> 'call_id', NULL) "
            "FROM conversation JOIN message ON message.conversation = conversation.id "
            "WHERE session = ? AND role <> 'system' ORDER BY message.id",
            (session,),
        )
        if row[0] not in known
    ]
    kept: dict[int, int] = {}
    for start, at, length in align([named.shas[i] for i in rest], [row[1] for row in stored]):
        lone = named.entries[rest[start]] if length == 1 else None
        is_repeated = start + length == len(rest) and at + length < len(stored)
        if lone and (is_repeated or _n_chars(lone) < SHORT_CHARS):
            continue
        kept.update((rest[start + n], stored[at + n][0]) for n in range(length))
    # A placeholder of a cleared result stands for the stored result.
    results = {call_id: id for id, _, call_id in stored if call_id}
    for i in rest:
        if i not in kept and (id := results.get(named.entries[i].call_id)) and CLEARED.fullmatch(named.entries[i].body):
            kept[i] = id
    return kept


def _find_run(
    connection: apsw.Connection, named: NamedHistory, rest: Sequence[int], place: _Position | None
) -> tuple[_Position, dict[int, int]] | None:
    """The end of the longest stored run that a history has behind its known prefix, and the ids of the indexes in it.

    Behind a prefix, which ends at `place`, the run is one of the same conversation or its branches, unless another has
    a longer run from the start: a short prefix may be of several.
    """
    if all(named.entries[i].role == "user" for i in rest):  # the beginning of a conversation, as a rule
        return None
    if place and (found := _longest_run(connection, named, rest, _branches(connection, place), place.seq)):
        return found
    said = [i for i, entry in enumerate(named.entries) if entry.role != "system"]
    found = _longest_run(connection, named, said, _recent(connection))
    return found if found and len(found[1]) > len(said) - len(rest) else None


def _branches(connection: apsw.Connection, place: _Position) -> list[int]:
    """The conversation of a message, and those that branch off behind it, the last ones: a client that has stopped an
    answer and asked otherwise is in one of them."""
    rows = connection.execute(
        "WITH RECURSIVE own(id) AS (VALUES (?1) UNION SELECT conversation.id FROM conversation JOIN own "
        "ON parent = own.id WHERE parent_seq >= ?2) SELECT id FROM own ORDER BY id = ?1 DESC, id DESC LIMIT ?3",
        (place.conversation, place.seq, RUN_CONVERSATIONS),
    )
    return [id for (id,) in rows]


def _longest_run(
    connection: apsw.Connection, named: NamedHistory, said: Sequence[int], conversations: Iterable[int], seq: int = -1
) -> tuple[_Position, dict[int, int]] | None:
    """The longest run of one of these conversations, behind `seq`, that the indexes `said` begin with."""
    best: tuple[_Position, dict[int, int]] | None = None
    n_left = RUN_ROWS
    for conversation in conversations:
        most = min(len(said) + RUN_MARGIN, n_left)
        stored = [_Said(*row) for row in connection.execute(_LAST_SAID, (conversation, seq, most))][::-1]
        n_left -= len(stored)
        starts = [at for at, each in enumerate(stored) if each.sha == named.shas[said[0]]]
        for at in starts[-RUN_STARTS:]:
            pairs = takewhile(lambda pair: named.shas[pair[0]] == pair[1].sha, zip(said, stored[at:], strict=False))
            run = {i: each.id for i, each in pairs}
            if len(run) > len(best[1] if best else ()) and _is_told(named, run, at_end=at + len(run) == len(stored)):
                last = stored[at + len(run) - 1]
                best = _Position(last.id, conversation, last.seq, last.turn, last.id), run
    return best


class _Said(NamedTuple):
    id: int
    seq: int
    turn: int
    sha: bytes


def _is_told(named: NamedHistory, run: Collection[int], *, at_end: bool) -> bool:
    """Whether a run is enough to recognise a conversation by. Short messages are, where nothing follows them."""
    entries = [named.entries[i] for i in run]
    if all(entry.role == "user" for entry in entries):
        return False
    is_long = sum(map(_n_chars, entries)) >= SHORT_CHARS
    return (at_end and is_long) or (len(run) > 1 and (at_end or is_long))


def _recent(connection: apsw.Connection) -> list[int]:
    """The ids of the conversations that went on last, the last first."""
    rows = connection.execute(
        "SELECT conversation FROM message WHERE id > ? AND conversation IN (SELECT id FROM conversation WHERE session "
        "IS NULL AND uuid <> ?) GROUP BY conversation ORDER BY max(message.id) DESC LIMIT ?",
        (next_id(connection) - RUN_IDS, NOTES, RUN_CONVERSATIONS),
    )
    return [conversation for (conversation,) in rows]


_LAST_SAID = (
    "SELECT id, seq, turn, sha FROM message WHERE conversation = ? AND seq > ? AND role <> 'system' "
    "ORDER BY seq DESC LIMIT ?"
)


def _n_chars(entry: Entry) -> int:
    """The length of everything by which a message can be recognised."""
    return len(entry.body) + len(entry.call_id) + sum(len(call.id) + len(call.arguments) for call in entry.calls)


def _is_forgotten(connection: apsw.Connection, named: NamedHistory, i: int, n_known: int) -> bool:
    """Whether a message was forgotten, and must not be stored again.

    A short message may be written again: after the known prefix, or as the last one. Anywhere else it is part of an old
    history, which may have another name now.
    """
    found = connection.execute("SELECT sha FROM erased WHERE sha IN (?, ?)", (named.chains[i], named.shas[i]))
    erased = {sha for (sha,) in found}
    is_new = i >= n_known > 0 or i == len(named.entries) - 1
    is_short = _n_chars(named.entries[i]) < SHORT_CHARS
    return named.chains[i] in erased or (named.shas[i] in erased and not (is_short and is_new))


def _store(
    connection: apsw.Connection, end: _Position, named: NamedHistory, new: Sequence[int], kept: dict[int, int]
) -> None:
    """Append the messages at the indexes `new` after `end`, and store aliases for those `kept`."""
    first = next_id(connection)
    named_here = dict(zip(new, range(first, first + len(new)), strict=True))
    for i, id in (named_here | kept).items():
        named.ids[i] = id
    rows, aliases = list[NewMessage](), list[tuple[bytes, int, int]]()
    _, conversation, seq, turn, tip = end
    start = min((i for i in (*new, *kept) if named.entries[i].role != "system"), default=0)
    stored = (i for i in reversed(range(start)) if named.ids[i] and named.entries[i].role != "system")
    before = list(islice(stored, 2))[::-1]
    texts, ids = tuple(named.entries[i].text for i in before), tuple(named.ids[i] for i in before)
    for i in sorted(named_here.keys() | kept.keys()):
        entry = named.entries[i]
        if i in kept:
            aliases.append((named.chains[i], kept[i], tip or kept[i]))
        else:
            seq, turn, tip = seq + 1, turn + (entry.role == "user"), named_here[i]
            rows.append(NewMessage(entry, seq, turn, named.chains[i], texts, ids, named.shas[i]))
        if entry.role != "system":
            texts, ids = (*texts[-1:], entry.text), (*ids[-1:], named.ids[i])
    if rows:
        add_messages(connection, conversation, rows)
    if aliases:
        connection.executemany("INSERT OR REPLACE INTO alias(chain, message, tip) VALUES(?, ?, ?)", aliases)


def mark(connection: apsw.Connection, ids: Collection[int], state: State) -> None:
    """Pruned messages stay pruned."""
    connection.execute(
        "UPDATE message SET state = ? WHERE id IN (SELECT value FROM json_each(?)) AND state <> ?",
        (int(state), json.dumps(list(ids)), int(State.PRUNED)),
    )


def pin(connection: apsw.Connection, id: int, pinned: bool = True) -> None:
    """Protect a message from pruning, or no longer. Raises: `InvalidRequest` for an unknown id."""
    connection.execute("UPDATE message SET pinned = ? WHERE id = ?", (int(pinned), id))
    if not connection.changes():
        raise InvalidRequest(f"id: there is no message {id}", field="id", status=404)


def set_aside(connection: apsw.Connection, session: str) -> None:
    """Exclude a session from recall until its next message; a search still finds it. An unknown one is ignored."""
    connection.execute(
        "INSERT OR IGNORE INTO about(name, value) SELECT 'aside ' || id, id FROM conversation WHERE session = ?",
        (clean(session),),
    )


def take_back(connection: apsw.Connection, session: str, kept: Sequence[Entry]) -> None:
    """Exclude from recall the messages of a session after `kept`, its history now, until the same text comes again."""
    named = NamedHistory.of(tuple(kept), clean(session))
    _find(connection, named, is_whole=False)
    last = max(named.ids, default=0)
    if last or not kept:
        connection.execute(
            "INSERT OR IGNORE INTO about(name, value) SELECT 'undone ' || message.id, message.id FROM message "
            "JOIN conversation ON conversation.id = message.conversation "
            "WHERE session = ? AND message.id > ? AND message.id NOT IN (SELECT value FROM json_each(?))",
            (clean(session), last, json.dumps(named.ids)),
        )


def set_title(connection: apsw.Connection, uuid: str, title: str) -> None:
    """Raises: `InvalidRequest` for an unknown conversation."""
    connection.execute("UPDATE conversation SET title = ? WHERE uuid = ?", (headline(clean(title)), clean(uuid)))
    if not connection.changes():
        raise InvalidRequest(f"conversation: there is no {uuid!r}", field="conversation", status=404)


def title_of(entries: Iterable[Entry]) -> str:
    return headline(next((entry.text for entry in entries if entry.role == "user"), ""))


def headline(text: str) -> str:
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- common subsequences ----------------------------------------------------------------------------------------------


def align(new: Sequence[Hashable], old: Sequence[Hashable]) -> list[tuple[int, int, int]]:
    """Common subsequences as blocks (start in `new`, start in `old`, length), rising in both, without overlap.

    An element that occurs once in both is an anchor. The longest run of anchors that rises in both is kept, and each is
    extended over equal neighbours. Linear but for a sort, with any repetitions.
    """
    n_new, n_old = Counter(new), Counter(old)
    places = {item: j for j, item in enumerate(old) if n_old[item] == 1}
    anchors = _rising([(i, places[item]) for i, item in enumerate(new) if n_new[item] == 1 and item in places])
    blocks: list[tuple[int, int, int]] = []
    for i, j in anchors:
        done_i, done_j = (blocks[-1][0] + blocks[-1][2], blocks[-1][1] + blocks[-1][2]) if blocks else (0, 0)
        if i < done_i:  # inside the block of the anchor before
            continue
        start, stop = 0, 1
        while i + start > done_i and j + start > done_j and new[i + start - 1] == old[j + start - 1]:
            start -= 1
        while i + stop < len(new) and j + stop < len(old) and new[i + stop] == old[j + stop]:
            stop += 1
        blocks.append((i + start, j + start, stop - start))
    return blocks


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second members rise."""
    ends: list[int] = []  # the lowest end of a run of each length
    at: list[int] = []  # its index in `pairs`
    before: list[int] = []  # for each pair the index of the one before it in its run
    for n, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(j)
            at.append(n)
        else:
            ends[length], at[length] = j, n
    run = []
    n = at[-1] if at else -1
    while n >= 0:
        run.append(pairs[n])
        n = before[n]
    return run[::-1]
