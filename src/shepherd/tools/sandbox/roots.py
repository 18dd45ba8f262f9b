"""The folders that file tools may touch, and the walk from a path to an open directory.

    Roots.find("src/../link/a.txt") ─▶ Location: an open directory and a name in it that is no link

A path is walked one name at a time, each opened relative to the directory before it and never through a symbolic link.
Links are read and walked by hand, `..` removes the last walked name, and a step that leaves a root starts again from
the root that holds it, or is refused. So nothing outside is opened even if another program changes the tree meanwhile
(a directory replaced by a link during a call); and a refusal does not reveal whether there is something.

Hard links look like files: one inside can be read; a write replaces the name and not the file.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import itertools
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from shepherd.core.dataclasses import dataclass, field
from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.folder import BAD_ON_WINDOWS, Folder, NotAFile, kind_of
from shepherd.tools.sandbox.tree import walk

LONGEST_PATH = 4096
"""Bytes; the limit of Linux."""
MOST_LINKS = 40
"""On the way of one path; more are a circle."""
SHOWN_NAMES = 20
"""Of a folder, where a path is wrong."""
SHOWN_GUESSES = 3
SHOWN_CHARS = 300
"""Of a path in a message."""
LOOKED_AT = 2_000
"""Entries that are searched for one of the same name."""


class OutsideRoots(ToolError):
    """A path that leads out of the roots."""


class MissingPath(ToolError):
    """A path that leads to nothing."""


class NotAFolder(MissingPath):
    """A path that cannot exist: a file is on the way."""


class Journal(Protocol):
    """Hears of each change before it happens, under `Roots.writing`: `journal.py`."""

    def before(self, folder: Folder, name: str, new: bytes | None) -> None:
        """A file gets the content `new`, or a name is removed."""

    def made(self, path: str) -> None:
        """A folder is created."""


@dataclass(frozen=True, slots=True)
class Location:
    """The end of a path: a name in an open directory. Valid within the `with` of `Roots.find`."""

    folder: Folder
    name: str
    """`.` for the top of a root."""
    way: PathWalk

    @property
    def path(self) -> str:
        """Absolute, without links."""
        return self.folder.path if self.name == "." else os.path.join(self.folder.path, self.name)

    @property
    def shown(self) -> str:
        """For messages and results: relative to the current folder if it lies below."""
        return printable(self.way.roots.shown(self.path))

    def look(self) -> os.stat_result | None:
        """None = there is nothing."""
        return self.folder.look(self.name)

    def stat(self) -> os.stat_result:
        """Raises: `MissingPath`."""
        if (status := self.look()) is None:
            raise self.way.missing(self.folder, self.name)
        return status

    def replace(self, content: bytes) -> bool:
        """Write a whole file; whether it is a new one. Raises: as `Folder.replace`."""
        if (journal := self.way.roots.journal) is not None:
            journal.before(self.folder, self.name, content)
        return self.folder.replace(self.name, content)

    def unlink(self) -> None:
        """Remove a file, or a link and not what it leads to. Raises: as `Folder.unlink`."""
        if (journal := self.way.roots.journal) is not None:
            journal.before(self.folder, self.name, None)
        self.folder.unlink(self.name)

    def open_folder(self) -> Folder:
        """Itself, where it is a directory. Raises: `MissingPath`, `ToolError`."""
        if (kind := kind_of(self.stat())) != "directory":
            raise ToolError(f"{quoted(self.shown)} is a {kind}, not a folder")
        return self.folder.child(self.name)


@dataclass(frozen=True, slots=True)
class Roots:
    """Some folders of the file system, and the folder where relative paths begin."""

    folders: tuple[str, ...]
    """Absolute, without links."""
    base: str
    """In one of them; called `.`."""
    writing: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held during a change of a file, so that two edits of a file in one answer both stay."""
    journal: Journal | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, folders: Sequence[str] | None = None, base: str | None = None, journal: Journal | None = None) -> Roots:
        """No `folders`: the `base`. `base` None: the working folder; one outside of the folders: the first of them."""
        tops = tuple(dict.fromkeys(os.path.realpath(os.path.expanduser(each)) for each in folders or (base or ".",)))
        start = os.path.realpath(os.path.expanduser(base or "."))
        return cls(tops, start if any(is_below(start, top) for top in tops) else tops[0], journal=journal)

    def shown(self, path: str) -> str:
        """An absolute path as a model may give it back: from the base where it lies below, with `/`."""
        if not is_below(path, self.base):
            return path
        return os.path.relpath(path, self.base).replace(os.sep, "/")

    def directory(self, path: str = ".") -> str:
        """The absolute path of a folder, without links. Raises: `ToolError`."""
        with self.find(path) as place, place.open_folder() as folder:
            return folder.path

    @contextlib.contextmanager
    def find(self, path: str, *, follow: bool = True, make: bool = False) -> Iterator[Location]:
        """The location of a path. `follow`: the last name, too, if it is a link. `make`: create missing folders.

        Within the `with`, an `OSError` becomes a `ToolError` that names the path.

        Raises: `OutsideRoots`, `MissingPath` (a folder on the way), `ToolError`.
        """
        checked(path, make=make)
        with in_words(path):
            place = PathWalk(self, path, follow=follow, make=make).place()
            with place.folder:
                yield place

    def outside(self, path: str) -> OutsideRoots:
        others = "".join(f", {each}" for each in self.folders if each != self.base)
        meant = [quoted(self.shown(each)) for each in self.named(path)]
        return OutsideRoots(
            f"{quoted(path)} is outside the folders that tools may use: {self.base} (the current folder, called "
            f'"."){others}; use a path inside them{f", such as {meant[0]}" if meant else ""}'
        )

    def named(self, path: str) -> list[str]:
        """Files below the base with the last name of a path, among the first `LOOKED_AT` entries."""
        name = re.split(r"[/\\]", path.strip(" \n\r\t\"'`"))[-1]
        try:
            with Folder.top(self.base) as base, contextlib.closing(walk(base)) as files:
                seen = itertools.islice(files, LOOKED_AT)
                found = (names for _, names, kind in seen if names[-1] == name and kind == "file")
                return [os.path.join(self.base, *names) for names in itertools.islice(found, SHOWN_GUESSES)]
        except OSError:
            return []


@dataclass(slots=True)
class PathWalk:
    """The walk of one path: the names to come (`todo`), and those walked so far (`root` and `done`)."""

    roots: Roots
    path: str
    follow: bool
    make: bool
    n_links: int = 0
    root: str = ""
    done: list[str] = field(default_factory=list)
    """Directories below `root`, each in the one before; none is a link."""
    todo: deque[str] = field(default_factory=deque)

    def place(self) -> Location:
        """Raises: `OutsideRoots`, `MissingPath`, `ToolError`, `OSError`."""
        self.start(os.path.join(self.roots.base, home(self.path)))
        folder = Folder.top(self.root)
        try:
            while self.todo:
                name = self.todo.popleft()
                if name == "..":
                    self.up()
                elif (self.todo or self.follow) and (link := folder.link(name)) is not None:
                    self.follow_link(link)
                elif self.todo:
                    with folder:
                        folder = self.enter(folder, name)
                    self.done.append(name)
                    continue
                else:
                    return Location(folder, name, self)
                folder.close()
                folder = Folder.top(self.root).down(self.done)
            if not self.done:
                return Location(folder, ".", self)
            folder.close()
            folder = Folder.top(self.root).down(self.done[:-1])
            return Location(folder, self.done[-1], self)
        except BaseException:
            folder.close()
            raise

    def start(self, path: str) -> None:
        """Begin at the root that holds this absolute path; `todo` stays behind it."""
        for candidate in self.spellings(path.rstrip(os.sep) or os.sep):
            drive, names = split(candidate)
            for root in sorted(self.roots.folders, key=len, reverse=True):
                root_drive, top = split(root)
                begin, wanted = ([os.path.normcase(each) for each in part] for part in (names[: len(top)], top))
                if drive == root_drive and begin == wanted:
                    self.root, self.done = root, []
                    self.todo.extendleft(reversed(names[len(top) :]))
                    return
        raise self.roots.outside(self.path)

    def spellings(self, path: str) -> Iterator[str]:
        """An absolute path, then without the links above the roots, such as /tmp on a Mac. It is not opened."""
        yield path
        with contextlib.suppress(OSError):  # it changes meanwhile
            yield os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            if self.follow:
                yield os.path.realpath(path)

    def up(self) -> None:
        if self.done:
            self.done.pop()
            return
        rest = list(self.todo)
        self.todo.clear()
        self.start(os.path.join(os.path.dirname(self.root), *rest))

    def follow_link(self, link: str) -> None:
        self.n_links += 1
        if self.n_links > MOST_LINKS:
            raise ToolError(f"{quoted(self.path)} goes through more than {MOST_LINKS} links, in a circle perhaps")
        if os.path.isabs(link):
            self.start(link)
        else:
            self.todo.extendleft(reversed(split(link)[1]))

    def enter(self, folder: Folder, name: str) -> Folder:
        try:
            return folder.child(name)
        except FileNotFoundError:
            if not self.make or ".." in self.todo:  # a folder that the path leaves again is not created
                raise self.missing(folder, name) from None
            if self.roots.journal is not None:
                self.roots.journal.made(os.path.join(folder.path, name))
            folder.make(name)
            return folder.child(name)
        except NotADirectoryError:
            kind = kind_of(status) if (status := folder.look(name)) else "directory"
            if kind in {"directory", "symlink"}:  # it was something else when it was opened
                raise ToolError(f"{quoted(self.path)} is being changed by another program; try again") from None
            shown = quoted(self.roots.shown(os.path.join(folder.path, name)))
            raise NotAFolder(f"there is no {quoted(self.path)}: {shown} is a {kind} and not a folder") from None

    def missing(self, folder: Folder, name: str) -> MissingPath:
        """A sentence with similar names, and with the names in the folder."""
        entries = {}
        with contextlib.suppress(OSError):  # a folder that may be passed through, and not read
            entries = {each: f"{each}/" if kind == "directory" else each for each, kind in folder.scan()}
        where = self.roots.shown(folder.path)
        names = [each.casefold() for each in itertools.islice(entries, LOOKED_AT)]
        near = difflib.get_close_matches(name.casefold(), names, SHOWN_GUESSES)
        guesses = [os.path.join(folder.path, each) for word in near for each in entries if each.casefold() == word]
        guesses += self.roots.named(self.path)
        meant = dict.fromkeys(quoted(self.roots.shown(each)) for each in guesses)
        held = [printable(each) for each in entries.values()]
        rest = f" and {len(held) - SHOWN_NAMES} more" if len(held) > SHOWN_NAMES else ""
        return MissingPath(
            f"there is no {quoted(self.path)}"
            + (f"; did you mean {' or '.join([*meant][:SHOWN_GUESSES])}?" if meant else ".")
            + (' The current folder, called ".",' if where == "." else f" The folder {quoted(where)}")
            + (f" holds: {', '.join(held[:SHOWN_NAMES])}{rest}" if held else " is empty or cannot be listed")
        )


# -- words ------------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """A name on one line, with invisible and control characters escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def quoted(path: str) -> str:
    shown = printable(path)
    return f'"{shown}"' if len(shown) <= SHOWN_CHARS else f'"{shown[: SHOWN_CHARS // 2]}…{shown[-SHOWN_CHARS // 2 :]}"'


@contextlib.contextmanager
def in_words(path: str) -> Iterator[None]:
    """Turns an `OSError` into a `ToolError` that names the path."""
    try:
        yield
    except NotAFile as error:
        raise ToolError(f"{quoted(path)} {error.strerror}") from error
    except OSError as error:
        reason = WORDS.get(error.errno or 0) or f"cannot be used: {(error.strerror or str(error)).lower()}"
        raise ToolError(f"{quoted(path)} {reason}") from error


WORDS = {
    errno.EACCES: "cannot be used: permission denied by the system",
    errno.EPERM: "cannot be used: not permitted by the system",
    errno.ENAMETOOLONG: "has a name that is too long; a name may have 255 bytes",
    errno.ENOSPC: "cannot be written: the disk is full",
    errno.EROFS: "cannot be written: the file system is read-only",
    errno.ELOOP: "is being changed by another program; try again",
    errno.ENOTDIR: "is being changed by another program; try again",
    errno.ENOENT: "is being changed by another program, or its folder has gone; try again",
    errno.ETXTBSY: "cannot be written: it is a running program",
    errno.EAGAIN: "has nothing to read at this moment",
    errno.EIO: "cannot be read",
}


# -- paths ------------------------------------------------------------------------------------------------------------


def checked(path: str, *, make: bool) -> None:
    """Raises: `ToolError` for a path that no system takes, and for a URL."""
    try:
        n_bytes = len(os.fsencode(path))
    except UnicodeEncodeError as error:
        raise ToolError(f"the path {quoted(path)} has half a character in it; give it as plain text") from error
    if "\0" in path:
        raise ToolError(f"the path {quoted(path)} has a NUL character in it; leave it out")
    if n_bytes > LONGEST_PATH:
        raise ToolError(f"the path has {n_bytes:,} bytes; it may have {LONGEST_PATH:,}")
    if path.lower().startswith("file:/"):
        raise ToolError(f"{quoted(path)} is a URL; give the plain path")
    if make and any(not each.isprintable() and each.isascii() for each in path):
        raise ToolError(f"the path {quoted(path)} has a control character in it, such as a new line; leave it out")
    if os.name == "nt" and any(BAD_ON_WINDOWS.search(name) for name in split(path)[1] if name != ".."):
        raise ToolError(f"the path {quoted(path)} contains a name that Windows reserves; use another one")


def home(path: str) -> str:
    """The path with `~` of the user resolved; `~name` may be a file and stays."""
    return os.path.expanduser(path) if path == "~" or path.startswith(("~/", "~" + os.sep)) else path


def split(path: str) -> tuple[str, list[str]]:
    """The drive (of Windows), and the names without empty ones and `.`."""
    drive, rest = os.path.splitdrive(path)
    names = rest.replace(os.sep, "/").split("/")
    return os.path.normcase(drive), [name for name in names if name not in {"", "."}]


def is_below(path: str, top: str) -> bool:
    """Whether an absolute path is another one or below it; both without links."""
    path, top = os.path.normcase(path), os.path.normcase(top)
    return path == top or path.startswith(top.rstrip(os.sep) + os.sep)
