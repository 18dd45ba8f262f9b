"""Stores the new messages and facts of an imported file.

A message is identified by its chain: a digest of it and of everything before it. Our own export contains the chain. For
other files it starts from the name that the file gives to the conversation. So only what is new is stored when a file
is imported twice, has grown, or was cut short the last time. Nothing is replaced: where the conversation has continued
differently here, the imported messages become a branch.

Runs on the writer's connection, inside its transaction.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass, field, fields, replace
from shepherd.memory.archive import facts, history, queries
from shepherd.memory.archive.history import NewMessage
from shepherd.memory.records import Entry, State, Trust, chained
from shepherd.memory.transfer.export_lines import (
    KINDS,
    STATUSES,
    ConversationLine,
    MessageLine,
    read_count,
    read_text,
    read_time,
    read_word,
)
from shepherd.memory.transfer.items import ExportLine, ImportedConversation, ImportProblem
from shepherd.wire.base import Fields

SHOWN_PROBLEMS = 100
_NAMESPACE = uuids.UUID("6f3c1d0a-53f2-4f0e-9a55-5348504412aa")
"""Of the uuids of conversations without one; a constant, so that two imports give the same uuid."""


@dataclass(slots=True)
class ImportResult:
    conversations: int = 0
    """New ones, branches included."""
    messages: int = 0
    facts: int = 0
    known: int = 0
    """Messages and facts that were stored before."""
    forgotten: int = 0
    """Messages that were forgotten here, and are not stored again."""
    left_out: int = 0
    """Messages on branches that the user of another program has abandoned."""
    n_problems: int = 0
    problems: list[ImportProblem] = field(default_factory=list)
    """The first `SHOWN_PROBLEMS` of them."""

    def add(self, other: ImportResult) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        del self.problems[SHOWN_PROBLEMS:]

    def add_problem(self, problem: ImportProblem) -> None:
        self.add(ImportResult(n_problems=1, problems=[problem]))


@dataclass(frozen=True, slots=True)
class ConversationEnd:
    """The end of a conversation, where the next messages go."""

    seed: str
    """Of the chains of the next messages."""
    conversation: int = 0
    """0 = none of it is stored yet."""
    seq: int = -1
    turn: int = 0
    time_ms: int | None = None
    """Of the last message."""
    before: tuple[tuple[str, int], ...] = ()
    """Texts and ids of the last two messages."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """What is known of a file's conversations, as far as it has been read."""

    ends: dict[tuple[str, str], ConversationEnd] = field(default_factory=dict)
    """By source and name."""
    lines: dict[str, ConversationLine] = field(default_factory=dict)
    """Of our own export: the conversations, by uuid."""
    targets: dict[str, int] = field(default_factory=dict)
    """Of our own export: the ids of the stored conversations that their messages go to, by uuid."""

    def copy(self) -> ImportState:
        return ImportState(self.ends.copy(), self.lines.copy(), self.targets.copy())


def merge(
    connection: apsw.Connection, items: Iterable[ImportedConversation | ExportLine], earlier: ImportState
) -> tuple[ImportResult, ImportState]:
    """Store some items of a file, in their order. `earlier` does not change, since the job may run twice."""
    made = _Merge(connection, earlier)
    made.store(items)
    return made.result, made.state


class _Merge:
    def __init__(self, connection: apsw.Connection, earlier: ImportState) -> None:
        self.connection = connection
        self.result, self.state = ImportResult(), earlier.copy()
        self._has_erased = self._find_row("SELECT 1 FROM erased LIMIT 1") is not None

    def _find_row(self, sql: str, *values: Any) -> Any:
        return self.connection.execute(sql, values).fetchone()

    def store(self, items: Iterable[ImportedConversation | ExportLine]) -> None:
        run: list[MessageLine] = []
        for item in items:
            if isinstance(item, ImportedConversation):
                self._store_conversation(item)
                continue
            try:
                line = Fields(item.fields)
                kind = line.find_string("type")
                message = MessageLine.of(line) if kind == "message" else None
                if run and not (message and message.follows(run[-1])):
                    self._store_lines(run)
                    run = []
                if message:
                    run.append(message)
                elif kind == "conversation":
                    conversation = ConversationLine.of(line)
                    self.state.lines[conversation.uuid] = conversation
                else:
                    self._store_fact(line)
            except InvalidRequest as error:
                self.result.add_problem(ImportProblem(item.where, error.message))
        self._store_lines(run)

    # conversations of other programs

    def _store_conversation(self, new: ImportedConversation) -> None:
        """New messages go after the known ones, or into a branch if others follow those."""
        key = (new.source, new.name)
        end = self.state.ends.get(key) if new.is_continued else None
        end = end or ConversationEnd(f"{new.source}:{new.name}", time_ms=new.created_ms)
        entries = new.entries
        chains = chained([entry.sha for entry in entries], end.seed)
        found = [
            self._find_row("SELECT id, conversation, seq, turn, created_ms FROM message WHERE chain = ?", chain)
            for chain in chains
        ]
        n_known = max((i + 1 for i, row in enumerate(found) if row), default=0)
        ids = [row[0] if row else 0 for row in found]
        if n_known:
            _, conversation, seq, turn, time_ms = found[n_known - 1]
            texts = [(e.text, id) for e, id in zip(entries[:n_known], ids, strict=False) if id and e.role != "system"]
            before = (*end.before, *texts)[-2:]
            end = replace(end, conversation=conversation, seq=seq, turn=turn, time_ms=time_ms, before=before)
        kept = [i for i in range(n_known, len(entries)) if not self._is_erased(entries[i].sha, chains[i])]
        if kept:
            end = self._append(new, end, [entries[i] for i in kept], [chains[i] for i in kept])
        known = sum(map(bool, ids))
        forgotten = len(entries) - len(kept) - known
        done = ImportResult(messages=len(kept), known=known, forgotten=forgotten, left_out=new.n_left_out)
        self.result.add(done)
        self.state.ends[key] = replace(end, seed=chains[-1].hex())

    def _append(
        self, new: ImportedConversation, end: ConversationEnd, entries: Sequence[Entry], chains: Sequence[bytes]
    ) -> ConversationEnd:
        time_ms = end.time_ms or history.now_ms()
        timed = []
        for entry in entries:  # a message without a time gets that of the one before it
            time_ms = time_ms if entry.created_ms is None else entry.created_ms
            timed.append(replace(entry, created_ms=time_ms))
        if not end.conversation or self._has_message(end.conversation, end.seq + 1):
            uuid = new.name if not end.conversation and _is_uuid(new.name) else ""
            self.result.conversations += 1
            id = history.add_conversation(
                self.connection,
                uuid=self._free_uuid(uuid, chains[0]),
                title=new.title.strip() or history.title_of(entries),
                created_ms=timed[0].created_ms if new.created_ms is None or end.conversation else new.created_ms,
                model=new.model,
                source=new.source,
                parent=(end.conversation, end.seq) if end.conversation else None,
            )
            end = replace(end, conversation=id)
        new_messages, turn = [], end.turn
        for seq, (entry, chain) in enumerate(zip(timed, chains, strict=True), end.seq + 1):
            turn += entry.role == "user"
            new_messages.append(NewMessage(entry, seq, turn, chain))
        ids, before = self._add(end.conversation, end.before, new_messages)
        # They are in no context here.
        self.connection.execute(
            "UPDATE message SET state = ? WHERE id BETWEEN ? AND ?", (int(State.EVICTED), ids[0], ids[-1])
        )
        return replace(end, seq=end.seq + len(timed), turn=turn, time_ms=time_ms, before=before)

    def _add(
        self, conversation: int, before: tuple[tuple[str, int], ...], new: Iterable[NewMessage]
    ) -> tuple[range, tuple[tuple[str, int], ...]]:
        """Store messages after those `before`; their ids, and texts and ids of the last two messages."""
        rows = []
        for id, each in enumerate(new, history.next_id(self.connection)):
            rows.append(each._replace(before=[text for text, _ in before], before_ids=[id for _, id in before]))
            if each.entry.role != "system":
                before = (*before, (each.entry.text, id))[-2:]
        return history.add_messages(self.connection, conversation, rows), before

    def _has_message(self, conversation: int, first: int, last: int = 2**62) -> bool:
        sql = "SELECT 1 FROM message WHERE conversation = ? AND seq BETWEEN ? AND ?"
        return self._find_row(sql, conversation, first, last) is not None

    def _free_uuid(self, uuid: str, chain: bytes) -> str | None:
        """`uuid` for a new conversation; if that is taken, one made of its first message; None = that is taken too."""
        names = (name for name in (uuid, str(uuids.uuid5(_NAMESPACE, chain.hex()))) if name)
        taken = "SELECT 1 FROM conversation WHERE uuid = ?"
        return next((name for name in names if not self._find_row(taken, name)), None)

    def _is_erased(self, sha: bytes, chain: bytes) -> bool:
        """Whether a message was forgotten here, by its content or by its place."""
        return self._has_erased and bool(self._find_row("SELECT 1 FROM erased WHERE sha IN (?, ?)", sha, chain))

    # lines of our own export

    def _create(self, uuid: str) -> int:
        """Create a conversation, and those that it branched off, now that there is a message to store."""
        missing: list[ConversationLine] = []
        at = uuid
        while (line := self._find_line(at)) and line not in missing:
            missing.append(line)
            at = line.parent
        target = self._target(at)
        for line in reversed(missing):
            self.result.conversations += 1
            target = history.add_conversation(
                self.connection,
                uuid=line.uuid,
                session=line.session,
                title=line.title,
                created_ms=line.created_ms,
                model=line.model,
                source=line.source,
                parent=(target, line.parent_seq) if target else None,
            )
            self.state.targets[line.uuid] = target
        return target

    def _find_line(self, uuid: str) -> ConversationLine | None:
        """The line of a conversation that is not stored yet."""
        return None if self._target(uuid) else self.state.lines.get(uuid)

    def _skip_forgotten(self, message: MessageLine) -> None:
        self.result.forgotten += 1
        title = history.title_of([message.entry])
        if (line := self._find_line(message.uuid)) and line.title == title:
            self.state.lines[message.uuid] = replace(line, title="")
        sql = "UPDATE conversation SET title = '' WHERE id = ? AND title = ?"
        self.connection.execute(sql, (self._target(message.uuid), title))

    def _target(self, uuid: str) -> int:
        """0 = none."""
        return (
            self.state.targets.get(uuid)
            or (self._find_row("SELECT id FROM conversation WHERE uuid = ?", uuid) or (0,))[0]
        )

    def _store_lines(self, run: Sequence[MessageLine]) -> None:
        """Store messages of one conversation; in a branch, if the conversation has other messages at their places."""
        run = list({message.chain: message for message in run}.values())
        new: list[MessageLine] = []
        for message in run:
            if known := self._find_row("SELECT conversation FROM message WHERE chain = ?", message.chain):
                self.result.known += 1
                self.state.targets[message.uuid] = known[0]  # a branch, if an earlier import has made one
            elif self._is_erased(message.sha, message.chain):
                self._skip_forgotten(message)
            else:
                new.append(message)
        if not new:
            return
        first = new[0]
        target = self._target(first.uuid) or self._create(first.uuid)
        if target and self._has_message(target, first.seq, new[-1].seq):
            if first.uuid == history.NOTES:  # there is one conversation of them, and its exchanges have no order
                sql = "SELECT max(seq) + 1, max(turn) + 1 FROM message WHERE conversation = ?"
                seq, turn = self._find_row(sql, target)
                new = [replace(m, seq=m.seq - first.seq + seq, turn=m.turn - first.turn + turn) for m in new]
                first = new[0]
            else:
                target = self._create_branch(new, (target, first.seq - 1))
        elif not target:
            target = self._create_branch(new, None)
        earlier = queries.messages(self.connection, target, after_seq=first.seq - 5, shared=True)
        before = tuple((m.body, m.id) for m in earlier if m.seq < first.seq and m.role != "system")[-2:]
        ids, _ = self._add(target, before, (NewMessage(m.entry, m.seq, m.turn, m.chain) for m in new))
        self.result.messages += len(new)
        for message, id in zip(new, ids, strict=True):
            row = (int(message.state), message.pinned, message.sha)
            if row != (int(State.LIVE), False, message.entry.sha):
                self.connection.execute("UPDATE message SET state = ?, pinned = ?, sha = ? WHERE id = ?", (*row, id))

    def _create_branch(self, new: Sequence[MessageLine], parent: tuple[int, int] | None) -> int:
        """A conversation for messages without one, or for those whose places are taken."""
        first = new[0]
        self.result.conversations += 1
        self.state.targets[first.uuid] = target = history.add_conversation(
            self.connection,
            uuid=self._free_uuid(first.uuid, first.chain),
            title=history.title_of(message.entry for message in new),
            created_ms=first.entry.created_ms,
            parent=parent,
        )
        return target

    def _store_fact(self, line: Fields) -> None:
        """Store a fact. Of two current values the newer one stays current. Raises: `InvalidRequest`."""
        key, value = read_text(line, "key", most=facts.KEY_CHARS), read_text(line, "value", most=facts.VALUE_CHARS)
        kind, status = read_word(line, "kind", KINDS, "fact"), read_word(line, "status", STATUSES, "current")
        created_ms, ended_ms = read_time(line, "time"), read_time(line, "ended") if line.has("ended") else None
        origin = line.find_object("source")
        source = self._find_source(read_text(origin, "uuid"), read_count(origin, "seq")) if origin else None
        rejected = "SELECT 1 FROM fact WHERE kind = ? AND key = ? AND status = 'cleared' AND ended_ms >= ?"
        same = "SELECT 1 FROM fact WHERE kind = ? AND key = ? AND value = ? AND (created_ms = ? OR status = 'current')"
        if self._find_row(same, kind, key, value, created_ms):
            self.result.known += 1
            return
        if status != "cleared" and self._find_row(rejected, kind, key, created_ms):
            self.result.forgotten += 1
            return
        current = "SELECT id, created_ms FROM fact WHERE kind = ? AND key = ? AND status = 'current'"
        held = self._find_row(current, kind, key)
        if status == "current" and held and held[1] > created_ms:
            status, ended_ms = "past", held[1]
        elif status == "current" and held:
            self.connection.execute("UPDATE fact SET status = 'past', ended_ms = ? WHERE id = ?", (created_ms, held[0]))
        self.connection.execute(
            "INSERT INTO fact(key, value, kind, status, created_ms, ended_ms, source) VALUES(?, ?, ?, ?, ?, ?, ?)",
            (key, value, kind, status, created_ms, ended_ms, source),
        )
        self.result.facts += 1

    def _find_source(self, uuid: str, seq: int) -> int | None:
        """The message that a fact was taken from, if it is stored. Raises: `InvalidRequest` for an untrusted one."""
        found = self._find_row(
            "SELECT id, trust FROM message WHERE conversation = ? AND seq = ?", self._target(uuid), seq
        )
        if found and found[1] == Trust.UNTRUSTED:
            raise InvalidRequest("source: text from a tool, a file or the web cannot be a fact", field="source")
        return found[0] if found else None


def _is_uuid(name: str) -> bool:
    try:
        return str(uuids.UUID(name)) == name
    except ValueError:
        return False
