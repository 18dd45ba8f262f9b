"""What is new of an imported file, and where it goes.

A message is known by its chain: what it says, and all that was said before it. Our own export carries it; for others it
starts from what the file calls the conversation. So the same file twice, one that has grown, and one whose import was
cut short all store just what is new. What went on otherwise here becomes a branch; nothing is replaced.

Runs on the writer's connection, inside its transaction.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import apsw

from shepherd.core import Role
from shepherd.memory.archive import facts, history, queries
from shepherd.memory.archive.history import New
from shepherd.memory.records import Call, Entry, State, Trust, chained, clean
from shepherd.memory.transfer.formats import Problem, Record, Talk, as_ms

SHOWN_PROBLEMS = 100
DIGEST_BYTES = 16
T = TypeVar("T")
_NAMESPACE = uuids.UUID("6f3c1d0a-53f2-4f0e-9a55-5348504412aa")
"""Of the names of conversations that come without one; a constant, so that two imports name them alike."""
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_TRUSTS = {trust.name.lower(): trust for trust in Trust}
_STATES = {state.name.lower(): state for state in State}
_FACT_KINDS = {kind: kind for kind in ("fact", "preference", "instruction")}
_FACT_STATUSES = {status: status for status in ("candidate", "current", "past", "cleared")}


@dataclass(slots=True)
class Imported:
    """What an import has done."""

    conversations: int = 0
    """New ones; a branch is one, too."""
    messages: int = 0
    """New ones."""
    facts: int = 0
    known: int = 0
    """Messages and facts that were there already."""
    forgotten: int = 0
    """Messages that were forgotten here, and stay so."""
    left_out: int = 0
    """Messages on branches that the user of another program has abandoned."""
    n_problems: int = 0
    problems: list[Problem] = field(default_factory=list)
    """The first `SHOWN_PROBLEMS` of them."""

    def add(self, other: Imported) -> None:
        for name in ("conversations", "messages", "facts", "known", "forgotten", "left_out", "n_problems"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problems += other.problems[: SHOWN_PROBLEMS - len(self.problems)]

    def note(self, problem: Problem) -> None:
        self.add(Imported(n_problems=1, problems=[problem]))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation goes on."""

    seed: str
    """Of the names of what comes next."""
    conversation: int = 0
    """0 = none of it is stored yet."""
    seq: int = -1
    turn: int = 0
    time_ms: int | None = None
    """Of the last message."""
    before: tuple[tuple[str, int], ...] = ()
    """Texts and ids of the last two messages."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What is known of a file's conversations, as far as it has been read."""

    places: dict[tuple[str, str], Place] = field(default_factory=dict)
    """By source and name."""
    heads: dict[str, Head] = field(default_factory=dict)
    """Of our own lines: the conversations, by uuid."""
    homes: dict[str, int] = field(default_factory=dict)
    """Of our own lines: the conversations that they go into, by uuid."""


class Merge:
    """One transaction of an import."""

    def __init__(self, connection: apsw.Connection, learnt: Learnt) -> None:
        self.connection = connection
        self.done = Imported()
        self.learnt = Learnt()
        self._so_far = learnt
        self._forgets = self._one("SELECT 1 FROM erased LIMIT 1") is not None

    def _one(self, sql: str, *values: Any) -> Any:
        """The first row, or None."""
        return next(iter(self.connection.execute(sql, values).fetchall()), None)

    def take(self, items: Iterable[Talk | Record]) -> None:
        """Store them, in their order."""
        run: list[Copy] = []
        for item in items:
            if isinstance(item, Talk):
                self._talk(item)
                continue
            try:
                line = Fields(item.fields)
                copy = Copy.of(line) if line.text("type") == "message" else None
                if run and not (copy and copy.follows(run[-1])):
                    self._copies(run)
                    run = []
                if copy:
                    run.append(copy)
                elif line.text("type") == "conversation":
                    head = Head.of(line)
                    self.learnt.heads[head.uuid] = head
                else:
                    self._copied_fact(line)
            except FieldError as error:
                self.done.note(Problem(item.where, str(error)))
        self._copies(run)

    # conversations of others

    def _talk(self, talk: Talk) -> None:
        """Store what is new of a conversation: behind what is known of it, or in a branch if that goes on otherwise."""
        key = (talk.source, talk.name)
        place = (self.learnt.places.get(key) or self._so_far.places.get(key)) if talk.goes_on else None
        place = place or Place(f"{talk.source}:{talk.name}", time_ms=talk.created_ms)
        entries = talk.entries
        chains = chained([entry.sha for entry in entries], place.seed)
        found = [
            self._one("SELECT id, conversation, seq, turn, created_ms FROM message WHERE chain = ?", chain)
            for chain in chains
        ]
        n_known = max((i + 1 for i, row in enumerate(found) if row), default=0)
        ids = [row[0] if row else 0 for row in found]
        if n_known:
            _, conversation, seq, turn, time_ms = found[n_known - 1]
            said = [(e.text, id) for e, id in zip(entries[:n_known], ids, strict=False) if id and e.role != "system"]
            before = (*place.before, *said)[-2:]
            place = replace(place, conversation=conversation, seq=seq, turn=turn, time_ms=time_ms, before=before)
        kept = [i for i in range(n_known, len(entries)) if not self._is_erased(entries[i].sha, chains[i])]
        if kept:
            place = self._append(talk, place, [entries[i] for i in kept], [chains[i] for i in kept])
        self.done.add(
            Imported(
                messages=len(kept),
                known=sum(map(bool, ids)),
                forgotten=len(entries) - len(kept) - sum(map(bool, ids)),
                left_out=talk.n_left_out,
            )
        )
        self.learnt.places[key] = replace(place, seed=chains[-1].hex())

    def _append(self, talk: Talk, place: Place, entries: Sequence[Entry], chains: Sequence[bytes]) -> Place:
        time_ms = place.time_ms or history.now_ms()
        timed = []
        for entry in entries:  # what has no time was said when the one before it was
            time_ms = time_ms if entry.created_ms is None else entry.created_ms
            timed.append(replace(entry, created_ms=time_ms))
        if not place.conversation or self._goes_on(place.conversation, place.seq):
            uuid = talk.name if not place.conversation and _is_uuid(talk.name) else ""
            id = self._conversation(
                uuid,
                chains[0],
                title=talk.title.strip() or _headline(entries),
                created_ms=timed[0].created_ms if talk.created_ms is None or place.conversation else talk.created_ms,
                model=talk.model,
                source=talk.source,
                parent=(place.conversation, place.seq) if place.conversation else None,
            )
            place = replace(place, conversation=id)
        at, turn = [], place.turn
        for seq, (entry, chain) in enumerate(zip(timed, chains, strict=True), place.seq + 1):
            turn += entry.role == "user"
            at.append((seq, turn, chain))
        ids, before = self._add(place.conversation, place.before, timed, at)
        # Who said it elsewhere has it in no context here.
        self.connection.execute(
            "UPDATE message SET state = ? WHERE id BETWEEN ? AND ?", (int(State.EVICTED), ids[0], ids[-1])
        )
        return replace(place, seq=place.seq + len(timed), turn=turn, time_ms=time_ms, before=before)

    def _add(
        self,
        conversation: int,
        before: tuple[tuple[str, int], ...],
        entries: Sequence[Entry],
        at: Sequence[tuple[int, int, bytes]],
    ) -> tuple[range, tuple[tuple[str, int], ...]]:
        """Store messages, each at its seq, turn and chain; their ids, and the last two of all that was said."""
        first = history.next_id(self.connection)
        ids = range(first, first + len(entries))
        new = []
        for id, entry, (seq, turn, chain) in zip(ids, entries, at, strict=True):
            new.append(New(entry, seq, turn, chain, [text for text, _ in before], [id for _, id in before]))
            if entry.role != "system":  # it is said to nobody
                before = (*before, (entry.text, id))[-2:]
        made = history.add_messages(self.connection, conversation, new)
        assert made == ids
        return ids, before

    def _goes_on(self, conversation: int, seq: int) -> bool:
        return self._one("SELECT 1 FROM message WHERE conversation = ? AND seq > ?", conversation, seq) is not None

    def _conversation(
        self,
        uuid: str,
        chain: bytes,
        *,
        title: str,
        created_ms: int | None,
        model: str = "",
        source: str = "",
        parent: tuple[int, int] | None = None,
    ) -> int:
        """A new conversation called `uuid`; if that is taken, by a name for the message that it begins with."""
        names = (name for name in (uuid, str(uuids.uuid5(_NAMESPACE, chain.hex()))) if name)
        taken = "SELECT 1 FROM conversation WHERE uuid = ?"
        self.done.conversations += 1
        return history.add_conversation(
            self.connection,
            uuid=next((name for name in names if not self._one(taken, name)), None),
            title=clean(title),
            created_ms=created_ms,
            model=clean(model),
            source=source,
            parent=parent,
        )

    def _is_erased(self, sha: bytes, chain: bytes) -> bool:
        """Whether a message was forgotten here, by what it says or by its place."""
        return self._forgets and bool(self._one("SELECT 1 FROM erased WHERE sha IN (?, ?)", sha, chain))

    # our own lines

    def _begin(self, uuid: str) -> int:
        """Make a conversation, with those it branched off, now that there is something to be stored in it."""
        line: list[Head] = []
        at = uuid
        while (head := self._head(at)) and head not in line:
            line.append(head)
            at = head.parent
        home = self._home(at)
        for head in reversed(line):
            self.done.conversations += 1
            home = history.add_conversation(
                self.connection,
                uuid=head.uuid,
                session=head.session,
                title=head.title,
                created_ms=head.created_ms,
                model=head.model,
                source=head.source,
                parent=(home, head.parent_seq) if home else None,
            )
            self.learnt.homes[head.uuid] = home
        return home

    def _head(self, uuid: str) -> Head | None:
        """The line of a conversation that is not there yet."""
        if self._home(uuid):
            return None
        return self.learnt.heads.get(uuid) or self._so_far.heads.get(uuid)

    def _lose(self, copy: Copy) -> None:
        """Take note of a message that was forgotten here: a title must not say it, either."""
        self.done.forgotten += 1
        headline = _headline([copy.entry])
        if (head := self._head(copy.uuid)) and head.title == headline:
            self.learnt.heads[copy.uuid] = replace(head, title="")
        sql = "UPDATE conversation SET title = '' WHERE id = ? AND title = ?"
        self.connection.execute(sql, (self._home(copy.uuid), headline))

    def _home(self, uuid: str) -> int:
        """The conversation that messages of `uuid` go into; 0 when it is not there."""
        home = self.learnt.homes.get(uuid) or self._so_far.homes.get(uuid)
        return home or (self._one("SELECT id FROM conversation WHERE uuid = ?", uuid) or (0,))[0]

    def _copies(self, run: Sequence[Copy]) -> None:
        """Store messages of one conversation. Where it went on otherwise here, theirs become a branch."""
        run = list({copy.chain: copy for copy in run}.values())
        new: list[Copy] = []
        for copy in run:
            if known := self._one("SELECT conversation FROM message WHERE chain = ?", copy.chain):
                self.done.known += 1
                self.learnt.homes[copy.uuid] = known[0]  # a branch, if an earlier import has made one
            elif self._is_erased(copy.sha, copy.chain):
                self._lose(copy)
            else:
                new.append(copy)
        if not new:
            return
        first = new[0]
        home = self._home(first.uuid) or self._begin(first.uuid)
        taken = "SELECT 1 FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
        if home and self._one(taken, home, first.seq, new[-1].seq):
            if first.uuid == history.NOTES:  # there is one of them, and its exchanges have no order
                sql = "SELECT max(seq) + 1, max(turn) + 1 FROM message WHERE conversation = ?"
                seq, turn = self._one(sql, home)
                new = [replace(c, seq=c.seq - first.seq + seq, turn=c.turn - first.turn + turn) for c in new]
                first = new[0]
            else:
                home = self._copied_branch(new, (home, first.seq - 1))
        elif not home:
            home = self._copied_branch(new, None)
        earlier = queries.messages(self.connection, home, after_seq=first.seq - 5, shared=True)
        before = tuple((said.body, said.id) for said in earlier if said.seq < first.seq and said.role != "system")[-2:]
        at = [(copy.seq, copy.turn, copy.chain) for copy in new]
        ids, _ = self._add(home, before, [copy.entry for copy in new], at)
        self.done.messages += len(new)
        for copy, id in zip(new, ids, strict=True):
            row = (int(copy.state), copy.pinned, copy.sha)
            if row != (int(State.LIVE), False, copy.entry.sha):
                self.connection.execute("UPDATE message SET state = ?, pinned = ?, sha = ? WHERE id = ?", (*row, id))

    def _copied_branch(self, new: Sequence[Copy], parent: tuple[int, int] | None) -> int:
        """A conversation for messages that have none, or whose places are taken."""
        first, title = new[0], _headline([copy.entry for copy in new])
        created_ms = first.entry.created_ms
        home = self._conversation(first.uuid, first.chain, title=title, created_ms=created_ms, parent=parent)
        self.learnt.homes[first.uuid] = home
        return home

    def _copied_fact(self, line: Fields) -> None:
        """Store a fact. Of two current values the one that was set later stays current."""
        key, value = line.text("key", most=facts.KEY_CHARS), line.text("value", most=facts.VALUE_CHARS)
        kind, status = line.word("kind", _FACT_KINDS, "fact"), line.word("status", _FACT_STATUSES, "current")
        created_ms = line.time("time")
        ended_ms = line.time("ended") if line.has("ended") else None
        source = self._source(Fields(line.table("source"))) if line.has("source") else None
        rejected = "SELECT 1 FROM fact WHERE kind = ? AND key = ? AND status = 'cleared' AND ended_ms >= ?"
        same = "SELECT 1 FROM fact WHERE kind = ? AND key = ? AND value = ? AND (created_ms = ? OR status = 'current')"
        if self._one(same, kind, key, value, created_ms):
            self.done.known += 1
            return
        if status != "cleared" and self._one(rejected, kind, key, created_ms):
            self.done.forgotten += 1
            return
        held = self._one("SELECT id, created_ms FROM fact WHERE kind = ? AND key = ? AND status = 'current'", kind, key)
        if status == "current" and held and held[1] > created_ms:
            status, ended_ms = "past", held[1]
        elif status == "current" and held:
            self.connection.execute("UPDATE fact SET status = 'past', ended_ms = ? WHERE id = ?", (created_ms, held[0]))
        self.connection.execute(
            "INSERT INTO fact(key, value, kind, status, created_ms, ended_ms, source) VALUES(?, ?, ?, ?, ?, ?, ?)",
            (key, value, kind, status, created_ms, ended_ms, source),
        )
        self.done.facts += 1

    def _source(self, line: Fields) -> int | None:
        """The message that a fact was taken from, if it is here."""
        at = (self._home(line.text("uuid")), line.number("seq"))
        found = self._one("SELECT id, trust FROM message WHERE conversation = ? AND seq = ?", *at)
        if found and found[1] == Trust.UNTRUSTED:
            raise FieldError("source: what came from a tool, a file or the web cannot be a fact")
        return found[0] if found else None


def _headline(entries: Iterable[Entry]) -> str:
    return history.headline(next((entry.text for entry in entries if entry.role == "user"), ""))


def _is_uuid(name: str) -> bool:
    try:
        return str(uuids.UUID(name)) == name
    except ValueError:
        return False


# -- our own lines ----------------------------------------------------------------------------------------------------


class FieldError(Exception):
    """Says which field of a line is wrong."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a line, each of the kind that it must have; all methods raise `FieldError`."""

    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def text(self, name: str, default: str | None = None, *, most: int | None = None) -> str:
        value = self.fields.get(name) if self.has(name) else default
        if not isinstance(value, str):
            raise FieldError(f"{name}: {self._shown(name)} is no text")
        if most is not None and len(value) > most:
            raise FieldError(f"{name}: it has {len(value)} characters; at most {most} are kept")
        return clean(value)

    def number(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name) if self.has(name) else default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
            raise FieldError(f"{name}: {self._shown(name)} is no whole number from 0 on")
        return value

    def word(self, name: str, words: Mapping[str, T], default: str) -> T:
        word = self.text(name, default)
        if word not in words:
            raise FieldError(f"{name}: {self._shown(name)} is none of {', '.join(words)}")
        return words[word]

    def time(self, name: str) -> int:
        value = as_ms(self.fields.get(name))
        if value is None:
            raise FieldError(f"{name}: {self._shown(name)} is no time; write one such as 2026-03-02T10:00:00.000Z")
        return value

    def digest(self, name: str, otherwise: bytes) -> bytes:
        if not self.has(name):
            return otherwise
        try:
            value = bytes.fromhex(self.text(name))
        except ValueError:
            value = b""
        if len(value) != DIGEST_BYTES:
            raise FieldError(f"{name}: {self._shown(name)} is no digest of {2 * DIGEST_BYTES} hexadecimal digits")
        return value

    def table(self, name: str) -> Mapping[str, Any]:
        value = self.fields.get(name) if self.has(name) else {}
        if not isinstance(value, dict):
            raise FieldError(f"{name}: {self._shown(name)} is no object")
        return value

    def _shown(self, name: str) -> str:
        return f"{self.fields[name]!r:.60}" if self.has(name) else "nothing"


@dataclass(frozen=True, slots=True)
class Head:
    """A conversation of our own export."""

    uuid: str
    session: str | None
    title: str
    created_ms: int
    model: str
    source: str
    parent: str
    """The uuid of the conversation that it branched off; "" = none."""
    parent_seq: int

    @classmethod
    def of(cls, line: Fields) -> Head:
        return cls(
            line.text("uuid"),
            line.text("session") if line.has("session") else None,
            line.text("title", ""),
            line.time("time"),
            line.text("model", ""),
            line.text("source", ""),
            line.text("parent", ""),
            line.number("parent_seq", 0),
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """A message of our own export."""

    uuid: str
    """Of its conversation."""
    seq: int
    turn: int
    entry: Entry
    sha: bytes
    """That of the message as it was said: a pruned one says less now."""
    chain: bytes
    state: State
    pinned: bool

    def follows(self, other: Copy) -> bool:
        """Whether both can be stored together."""
        return self.uuid == other.uuid and self.seq > other.seq and self.chain != other.chain

    @classmethod
    def of(cls, line: Fields) -> Copy:
        meta = line.table("meta")
        calls = meta.get("calls", [])
        try:
            said = tuple(Call(str(call["id"]), str(call["name"]), str(call["arguments"])) for call in calls)
        except (TypeError, KeyError):
            raise FieldError("meta.calls: each call has an id, a name and arguments") from None
        about = Fields(meta)
        entry = Entry(
            line.word("role", _ROLES, ""),
            line.text("body"),
            said,
            tool=about.text("tool", ""),
            call_id=about.text("call_id", ""),
            recalled=meta.get("recalled") is True,
            created_ms=line.time("time"),
            trust=line.word("trust", _TRUSTS, "untrusted"),
        )
        uuid, seq = line.text("uuid"), line.number("seq")
        sha = line.digest("sha", entry.sha)
        chain = line.digest("chain", chained([sha], f"{uuid}:{seq}")[0])
        state = line.word("state", _STATES, "evicted")
        return cls(uuid, seq, line.number("turn", 0), entry, sha, chain, state, line.fields.get("pinned") is True)
