"""What the tools of one conversation have changed in files, and what was there before: what /rewind puts back.

    begin(4)           a turn begins: its question is message 4 of the conversation
    before(folder, name, new)    just before a change: the former bytes are kept, or that there was nothing
    plan(4)            what has to change so that all files are as they were before that turn
    put_back(4)        does it, and forgets these changes
    settle(6), fork(id)     the conversation is saved with 6 messages; what follows belongs to a copy of it

    BASE/<digest of its id>/changes.jsonl     {"turn": 4, "by": ...}, for a change with "path", "before" and "after"
    BASE/<digest of its id>/<sha256>          former bytes
    BASE/lock                                 held by the program that reads or writes them

Several programs may have one conversation open: each knows the changes of the others. Where two of them run a turn at
the same time, one gets a copy of the conversation, and its changes go with it: each line names its writer. A change is
written down before it happens, and a file is replaced in one step; so a program that dies in between leaves nothing
half done, and `put_back` may be tried again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shepherd.core.dataclasses import dataclass
from shepherd.process.files import lock_within, read_within, replace_private
from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.folder import Folder, kind_of
from shepherd.tools.sandbox.roots import Location, MissingPath, NotAFolder, Roots, quoted

logger = logging.getLogger(__name__)

MOST_FILE_BYTES = 16 << 20
"""Of one file that is kept: as much as `write_file` writes."""
MOST_BYTES = 64 << 20
"""Of all that is kept for one conversation."""
MOST_CONVERSATIONS = 20
"""The least recently changed lose what is kept."""
LOCKED_S = 10.0
"""How long at most one program waits for another; nothing that is done with the lock takes so long."""
NAME = "changes.jsonl"
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class State:
    """What is at a path."""

    kind: str = "nothing"
    """`nothing`, or as `kind_of`."""
    content: str = ""
    """Of a file the SHA-256, or its size where it is too large; of a link the target."""
    mode: int = 0
    why_lost: str = ""
    """Why the bytes are not kept; empty = they are."""

    def is_like(self, other: State) -> bool:
        return (self.kind, self.content) == (other.kind, other.content)


NOTHING = State()


@dataclass(slots=True)
class Change:
    turn: int
    by: str
    """Its writer: one program, from one time that it saved the conversation to the next."""
    path: str = ""
    """Empty: no change; the turn begins."""
    before: State = NOTHING
    after: State = NOTHING


@dataclass(frozen=True, slots=True)
class Step:
    """What `put_back` does at one path."""

    path: str
    wanted: State
    now: State
    is_foreign: bool = False
    """Another program has changed it since, or between two changes of ours: that would be lost."""
    problem: str = ""
    """Why it cannot be put back."""


class FileJournal:
    """The changes of one conversation at a time; `Roots.journal`. Calls of `before` and `made` come under
    `Roots.writing`, all others between two turns."""

    def __init__(self, base: Path | None, folders: Sequence[str], *, most_bytes: int = MOST_BYTES) -> None:
        """`base`: where it is kept for later programs; None = for this program only. `folders`: of the roots."""
        self._base = base
        self._roots = Roots.of(folders)
        self._most_bytes = most_bytes
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._folder = Path()
        self._changes: list[Change] = []
        self._n_bytes = 0
        self._turn = -1
        self._by = secrets.token_hex(4)
        self._settled: set[str] = set()
        """The writers of what belongs to every copy of the conversation."""
        self._stamp: tuple[int, int, int] | None = None
        """Of the list, as it was read or written last; None without one."""
        self._notices: list[str] = []

    # -- the conversation ---------------------------------------------------------------------------------------------

    def open(self, conversation: str, turn: int = -1) -> None:
        """Continue with the changes of this conversation, which may have none, in the turn of message `turn`."""
        self._folder = self._folder_of(conversation)
        self._changes, self._notices, self._turn, self._n_bytes, self._stamp = [], [], -1, 0, None
        with self._locked():
            self._turn = max((each.turn for each in self._changes), default=-1)
        if self._turn < turn:
            self.begin(turn)

    def settle(self, n_messages: int) -> None:
        """The conversation is read or saved with so many messages. What their turns have changed stays with it; what
        follows goes with a copy, if there comes to be one."""
        with self._locked():
            self._settled = {each.by for each in self._changes if each.turn < n_messages}
        self._by = secrets.token_hex(4)

    def fork(self, conversation: str) -> None:
        """Continue with the changes of a copy: those that were settled, which stay with the former conversation, too,
        and those of this program since then, which leave it."""
        with self._locked():
            former, copy = self._folder, self._folder_of(conversation)
            try:
                lines = [(line, _read_row(line).get("by", "")) for line in self._read_list().splitlines(keepends=True)]
                self._folder = copy
                self._make_folder()
                for file in former.iterdir():
                    if file.name != NAME:
                        shutil.copy(file, copy)
                self._rewrite(b"".join(line for line, by in lines if by in {*self._settled, self._by}))
                self._folder = former
                self._rewrite(b"".join(line for line, by in lines if by != self._by))
            except FileNotFoundError:
                pass
            except _DAMAGED as error:
                logger.warning("/rewind does not know all changes of a copied conversation: %s", error)
            self._folder = copy
            self._read()

    def _folder_of(self, conversation: str) -> Path:
        if self._base is None:
            self._temporary = self._temporary or tempfile.TemporaryDirectory(prefix="shepherd-")
        base = self._base or Path(self._temporary.name if self._temporary else "")
        return base / hashlib.sha256(conversation.encode("utf-8", "replace")).hexdigest()[:32]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """During the block no other program changes what is kept, and what others have added is known."""
        descriptor = None
        with contextlib.suppress(OSError):  # without a folder that can be written, nothing is shared
            if self._folder.name and self._folder.parent.is_dir():
                descriptor = os.open(self._folder.parent / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if descriptor is not None:
                lock_within(descriptor, LOCKED_S)
            if self._find_stamp() != self._stamp:
                self._read()
            yield
            self._stamp = self._find_stamp()
        finally:
            if descriptor is not None:
                os.close(descriptor)  # and with it the lock

    def _find_stamp(self) -> tuple[int, int, int] | None:
        try:
            found = (self._folder / NAME).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> None:
        self._changes, self._n_bytes = [], 0
        try:
            self._replay(self._read_list())
            self._n_bytes = sum(each.stat().st_size for each in self._folder.iterdir() if each.name != NAME)
        except FileNotFoundError:
            pass
        except _DAMAGED as error:
            logger.warning("the list of files that tools have changed is damaged; /rewind does not know all: %s", error)

    def close(self) -> None:
        """Remove what is kept for this program only."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _read_list(self) -> bytes:
        """Its whole lines. Within one behind them a program has died, before the change: it is removed, so that the
        next line is whole. Raises: `OSError`."""
        content = read_within(self._folder / NAME, MOST_BYTES)
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self._folder / NAME, len(whole))
        return whole

    def _replay(self, lines: bytes) -> None:
        turn = -1
        for line in lines.split(b"\n")[:-1]:  # names have other line ends in them
            row = _read_row(line)
            turn = int(row.get("turn", turn) if "path" in row else row["turn"])
            change = Change(turn, str(row.get("by", "")))
            if "path" in row:
                change.path, change.before, change.after = str(row["path"]), _state(row["before"]), _state(row["after"])
            self._take(change)

    def begin(self, turn: int) -> None:
        """A turn begins, whose question is message `turn`. What earlier turns with this or a later message have changed
        was there before it: those messages are gone from the conversation."""
        self._turn = turn
        with self._locked():
            if self._changes:
                self._add(Change(turn, self._by))

    def _take(self, change: Change) -> None:
        if not change.path:
            for each in self._changes:
                each.turn = min(each.turn, change.turn - 1)
        self._changes.append(change)

    def take_notices(self) -> list[str]:
        """Sentences for the user about changes that cannot be put back."""
        taken, self._notices = self._notices, []
        return taken

    # -- before a change ----------------------------------------------------------------------------------------------

    def before(self, folder: Folder, name: str, new: bytes | None) -> None:
        """The file `name` is about to get the content `new`, or to be removed. Never raises."""
        after = NOTHING if new is None else State("file", hashlib.sha256(new).hexdigest())
        path = os.path.join(folder.path, name)
        with self._locked():
            state = self._kept(folder, name)
            self._add(Change(self._turn, self._by, path, state, after))
        if state.why_lost:
            shown = quoted(self._roots.shown(path))
            self._notices.append(f"{shown} is changed, and /rewind cannot put it back: {state.why_lost}")

    def made(self, path: str) -> None:
        """A folder is about to be created. Never raises."""
        with self._locked():
            self._add(Change(self._turn, self._by, path, after=State("directory")))

    def _add(self, change: Change) -> None:
        self._take(change)
        line = _encoded([change])
        try:
            self._make_folder()
            descriptor = os.open(self._folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                file.write(line)
        except OSError as error:
            logger.warning("a later start cannot put back what this one changes: %s", error.strerror or error)

    def _make_folder(self) -> None:
        if self._folder.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        above = self._folder.parent
        above.chmod(0o700)
        ages = sorted(
            ((each.stat().st_mtime_ns, each) for each in above.iterdir() if each.is_dir() and each != self._folder),
            reverse=True,
        )
        for _, old in ages[MOST_CONVERSATIONS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)

    def _kept(self, folder: Folder, name: str) -> State:
        """What is there now; the bytes of a file are kept."""
        try:
            state, content = _look(folder, name)
            if state.kind != "file" or state.why_lost or (self._folder / state.content).exists():
                return state
            if self._n_bytes + len(content) > self._most_bytes:
                why = f"the {self._most_bytes >> 20} MiB for former contents in one conversation are used up"
                return dataclasses.replace(state, why_lost=why)
            self._make_folder()
            replace_private(self._folder / state.content, content)
            self._n_bytes += len(content)
        except OSError as error:
            return State("file", "?", why_lost=f"it cannot be kept ({error.strerror or error})")
        return state

    # -- putting back -------------------------------------------------------------------------------------------------

    def n_changed(self, turn: int, until: int) -> int:
        """How many paths the turns from `turn` up to `until` have changed; without folders."""
        with self._locked():
            changes = [each for each in self._changes if turn <= each.turn < until and each.after.kind != "directory"]
            return len({each.path for each in changes if each.path})

    def plan(self, turn: int) -> list[Step]:
        """The steps after which all files are as before this turn, where they are not."""
        with self._locked():
            return self._plan(turn)

    def _plan(self, turn: int) -> list[Step]:
        by_path: dict[str, list[Change]] = {}
        for change in self._changes:
            if change.path and change.turn >= turn:
                by_path.setdefault(change.path, []).append(change)
        return [step for path, changes in by_path.items() if (step := self._step(path, changes)) is not None]

    def _step(self, path: str, changes: Sequence[Change]) -> Step | None:
        wanted, last = changes[0].before, changes[-1]
        try:
            with self._at(path) as place:
                now, _ = _look(place.folder, place.name)
        except MissingPath as error:
            if wanted.kind == "nothing" or not isinstance(error, NotAFolder):
                now = NOTHING
            else:
                return Step(path, wanted, NOTHING, problem=error.message)
        except ToolError as error:
            return Step(path, wanted, NOTHING, problem=error.message)
        if wanted.kind == "nothing" and last.after.kind == "directory":  # only a folder of ours is removed
            return Step(path, wanted, now) if now.kind == "directory" else None
        if now.is_like(wanted) and (now.mode == wanted.mode or now.kind != "file"):
            return None
        pairs = zip(changes[1:], changes, strict=False)
        is_whole = all(_is_one_of(later.before, earlier) for later, earlier in pairs)
        problem = wanted.why_lost
        if wanted.kind not in {"nothing", "file", "symlink"}:
            problem = f"a {wanted.kind} cannot be made again"
        return Step(path, wanted, now, not (is_whole and _is_one_of(now, last)), problem)

    def put_back(self, turn: int, agreed: Sequence[Step] | None = None) -> list[Step]:
        """Carry out the steps of `plan` that have no problem, and forget the changes since this turn; the steps that
        were carried out. `agreed`: the plan that a person has seen; None = any. Raises: `ToolError` where the plan is
        another one now, and at the first step that fails; the others stay, and it may be tried again."""
        with self._locked():
            return self._put_back(turn, agreed)

    def _put_back(self, turn: int, agreed: Sequence[Step] | None) -> list[Step]:
        planned = self._plan(turn)
        if agreed is not None and planned != [*agreed]:
            raise ToolError("another program has changed these files meanwhile")
        steps = [step for step in planned if not step.problem]
        removed = [step for step in steps if step.wanted.kind == "nothing" and step.now.kind != "directory"]
        folders = [step for step in steps if step.now.kind == "directory"]
        written = [step for step in steps if step.wanted.kind != "nothing"]
        for step in removed:
            with self._at(step.path) as place:
                place.folder.unlink(place.name)
        for step in sorted(folders, key=lambda step: step.path, reverse=True):  # the inner ones first
            with self._at(step.path) as place, contextlib.suppress(OSError):  # it holds something else
                place.folder.remove_folder(place.name)
        for step in written:
            is_lost = not os.path.isdir(os.path.dirname(step.path))  # the names of new folders are checked
            with self._at(step.path, make=is_lost) as place:
                if step.wanted.kind == "symlink":
                    place.folder.make_link(place.name, step.wanted.content)
                else:
                    if place.folder.link(place.name) is not None:
                        place.folder.unlink(place.name)
                    place.folder.replace(place.name, self._bytes(step), mode=step.wanted.mode)
        self._forget(turn)
        return steps

    def _bytes(self, step: Step) -> bytes:
        """Raises: `ToolError`."""
        digest = step.wanted.content
        try:
            if not _DIGEST.fullmatch(digest):
                raise ValueError(digest)
            content = read_within(self._folder / digest, MOST_FILE_BYTES)
            if hashlib.sha256(content).hexdigest() != digest:
                raise ValueError(digest)
        except (OSError, ValueError) as error:
            shown = quoted(self._roots.shown(step.path))
            raise ToolError(f"{shown}: its former content is missing or damaged in {self._folder}") from error
        return content

    def _forget(self, turn: int) -> None:
        """The changes since this turn are no more; nor is what only they need."""
        self._changes = [each for each in self._changes if each.path and each.turn < turn]
        try:
            if self._folder.is_dir():
                self._rewrite(_encoded(self._changes))
        except OSError as error:
            logger.warning("what is kept of changed files cannot be removed: %s", error.strerror or error)

    def _rewrite(self, lines: bytes) -> None:
        """Replace the list; bytes that it does not need are removed. Raises: `OSError`."""
        replace_private(self._folder / NAME, lines)
        self._read()
        needed = {each.before.content for each in self._changes} | {NAME}
        for file in self._folder.iterdir():
            if file.name not in needed:
                self._n_bytes -= file.stat().st_size
                file.unlink()

    @contextlib.contextmanager
    def _at(self, path: str, *, make: bool = False) -> Iterator[Location]:
        """The place of an absolute path, which must still lead there. Raises: `ToolError`."""
        with self._roots.find(path, follow=False, make=make) as place:
            if place.path != path:
                raise ToolError(f"{quoted(self._roots.shown(path))}: a link leads elsewhere now")
            yield place


_SIDES = ("before", "after")
_DAMAGED = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What a list that is no list of ours raises."""


def _state(fields: dict[str, Any]) -> State:
    texts = {name: str(fields.get(name, "")) for name in ("kind", "content", "why_lost")}
    return State(**texts, mode=int(fields.get("mode", 0)))


def _read_row(line: bytes) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line.decode("utf-8", "surrogateescape"))
    return row


def _row(change: Change) -> dict[str, Any]:
    row = {"turn": change.turn, "by": change.by}
    if not change.path:
        return row
    return row | {"path": change.path} | {side: _without_defaults(getattr(change, side)) for side in _SIDES}


def _encoded(changes: Iterable[Change]) -> bytes:
    lines = (json.dumps(_row(each), ensure_ascii=False) + "\n" for each in changes)
    return "".join(lines).encode("utf-8", "surrogateescape")


def _without_defaults(state: State) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(state).items() if value != getattr(NOTHING, name)} | {
        "kind": state.kind
    }


def _is_one_of(state: State, change: Change) -> bool:
    """Whether a change of ours explains what is there; it may have failed."""
    return state.is_like(change.after) or state.is_like(change.before)


def _look(folder: Folder, name: str) -> tuple[State, bytes]:
    """What is at a name, and the bytes of a file that is not too large. Raises: `OSError`."""
    if (status := folder.look(name)) is None:
        return NOTHING, b""
    kind = kind_of(status)
    if kind == "symlink":
        return State(kind, folder.link(name) or ""), b""
    if kind != "file":
        return State(kind), b""
    mode = stat.S_IMODE(status.st_mode) & 0o777
    with open(folder.open(name), "rb") as file:
        content = file.read(MOST_FILE_BYTES + 1)
        if len(content) > MOST_FILE_BYTES:
            size = os.fstat(file.fileno()).st_size
            why = f"it has {size:,} bytes, and up to {MOST_FILE_BYTES:,} are kept"
            return State("file", f"{size} bytes", mode, why), b""
    return State("file", hashlib.sha256(content).hexdigest(), mode), content
